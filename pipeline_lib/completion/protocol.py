"""Tag completion in the pipeline: hide tags, complete, and score what comes back."""

from __future__ import annotations

import inspect
import time
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray
from pydantic import Field, model_validator

from pipeline_lib import registry
from pipeline_lib.artifacts import Artifact, ArtifactWriter
from pipeline_lib.completion.base import TagCompleter, VisualInput
from pipeline_lib.completion.observation import kept_features, read_graph
from pipeline_lib.completion.sampling import hold_out_draw, validation_folds
from pipeline_lib.datasets.catalogue import dataset_spec
from pipeline_lib.errors import InputError
from pipeline_lib.metrics.completion import completion_metrics
from pipeline_lib.metrics.recovery import held_out_likelihood, recovery_metrics
from pipeline_lib.metrics.result import MetricResult
from pipeline_lib.protocol import Data, FitLog, ProblemKind, write_evaluation
from pipeline_lib.specs import FeatureStep, Parameters, PathSpec, StrictModel

_LISTED_TAGS = 10  # tags kept of each image's ranked list
_STEPS = "pipeline_lib.completion.observation"
# Parameters by which a row asks for a graph of its own instead of the problem's.
_OWN_GRAPH = ("n_neighbors", "metric")

Array = NDArray[np.float64]


