"""Retrieval in the pipeline: every image is a query, the database is ranked by nearness to it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray
from pydantic import Field

from pipeline_lib import registry
from pipeline_lib.artifacts import Artifact, ArtifactWriter
from pipeline_lib.datasets.catalogue import dataset_spec
from pipeline_lib.datasets.transformations import rows_per_class
from pipeline_lib.errors import InputError
from pipeline_lib.graphs.approximate import approximate_neighbors
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
        search : {"exact", "approximate"}
            How that graph is found; ``approximate`` needs the extra ``ann``, reports its recall, and
            serves methods that need no certificate of exactness (RAN with ``local = true``).
        pictures : list of int
            Rows of two-dimensional data whose ranking is kept and drawn, whether they are among
            the queries or not.
        """

        protocol: Literal["fixed", "tuned"] = "fixed"
        cutoffs: list[int] = Field(min_length=1)
        count_query: bool = True
        scale: Literal["none", "max", "standard", "unit"] = "none"
        rows_per_class: int | None = Field(default=None, ge=1)
        queries: int | None = Field(default=None, ge=2)
        neighbors: int = Field(default=40, ge=1)
        search: Literal["exact", "approximate"] = "exact"
        pictures: list[Annotated[int, Field(ge=0)]] = []

    def selection_metrics(self, options: Parameters) -> list[str]:
        """Metrics of the validation queries."""
        cutoffs, count_query = options["cutoffs"], options["count_query"]
        items = np.zeros(max(cutoffs) + 1)
        return list(retrieval_metrics([items], items, [0], cutoffs, count_query).means)

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
                params=self._search(spec),
                roles=("all",),
            ),
        ]

    def _search(self, spec: PathSpec) -> Parameters:
        params: Parameters = {
            "neighbors": spec.options["neighbors"],
            "search": spec.options["search"],
        }
        if params["search"] == "approximate":
            params["seed"] = spec.data_seed("recall")
        return params

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
                    record.n_iter = getattr(ranked.model, "n_iter_", None)
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
        if spec.options["pictures"]:
            out.table("picture", ranked.picture(spec.options["pictures"]))
        shared = sum(float(artifact.sidecar["seconds"]) for artifact in features)
        out.record(
            seconds_per_query=seconds / len(queries), fit_seconds=shared + ranked.fit_seconds
        )


class _Ranked:
    """A method fitted on the database of a path."""

    def __init__(self, spec: PathSpec, index: int, features: Sequence[Artifact]) -> None:
        points, graph = features
        self.options = spec.options
        self.y = points.array("y")
        self.rows = points.array("rows")  # places in the dataset, by which images are named
        # An image drawn twice is two queries: each draw is a database of its own.
        drawn = spec.options["rows_per_class"] is not None
        self.names = np.array([f"{spec.repetition}/{row}" if drawn else row for row in self.rows])
        self.X = points.array("X")
        self.recall = float(graph.array("recall")[0])
        neighbors = NeighborGraph(
            graph.array("indices"),
            graph.array("sq_distances"),
            exact=spec.options["search"] == "exact",
        )
        method = registry.method(spec.method, "retrieval")
        params = {**method.defaults, **spec.params, **spec.settings[index]}
        started = time.perf_counter()
        self.model = method.load()(**params).fit(self.X, neighbors=neighbors)
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
            own = part.per_item.with_columns(pl.Series("query", self.names[block]))
            unreached = getattr(self.model, "unreached_", None)
            if unreached is not None:
                own = own.with_columns(pl.Series("unreached", unreached, dtype=pl.Float64))
            per_item.append(own)
            top.append(
                pl.DataFrame(
                    {
                        "query": np.repeat(self.rows[block], depth),
                        "place": np.tile(np.arange(depth), len(block)),
                        "image": self.rows[order[:, :depth].ravel()],
                    }
                )
            )
        items = pl.concat(per_item)
        means = {name: _mean(items[name]) for name in items.columns if name != "query"}
        if self.options["search"] == "approximate":
            means["neighbor_recall"] = self.recall
        return MetricResult(items, means), seconds, pl.concat(top)

    def picture(self, queries: Sequence[int]) -> pl.DataFrame:
        """Every point with its score and place, for each of some queries.

        Raises
        ------
        InputError
            If the data are not in the plane.
        """
        if self.X.shape[1] != 2:
            raise InputError(
                f"the points have {self.X.shape[1]} features",
                expected="2 for a picture",
                remedy="leave the option pictures out",
            )
        n = len(self.X)
        scores, order = self.model.rank(queries), self.model.order(queries)
        place = np.empty_like(order)
        np.put_along_axis(place, order, np.arange(n)[None], axis=1)
        return pl.DataFrame(
            {
                "query": np.repeat(self.rows[np.asarray(queries)], n),
                "image": np.tile(self.rows, len(queries)),
                "x0": np.tile(self.X[:, 0], len(queries)),
                "x1": np.tile(self.X[:, 1], len(queries)),
                "class": np.tile(self.y, len(queries)),
                "score": scores.ravel(),
                "place": place.ravel(),
            }
        )


def make_points(
    params: Parameters, data: Data, previous: Artifact | None
) -> Mapping[str, NDArray[Any]]:
    """Draw and scale the points of the database."""
    dataset = data["all"]
    rows = np.arange(len(dataset))
    if params["rows_per_class"] is not None:
        numbered = replace(dataset, ids=rows)
        dataset = rows_per_class(numbered, count=params["rows_per_class"], seed=params["seed"])
        assert dataset.ids is not None
        rows = dataset.ids
    X, y = dataset.labelled()
    points = scaled(np.asarray(X, dtype=np.float64), params["scale"])
    return {"X": points, "y": y, "rows": rows}


def make_neighbors(
    params: Parameters, data: Data, previous: Artifact | None
) -> Mapping[str, NDArray[Any]]:
    """Find the nearest neighbours of every point; ``recall`` is 1 for the exact search."""
    assert previous is not None
    X = previous.array("X")
    k, recall = min(params["neighbors"], len(X) - 1), 1.0
    if params["search"] == "approximate":
        found = approximate_neighbors(X, k, random_state=params["seed"])
        graph, recall = found.graph, found.recall
    else:
        graph = nearest_neighbors(X, k)
    return {
        "indices": graph.indices,
        "sq_distances": graph.sq_distances,
        "recall": np.array([recall]),
    }


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
