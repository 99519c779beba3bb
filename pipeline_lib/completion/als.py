"""Implicit-feedback matrix factorisation by alternating least squares."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, sparse

from pipeline_lib.base import IterativeEstimator
from pipeline_lib.completion.base import TagCompleter, check_count, check_positive
from pipeline_lib.seeds import RandomState, as_generator

Array = NDArray[np.float64]

_BLOCK_ENTRIES = 2_000_000


class ImplicitALS(TagCompleter, IterativeEstimator):
    """Weighted factorisation of the observed tags, every unobserved one a doubtful zero.

        min_{U, V}  sum_ij (1 + confidence d_ij) (d_ij - u_i' v_j)^2 + l2 (||U||_F^2 + ||V||_F^2)

    U (n x r) and V (m x r) are found by alternating exact minimisation; the scores are U V'.

    Parameters
    ----------
    n_components : int, default=50
        r, cut to the size of the vocabulary.
    confidence : float, default=10.0
        Extra weight of an observed tag.
    l2 : float, default=1.0
    tol : float, default=1e-3
        Stop when an iteration lowers the objective by at most this share of it.
    max_iter : int, default=100
    random_state : int, Generator or None, default=None
        Of the first V.

    Attributes
    ----------
    scores_ : ndarray of shape (n, m)
    objective_, history_, n_iter_, converged_
        As in `IterativeEstimator`; the objective never rises.

    Notes
    -----
    An image has few tags, c of them, so its r x r system is solved through a c x c one:
    with G = V'V + l2 I and S the rows of V of its tags,
    (G + confidence S'S)^{-1} S' = G^{-1} S' (I + confidence S G^{-1} S')^{-1}.

    References
    ----------
    Hu, Koren and Volinsky, Collaborative filtering for implicit feedback datasets, 2008.
    """

    def __init__(
        self,
        n_components: int = 50,
        confidence: float = 10.0,
        l2: float = 1.0,
        tol: float = 1e-3,
        max_iter: int = 100,
        random_state: RandomState = None,
    ) -> None:
        self.n_components = n_components
        self.confidence = confidence
        self.l2 = l2
        self.tol = tol
        self.max_iter = max_iter
        self.random_state = random_state

    def _complete(
        self, D: sparse.csr_array, X: Array | None, laplacian: sparse.csr_array | None
    ) -> Array:
        m = D.shape[1]
        rank = check_count("n_components", self.n_components, most=m)
        max_iter = check_count("max_iter", self.max_iter)
        check_positive("confidence", self.confidence, zero=True)
        check_positive("l2", self.l2)
        check_positive("tol", self.tol, zero=True)
        V = as_generator(self.random_state).standard_normal((m, rank)) / np.sqrt(rank)
        images_of_tag = sparse.csr_array(D.T)
        history: list[float] = []
        converged = False
        while len(history) < max_iter and not converged:
            U = self._solve_images(D, V)
            V = self._solve_tags(images_of_tag, U)
            history.append(self._objective(D, U, V))
            if len(history) > 1:
                converged = history[-2] - history[-1] <= self.tol * history[-2]
        self._record_convergence({"objective": history}, converged=converged, n_iter=len(history))
        return np.asarray(U @ V.T)

    def _solve_images(self, D: sparse.csr_array, V: Array) -> Array:
        ridge = linalg.cho_factor(V.T @ V + self.l2 * np.eye(V.shape[1]))
        directions = linalg.cho_solve(ridge, V.T).T
        overlap = V @ directions.T
        counts = np.diff(D.indptr)
        weights = np.empty(D.nnz)
        for count in np.unique(counts[counts > 0]):
            step = max(1, _BLOCK_ENTRIES // int(count) ** 2)
            alike = np.flatnonzero(counts == count)
            for first in range(0, len(alike), step):
                positions = D.indptr[alike[first : first + step], None] + np.arange(count)
                tags = D.indices[positions]
                system = self.confidence * overlap[tags[:, :, None], tags[:, None, :]]
                system[:, np.arange(count), np.arange(count)] += 1.0
                right = np.full((len(tags), count, 1), 1.0 + self.confidence)
                weights[positions] = np.linalg.solve(system, right)[:, :, 0]
        combination = sparse.csr_array((weights, D.indices, D.indptr), shape=D.shape)
        return np.asarray(combination @ directions)

    def _solve_tags(self, images_of_tag: sparse.csr_array, U: Array) -> Array:
        common = U.T @ U + self.l2 * np.eye(U.shape[1])
        V = np.zeros((images_of_tag.shape[0], U.shape[1]))
        for j in range(len(V)):
            tagged = U[images_of_tag.indices[images_of_tag.indptr[j] : images_of_tag.indptr[j + 1]]]
            if len(tagged):
                system = common + self.confidence * (tagged.T @ tagged)
                right = (1.0 + self.confidence) * tagged.sum(axis=0)
                V[j] = linalg.solve(system, right, assume_a="pos")
        return V

    def _objective(self, D: sparse.csr_array, U: Array, V: Array) -> float:
        rows = np.repeat(np.arange(D.shape[0]), np.diff(D.indptr))
        fitted = np.einsum("er,er->e", U[rows], V[D.indices])
        everywhere = float(np.vdot(U.T @ U, V.T @ V))
        observed = float(((1.0 + self.confidence) * (1.0 - fitted) ** 2 - fitted**2).sum())
        return everywhere + observed + self.l2 * float(np.vdot(U, U) + np.vdot(V, V))
