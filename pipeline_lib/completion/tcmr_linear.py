"""TCMR-lr: tag completion mixed with a vote of visual neighbours."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from pipeline_lib.completion.base import TagCompleter, check_count
from pipeline_lib.completion.tcmr import TCMR
from pipeline_lib.completion.visual_graph import neighbor_distances
from pipeline_lib.errors import InputError

Array = NDArray[np.float64]


class TCMRLinear(TagCompleter):
    """Linear reconstruction: delta T + (1 - delta) R (TCMR-lr).

    T : result of `TCMR` without a graph term (TCMR0), every row scaled affinely to [0, 1];
    R : share of the visual nearest neighbours that carry a tag, every row scaled to maximum 1.

    The scaling keeps the order within a row. R stands in for the graph term, which makes an
    iteration of TCMR expensive on large data.

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

    def _complete(
        self, D: sparse.csr_array, X: Array | None, laplacian: sparse.csr_array | None
    ) -> Array:
        if not 0.0 <= self.delta <= 1.0:
            raise InputError(f"delta={self.delta!r}", expected="a number in [0, 1]")
        if X is None:
            raise InputError("TCMR-lr votes among visual neighbours", expected="features X")
        vote = visual_vote(D, X, self.n_neighbors, self.metric)
        self.completion_ = TCMR(self.lam, eps=self.eps, tol=self.tol, max_iter=self.max_iter)
        T = self.completion_.fit(D).scores_
        self.rank_ = self.completion_.rank_
        mixed = T - T.min(axis=1, keepdims=True)
        mixed *= self.delta / _divisor(mixed)
        vote *= (1.0 - self.delta) / _divisor(vote)
        mixed += vote
        return mixed


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


def _divisor(rows: Array) -> Array:
    largest = rows.max(axis=1, keepdims=True)
    return np.where(largest > 0.0, largest, 1.0)
