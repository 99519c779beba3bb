"""Chebyshev iteration for fixed points of non-negative maps, accurate in every component.

Solves ``f = M f + c`` for M, c >= 0 where M is similar to a symmetric matrix with eigenvalues in
[-rho, rho], rho < 1. On graphs such solutions fall off by many orders of magnitude away from the
sources in c, and a ranking needs the order of that tail. The iteration keeps it: every operation is
local to a component and its neighbours, and nothing like an inner product mixes the rounding errors
of the largest components into the smallest. What is tested is

    |M f + c - f|_i <= accuracy * (|M f + c| + |f|)_i   for every i,

a componentwise backward error, which for these M-matrices bounds the relative error of every
component up to the factor 1 / (1 - rho).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

RELATIVE_ACCURACY = 1e-14  # of the componentwise residual: a few units of rounding
TINY = 1e-250  # components below are 0: too near to underflow to be computed or told apart
_FADED = 1e-280  # of what fades out below: set to 0 on the way, since subnormal numbers are slow
_CHECK_EVERY = 6


def iterations_needed(rho: float, accuracy: float) -> float:
    """Iterations that the rate promises, up to the distance that a front has to travel."""
    if rho <= 0.0:
        return 1.0
    rate = rho / (1.0 + math.sqrt((1.0 - rho) * (1.0 + rho)))
    return math.log(min(accuracy, 0.1)) / math.log(rate)


def chebyshev(
    apply: Callable[[Floats], Floats],
    start: Floats,
    rho: float,
    *,
    accuracy: float = RELATIVE_ACCURACY,
    componentwise: bool = True,
    longest: int = 100_000,
) -> Floats | None:
    """Fixed point of a map.

    Parameters
    ----------
    apply : callable
        ``apply(f)`` returns ``M f + c`` as a new array of the shape of f (one vector, or columns).
    start : ndarray
        Guess; not changed.
    rho : float
        Bound of the spectrum, below 1.
    accuracy : float
        Largest residual accepted.
    componentwise : bool
        Whether the residual is taken relative to each component, or as it is.
    longest : int
        Iterations at most. A front moves one edge an iteration, so a graph of large diameter needs
        more of them than the rate promises.

    Returns
    -------
    ndarray or None
        Non-negative; None when `longest` iterations did not reach the accuracy.
    """
    before = start
    current = apply(before)
    omega = 1.0 / (1.0 - 0.5 * rho**2)
    smallest_residual = math.inf
    for iteration in range(1, longest + 1):
        following = apply(current)
        if iteration % _CHECK_EVERY == 0:
            following[np.abs(following) < _FADED] = 0.0
            change = np.abs(following - current)
            if componentwise:
                scale = np.abs(following) + np.abs(current)
                counted = scale > TINY
                residual = float(np.max(change[counted] / scale[counted], initial=0.0))
            else:
                residual = float(change.max(initial=0.0))
            # Rounding can stop the residual a little above the accuracy asked for.
            stalled = smallest_residual <= residual < 100.0 * accuracy
            if residual <= accuracy or stalled:
                return np.where(following > TINY, following, 0.0)
            smallest_residual = min(residual, smallest_residual)
        following -= before
        following *= omega
        following += before
        before, current = current, following
        omega = 1.0 / (1.0 - 0.25 * omega * rho**2)
    return None
