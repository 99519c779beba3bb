"""Discriminative component analysis (DCA)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from pipeline_lib.metric_learning.base import (
    LinearMetricLearner,
    check_components,
    group_means,
    whitening,
)

Array = NDArray[np.float64]


class DCA(LinearMetricLearner):
    """Spread dissimilar groups, shrink similar ones.

    With chunklet means m_j and the pairs (j, i) of chunklets known to be dissimilar (with groups:
    all pairs),

        C_b = 1/n_b sum_{j,i} (m_j - m_i)(m_j - m_i)',    C_w = 1/g sum_j 1/|H_j| sum (x - m_j)(x - m_j)'

    DCA maximises |L C_b L'| / |L C_w L'| by diagonalising C_b first, leaving out its null space, and
    then C_w in what remains: L = D_w^{-1/2} U' D_b^{-1/2} V'.

    Parameters
    ----------
    n_components : int, optional
        Keep the directions of least variation within groups; at most the rank of C_b (groups - 1).
    ridge : float, default 1e-3
        Added to the projected C_w as a share of its mean eigenvalue.

    Attributes
    ----------
    components_ : ndarray of shape (k, d)

    References
    ----------
    S. Hoi, W. Liu, M. Lyu, W.-Y. Ma, "Learning distance metrics with contextual constraints for
    image retrieval", CVPR 2006.
    """

    def __init__(self, n_components: int | None = None, ridge: float = 1e-3) -> None:
        self.n_components = n_components
        self.ridge = ridge

    def _fit(self, X: Array, constraints: Any) -> None:
        groups = constraints.require_groups("DCA")
        means, sizes, centred = group_means(X, groups)
        g = len(means)
        # Over all ordered pairs sum (m_j - m_i)(m_j - m_i)' = 2 g sum (m_j - m)(m_j - m)'.
        spread = (means - means.mean(axis=0)) * np.sqrt(2.0 / (g - 1.0))
        _, s, Vt = linalg.svd(spread, full_matrices=False, check_finite=False)
        kept = s > 1e-8 * max(s[0], 1e-300)
        to_between = Vt[kept] / s[kept, None]
        per_row = centred / np.sqrt(sizes[groups[groups >= 0]] * g)[:, None]
        within = per_row @ to_between.T
        values, vectors = whitening(within.T @ within, self.ridge)
        size = check_components(self.n_components, len(values))
        self.components_ = (vectors[:, :size] / np.sqrt(values[:size])).T @ to_between