class Completion(ProblemKind):
    """Completing the tags of images of which only a few are observed.

    Of each image with enough tags, all but ``n_observed`` random ones are hidden; a share of the observed
    ones may be replaced by wrong tags. Every method sees the same draw. Parameters are chosen by
    cross-validation on the observed tags: one observed tag of each image of a fold is hidden as well.

    The task says what a ranking is scored against:

    - completion: the hidden tags, observed ones taken out of the ranking;
    - ranking: all tags initially assigned to the image, observed ones ranked with the others;
    - refinement: the manual labels of the same images in part ``labels``, likewise;
    - recovery: the probabilities behind a generated dataset, from which tags are drawn anew, with
      repetition; methods that take counts only.
    """

    name: ClassVar[str] = "completion"
    title: ClassVar[str] = "tag completion"
    item: ClassVar[str] = "image"

    class Options(StrictModel):
        """Options of a completion problem.

        Attributes
        ----------
        task : {"completion", "ranking", "refinement", "recovery"}
            See `Completion`.
        n_observed : int
            Observed tags an image, m* (draws an image for recovery).
        min_tags_per_image, min_images_per_tag : int
            Filters applied before anything is hidden.
        max_images : int, optional
            Images drawn at random from what the filters leave, a bound on the time; all by default.
        noise : float
            Share of the observed tags replaced by wrong ones.
        labels : str, optional
            Part with the manual labels, for refinement.
        graph_neighbors : int, optional
            Neighbours in the graph of similar images for methods with a graph term; .001 n by
            default, as in the thesis.
        graph_metric : {"euclidean", "chi2"}
            Distance of that graph.
        cutoffs : list of int
            N of AP@N, AR@N and C@N.
        folds : int
            Folds of the cross-validation on observed tags.
        validated_folds : int, optional
            How many of them are worked through; all by default.
        sweep : {"n_observed", "noise", "rate"}, optional
            What the problems of the suite vary: the report draws one curve for each row over them.
        """

        task: Literal["completion", "ranking", "refinement", "recovery"] = "completion"
        n_observed: int = Field(default=2, ge=1)
        min_tags_per_image: int = Field(default=3, ge=1)
        min_images_per_tag: int = Field(default=1, ge=1)
        max_images: int | None = Field(default=None, ge=2)
        noise: float = Field(default=0.0, ge=0.0, le=1.0)
        labels: str | None = None
        graph_neighbors: int | None = Field(default=None, ge=1)
        graph_metric: Literal["euclidean", "chi2"] = "euclidean"
        cutoffs: list[int] = Field(default=[1, 3, 5], min_length=1)
        folds: int = Field(default=5, ge=2)
        validated_folds: int | None = Field(default=None, ge=1)
        sweep: Literal["n_observed", "noise", "rate"] | None = None

        @model_validator(mode="after")
        def _consistent(self) -> Completion.Options:
            if (self.task == "refinement") != (self.labels is not None):
                raise ValueError('the task "refinement" and the part of its labels need each other')
            if self.task == "recovery" and self.noise:
                raise ValueError("recovery has no noise beside that of the draws")
            return self

    def selection_metrics(self, options: Parameters) -> list[str]:
        """Metrics of held-out tags; of recovery, the likelihood of held-out draws."""
        if options["task"] == "recovery":
            return list(held_out_likelihood([[1.0]], [[1]]).means)
        tags = np.ones((1, max(options["cutoffs"])))
        return list(completion_metrics(tags, 0 * tags, tags, options["cutoffs"]).means)

    def check_data(self, dataset: str, splits: Sequence[str], *, path: Any = None) -> None:
        """Raise `InputError` unless each split is a part with tags."""
        declared = dataset_spec(dataset)
        for split in splits:
            if declared.part(split).kind != "tags":
                raise InputError(f'"{dataset}" {split} has no tags', path=path)

    def parts(self, spec: PathSpec) -> dict[str, str]:
        """The part whose tags are completed, and that of the manual labels for refinement."""
        labels = spec.options["labels"]
        return {"all": spec.split} | ({"labels": labels} if labels else {})

    def features(self, spec: PathSpec) -> list[FeatureStep]:
        """The filtered tags and what of them is observed, then the visual graph where it is used."""
        seed = spec.data_seed("observed")
        if spec.options["task"] == "recovery":
            params: Parameters = {"n_observed": spec.options["n_observed"], "seed": seed}
            return [
                FeatureStep(name="drawn", function=f"{_STEPS}:draw", params=params, roles=("all",))
            ]
        names = (
            "task",
            "n_observed",
            "min_tags_per_image",
            "min_images_per_tag",
            "max_images",
            "noise",
        )
        params = {name: spec.options[name] for name in names}
        # Ranking and refinement replace a share of every image's tags, completion one of all together.
        steps = [
            FeatureStep(
                name="observed",
                function=f"{_STEPS}:observe",
                params={**params, "seed": seed},
                roles=tuple(self.parts(spec)),
            )
        ]
        if "graph" in _visual_inputs(spec) and not _has_own_graph(spec):
            steps.append(
                FeatureStep(
                    name="graph",
                    function=f"{_STEPS}:graph",
                    params={
                        "n_neighbors": spec.options["graph_neighbors"],
                        "metric": spec.options["graph_metric"],
                    },
                    roles=("all",),
                )
            )
        return steps

    def fit(
        self, spec: PathSpec, data: Data, features: Sequence[Artifact], out: ArtifactWriter
    ) -> None:
        """Measure each setting by cross-validation on the observed tags."""
        seen = _Seen(spec, data, features)
        log = FitLog()
        for index in range(len(spec.settings)):
            with log.trial(index) as record:
                if len(spec.settings) > 1:
                    frames = []
                    for left, images in _folds(spec, seen.observed):
                        model = seen.fitted(index, left)
                        frames.append(_validation(spec, model, left, seen.observed, images))
                        record.take(model)
                    record.validation = _joined(frames)
        log.write(out)

    def evaluate(
        self,
        spec: PathSpec,
        index: int,
        data: Data,
        features: Sequence[Artifact],
        fitted: Artifact,
        out: ArtifactWriter,
    ) -> None:
        """Complete the observed tags and score the result."""
        seen = _Seen(spec, data, features)
        started = time.perf_counter()
        model = seen.fitted(index, seen.observed)
        seconds = time.perf_counter() - started
        truth = features[0].array("truth")
        if spec.options["task"] == "recovery":
            result, shown = recovery_metrics(model.scores_, truth), np.zeros_like(seen.observed)
            # r n log(n + m) / N of Theorem 4.1, with N = n m* draws.
            rate = int(features[0].array("rank")) * np.log(sum(truth.shape))
            result.means["rate"] = float(rate / spec.options["n_observed"])
        else:
            shown = seen.observed
            if spec.options["task"] != "completion":
                shown = np.zeros_like(shown)
            result = completion_metrics(model.scores_, shown, truth, spec.options["cutoffs"])
        write_evaluation(
            out, {"default": result}, seconds=seconds, predictions=_best(model.scores_, shown)
        )
        out.record(
            rank=getattr(model, "rank_", None),
            objective=getattr(model, "objective_", None),
            iterations=getattr(model, "n_iter_", None),
            converged=getattr(model, "converged_", None),
        )


