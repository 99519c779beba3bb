"""Logistic discriminant-based metric learning (LDML)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from pipeline_lib.base import IterativeEstimator
from pipeline_lib.graphs.neighbors import pair_sq_distances
from pipeline_lib.metric_learning.base import (
    LinearMetricLearner,
    check_at_least_one,
    decorrelate,
    pair_scatter,
    positive_part,
)
from pipeline_lib.metric_learning.constraints import sample_pairs
from pipeline_lib.optimize.proximal_gradient import ArrayProblem, minimize_composite
from pipeline_lib.seeds import RandomState, as_generator

Array = NDArray[np.float64]


_CHUNK_ENTRIES = 2_000_000


class LDML(IterativeEstimator, LinearMetricLearner):
    """Logistic regression of "same class" on the learned distance.

    A pair n = (i, j) is of one class (t_n = 1) with probability p_n = 1 / (1 + exp(d_M^2 - b)):

        max_{M >= 0, b}  mean_n  t_n log p_n + (1 - t_n) log(1 - p_n),

    a convex problem, solved by accelerated projected gradient steps on (M, b) in decorrelated
    coordinates (the same problem, better conditioned). Its gradient in M is
    the weighted scatter sum_n (t_n - p_n)(x_i - x_j)(x_i - x_j)' of the pairs, a graph Laplacian
    between two matrix products.

    Parameters
    ----------
    n_pairs : int, default 10000
        Similar pairs, and dissimilar pairs, drawn from groups (or from longer lists of pairs).
    tol : float, default 1e-4
        Relative change of the objective at which the iterations stop.
    max_iter : int, default 200
    random_state : int, Generator, RandomState or None
        Draws the pairs.

    Attributes
    ----------
    components_ : ndarray of shape (k, d)
    bias_ : float
        b.
    objective_, history_, n_iter_, converged_
        Minus the mean log-likelihood; see `pipeline_lib.base.IterativeEstimator`.

    References
    ----------
    M. Guillaumin, J. Verbeek, C. Schmid, "Is that you? Metric learning approaches for face
    identification", ICCV 2009.
    """

    def __init__(
        self,
        n_pairs: int = 10000,
        tol: float = 1e-4,
        max_iter: int = 200,
        random_state: RandomState = None,
    ) -> None:
        self.n_pairs = n_pairs
        self.tol = tol
        self.max_iter = max_iter
        self.random_state = random_state

    def _fit(self, X: Array, constraints: Any) -> None:
        check_at_least_one(self.n_pairs, "n_pairs")
        similar, dissimilar = sample_pairs(
            constraints, self.n_pairs, as_generator(self.random_state)
        )
        pairs = np.concatenate([similar, dissimilar])
        same = np.repeat([1.0, 0.0], [len(similar), len(dissimilar)])
        rows, cols = pairs[:, 0], pairs[:, 1]
        Z, W, variances = decorrelate(X)
        d = Z.shape[1]
        # Start from Euclidean distance in units of its mean square over the pairs, and b = 1.
        mean_square = float(pair_sq_distances(X, X, rows, cols).mean()) or 1.0
        start = np.append(np.diag(variances / mean_square).ravel(), 1.0)

        def smooth(point: Array) -> tuple[float, Array]:
            margin = point[-1] - _quadratic_forms(Z, point[:-1].reshape(d, d), rows, cols)
            signed = np.where(same == 1.0, margin, -margin)
            value = float(np.logaddexp(0.0, -signed).mean())
            residual = (expit(margin) - same) / len(same)
            gradient = np.empty_like(point)
            gradient[:-1] = -pair_scatter(Z, rows, cols, residual).ravel()
            gradient[-1] = residual.sum()
            return value, gradient

        def project(point: Array, step: float) -> tuple[Array, float]:
            result = point.copy()
            result[:-1] = positive_part(point[:-1].reshape(d, d))[0].ravel()
            return result, 0.0

        result = minimize_composite(
            ArrayProblem(smooth, project, lambda point: 0.0),
            start,
            tol=self.tol,
            max_iter=self.max_iter,
        )
        self.components_ = positive_part(result.point[:-1].reshape(d, d))[1] @ W.T
        self.bias_ = float(result.point[-1])
        self._record_convergence(
            {"objective": result.history["objective"]},
            converged=result.converged,
            n_iter=result.n_iter,
        )


def _quadratic_forms(Z: Array, M: Array, rows: NDArray[np.int64], cols: NDArray[np.int64]) -> Array:
    """(z_i - z_j)' M (z_i - z_j) of pairs, for any symmetric M: momentum may leave the cone."""
    P = Z @ M
    own = np.einsum("nd,nd->n", Z, P)
    forms = own[rows] + own[cols]
    step = max(1, _CHUNK_ENTRIES // Z.shape[1])
    for start in range(0, len(rows), step):
        part = slice(start, start + step)
        forms[part] -= 2.0 * np.einsum("pd,pd->p", Z[rows[part]], P[cols[part]])
    return forms
