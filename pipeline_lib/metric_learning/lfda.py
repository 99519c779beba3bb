"""Local Fisher discriminant analysis (LFDA)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from pipeline_lib.kernels.functions import squared_distances
from pipeline_lib.metric_learning.base import (
    LinearMetricLearner,
    check_at_least_one,
    check_components,
)
from pipeline_lib.metric_learning.constraints import UNKNOWN

Array = NDArray[np.float64]


class LFDA(LinearMetricLearner):
    """Fisher discriminant analysis that keeps the local structure inside each class.

    Affinities A_ij = exp(-||x_i - x_j||^2 / (s_i s_j)) inside classes, with s_i the distance from
    x_i to its ``n_neighbors``-th nearest row of its class, weigh the scatter matrices

        S_w = 1/2 sum_{ij} A_ij / n_c [c_i = c_j] (x_i - x_j)(x_i - x_j)',
        S_b = 1/2 sum_{ij} (A_ij (1/n - 1/n_c) [c_i = c_j] + 1/n [c_i != c_j]) (x_i - x_j)(x_i - x_j)'

    and L has the leading solutions of S_b v = l S_w v as rows, each times sqrt(l).

    Parameters
    ----------
    n_components : int, optional
        Rows of L, largest l first; all with l > 0 by default.
    n_neighbors : int, default 7
        Neighbour that sets the local scale.
    ridge : float, default 1e-3
        Added to S_w as a share of its mean eigenvalue, so that the problem has a solution in
        directions without variation within classes.

    Attributes
    ----------
    components_ : ndarray of shape (k, d)

    References
    ----------
    M. Sugiyama, "Dimensionality reduction of multimodal labeled data by local Fisher discriminant
    analysis", JMLR 8, 2007.
    """

    def __init__(
        self, n_components: int | None = None, n_neighbors: int = 7, ridge: float = 1e-3
    ) -> None:
        self.n_components = n_components
        self.n_neighbors = n_neighbors
        self.ridge = ridge

    def _fit(self, X: Array, constraints: Any) -> None:
        groups = constraints.require_groups("LFDA")
        check_at_least_one(self.n_neighbors, "n_neighbors")
        X, groups = X[groups != UNKNOWN], groups[groups != UNKNOWN]
        X = X - X.mean(axis=0)
        n, d = X.shape
        # sum_ij W_ij (x_i - x_j)(x_i - x_j)' / 2 = X'(diag(W1) - W)X, class by class; the pairs
        # across classes are all pairs (whose scatter is n X'X) minus the pairs within.
        within = np.zeros((d, d))
        local = np.zeros((d, d))
        same = np.zeros((d, d))
        for label in range(int(groups.max()) + 1):
            members = X[groups == label]
            size = len(members)
            affinity = self._affinity(members)
            weighted = affinity.sum(axis=1)[:, None] * members - affinity @ members
            scatter = members.T @ weighted
            total = members.sum(axis=0)
            within += scatter / size
            local += scatter * (1.0 / n - 1.0 / size)
            same += size * (members.T @ members) - np.outer(total, total)
        between = local + (n * (X.T @ X) - same) / n
        within += np.eye(d) * (self.ridge * np.trace(within) / d + np.finfo(float).tiny)
        values, vectors = linalg.eigh(
            0.5 * (between + between.T), 0.5 * (within + within.T), check_finite=False
        )
        values, vectors = values[::-1], vectors[:, ::-1]
        positive = int(np.count_nonzero(values > 1e-10 * values[0]))
        kept = check_components(self.n_components, positive)
        self.components_ = (vectors[:, :kept] * np.sqrt(values[:kept])).T

    def _affinity(self, members: Array) -> Array:
        squares = squared_distances(members)
        neighbor = min(self.n_neighbors, len(members) - 1)
        scale = np.sqrt(np.partition(squares, neighbor, axis=1)[:, neighbor])
        product = np.outer(scale, scale)
        # Rows repeated more often than the neighbour's rank have no scale: alike rows are affine,
        # others are not.
        exponent = np.divide(squares, product, out=np.full_like(squares, np.inf), where=product > 0)
        exponent[squares == 0] = 0.0
        return np.exp(-exponent)
