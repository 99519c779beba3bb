"""Many rows at once by their active sets: the minimum of the row-by-row search, whatever the start."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from pipeline_lib.clustering import active_set
from pipeline_lib.clustering.active_set import RowProblems, solve_rows
from pipeline_lib.clustering.code_solver import CodeProblem, solve_codes
from pipeline_lib.clustering.feature_sign import feature_sign_search

Array = NDArray[np.float64]


def unit(matrix: Array) -> Array:
    return matrix / np.linalg.norm(matrix, axis=1, keepdims=True)


def random_rows(
    seed: int, *, n: int = 30, d: int = 40, atoms: int = 60, shift: float = 0.0, beta: float = 0.5
) -> RowProblems:
    rng = np.random.default_rng(seed)
    D = unit(rng.standard_normal((atoms, d)))
    X = unit(rng.standard_normal((n, 3)) @ rng.standard_normal((3, d)) + rng.random((n, d)))
    return RowProblems(D @ D.T, shift * rng.random(n), X @ D.T, beta)


def values(problems: RowProblems, codes: Array) -> Array:
    quadratic = np.einsum("ij,jk,ik->i", codes, problems.gram, codes)
    quadratic += problems.shift * (codes**2).sum(axis=1)
    linear = 2.0 * (codes * problems.target).sum(axis=1)
    return quadratic - linear + problems.beta * np.abs(codes).sum(axis=1)


def violation(problems: RowProblems, codes: Array) -> float:
    gradient = problems.gradient(codes, np.arange(len(codes)))
    at_zero = np.maximum(np.abs(gradient) - problems.beta, 0.0)
    return float(np.where(codes, np.abs(gradient + problems.beta * np.sign(codes)), at_zero).max())


@pytest.fixture(autouse=True)
def _no_giving_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(active_set, "_DENSE", 1.0)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("shift", [0.0, 2.0])
@pytest.mark.parametrize("beta", [0.02, 0.1, 0.4])
def test_every_row_is_that_of_feature_sign_search(seed: int, shift: float, beta: float) -> None:
    problems = random_rows(seed, n=12, shift=shift, beta=beta)
    nothing = np.zeros_like(problems.target)
    codes, rounds, done = solve_rows(problems, nothing, goal=1e-9)
    assert done and 0 < rounds < 100
    assert violation(problems, codes) <= 1e-9
    G, p, b = problems.gram, problems.shift, problems.target
    one_by_one = np.array(
        [feature_sign_search(G, p[i], b[i], beta, nothing[i], 1e-9) for i in range(len(b))]
    )
    np.testing.assert_allclose(values(problems, codes), values(problems, one_by_one), atol=1e-10)
    np.testing.assert_allclose(codes, one_by_one, atol=1e-4)


@pytest.mark.parametrize("seed", range(3))
def test_no_row_ends_above_its_start_whenever_it_stops(seed: int) -> None:
    problems = random_rows(seed)
    rng = np.random.default_rng(seed)
    start = rng.standard_normal(problems.target.shape)
    before = values(problems, start)
    for rounds in (1, 2, 5, 20, 200):
        codes, spent, done = solve_rows(problems, start, goal=1e-9, max_rounds=rounds)
        after = values(problems, codes)
        assert spent <= rounds
        assert (after <= before + 1e-12).all()
        before = after
    assert done


def test_solved_start_takes_no_round() -> None:
    problems = random_rows(7)
    codes, _, _ = solve_rows(problems, np.zeros_like(problems.target), goal=1e-9)
    again, rounds, done = solve_rows(problems, codes, goal=1e-8)
    assert done and rounds == 0
    np.testing.assert_array_equal(again, codes)


def test_equal_and_opposite_atoms() -> None:
    rng = np.random.default_rng(8)
    D = unit(rng.standard_normal((12, 10)))
    D[1], D[2], D[4:7] = D[0], -D[0], D[3]
    X = unit(rng.standard_normal((40, 10)))
    problems = RowProblems(D @ D.T, np.zeros(40), X @ D.T, 0.05)
    codes, _, done = solve_rows(problems, np.zeros((40, 12)), goal=1e-8)
    assert done and violation(problems, codes) <= 1e-8


def test_stacks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    problems = random_rows(9, n=50)
    start = np.zeros_like(problems.target)
    expected, _, _ = solve_rows(problems, start, goal=1e-10)
    monkeypatch.setattr(active_set, "_STACK_ENTRIES", 1)
    np.testing.assert_allclose(solve_rows(problems, start, goal=1e-10)[0], expected, atol=1e-9)


def test_large_faces_are_left_to_another_method(monkeypatch: pytest.MonkeyPatch) -> None:
    problems = random_rows(10, beta=0.001)
    start = np.zeros_like(problems.target)
    expected, _, _ = solve_rows(problems, start, goal=1e-9)
    monkeypatch.setattr(active_set, "_DENSE", 0.1)
    codes, _, done = solve_rows(problems, start, goal=1e-9)
    assert not done and violation(problems, codes) > 1e-3
    whole = CodeProblem(problems.gram, problems.target, problems.beta)
    solution = solve_codes(whole)
    assert solution.converged
    assert values(problems, solution.codes).sum() == pytest.approx(
        values(problems, expected).sum(), abs=1e-7
    )
