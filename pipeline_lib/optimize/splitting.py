"""Three-operator (Douglas-Rachford) splitting for stiff convex sums with cheap proximal operators.

    min_x  F(x) = f(x) + g(x) + h(x)

f, g : convex, each with a proximal operator at hand;
h : convex with Lipschitz gradient, or zero.

Proximal gradient steps are bounded by the steepest curvature of f + h met on the way; here f enters
through its own proximal operator and may be as steep as it likes. One iteration, for a step t and a
relaxation r, moves a governing variable b:

    x = prox_{t g}(b);   y = prox_{t f}(2 x - b - t grad h(x));   b <- b + r (y - x)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

from pipeline_lib.optimize.proximal_gradient import CompositeResult

P = TypeVar("P")

_RELAXATION = 1.6
# The step is tuned while the two residuals differ by more than this factor, early on only: a fixed
# step is what the convergence theory asks for.
_IMBALANCE = 2.0
_FACTOR = 1.5
_TUNED = 60
_SETTLED = 0.1


@dataclass(frozen=True)
class SplittingStep:
    """What one iteration tells about its x.

    Attributes
    ----------
    objective : float
        F(x).
    gap : float
        ||y - x||; (x - y) / t is a sum of subgradients of f, g and h, zero at an optimum.
    subgradient_norm : float
        Norm of the subgradient (b - x) / t of g.
    """

    objective: float
    gap: float
    subgradient_norm: float


class SplittingProblem(Protocol[P]):
    """What the driver asks of a problem, which keeps b to itself."""

    def shrink(self, step: float) -> P:
        """Return x = prox_{t g}(b)."""
        ...

    def reflect(self, x: P, step: float, relaxation: float) -> SplittingStep:
        """Compute y and move b."""
        ...

    def stretch(self, x: P, ratio: float) -> None:
        """Replace b by x + ratio (b - x): what b means for a step ``ratio`` times as long."""
        ...

    def distance(self, x: P, previous: P) -> float:
        """Return ||x - previous||."""
        ...


def minimize_by_splitting(
    problem: SplittingProblem[P],
    *,
    step: float,
    longest_step: float = float("inf"),
    tol: float = 1e-7,
    max_iter: int = 1000,
    monitor: Callable[[P], None] | None = None,
) -> CompositeResult[P]:
    """Minimise f + g + h by three-operator splitting, and keep the best x met.

    Parameters
    ----------
    problem : SplittingProblem
        The functions and the governing variable b, set to its start.
    step : float
        First step t; it is balanced against the residuals during the first 60 iterations.
    longest_step : float, default=inf
        Bound on the step: .8 over the Lipschitz constant of grad h.
    tol : float, default=1e-7
        Stop when two iterations in a row change F by at most ``tol * max(1, |F|)`` and their
        residual is below .1.
    max_iter : int, default=1000
    monitor : callable, optional
        Called with the best x so far at every iteration.

    Returns
    -------
    CompositeResult
        F(x) may rise now and then; ``point`` and ``history["objective"]`` are those of the best x
        so far. ``history["residual"]`` is ||x - y|| / t over the norm of the subgradient of g.

    References
    ----------
    Davis and Yin, A three-operator splitting scheme and its optimization applications, 2017;
    Eckstein and Bertsekas, On the Douglas-Rachford splitting method, 1992.
    """
    step = min(step, longest_step)
    history: dict[str, list[float]] = {"objective": [], "residual": [], "step": []}
    best: P | None = None
    previous: P | None = None
    before = lowest = float("inf")
    calm, n_iter = 0, 0
    while n_iter < max_iter and calm < 2:
        n_iter += 1
        x = problem.shrink(step)
        done = problem.reflect(x, step, _RELAXATION)
        if best is None or done.objective < lowest:
            best, lowest = x, done.objective
        reach = step * done.subgradient_norm
        residual = done.gap / reach if reach > 0.0 else float(done.gap > 0.0)
        still = abs(before - done.objective) <= tol * max(1.0, abs(done.objective))
        # While b is still on its way x may not move at all: calm takes a small residual too.
        calm = calm + 1 if still and residual <= _SETTLED else 0
        before = done.objective
        history["objective"].append(lowest)
        history["residual"].append(residual)
        history["step"].append(step)
        if monitor is not None:
            monitor(best)
        if previous is not None and n_iter < _TUNED:
            moved = problem.distance(x, previous)
            ratio = 1.0
            if done.gap > _IMBALANCE * moved:
                ratio = 1.0 / _FACTOR
            elif moved > _IMBALANCE * done.gap:
                ratio = min(_FACTOR, longest_step / step)
            if ratio != 1.0:
                problem.stretch(x, ratio)
                step *= ratio
        previous = x
    assert best is not None
    return CompositeResult(best, lowest, history, n_iter, calm >= 2)
