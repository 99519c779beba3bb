"""Scores clamped to 1 at some points of a graph, accurate in every component.

The system, for symmetric conductances C >= 0 with zero diagonal::

    d_i f_i - sum_j C_ij f_j = 0  at free points,    f_i = 1  at clamped points,
    d_i > sum_j C_ij

is an M-matrix with a non-negative right-hand side. Its solution falls off by many orders of
magnitude away from the clamped points, and rankings need the order of that tail, which a residual
tolerance alone does not give: what is needed is a small *componentwise* residual

    |M f - f|_i <= accuracy * (|M f| + |f|)_i   for every i,     M = D^-1 C

which for an M-matrix with these weights bounds the relative error of every component. Two methods
reach it. Chebyshev iteration uses only local operations (no inner products, whose rounding errors are
of the size of the largest score). Sparse LU on the diagonal pivots subtracts only on the diagonal,
and takes over where the iteration would be long.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.sparse.linalg import splu

Floats = NDArray[np.float64]

RELATIVE_ACCURACY = 1e-14  # of the componentwise residual: a few units of rounding
_TINY = 1e-280  # scores below are taken as 0: too near to underflow to be computed or told apart
_CHECK_EVERY = 6
_POWER_STEPS = 3
_LONGEST_ITERATION = 4000  # beyond, a factorisation is cheaper


def solve_clamped(
    conductances: sp.csr_array,
    degrees: Floats,
    clamp: tuple[Any, ...],
    start: Floats,
    *,
    accuracy: float = RELATIVE_ACCURACY,
    componentwise: bool = True,
    longest: int = _LONGEST_ITERATION,
) -> Floats:
    """Solve the clamped system for one vector, or for several columns that share the graph.

    Parameters
    ----------
    conductances : csr_array of shape (m, m)
        C, non-negative, zero diagonal. Not changed.
    degrees : ndarray of shape (m,)
        d, larger than the row sums of C.
    clamp : tuple of index arrays
        Entries of the solution that are 1, as indices of ``start``: ``(points,)`` for a vector,
        ``(points, columns)`` for columns with their own clamped points.
    start : ndarray of shape (m,) or (m, columns)
        Guess of the solution.
    accuracy : float
        Largest residual accepted, componentwise relative or absolute.
    componentwise : bool
        False: the residual is only compared with `accuracy` itself.
    longest : int
        Iterations after which the system is factorised instead.

    Returns
    -------
    ndarray, same shape as `start`
        Non-negative; exactly 0 where no path leads to a clamped point.
    """
    inverse = 1.0 / degrees
    step = sp.csr_array(
        (
            conductances.data * np.repeat(inverse, np.diff(conductances.indptr)),
            conductances.indices,
            conductances.indptr,
        ),
        shape=conductances.shape,
    )
    rho = _spectral_bound(step, clamp if start.ndim == 1 else ())
    if _iterations(rho, accuracy) <= longest:
        solution = _chebyshev(step, clamp, start, rho, accuracy, componentwise, longest)
        if solution is not None:
            return solution
    return _factorised(conductances, degrees, clamp, start)


def _spectral_bound(step: sp.csr_array, clamp: tuple[Any, ...]) -> float:
    """Upper bound of the largest eigenvalue of M on the free points (Collatz and Wielandt).

    For any v > 0 the largest ``(M v)_i / v_i`` is one; a few power steps make it sharp.
    """
    v = np.ones(step.shape[0])
    bound = 1.0
    for _ in range(_POWER_STEPS):
        if clamp:
            v[clamp] = 0.0
        product = step @ v
        ratio = np.divide(product, v, out=np.zeros_like(v), where=v > 0)
        bound = min(bound, float(ratio.max(initial=0.0)))
        v = product + 0.1 * v
    return min(bound * (1.0 + 1e-12), 1.0 - 1e-15)


def _iterations(rho: float, accuracy: float) -> float:
    """Iterations that Chebyshev's rate promises for spectrum [-rho, rho]."""
    if rho <= 0.0:
        return 1.0
    rate = rho / (1.0 + math.sqrt((1.0 - rho) * (1.0 + rho)))
    return math.log(accuracy) / math.log(rate)


def _chebyshev(
    step: sp.csr_array,
    clamp: tuple[Any, ...],
    start: Floats,
    rho: float,
    accuracy: float,
    componentwise: bool,
    longest: int,
) -> Floats | None:
    """Chebyshev semi-iteration; None when it does not reach the accuracy.

    A front of scores moves one edge an iteration, so a graph of large diameter needs more iterations
    than the rate promises: up to `longest`.
    """
    before = start.copy()
    before[clamp] = 1.0
    current = step @ before
    current[clamp] = 1.0
    omega = 1.0 / (1.0 - 0.5 * rho**2)
    smallest_residual = np.inf
    for iteration in range(1, longest + 1):
        following = step @ current
        following[clamp] = 1.0
        if iteration % _CHECK_EVERY == 0:
            following[np.abs(following) < _TINY] = 0.0
            change = np.abs(following - current)
            if componentwise:
                scale = np.abs(following) + np.abs(current)
                change = np.divide(change, scale, out=change, where=scale > 0)
            residual = float(change.max(initial=0.0))
            if residual <= accuracy:
                return np.maximum(following, 0.0)
            # Rounding can stop the residual a little above the accuracy asked for.
            if residual >= smallest_residual and residual < 100.0 * accuracy:
                return np.maximum(following, 0.0)
            smallest_residual = min(residual, smallest_residual)
        following -= before
        following *= omega
        following += before
        before, current = current, following
        omega = 1.0 / (1.0 - 0.25 * omega * rho**2)
    return None


def _factorised(
    conductances: sp.csr_array, degrees: Floats, clamp: tuple[Any, ...], start: Floats
) -> Floats:
    """Sparse LU with the pivots on the diagonal, one column at a time."""
    matrix = sp.diags_array(degrees) - conductances
    columns = np.zeros((len(degrees), 1)) if start.ndim == 1 else np.zeros_like(start)
    owners = clamp[1] if len(clamp) > 1 else np.zeros(np.size(clamp[0]), dtype=np.int64)
    points = np.asarray(clamp[0])
    for column in range(columns.shape[1]):
        fixed = points[np.asarray(owners) == column]
        free = np.setdiff1d(np.arange(len(degrees)), fixed)
        right = np.asarray(conductances[free][:, fixed].sum(axis=1)).ravel()
        lu = splu(
            matrix[free][:, free].tocsc(),
            permc_spec="MMD_AT_PLUS_A",
            diag_pivot_thresh=0.0,
            options={"SymmetricMode": True, "Equil": False},
        )
        columns[fixed, column] = 1.0
        columns[free, column] = lu.solve(right)
    columns[columns < _TINY] = 0.0
    return columns[:, 0] if start.ndim == 1 else columns
