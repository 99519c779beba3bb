"""Image annotation in the pipeline: learn from tagged images, rank the tags of others."""

from __future__ import annotations

import inspect
import time
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray
from pydantic import Field, model_validator

from pipeline_lib import registry
from pipeline_lib.annotation import theory
from pipeline_lib.artifacts import Artifact, ArtifactWriter
from pipeline_lib.datasets.catalogue import dataset_spec
from pipeline_lib.datasets.container import Dataset
from pipeline_lib.errors import InputError
from pipeline_lib.features.pca import unit_rows
from pipeline_lib.metrics.annotation import annotation_metrics, tag_metrics
from pipeline_lib.metrics.result import MetricResult
from pipeline_lib.protocol import Data, FitLog, ProblemKind, TrialRecord, write_evaluation
from pipeline_lib.specs import FeatureStep, Parameters, PathSpec, StrictModel

_LISTED_TAGS = 10  # tags kept of each image's ranked list
_EXAMPLES = 10  # test images shown in the report


class Annotation(ProblemKind):
    """Ranking the tags of images by models learned from tagged images.

    A split ``official`` uses the dataset's parts ``train`` and ``test`` (``official/densesift`` its
    parts ``train/densesift`` and ``test/densesift``); any other split is a part of which a share is
    drawn as test images, anew for each repetition. Parameters are chosen on training images only, by
    cross-validation or on a share that is held out; the chosen model is fitted on all of them.
    """

    name: ClassVar[str] = "annotation"
    title: ClassVar[str] = "image annotation"
    item: ClassVar[str] = "image"

    class Options(StrictModel):
        """Options of an annotation problem.

        Attributes
        ----------
        cutoffs : list of int
            t of AP@t, AR@t and F1@t.
        tags_per_image : int
            Tags given to each image for precision and recall per tag and N+.
        test_share : float
            Share of images drawn for test (unless the split is official).
        folds : int
            Folds of the cross-validation on training images; 0 holds one share out instead.
        validation_share : float
            That share.
        scale : {"none", "unit"}
            Features as they are, or rows of unit length.
        sweep : str, optional
            Parameter by which the rows of the problem differ: the report draws a curve over it.
        measure : list of {"training", "landmarks", "population"}
            What else is measured: AP@t on the training images; the error by sampling landmarks; the
            error of the learned similarity by training on a sample (`pipeline_lib.annotation.theory`).
        sizes : list of int
            Training images of ``population``.
        """

        cutoffs: list[int] = Field(default=[1, 2, 3, 4, 5], min_length=1)
        tags_per_image: int = Field(default=5, ge=1)
        test_share: float = Field(default=0.1, gt=0.0, lt=1.0)
        folds: int = Field(default=0, ge=0)
        validation_share: float = Field(default=0.2, gt=0.0, lt=1.0)
        scale: Literal["none", "unit"] = "none"
        sweep: str | None = None
        measure: list[Literal["training", "landmarks", "population"]] = []
        sizes: list[int] = []

        @model_validator(mode="after")
        def _consistent(self) -> Annotation.Options:
            if self.folds == 1:
                raise ValueError("one fold leaves nothing to learn from: write 0, or 2 and more")
            if ("population" in self.measure) != bool(self.sizes):
                raise ValueError('the measure "population" and sizes need each other')
            return self

    def selection_metrics(self, options: Parameters) -> list[str]:
        """Metrics of held-out training images."""
        tags = np.ones((1, max(options["cutoffs"])))
        return list(annotation_metrics(tags, tags, options["cutoffs"]).means)

    def check_data(self, dataset: str, splits: Sequence[str], *, path: Any = None) -> None:
        """Raise `InputError` unless each split has features and tags."""
        declared = dataset_spec(dataset)
        for split in splits:
            for name in _split_parts(split).values():
                part = declared.part(name)
                if part.kind != "tags":
                    raise InputError(f'"{dataset}" {name} has no tags', path=path)
                if part.expect.features == 0:
                    raise InputError(
                        f'"{dataset}" {name} has tags but no features to learn from',
                        path=path,
                        remedy=_with_features(split, [p.name for p in declared.parts]),
                    )

    def parts(self, spec: PathSpec) -> dict[str, str]:
        """Official training and test part, or the one part that is divided by seed."""
        return _split_parts(spec.split)

    def features(self, spec: PathSpec) -> list[FeatureStep]:
        """The division into training, validation and test images, with scaled features."""
        params: Parameters = {
            name: spec.options[name] for name in ("scale", "folds", "validation_share")
        }
        params["seed"] = spec.data_seed("images")
        roles = self.parts(spec)
        if "all" in roles:
            params["test_share"] = spec.options["test_share"]
        return [
            FeatureStep(
                name="images",
                function="pipeline_lib.annotation.protocol:divide_images",
                params=params,
                roles=tuple(roles),
            )
        ]

    def fit(
        self, spec: PathSpec, data: Data, features: Sequence[Artifact], out: ArtifactWriter
    ) -> None:
        """Measure each setting on training images that its model has not seen."""
        images = features[0]
        log = FitLog()
        for index in range(len(spec.settings)):
            with log.trial(index) as record:
                if len(spec.settings) > 1:
                    _validate(spec, index, images, record)
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
        """Fit on all training images, annotate the test images."""
        images = features[0]
        X, Y = images.array("X_train"), images.array("Y_train")
        X_test, Y_test = images.array("X_test"), images.array("Y_test")
        begun = time.perf_counter()
        model = make_model(spec, index).fit(X, Y)
        learning = time.perf_counter() - begun
        begun = time.perf_counter()
        scores = model.predict(X_test)
        seconds = time.perf_counter() - begun
        cutoffs = spec.options["cutoffs"]
        rows = images.array("test_rows")
        result = _of_images(annotation_metrics(scores, Y_test, cutoffs), rows)
        per_tag = tag_metrics(scores, Y_test, n_tags=spec.options["tags_per_image"])
        result.means.update({f"tag_{name}": value for name, value in per_tag.means.items()})
        measured = spec.options["measure"]
        if "training" in measured:
            seen = annotation_metrics(model.predict(X), Y, cutoffs).means
            result.means.update({f"train_{name}": value for name, value in seen.items()})
        if "landmarks" in measured:
            result.means["landmark_error"] = theory.landmark_error(model, X, Y, X_test)
        if "population" in measured:
            sizes = spec.options["sizes"]
            seed = spec.data_seed("population")
            errors = theory.population_errors(model, X, Y, X_test, sizes, random_state=seed)
            result.means.update(errors)
        write_evaluation(
            out, {"default": result}, seconds=seconds, predictions=_best(scores, Y_test, rows)
        )
        out.table("per_tag", per_tag.per_item)
        source = data["test"] if "test" in data else data["all"]
        out.table("picture", _examples(scores, Y_test, rows, source, spec))
        out.record(fit_seconds=learning)


