"""Image clustering in the pipeline: class subsets, a representation, k-means, agreement with the classes."""

from __future__ import annotations

import inspect
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray
from pydantic import Field

from pipeline_lib import registry
from pipeline_lib.artifacts import Artifact, ArtifactWriter
from pipeline_lib.clustering.labels import RepresentationClustering, codes_to_labels
from pipeline_lib.datasets.catalogue import dataset_spec
from pipeline_lib.datasets.container import Dataset
from pipeline_lib.datasets.transformations import class_subset, rows_per_class
from pipeline_lib.errors import InputError
from pipeline_lib.features.pca import PCA, unit_rows
from pipeline_lib.metrics.clustering import ari, clustering_accuracy, nmi
from pipeline_lib.metrics.result import MetricResult
from pipeline_lib.protocol import Data, FitLog, ProblemKind, write_evaluation
from pipeline_lib.specs import FeatureStep, Parameters, PathSpec, StrictModel

_ON_PIXELS = ("KMeans",)
"""Methods that cluster the images as they are; the others work on their principal components."""

_CLASSES = re.compile(r"([1-9][0-9]*) classes")


def class_count(split: str) -> int | None:
    """How many classes a split such as ``8 classes`` draws; None for a part of the dataset."""
    match = _CLASSES.fullmatch(split)
    return None if match is None else int(match.group(1))


class Clustering(ProblemKind):
    """Clustering images into as many groups as there are classes.

    A split is a part of the dataset, clustered whole, or a number of classes such as ``8 classes``: each
    repetition then draws its own subset of as many classes from the part named in the options. A method
    gives a representation, k-means (``restarts`` starts, best objective) the groups, which are scored
    against the classes. The papers choose parameters by these very scores: with a selection, the problem
    does so too, and the report says so. The honest company is a row that takes over the choice made on
    another dataset (``winners_of``).
    """

    name: ClassVar[str] = "clustering"
    title: ClassVar[str] = "image clustering"
    item: ClassVar[str] = "subset"

    class Options(StrictModel):
        """Options of a clustering problem.

        Attributes
        ----------
        part : str
            Part of the dataset from which subsets of classes are drawn.
        rows_per_class : int, optional
            Images drawn of each class.
        components : int
            Principal components.
        unit_norm : {"none", "before", "after", "both"}
            Where rows are scaled to length 1; beta means something else on another scale.
        restarts : int
            Starts of k-means.
        """

        part: str = "all"
        rows_per_class: int | None = Field(default=None, ge=1)
        components: int = Field(default=64, ge=1)
        unit_norm: Literal["none", "before", "after", "both"] = "both"
        restarts: int = Field(default=50, ge=1)

    def selection_metrics(self, options: Parameters) -> list[str]:
        """Scores of the groups against the classes."""
        return ["acc", "nmi", "ari"]

    def check_data(self, dataset: str, splits: Sequence[str], *, path: Any = None) -> None:
        """Raise `InputError` unless each split is a part with labels or a number of classes."""
        declared = dataset_spec(dataset)
        for split in splits:
            classes = class_count(split)
            kind = declared.kind if classes else declared.part(split).kind
            if kind != "matrix":
                raise InputError(f'"{dataset}" {split} has no class labels to score by', path=path)
            if classes == 1:
                raise InputError(
                    f'split "{split}" leaves nothing to tell apart',
                    path=path,
                    expected="2 classes or more",
                )

    def parts(self, spec: PathSpec) -> dict[str, str]:
        """The part whose images are clustered."""
        return {"all": spec.split if class_count(spec.split) is None else spec.options["part"]}

    def features(self, spec: PathSpec) -> list[FeatureStep]:
        """The drawn images and their principal components, shared by all methods."""
        names = ("rows_per_class", "components", "unit_norm")
        params: Parameters = {name: spec.options[name] for name in names}
        params["classes"] = class_count(spec.split)
        if params["classes"] is not None or params["rows_per_class"] is not None:
            params["seed"] = spec.data_seed("subset")
        return [
            FeatureStep(
                name="images",
                function="pipeline_lib.clustering.protocol:make_images",
                params=params,
                roles=("all",),
            )
        ]

    def fit(
        self, spec: PathSpec, data: Data, features: Sequence[Artifact], out: ArtifactWriter
    ) -> None:
        """Represent and cluster under each setting; the groups are what later stages read."""
        y = features[0].array("y")
        log = FitLog()
        for index in range(len(spec.settings)):
            with log.trial(index) as record:
                begun = time.perf_counter()
                model, representation = _represented(spec, index, features[0], data["all"])
                record.seconds = time.perf_counter() - begun
                groups = codes_to_labels(
                    representation,
                    len(np.unique(y)),
                    n_init=spec.options["restarts"],
                    random_state=spec.method_seed("k-means"),
                )
                if model is not None:
                    record.take(model)
                record.validation = _scores(spec, y, groups)
                out.array(f"groups{index}", groups)
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
        """Score the groups against the classes."""
        y, groups = features[0].array("y"), fitted.array(f"groups{index}")
        write_evaluation(
            out,
            {"default": _scores(spec, y, groups)},
            seconds=0.0,
            predictions=pl.DataFrame({"y": y, "group": groups}),
        )


