"""The graph of visually similar images behind the graph term of TCMR, and its neighbour search."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.spatial.distance import pdist
from sklearn.metrics.pairwise import additive_chi2_kernel

from pipeline_lib.completion.base import check_features
from pipeline_lib.errors import InputError
from pipeline_lib.graphs.laplacian import laplacian
from pipeline_lib.graphs.neighbors import nearest_neighbors

Array = NDArray[np.float64]

METRICS = ("euclidean", "chi2")

_BLOCK_ENTRIES = 2_000_000
_MEAN_DISTANCE_ROWS = 2000


def visual_affinity(
    X: Array, n_neighbors: int | None = None, metric: str = "euclidean"
) -> sparse.csr_array:
    """Similarity of images that are near each other in a feature space.

        w_ij = exp(-d(x_i, x_j)^2 / sigma^2)  if either image is among the other's k nearest, else 0

    Parameters
    ----------
    X : ndarray of shape (n, d)
        Features; not negative for the chi-square distance.
    n_neighbors : int or None, default=None
        k; None is .001 n, rounded, at least 1.
    metric : {"euclidean", "chi2"}, default="euclidean"
        d, where chi2 is 1/2 sum_l (x_l - y_l)^2 / (x_l + y_l), meant for histograms.

    Returns
    -------
    csr_array of shape (n, n)
        W, symmetric, with an empty diagonal.

    Raises
    ------
    InputError
        If X or k cannot be used.

    Notes
    -----
    sigma is the mean distance over pairs of different images; beyond 2,000 images over 2,000 of
    them, evenly spaced. Where all images coincide every weight is 1.

    References
    ----------
    Feng, thesis, (4.11).
    """
    features = check_features(X, len(X))
    n = len(features)
    if n < 2:
        raise InputError("a visual graph of one image", expected="at least two images")
    k = max(1, round(0.001 * n)) if n_neighbors is None else n_neighbors
    indices, distances = neighbor_distances(features, k, metric)
    sigma = _mean_distance(features, metric)
    weights = np.exp(-((distances / sigma) ** 2)) if sigma > 0.0 else np.ones_like(distances)
    rows = np.repeat(np.arange(n), k)
    directed = sparse.csr_array((weights.ravel(), (rows, indices.ravel())), shape=(n, n))
    return sparse.csr_array(directed.maximum(directed.T))


def visual_laplacian(
    X: Array, n_neighbors: int | None = None, metric: str = "euclidean"
) -> sparse.csr_array:
    """Laplacian diag(W 1) - W of `visual_affinity`; same parameters."""
    return laplacian(visual_affinity(X, n_neighbors, metric))


def neighbor_distances(
    X: Array, n_neighbors: int, metric: str = "euclidean"
) -> tuple[NDArray[np.int64], Array]:
    """Return indices and distances (n, k) of every image's nearest other images, nearest first."""
    if metric not in METRICS:
        raise InputError(f"metric={metric!r}", expected=f"one of {', '.join(METRICS)}")
    n = len(X)
    if not 1 <= n_neighbors < n:
        raise InputError(f"n_neighbors={n_neighbors} for {n} images", expected=f"1 to {n - 1}")
    if metric == "euclidean":
        graph = nearest_neighbors(X, n_neighbors)
        return graph.indices, np.sqrt(graph.sq_distances)
    if (X < 0.0).any():
        raise InputError("negative features under the chi-square distance", expected="histograms")
    indices = np.empty((n, n_neighbors), dtype=np.int64)
    distances = np.empty((n, n_neighbors))
    step = max(1, _BLOCK_ENTRIES // n)
    for start in range(0, n, step):
        block = _chi2(X[start : start + step], X)
        rows = np.arange(len(block))
        block[rows, start + rows] = np.inf
        # A stable sort keeps the order of index among equal distances.
        nearest = np.argsort(block, axis=1, kind="stable")[:, :n_neighbors]
        indices[start : start + step] = nearest
        distances[start : start + step] = np.take_along_axis(block, nearest, axis=1)
    return indices, distances


def _mean_distance(X: Array, metric: str) -> float:
    if len(X) > _MEAN_DISTANCE_ROWS:
        X = X[np.linspace(0, len(X) - 1, _MEAN_DISTANCE_ROWS).astype(np.int64)]
    if metric == "euclidean":
        return float(pdist(X).mean())
    return float(_chi2(X, X).sum() / (len(X) * (len(X) - 1)))


def _chi2(A: Array, B: Array) -> Array:
    return -0.5 * np.asarray(additive_chi2_kernel(A, B))
