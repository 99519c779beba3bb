"""The linear system behind personalised PageRank and manifold ranking."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from pipeline_lib.errors import InputError
from pipeline_lib.graphs.chebyshev import chebyshev
from pipeline_lib.retrieval.base import Floats

Solver = Literal["auto", "closed", "iterative"]

_CLOSED_POINTS = 2_000  # the closed form costs n^3 / 3 once: up to about here nothing beats it


class DampedDiffusion:
    """Solve ``(D - a W) G = R`` for many right-hand sides R >= 0.

    D - a W is a diagonally dominant M-matrix, so both the Cholesky factorisation (`closed`) and
    Chebyshev iteration on ``G = a D^-1 W G + D^-1 R`` (`iterative`) give every component to high
    relative accuracy, and the same ranking.

    Parameters
    ----------
    affinity : csr_array or ndarray of shape (n, n)
        W, symmetric, non-negative, zero diagonal.
    degrees : ndarray of shape (n,)
        Diagonal of D: row sums of W, any positive value for an isolated point.
    damping : float
        a, between 0 and 1.
    solver : {"auto", "closed", "iterative"}
        `auto` takes the closed form up to 2,000 points.
    tol : float
        Largest componentwise residual of the iteration.
    """

    def __init__(
        self, affinity: Any, degrees: Floats, damping: float, solver: Solver, tol: float
    ) -> None:
        if solver not in ("auto", "closed", "iterative"):
            raise InputError(f"solver is {solver!r}", expected="one of auto, closed, iterative")
        if not tol > 0:
            raise InputError(f"tol is {tol}", expected="a positive number")
        self.damping = damping
        self.tol = tol
        self._factor = None
        if solver == "closed" or (solver == "auto" and len(degrees) <= _CLOSED_POINTS):
            dense = affinity if isinstance(affinity, np.ndarray) else affinity.toarray()
            system = np.diag(degrees) - damping * dense
            self._factor = cho_factor(system, lower=True, overwrite_a=True, check_finite=False)
        self._affinity = affinity
        self._degrees = degrees

    def solve(self, right: Floats) -> Floats:
        """G of shape (n, columns) for R of the same shape."""
        if self._factor is not None:
            solution: Floats = cho_solve(self._factor, right, check_finite=False)
            return np.maximum(solution, 0.0)
        scale = 1.0 / self._degrees[:, None]
        source = right * scale
        scale = scale * self.damping

        def apply(G: Floats) -> Floats:
            product: Floats = self._affinity @ G
            product *= scale
            product += source
            return product

        solution_or_none = chebyshev(apply, source, self.damping, accuracy=self.tol)
        assert solution_or_none is not None  # the rate depends on the damping alone
        return solution_or_none
