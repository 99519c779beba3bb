"""Accelerated proximal gradient for a smooth convex function plus a simple convex one.

    min_x  F(x) = f(x) + h(x)

f : convex and differentiable, its gradient locally Lipschitz;
h : convex, with a proximal operator at hand, prox_{t h}(v) = argmin_x h(x) + ||x - v||^2 / (2 t).

The driver is written against `CompositeProblem`, so that the points it moves may be plain arrays
(`ArrayProblem`) or something cheaper, such as the two factors of a low-rank matrix.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

P = TypeVar("P")

# Curvature is only trusted as an estimate of the step when the quadratic term of the model is this
# many times above the rounding error of the function values.
_TRUSTED = 1e3


@dataclass(frozen=True)
class ProximalStep(Generic[P]):
    """One proximal gradient step x = prox_{t h}(z - t grad f(z)) and what is known about it.

    Attributes
    ----------
    point : P
        x.
    smooth, regularizer : float
        f(x) and h(x).
    model : float
        f(z) + <grad f(z), x - z>, the linear model of f at x.
    distance : float
        ||x - z||.
    gradient_norm : float
        ||grad f(z)||.
    """

    point: P
    smooth: float
    regularizer: float
    model: float
    distance: float
    gradient_norm: float


class CompositeProblem(Protocol[P]):
    """What the driver asks of a problem."""

    def objective(self, x: P) -> float:
        """Return F(x)."""
        ...

    def extrapolate(self, x: P, previous: P, weight: float) -> P:
        """Return x + weight (x - previous)."""
        ...

    def proximal_step(self, z: P, step: float) -> ProximalStep[P]:
        """Return the proximal gradient step of length ``step`` from z."""
        ...

    def turning(self, z: P, x: P, previous: P) -> float:
        """Return <z - x, x - previous>, positive when the momentum points uphill."""
        ...


@dataclass(frozen=True)
class CompositeResult(Generic[P]):
    """The end of a run: the point, its objective, and the log with one value per iteration.

    ``history`` holds ``objective`` (never rising), ``residual`` (norm of the gradient mapping
    (z - x) / t over the norm of the gradient: 0 at an optimum) and ``step``.
    """

    point: P
    objective: float
    history: dict[str, list[float]]
    n_iter: int
    converged: bool

    def after(self, first: CompositeResult[P]) -> CompositeResult[P]:
        """Return this result as the continuation of a ``first`` run of the same problem."""
        history = {key: first.history[key] + values for key, values in self.history.items()}
        return replace(self, history=history, n_iter=first.n_iter + self.n_iter)


def minimize_composite(
    problem: CompositeProblem[P],
    start: P,
    *,
    step: float = 1.0,
    tol: float = 1e-7,
    max_iter: int = 1000,
    monitor: Callable[[P], None] | None = None,
) -> CompositeResult[P]:
    """Minimise f + h by accelerated proximal gradient with backtracking and restart.

    Parameters
    ----------
    problem : CompositeProblem
        f and h, and the arithmetic of their points.
    start : P
        First point.
    step : float, default=1.0
        First step length t (the inverse of the first Lipschitz constant). It is shortened until
        f(x) <= f(z) + <grad f(z), x - z> + ||x - z||^2 / (2 t), and lengthened when the curvature
        met on the way leaves room.
    tol : float, default=1e-7
        Stop when two accepted iterations in a row lower F by at most ``tol * max(1, |F|)``.
    max_iter : int, default=1000
        Largest number of iterations; a backtracked trial belongs to its iteration.
    monitor : callable, optional
        Called with the point of every iteration.

    Returns
    -------
    CompositeResult

    Notes
    -----
    A momentum step that raises F is thrown away and replaced by a plain proximal step, which cannot
    raise it; the momentum also restarts when it points uphill (gradient restart).

    References
    ----------
    Beck and Teboulle, A fast iterative shrinkage-thresholding algorithm, 2009; Ji and Ye, An
    accelerated gradient method for trace norm minimization, 2009; O'Donoghue and Candes, Adaptive
    restart for accelerated gradient schemes, 2015.
    """
    x = previous = start
    objective = problem.objective(start)
    history: dict[str, list[float]] = {"objective": [], "residual": [], "step": []}
    momentum, calm, n_iter = 1.0, 0, 0
    step_before = step
    while n_iter < max_iter and calm < 2:
        n_iter += 1
        # A step that grew since the last iteration calls for a larger next momentum term.
        ahead = (1.0 + np.sqrt(1.0 + 4.0 * momentum**2 * (step_before / step))) / 2.0
        weight = (momentum - 1.0) / ahead
        z = x if weight == 0.0 else problem.extrapolate(x, previous, weight)
        step_before = step
        trial, step, room = _backtrack(problem, z, step)
        value = trial.smooth + trial.regularizer
        slack = 1e-14 * max(1.0, abs(objective))
        if value > objective + slack and weight != 0.0:
            # The rejected trial still tells the step length; go on from x without momentum.
            previous, momentum = x, 1.0
        else:
            # Without momentum the rise can only be rounding: x is as good as it gets.
            rose = value > objective
            calm = calm + 1 if objective - value <= tol * max(1.0, abs(objective)) else 0
            if not rose:
                uphill = weight != 0.0 and problem.turning(z, trial.point, x) > 0.0
                previous, x, objective = x, trial.point, value
                momentum = 1.0 if uphill else ahead
            else:
                previous, momentum = x, 1.0
        history["objective"].append(objective)
        history["residual"].append(
            trial.distance / (step * trial.gradient_norm) if trial.gradient_norm > 0.0 else 0.0
        )
        history["step"].append(step)
        if monitor is not None:
            monitor(x)
        step_before, step = step, step * room
    return CompositeResult(x, objective, history, n_iter, calm >= 2)


def _backtrack(
    problem: CompositeProblem[P], z: P, step: float
) -> tuple[ProximalStep[P], float, float]:
    """Shorten the step until the quadratic model majorises f; say how much longer it could be."""
    while True:
        trial = problem.proximal_step(z, step)
        quadratic = trial.distance**2 / (2.0 * step)
        scale = max(1.0, abs(trial.smooth), abs(trial.model), step * trial.gradient_norm**2)
        slack = 1e-13 * scale
        excess = trial.smooth - trial.model
        # excess / quadratic is the curvature along the step in units of 1 / step.
        curvature = excess / quadratic if quadratic > _TRUSTED * slack else None
        if excess <= quadratic + slack:
            room = 1.0 if curvature is None or curvature > 0.5 else 1.5
            return trial, step, room
        step *= 0.5 if curvature is None else float(np.clip(0.9 / curvature, 0.1, 0.7))


class ArrayProblem:
    """A composite problem over ndarrays.

    Parameters
    ----------
    smooth : callable
        ``smooth(x) -> (f(x), grad f(x))``.
    proximal : callable
        ``proximal(v, t) -> (prox_{t h}(v), h(prox_{t h}(v)))``.
    regularizer : callable
        ``regularizer(x) -> h(x)``.
    """

    def __init__(
        self,
        smooth: Callable[[NDArray[np.float64]], tuple[float, NDArray[np.float64]]],
        proximal: Callable[[NDArray[np.float64], float], tuple[NDArray[np.float64], float]],
        regularizer: Callable[[NDArray[np.float64]], float],
    ) -> None:
        self.smooth = smooth
        self.proximal = proximal
        self.regularizer = regularizer
        self._point: NDArray[np.float64] | None = None
        self._linear: tuple[float, NDArray[np.float64]] = (0.0, np.empty(0))

    def objective(self, x: NDArray[np.float64]) -> float:
        """Return F(x)."""
        return float(self.smooth(x)[0] + self.regularizer(x))

    def extrapolate(
        self, x: NDArray[np.float64], previous: NDArray[np.float64], weight: float
    ) -> NDArray[np.float64]:
        """Return x + weight (x - previous)."""
        return x + weight * (x - previous)

    def proximal_step(
        self, z: NDArray[np.float64], step: float
    ) -> ProximalStep[NDArray[np.float64]]:
        """Return the proximal gradient step from z; backtracking reuses the gradient at z."""
        if self._point is not z:
            self._point, self._linear = z, self.smooth(z)
        value, gradient = self._linear
        x, regularizer = self.proximal(z - step * gradient, step)
        change = x - z
        return ProximalStep(
            point=x,
            smooth=float(self.smooth(x)[0]),
            regularizer=regularizer,
            model=float(value + np.vdot(gradient, change)),
            distance=float(np.linalg.norm(change)),
            gradient_norm=float(np.linalg.norm(gradient)),
        )

    def turning(
        self, z: NDArray[np.float64], x: NDArray[np.float64], previous: NDArray[np.float64]
    ) -> float:
        """Return <z - x, x - previous>."""
        return float(np.vdot(z - x, x - previous))
