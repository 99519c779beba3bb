"""Tag completion in the pipeline: hide tags, complete, and score what comes back."""

from __future__ import annotations

import inspect
import time
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import polars as pl
from numpy.typing import NDArray
from pydantic import Field

from pipeline_lib import registry
from pipeline_lib.artifacts import Artifact, ArtifactWriter
from pipeline_lib.completion.base import TagCompleter
from pipeline_lib.completion.sampling import (
    filter_tags,
    hide_tags,
    replace_with_noise,
    validation_folds,
)
from pipeline_lib.datasets.catalogue import dataset_spec
from pipeline_lib.errors import InputError
from pipeline_lib.metrics.completion import completion_metrics
from pipeline_lib.metrics.result import MetricResult
from pipeline_lib.protocol import Data, FitLog, ProblemKind, write_evaluation
from pipeline_lib.specs import FeatureStep, Parameters, PathSpec, StrictModel

_LISTED_TAGS = 10  # tags kept of each image's ranked list


class Completion(ProblemKind):
    """Completing the tags of images of which only a few are observed.

    Of each image with enough tags, all but ``n_observed`` random ones are hidden; a share of the observed
    ones may be replaced by wrong tags. Every method sees the same draw. Parameters are chosen by
    cross-validation on the observed tags: one observed tag of each image of a fold is hidden as well.
    """

    name: ClassVar[str] = "completion"
    title: ClassVar[str] = "tag completion"
    item: ClassVar[str] = "image"

    class Options(StrictModel):
        """Options of a completion problem.

        Attributes
        ----------
        n_observed : int
            Observed tags an image, m*.
        min_tags_per_image, min_images_per_tag : int
            Filters applied before anything is hidden.
        noise : float
            Share of the observed tags replaced by wrong ones.
        cutoffs : list of int
            N of AP@N, AR@N and C@N.
        folds : int
            Folds of the cross-validation on observed tags.
        validated_folds : int, optional
            How many of them are worked through; all by default.
        """

        n_observed: int = Field(default=2, ge=1)
        min_tags_per_image: int = Field(default=3, ge=1)
        min_images_per_tag: int = Field(default=1, ge=1)
        noise: float = Field(default=0.0, ge=0.0, le=1.0)
        cutoffs: list[int] = Field(default=[1, 3, 5], min_length=1)
        folds: int = Field(default=5, ge=2)
        validated_folds: int | None = Field(default=None, ge=1)

    def check_data(self, dataset: str, splits: Sequence[str], *, path: Any = None) -> None:
        """Raise `InputError` unless each split is a part with tags."""
        declared = dataset_spec(dataset)
        for split in splits:
            if declared.part(split).kind != "tags":
                raise InputError(f'"{dataset}" {split} has no tags', path=path)

    def parts(self, spec: PathSpec) -> dict[str, str]:
        """The part whose tags are completed."""
        return {"all": spec.split}

    def features(self, spec: PathSpec) -> list[FeatureStep]:
        """The filtered tags and what of them is observed, shared by all methods."""
        names = ("n_observed", "min_tags_per_image", "min_images_per_tag", "noise")
        params: Parameters = {name: spec.options[name] for name in names}
        return [
            FeatureStep(
                name="observed",
                function="pipeline_lib.completion.protocol:observe",
                params={**params, "seed": spec.data_seed("observed")},
                roles=("all",),
            )
        ]

    def fit(
        self, spec: PathSpec, data: Data, features: Sequence[Artifact], out: ArtifactWriter
    ) -> None:
        """Measure each setting by cross-validation on the observed tags."""
        observed = features[0].array("observed")
        log = FitLog()
        for index in range(len(spec.settings)):
            with log.trial(index) as record:
                if len(spec.settings) > 1:
                    record.validation = self._cross_validated(spec, index, observed)
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
        """Complete the observed tags and score the hidden ones."""
        observed, truth = features[0].array("observed"), features[0].array("truth")
        model = _model(spec, index)
        started = time.perf_counter()
        model.fit(observed)
        seconds = time.perf_counter() - started
        result = completion_metrics(model.scores_, observed, truth, spec.options["cutoffs"])
        write_evaluation(
            out, {"default": result}, seconds=seconds, predictions=_best(model.scores_, observed)
        )
        history = getattr(model, "history_", {})
        out.record(
            rank=getattr(model, "rank_", None),
            objective=getattr(model, "objective_", None),
            iterations=len(history.get("objective", ())),
        )

    def _cross_validated(
        self, spec: PathSpec, index: int, observed: NDArray[np.uint8]
    ) -> MetricResult:
        frames = []
        folds = spec.options["folds"]
        worked = spec.options["validated_folds"] or folds
        seed = spec.data_seed("validation")
        for number, (left, images) in enumerate(validation_folds(observed, folds, seed)):
            if number == worked:
                break
            scores = _model(spec, index).fit(left).scores_[images]
            measured = completion_metrics(
                scores, left[images], observed[images], spec.options["cutoffs"]
            )
            frames.append(measured.per_item.with_columns(pl.Series("image", images)))
        items = pl.concat(frames)
        means = {name: float(items[name].mean()) for name in items.columns if name != "image"}  # type: ignore[arg-type]
        return MetricResult(items, means)


def observe(
    params: Parameters, data: Data, previous: Artifact | None
) -> Mapping[str, NDArray[Any]]:
    """Filter, hide and corrupt the tags of a dataset."""
    Y = data["all"].tag_matrix()
    images, tags = filter_tags(Y, params["min_tags_per_image"], params["min_images_per_tag"])
    if len(images) < 2 or len(tags) < 2:
        raise InputError(
            f"the filters leave {len(images)} images and {len(tags)} tags", remedy="loosen them"
        )
    truth = Y[np.ix_(images, tags)]
    observed = hide_tags(truth, params["n_observed"], params["seed"], images)
    if params["noise"] > 0:
        observed = replace_with_noise(observed, truth, params["noise"], params["seed"], images)
    return {"truth": truth, "observed": observed, "images": images, "tags": tags}


def _model(spec: PathSpec, index: int) -> TagCompleter:
    method = registry.method(spec.method, "completion")
    params = {**method.defaults, **spec.params, **spec.settings[index]}
    if "random_state" in inspect.signature(method.load()).parameters:
        params["random_state"] = spec.method_seed("fit")
    model: TagCompleter = method.load()(**params)
    return model


def _best(scores: NDArray[np.float64], observed: NDArray[np.uint8]) -> pl.DataFrame:
    """The best unobserved tags of each image."""
    masked = np.where(observed > 0, -np.inf, scores)
    count = min(_LISTED_TAGS, scores.shape[1])
    best = np.argsort(-masked, axis=1, kind="stable")[:, :count]
    return pl.DataFrame(
        {
            "image": np.repeat(np.arange(len(scores)), count),
            "tag": best.ravel(),
            "score": np.take_along_axis(scores, best, axis=1).ravel(),
        }
    )
