"""ListNet: cross entropy between the top-one distributions of labels and of scores.

For each query q with documents j, labels y_j and scores f(x_j) = w'psi(x_j),

    p_j = exp(y_j) / sum_l exp(y_l),    s_j(w) = exp(f(x_j)) / sum_l exp(f(x_l)),
    min_w  1/2 w'w + C sum_q sum_j -p_j log s_j(w)

The authors train by gradient descent without the first term, which they replace by stopping early; here
the problem is convex with one minimum, found by truncated Newton. The Hessian product is
s + C Z'(diag(s) - s s')Z s, query by query in O(n).

Reference
---------
Cao, Qin, Liu, Tsai and Li, Learning to rank: from pairwise approach to listwise approach, 2007.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pipeline_lib.errors import InputError
from pipeline_lib.kernels.feature_map import FeatureMap
from pipeline_lib.ltr.base import LinearRanker
from pipeline_lib.ltr.queries import check_labels
from pipeline_lib.ltr.rows import RowMatrix
from pipeline_lib.optimize.truncated_newton import euclidean, truncated_newton

Array = NDArray[np.float64]
Index = NDArray[np.intp]


class ListNet(LinearRanker):
    """ListNet with linear scores, on the features or on a feature map (problem at the top).

    Parameters
    ----------
    C : float, default 1.0
        Weight of the sum of cross entropies over queries.
    feature_map : FeatureMap, optional
        Cloned and fitted on the training rows; the features themselves by default.
    tol : float, default 1e-8
        Newton decrement relative to the objective at which to stop.
    max_iter : int, default 100
        Newton steps at most.

    Attributes
    ----------
    coef_ : ndarray of shape (m,)
    objective_, history_, n_iter_, converged_
        See `IterativeEstimator`.
    """

    def __init__(
        self,
        C: float = 1.0,
        feature_map: FeatureMap | None = None,
        tol: float = 1e-8,
        max_iter: int = 100,
    ) -> None:
        self.C = C
        self.feature_map = feature_map
        self.tol = tol
        self.max_iter = max_iter

    def fit(self, X: ArrayLike, y: ArrayLike, qid: ArrayLike) -> Self:
        """Fit on documents ``X`` (n, d) with labels ``y`` (n,) and query ids ``qid`` (n,)."""
        if not (np.isfinite(self.C) and self.C > 0):
            raise InputError(f"C is {self.C}", expected="a positive number")
        if not self.tol > 0 or self.max_iter < 1:
            raise InputError("tol and max_iter must be positive")
        rows = self._mapped(X)
        labels = check_labels(y, qid, rows.n_rows)
        problem = _ListNetProblem(rows, labels.y, labels.query, labels.n_queries, self.C)
        result = truncated_newton(
            problem, np.zeros(rows.n_features), tol=self.tol, max_iter=self.max_iter
        )
        self.coef_ = result.w
        self._record_convergence(
            result.history,
            converged=result.converged,
            n_iter=result.n_iter,
            objective=result.objective,
        )
        return self


class _ListNetProblem:
    def __init__(self, rows: RowMatrix, y: Array, query: Index, n_queries: int, C: float) -> None:
        self._rows, self._query, self._n_queries, self._C = rows, query, n_queries, C
        # Grouping by query, to take maxima; every other sum is a weighted count.
        self._order = np.argsort(query, kind="stable")
        self._first = np.searchsorted(query[self._order], np.arange(n_queries))
        self._target = self._softmax(y)[0]

    def _sums(self, values: Array) -> Array:
        sums = np.bincount(self._query, weights=values, minlength=self._n_queries)
        return np.asarray(sums, dtype=np.float64)

    def _softmax(self, scores: Array) -> tuple[Array, Array]:
        """Softmax within each query, and log sum exp of each query."""
        highest = np.maximum.reduceat(scores[self._order], self._first)
        weights = np.exp(scores - highest[self._query])
        totals = self._sums(weights)
        return weights / totals[self._query], highest + np.log(totals)

    def inner(self, a: Array, b: Array) -> float:
        return euclidean(a, b)

    def start(self, w: Array) -> None:
        self.w = w.copy()
        self.scores = self._rows.dot(w)
        self.share, self._log_total = self._softmax(self.scores)

    def value_and_gradient(self) -> tuple[float, Array]:
        entropy = float(self._log_total.sum() - self._target @ self.scores)
        pull = self._rows.transpose_dot(self.share - self._target)
        return 0.5 * float(self.w @ self.w) + self._C * entropy, self.w + self._C * pull

    def _curvature(self, share: Array, values: Array) -> Array:
        """(diag(s) - s s') v within each query."""
        return share * (values - self._sums(share * values)[self._query])

    def hessian_product(self, s: Array) -> Array:
        values = self._curvature(self.share, self._rows.fast_dot(s))
        return s + self._C * self._rows.fast_transpose_dot(values)

    def preconditioner(self) -> None:
        return None

    def along(self, s: Array) -> Callable[[float], tuple[float, float]]:
        self._direction = s
        self._slope_scores = v = self._rows.dot(s)
        linear, square = float(self.w @ s), float(s @ s)
        fixed = float(self._target @ v)

        def derivatives(t: float) -> tuple[float, float]:
            share = self._softmax(self.scores + t * v)[0]
            slope = linear + t * square + self._C * (float(share @ v) - fixed)
            return slope, square + self._C * float(v @ self._curvature(share, v))

        return derivatives

    def move(self, t: float) -> None:
        self.w = self.w + t * self._direction
        self.scores = self.scores + t * self._slope_scores
        self.share, self._log_total = self._softmax(self.scores)
