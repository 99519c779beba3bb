"""Scores clamped to 1 at some points of a graph, accurate in every component.

The system, for symmetric conductances C >= 0 with zero diagonal::

    d_i f_i - sum_j C_ij f_j = 0  at free points,    f_i = 1  at clamped points,
    d_i > sum_j C_ij

is an M-matrix with a non-negative right-hand side. Two methods keep the order of its smallest
scores: Chebyshev iteration (`graphs.chebyshev`), and sparse LU with the pivots on the diagonal, which
subtracts nowhere but there, and takes over where the iteration would be long.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import splu

from pipeline_lib.graphs.chebyshev import (
    RELATIVE_ACCURACY,
    TINY,
    chebyshev,
    iterations_needed,
)

Floats = NDArray[np.float64]

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
        C. Not changed.
    degrees : ndarray of shape (m,)
        d, larger than the row sums of C.
    clamp : tuple of index arrays
        Entries of the solution that are 1, as indices of `start`: ``(points,)`` for a vector,
        ``(points, columns)`` for columns with their own clamped points.
    start : ndarray of shape (m,) or (m, columns)
        Guess of the solution.
    accuracy, componentwise
        Residual accepted, as `graphs.chebyshev.chebyshev`.
    longest : int
        Iterations after which the system is factorised instead.

    Returns
    -------
    ndarray, same shape as `start`
        Non-negative; exactly 0 where no path leads to a clamped point.
    """
    weights = conductances.data * np.repeat(1.0 / degrees, np.diff(conductances.indptr))
    step = sp.csr_array(
        (weights, conductances.indices, conductances.indptr), shape=conductances.shape
    )

    def apply(f: Floats) -> Floats:
        product = step @ f
        product[clamp] = 1.0
        return product

    rho = _spectral_bound(step, clamp if start.ndim == 1 else ())
    if iterations_needed(rho, accuracy) <= longest:
        # What no path reaches is 0 from the start: a guess there would only fade, and never in its
        # own proportion.
        first = (
            np.where(_reached(step, clamp, start), start, 0.0) if componentwise else start.copy()
        )
        first[clamp] = 1.0
        solution = chebyshev(
            apply, first, rho, accuracy=accuracy, componentwise=componentwise, longest=longest
        )
        if solution is not None:
            return solution
    return _factorised(conductances, degrees, clamp, start)


def _reached(step: sp.csr_array, clamp: tuple[Any, ...], start: Floats) -> NDArray[np.bool_]:
    """Entries of the solution from which a path leads to a clamped one."""
    count, label = connected_components(step, directed=False)
    sources = np.zeros((count, *start.shape[1:]), dtype=bool)
    sources[(label[clamp[0]], *clamp[1:])] = True
    return sources[label]


def _spectral_bound(step: sp.csr_array, clamp: tuple[Any, ...]) -> float:
    """Upper bound of the largest eigenvalue of ``D^-1 C`` on the free points.

    For any v > 0 the largest ``(M v)_i / v_i`` is one (Collatz and Wielandt); a few power steps make
    it sharp.
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
    columns[columns < TINY] = 0.0
    return columns[:, 0] if start.ndim == 1 else columns
