"""Low-rank representation of a set of rows by one another.

    min_{R, E}  ||R||_* + lam sum_i ||e_i||_2    subject to   X = R X + E

X : (n, d) rows; R : (n, n) coefficients, row i writes x_i as a combination of all rows; E : (n, d)
remainders with rows e_i; ||.||_* the sum of singular values. (The papers write Z = R' for columns.)

With the thin decomposition X = U diag(s) V' of rank r, every solution has the form R = M U' and
E = N V' with M and N of shape (n, r), so that the problem loses its n x n unknown:

    min_{M, N}  ||M||_* + lam sum_i ||n_i||_2    subject to   U diag(s) = M diag(s) + N

Its dual, max_Y <Y, U diag(s)> subject to ||Y diag(s)||_2 <= 1 and ||y_i||_2 <= lam, bounds the distance
to the optimum from any multiplier, scaled to be feasible.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from pipeline_lib.errors import InputError
from pipeline_lib.graphs.neighbors import as_points
from pipeline_lib.optimize.singular_values import shrink_singular_values

Array = NDArray[np.float64]

_RANK_CUTOFF = 1e-10  # singular values of X below this share of the largest are zero
_BALANCE_EVERY = 10
_BLOCK_ENTRIES = 4_000_000


@dataclass(frozen=True)
class LowRankRepresentation:
    """R = left @ right.T and how it was reached.

    Attributes
    ----------
    left, right : ndarray of shape (n, r)
        Factors of R.
    objective : float
        ||R||_* + lam sum_i ||x_i - (R X)_i||.
    gap : float
        Upper bound of the distance to the smallest objective, relative to it.
    history : dict of lists
        ``objective`` and ``gap`` of every iteration checked.
    n_iter : int
    converged : bool
    """

    left: Array
    right: Array
    objective: float
    gap: float
    history: dict[str, list[float]]
    n_iter: int
    converged: bool


def low_rank_representation(
    X: ArrayLike, lam: float = 2.0, *, tol: float = 1e-5, max_iter: int = 2_000
) -> LowRankRepresentation:
    """Solve the problem above by an augmented Lagrangian.

    Parameters
    ----------
    X : array-like of shape (n, d)
    lam : float, default=2.0
        Weight of the remainders, positive.
    tol : float, default=1e-5
        Relative duality gap to stop at.
    max_iter : int, default=2000

    Returns
    -------
    LowRankRepresentation

    Raises
    ------
    InputError
        If X is not a finite matrix or lam is not positive.

    Notes
    -----
    Alternating directions with M = J split off: J by soft-thresholding singular values and N by
    shrinking rows (independent of one another), then M in closed form, then the multipliers; the penalty
    follows the balance of the primal and the dual residual. Cost per iteration O(n r^2).

    References
    ----------
    Liu, Lin, Yan, Sun, Yu, Ma, "Robust recovery of subspace structures by low-rank representation", IEEE
    PAMI 35 (2013); Sha, Schonfeld, "Graph Laplacian regularization with sparse coding for image
    restoration and representation", 2020 (its use for a graph).
    """
    rows = as_points(X)
    if not (np.isfinite(lam) and lam > 0.0):
        raise InputError(f"lam is {lam!r}", expected="a positive number")
    U, s, _ = np.linalg.svd(rows, full_matrices=False)
    rank = int(np.count_nonzero(s > _RANK_CUTOFF * s[0])) if s[0] > 0.0 else 0
    U, s = U[:, :rank], s[:rank]
    history: dict[str, list[float]] = {"objective": [], "gap": []}
    if rank == 0:
        return LowRankRepresentation(U, U, 0.0, 0.0, history, 0, True)
    data = U * s
    # Without remainders R = U U' is the solution, with U / s as multiplier; where that is infeasible its
    # rows, shortened, are still the best start.
    M = U.copy()
    Y = U / s  # multiplier of data = M diag(s) + N
    Y *= np.minimum(1.0, lam / np.maximum(np.linalg.norm(Y, axis=1, keepdims=True), 1e-300))
    Q = Y * s  # multiplier of M = J
    penalty = 1.0
    best, best_objective, lower, gap, converged = M, np.inf, 0.0, np.inf, False
    iteration = 0
    for iteration in range(1, max_iter + 1):
        shrunk = shrink_singular_values(M + Q / penalty, 1.0 / penalty)
        J = shrunk.left @ shrunk.right.T
        N = shrink_rows(data - M * s + Y / penalty, lam / penalty)
        previous = M
        M = ((data - N + Y / penalty) * s + J - Q / penalty) / (s * s + 1.0)
        fit, split = data - M * s - N, M - J
        Y += penalty * fit
        Q += penalty * split
        if iteration % _BALANCE_EVERY and iteration < max_iter:
            continue
        # J is an exactly low-rank candidate; its remainder makes it feasible.
        objective = shrunk.trace_norm + lam * float(np.linalg.norm(data - J * s, axis=1).sum())
        if objective < best_objective:
            best, best_objective = J, objective
        lower = max(lower, _dual_bound(Y, data, s, lam))
        gap = (best_objective - lower) / max(abs(best_objective), np.finfo(float).tiny)
        history["objective"].append(best_objective)
        history["gap"].append(gap)
        converged = gap <= tol
        if converged:
            break
        change = M - previous
        dual = penalty * np.hypot(np.linalg.norm(change * s), np.linalg.norm(change))
        primal = np.hypot(np.linalg.norm(fit), np.linalg.norm(split))
        # Balancing less and less keeps the method convergent.
        if iteration < max_iter // 2:
            if primal > 5.0 * dual:
                penalty *= 1.5
            elif dual > 5.0 * primal:
                penalty /= 1.5
    return LowRankRepresentation(best, U, best_objective, gap, history, iteration, converged)


def low_rank_graph(representation: LowRankRepresentation) -> sp.csr_array:
    """W = max(R + R', 0) without its diagonal, which no Laplacian sees.

    Returns
    -------
    csr_array of shape (n, n)
        Symmetric. It is dense in general: LogSC's cost and memory grow as n^2.
    """
    left, right = representation.left, representation.right
    n = len(left)
    blocks = []
    step = max(1, _BLOCK_ENTRIES // n)
    for first in range(0, n, step):
        part = slice(first, min(first + step, n))
        weights = left[part] @ right.T
        weights += right[part] @ left.T
        np.maximum(weights, 0.0, out=weights)
        weights[np.arange(len(weights)), np.arange(part.start, part.stop)] = 0.0
        blocks.append(sp.csr_array(weights))
    return sp.csr_array(sp.vstack(blocks, format="csr"))


def shrink_rows(matrix: Array, threshold: float) -> Array:
    """Shorten every row by `threshold`: the proximal operator of the sum of row norms."""
    norms = np.linalg.norm(matrix, axis=1, keepdims=True)
    kept = np.maximum(norms - threshold, 0.0)
    return matrix * (kept / np.maximum(norms, np.finfo(float).tiny))


def _dual_bound(Y: Array, data: Array, s: Array, lam: float) -> float:
    """Value of the dual at Y scaled into its feasible set: a lower bound of the objective."""
    scaled = Y * s
    spectral = float(np.sqrt(max(np.linalg.eigvalsh(scaled.T @ scaled)[-1], 0.0)))
    longest = float(np.linalg.norm(Y, axis=1).max())
    return float(np.vdot(Y, data)) / max(1.0, spectral, longest / lam)
