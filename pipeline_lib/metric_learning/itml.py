"""Information-theoretic metric learning (ITML)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from pipeline_lib.base import IterativeEstimator
from pipeline_lib.errors import InputError
from pipeline_lib.graphs.neighbors import pair_sq_distances
from pipeline_lib.metric_learning.base import LinearMetricLearner, check_at_least_one, positive_part
from pipeline_lib.metric_learning.constraints import sample_pairs
from pipeline_lib.seeds import RandomState, as_generator

Array = NDArray[np.float64]

# Constraints projected on between two updates of the d x d matrix.
_BLOCK = 64


class ITML(IterativeEstimator, LinearMetricLearner):
    """The metric nearest to a prior in LogDet divergence that keeps pairs within bounds.

    With v_c = x_i - x_j of constraint c, bounds u for similar and l for dissimilar pairs, and slack
    variables xi_c that start at the bounds xi0_c,

        min_{M >= 0, xi}  D(M, M_0) + gamma D(diag xi, diag xi0)
        subject to        v_c' M v_c <= xi_c (similar),   v_c' M v_c >= xi_c (dissimilar),

    D(A, B) = tr(A B^{-1}) - log |A B^{-1}| - d. Cyclic Bregman projections onto one constraint at a
    time are rank-one updates M += beta (M v)(M v)'. They are made in blocks: within a block only
    v_b' M v_c between its own constraints is needed, so M itself is updated once a block, by matrix
    products and with exactly the result of the sequential updates.

    Parameters
    ----------
    gamma : float, default 1.0
        Weight of the slack: large values enforce the bounds.
    n_pairs : int, default 1000
        Similar pairs, and dissimilar pairs, drawn from groups (or from longer lists of pairs).
    percentiles : (float, float), default (5, 95)
        Percentiles of the squared distances of the pairs taken as u and l.
    tol : float, default 1e-3
        Stop when a sweep lowers the objective by at most ``tol * max(1, |objective|)``.
    max_iter : int, default 1000
        Sweeps over all constraints.
    random_state : int, Generator, RandomState or None
        Draws the pairs.

    Attributes
    ----------
    components_ : ndarray of shape (k, d)
    bounds_ : ndarray of shape (2,)
        u and l.
    objective_, history_, n_iter_, converged_
        ``objective`` is minus the dual value -log |M^{-1}| - gamma sum_c log(xi0_c / xi_c), which
        no projection raises; see `pipeline_lib.base.IterativeEstimator`.

    Notes
    -----
    M_0 is the identity over the mean squared distance of the pairs, so results do not depend on
    the units of X. Algorithm 1 of the paper prints the step of a projection as
    delta / 2 (1/p - gamma / xi), which solves the projection for gamma = 1 only; the step used here,
    delta gamma / (gamma + 1) (1/p - 1/xi), solves it for every gamma and is the same at 1.

    References
    ----------
    J. Davis, B. Kulis, P. Jain, S. Sra, I. Dhillon, "Information-theoretic metric learning", ICML
    2007, algorithm 1.
    """

    def __init__(
        self,
        gamma: float = 1.0,
        n_pairs: int = 1000,
        percentiles: tuple[float, float] = (5.0, 95.0),
        tol: float = 1e-3,
        max_iter: int = 1000,
        random_state: RandomState = None,
    ) -> None:
        self.gamma = gamma
        self.n_pairs = n_pairs
        self.percentiles = percentiles
        self.tol = tol
        self.max_iter = max_iter
        self.random_state = random_state

    def _fit(self, X: Array, constraints: Any) -> None:
        check_at_least_one(self.n_pairs, "n_pairs")
        if self.gamma <= 0:
            raise InputError(f"gamma is {self.gamma!r}", expected="a positive number")
        rng = as_generator(self.random_state)
        similar, dissimilar = sample_pairs(constraints, self.n_pairs, rng)
        pairs = np.concatenate([similar, dissimilar])
        sign = np.repeat([1.0, -1.0], [len(similar), len(dissimilar)])
        squares = pair_sq_distances(X, X, pairs[:, 0], pairs[:, 1])
        # Identical rows are at distance 0 under every metric: they constrain nothing.
        order = rng.permutation(np.flatnonzero(squares > 0))
        if len(order) == 0:
            raise InputError("all pairs are of identical rows", expected="rows that differ")
        pairs, sign = pairs[order], sign[order]
        scale = float(np.sqrt(squares[order].mean()))
        squares = squares[order] / scale**2
        self.bounds_ = np.maximum(np.percentile(squares, self.percentiles), 1e-9)
        V = (X[pairs[:, 0]] - X[pairs[:, 1]]) / scale
        xi0 = np.where(sign > 0, self.bounds_[0], self.bounds_[1])
        M, objective, converged = self._project(V, sign, xi0)
        self.components_ = positive_part(M)[1] / scale
        self.bounds_ = self.bounds_ * scale**2
        self._record_convergence(
            {"objective": objective}, converged=converged, n_iter=len(objective)
        )

    def _project(self, V: Array, sign: Array, xi0: Array) -> tuple[Array, list[float], bool]:
        """Sweeps of Bregman projections from M = I."""
        d = V.shape[1]
        M = np.eye(d)
        dual = np.zeros(len(V))
        xi = xi0.copy()
        objective: list[float] = []
        for _ in range(self.max_iter):
            for start in range(0, len(V), _BLOCK):
                block = slice(start, start + _BLOCK)
                moved = V[block] @ M
                gram = moved @ V[block].T
                entered = sign[block] * dual[block]
                self._project_block(gram.copy(order="F"), sign[block], xi[block], dual[block])
                # M^{-1} gained V' diag(gain) V: Woodbury's identity.
                gain = sign[block] * dual[block] - entered
                inner = np.eye(len(gain)) + gain[:, None] * gram
                M -= moved.T @ linalg.solve(inner, gain[:, None] * moved, check_finite=False)
            # M is known from the dual variables alone: this ends the drift of the updates.
            inverse = np.eye(d) + V.T @ ((sign * dual)[:, None] * V)
            factor = linalg.cholesky(inverse, lower=True, check_finite=False)
            M = linalg.cho_solve((factor, True), np.eye(d), check_finite=False)
            log_det = 2.0 * float(np.log(np.diagonal(factor)).sum())
            objective.append(-log_det - self.gamma * float(np.log(xi0 / xi).sum()))
            if len(objective) > 1 and (
                objective[-2] - objective[-1] <= self.tol * max(1.0, abs(objective[-1]))
            ):
                return M, objective, True
        return M, objective, False

    def _project_block(self, G: Array, sign: Array, xi: Array, dual: Array) -> None:
        """Project on the constraints of a block in turn; all arrays are updated in place.

        G = V M V' of the block follows M: a projection on constraint i moves M by
        beta (M v_i)(M v_i)', and G by beta G e_i e_i' G.
        """
        gamma = self.gamma
        for i in range(len(G)):
            p, delta, bound = G[i, i], sign[i], xi[i]
            if p <= 0.0:
                continue
            # Where the moved p / (1 - delta alpha p) meets gamma bound / (gamma + delta alpha bound).
            alpha = min(dual[i], delta * gamma / (gamma + 1.0) * (1.0 / p - 1.0 / bound))
            if alpha == 0.0:
                continue
            column = G[:, i].copy()
            linalg.blas.dger(
                delta * alpha / (1.0 - delta * alpha * p), column, column, a=G, overwrite_a=1
            )
            xi[i] = gamma * bound / (gamma + delta * alpha * bound)
            dual[i] -= alpha
