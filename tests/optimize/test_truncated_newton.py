"""Truncated Newton on functions whose minimum is known, and its parts on their own."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline_lib.optimize.truncated_newton import (
    conjugate_gradients,
    minimize_along,
    truncated_newton,
)


class LeastSquaresHinge:
    """1/2 w'w + C sum max(0, 1 - Aw)^2, with the matrix in the open."""

    def __init__(self, A, C, with_preconditioner=False):
        self.A, self.C, self.with_preconditioner = A, C, with_preconditioner
        self.products = 0
        self.built = 0

    def inner(self, a, b):
        return float(a @ b)

    def start(self, w):
        self.w = w

    def value_and_gradient(self):
        loss = np.maximum(1 - self.A @ self.w, 0)
        return (
            0.5 * self.w @ self.w + self.C * loss @ loss,
            self.w - 2 * self.C * self.A.T @ loss,
        )

    def hessian(self, w):
        active = self.A @ w < 1
        return np.eye(len(w)) + 2 * self.C * self.A[active].T @ self.A[active]

    def hessian_product(self, s):
        self.products += 1
        return self.hessian(self.w) @ s

    def preconditioner(self):
        if not self.with_preconditioner:
            return None
        self.built += 1
        inverse = np.linalg.inv(self.hessian(self.w))
        return lambda r: inverse @ r

    def along(self, s):
        self.s = s

        def derivatives(t):
            w = self.w + t * s
            loss = np.maximum(1 - self.A @ w, 0)
            slope = w @ s - 2 * self.C * loss @ (self.A @ s)
            return slope, s @ self.hessian(w) @ s

        return derivatives

    def move(self, t):
        self.w = self.w + t * self.s


def ill_conditioned(seed=0, n=300, d=40):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, d)) * np.logspace(0, -3, d)


@pytest.mark.parametrize("C", [1e-3, 1.0, 1e4])
@pytest.mark.parametrize("with_preconditioner", [False, True])
def test_gradient_vanishes_at_the_minimum(C, with_preconditioner):
    problem = LeastSquaresHinge(ill_conditioned(), C, with_preconditioner)
    result = truncated_newton(problem, np.zeros(40), tol=1e-12)
    assert result.converged
    _, gradient = problem.value_and_gradient()
    assert np.linalg.norm(gradient) < 1e-4 * np.linalg.norm(
        LeastSquaresHinge(problem.A, C).hessian(result.w) @ result.w
    )
    assert np.array_equal(problem.w, result.w)


def test_objective_never_increases_and_history_is_complete():
    problem = LeastSquaresHinge(ill_conditioned(3), 100.0)
    result = truncated_newton(problem, np.full(40, 5.0))
    assert result.history.keys() == {"objective", "decrement", "step", "cg_iterations"}
    assert all(len(values) == result.n_iter for values in result.history.values())
    assert (np.diff(result.history["objective"]) <= 0).all()
    assert result.history["objective"][-1] == result.objective


def test_a_preconditioner_saves_products():
    plain, preconditioned = (LeastSquaresHinge(ill_conditioned(), 1e4, flag) for flag in (0, 1))
    one = truncated_newton(plain, np.zeros(40), tol=1e-10)
    other = truncated_newton(preconditioned, np.zeros(40), tol=1e-10)
    assert one.objective == pytest.approx(other.objective, rel=1e-9)
    assert preconditioned.built > 0
    assert preconditioned.products < 0.7 * plain.products


def test_too_few_iterations_are_reported():
    result = truncated_newton(LeastSquaresHinge(ill_conditioned(), 1e4), np.zeros(40), max_iter=1)
    assert not result.converged and result.n_iter == 1


def test_starting_at_the_minimum_takes_no_step():
    problem = LeastSquaresHinge(np.zeros((3, 4)), 1.0)
    result = truncated_newton(problem, np.zeros(4))
    assert result.converged and result.n_iter == 0
    assert result.history["objective"] == [result.objective] == [3.0]


def test_an_unreachable_tolerance_ends_at_rounding():
    problem = LeastSquaresHinge(ill_conditioned(1), 10.0)
    result = truncated_newton(problem, np.zeros(40), tol=1e-40)
    assert result.converged and result.n_iter < 30


def test_conjugate_gradients_solve_within_their_tolerance():
    rng = np.random.default_rng(0)
    M = rng.standard_normal((30, 30))
    A = M @ M.T + np.eye(30)
    b = rng.standard_normal(30)
    x, n = conjugate_gradients(lambda s: A @ s, b, rtol=1e-10, max_iter=500)
    assert np.linalg.norm(A @ x - b) <= 1.1e-10 * np.linalg.norm(b)
    exact = np.linalg.inv(A)
    x, n = conjugate_gradients(
        lambda s: A @ s, b, rtol=1e-10, max_iter=500, precondition=lambda r: exact @ r
    )
    assert n <= 2
    np.testing.assert_allclose(A @ x, b, atol=1e-8)


def test_conjugate_gradients_stay_a_descent_direction():
    b = np.array([1.0, -2.0])
    x, _ = conjugate_gradients(lambda s: -s, b, rtol=1e-3, max_iter=10)
    assert x @ b > 0
    assert conjugate_gradients(lambda s: s, b, rtol=1e-3, max_iter=0)[0] @ b > 0


@pytest.mark.parametrize("minimum", [1e-6, 0.3, 1.0, 7.5, 1e5])
def test_line_search_finds_the_minimum_of_a_piecewise_quadratic(minimum):
    # |t - minimum| with curvature only on the far side of a kink, plus a quadratic.
    def derivatives(t):
        kink = 2 * minimum
        extra = 50.0 * max(0.0, t - kink)
        return (t - minimum) + extra, 1.0 + (50.0 if t > kink else 0.0)

    assert minimize_along(derivatives, threshold=1e-30) == pytest.approx(minimum, rel=1e-9)


def test_line_search_survives_newton_cycles():
    # Newton's method alone cycles between the two linear-ish branches of this convex function.
    def derivatives(t):
        x = t - 3.0
        return float(np.arctan(5 * x)), float(5 / (1 + 25 * x * x))

    assert minimize_along(derivatives, threshold=1e-20) == pytest.approx(3.0, abs=1e-8)


def test_line_search_without_curvature_goes_on_until_it_finds_some():
    def derivatives(t):
        return (-1.0, 0.0) if t < 10 else (t - 12.0, 1.0)

    assert minimize_along(derivatives, threshold=1e-20) == pytest.approx(12.0)
