"""The E-step: known values, two solvers and one minimum, agreement with the lasso, degenerate input."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.linear_model import Lasso

from pipeline_lib.clustering import code_solver
from pipeline_lib.clustering.code_solver import CodeProblem, CodeSolution, solve_codes
from pipeline_lib.clustering.feature_sign import solve_codes_by_feature_sign
from pipeline_lib.graphs.adaptive import initial_graph
from pipeline_lib.graphs.laplacian import laplacian

Array = NDArray[np.float64]
SOLVERS = [solve_codes, solve_codes_by_feature_sign]


def known_values() -> dict[str, Any]:
    values = json.loads((Path(__file__).parent / "known_values_graphscan.json").read_text())
    rows, cols, weights = zip(*values.pop("S_entries"))
    n = len(values["X"][0])
    values["S"] = sp.csr_array((weights, (rows, cols)), shape=(n, n))
    for name in ("X", "A", "codes_given_A_S", "dictionary_given_codes"):
        values[name] = np.array(values[name]).T  # stored with samples in columns
    return values


def unit(matrix: Array) -> Array:
    return matrix / np.linalg.norm(matrix, axis=1, keepdims=True)


def random_problem(
    seed: int, *, n: int = 40, d: int = 8, atoms: int = 5, lam: float = 0.5, beta: float = 0.1
) -> tuple[CodeProblem, Array, Array]:
    rng = np.random.default_rng(seed)
    X, D = unit(rng.standard_normal((n, d))), unit(rng.standard_normal((atoms, d)))
    coupling = lam * laplacian(initial_graph(X, 4)[0]) if lam else None
    return CodeProblem(D @ D.T, X @ D.T, beta, coupling), X, D


def violation(problem: CodeProblem, codes: Array) -> float:
    """Distance of 0 from the subdifferential, written out entry by entry."""
    gradient = 2.0 * (codes @ problem.gram - problem.correlation)
    if problem.coupling is not None:
        gradient += 2.0 * (problem.coupling @ codes)
    worst = 0.0
    for g, h in zip(gradient.ravel(), codes.ravel()):
        if h > 0:
            worst = max(worst, abs(g + problem.beta))
        elif h < 0:
            worst = max(worst, abs(g - problem.beta))
        else:
            worst = max(worst, abs(g) - problem.beta)
    return worst


@pytest.mark.parametrize("solve", SOLVERS)
def test_known_codes(solve: Any) -> None:
    known = known_values()
    X, D = known["X"], known["A"]
    problem = CodeProblem(D @ D.T, X @ D.T, known["beta"], known["lam"] * laplacian(known["S"]))
    codes = solve(problem).codes
    np.testing.assert_allclose(codes, known["codes_given_A_S"], atol=1e-6)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("lam", [0.0, 0.5])
@pytest.mark.parametrize("atoms", [5, 12])
def test_batch_and_feature_sign_reach_the_same_minimum(seed: int, lam: float, atoms: int) -> None:
    problem, _, _ = random_problem(seed, n=25, atoms=atoms, lam=lam)
    ours, theirs = solve_codes(problem), solve_codes_by_feature_sign(problem)
    assert ours.converged and theirs.converged
    values = [problem.value(s.codes, problem.apply(s.codes)) for s in (ours, theirs)]
    assert values[0] == pytest.approx(values[1], abs=1e-10)
    if lam or atoms <= 8:  # the minimiser is unique
        np.testing.assert_allclose(ours.codes, theirs.codes, atol=1e-6)


@pytest.mark.parametrize("solve", SOLVERS)
@pytest.mark.parametrize("lam", [0.0, 0.5])
def test_equal_and_opposite_atoms(solve: Any, lam: float) -> None:
    _, X, D = random_problem(5, n=25, atoms=8)
    D[1], D[2] = D[0], -D[0]
    coupling = lam * laplacian(initial_graph(X, 4)[0]) if lam else None
    problem = CodeProblem(D @ D.T, X @ D.T, 0.1, coupling)
    solution = solve(problem)
    assert solution.converged
    assert violation(problem, solution.codes) <= 1e-7


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("atoms", [5, 30])
def test_codes_are_those_of_the_lasso(seed: int, atoms: int) -> None:
    problem, X, D = random_problem(seed, n=15, d=20, atoms=atoms, lam=0.0)
    # scikit-learn divides the squares by twice the number of features.
    lasso = Lasso(problem.beta / (2 * 20), fit_intercept=False, tol=1e-15, max_iter=1_000_000)
    expected = np.array([lasso.fit(D.T, x).coef_ for x in X])
    np.testing.assert_allclose(solve_codes(problem).codes, expected, atol=1e-6)


@pytest.mark.parametrize("solve", SOLVERS)
def test_reported_residual_is_the_violation_of_the_conditions(solve: Any) -> None:
    problem, _, _ = random_problem(1)
    for tol in (1e-1, 1e-4, 1e-8):
        solution = solve(problem, tol=tol)
        true = violation(problem, solution.codes)
        assert solution.residual * problem.scale == pytest.approx(true, abs=1e-13)
        assert solution.residual <= tol


def test_reduction_stops_early_and_never_above_the_start() -> None:
    problem, _, _ = random_problem(2, n=60, atoms=12, lam=2.0, beta=0.02)
    rng = np.random.default_rng(0)
    exact = solve_codes(problem)
    for scale in (1e-6, 1e-3, 1.0):
        start = exact.codes + scale * rng.standard_normal(exact.codes.shape)
        rough = solve_codes(problem, start, reduction=0.1)
        assert rough.n_iter < solve_codes(problem, start).n_iter
        before = problem.value(start, problem.apply(start))
        assert problem.value(rough.codes, problem.apply(rough.codes)) <= before


def test_solved_start_is_returned() -> None:
    problem, _, _ = random_problem(3)
    first = solve_codes(problem)
    again = solve_codes(problem, first.codes)
    assert again.n_iter == 1
    np.testing.assert_array_equal(again.codes, first.codes)


def test_iteration_limit_is_kept_and_told() -> None:
    problem, _, _ = random_problem(4, n=60, atoms=12, beta=0.001)
    cut: CodeSolution = solve_codes(problem, max_iter=3)
    assert not cut.converged
    assert cut.n_iter <= 3
    assert problem.value(cut.codes, problem.apply(cut.codes)) < 0.0


def test_without_sparsity_codes_solve_a_linear_system() -> None:
    problem, _, _ = random_problem(6, beta=0.0)
    assert problem.coupling is not None
    n, atoms = problem.correlation.shape
    coupling = (
        problem.coupling
        if isinstance(problem.coupling, np.ndarray)
        else (problem.coupling.toarray())
    )
    system = np.kron(np.eye(n), problem.gram) + np.kron(coupling, np.eye(atoms))
    expected = np.linalg.solve(system, problem.correlation.ravel()).reshape(n, atoms)
    np.testing.assert_allclose(solve_codes(problem, tol=1e-10).codes, expected, atol=1e-7)


@pytest.mark.parametrize("solve", SOLVERS)
def test_strong_sparsity_and_empty_data_give_no_codes(solve: Any) -> None:
    problem, _X, _D = random_problem(7)
    limit = CodeProblem(problem.gram, problem.correlation, problem.scale, None)
    assert not solve(limit).codes.any()
    nothing = CodeProblem(problem.gram, np.zeros_like(problem.correlation), 0.1, None)
    solution = solve(nothing, np.ones_like(problem.correlation))
    assert solution.converged and not solution.codes.any()


def test_blocks_and_dense_coupling_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    _, X, D = random_problem(8, n=50)
    coupling = 0.5 * laplacian(initial_graph(X, 4)[0])

    def codes(block: int, density: float) -> Array:
        monkeypatch.setattr(code_solver, "_BLOCK_ENTRIES", block)
        monkeypatch.setattr(code_solver, "_DENSE_COUPLING", density)
        return solve_codes(CodeProblem(D @ D.T, X @ D.T, 0.1, coupling), tol=1e-11).codes

    expected = codes(10**9, 1.0)
    np.testing.assert_allclose(codes(7, 1.0), expected, atol=1e-9)
    np.testing.assert_allclose(codes(10**9, 0.0), expected, atol=1e-9)
