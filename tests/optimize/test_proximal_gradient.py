"""The composite minimisers on problems whose minimum is known otherwise."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import Lasso

from pipeline_lib.optimize.proximal import prox_l1
from pipeline_lib.optimize.proximal_gradient import ArrayProblem, minimize_composite
from pipeline_lib.optimize.splitting import SplittingStep, minimize_by_splitting


def lasso_problem(A: np.ndarray, b: np.ndarray, weight: float) -> ArrayProblem:
    def smooth(x: np.ndarray) -> tuple[float, np.ndarray]:
        residual = A @ x - b
        return 0.5 * float(residual @ residual), A.T @ residual

    def norm(x: np.ndarray) -> float:
        return weight * float(np.abs(x).sum())

    def proximal(v: np.ndarray, step: float) -> tuple[np.ndarray, float]:
        x = prox_l1(v, weight * step)
        return x, norm(x)

    return ArrayProblem(smooth, proximal, norm)


@pytest.fixture(scope="module")
def data() -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    A = random.standard_normal((60, 30)) * np.geomspace(1.0, 30.0, 30)
    return A, A[:, :3].sum(axis=1) + random.standard_normal(60)


@pytest.mark.parametrize("first_step", [1e-6, 1.0, 1e3])
def test_lasso(data: tuple[np.ndarray, np.ndarray], first_step: float) -> None:
    A, b = data
    weight = 4.0
    result = minimize_composite(
        lasso_problem(A, b, weight), np.zeros(30), step=first_step, tol=1e-13, max_iter=5000
    )
    peer = Lasso(alpha=weight / 60, fit_intercept=False, tol=1e-12, max_iter=100_000).fit(A, b)
    assert result.converged
    assert np.allclose(result.point, peer.coef_, atol=1e-5)
    # Subgradient: |A'(Ax - b)| <= weight, with equality and the right sign on the support.
    slope = A.T @ (A @ result.point - b)
    assert np.all(np.abs(slope) <= weight + 1e-3)


def test_objective_never_rises_and_the_log_is_complete(
    data: tuple[np.ndarray, np.ndarray],
) -> None:
    A, b = data
    seen: list[np.ndarray] = []
    result = minimize_composite(
        lasso_problem(A, b, 1.0), np.ones(30), tol=1e-12, max_iter=3000, monitor=seen.append
    )
    objective = np.array(result.history["objective"])
    assert np.all(np.diff(objective) <= 0.0)
    assert result.n_iter == len(objective) == len(result.history["residual"]) == len(seen)
    assert result.objective == objective[-1]
    assert seen[-1] is result.point
    assert result.history["residual"][-1] < 1e-4


def test_acceleration_pays(data: tuple[np.ndarray, np.ndarray]) -> None:
    A, b = data
    problem = lasso_problem(A, b, 1.0)
    result = minimize_composite(problem, np.zeros(30), tol=1e-10, max_iter=5000)
    x, step = np.zeros(30), 1.0 / np.linalg.norm(A, 2) ** 2
    for _ in range(result.n_iter):
        x = prox_l1(x - step * problem.smooth(x)[1], step)
    assert result.objective < problem.objective(x)


def test_iteration_limit_is_reported(data: tuple[np.ndarray, np.ndarray]) -> None:
    result = minimize_composite(lasso_problem(*data, 1.0), np.zeros(30), tol=0.0, max_iter=3)
    assert (result.n_iter, result.converged) == (3, False)


def test_continuation_joins_the_logs(data: tuple[np.ndarray, np.ndarray]) -> None:
    problem = lasso_problem(*data, 1.0)
    first = minimize_composite(problem, np.zeros(30), tol=0.0, max_iter=4)
    second = minimize_composite(problem, first.point, tol=0.0, max_iter=5).after(first)
    assert second.n_iter == 9
    assert second.history["objective"][:4] == first.history["objective"]


class SteepScalar:
    """min |x - 3| + weight x^2 / 2 + x by splitting; the minimum is at 3 where it pays."""

    def __init__(self, weight: float) -> None:
        self.weight = weight
        self.b = 0.0

    def shrink(self, step: float) -> float:
        return self.b / (1.0 + self.weight * step)

    def reflect(self, x: float, step: float, relaxation: float) -> SplittingStep:
        before = self.b
        mirror = 2.0 * x - before - step
        y = 3.0 + float(prox_l1(np.array(mirror - 3.0), step))
        self.b += relaxation * (y - x)
        value = abs(x - 3.0) + 0.5 * self.weight * x * x + x
        return SplittingStep(value, abs(y - x), abs(before - x) / step)

    def stretch(self, x: float, ratio: float) -> None:
        self.b = x + ratio * (self.b - x)

    def distance(self, x: float, previous: float) -> float:
        return abs(x - previous)


@pytest.mark.parametrize(("weight", "minimum"), [(0.01, 0.0), (0.5, 0.0)])
@pytest.mark.parametrize("step", [0.1, 10.0])
def test_splitting_finds_the_kink_or_the_slope(weight: float, minimum: float, step: float) -> None:
    # Left of 3 the slope is weight x, so the minimum is at 0.
    result = minimize_by_splitting(SteepScalar(weight), step=step, tol=1e-13, max_iter=5000)
    assert result.converged
    assert result.point == pytest.approx(minimum, abs=1e-4)
    assert np.all(np.diff(result.history["objective"]) <= 0.0)