def _split_parts(split: str) -> dict[str, str]:
    """Roles and parts of a split (see `Annotation`)."""
    official, _, features = split.partition("/")
    if official != "official":
        return {"all": split}
    return {role: f"{role}/{features}" if features else role for role in ("train", "test")}


def _with_features(split: str, parts: Sequence[str]) -> str | None:
    """Say which split to name instead, where the dataset has one with features."""
    official, _, _ = split.partition("/")
    stem = "train" if official == "official" else official
    found = [name.partition("/")[2] for name in parts if name.startswith(f"{stem}/")]
    if not found:
        return None
    return f"name a split with features, such as {official}/{found[0]}"


def divide_images(
    params: Parameters, data: Data, previous: Artifact | None
) -> Mapping[str, NDArray[Any]]:
    """Divide images into training and test, and training images into folds for validation.

    ``fold`` says in which fold a training image is held out, -1 in none; ``test_rows`` where a test
    image stands in its part.
    """
    rng = np.random.default_rng(params["seed"])
    if "all" in data:
        X, Y = data["all"].features(), data["all"].tag_matrix()
        order = rng.permutation(len(X))
        tested = max(1, round(params["test_share"] * len(X)))
        train, test = np.sort(order[tested:]), np.sort(order[:tested])
        X_train, Y_train, X_test, Y_test = X[train], Y[train], X[test], Y[test]
    else:
        X_train, Y_train = data["train"].features(), data["train"].tag_matrix()
        X_test, Y_test = data["test"].features(), data["test"].tag_matrix()
        test = np.arange(len(X_test))
        if X_train.shape[1] != X_test.shape[1] or Y_train.shape[1] != Y_test.shape[1]:
            raise InputError("training and test part differ in their features or tags")
    if params["scale"] == "unit":
        X_train, X_test = unit_rows(X_train), unit_rows(X_test)
    return {
        "X_train": np.asarray(X_train, dtype=np.float64),
        "Y_train": Y_train,
        "X_test": np.asarray(X_test, dtype=np.float64),
        "Y_test": Y_test,
        "fold": _folds(len(X_train), params["folds"], params["validation_share"], rng),
        "test_rows": test,
    }


