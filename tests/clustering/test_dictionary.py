"""The A-step: known values, optimality conditions, collinear and unused atoms."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from pipeline_lib.clustering.dictionary import DictionaryStep, solve_dictionary

Array = NDArray[np.float64]


def solve(X: Array, codes: Array, previous: Array, bound: float = 1.0) -> DictionaryStep:
    return solve_dictionary(codes.T @ codes, codes.T @ X, previous, bound=bound)


def remainder(X: Array, codes: Array, dictionary: Array) -> float:
    return float(((X - codes @ dictionary) ** 2).sum())


def random_codes(seed: int, n: int = 60, atoms: int = 7, d: int = 5) -> tuple[Array, Array, Array]:
    rng = np.random.default_rng(seed)
    codes = rng.standard_normal((n, atoms)) * (rng.random((n, atoms)) < 0.5)
    X = codes @ rng.standard_normal((atoms, d)) + 0.1 * rng.standard_normal((n, d))
    previous = rng.standard_normal((atoms, d))
    return X, codes, previous / np.linalg.norm(previous, axis=1, keepdims=True)


def test_known_dictionary() -> None:
    known = json.loads((Path(__file__).parent / "known_values_graphscan.json").read_text())
    X, codes = np.array(known["X"]).T, np.array(known["codes_given_A_S"]).T
    step = solve(X, codes, np.array(known["A"]).T)
    # The stored dictionary exceeds the bound in the sixth digit, and gains as much by it.
    np.testing.assert_allclose(
        step.dictionary, np.array(known["dictionary_given_codes"]).T, atol=2e-5
    )
    assert remainder(X, codes, step.dictionary) == pytest.approx(
        known["residual_given_codes"], abs=2e-5
    )


@pytest.mark.parametrize("seed", range(5))
def test_optimality_conditions(seed: int) -> None:
    X, codes, previous = random_codes(seed)
    step = solve(X, codes, previous)
    D, mu = step.dictionary, step.multipliers
    squares = (D**2).sum(axis=1)
    assert (mu >= 0).all() and (squares <= 1 + 1e-12).all()
    # Stationarity, complementarity, and some atoms on the bound, others (here) too.
    stationarity = codes.T @ (codes @ D - X) + mu[:, None] * D
    assert np.abs(stationarity).max() <= 1e-8 * np.abs(codes.T @ X).max()
    assert np.abs(mu * (squares - 1)).max() <= 1e-8 * mu.max()
    assert step.gap <= 1e-10


def test_loose_bound_is_least_squares() -> None:
    X, codes, previous = random_codes(10)
    step = solve(X, codes, previous, bound=1e6)
    np.testing.assert_allclose(step.dictionary, np.linalg.lstsq(codes, X, rcond=None)[0], atol=1e-8)
    assert not step.multipliers.any()


def test_active_and_inactive_bounds_together() -> None:
    X, codes, previous = random_codes(11)
    codes[:, :3] *= 10.0  # these atoms need less than norm 1
    step = solve(X, codes, previous)
    squares = (step.dictionary**2).sum(axis=1)
    assert (step.multipliers > 0).any() and (step.multipliers == 0).any()
    np.testing.assert_allclose(squares[step.multipliers > 1e-6], 1.0, atol=1e-9)


def test_multipliers_warm_start_the_next_step() -> None:
    X, codes, previous = random_codes(12)
    cold = solve(X, codes, previous)
    warm = solve_dictionary(codes.T @ codes, codes.T @ X, previous, cold.multipliers)
    np.testing.assert_allclose(warm.dictionary, cold.dictionary, atol=1e-9)


@pytest.mark.parametrize("copies", [1, 3])
def test_collinear_codes_never_make_it_worse(copies: int) -> None:
    X, codes, previous = random_codes(13)
    for copy in range(copies):
        codes[:, copy + 1] = (-2.0) ** copy * codes[:, 0]
    step = solve(X, codes, previous)
    assert np.isfinite(step.dictionary).all()
    assert ((step.dictionary**2).sum(axis=1) <= 1 + 1e-12).all()
    assert remainder(X, codes, step.dictionary) <= remainder(X, codes, previous)
    assert step.gap <= 1e-8


def test_unused_atoms_are_kept() -> None:
    X, codes, previous = random_codes(14)
    codes[:, [2, 5]] = 0.0
    step = solve(X, codes, previous)
    np.testing.assert_array_equal(step.dictionary[[2, 5]], previous[[2, 5]])
    nothing = solve(X, np.zeros_like(codes), previous)
    np.testing.assert_array_equal(nothing.dictionary, previous)


def test_optimal_dictionary_beats_feasible_ones_around_it() -> None:
    X, codes, previous = random_codes(15)
    step = solve(X, codes, previous)
    least = remainder(X, codes, step.dictionary)
    rng = np.random.default_rng(0)
    for _ in range(100):
        other = step.dictionary + 0.05 * rng.standard_normal(step.dictionary.shape)
        other /= np.maximum(np.linalg.norm(other, axis=1, keepdims=True), 1.0)
        assert remainder(X, codes, other) >= least


def test_exact_fit_has_no_gap() -> None:
    rng = np.random.default_rng(3)
    X, atoms = 0.2 * rng.standard_normal((24, 5)), rng.standard_normal((10, 5))
    atoms /= np.linalg.norm(atoms, axis=1, keepdims=True)
    codes = X @ np.linalg.pinv(atoms)
    step = solve(X, codes, atoms)
    assert step.gap <= 1e-12
    assert remainder(X, codes, step.dictionary) <= 1e-20
