"""All codes of a graph-regularised sparse coding problem at once (E-step).

    min_H  ||X - H D||_F^2 + beta ||H||_1 + tr(H' P H)

X : (n, d) rows to code; D : (atoms, d) dictionary; H : (n, atoms) codes;
P : (n, n) symmetric positive semidefinite coupling of the rows, lam L for a graph Laplacian L.

With G = DD' and B = XD' this is, up to a constant, the convex problem

    min_H  F(H) = tr(H G H') - 2 <H, B> + tr(H' P H) + beta ||H||_1

and H is optimal exactly when the residual

    max_ij  |g_ij + beta sign(h_ij)| where h_ij != 0,  max(|g_ij| - beta, 0) where h_ij = 0,
            g = 2 (H G + P H - B)

is zero. It is reported relative to max |2B|, the smallest beta for which all codes vanish.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from pipeline_lib.clustering.active_set import RowProblems, solve_rows

Array = NDArray[np.float64]

# A block of rows times atoms should stay in the second-level cache with its seven companions.
_BLOCK_ENTRIES = 32_768
_CHECK_EVERY = 10
_MAX_ROUNDS = 200
# Active sets close in on the minimum from above: for the same objective their residual must be smaller.
_ROW_SHARE = 0.1
# Conjugate gradients start once fewer entries than this share change sign between two checks.
_SETTLED = 1e-3
_CG_STEPS = 100
_STEPS = (1.0, 0.5, 0.25, 0.125, 0.0625, 0.03125)
# Above this density a dense coupling is multiplied faster than a sparse one.
_DENSE_COUPLING = 0.1


@dataclass(frozen=True)
class CodeSolution:
    """Codes and what is known about their optimality.

    Attributes
    ----------
    codes : ndarray of shape (n, atoms)
    residual : float
        Largest violation of the optimality conditions, relative to max |2B|.
    n_iter : int
        Applications of H -> H G + P H, the unit of cost.
    converged : bool
        Whether the residual asked for was reached.
    """

    codes: Array
    residual: float
    n_iter: int
    converged: bool


class CodeProblem:
    """The quadratic part of F, its majoriser by rows, and the residual.

    Parameters
    ----------
    gram : ndarray of shape (atoms, atoms)
        G = DD'.
    correlation : ndarray of shape (n, atoms)
        B = XD'.
    beta : float
        At least 0.
    coupling : csr_array of shape (n, n), optional
        P, symmetric positive semidefinite.

    Attributes
    ----------
    own : ndarray of shape (n,) or None
        Diagonal of P where P is diagonal: rows are then independent problems. None where P joins rows.
    """

    def __init__(
        self, gram: Array, correlation: Array, beta: float, coupling: sp.csr_array | None = None
    ) -> None:
        self.gram = np.ascontiguousarray(gram)
        self.correlation = np.ascontiguousarray(correlation)
        self.beta = float(beta)
        self.coupling = None if coupling is None else _fast_matrix(coupling)
        self.own = _diagonal_only(coupling, len(correlation))
        n, atoms = correlation.shape
        # G <= s I and P <= diag(row sums of |P|): half the Hessian is at most diag(curvature) by rows.
        largest = max(float(np.linalg.eigvalsh(self.gram)[-1]), 0.0)
        self.pull = np.zeros(n) if coupling is None else _absolute_row_sums(self.coupling)
        self.curvature = np.maximum(largest + self.pull, np.finfo(float).tiny)[:, None]
        self.scale = 2.0 * float(np.abs(self.correlation).max(initial=0.0))
        rows = max(1, _BLOCK_ENTRIES // max(atoms, 1))
        self.blocks = [slice(first, min(first + rows, n)) for first in range(0, n, rows)]

    def steps(self) -> list[tuple[slice, Array | float, Array | float]]:
        """Blocks of rows with their curvature and the threshold of their proximal step.

        Without a coupling both are the same for all rows, and numbers are cheaper than columns.
        """
        threshold = 0.5 * self.beta / self.curvature
        if self.coupling is None:
            bend, most = float(self.curvature[0, 0]), float(threshold[0, 0])
            return [(block, bend, most) for block in self.blocks]
        return [(block, self.curvature[block], threshold[block]) for block in self.blocks]

    def apply(self, codes: Array) -> Array:
        """H G + P H."""
        product = codes @ self.gram
        if self.coupling is not None:
            product += self.coupling @ codes
        return product

    def value(self, codes: Array, product: Array) -> float:
        """F(H), given H G + P H."""
        smooth = np.vdot(codes, product) - 2.0 * np.vdot(codes, self.correlation)
        return float(smooth + self.beta * np.abs(codes).sum())

    def residual(self, codes: Array, product: Array) -> float:
        """Largest violation of the optimality conditions (absolute), given H G + P H."""
        worst = 0.0
        for block in self.blocks:
            violation = product[block] - self.correlation[block]
            violation *= 2.0
            violation += self.beta * np.sign(codes[block])
            np.abs(violation, out=violation)
            violation -= self.beta * (codes[block] == 0.0)
            worst = max(worst, float(violation.max(initial=0.0)))
        return worst


def solve_codes(
    problem: CodeProblem,
    start: Array | None = None,
    *,
    tol: float = 1e-8,
    reduction: float = 0.0,
    max_iter: int = 20_000,
) -> CodeSolution:
    """Minimise F over the whole code matrix, never ending above the start.

    Parameters
    ----------
    problem : CodeProblem
    start : ndarray of shape (n, atoms), optional
        Default: zeros.
    tol : float, default=1e-8
        Accepted residual, relative to max |2B|.
    reduction : float, default=0.0
        Also stop once the residual is this share of the start's: enough for a step inside an
        alternation.
    max_iter : int, default=20000
        Largest number of applications of the quadratic.

    Returns
    -------
    CodeSolution

    Notes
    -----
    Rows that no coupling joins are solved by feature-sign search on all of them at once (`active_set`),
    as long as they use few atoms.

    Otherwise accelerated proximal gradient with gradient restart, its step chosen per row (a hub of the
    graph does not slow the others down), finds the signs of the codes. Once these settle, conjugate
    gradients solve the linear system of the entries that are not zero, entries whose sign would flip
    are set to zero, and the step is halved until F falls; the two alternate until the residual is met.

    References
    ----------
    Beck and Teboulle, "A fast iterative shrinkage-thresholding algorithm", 2009; O'Donoghue and
    Candes, "Adaptive restart for accelerated gradient schemes", 2015; Wen, Yin, Goldfarb, Zhang, "A
    fast algorithm for sparse reconstruction based on shrinkage, subspace optimization, and
    continuation", 2010 (the second phase).
    """
    codes = np.zeros_like(problem.correlation) if start is None else np.array(start, dtype=float)
    if problem.scale == 0.0:
        return CodeSolution(np.zeros_like(codes), 0.0, 0, True)
    run = _Run(problem, codes, max_iter)
    allowed = run.value() + run.rounding()
    first = run.codes.copy(), run.residual
    least = tol * problem.scale
    goal = max(least, reduction * run.residual)
    if problem.own is not None and problem.beta > 0.0 and run.residual > goal and max_iter > 1:
        run.solve_rows(max(least, _ROW_SHARE * goal))
    patience = 1
    while run.residual > goal and run.n_iter < max_iter:
        run.accelerate(goal, patience)
        if run.residual > goal and run.n_iter < max_iter:
            helped = run.conjugate_gradient(goal)
            patience = 1 if helped else 2 * patience
        if run.residual <= goal and run.value() > allowed:
            goal *= 0.1  # momentum may pass a good start by: go on until F is below it
    if run.value() > allowed:
        run.codes, run.residual = first
    relative = run.residual / problem.scale
    return CodeSolution(run.codes, relative, run.n_iter, run.residual <= max(goal, 1e-14))


class _Run:
    """State of one call: the codes H, the product H G + P H, the residual, and what it cost."""

    def __init__(self, problem: CodeProblem, codes: Array, max_iter: int) -> None:
        self.problem = problem
        self.codes = np.ascontiguousarray(codes)
        self.product = problem.apply(self.codes)
        self.residual = problem.residual(self.codes, self.product)
        self.n_iter = 1
        self.max_iter = max_iter

    def value(self) -> float:
        return self.problem.value(self.codes, self.product)

    def rounding(self) -> float:
        """Error to expect in `value`."""
        terms = abs(np.vdot(self.codes, self.product))
        terms += np.abs(self.codes * self.problem.correlation).sum()
        return 1e-14 * float(terms + self.problem.beta * np.abs(self.codes).sum())

    def solve_rows(self, goal: float) -> None:
        """Feature-sign search on all rows, as far as it gets."""
        problem = self.problem
        assert problem.own is not None
        rows = RowProblems(problem.gram, problem.own, problem.correlation, problem.beta)
        rounds = min(_MAX_ROUNDS, self.max_iter - self.n_iter)
        self.codes, spent, _ = solve_rows(rows, self.codes, goal=goal, max_rounds=rounds)
        self.n_iter += spent
        self.product = problem.apply(self.codes)
        self.residual = problem.residual(self.codes, self.product)

    def accelerate(self, goal: float, patience: int) -> None:
        """Accelerated proximal gradient until the residual is met or the signs have settled.

        Written over blocks of rows in reused memory: a pass costs one product with G, one with P, and
        little more.
        """
        problem = self.problem
        codes, product = self.codes, self.product
        ahead, ahead_product = codes.copy(), product.copy()
        new, new_product = np.empty_like(codes), np.empty_like(product)
        steps = problem.steps()
        scratch = np.empty((problem.blocks[0].stop, codes.shape[1]))
        signs = np.sign(codes).astype(np.int8)
        momentum, settled, step = 1.0, 0, 0
        while self.n_iter < self.max_iter:
            step += 1
            uphill = 0.0
            for block, bend, most in steps:
                point, spare = new[block], scratch[: block.stop - block.start]
                np.subtract(problem.correlation[block], ahead_product[block], out=point)
                point /= bend
                point += ahead[block]
                # Shrinking is subtracting what is clipped to the threshold.
                np.minimum(point, most, out=spare)
                np.maximum(spare, -most, out=spare)
                point -= spare
                if momentum > 1.0:
                    np.subtract(ahead[block], point, out=spare)
                    spare *= bend
                    uphill += float(np.vdot(spare, point)) - float(np.vdot(spare, codes[block]))
            coupled = None if problem.coupling is None else problem.coupling @ new
            self.n_iter += 1
            following = 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * momentum * momentum))
            weight = 0.0 if uphill > 0.0 else (momentum - 1.0) / following
            momentum = 1.0 if uphill > 0.0 else following
            for block in problem.blocks:
                image = new_product[block]
                np.matmul(new[block], problem.gram, out=image)
                if coupled is not None:
                    image += coupled[block]
                _extrapolate(new[block], codes[block], weight, out=ahead[block])
                _extrapolate(image, product[block], weight, out=ahead_product[block])
            codes, new = new, codes
            product, new_product = new_product, product
            if step % _CHECK_EVERY == 0 or self.n_iter >= self.max_iter:
                self.residual = problem.residual(codes, product)
                if self.residual <= goal:
                    break
                current = np.sign(codes).astype(np.int8)
                changed = np.count_nonzero(current != signs)
                signs = current
                settled = settled + 1 if changed <= _SETTLED * signs.size else 0
                if settled >= patience:
                    break
        self.codes, self.product = codes, product

    def conjugate_gradient(self, goal: float) -> bool:
        """Solve for the entries that are not to be zero with their signs held; go there if F falls.

        Preconditioned by the diagonal. Returns whether the residual fell markedly.
        """
        problem = self.problem
        signs = np.sign(self.codes)
        remainder = problem.correlation - self.product
        if problem.beta > 0.0:
            # Zero entries that violate their condition come in, with the sign they are heading for.
            coming = (signs == 0.0) & (np.abs(remainder) > 0.5 * problem.beta)
            signs[coming] = np.sign(remainder[coming])
        face = signs != 0.0 if problem.beta > 0.0 else np.ones(signs.shape, dtype=bool)
        remainder -= 0.5 * problem.beta * signs
        remainder *= face
        diagonal = problem.pull[:, None] + np.diag(problem.gram)
        diagonal[diagonal <= 0.0] = 1.0
        # The gradient is twice the remainder; a sharp solve is wasted while signs may still change.
        target = 0.5 * max(0.5 * goal, 0.05 * self.residual)
        change, change_product = np.zeros_like(remainder), np.zeros_like(remainder)
        scaled = remainder / diagonal
        direction, inner = scaled.copy(), float(np.vdot(remainder, scaled))
        for _ in range(min(_CG_STEPS, self.max_iter - self.n_iter)):
            if np.abs(remainder).max() <= target:
                break
            image = problem.apply(direction)
            self.n_iter += 1
            bend = float(np.vdot(direction, image))
            if bend <= 1e-14 * inner:
                break  # flat direction: collinear atoms
            length = inner / bend
            change += length * direction
            change_product += length * image
            image *= face
            image *= length
            remainder -= image
            np.divide(remainder, diagonal, out=scaled)
            previous, inner = inner, float(np.vdot(remainder, scaled))
            direction *= inner / previous
            direction += scaled
        before = self.residual
        return self._search(change, change_product, signs) and self.residual <= 0.5 * before

    def _search(self, change: Array, change_product: Array, signs: Array) -> bool:
        """Halve the step until F falls, entries that change sign set to zero; returns whether it did."""
        problem, value = self.problem, self.value()
        for step in _STEPS:
            trial = self.codes + step * change
            flipped = trial * signs < 0.0
            if problem.beta > 0.0 and flipped.any():
                trial[flipped] = 0.0
                product = problem.apply(trial)
                self.n_iter += 1
            else:
                product = self.product + step * change_product
            if problem.value(trial, product) <= value:
                self.codes, self.product = trial, product
                self.residual = problem.residual(trial, product)
                return True
        return False


def _extrapolate(new: Array, old: Array, weight: float, out: Array) -> None:
    """out = new + weight (new - old)."""
    if weight == 0.0:
        out[...] = new
        return
    np.subtract(new, old, out=out)
    out *= weight
    out += new


def _fast_matrix(matrix: sp.csr_array) -> sp.csr_array | Array:
    n = matrix.shape[0]
    return matrix.toarray() if matrix.nnz > _DENSE_COUPLING * n * n else matrix


def _diagonal_only(coupling: sp.csr_array | None, n: int) -> Array | None:
    """The diagonal of a coupling that has no other entries; None when it joins rows."""
    if coupling is None:
        return np.zeros(n)
    places = sp.coo_array(coupling)
    joins = (places.row != places.col) & (places.data != 0.0)
    return None if joins.any() else np.asarray(coupling.diagonal(), dtype=np.float64)


def _absolute_row_sums(matrix: Any) -> Array:
    return np.asarray(abs(matrix).sum(axis=1), dtype=np.float64).ravel()
