"""The primal RankSVM problem on mapped rows, for both losses and a whole grid of C.

For rows z_i, preference pairs P (same query, y_i > y_j) and margins m_ij = w'(z_i - z_j):

    squared hinge   J(w) = 1/2 w'w + C sum_P max(0, 1 - m_ij)^2
    hinge           J(w) = 1/2 w'w + C sum_P max(0, 1 - m_ij)

The squared hinge is minimised by truncated Newton directly. The hinge is approached through the smooth
losses h_d(m) = [max(0, 1 - m)^2 - max(0, 1 - d - m)^2] / (2 d), which differ from it by at most d/2:
each is a difference of two squared hinges, so it needs nothing new. The width d shrinks, each solve
starting from the last, until the duality gap is small.

Duality gap: with pair variables a_ij = -C loss'(m_ij), which are feasible for the dual, and
w_a = sum a_ij (z_i - z_j),

    hinge           D = sum a - 1/2 w_a'w_a,                        0 <= a <= C
    squared hinge   D = sum a - sum a^2 / (4 C) - 1/2 w_a'w_a,      a >= 0

J - D bounds the distance of J from its minimum. Its sums over pairs need no pairs either.

References
----------
Chapelle and Keerthi, Efficient algorithms for ranking with SVMs, 2010.
Chen, Li, Chen, Liao, Ranking support vector machine with kernel approximation, 2017, section 3.3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import linalg

from pipeline_lib.errors import InputError
from pipeline_lib.ltr.pairwise import ActivePairs, PreferencePairs
from pipeline_lib.ltr.rows import RowMatrix
from pipeline_lib.optimize.truncated_newton import euclidean, truncated_newton

Array = NDArray[np.float64]

LOSSES = ("squared_hinge", "hinge")
_DEFAULT_TOL = {"squared_hinge": 1e-8, "hinge": 1e-3}
_SHRINK = 0.25
_SMALLEST_WIDTH = 1e-7
# The Hessian sample: documents per feature and at least, and columns formed at a time.
_SAMPLE_PER_FEATURE = 2
_SAMPLE_LEAST = 4000
_SAMPLE_COLUMNS = 64
_LARGEST_PRECONDITIONER = 3000


@dataclass(frozen=True)
class LinearFit:
    """A minimiser for one value of C.

    Attributes
    ----------
    C : float
    coef : ndarray of shape (m,)
    objective : float
        J at ``coef``.
    duality_gap : float
        Upper bound of ``objective`` minus its minimum.
    n_iter : int
        Newton steps.
    converged : bool
    history : dict of lists
        ``objective`` and more, one value per Newton step (squared hinge) or per smoothing width (hinge).
    """

    C: float
    coef: Array
    objective: float
    duality_gap: float
    n_iter: int
    converged: bool
    history: dict[str, list[float]]


class HessianSample:
    """Documents of a sample of queries, from which Hessians are estimated as matrices.

    The Hessian I + 2 C Z'LZ is a sum over queries. Over a sample of them it is formed with matrix
    products and factored; scaled to all pairs it is a good preconditioner at a cost that does not grow
    with the number of documents.

    Parameters
    ----------
    rows : RowMatrix
    y, qid : arrays of shape (n,)
    """

    def __init__(
        self, rows: RowMatrix, pairs: PreferencePairs, y: ArrayLike, qid: ArrayLike
    ) -> None:
        query = np.unique(np.asarray(qid), return_inverse=True)[1].reshape(-1)
        sizes = np.bincount(query)
        order = np.random.default_rng(0).permutation(len(sizes))
        wanted = max(_SAMPLE_LEAST, _SAMPLE_PER_FEATURE * rows.n_features)
        chosen = np.zeros(len(sizes), dtype=bool)
        chosen[order[: int(np.searchsorted(np.cumsum(sizes[order]), wanted)) + 1]] = True
        self.index = np.flatnonzero(chosen[query])
        self.pairs = PreferencePairs(np.asarray(y)[self.index], query[self.index])
        self.scale = pairs.n_pairs / max(1, self.pairs.n_pairs)
        self.Z = rows.take(self.index)

    def factor(self, scores: Array, terms: Sequence[tuple[float, float]]) -> Array:
        """Cholesky factor of the estimated Hessian at the given scores of all documents."""
        m = self.Z.shape[1]
        H = np.eye(m)
        active = [self.pairs.active(scores[self.index], margin) for margin, _ in terms]
        for start in range(0, m, _SAMPLE_COLUMNS):
            columns = slice(start, start + _SAMPLE_COLUMNS)
            block = np.ascontiguousarray(self.Z[:, columns])
            image = np.zeros_like(block)
            for (_, weight), at in zip(terms, active):
                image += (2.0 * weight * self.scale) * at.apply(block)
            # The lower triangle is all that the factorisation reads.
            H[start:, columns] += self.Z[:, start:].T @ image
        return np.asarray(linalg.cholesky(H, lower=True, overwrite_a=True, check_finite=False))


class RankingProblem:
    """1/2 w'w + sum_k c_k * squared hinge with margin g_k, as a `NewtonProblem`.

    Parameters
    ----------
    rows : RowMatrix
    pairs : PreferencePairs
    terms : sequence of (margin, weight)
        One term for the squared hinge; two, of opposite weight, for the smoothed hinge.
    sample : callable, optional
        Gives the `HessianSample` when a preconditioner is asked for.
    """

    def __init__(
        self,
        rows: RowMatrix,
        pairs: PreferencePairs,
        terms: Sequence[tuple[float, float]],
        sample: Callable[[], HessianSample] | None = None,
    ) -> None:
        self._rows = rows
        self._pairs = pairs
        self._terms = tuple(terms)
        self._sample = sample
        self._last: tuple[float, list[ActivePairs]] | None = None

    def inner(self, a: Array, b: Array) -> float:
        return euclidean(a, b)

    def start(self, w: Array) -> None:
        self.w = w.copy()
        self.scores = self._rows.dot(w) if w.any() else np.zeros(self._rows.n_rows)
        self.active = self._active(self.scores)

    def _active(self, scores: Array) -> list[ActivePairs]:
        return [self._pairs.active(scores, margin) for margin, _ in self._terms]

    def value_and_gradient(self) -> tuple[float, Array]:
        value = 0.5 * float(self.w @ self.w)
        pull = np.zeros(len(self.scores))
        for (_, weight), active in zip(self._terms, self.active):
            loss, half_gradient = active.squared_hinge()
            value += weight * loss
            pull += 2.0 * weight * half_gradient
        return value, self.w + self._rows.transpose_dot(pull)

    def hessian_product(self, s: Array) -> Array:
        values = self._rows.fast_dot(s)
        pull = np.zeros(len(values))
        for (_, weight), active in zip(self._terms, self.active):
            pull += 2.0 * weight * active.apply(values)
        return s + self._rows.fast_transpose_dot(pull)

    def preconditioner(self) -> Callable[[Array], Array] | None:
        if self._sample is None or self._rows.n_features > _LARGEST_PRECONDITIONER:
            return None
        factor = self._sample().factor(self.scores, self._terms)
        return lambda r: np.asarray(linalg.cho_solve((factor, True), r, check_finite=False))

    def along(self, s: Array) -> Callable[[float], tuple[float, float]]:
        self._direction = s
        self._slope_scores = v = self._rows.dot(s)
        linear, square = float(self.w @ s), float(s @ s)

        def derivatives(t: float) -> tuple[float, float]:
            active = self._active(self.scores + t * v)
            self._last = (t, active)
            slope, curvature = linear + t * square, square
            for (_, weight), at in zip(self._terms, active):
                half_slope, half_curvature = at.quadratic(v)
                slope += 2.0 * weight * half_slope
                curvature += 2.0 * weight * half_curvature
            return slope, curvature

        return derivatives

    def move(self, t: float) -> None:
        self.w = self.w + t * self._direction
        self.scores = self.scores + t * self._slope_scores
        if self._last is not None and self._last[0] == t:
            self.active = self._last[1]
        else:
            self.active = self._active(self.scores)
        self._last = None


def fit_path(
    rows: RowMatrix,
    y: ArrayLike,
    qid: ArrayLike,
    C_grid: Sequence[float],
    *,
    loss: str = "squared_hinge",
    tol: float | None = None,
    max_iter: int = 100,
    coef_init: Array | None = None,
) -> Iterator[LinearFit]:
    """Minimise J for each C in turn, each solve starting from the one before.

    Parameters
    ----------
    rows : RowMatrix
        Mapped documents, (n, m).
    y, qid : arrays of shape (n,)
        Labels and query ids.
    C_grid : sequence of float
        Walked in the order given, which is part of the definition of the result.
    loss : {"squared_hinge", "hinge"}
    tol : float, optional
        Squared hinge: Newton decrement relative to J at which to stop (default 1e-8). Hinge: duality
        gap relative to J (default 1e-3).
    max_iter : int, default 100
        Newton steps at most for one value of C.
    coef_init : ndarray of shape (m,), optional
        Start of the first solve; zeros by default.

    Yields
    ------
    LinearFit

    Raises
    ------
    InputError
        For parameters out of range, labels that do not match, or a start of the wrong size.
    """
    if loss not in LOSSES:
        raise InputError(f"unknown loss {loss!r}", expected="one of " + ", ".join(LOSSES))
    tolerance = _DEFAULT_TOL[loss] if tol is None else tol
    if not tolerance > 0:
        raise InputError(f"tol is {tol}", expected="a positive number")
    if max_iter < 1:
        raise InputError(f"max_iter is {max_iter}", expected="at least 1")
    for C in C_grid:
        if not (np.isfinite(C) and C > 0):
            raise InputError(f"C is {C}", expected="a positive number")
    if coef_init is None:
        w = np.zeros(rows.n_features)
    else:
        w = np.asarray(coef_init, dtype=np.float64)
        if w.shape != (rows.n_features,) or not np.isfinite(w).all():
            raise InputError(
                f"coef_init has shape {w.shape}", expected=f"{rows.n_features} finite numbers"
            )
    pairs = PreferencePairs(y, qid)
    if pairs.n_documents != rows.n_rows:
        raise InputError(
            f"{pairs.n_documents} labels", expected=f"one for each of {rows.n_rows} rows"
        )
    solve = _fit_squared_hinge if loss == "squared_hinge" else _fit_hinge
    sample = cache(lambda: HessianSample(rows, pairs, y, qid))

    def problem(terms: Sequence[tuple[float, float]]) -> RankingProblem:
        return RankingProblem(rows, pairs, terms, sample)

    for C in C_grid:
        fit = solve(problem, float(C), w, tolerance, max_iter)
        w = fit.coef
        yield fit


_MakeProblem = Callable[[Sequence[tuple[float, float]]], RankingProblem]


def _fit_squared_hinge(
    make_problem: _MakeProblem, C: float, w: Array, tol: float, max_iter: int
) -> LinearFit:
    problem = make_problem([(1.0, C)])
    result = truncated_newton(problem, w, tol=tol, max_iter=max_iter)
    active = problem.active[0]
    objective, gradient = problem.value_and_gradient()
    loss = (objective - 0.5 * float(result.w @ result.w)) / C
    # sum a = 2 C sum violation and sum a^2 / (4 C) = C sum violation^2.
    dual = 2.0 * C * active.hinge() - C * loss - 0.5 * float(np.sum((result.w - gradient) ** 2))
    return LinearFit(
        C,
        result.w,
        result.objective,
        max(0.0, objective - dual),
        result.n_iter,
        result.converged,
        result.history,
    )


def _fit_hinge(
    make_problem: _MakeProblem, C: float, w: Array, tol: float, max_iter: int
) -> LinearFit:
    history: dict[str, list[float]] = {"objective": [], "duality_gap": [], "width": []}
    best = (np.inf, w)
    best_dual = -np.inf
    width, n_iter = 1.0, 0
    while True:
        problem = make_problem([(1.0, C / (2.0 * width)), (1.0 - width, -C / (2.0 * width))])
        result = truncated_newton(problem, w, tol=0.1 * tol, max_iter=max_iter - n_iter)
        w = result.w
        n_iter += result.n_iter
        _, gradient = problem.value_and_gradient()
        violation = [active.hinge() for active in problem.active]
        objective = 0.5 * float(w @ w) + C * violation[0]
        dual = C / width * (violation[0] - violation[1]) - 0.5 * float(np.sum((w - gradient) ** 2))
        best = min(best, (objective, w), key=lambda pair: pair[0])
        best_dual = max(best_dual, dual)
        gap = max(0.0, best[0] - best_dual)
        for key, value in (("objective", best[0]), ("duality_gap", gap), ("width", width)):
            history[key].append(value)
        if gap <= tol * best[0] or n_iter >= max_iter or width <= _SMALLEST_WIDTH:
            converged = gap <= tol * best[0]
            return LinearFit(C, best[1], best[0], gap, n_iter, converged, history)
        width *= _SHRINK
