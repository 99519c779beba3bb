"""Approximate neighbour search, with its recall measured on a sample."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pipeline_lib.errors import InputError
from pipeline_lib.graphs.neighbors import (
    NeighborGraph,
    as_points,
    nearest_in_database,
    pair_sq_distances,
)
from pipeline_lib.seeds import RandomState, as_generator

Ints = NDArray[np.int64]


class ApproximateSearch(NamedTuple):
    """Result of an approximate search.

    Attributes
    ----------
    graph : NeighborGraph
        ``graph.exact`` is False; distances are exact for the neighbours found.
    recall : float
        Share of the true nearest neighbours found, over the sampled points.
    sampled : int
        Points on which it was measured.
    """

    graph: NeighborGraph
    recall: float
    sampled: int


def approximate_neighbors(
    X: ArrayLike,
    n_neighbors: int,
    *,
    links: int = 32,
    effort: int = 64,
    sample: int = 500,
    random_state: RandomState = 0,
) -> ApproximateSearch:
    """Approximate nearest other points of every point, by a navigable small-world graph (HNSW).

    Parameters
    ----------
    X : array-like of shape (n, d)
    n_neighbors : int
        1 to n - 1.
    links : int, default 32
        Links of each point in the index: more cost memory and give recall.
    effort : int, default 64
        Points kept open while searching and building, at least `n_neighbors` + 1 are.
    sample : int, default 500
        Points whose true neighbours are searched to measure the recall.
    random_state : default 0
        Draws the sample.

    Returns
    -------
    ApproximateSearch

    Raises
    ------
    InputError
        If X or `n_neighbors` is unusable, or the extra `ann` (faiss) is not installed.

    Notes
    -----
    The index works on float32; the distances of what it finds are measured again in float64. Points
    for which it finds too few are searched exactly.

    References
    ----------
    Y. Malkov, D. Yashunin, "Efficient and robust approximate nearest neighbor search using
    hierarchical navigable small world graphs", TPAMI 2018.
    """
    points = as_points(X)
    n = len(points)
    if not 1 <= n_neighbors <= n - 1:
        raise InputError(f"n_neighbors is {n_neighbors} for {n} points", expected=f"1 to {n - 1}")
    faiss = _faiss()
    centred = np.ascontiguousarray(points - points.mean(axis=0), dtype=np.float32)
    index = faiss.IndexHNSWFlat(points.shape[1], links)
    index.hnsw.efConstruction = max(effort, 40)
    index.hnsw.efSearch = max(effort, n_neighbors + 1)
    index.add(centred)
    _, found = index.search(centred, n_neighbors + 1)
    graph = _cleaned(points, found.astype(np.int64), n_neighbors)

    rng = as_generator(random_state)
    chosen = np.sort(rng.choice(n, size=min(sample, n), replace=False))
    truth, _ = nearest_in_database(points[chosen], points, n_neighbors, exclude=chosen)
    hits = (graph.indices[chosen][:, :, None] == truth[:, None, :]).any(axis=2)
    return ApproximateSearch(graph, float(hits.mean()), len(chosen))


def _cleaned(points: NDArray[np.float64], found: Ints, k: int) -> NeighborGraph:
    """The k best of what was found, without the point itself, ordered as an exact search orders."""
    n = len(points)
    usable = (found >= 0) & (found != np.arange(n)[:, None])
    rows, places = np.nonzero(usable)
    distances = np.full(found.shape, np.inf)
    distances[rows, places] = pair_sq_distances(points, points, rows, found[rows, places])
    by_index = np.argsort(found, axis=1, kind="stable")
    ordered = np.take_along_axis(distances, by_index, axis=1)
    order = np.take_along_axis(by_index, np.argsort(ordered, axis=1, kind="stable"), axis=1)
    indices = np.take_along_axis(found, order, axis=1)[:, :k]
    distances = np.take_along_axis(distances, order, axis=1)[:, :k]
    short = np.flatnonzero(np.isinf(distances[:, -1]))
    if len(short):
        redone = nearest_in_database(points[short], points, k, exclude=short)
        indices[short], distances[short] = redone
    return NeighborGraph(indices, distances, exact=False)


def _faiss() -> Any:
    try:
        import faiss
    except ImportError as error:
        raise InputError(
            "approximate search needs faiss, which is not installed",
            remedy="install the extra 'ann', or use the exact search",
        ) from error
    return faiss
