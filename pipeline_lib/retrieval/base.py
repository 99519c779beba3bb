"""What every retrieval method shares: queries, outside queries, and the order of the ranked list."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from pipeline_lib.errors import InputError
from pipeline_lib.graphs.neighbors import (
    NeighborGraph,
    as_points,
    nearest_neighbors,
    sq_distances,
)

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Query = int | Sequence[int] | NDArray[np.integer[Any]]
Queries = Sequence[Query] | NDArray[np.integer[Any]]

_BLOCK_ENTRIES = 2_000_000  # scores computed at a time: 16 MB


class RetrievalMethod(BaseEstimator):
    """A method that scores all points of a database by their nearness to a query.

    Subclasses say how many neighbours they read (`_needed_neighbors`), build what all queries share
    (`_prepare`) and score queries inside the database (`_scores`).

    Attributes
    ----------
    X_ : ndarray of shape (n, d)
        The database.
    neighbors_ : NeighborGraph or None
        Its neighbours, where the method reads them.
    n_features_in_ : int
    """

    X_: Floats
    neighbors_: NeighborGraph | None
    n_features_in_: int

    def fit(self, X: ArrayLike, y: Any = None, *, neighbors: NeighborGraph | None = None) -> Self:
        """Prepare the database.

        Parameters
        ----------
        X : array-like of shape (n, d)
        y : ignored
        neighbors : NeighborGraph, optional
            Neighbours of X computed before (`graphs.neighbors.nearest_neighbors`): one graph serves
            every method and every value of its parameters that reads no more columns than it has.

        Returns
        -------
        self

        Raises
        ------
        InputError
            If X is not a finite matrix, a parameter is out of range, or `neighbors` does not fit.
        """
        points = as_points(X)
        needed = self._needed_neighbors(len(points))
        if neighbors is None:
            neighbors = nearest_neighbors(points, needed) if needed else None
        elif neighbors.n_points != len(points):
            raise InputError(
                f"the neighbour graph has {neighbors.n_points} points, X has {len(points)}",
                remedy="build it from the same X",
            )
        elif neighbors.n_neighbors < self._least_neighbors(len(points)):
            raise InputError(
                f"the neighbour graph has {neighbors.n_neighbors} neighbours per point",
                expected=f"at least {self._least_neighbors(len(points))}",
                remedy="build it with more (in a suite: the option neighbors)",
            )
        self.X_, self.neighbors_ = points, neighbors
        self.n_features_in_ = points.shape[1]
        self._prepare()
        return self

    def rank(self, queries: Queries) -> Floats:
        """Score the database for queries that are part of it.

        Parameters
        ----------
        queries : sequence of length n_queries
            Each an index, or a sequence of indices for a query of several points.

        Returns
        -------
        ndarray of shape (n_queries, n)
            Larger is nearer. Equal scores are told apart by `order`.
        """
        check_is_fitted(self, "X_")
        return self._scores(query_points(queries, len(self.X_)))

    def rank_vectors(self, V: ArrayLike) -> Floats:
        """Score the database for queries outside it.

        Each query vector joins the database on its own, as if the method had been fitted on X with
        that one row appended; its own score is left out.

        Parameters
        ----------
        V : array-like of shape (n_queries, d)

        Returns
        -------
        ndarray of shape (n_queries, n)
        """
        check_is_fitted(self, "X_")
        return np.array([self._joined(v)._scores(self._last())[0, :-1] for v in self._vectors(V)])

    def order(self, queries: Queries) -> Ints:
        """Ranked lists for queries of the database.

        Returns
        -------
        ndarray of int, shape (n_queries, n)
            Indices of the database: the query's own points first, then descending score; equal
            scores (points that no path reaches among them) by Euclidean distance to the query, the
            nearest of its points counting, then by index.
        """
        check_is_fitted(self, "X_")
        points = query_points(queries, len(self.X_))
        scores = self._scores(points)
        order = np.empty(scores.shape, dtype=np.int64)
        for block in blocks(len(points), len(self.X_)):
            distances = self._distances(points[block])
            for place, row in zip(range(block.start, block.stop), distances):
                order[place] = ranked_list(scores[place], row, first=points[place])
        return order

    def order_vectors(self, V: ArrayLike) -> Ints:
        """Ranked lists for queries outside the database, in the order of `order`."""
        vectors = self._vectors(V)
        scores = self.rank_vectors(vectors)
        order = np.empty(scores.shape, dtype=np.int64)
        for block in blocks(len(vectors), len(self.X_)):
            distances = sq_distances(vectors[block], self.X_)
            for place, row in zip(range(block.start, block.stop), distances):
                order[place] = ranked_list(scores[place], row)
        return order

    def _distances(self, queries: list[Ints]) -> Floats:
        """Squared distance of every point to the nearest point of each query."""
        distances = sq_distances(self.X_[np.concatenate(queries)], self.X_)
        starts = np.cumsum([0, *(len(query) for query in queries[:-1])])
        nearest: Floats = np.minimum.reduceat(distances, starts, axis=0)
        return nearest

    def _needed_neighbors(self, n: int) -> int:
        """Neighbours a point to search for when none are given; 0 if the method reads none."""
        raise NotImplementedError

    def _least_neighbors(self, n: int) -> int:
        """Neighbours a point without which a given graph does not do."""
        return self._needed_neighbors(n)

    def _prepare(self) -> None:
        raise NotImplementedError

    def _scores(self, queries: list[Ints]) -> Floats:
        raise NotImplementedError

    def _joined(self, v: Floats) -> Self:
        """The method fitted on the database with v as its last point."""
        joined = type(self)(**self.get_params(deep=False))
        joined.X_ = np.vstack([self.X_, v])
        joined.neighbors_ = None
        if self.neighbors_ is not None:
            joined.neighbors_ = self.neighbors_.with_point(self.X_, v)
        joined.n_features_in_ = self.n_features_in_
        joined._prepare()
        return joined

    def _last(self) -> list[Ints]:
        return [np.array([len(self.X_)])]

    def _vectors(self, V: ArrayLike) -> Floats:
        check_is_fitted(self, "X_")
        vectors = as_points(V, what="V")
        if vectors.shape[1] != self.n_features_in_:
            raise InputError(
                f"query vectors have {vectors.shape[1]} features",
                expected=f"{self.n_features_in_}, as the database",
            )
        return vectors


def query_points(queries: Queries, n: int) -> list[Ints]:
    """The points of each query, ascending and distinct.

    Raises
    ------
    InputError
        If a query is empty or not made of indices of the database.
    """
    points = []
    for place, query in enumerate(queries):
        indices = np.unique(np.atleast_1d(np.asarray(query)))
        if indices.ndim != 1 or indices.size == 0 or indices.dtype.kind not in "iu":
            raise InputError(f"query {place} is {query!r}", expected="one or more indices")
        if indices[0] < 0 or indices[-1] >= n:
            raise InputError(f"query {place} is {query!r}", expected=f"indices from 0 to {n - 1}")
        points.append(indices.astype(np.int64))
    return points


def blocks(n_queries: int, n: int) -> Iterator[slice]:
    """Slices of the queries whose score rows fit a block of bounded memory."""
    size = max(1, _BLOCK_ENTRIES // n)
    for first in range(0, n_queries, size):
        yield slice(first, min(first + size, n_queries))


def ranked_list(scores: Floats, sq_distances: Floats, first: Ints | None = None) -> Ints:
    """Indices by descending score, then ascending distance, then index, `first` before all."""
    later = np.ones(len(scores), dtype=bool)
    if first is not None:
        later[first] = False
    return np.lexsort((sq_distances, -scores, later))


def scores_of_order(order: Ints) -> Floats:
    """Scores n, n - 1, ..., 1 that any evaluation sorts into the given ranked lists."""
    n = order.shape[1]
    scores = np.empty(order.shape)
    np.put_along_axis(scores, order, np.arange(n, 0, -1, dtype=np.float64)[None], axis=1)
    return scores
