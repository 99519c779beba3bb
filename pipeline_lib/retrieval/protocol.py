"""Retrieval in the pipeline: every image is a query, the database is ranked by nearness to it."""

from __future__ import annotations

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
from pipeline_lib.datasets.transformations import rows_per_class
from pipeline_lib.errors import InputError
from pipeline_lib.graphs.neighbors import NeighborGraph, nearest_neighbors
from pipeline_lib.metrics.result import MetricResult
from pipeline_lib.metrics.retrieval import retrieval_metrics
from pipeline_lib.protocol import Data, FitLog, ProblemKind, write_evaluation
from pipeline_lib.retrieval.base import scores_of_order
from pipeline_lib.specs import FeatureStep, Parameters, PathSpec, StrictModel

_QUERY_BLOCK = 512  # ranked lists held at a time


class Retrieval(ProblemKind):
    """Ranking a database by nearness to each query, scored by class labels.

    Two protocols. ``fixed``: each method at its given parameters, every image (or a sample) a query.
    ``tuned``: parameters are chosen on one half of the queries, drawn by seed, and reported on the other
    half; every method by the same rule on the same halves. Labels serve selection and scoring only.
    """

    name: ClassVar[str] = "retrieval"
    title: ClassVar[str] = "image retrieval"
    item: ClassVar[str] = "query"

    class Options(StrictModel):
        """Options of a retrieval problem.

        Attributes
        ----------
        protocol : {"fixed", "tuned"}
            See `Retrieval`.
        cutoffs : list of int
            K of P@K and R@K.
        count_query : bool
            Whether the query itself is retrieved first and counts as relevant, as in the papers.
        scale : {"none", "max", "standard", "unit"}
            Features as they are, divided by the largest value, each to zero mean and unit variance,
            or rows of unit length.
        rows_per_class : int, optional
            Images drawn of each class, anew for each repetition.
        queries : int, optional
            Number of queries, drawn by seed; every image by default.
        neighbors : int
            Columns of the neighbour graph that all methods share.
        """

        protocol: Literal["fixed", "tuned"] = "fixed"
        cutoffs: list[int] = Field(min_length=1)
        count_query: bool = True
        scale: Literal["none", "max", "standard", "unit"] = "none"
        rows_per_class: int | None = Field(default=None, ge=1)
        queries: int | None = Field(default=None, ge=2)
        neighbors: int = Field(default=40, ge=1)

    def check_data(self, dataset: str, splits: Sequence[str], *, path: Any = None) -> None:
        """Raise `InputError` unless each split is a part with features and class labels."""
        declared = dataset_spec(dataset)
        for split in splits:
            if declared.part(split).kind != "matrix":
                raise InputError(f'"{dataset}" {split} has no class labels to score by', path=path)

    def parts(self, spec: PathSpec) -> dict[str, str]:
        """The part that is database and source of the queries."""
        return {"all": spec.split}

    def features(self, spec: PathSpec) -> list[FeatureStep]:
        """The scaled points, and their neighbours: both shared by all methods."""
        options = spec.options
        points: Parameters = {
            "scale": options["scale"],
            "rows_per_class": options["rows_per_class"],
        }
        if options["rows_per_class"] is not None:
            points["seed"] = spec.data_seed("rows")
        return [
            FeatureStep(
                name="points",
                function="pipeline_lib.retrieval.protocol:make_points",
                params=points,
                roles=("all",),
            ),
            FeatureStep(
                name="neighbours",
                function="pipeline_lib.retrieval.protocol:make_neighbors",
                params={"neighbors": options["neighbors"]},
                roles=("all",),
            ),
        ]

    def fit(
        self, spec: PathSpec, data: Data, features: Sequence[Artifact], out: ArtifactWriter
    ) -> None:
        """Under ``tuned``, measure each setting on the validation queries."""
        log = FitLog()
        for index in range(len(spec.settings)):
            with log.trial(index) as record:
                if spec.options["protocol"] == "tuned":
                    ranked = _Ranked(spec, index, features)
                    record.seconds = ranked.fit_seconds
                    record.validation, _, _ = ranked.measure(_queries(spec, ranked.y)[0])
                    record.converged = getattr(ranked.model, "converged_", None)
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
        """Rank the database for every test query."""
        ranked = _Ranked(spec, index, features)
        queries = _queries(spec, ranked.y)[1]
        result, seconds, top = ranked.measure(queries)
        write_evaluation(out, {"default": result}, seconds=seconds, predictions=top)
        out.record(seconds_per_query=seconds / len(queries), fit_seconds=ranked.fit_seconds)


