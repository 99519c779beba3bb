"""pLSA: probabilistic latent semantic analysis by expectation maximisation."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from pipeline_lib.base import IterativeEstimator
from pipeline_lib.completion.base import TagCompleter, check_count, check_positive
from pipeline_lib.seeds import RandomState, as_generator

Array = NDArray[np.float64]


class ProbabilisticLSA(TagCompleter, IterativeEstimator):
    """Maximum likelihood topic mixtures of the observed tags (pLSA).

        max  sum_ij d_ij log sum_z P(z | i) P(j | z)

    by expectation maximisation from a random start; the scores are the mixtures
    q_ij = sum_z P(z | i) P(j | z).

    Parameters
    ----------
    n_components : int, default=50
        Number of topics z.
    tol : float, default=1e-5
        Stop when an iteration lowers the objective by at most this share of it.
    max_iter : int, default=200
    random_state : int, Generator or None, default=None

    Attributes
    ----------
    scores_ : ndarray of shape (n, m)
        Rows are probabilities (0 for an image without observed tags).
    objective_, history_, n_iter_, converged_
        As in `IterativeEstimator`; the objective is the negative log-likelihood and never rises.

    Notes
    -----
    An iteration costs O(nnz z): only the observed entries of the mixture are formed. D may hold
    counts.

    References
    ----------
    Hofmann, Probabilistic latent semantic indexing, 1999; Feng, thesis, section 4.7.3.1.
    """

    takes_counts = True

    def __init__(
        self,
        n_components: int = 50,
        tol: float = 1e-5,
        max_iter: int = 200,
        random_state: RandomState = None,
    ) -> None:
        self.n_components = n_components
        self.tol = tol
        self.max_iter = max_iter
        self.random_state = random_state

    def _complete(
        self, D: sparse.csr_array, X: Array | None, laplacian: sparse.csr_array | None
    ) -> Array:
        topics_wanted = check_count("n_components", self.n_components)
        max_iter = check_count("max_iter", self.max_iter)
        check_positive("tol", self.tol, zero=True)
        random = as_generator(self.random_state)
        n, m = D.shape
        rows = np.repeat(np.arange(n), np.diff(D.indptr))
        columns = D.indices
        mixtures = _normalise(random.uniform(0.5, 1.5, (n, topics_wanted)))
        topics = _normalise(random.uniform(0.5, 1.5, (topics_wanted, m)))
        history: list[float] = []
        converged = False
        while len(history) < max_iter and not converged:
            joint = np.einsum("ez,ez->e", mixtures[rows], topics.T[columns])
            history.append(-float(D.data @ np.log(joint)))
            if len(history) > 1:
                converged = history[-2] - history[-1] <= self.tol * max(1.0, abs(history[-2]))
            # Both M-steps are products with the matrix of d_ij / q_ij on the observed entries.
            ratio = sparse.csr_array((D.data / joint, columns, D.indptr), shape=(n, m))
            new_mixtures = mixtures * (ratio @ topics.T)
            topics = _normalise(topics * (ratio.T @ mixtures).T)
            mixtures = _normalise(new_mixtures)
        self._record_convergence({"objective": history}, converged=converged, n_iter=len(history))
        return np.asarray(mixtures @ topics)


def _normalise(weights: Array) -> Array:
    """Make the rows sum to one; empty rows stay empty."""
    total = weights.sum(axis=1, keepdims=True)
    return np.divide(weights, total, out=np.zeros_like(weights), where=total > 0.0)
