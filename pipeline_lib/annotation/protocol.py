"""Image annotation in the pipeline: learn from tagged images, rank the tags of others."""

from __future__ import annotations

import inspect
import time
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray
from pydantic import Field

from pipeline_lib import registry
from pipeline_lib.artifacts import Artifact, ArtifactWriter
from pipeline_lib.datasets.catalogue import dataset_spec
from pipeline_lib.errors import InputError
from pipeline_lib.features.pca import unit_rows
from pipeline_lib.metrics.annotation import annotation_metrics, tag_metrics
from pipeline_lib.protocol import Data, FitLog, ProblemKind, write_evaluation
from pipeline_lib.specs import FeatureStep, Parameters, PathSpec, StrictModel

_LISTED_TAGS = 10  # tags kept of each image's ranked list


class Annotation(ProblemKind):
    """Ranking the tags of images by models learned from tagged images.

    A split ``official`` uses the dataset's parts ``train`` and ``test``; any other split is a part of which
    a share is drawn as test images, anew for each repetition. Parameters are chosen on a share of the
    training images that is held out; the chosen model is fitted on all of them.
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
        test_share, validation_share : float
            Shares of images drawn for test (unless the split is official) and for validation.
        scale : {"none", "unit"}
            Features as they are, or rows of unit length.
        """

        cutoffs: list[int] = Field(default=[1, 2, 3, 4, 5], min_length=1)
        tags_per_image: int = Field(default=5, ge=1)
        test_share: float = Field(default=0.1, gt=0.0, lt=1.0)
        validation_share: float = Field(default=0.2, gt=0.0, lt=1.0)
        scale: Literal["none", "unit"] = "none"

    def check_data(self, dataset: str, splits: Sequence[str], *, path: Any = None) -> None:
        """Raise `InputError` unless each split has features and tags."""
        declared = dataset_spec(dataset)
        for split in splits:
            for part in ("train", "test") if split == "official" else (split,):
                if declared.part(part).kind != "tags":
                    raise InputError(f'"{dataset}" {part} has no tags', path=path)

    def parts(self, spec: PathSpec) -> dict[str, str]:
        """Official training and test part, or the one part that is divided by seed."""
        if spec.split == "official":
            return {"train": "train", "test": "test"}
        return {"all": spec.split}

    def features(self, spec: PathSpec) -> list[FeatureStep]:
        """The division into training, validation and test images, with scaled features."""
        params: Parameters = {
            "scale": spec.options["scale"],
            "validation_share": spec.options["validation_share"],
            "seed": spec.data_seed("images"),
        }
        if spec.split != "official":
            params["test_share"] = spec.options["test_share"]
        return [
            FeatureStep(
                name="images",
                function="pipeline_lib.annotation.protocol:divide_images",
                params=params,
                roles=tuple(self.parts(spec)),
            )
        ]

    def fit(
        self, spec: PathSpec, data: Data, features: Sequence[Artifact], out: ArtifactWriter
    ) -> None:
        """Measure each setting on held-out training images."""
        images = features[0]
        log = FitLog()
        for index in range(len(spec.settings)):
            with log.trial(index) as record:
                if len(spec.settings) > 1:
                    X, Y = images.array("X_train"), images.array("Y_train")
                    held = images.array("validation")
                    begun = time.perf_counter()
                    model = _model(spec, index).fit(X[~held], Y[~held])
                    record.seconds = time.perf_counter() - begun
                    record.take(model)
                    record.validation = annotation_metrics(
                        model.predict(X[held]), Y[held], spec.options["cutoffs"]
                    )
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
        begun = time.perf_counter()
        model = _model(spec, index).fit(images.array("X_train"), images.array("Y_train"))
        learning = time.perf_counter() - begun
        begun = time.perf_counter()
        scores = model.predict(images.array("X_test"))
        seconds = time.perf_counter() - begun
        Y = images.array("Y_test")
        result = annotation_metrics(scores, Y, spec.options["cutoffs"])
        per_tag = tag_metrics(scores, Y, n_tags=spec.options["tags_per_image"])
        result.means.update({f"tag_{name}": value for name, value in per_tag.means.items()})
        write_evaluation(out, {"default": result}, seconds=seconds, predictions=_best(scores))
        out.table("per_tag", per_tag.per_item)
        out.record(learning_seconds=learning)


def divide_images(
    params: Parameters, data: Data, previous: Artifact | None
) -> Mapping[str, NDArray[Any]]:
    """Divide images into training and test, and mark the training images held out for validation."""
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
        if X_train.shape[1] != X_test.shape[1] or Y_train.shape[1] != Y_test.shape[1]:
            raise InputError("training and test part differ in their features or tags")
    held = np.zeros(len(X_train), dtype=bool)
    held[
        rng.permutation(len(X_train))[: max(1, round(params["validation_share"] * len(X_train)))]
    ] = True
    if params["scale"] == "unit":
        X_train, X_test = unit_rows(X_train), unit_rows(X_test)
    return {
        "X_train": np.asarray(X_train, dtype=np.float64),
        "Y_train": Y_train,
        "X_test": np.asarray(X_test, dtype=np.float64),
        "Y_test": Y_test,
        "validation": held,
    }


def _model(spec: PathSpec, index: int) -> Any:
    method = registry.method(spec.method, "annotation")
    params = {**method.defaults, **spec.params, **spec.settings[index]}
    if "random_state" in inspect.signature(method.load()).parameters:
        params["random_state"] = spec.method_seed("fit")
    return method.load()(**params)


def _best(scores: NDArray[np.float64]) -> pl.DataFrame:
    """The best tags of each image."""
    count = min(_LISTED_TAGS, scores.shape[1])
    best = np.argsort(-scores, axis=1, kind="stable")[:, :count]
    return pl.DataFrame(
        {
            "image": np.repeat(np.arange(len(scores)), count),
            "tag": best.ravel(),
            "score": np.take_along_axis(scores, best, axis=1).ravel(),
        }
    )