def _folds(n: int, folds: int, share: float, rng: np.random.Generator) -> NDArray[np.int64]:
    order = rng.permutation(n)
    fold = np.full(n, -1, dtype=np.int64)
    if folds:
        if folds > n:
            raise InputError(f"{n} training images make no {folds} folds")
        fold[order] = np.arange(n) % folds
    else:
        fold[order[: max(1, round(share * n))]] = 0
    return fold


def _validate(spec: PathSpec, index: int, images: Artifact, record: TrialRecord) -> None:
    """Score held-out training images; seconds are the mean of one fit."""
    X, Y, fold = images.array("X_train"), images.array("Y_train"), images.array("fold")
    scores = np.zeros(Y.shape)
    seconds = []
    for held in np.unique(fold[fold >= 0]):
        test = fold == held
        begun = time.perf_counter()
        model = make_model(spec, index).fit(X[~test], Y[~test])
        seconds.append(time.perf_counter() - begun)
        scores[test] = model.predict(X[test])
        record.take(model)
    record.seconds = float(np.mean(seconds))
    rows = np.flatnonzero(fold >= 0)
    record.validation = _of_images(
        annotation_metrics(scores[rows], Y[rows], spec.options["cutoffs"]), rows
    )


def _of_images(result: MetricResult, rows: NDArray[np.int64]) -> MetricResult:
    """Name images by their row in the data, so that repetitions with other test images agree."""
    named = result.per_item.with_columns(pl.Series("image", rows))
    return MetricResult(named, result.means)


def make_model(spec: PathSpec, index: int) -> Any:
    """The unfitted estimator of one trial."""
    method = registry.method(spec.method, "annotation")
    params = {**method.defaults, **spec.params, **spec.settings[index]}
    if "random_state" in inspect.signature(method.load()).parameters:
        params["random_state"] = spec.method_seed("fit")
    return method.load()(**params)


def _best(
    scores: NDArray[np.float64], Y: NDArray[np.uint8], rows: NDArray[np.int64]
) -> pl.DataFrame:
    """The best tags of each image, and whether it has them."""
    count = min(_LISTED_TAGS, scores.shape[1])
    best = np.argsort(-scores, axis=1, kind="stable")[:, :count]
    return pl.DataFrame(
        {
            "image": np.repeat(rows, count),
            "tag": best.ravel(),
            "score": np.take_along_axis(scores, best, axis=1).ravel(),
            "true": np.take_along_axis(Y, best, axis=1).ravel() > 0,
        }
    )


def _examples(
    scores: NDArray[np.float64],
    Y: NDArray[np.uint8],
    rows: NDArray[np.int64],
    source: Dataset,
    spec: PathSpec,
) -> pl.DataFrame:
    """A few tagged test images, evenly spaced, with their tags and the best ones by name."""
    tagged = np.flatnonzero(Y.any(axis=1))
    shown = tagged[np.linspace(0, len(tagged) - 1, min(_EXAMPLES, len(tagged))).astype(int)]
    names = source.tags or tuple(str(j) for j in range(Y.shape[1]))
    count = min(int(spec.options["tags_per_image"]), Y.shape[1])
    best = np.argsort(-scores[shown], axis=1, kind="stable")[:, :count]
    ids = source.ids
    return pl.DataFrame(
        {
            "image": rows[shown],
            "id": [str(rows[i] if ids is None else ids[rows[i]]) for i in shown],
            "true": [[names[j] for j in np.flatnonzero(Y[i])] for i in shown],
            "given": [[names[j] for j in line] for line in best],
        },
        schema={
            "image": pl.Int64,
            "id": pl.String,
            "true": pl.List(pl.String),
            "given": pl.List(pl.String),
        },
    )
