"""EASE: linear regression of every tag on all the others, in closed form."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, sparse

from pipeline_lib.completion.base import TagCompleter, check_positive


class EASE(TagCompleter):
    """Embarrassingly shallow autoencoder: regress every tag on the other tags.

        min_B ||D - D B||_F^2 + l2 ||B||_F^2   subject to diag(B) = 0

    is solved by B_ot = -P_ot / P_tt for o != t, P = (D'D + l2 I)^{-1}; the scores are D B.

    Parameters
    ----------
    l2 : float, default=10.0
        Weight of the penalty, above 0.

    Attributes
    ----------
    scores_ : ndarray of shape (n, m)
    coef_ : ndarray of shape (m, m)
        B.

    References
    ----------
    Steck, Embarrassingly shallow autoencoders for sparse data, 2019.
    """

    coef_: NDArray[np.float64]

    def __init__(self, l2: float = 10.0) -> None:
        self.l2 = l2

    def _complete(
        self,
        D: sparse.csr_array,
        X: NDArray[np.float64] | None,
        laplacian: sparse.csr_array | None,
    ) -> NDArray[np.float64]:
        check_positive("l2", self.l2)
        gram = (D.T @ D).toarray()
        gram[np.diag_indices_from(gram)] += self.l2
        inverse = linalg.cho_solve(linalg.cho_factor(gram), np.eye(len(gram)))
        self.coef_ = -inverse / inverse.diagonal()
        np.fill_diagonal(self.coef_, 0.0)
        return np.asarray(D @ self.coef_)