def make_images(
    params: Parameters, data: Data, previous: Artifact | None
) -> Mapping[str, NDArray[Any]]:
    """Draw a subset of classes and compute principal components; ``rows`` are those drawn."""
    everything = data["all"]
    dataset = replace(everything, ids=np.arange(len(everything)))
    if params["classes"] is not None:
        dataset = class_subset(dataset, n_classes=params["classes"], seed=params["seed"])
    if params["rows_per_class"] is not None:
        dataset = rows_per_class(dataset, count=params["rows_per_class"], seed=params["seed"])
    X, y = dataset.labelled()
    pixels = np.asarray(X, dtype=np.float64)
    components = min(params["components"], *pixels.shape)
    projected = PCA(components, unit_norm=params["unit_norm"]).fit(pixels).transform(pixels)
    return {"rows": np.asarray(dataset.ids), "X": projected, "y": y}


def _pixels(images: Artifact, dataset: Dataset, unit_norm: str) -> NDArray[np.float64]:
    """The drawn images as they are, of norm 1 where the problem scales them."""
    X, _ = dataset.labelled()
    pixels = np.asarray(X[images.array("rows")], dtype=np.float64)
    return unit_rows(pixels) if unit_norm in ("before", "both") else pixels


def _represented(
    spec: PathSpec, index: int, images: Artifact, dataset: Dataset
) -> tuple[Any, NDArray[np.float64]]:
    method = registry.method(spec.method, "clustering")
    if spec.method in _ON_PIXELS:
        X = _pixels(images, dataset, spec.options["unit_norm"])
    else:
        X = images.array("X")
    if issubclass(method.load(), RepresentationClustering):
        return None, X
    params = {**method.defaults, **spec.params, **spec.settings[index]}
    accepted = inspect.signature(method.load()).parameters
    if "random_state" in accepted:
        params["random_state"] = spec.method_seed("fit")
    if spec.method == "Spectral":
        params["n_components"] = len(np.unique(images.array("y")))
    model = method.load()(**params)
    return model, model.fit_transform(X)


def _scores(spec: PathSpec, y: NDArray[Any], groups: NDArray[np.int64]) -> MetricResult:
    values = {
        "acc": clustering_accuracy(y, groups),
        "nmi": nmi(y, groups, normalization="max"),
        "ari": ari(y, groups),
    }
    subset = f"{spec.split} {spec.repetition}"
    return MetricResult(
        pl.DataFrame({"subset": [subset], **{k: [v] for k, v in values.items()}}), values
    )