class _Seen:
    """What the methods of a path get to see, and how they are fitted on it."""

    def __init__(self, spec: PathSpec, data: Data, features: Sequence[Artifact]) -> None:
        self.spec = spec
        self.observed = features[0].array("observed")
        wanted = _visual_inputs(spec)
        needs_rows = "features" in wanted or ("graph" in wanted and _has_own_graph(spec))
        self.X = kept_features(data, features[0]) if needs_rows else None
        self.laplacian = read_graph(features[1]) if len(features) > 1 else None

    def fitted(self, index: int, observed: NDArray[Any]) -> TagCompleter:
        """Fit setting ``index`` on observed tags."""
        return _model(self.spec, index).fit(observed, X=self.X, laplacian=self.laplacian)


def _visual_inputs(spec: PathSpec) -> set[VisualInput]:
    return {_model(spec, index).visual_input for index in range(len(spec.settings))}


def _has_own_graph(spec: PathSpec) -> bool:
    return any(name in spec.trial(i) for i in range(len(spec.settings)) for name in _OWN_GRAPH)


def _folds(spec: PathSpec, observed: NDArray[Any]) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
    seed = spec.data_seed("validation")
    folds = spec.options["folds"]
    worked = spec.options["validated_folds"] or folds
    if spec.options["task"] == "recovery":
        yield hold_out_draw(observed, seed), np.arange(len(observed))
        return
    for number, fold in enumerate(validation_folds(observed, folds, seed)):
        if number == worked:
            return
        yield fold


def _validation(
    spec: PathSpec,
    model: TagCompleter,
    left: NDArray[Any],
    observed: NDArray[Any],
    images: NDArray[Any],
) -> pl.DataFrame:
    if spec.options["task"] == "recovery":
        measured = held_out_likelihood(model.scores_, observed - left)
    else:
        measured = completion_metrics(
            model.scores_[images], left[images], observed[images], spec.options["cutoffs"]
        )
    return measured.per_item.with_columns(pl.Series("image", images))


def _joined(frames: list[pl.DataFrame]) -> MetricResult:
    items = pl.concat(frames)
    means = {name: float(items[name].mean()) for name in items.columns if name != "image"}  # type: ignore[arg-type]
    return MetricResult(items, means)


def _model(spec: PathSpec, index: int) -> TagCompleter:
    method = registry.method(spec.method, "completion")
    params = {**method.defaults, **spec.params, **spec.settings[index]}
    if "random_state" in inspect.signature(method.load()).parameters:
        params["random_state"] = spec.method_seed("fit")
    model: TagCompleter = method.load()(**params)
    return model


def _best(scores: Array, shown: NDArray[Any]) -> pl.DataFrame:
    """The best tags of each image that are not taken out of the ranking."""
    masked = np.where(shown > 0, -np.inf, scores)
    count = min(_LISTED_TAGS, scores.shape[1])
    best = np.argsort(-masked, axis=1, kind="stable")[:, :count]
    return pl.DataFrame(
        {
            "image": np.repeat(np.arange(len(scores)), count),
            "tag": best.ravel(),
            "score": np.take_along_axis(scores, best, axis=1).ravel(),
        }
    )
