"""The locally scaled variant against a dense alternation, and its two parts one by one."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline_lib.errors import InputError
from pipeline_lib.graphs.adaptive import AdaptiveNeighbors, initial_graph
from pipeline_lib.graphs.laplacian import laplacian
from pipeline_lib.graphs.simplex import project_simplex
from pipeline_lib.retrieval.adaptive_neighbors import RankingAdaptiveNeighbors
from pipeline_lib.retrieval.locally_scaled import LocallyScaledAdaptiveNeighbors


def brute_force(X, query, k, lam, mu, n_iter):
    n = len(X)
    D = ((X[:, None] - X[None]) ** 2).sum(axis=-1)
    ordered = np.sort(D, axis=1)[:, 1 : k + 2]
    own = 0.5 * (k * ordered[:, k] - ordered[:, :k].sum(axis=1))
    D = D / own[:, None]
    S = initial_graph(X, k)[0].toarray()
    free = np.setdiff1d(np.arange(n), query)
    objectives = []
    for step in range(n_iter):
        L = laplacian(S).toarray()
        A = 2 * lam * L + mu * np.eye(n)
        f = np.zeros(n)
        f[query] = 1.0
        f[free] = np.linalg.solve(A[np.ix_(free, free)], -A[free, query])
        value = (D * S).sum() + (S**2).sum() + 2 * lam * f @ L @ f + mu * (f[free] ** 2).sum()
        objectives.append(value)
        if step < n_iter - 1:
            S = project_simplex(-(D + lam * (f[:, None] - f) ** 2) / 2, ~np.eye(n, dtype=bool))
    return f, S, objectives


@pytest.mark.parametrize(("lam", "mu"), [(0.05, 0.01), (1.0, 1.0), (8.0, 0.1)])
def test_equals_brute_force(lam, mu):
    rng = np.random.default_rng(0)
    for _ in range(10):
        X = rng.standard_normal((int(rng.integers(12, 35)), 2))
        model = LocallyScaledAdaptiveNeighbors(4, lam, mu, tol=0.0, max_iter=4).fit(X)
        solution = model.learned_graph(3)
        f, S, objectives = brute_force(X, 3, 4, lam, mu, 4)
        np.testing.assert_allclose(solution.scores, f, atol=1e-9)
        np.testing.assert_allclose(solution.graph.toarray(), S, atol=1e-8)
        found = solution.objective + solution.objective[-1:] * (4 - len(solution.objective))
        np.testing.assert_allclose(found, objectives, rtol=1e-9)
        assert (np.diff(objectives) <= 1e-12 * objectives[0]).all()


def test_at_rest_every_point_has_k_neighbours():
    rng = np.random.default_rng(1)
    X = np.vstack([rng.standard_normal((60, 2)), 30 + 10 * rng.standard_normal((40, 2))])
    graph = AdaptiveNeighbors(X, 6, own_scale=True)
    np.testing.assert_allclose(graph.update().toarray(), graph.initial.toarray(), atol=1e-12)
    plain = AdaptiveNeighbors(X, 6).update()
    assert np.diff(plain.indptr).max() > 15


def test_scores_do_not_depend_on_the_unit_of_the_data():
    X = np.random.default_rng(2).standard_normal((50, 3))
    scores = LocallyScaledAdaptiveNeighbors().fit(X).rank([0, 4])
    in_other_units = LocallyScaledAdaptiveNeighbors().fit(255 * X).rank([0, 4])
    np.testing.assert_allclose(in_other_units, scores, rtol=1e-6)


def test_fidelity_alone_is_a_scale_of_the_data():
    # (lam, mu) is plain ranking of data scaled by 1 / sqrt(mu), up to gamma.
    X = np.random.default_rng(3).standard_normal((40, 2))
    few = LocallyScaledAdaptiveNeighbors(5, 0.5, 0.5, max_iter=1).fit(X).learned_graph(0)
    plain = RankingAdaptiveNeighbors(5, 1.0, max_iter=1).fit(X).learned_graph(0)
    np.testing.assert_allclose(few.scores, plain.scores, rtol=1e-10)


def test_duplicates():
    X = np.repeat(np.random.default_rng(4).standard_normal((6, 2)), 6, axis=0)
    scores = LocallyScaledAdaptiveNeighbors(3).fit(X).rank([0])[0]
    assert np.isfinite(scores).all() and (scores[1:6] > 0).all()


@pytest.mark.parametrize("fidelity", [0.0, -1.0, np.nan, np.inf])
def test_refuses(fidelity):
    X = np.random.default_rng(5).random((10, 2))
    with pytest.raises(InputError, match="fidelity"):
        LocallyScaledAdaptiveNeighbors(3, fidelity=fidelity).fit(X)
