"""Fixed affinities between points: Gaussian weights on the full graph or a neighbour graph."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from pipeline_lib.errors import InputError
from pipeline_lib.graphs.neighbors import NeighborGraph, as_points, sq_distances

Floats = NDArray[np.float64]

GRAPHS = ("full", "union", "mutual")
Graph = Literal["full", "union", "mutual"]


def neighbor_pairs(neighbors: NeighborGraph, n_neighbors: int, graph: Graph) -> sp.csr_array:
    """Squared distances on the edges of a symmetric neighbour graph, stored explicitly (0 included).

    `union` joins i and j when either is among the other's `n_neighbors` nearest, `mutual` when both
    are.
    """
    n = neighbors.n_points
    nearest = neighbors.nearest(n_neighbors)
    rows = np.repeat(np.arange(n), n_neighbors)
    cols = nearest.indices.ravel()
    low, high = np.minimum(rows, cols), np.maximum(rows, cols)
    _, first, count = np.unique(low * n + high, return_index=True, return_counts=True)
    if graph == "mutual":
        first = first[count == 2]
    low, high, distances = low[first], high[first], nearest.sq_distances.ravel()[first]
    pairs = sp.coo_array(
        (
            np.concatenate([distances, distances]),
            (np.concatenate([low, high]), np.concatenate([high, low])),
        ),
        shape=(n, n),
    )
    return sp.csr_array(pairs)


def local_scales(neighbors: NeighborGraph, scale_neighbors: int) -> Floats:
    """Mean distance of every point to its `scale_neighbors` nearest."""
    return np.sqrt(neighbors.nearest(scale_neighbors).sq_distances).mean(axis=1)


def gaussian_affinity(
    X: Any,
    neighbors: NeighborGraph | None,
    *,
    graph: Graph = "union",
    n_neighbors: int = 5,
    sigma: float | None = None,
    local_scale: float | None = None,
    scale_neighbors: int = 10,
) -> sp.csr_array | Floats:
    """Symmetric affinity matrix with zero diagonal.

    Global bandwidth::

        w_ij = exp(-||x_i - x_j||^2 / (2 sigma^2))

    Local bandwidth (`local_scale` = C given), m_i the mean distance of x_i to its K nearest::

        w_ij = exp(-||x_i - x_j||^2 / sigma_ij^2),    sigma_ij = C (m_i + m_j) / 2

    Parameters
    ----------
    X : array-like of shape (n, d)
        Only used by the full graph.
    neighbors : NeighborGraph or None
        At least `n_neighbors` a point (and `scale_neighbors`, for a local bandwidth); None is
        allowed for a full graph with a global bandwidth.
    graph : {"union", "mutual", "full"}
        Edges: either point among the other's nearest, both, or all pairs.
    n_neighbors : int
    sigma : float, optional
        Global bandwidth, in the units of the distances. Default: the mean distance over the edges.
    local_scale : float, optional
        C; given, the bandwidth is local and `sigma` must not be.
    scale_neighbors : int
        K.

    Returns
    -------
    csr_array, or ndarray for the full graph, of shape (n, n)
        Weights that underflow are 0, and in the sparse matrix not stored.

    Raises
    ------
    InputError
        If a parameter is out of range.

    References
    ----------
    X. Bai et al., "Learning context-sensitive shape similarity by graph transduction", TPAMI 2010
    (the local bandwidth, K = 10, C = .25).
    """
    if graph not in GRAPHS:
        raise InputError(f"graph is {graph!r}", expected="one of " + ", ".join(GRAPHS))
    for name, value in (("sigma", sigma), ("local_scale", local_scale)):
        if value is not None and not (np.isfinite(value) and value > 0):
            raise InputError(f"{name} is {value}", expected="a positive number")
    if sigma is not None and local_scale is not None:
        raise InputError("both sigma and local_scale are given", expected="one of them")
    if neighbors is None and (graph != "full" or local_scale is not None):
        raise InputError("no neighbour graph is given", expected="one, for these affinities")

    scales = None
    if local_scale is not None:
        assert neighbors is not None
        scales = local_scale * local_scales(neighbors, scale_neighbors)
    if graph == "full":
        return _full_affinity(as_points(X), sigma, scales)
    assert neighbors is not None
    pairs = neighbor_pairs(neighbors, n_neighbors, graph)
    if scales is not None:
        rows = np.repeat(np.arange(pairs.shape[0]), np.diff(pairs.indptr))
        widths = 0.5 * (scales[rows] + scales[pairs.indices])
        pairs.data = _decay(pairs.data, widths**2)
    else:
        bandwidth = sigma or _mean_distance(np.sqrt(pairs.data))
        pairs.data = _decay(pairs.data, 2.0 * bandwidth**2)
    pairs.eliminate_zeros()
    return pairs


def _full_affinity(points: Floats, sigma: float | None, scales: Floats | None) -> Floats:
    distances = sq_distances(points, points)
    distances = np.maximum(distances, distances.T)  # the product is symmetric only to rounding
    np.fill_diagonal(distances, 0.0)
    if scales is not None:
        affinity = _decay(distances, (0.5 * (scales + scales[:, None])) ** 2)
    else:
        off_diagonal = len(points) * (len(points) - 1)
        bandwidth = sigma or np.sqrt(distances).sum() / max(off_diagonal, 1) or 1.0
        affinity = _decay(distances, 2.0 * bandwidth**2)
    np.fill_diagonal(affinity, 0.0)
    return affinity


def _decay(sq_distances: Floats, sq_widths: Floats | float) -> Floats:
    """``exp(-d / w)``; a width of 0 (points that coincide with all their nearest) is the limit."""
    widths = np.broadcast_to(np.asarray(sq_widths, dtype=np.float64), sq_distances.shape)
    ratio = np.where(sq_distances > 0, np.inf, 0.0)
    with np.errstate(over="ignore"):
        np.divide(sq_distances, widths, out=ratio, where=widths > 0)
    return np.exp(-ratio)


def _mean_distance(distances: Floats) -> float:
    """Default bandwidth; 1 when all neighbours coincide (every weight is then 1 anyway)."""
    return float(distances.mean()) if distances.any() else 1.0