class _Ranked:
    """A method fitted on the database of a path."""

    def __init__(self, spec: PathSpec, index: int, features: Sequence[Artifact]) -> None:
        points, graph = features
        self.options = spec.options
        self.y = points.array("y")
        X = points.array("X")
        neighbors = NeighborGraph(graph.array("indices"), graph.array("sq_distances"))
        method = registry.method(spec.method, "retrieval")
        params = {**method.defaults, **spec.params, **spec.settings[index]}
        started = time.perf_counter()
        self.model = method.load()(**params).fit(X, neighbors=neighbors)
        self.fit_seconds = time.perf_counter() - started

    def measure(self, queries: NDArray[np.int64]) -> tuple[MetricResult, float, pl.DataFrame]:
        """Metrics of the queries, seconds to rank them, and the first places of each list."""
        seconds = 0.0
        per_item: list[pl.DataFrame] = []
        top: list[pl.DataFrame] = []
        depth = min(len(self.y), max(self.options["cutoffs"]) + 1)
        for start in range(0, len(queries), _QUERY_BLOCK):
            block = queries[start : start + _QUERY_BLOCK]
            begun = time.perf_counter()
            order = self.model.order(block)
            seconds += time.perf_counter() - begun
            part = retrieval_metrics(
                scores_of_order(order),
                self.y,
                block,
                self.options["cutoffs"],
                count_query=self.options["count_query"],
            )
            per_item.append(part.per_item)
            top.append(
                pl.DataFrame(
                    {
                        "query": np.repeat(block, depth),
                        "place": np.tile(np.arange(depth), len(block)),
                        "image": order[:, :depth].ravel(),
                    }
                )
            )
        items = pl.concat(per_item)
        names = [name for name in items.columns if name != "query"]
        means = {name: _mean(items[name]) for name in names}
        return MetricResult(items, means), seconds, pl.concat(top)


def make_points(
    params: Parameters, data: Data, previous: Artifact | None
) -> Mapping[str, NDArray[Any]]:
    """Draw and scale the points of the database."""
    dataset = data["all"]
    if params["rows_per_class"] is not None:
        dataset = rows_per_class(dataset, count=params["rows_per_class"], seed=params["seed"])
    X, y = dataset.labelled()
    return {"X": scaled(np.asarray(X, dtype=np.float64), params["scale"]), "y": y}


def make_neighbors(
    params: Parameters, data: Data, previous: Artifact | None
) -> Mapping[str, NDArray[Any]]:
    """Find the nearest neighbours of every point."""
    assert previous is not None
    X = previous.array("X")
    graph = nearest_neighbors(X, min(params["neighbors"], len(X) - 1))
    return {"indices": graph.indices, "sq_distances": graph.sq_distances}


def scaled(X: NDArray[np.float64], how: str) -> NDArray[np.float64]:
    """Scale features: see `Retrieval.Options`; constant features and zero rows stay zero."""
    if how == "max":
        return X / max(float(np.abs(X).max()), np.finfo(float).tiny)
    if how == "standard":
        spread = X.std(axis=0)
        return (X - X.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    if how == "unit":
        length = np.linalg.norm(X, axis=1, keepdims=True)
        return X / np.where(length > 0, length, 1.0)
    return X


def _queries(spec: PathSpec, y: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Validation and test queries; under ``fixed`` all are test queries."""
    rng = np.random.default_rng(spec.data_seed("queries"))
    chosen = rng.permutation(len(y))[: spec.options["queries"]]
    if spec.options["protocol"] == "fixed":
        return np.empty(0, dtype=np.int64), np.sort(chosen)
    half = len(chosen) // 2
    return np.sort(chosen[:half]), np.sort(chosen[half:])


def _mean(values: pl.Series) -> float:
    mean = values.mean()
    return float(mean) if isinstance(mean, int | float) else float("nan")
