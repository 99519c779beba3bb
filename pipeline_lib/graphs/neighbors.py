"""Nearest neighbours: exact search in bounded memory, and approximate search with its recall."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.spatial import cKDTree

from pipeline_lib.errors import InputError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_BLOCK_ENTRIES = 4_000_000  # entries of one block of the distance matrix: 32 MB
_PAIR_ENTRIES = 2_000_000  # entries gathered at a time when single pairs are computed
_TREE_DIMENSIONS = 6  # a k-d tree wins over matrix products up to about here
_TREE_POINTS = 2_000


@dataclass(frozen=True)
class NeighborGraph:
    """The nearest other points of every point, the one graph every method can be handed.

    Attributes
    ----------
    indices : ndarray of int64, shape (n, k)
        Neighbours of each point by ascending distance, equal distances by ascending index; a point
        is never its own neighbour.
    sq_distances : ndarray of float64, shape (n, k)
        Their squared Euclidean distances.
    exact : bool
        Whether the lists are the true nearest neighbours (else they are an approximation).
    """

    indices: Ints
    sq_distances: Floats
    exact: bool = True

    def __post_init__(self) -> None:
        if self.indices.ndim != 2 or self.indices.shape != self.sq_distances.shape:
            raise InputError(
                f"neighbour indices have shape {self.indices.shape}, "
                f"distances {self.sq_distances.shape}",
                expected="one shape (n, k)",
            )

    @property
    def n_points(self) -> int:
        return self.indices.shape[0]

    @property
    def n_neighbors(self) -> int:
        return self.indices.shape[1]

    def nearest(self, n_neighbors: int) -> NeighborGraph:
        """The same graph with the first `n_neighbors` columns."""
        if n_neighbors > self.n_neighbors:
            raise InputError(
                f"the neighbour graph has {self.n_neighbors} neighbours per point",
                expected=f"at least {n_neighbors}",
                remedy="build it with more neighbours",
            )
        return NeighborGraph(
            self.indices[:, :n_neighbors], self.sq_distances[:, :n_neighbors], self.exact
        )

    def with_point(self, points: Floats, v: Floats) -> NeighborGraph:
        """The graph of ``vstack([points, v])``: lists that v enters, and one of its own.

        As many neighbours a point as before, or all where the lists held all.
        """
        n, k = self.indices.shape
        everyone = np.arange(n)
        to_v = pair_sq_distances(points, v[None], everyone, np.zeros(n, dtype=np.int64))
        kept = n if k == n - 1 else k
        distances = np.column_stack([self.sq_distances, to_v])
        # v has the largest index, so a stable sort leaves it behind everything equally far.
        order = np.argsort(distances, axis=1, kind="stable")[:, :kept]
        indices = np.column_stack([self.indices, np.full(n, n)])
        own = np.lexsort((everyone, to_v))[:kept]
        return NeighborGraph(
            np.vstack([np.take_along_axis(indices, order, axis=1), own]),
            np.vstack([np.take_along_axis(distances, order, axis=1), to_v[own]]),
            self.exact,
        )


def as_points(X: ArrayLike, *, what: str = "X") -> Floats:
    """Check a matrix of points: two-dimensional, finite, float64."""
    points = np.asarray(X, dtype=np.float64)
    if points.ndim != 2 or 0 in points.shape:
        raise InputError(f"{what} has shape {points.shape}", expected="(n, d) with n, d >= 1")
    if not np.isfinite(points).all():
        raise InputError(f"{what} contains NaN or infinity", expected="finite values")
    return np.ascontiguousarray(points)


def pair_sq_distances(A: Floats, B: Floats, rows: Ints, cols: Ints) -> Floats:
    """Squared distances ``||A[rows[p]] - B[cols[p]]||^2`` of single pairs, by differences.

    Unlike the expansion into inner products this is accurate however near the two points are.
    """
    distances = np.empty(len(rows))
    step = max(1, _PAIR_ENTRIES // A.shape[1])
    for first in range(0, len(rows), step):
        part = slice(first, first + step)
        difference = A[rows[part]]
        difference -= B[cols[part]]
        np.einsum("pd,pd->p", difference, difference, out=distances[part])
    return distances


def sq_distances(A: Floats, B: Floats) -> Floats:
    """Squared distances between all rows of A and of B, to about ten digits.

    From a matrix product of centred data; where that would lose digits, because two points are much
    nearer to each other than to the centre, by differences.
    """
    centre = B.mean(axis=0)
    left, right = A - centre, B - centre
    left_norms = np.einsum("nd,nd->n", left, left)
    right_norms = np.einsum("nd,nd->n", right, right)
    distances = left @ right.T
    distances *= -2.0
    distances += left_norms[:, None]
    distances += right_norms
    near = distances <= 1e-5 * (left_norms[:, None] + right_norms)
    rows, cols = np.nonzero(near)
    distances[rows, cols] = pair_sq_distances(A, B, rows, cols)
    return distances


def nearest_neighbors(X: ArrayLike, n_neighbors: int) -> NeighborGraph:
    """The exact nearest other points of every point.

    Parameters
    ----------
    X : array-like of shape (n, d)
    n_neighbors : int
        1 to n - 1.

    Returns
    -------
    NeighborGraph
        Ascending squared Euclidean distance, ties by index: the result does not depend on block
        sizes or on the number of threads of the matrix product.

    Raises
    ------
    InputError
        If X is not a finite matrix, or `n_neighbors` is out of range.

    Notes
    -----
    Blocks of the distance matrix come from matrix products of the centred data. They only select:
    every point whose distance is within twice the rounding error of the last place is kept, measured
    again by differences, and sorted. In few dimensions a k-d tree does the selection.
    Cost O(n^2 d) in BLAS (O(n log n) with the tree), memory O(n k) plus one block.
    """
    points = as_points(X)
    n = len(points)
    if not 1 <= n_neighbors <= n - 1:
        raise InputError(f"n_neighbors is {n_neighbors} for {n} points", expected=f"1 to {n - 1}")
    everyone = np.arange(n)
    if points.shape[1] <= _TREE_DIMENSIONS and n >= _TREE_POINTS and n_neighbors <= n // 8:
        return NeighborGraph(*_tree_search(points, n_neighbors))
    return NeighborGraph(*_block_search(points, points, n_neighbors, exclude=everyone))


def nearest_in_database(
    V: Floats, X: Floats, n_neighbors: int, exclude: Ints | None = None
) -> tuple[Ints, Floats]:
    """The exact nearest rows of X to every row of V, in the order of `nearest_neighbors`.

    ``exclude[r]`` is the row of X that must not be found for row r of V (usually itself).
    """
    return _block_search(V, X, n_neighbors, exclude=exclude)


def _block_search(V: Floats, X: Floats, k: int, exclude: Ints | None) -> tuple[Ints, Floats]:
    centre = X.mean(axis=0)
    database = X - centre
    norms = np.einsum("nd,nd->n", database, database)
    indices = np.empty((len(V), k), dtype=np.int64)
    distances = np.empty((len(V), k))
    step = max(1, _BLOCK_ENTRIES // len(X))
    for first in range(0, len(V), step):
        block = V[first : first + step] - centre
        block_norms = np.einsum("nd,nd->n", block, block)
        approximate = block @ database.T
        approximate *= -2.0
        approximate += norms
        approximate += block_norms[:, None]
        if exclude is not None:
            approximate[np.arange(len(block)), exclude[first : first + step]] = np.inf
        last = np.partition(approximate, k - 1, axis=1)[:, k - 1]
        rounding = np.finfo(float).eps * (X.shape[1] + 8) * (block_norms + norms.max())
        rows, cols = np.nonzero(approximate <= (last + 4.0 * rounding)[:, None])
        refined = pair_sq_distances(V, X, rows + first, cols)
        found = _first_per_row(rows, cols, refined, k)
        indices[first : first + step], distances[first : first + step] = found
    return indices, distances


def _first_per_row(rows: Ints, cols: Ints, distances: Floats, k: int) -> tuple[Ints, Floats]:
    """The k nearest pairs of each row; every row has at least k, rows are ascending."""
    order = np.lexsort((cols, distances, rows))
    starts = np.searchsorted(rows, np.arange(rows[-1] + 1))
    chosen = order[starts[:, None] + np.arange(k)]
    return cols[chosen], distances[chosen]


def _tree_search(X: Floats, k: int) -> tuple[Ints, Floats]:
    n = len(X)
    searched = k + 3  # the point itself, one beyond the last place, one to spare
    _, found = cKDTree(X).query(X, k=searched)
    rows = np.repeat(np.arange(n), searched)
    cols = found.ravel().astype(np.int64)
    refined = pair_sq_distances(X, X, rows, cols)
    reach = refined.reshape(n, searched).max(axis=1)
    refined[rows == cols] = np.inf
    indices, distances = _first_per_row(rows, cols, refined, k)
    # The tree does not say which of several equally distant points it left out: where the last
    # place may be tied with something outside, search again.
    doubtful = np.flatnonzero(~(distances[:, -1] < reach * (1.0 - 1e-12)))
    if len(doubtful):
        redone = _block_search(X[doubtful], X, k, exclude=doubtful)
        indices[doubtful], distances[doubtful] = redone
    return indices, distances
