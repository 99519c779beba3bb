"""Clamped scores: two methods, every component, cut-off points and fronts that fade away."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from pipeline_lib.datasets.generators import two_moons
from pipeline_lib.graphs import clamped
from pipeline_lib.graphs.adaptive import initial_graph
from pipeline_lib.graphs.chebyshev import TINY, chebyshev, iterations_needed
from pipeline_lib.graphs.clamped import solve_clamped


def system(X, lam, k=8):
    S, _ = initial_graph(X, k)
    conductances = sp.csr_array(lam * (S + S.T))
    return conductances, 1.0 + np.asarray(conductances.sum(axis=1)).ravel()


@pytest.mark.parametrize("lam", [0.1, 1.0, 10.0, 1000.0])
def test_iteration_and_factorisation_agree_in_every_component(lam):
    X = two_moons(400, 0.05, 0).X
    conductances, degrees = system(X, lam)
    clamp, start = (np.array([0]),), np.zeros(400)
    iterated = solve_clamped(conductances, degrees, clamp, start)
    factorised = solve_clamped(conductances, degrees, clamp, start, longest=0)
    assert (iterated[:200] > 0).all() and iterated[0] == 1.0
    np.testing.assert_array_equal(iterated == 0, factorised == 0)
    assert iterated[iterated > 0].min() < (1e-60 if lam < 1 else 1)
    np.testing.assert_allclose(iterated, factorised, rtol=1e-11 * max(1.0, lam))


@pytest.mark.parametrize("longest", [4000, 0])
def test_columns_with_their_own_clamps(longest):
    X = np.random.default_rng(0).standard_normal((60, 2))
    conductances, degrees = system(X, 2.0)
    clamp = (np.array([0, 5, 9]), np.array([0, 1, 1]))
    together = solve_clamped(conductances, degrees, clamp, np.zeros((60, 2)), longest=longest)
    for column, points in enumerate(([0], [5, 9])):
        alone = solve_clamped(conductances, degrees, (np.array(points),), np.zeros(60))
        np.testing.assert_allclose(together[:, column], alone, rtol=1e-11)
        free = np.setdiff1d(np.arange(60), points)
        residual = degrees * alone - conductances @ alone
        np.testing.assert_allclose(residual[free], 0, atol=1e-13)


def test_a_guess_at_points_cut_off_does_not_hold_up_the_iteration(monkeypatch):
    rng = np.random.default_rng(1)
    X = np.vstack([rng.standard_normal((30, 2)), 99 + rng.standard_normal((30, 2))])
    conductances, degrees = system(X, 5.0, k=4)
    monkeypatch.setattr(clamped, "_factorised", None)  # may not be needed
    scores = solve_clamped(conductances, degrees, (np.array([0]),), rng.random(60), longest=400)
    assert (scores[30:] == 0).all() and (scores[:30] > 0).all()


def test_a_front_that_fades_below_what_numbers_hold(monkeypatch):
    n = 2000
    chain = sp.diags_array([np.ones(n - 1), np.ones(n - 1)], offsets=[-1, 1], format="csr")
    degrees = np.full(n, 4.0)
    calls = []
    monkeypatch.setattr(
        clamped,
        "chebyshev",
        lambda apply, *a, **k: chebyshev(lambda f: calls.append(0) or apply(f), *a, **k),
    )
    scores = solve_clamped(sp.csr_array(chain), degrees, (np.array([0]),), np.zeros(n))
    ratio = 2.0 - np.sqrt(3.0)  # root of x^2 - 4 x + 1
    reached = scores > 0
    expected = ratio ** np.arange(n)[reached]
    np.testing.assert_allclose(scores[reached], expected, rtol=1e-7)
    np.testing.assert_allclose(scores[:400], expected[:400], rtol=1e-10)
    assert scores[reached].min() >= TINY and reached[:400].all() and not reached[500:].any()
    assert len(calls) < 700


def test_iterations_needed():
    assert iterations_needed(0.0, 1e-14) == 1.0
    assert iterations_needed(0.999, 1e-14) > 5 * iterations_needed(0.9, 1e-14)


def test_unreachable_accuracy_gives_up():
    assert chebyshev(lambda f: 0.999 * f + 1.0, np.zeros(3), 0.999, longest=10) is None
