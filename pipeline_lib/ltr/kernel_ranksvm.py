"""Exact kernel RankSVM: the reference that the approximations are measured against.

In the space H of a kernel k the ranking function is f = sum_j b_j k(., x_j), and with K the kernel matrix
the problem

    min_f  1/2 ||f||_H^2 + C sum_{(i,j) in P} max(0, 1 - f(x_i) + f(x_j))^2

is one in the expansion coefficients b: ||f||^2 = b'K b and the scores are u = K b. Truncated Newton
works in H: with L the Laplacian of the active pairs and c the keys of `pairwise`, the gradient has the
coefficients b + 2 C L c and the Hessian maps s to s + 2 C L K s, which is self-adjoint for the inner
product a'K b of H. Every vector is kept as the pair (b, K b), so a Hessian product costs one product with
K, and nothing has the squared condition of K that plain coordinates would bring.

K is held in memory when the budget allows; otherwise its row blocks are recomputed at each product.
Documents that are in no pair have b_j = 0 and are left out.

References
----------
Chapelle, Training a support vector machine in the primal, 2007. Kuo, Lee and Lin, Large-scale kernel
RankSVM, 2014.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pipeline_lib.errors import InputError
from pipeline_lib.kernels.functions import (
    as_rows,
    check_kernel,
    iter_kernel_blocks,
    kernel_evaluator,
    kernel_matrix,
    row_blocks,
)
from pipeline_lib.ltr.base import Ranker
from pipeline_lib.ltr.pairwise import ActivePairs, PreferencePairs
from pipeline_lib.ltr.queries import check_labels
from pipeline_lib.optimize.truncated_newton import truncated_newton

Array = NDArray[np.float64]

_BLOCK_BYTES = 4 * 2**20


class KernelRankSVM(Ranker):
    """RankSVM with squared hinge on an exact kernel (problem at the top of the module).

    Time grows with n^2 for each Newton product. Memory is bounded by ``memory_mb``.

    Parameters
    ----------
    C : float, default 1.0
        Weight of the plain sum of squared hinges over pairs.
    gamma : float, default 1.0
        Parameter of the kernel.
    kernel : str, default "rbf"
        One of `pipeline_lib.kernels.functions.KERNELS`.
    tol : float, default 1e-8
        Newton decrement relative to the objective at which to stop.
    max_iter : int, default 100
        Newton steps at most.
    memory_mb : int, default 2048
        What the kernel matrix may take; beyond it blocks are recomputed.

    Attributes
    ----------
    support_vectors_ : ndarray of shape (s, d)
        Documents with a non-zero coefficient.
    coef_ : ndarray of shape (s,)
        Their expansion coefficients.
    duality_gap_ : float
        Upper bound of ``objective_`` minus the minimum.
    objective_, history_, n_iter_, converged_
        See `IterativeEstimator`.
    """

    support_vectors_: Array
    coef_: Array
    duality_gap_: float

    _state_names: ClassVar[tuple[str, ...]] = ("n_features_in_", "support_vectors_", "coef_")

    def __init__(
        self,
        C: float = 1.0,
        gamma: float = 1.0,
        kernel: str = "rbf",
        tol: float = 1e-8,
        max_iter: int = 100,
        memory_mb: int = 2048,
    ) -> None:
        self.C = C
        self.gamma = gamma
        self.kernel = kernel
        self.tol = tol
        self.max_iter = max_iter
        self.memory_mb = memory_mb

    def fit(self, X: ArrayLike, y: ArrayLike, qid: ArrayLike) -> Self:
        """Fit on documents ``X`` (n, d) with labels ``y`` (n,) and query ids ``qid`` (n,)."""
        check_kernel(self.kernel, self.gamma)
        if not (np.isfinite(self.C) and self.C > 0):
            raise InputError(f"C is {self.C}", expected="a positive number")
        if not self.tol > 0 or self.max_iter < 1 or self.memory_mb < 1:
            raise InputError("tol, max_iter and memory_mb must be positive")
        rows = as_rows(X)
        labels = check_labels(y, qid, len(rows))
        pairs = PreferencePairs(labels.y, labels.query)
        involved = np.unique(np.concatenate([pairs.better, pairs.worse]))
        self.n_features_in_ = rows.shape[1]
        if len(involved) == 0:
            self.support_vectors_, self.coef_, self.duality_gap_ = rows[:1], np.zeros(1), 0.0
            self._record_convergence({"objective": [0.0]}, converged=True, n_iter=0)
            return self
        rows = rows[involved]
        pairs = PreferencePairs(labels.y[involved], labels.query[involved])
        product = _kernel_product(rows, self.kernel, self.gamma, self.memory_mb * 2**20)
        problem = _KernelProblem(product, pairs, self.C)
        result = truncated_newton(
            problem, np.zeros((2, len(rows))), tol=self.tol, max_iter=self.max_iter
        )
        # A document whose pairs are all inactive has a coefficient of exactly 0 at the minimum.
        coef, gradient = result.w[0], problem.value_and_gradient()[1]
        kept = (problem.dual_coef() != 0) | (np.abs(coef) > 1e-12 * np.abs(coef).max())
        self.support_vectors_, self.coef_ = rows[kept], coef[kept].copy()
        active = problem.active
        loss = (result.objective - 0.5 * problem.inner(result.w, result.w)) / self.C
        shifted = result.w - gradient
        dual = 2 * self.C * active.hinge() - self.C * loss - 0.5 * problem.inner(shifted, shifted)
        self.duality_gap_ = max(0.0, result.objective - dual)
        self._record_convergence(
            result.history,
            converged=result.converged,
            n_iter=result.n_iter,
            objective=result.objective,
        )
        return self

    def _scores(self, rows: Array) -> Array:
        scores = np.empty(len(rows))
        for part, block in iter_kernel_blocks(
            rows, self.support_vectors_, self.kernel, self.gamma, block_bytes=_BLOCK_BYTES
        ):
            scores[part] = block @ self.coef_
        return scores


class _KernelProblem:
    """The problem in H, every vector stacked as (b, K b)."""

    def __init__(self, product: Callable[[Array], Array], pairs: PreferencePairs, C: float) -> None:
        self._product = product
        self._pairs = pairs
        self._C = C
        self._last: tuple[float, ActivePairs] | None = None

    def inner(self, a: Array, b: Array) -> float:
        return float(a[0] @ b[1])

    def start(self, w: Array) -> None:
        self.w = w.copy()
        self.active = self._pairs.active(self.w[1])

    def dual_coef(self) -> Array:
        """-2 C L c: equal to b at the minimum, and exactly 0 without an active pair."""
        return -2.0 * self._C * self.active.squared_hinge()[1]

    def value_and_gradient(self) -> tuple[float, Array]:
        loss, half_gradient = self.active.squared_hinge()
        value = 0.5 * self.inner(self.w, self.w) + self._C * loss
        return value, self.w + self._stacked(2.0 * self._C * half_gradient)

    def hessian_product(self, s: Array) -> Array:
        return s + self._stacked(2.0 * self._C * self.active.apply(s[1]))

    def _stacked(self, b: Array) -> Array:
        return np.stack([b, self._product(b)])

    def preconditioner(self) -> None:
        return None

    def along(self, s: Array) -> Callable[[float], tuple[float, float]]:
        self._direction = s
        linear, square = self.inner(self.w, s), self.inner(s, s)

        def derivatives(t: float) -> tuple[float, float]:
            active = self._pairs.active(self.w[1] + t * s[1])
            self._last = (t, active)
            slope, curvature = active.quadratic(s[1])
            weight = 2.0 * self._C
            return linear + t * square + weight * slope, square + weight * curvature

        return derivatives

    def move(self, t: float) -> None:
        self.w = self.w + t * self._direction
        if self._last is not None and self._last[0] == t:
            self.active = self._last[1]
        else:
            self.active = self._pairs.active(self.w[1])
        self._last = None


def _kernel_product(
    rows: Array, kernel: str, gamma: float, memory_bytes: int
) -> Callable[[Array], Array]:
    """b -> K b, with K in memory or in recomputed blocks of rows."""
    n = len(rows)
    if 8 * n * n <= memory_bytes:
        K = kernel_matrix(rows, None, kernel, gamma)
        return lambda b: K @ b
    evaluate = kernel_evaluator(rows, kernel, gamma)

    def blocks() -> Iterator[tuple[slice, Array]]:
        for part in row_blocks(n, 8 * n, _BLOCK_BYTES):
            yield part, evaluate(rows[part])

    def product(b: Array) -> Array:
        image = np.empty(n)
        for part, block in blocks():
            image[part] = block @ b
        return image

    return product
