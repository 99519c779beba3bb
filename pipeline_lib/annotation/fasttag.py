"""FastTag: two linear maps that meet, one from features, one completing blanked-out tags."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import linalg

from pipeline_lib.annotation.base import Annotator, Tags
from pipeline_lib.base import IterativeEstimator
from pipeline_lib.errors import InputError

Array = NDArray[np.float64]


class FastTag(IterativeEstimator, Annotator):
    """Learn to predict completed tags from features, and to complete tags from tags.

    Training tags y_i are thought incomplete; B completes them and W predicts the completed ones:

        min_{W, B}  1/n sum_i ||B y_i - W x_i||^2 + alpha ||W||^2
                    + gamma 1/n sum_i E ||y_i - B y~_i||^2,

    where y~ blanks each tag out with probability p. The expectation is taken in closed form
    (marginalised blankout), q = 1 - p, S = sum y_i y_i' / n:

        E y y~' = q S =: P,   E y~ y~' = q^2 S off the diagonal and q S on it =: Q.

    Either map has a closed form given the other:

        W = B Y'X (X'X + n alpha I)^{-1},    B = (gamma P + W X'Y / n)(S + gamma Q)^{-1}.

    Parameters
    ----------
    alpha : float, default 0.1
        Ridge of W.
    gamma : float, default 1.0
        Weight of the completion of blanked-out tags.
    blankout : float, default 0.5
        p in (0, 1).
    tol : float, default 1e-5
        Relative decrease of the objective at which the alternation stops.
    max_iter : int, default 200

    Attributes
    ----------
    coef_ : ndarray of shape (d + 1, m)
        W', the last row for the constant feature.
    completion_ : ndarray of shape (m, m)
        B.
    objective_, history_, n_iter_, converged_
        See `pipeline_lib.base.IterativeEstimator`.

    Notes
    -----
    The paper also raises rare tags by bootstrapping; that step is not part of this model. A constant
    feature is appended to X, penalised like the others.

    References
    ----------
    M. Chen, A. Zheng, K. Weinberger, "Fast image tagging", ICML 2013.
    """

    _state_names = ("coef_", "completion_")

    def __init__(
        self,
        alpha: float = 0.1,
        gamma: float = 1.0,
        blankout: float = 0.5,
        tol: float = 1e-5,
        max_iter: int = 200,
    ) -> None:
        self.alpha = alpha
        self.gamma = gamma
        self.blankout = blankout
        self.tol = tol
        self.max_iter = max_iter

    def fit(self, X: ArrayLike, Y: Any) -> Self:
        """Alternate the two closed forms until the objective rests."""
        if not (self.alpha > 0 and self.gamma > 0 and 0 < self.blankout < 1):
            raise InputError(
                f"alpha {self.alpha!r}, gamma {self.gamma!r}, blankout {self.blankout!r}",
                expected="alpha and gamma > 0, blankout between 0 and 1",
            )
        rows, tags = self._check_fit(X, Y)
        self._alternate(_with_constant(rows), tags)
        return self

    def _alternate(self, X: Array, tags: Tags) -> None:
        n, m = tags.shape
        q = 1.0 - self.blankout
        S = (tags.T @ tags).toarray() / n
        P = q * S
        Q = q * q * S
        np.fill_diagonal(Q, q * np.diagonal(S))
        C = np.asarray(tags.T @ X) / n  # Y'X / n, (m, d)
        G = X.T @ X / n
        regression = linalg.cho_factor(G + self.alpha * np.eye(X.shape[1]))
        # Tags that never occur have zero rows: the tiny ridge leaves their maps at zero.
        completion = linalg.cho_factor(S + self.gamma * Q + 1e-10 * np.eye(m))
        from_tags = linalg.cho_solve(regression, C.T).T  # Y'X (X'X + n alpha I)^{-1}
        B = np.eye(m)
        W = B @ from_tags
        objective = [self._value(B, W, S, P, Q, C, G)]
        converged = False
        while len(objective) < self.max_iter and not converged:
            B = linalg.cho_solve(completion, (self.gamma * P + W @ C.T).T).T
            W = B @ from_tags
            objective.append(self._value(B, W, S, P, Q, C, G))
            converged = objective[-2] - objective[-1] <= self.tol * abs(objective[-1])
        self.coef_, self.completion_ = W.T, B
        self._record_convergence(
            {"objective": objective}, converged=converged, n_iter=len(objective)
        )

    def _value(self, B: Array, W: Array, S: Array, P: Array, Q: Array, C: Array, G: Array) -> float:
        BS, BQ = B @ S, B @ Q
        fit = np.vdot(BS, B) - 2.0 * np.vdot(B @ C, W) + np.vdot(W @ G, W)
        completion = np.trace(S) - 2.0 * np.vdot(B, P) + np.vdot(BQ, B)
        return float(fit + self.alpha * np.vdot(W, W) + self.gamma * completion)

    def predict(self, X: ArrayLike) -> Array:
        """W x (n, m) for every row."""
        return _with_constant(self._check_predict(X)) @ self.coef_


def _with_constant(X: Array) -> Array:
    return np.hstack([X, np.ones((len(X), 1))])
