"""Truncated Newton's method for convex functions with an exact line search.

Minimises a convex, continuously differentiable, piecewise twice differentiable J(w) such as

    J(w) = 1/2 w'w + C sum_p max(0, 1 - a_p'w)^2

At each step the (generalised) Newton system H s = -g is solved by conjugate gradients, only as
accurately as the step deserves, and with a preconditioner once they prove slow; then J(w + t s) is minimised over t by Newton's method in one dimension,
which on a piecewise quadratic is exact after a few evaluations. The Newton decrement -s'g is twice the
decrease that the local quadratic model still promises: iteration stops once it falls below ``tol * J``,
after that last step has been taken.

References
----------
Keerthi and DeCoste, A modified finite Newton method for fast solution of large scale linear SVMs, 2005.
Chapelle and Keerthi, Efficient algorithms for ranking with SVMs, 2010.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


# Conjugate gradient steps that are cheaper than a preconditioner, and the number at which the first
# solve, which only shows whether one is needed, gives up.
_SLOW = 9
_PROBE = 10


class NewtonProblem(Protocol):
    """A convex function that remembers the point at which it stands.

    Scores and orderings that a point needs are thus computed once and shared between value, gradient,
    Hessian products and the line search. Points, directions and gradients are arrays of one shape, in
    a space whose inner product the problem defines.
    """

    def inner(self, a: Array, b: Array) -> float:
        """Inner product of two directions; the gradient is the one that belongs to it."""

    def start(self, w: Array) -> None:
        """Stand at ``w``."""

    def value_and_gradient(self) -> tuple[float, Array]:
        """J and its gradient at the current point."""

    def hessian_product(self, s: Array) -> Array:
        """Generalised Hessian at the current point, times ``s``."""

    def preconditioner(self) -> Callable[[Array], Array] | None:
        """Approximate inverse of the Hessian at the current point, or None when it has none."""

    def along(self, s: Array) -> Callable[[float], tuple[float, float]]:
        """First and second derivative of t -> J(w + t s)."""

    def move(self, t: float) -> None:
        """Stand at w + t s, for the ``s`` last given to `along`."""


@dataclass
class NewtonResult:
    """Where the iteration ended and how it got there.

    Attributes
    ----------
    w : ndarray
        Last point.
    objective : float
        J at ``w``.
    n_iter : int
        Newton steps taken.
    converged : bool
        Whether the decrement fell below ``tol * J``.
    history : dict of lists
        One value per Newton step: ``objective`` (at the new point), ``decrement``, ``step`` (t) and
        ``cg_iterations``.
    """

    w: Array
    objective: float
    n_iter: int
    converged: bool
    history: dict[str, list[float]] = field(default_factory=dict)


def truncated_newton(
    problem: NewtonProblem,
    w: Array,
    *,
    tol: float = 1e-8,
    max_iter: int = 100,
    max_cg_iter: int = 200,
) -> NewtonResult:
    """Minimise a convex function from ``w``.

    Parameters
    ----------
    problem : NewtonProblem
    w : ndarray
        Starting point; not modified.
    tol : float, default 1e-8
        Stop when the Newton decrement -s'g is at most ``tol`` times the objective. As the last step is
        still taken, the relative error left in the objective is usually far below ``tol``.
    max_iter : int, default 100
        Newton steps at most.
    max_cg_iter : int, default 200
        Conjugate gradient steps at most, for one Newton step.

    Returns
    -------
    NewtonResult
    """
    w = np.array(w, dtype=np.float64)
    problem.start(w)
    objective, gradient = problem.value_and_gradient()
    history: dict[str, list[float]] = {
        "objective": [],
        "decrement": [],
        "step": [],
        "cg_iterations": [],
    }
    previous_norm = np.inf
    precondition: Callable[[Array], Array] | None = None
    limit = min(_PROBE, max_cg_iter)
    converged = False
    n_iter = 0
    while n_iter < max_iter and not converged:
        norm = float(np.sqrt(max(0.0, problem.inner(gradient, gradient))))
        if norm == 0.0:
            converged = True
            break
        # Loose far from the minimum, where the set of active pairs still changes; tight near it,
        # where the function is one quadratic and the system's accuracy is the step's.
        accuracy = min(0.1, max(1e-4, 0.1 * norm / previous_norm))
        previous_norm = norm
        s, cg_iterations = conjugate_gradients(
            problem.hessian_product,
            -gradient,
            rtol=accuracy,
            max_iter=limit,
            precondition=precondition,
            inner=problem.inner,
        )
        decrement = -problem.inner(s, gradient)
        # A solve cut short says too little about what is left.
        converged = decrement <= tol * abs(objective) and (
            cg_iterations < limit or limit == max_cg_iter
        )
        t = minimize_along(problem.along(s), threshold=1e-3 * min(tol * abs(objective), decrement))
        w = w + t * s
        problem.move(t)
        before = objective
        objective, gradient = problem.value_and_gradient()
        n_iter += 1
        limit = max_cg_iter
        if cg_iterations > _SLOW and not converged:
            precondition = problem.preconditioner() or precondition
        history["objective"].append(objective)
        history["decrement"].append(decrement)
        history["step"].append(t)
        history["cg_iterations"].append(float(cg_iterations))
        # Where rounding is all that is left of the decrease, no smaller tol can be met.
        if before - objective <= 4 * np.finfo(float).eps * abs(objective) and decrement <= (
            1e-12 * abs(objective)
        ):
            converged = True
    if not history["objective"]:
        history = {key: [0.0] for key in history} | {"objective": [objective]}
    return NewtonResult(w, objective, n_iter, converged, history)


def euclidean(a: Array, b: Array) -> float:
    """The ordinary inner product."""
    return float(np.vdot(a, b))


def conjugate_gradients(
    product: Callable[[Array], Array],
    b: Array,
    *,
    rtol: float,
    max_iter: int,
    precondition: Callable[[Array], Array] | None = None,
    inner: Callable[[Array, Array], float] = euclidean,
) -> tuple[Array, int]:
    """Solve A x = b by conjugate gradients from x = 0, A positive definite for an inner product.

    Stops when the residual r = b - A x has <r, Pr> <= rtol^2 <b, Pb>, where P is the preconditioner (an
    approximate inverse of A, or the identity), after ``max_iter`` products, or at a direction of
    non-positive curvature (rounding). Every iterate satisfies <x, b> > 0 for b != 0, so it is a descent
    direction when b is minus a gradient.

    Returns
    -------
    x : ndarray
    n_products : int
    """
    x = np.zeros_like(b)
    residual = b.copy()
    direction = b.copy() if precondition is None else precondition(b)
    first = direction.copy()
    square = inner(residual, direction)
    target = rtol**2 * square
    n_products = 0
    while square > target and n_products < max_iter:
        image = product(direction)
        n_products += 1
        curvature = inner(direction, image)
        if curvature <= 0.0:
            break
        step = square / curvature
        x += step * direction
        residual -= step * image
        scaled = residual if precondition is None else precondition(residual)
        previous, square = square, inner(residual, scaled)
        direction *= square / previous
        direction += scaled
    return (x if x.any() else first), n_products


def minimize_along(
    derivatives: Callable[[float], tuple[float, float]],
    *,
    threshold: float,
    max_iter: int = 50,
) -> float:
    """Minimise a convex function of one variable from its two derivatives, starting at t = 1.

    Newton's method, kept inside the bracket that the signs of the slope have shown; a step that
    leaves it is replaced by bisection.

    Parameters
    ----------
    derivatives : callable
        t -> (slope, curvature); the slope at 0 must be negative.
    threshold : float
        Stop when slope^2 / curvature, twice the decrease still possible, is at most this.
    """
    low, high = 0.0, np.inf
    t = 1.0
    for _ in range(max_iter):
        slope, curvature = derivatives(t)
        if slope == 0.0 or (curvature > 0.0 and slope * slope <= threshold * curvature):
            return t
        if slope < 0:
            low = t
        else:
            high = t
        t = t - slope / curvature if curvature > 0.0 else np.inf
        if not low < t < high:
            t = 2.0 * low if np.isinf(high) else 0.5 * (low + high)
        if np.isfinite(high) and high - low <= 1e-15 * high:
            break
    # The lower end has been shown to descend, unless nothing above 0 does.
    return low if low > 0.0 else t
