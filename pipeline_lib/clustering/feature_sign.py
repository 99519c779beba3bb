"""Codes image by image: feature-sign search (the paper's own E-step, Algorithm 1).

With the codes of all other rows fixed, row i of the graph-regularised problem is

    min_e  e' Q e - 2 b'e + beta ||e||_1,    Q = G + p_ii I,   b = (XD')_i - sum_{j != i} p_ij h_j

with G = DD' and P the coupling of the rows. Feature-sign search guesses the signs of e, solves the
unconstrained quadratic they leave, and corrects the guess until the optimality conditions hold. Without
a graph one pass over the rows is exact; with one, passes are repeated until the codes fit together.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy import linalg

from pipeline_lib.clustering.code_solver import CodeProblem, CodeSolution

Array = NDArray[np.float64]

_MAX_SEARCH = 10_000
# Optimality within one row, relative to the residual allowed for the whole matrix.
_ROW_SHARE = 0.1
# Smallest pivot of a Cholesky factor, relative to the largest, above which atoms are independent.
_COLLINEAR = 1e-6


def solve_codes_by_feature_sign(
    problem: CodeProblem,
    start: Array | None = None,
    *,
    tol: float = 1e-8,
    reduction: float = 0.0,
    max_iter: int = 2_000,
) -> CodeSolution:
    """Minimise over one row after the other until the whole matrix is optimal.

    Parameters
    ----------
    problem : CodeProblem
    start : ndarray of shape (n, atoms), optional
        Default: zeros.
    tol : float, default=1e-8
        Accepted residual, relative to max |2 XD'|.
    reduction : float, default=0.0
        Also stop once the residual is this share of the start's.
    max_iter : int, default=2000
        Largest number of passes over the rows.

    Returns
    -------
    CodeSolution
        ``n_iter`` counts passes.
    """
    codes = np.zeros_like(problem.correlation) if start is None else np.array(start, dtype=float)
    if problem.scale == 0.0:
        return CodeSolution(np.zeros_like(codes), 0.0, 0, True)
    residual = problem.residual(codes, problem.apply(codes))
    goal = max(tol * problem.scale, reduction * residual)
    coupling = None if problem.coupling is None else sp.csr_array(problem.coupling)
    own = np.zeros(len(codes)) if coupling is None else coupling.diagonal()
    passes = 0
    while residual > goal and passes < max_iter:
        passes += 1
        for i in range(len(codes)):
            target = problem.correlation[i]
            if coupling is not None:
                row = slice(coupling.indptr[i], coupling.indptr[i + 1])
                pull = coupling.data[row] @ codes[coupling.indices[row]]
                target = target - pull + own[i] * codes[i]
            codes[i] = feature_sign_search(
                problem.gram, own[i], target, problem.beta, codes[i], _ROW_SHARE * goal
            )
        residual = problem.residual(codes, problem.apply(codes))
    return CodeSolution(codes, residual / problem.scale, passes, residual <= goal)


def feature_sign_search(
    gram: Array, shift: float, target: Array, beta: float, start: Array, tol: float
) -> Array:
    """argmin_e  e'(G + shift I)e - 2 b'e + beta ||e||_1 by feature-sign search.

    Parameters
    ----------
    gram : ndarray of shape (atoms, atoms)
        G, positive semidefinite.
    shift : float
        At least 0.
    target : ndarray of shape (atoms,)
        b.
    beta : float
        At least 0.
    start : ndarray of shape (atoms,)
        Any point; a good one saves steps.
    tol : float
        Accepted violation of the optimality conditions.

    Returns
    -------
    ndarray of shape (atoms,)

    References
    ----------
    Lee, Battle, Raina, Ng, "Efficient sparse coding algorithms", NIPS 2006, Algorithm 1.
    """
    code = start.copy()
    signs = np.sign(code)

    def gradient() -> Array:
        return 2.0 * (gram @ code + shift * code - target)

    def value(point: Array) -> float:
        smooth = point @ (gram @ point) + shift * (point @ point) - 2.0 * (target @ point)
        return float(smooth + beta * np.abs(point).sum())

    for _ in range(_MAX_SEARCH):
        slope = gradient()
        active = signs != 0.0
        settled = not active.any() or float(np.abs(slope + beta * signs)[active].max()) <= tol
        if settled:
            # Activate the zero entry that violates its condition most; none left means optimal.
            outside = np.where(active, 0.0, np.abs(slope) - beta)
            entry = int(outside.argmax())
            if outside[entry] <= tol:
                break
            signs[entry] = -np.sign(slope[entry])
            active[entry] = True
        places = np.flatnonzero(active)
        better = _segment_search(gram, shift, target, beta, code, signs, places, value)
        if better is None:
            break  # no descent above rounding
        code = better
        signs = np.sign(code)
    return code


def _segment_search(
    gram: Array,
    shift: float,
    target: Array,
    beta: float,
    code: Array,
    signs: Array,
    places: NDArray[np.intp],
    value: Callable[[Array], float],
) -> Array | None:
    """The best of the face's minimiser and the points on the way to it where an entry reaches zero."""
    system = gram[np.ix_(places, places)] + shift * np.eye(len(places))
    right = target[places] - 0.5 * beta * signs[places]
    now = code[places]
    direction, bounded = _face_direction(system, right, now)
    crossing = np.flatnonzero(now * direction < 0.0)
    steps = -now[crossing] / direction[crossing]
    if bounded:
        crossing, steps = crossing[steps < 1.0], steps[steps < 1.0]
        if not len(crossing):
            full = code.copy()
            full[places] = now + direction
            return full
    best, best_value = None, value(code)
    for step in [*np.unique(steps), 1.0] if bounded else np.unique(steps):
        trial = code.copy()
        trial[places] = now + step * direction
        # Entries of equal atoms arrive together: none may stay behind as a rounding error.
        trial[places[crossing[np.abs(steps - step) <= 1e-9 * step]]] = 0.0
        trial_value = value(trial)
        if trial_value < best_value:
            best, best_value = trial, trial_value
    return best


def _face_direction(system: Array, right: Array, now: Array) -> tuple[Array, bool]:
    """From `now` to the minimiser of the face's quadratic, or the way down when it has none.

    Active atoms may be collinear. The quadratic is then flat along the null space of the system: if its
    linear part is not, the face falls without end in that direction and an entry reaches zero on the way.
    """
    with suppress(linalg.LinAlgError):
        factor, lower = linalg.cho_factor(system, check_finite=False)
        pivots = np.diag(factor)
        if pivots.min() > _COLLINEAR * pivots.max():
            return linalg.cho_solve((factor, lower), right, check_finite=False) - now, True
    values, vectors = np.linalg.eigh(system)
    kept = values > _COLLINEAR**2 * max(values[-1], np.finfo(float).tiny)
    parts = vectors.T @ right
    flat = vectors[:, ~kept] @ parts[~kept]
    if np.linalg.norm(flat) > 1e-9 * np.linalg.norm(right):
        return flat, False
    steep = vectors[:, kept]
    return steep @ (parts[kept] / values[kept] - steep.T @ now), True
