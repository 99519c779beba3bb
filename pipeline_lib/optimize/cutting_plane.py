"""Regularised risk minimisation by cutting planes, with the duality gap as the stopping rule.

Minimises J(w) = 1/2 w'w + C R(w) for a convex R >= 0 known through an oracle: its value and a subgradient
g at any w. Each answer gives a plane R(v) >= b + g'v below R, with b = R(w) - g'w. The maximum of the
planes found so far is a model of R; the next w minimises the regularised model, whose dual

    max_a  a'b - 1/2 ||sum_k a_k g_k||^2,    a >= 0,  sum a <= C

is as small as the number of planes. Its value D is a lower bound of min J, so the best J seen minus D is
a duality gap.

With one plane for all the data at a time this is the 1-slack structural SVM algorithm.

References
----------
Joachims, Training linear SVMs in linear time, 2006. Joachims, Finley and Yu, Cutting-plane training of
structural SVMs, 2009. Franc and Sonnenburg, Optimized cutting plane algorithm, 2008 (planes at points
near the best one).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

# A plane that has not carried weight for this many iterations is dropped.
_IDLE = 50
# The next plane is taken this far from the best point towards the model's minimum.
_TOWARDS_MODEL = 0.1


@dataclass
class CuttingPlaneResult:
    """Attributes
    ----------
    w : ndarray
        The best point seen.
    objective, duality_gap : float
        J at ``w``, and an upper bound of its distance from the minimum.
    n_iter : int
        Models minimised.
    converged : bool
    history : dict of lists
        ``objective`` (best so far) and ``duality_gap``, one value per iteration.
    """

    w: Array
    objective: float
    duality_gap: float
    n_iter: int
    converged: bool
    history: dict[str, list[float]]


def cutting_plane(
    risk: Callable[[Array], tuple[float, Array]],
    n_features: int,
    C: float,
    *,
    tol: float = 1e-3,
    max_iter: int = 1000,
) -> CuttingPlaneResult:
    """Minimise 1/2 w'w + C R(w) (see the top of the module).

    Parameters
    ----------
    risk : callable
        w -> (R(w), subgradient).
    n_features : int
    C : float
    tol : float, default 1e-3
        Stop when the duality gap is at most ``tol`` times the objective.
    max_iter : int, default 1000

    Returns
    -------
    CuttingPlaneResult
    """
    best = np.zeros(n_features)
    value, subgradient = risk(best)
    objective = C * value
    planes = _Planes(n_features)
    planes.add(subgradient, value)
    history: dict[str, list[float]] = {"objective": [], "duality_gap": []}
    gap = objective
    converged = objective == 0.0
    n_iter = 0
    while n_iter < max_iter and not converged:
        w, dual = planes.minimize(C, accuracy=0.05 * max(gap, tol * objective))
        n_iter += 1
        value, subgradient = risk(w)
        candidate = 0.5 * float(w @ w) + C * value
        planes.add(subgradient, value - float(subgradient @ w))
        if candidate < objective:
            best, objective = w, candidate
        elif n_iter > 1:
            # The model's minimum may lie far away; a plane between it and the best point shapes
            # the model where the minimum of J is.
            between = best + _TOWARDS_MODEL * (w - best)
            value, subgradient = risk(between)
            planes.add(subgradient, value - float(subgradient @ between))
            candidate = 0.5 * float(between @ between) + C * value
            if candidate < objective:
                best, objective = between, candidate
        gap = min(gap, max(0.0, objective - dual)) if history["objective"] else objective - dual
        history["objective"].append(objective)
        history["duality_gap"].append(gap)
        converged = gap <= tol * objective
    if not history["objective"]:
        history = {"objective": [objective], "duality_gap": [0.0]}
    return CuttingPlaneResult(best, objective, max(gap, 0.0), n_iter, converged, history)


class _Planes:
    """Planes b_k + g_k'w, their Gram matrix, and the dual solution, kept from one model to the next."""

    def __init__(self, n_features: int) -> None:
        self.normals = np.empty((0, n_features))
        self.offsets = np.empty(0)
        self.gram = np.empty((0, 0))
        self.weights = np.empty(0)
        self.idle = np.empty(0, dtype=np.intp)

    def add(self, normal: Array, offset: float) -> None:
        products = self.normals @ normal
        square = float(normal @ normal)
        self.gram = np.block(
            [[self.gram, products[:, None]], [products[None, :], np.array([[square]])]]
        )
        self.normals = np.vstack([self.normals, normal])
        self.offsets = np.append(self.offsets, offset)
        self.weights = np.append(self.weights, 0.0)
        self.idle = np.append(self.idle, 0)

    def minimize(self, C: float, accuracy: float) -> tuple[Array, float]:
        """Minimiser of the regularised model, and the dual value there."""
        self.weights = simplex_quadratic(self.gram, self.offsets, C, self.weights, accuracy)
        self.idle = np.where(self.weights > 0, 0, self.idle + 1)
        w = -(self.weights @ self.normals)
        dual = float(self.weights @ self.offsets) - 0.5 * float(w @ w)
        kept = self.idle < _IDLE
        if not kept.all():
            self.normals, self.offsets = self.normals[kept], self.offsets[kept]
            self.gram = self.gram[np.ix_(kept, kept)]
            self.weights, self.idle = self.weights[kept], self.idle[kept]
        return w, dual


def simplex_quadratic(
    gram: Array, offsets: Array, C: float, start: Array, accuracy: float, max_steps: int = 20_000
) -> Array:
    """Maximise a'b - 1/2 a'Ga over a >= 0, sum a <= C, to a duality gap of ``accuracy``.

    Weight moves between the two coordinates with the largest difference of slopes, as far as is best;
    the unused part of C is one more coordinate, of slope 0.
    """
    weights = np.append(start, max(0.0, C - start.sum()))
    slopes = np.append(offsets - gram @ start, 0.0)
    diagonal = np.append(np.diagonal(gram), 0.0)
    last = len(offsets)
    for _ in range(max_steps):
        up = int(np.argmax(slopes))
        # Largest possible gain over the simplex: what is left to the maximum is at most this.
        if C * slopes[up] - float(weights @ slopes) <= accuracy:
            break
        down = int(np.argmin(np.where(weights > 0, slopes, np.inf)))
        cross = 0.0 if last in (up, down) else gram[up, down]
        curvature = diagonal[up] + diagonal[down] - 2.0 * cross
        rise = slopes[up] - slopes[down]
        step = weights[down] if curvature <= 0 else min(weights[down], rise / curvature)
        if step <= 0:
            break
        weights[up] += step
        weights[down] = 0.0 if step >= weights[down] else weights[down] - step
        if up != last:
            slopes[:-1] -= step * gram[:, up]
        if down != last:
            slopes[:-1] += step * gram[:, down]
    return weights[:-1]
