"""Ranking with adaptive neighbours: known values, brute force, invariants, tails, outside queries."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from pipeline_lib.datasets.generators import three_rings, two_moons
from pipeline_lib.errors import InputError
from pipeline_lib.graphs.adaptive import AdaptiveNeighbors
from pipeline_lib.graphs.laplacian import laplacian
from pipeline_lib.graphs.neighbors import nearest_neighbors
from pipeline_lib.graphs.simplex import project_simplex
from pipeline_lib.retrieval import adaptive_solver
from pipeline_lib.retrieval.adaptive_neighbors import RankingAdaptiveNeighbors

KNOWN = json.loads((Path(__file__).parent / "known_values_ran.json").read_text())


def objective(D, S, gamma, lam, f, query):
    fidelity = np.delete(f, query)
    smooth = f @ (laplacian(S) @ f)
    return (D * S).sum() + gamma * (S**2).sum() + 2 * lam * smooth + fidelity @ fidelity


def brute_force(X, query, k, lam, n_iter, local=False):
    """Dense alternation for exactly n_iter f-steps; scores, graph and objectives."""
    n = len(X)
    D = ((X[:, None] - X[None]) ** 2).sum(axis=-1)
    start = AdaptiveNeighbors(X, k)
    S, gamma = start.initial.toarray(), start.effective_gamma
    allowed = ~np.eye(n, dtype=bool)
    if local:
        allowed = np.zeros((n, n), dtype=bool)
        np.put_along_axis(allowed, nearest_neighbors(X, k).indices, True, axis=1)
    free = np.setdiff1d(np.arange(n), query)
    objectives = []
    for step in range(n_iter):
        A = 2 * lam * laplacian(S).toarray() + np.eye(n)
        f = np.zeros(n)
        f[query] = 1.0
        right = -A[np.ix_(free, np.atleast_1d(query))].sum(axis=1)
        f[free] = np.linalg.solve(A[np.ix_(free, free)], right)
        objectives.append(objective(D, S, gamma, lam, f, query))
        if step < n_iter - 1:
            S = project_simplex(-(D + lam * (f[:, None] - f) ** 2) / (2 * gamma), allowed)
    return f, S, objectives


def random_points(rng, trial, largest=40):
    n = int(rng.integers(8, largest))
    X = rng.standard_normal((n, int(rng.integers(1, 4))))
    if trial % 3 == 1:
        X = np.round(X)
    elif trial % 3 == 2:
        X[rng.integers(n, size=n // 2)] = X[rng.integers(n, size=n // 2)]
    return X


def fixed_iterations(X, query, k, lam, n_iter, **options):
    model = RankingAdaptiveNeighbors(k, lam, tol=0.0, max_iter=n_iter, **options).fit(X)
    return model, model.learned_graph(query)


@pytest.mark.parametrize("case", KNOWN["cases"], ids=lambda case: f"lam={case['lam']}")
def test_known_values(case):
    model = RankingAdaptiveNeighbors(case["n_neighbors"], case["lam"]).fit(KNOWN["X"])
    scores = model.rank([case["query"]])[0]
    np.testing.assert_allclose(scores, case["scores"], atol=1e-6)
    assert model.gamma_ == pytest.approx(case["gamma"], rel=1e-12)
    shared = min(model.n_iter_, len(case["objective"]))
    np.testing.assert_allclose(
        model.history_["objective"][:shared], case["objective"][:shared], rtol=1e-12
    )
    assert model.converged_
    assert scores[case["query"]] == 1.0


@pytest.mark.parametrize("local", [False, True])
@pytest.mark.parametrize("lam", [0.05, 1.0, 30.0])
def test_equals_brute_force(lam, local):
    rng = np.random.default_rng(0)
    for trial in range(15):
        X = random_points(rng, trial)
        k = int(rng.integers(1, min(8, len(X) - 2)))
        query = int(rng.integers(len(X)))
        f, S, objectives = brute_force(X, query, k, lam, 4, local)
        _, solution = fixed_iterations(X, query, k, lam, 4, local=local)
        np.testing.assert_allclose(solution.scores, f, atol=1e-9)
        np.testing.assert_allclose(solution.graph.toarray(), S, atol=1e-8)
        found = solution.objective + solution.objective[-1:] * (4 - len(solution.objective))
        np.testing.assert_allclose(found, objectives, rtol=1e-9)


def test_query_of_several_points_and_initial_graph_alone():
    X = np.random.default_rng(1).standard_normal((30, 2))
    for n_iter in (1, 5):
        f, S, objectives = brute_force(X, [3, 17, 20], 4, 2.0, n_iter)
        _, solution = fixed_iterations(X, [20, 3, 17, 3], 4, 2.0, n_iter)
        np.testing.assert_allclose(solution.scores, f, atol=1e-10)
        np.testing.assert_allclose(solution.graph.toarray(), S, atol=1e-10)
        np.testing.assert_allclose(solution.objective, objectives, rtol=1e-10)
        assert (solution.scores[[3, 17, 20]] == 1.0).all()


def test_objective_never_rises():
    rng = np.random.default_rng(2)
    problems = 0
    for trial in range(125):
        X = random_points(rng, trial, largest=28)
        k = int(rng.integers(1, min(7, len(X) - 2)))
        lam = float(rng.choice([0.01, 0.3, 3.0, 50.0]))
        model = RankingAdaptiveNeighbors(k, lam).fit(X)
        queries = [np.array([q]) for q in rng.choice(len(X), size=8, replace=False)]
        for solution in model._problem.solve(queries, tol=0.0, max_iter=15):
            values = np.array(solution.objective)
            assert (np.diff(values) <= 1e-12 * np.abs(values[0])).all(), (trial, values)
            problems += len(values) > 1
    assert problems == 1000


def test_separated_clusters_get_zero_across_and_are_ordered_by_distance():
    rng = np.random.default_rng(3)
    X = np.vstack([rng.standard_normal((20, 2)), 1000 + rng.standard_normal((25, 2))])
    model = RankingAdaptiveNeighbors(4, 1.0).fit(X)
    scores = model.rank([0, 30])
    assert (scores[0, 20:] == 0.0).all() and (scores[0, :20] > 0).all()
    assert (scores[1, :20] == 0.0).all() and (scores[1, 20:] > 0).all()
    assert model.unreached_.tolist() == [25, 20]
    order = model.order([0, 30])
    assert order[0, 0] == 0 and order[1, 0] == 30
    distances = ((X - X[0]) ** 2).sum(axis=1)
    np.testing.assert_array_equal(order[0, 20:], 20 + np.argsort(distances[20:]))
    assert (np.diff(scores[0, order[0]]) <= 0).all()


@pytest.mark.parametrize(("generate", "k"), [(two_moons, 8), (three_rings, 5)])
def test_own_moon_or_ring_comes_first(generate, k):
    for seed in range(3):
        data = generate(noise=0.05, seed=seed)
        queries = [0, int(np.flatnonzero(data.y == 1)[7])]
        model = RankingAdaptiveNeighbors(k, 1.0, max_iter=500).fit(data.X)
        for query, order in zip(queries, model.order(queries)):
            own = np.count_nonzero(data.y == data.y[query])
            assert (data.y[order[:own]] == data.y[query]).all()


def test_the_order_of_a_tail_survives():
    # A chain that the scores descend to far below the accuracy of a residual test.
    rng = np.random.default_rng(4)
    X = np.cumsum(np.column_stack([1 + 0.02 * rng.random(250), np.zeros(250)]), axis=0)
    model = RankingAdaptiveNeighbors(2, 0.2).fit(X)
    scores = model.rank([0])[0]
    assert (scores > 0).all() and scores[-1] < 1e-100
    assert (np.diff(scores) < 0).all()
    solution = model.learned_graph(0)
    A = 0.4 * laplacian(solution.graph).toarray() + np.eye(250)
    dense = np.linalg.solve(A[1:, 1:], -A[1:, 0])
    np.testing.assert_allclose(scores[1:60], dense[:59], rtol=1e-9)


def test_active_points_give_the_same_scores_as_all(monkeypatch):
    rng = np.random.default_rng(5)
    X = rng.random((2500, 2)) * 30
    queries = [0, 1000, [5, 6]]
    model = RankingAdaptiveNeighbors(6, 0.3).fit(X)
    active = model._problem._active(model._problem._first_scores([np.array([0])])[0])
    assert active.sum() < 0.7 * len(X)
    some = model.rank(queries)
    monkeypatch.setattr(adaptive_solver, "_SMALL", 10_000)
    monkeypatch.setattr(adaptive_solver, "_MARGIN", np.inf)
    everything = model.rank(queries)
    np.testing.assert_allclose(some, everything, rtol=1e-6)
    objective_of_all = model.objective_
    monkeypatch.undo()
    model.rank(queries)
    assert model.objective_ == pytest.approx(objective_of_all, rel=1e-10)


def test_points_wrongly_at_rest_are_noticed(monkeypatch):
    rng = np.random.default_rng(6)
    X = rng.random((300, 2)) * 6
    expected = RankingAdaptiveNeighbors(6, 2.0).fit(X).rank([0])
    monkeypatch.setattr(adaptive_solver, "_SMALL", 0)
    monkeypatch.setattr(adaptive_solver, "_MARGIN", 1e-6)  # leaves out what matters
    monkeypatch.setattr(adaptive_solver, "_WORTHWHILE", 1.0)
    model = RankingAdaptiveNeighbors(6, 2.0).fit(X)
    assert model._problem._active(expected.T).sum() < 300
    np.testing.assert_allclose(model.rank([0]), expected, atol=1e-9)


def test_groups_threads_and_single_queries_agree(monkeypatch):
    X = np.random.default_rng(7).standard_normal((60, 3))
    together = RankingAdaptiveNeighbors(5, 1.0).fit(X).rank(range(60))
    monkeypatch.setattr("pipeline_lib.retrieval.adaptive_neighbors.STACK_ROWS", 180)
    threads = RankingAdaptiveNeighbors(5, 1.0, n_jobs=2).fit(X).rank(range(60))
    alone = np.vstack([RankingAdaptiveNeighbors(5, 1.0).fit(X).rank([q]) for q in range(0, 60, 6)])
    np.testing.assert_allclose(threads, together, atol=1e-8)
    np.testing.assert_allclose(alone, together[::6], atol=1e-8)


def test_outside_query_equals_joining_the_database():
    rng = np.random.default_rng(8)
    X, V = rng.standard_normal((40, 3)), rng.standard_normal((4, 3))
    V[2] = X[11]
    model = RankingAdaptiveNeighbors(4, 1.5).fit(X)
    scores = model.rank_vectors(V)
    assert scores.shape == (4, 40)
    for v, row in zip(V, scores):
        joined = RankingAdaptiveNeighbors(4, 1.5).fit(np.vstack([X, v]))
        np.testing.assert_allclose(row, joined.rank([40])[0, :-1], atol=1e-8)
    assert model.unreached_.shape == (4,)


def test_given_neighbours_are_enough():
    X = np.random.default_rng(9).standard_normal((50, 3))
    own = RankingAdaptiveNeighbors(5, 10.0).fit(X).rank([0, 1])
    given = RankingAdaptiveNeighbors(5, 10.0).fit(X, neighbors=nearest_neighbors(X, 6))
    np.testing.assert_allclose(given.rank([0, 1]), own, atol=1e-8)
    with pytest.raises(InputError, match="at least 6"):
        RankingAdaptiveNeighbors(5).fit(X, neighbors=nearest_neighbors(X, 5))
    with pytest.raises(InputError, match="same X"):
        RankingAdaptiveNeighbors(3).fit(X[:40], neighbors=nearest_neighbors(X, 5))


def test_all_points_equal():
    model = RankingAdaptiveNeighbors(3, 1.0).fit(np.ones((8, 2)))
    scores = model.rank([2])[0]
    assert scores[2] == 1.0
    assert np.ptp(np.delete(scores, 2)) < 1e-7
    assert model.order([2])[0, 0] == 2


def test_convergence_is_reported():
    X = np.random.default_rng(10).standard_normal((30, 2))
    model = RankingAdaptiveNeighbors(4, 5.0, max_iter=2).fit(X)
    with pytest.warns(ConvergenceWarning, match="of 3 queries"):
        model.rank([0, 1, 2])
    assert not model.converged_ and model.n_iter_ == 2 == len(model.history_["objective"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.set_params(max_iter=500).fit(X).rank([0, 1, 2])
    assert model.converged_ and model.objective_ == model.history_["objective"][-1]


def test_no_queries():
    model = RankingAdaptiveNeighbors(3).fit(np.random.default_rng(11).random((10, 2)))
    assert model.rank([]).shape == (0, 10)


@pytest.mark.parametrize(
    "options",
    [
        {"n_neighbors": 0},
        {"n_neighbors": 9},
        {"lam": 0.0},
        {"lam": -1.0},
        {"lam": np.inf},
        {"tol": -1.0},
        {"max_iter": 0},
    ],
)
def test_refuses_parameters(options):
    with pytest.raises(InputError):
        RankingAdaptiveNeighbors(**{"n_neighbors": 3, **options}).fit(np.zeros((10, 2)))


@pytest.mark.parametrize("queries", [[10], [-1], [[]], [0.5], [[0, 99]], [["a"]]])
def test_refuses_queries(queries):
    model = RankingAdaptiveNeighbors(3).fit(np.random.default_rng(12).random((10, 2)))
    with pytest.raises(InputError):
        model.rank(queries)


def test_refuses_data():
    with pytest.raises(InputError):
        RankingAdaptiveNeighbors(3).fit([[np.nan, 1.0]] * 10)
    with pytest.raises(InputError, match="at least 3 points"):
        RankingAdaptiveNeighbors(1).fit([[0.0], [1.0]])
    model = RankingAdaptiveNeighbors(3).fit(np.random.default_rng(13).random((10, 2)))
    with pytest.raises(InputError, match="3 features"):
        model.rank_vectors(np.zeros((1, 3)))


def test_clone():
    model = RankingAdaptiveNeighbors(7, 0.5, local=True, tol=1e-6, max_iter=9, n_jobs=2)
    assert clone(model).get_params() == model.get_params()
