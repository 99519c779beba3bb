"""TCMR-lr: tag completion mixed with a vote of visual neighbours."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from pipeline_lib.completion.base import TagCompleter, VisualInput, check_count
from pipeline_lib.completion.tcmr import TCMR
from pipeline_lib.completion.visual_graph import neighbor_distances
from pipeline_lib.errors import InputError

Array = NDArray[np.float64]

_BLOCK_ENTRIES = 1_000_000


class TCMRLinear(TagCompleter):
    """Linear reconstruction: delta T + (1 - delta) R (TCMR-lr).

    T : result of `TCMR` without a graph term (TCMR0);
    R : share of the visual nearest neighbours that carry a tag.

    Both are normalised image by image: mean 0 and standard deviation 1 over the tags not observed
    on it. R stands in for the graph term, which makes an iteration of TCMR expensive on large data.

    Parameters
    ----------
    lam : float
        Weight of the trace norm of TCMR0.
    delta : float, default=0.5
        Share of T, in [0, 1].
    n_neighbors : int, default=50
        Voting neighbours, cut to n - 1.
    metric : {"euclidean", "chi2"}, default="euclidean"
        Distance of the features.
    eps, tol, max_iter
        Of `TCMR`.

    Attributes
    ----------
    scores_ : ndarray of shape (n, m)
        The mixture.
    completion_ : TCMR
        The fitted TCMR0.
    rank_ : int
        Rank of its result.

    Raises
    ------
    InputError
        From ``fit``: no features X, bad input, or a parameter out of range.

    References
    ----------
    Feng, thesis, (4.15).
    """

    completion_: TCMR
    rank_: int

    def __init__(
        self,
        lam: float,
        delta: float = 0.5,
        n_neighbors: int = 50,
        metric: str = "euclidean",
        eps: float = 1e-3,
        tol: float = 1e-8,
        max_iter: int = 2000,
    ) -> None:
        self.lam = lam
        self.delta = delta
        self.n_neighbors = n_neighbors
        self.metric = metric
        self.eps = eps
        self.tol = tol
        self.max_iter = max_iter

    @property
    def visual_input(self) -> VisualInput:
        """The features."""
        return "features"

    def _complete(
        self, D: sparse.csr_array, X: Array | None, laplacian: sparse.csr_array | None
    ) -> Array:
        if not 0.0 <= self.delta <= 1.0:
            raise InputError(f"delta={self.delta!r}", expected="a number in [0, 1]")
        if X is None:
            raise InputError("TCMR-lr votes among visual neighbours", expected="features X")
        R = visual_vote(D, X, self.n_neighbors, self.metric)
        self.completion_ = TCMR(self.lam, eps=self.eps, tol=self.tol, max_iter=self.max_iter)
        T = self.completion_.fit(D).scores_.copy()
        self.rank_ = self.completion_.rank_
        return mix_scores(T, R, self.delta, D)


def mix_scores(T: Array, R: Array, delta: float, D: sparse.csr_array) -> Array:
    """Return delta T + (1 - delta) R, both standardised over the unobserved tags of every image.

    Parameters
    ----------
    T, R : ndarrays of shape (n, m)
        Overwritten. A row that is constant over the unobserved tags becomes 0 there.
    delta : float
        Share of T.
    D : csr_array of shape (n, m)
        Observed tags.

    Returns
    -------
    ndarray of shape (n, m)
    """
    step = max(1, _BLOCK_ENTRIES // D.shape[1])
    for start in range(0, D.shape[0], step):
        block = slice(start, start + step)
        free = D[block].toarray() == 0
        mixed = delta * _standardise(T[block], free)
        mixed += (1.0 - delta) * _standardise(R[block], free)
        T[block] = mixed
    return T


def _standardise(rows: Array, free: NDArray[np.bool_]) -> Array:
    count = np.maximum(free.sum(axis=1, keepdims=True), 1)
    centred = rows - np.where(free, rows, 0.0).sum(axis=1, keepdims=True) / count
    square = np.where(free, centred * centred, 0.0).sum(axis=1, keepdims=True) / count
    deviation = np.sqrt(square)
    # Rounding leaves a constant row with a tiny spread.
    size = np.abs(rows).max(axis=1, keepdims=True)
    deviation[deviation <= 1e-12 * size] = np.inf
    return centred / np.where(deviation > 0.0, deviation, np.inf)


def visual_vote(D: sparse.csr_array, X: Array, n_neighbors: int, metric: str) -> Array:
    """Return the share of every image's visual nearest neighbours that carry each tag (vKNN)."""
    n = D.shape[0]
    if n == 1:
        return np.zeros(D.shape)
    k = check_count("n_neighbors", n_neighbors, most=n - 1)
    indices, _ = neighbor_distances(X, k, metric)
    rows = np.repeat(np.arange(n), k)
    chooses = sparse.csr_array((np.full(n * k, 1.0 / k), (rows, indices.ravel())), shape=(n, n))
    return np.asarray((chooses @ D).toarray())
