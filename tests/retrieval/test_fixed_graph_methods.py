"""Diffusion on fixed graphs: the formulas on dense matrices, two solvers, limits, outside queries."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone

from pipeline_lib.errors import InputError
from pipeline_lib.graphs.neighbors import nearest_neighbors
from pipeline_lib.retrieval.graph_transduction import GraphTransduction
from pipeline_lib.retrieval.manifold_ranking import ManifoldRanking
from pipeline_lib.retrieval.personalized_pagerank import PersonalizedPageRank
from pipeline_lib.retrieval.self_diffusion import SelfDiffusion

GRAPHS = [
    {"graph": "union", "n_neighbors": 4, "sigma": 0.8},
    {"graph": "mutual", "n_neighbors": 4, "sigma": 0.8},
    {"graph": "full", "sigma": 0.5},
    {"graph": "union", "n_neighbors": 4, "local_scale": 0.6, "scale_neighbors": 6},
    {"graph": "full", "local_scale": 0.6, "scale_neighbors": 6},
]
METHODS = [
    lambda **graph: SelfDiffusion(6, **graph),
    lambda **graph: PersonalizedPageRank(0.85, **graph),
    lambda **graph: ManifoldRanking(0.9, **graph),
    lambda **graph: GraphTransduction(9, **{"local_scale": None, **graph}),
]


@pytest.fixture
def X():
    return np.random.default_rng(0).standard_normal((40, 2))


def dense_graph(model):
    W = model.affinity_.toarray() if sp.issparse(model.affinity_) else model.affinity_
    return W, np.diag(np.where(W.sum(axis=1) > 0, W.sum(axis=1), 1.0))


def by_definition(model, query):
    W, D = dense_graph(model)
    n = len(W)
    P = np.linalg.inv(D) @ W
    y = np.zeros(n)
    y[query] = 1.0
    if isinstance(model, SelfDiffusion):
        diffused = np.eye(n)
        for _ in range(model.n_steps):
            diffused = diffused @ P + np.eye(n)
        return (diffused @ np.linalg.inv(D))[np.atleast_1d(query)].sum(axis=0)
    if isinstance(model, PersonalizedPageRank):
        a = model.damping
        return (1 - a) * np.linalg.solve(np.eye(n) - a * P.T, y)
    if isinstance(model, ManifoldRanking):
        root = np.diag(1 / np.sqrt(np.diag(D)))
        return np.linalg.solve(np.eye(n) - model.damping * root @ W @ root, y)
    clamped = P.copy()
    clamped[query] = 0.0
    clamped[query, query] = 1.0
    return np.linalg.matrix_power(clamped, model.n_steps) @ y


@pytest.mark.parametrize("graph", GRAPHS, ids=str)
@pytest.mark.parametrize("method", METHODS)
def test_formula(X, method, graph):
    model = method(**graph).fit(X)
    queries = [0, 17, [3, 4, 30]]
    scores = model.rank(queries)
    for query, row in zip(queries, scores):
        np.testing.assert_allclose(row, by_definition(model, query), rtol=1e-9, atol=1e-13)
    assert model.unreached_.tolist() == (scores == 0).sum(axis=1).tolist()


@pytest.mark.parametrize("graph", GRAPHS, ids=str)
@pytest.mark.parametrize(
    ("method", "damping"),
    [(PersonalizedPageRank, 0.85), (ManifoldRanking, 0.99), (ManifoldRanking, 0.2)],
)
def test_closed_form_and_iteration_agree_to_the_end_of_the_tail(method, damping, graph):
    X = np.random.default_rng(1).random((150, 2)) * [40, 1]
    closed = method(damping, solver="closed", **graph).fit(X).rank([0, 75])
    iterated = method(damping, solver="iterative", **graph).fit(X).rank([0, 75])
    automatic = method(damping, **graph).fit(X).rank([0, 75])
    np.testing.assert_array_equal(automatic, closed)
    np.testing.assert_array_equal(iterated == 0, closed == 0)
    np.testing.assert_allclose(iterated, closed, rtol=1e-8)


def test_large_data_take_the_iteration():
    X = np.random.default_rng(2).random((2200, 2))
    automatic = PersonalizedPageRank(n_neighbors=5).fit(X).rank([5, [6, 7]])
    closed = PersonalizedPageRank(n_neighbors=5, solver="closed").fit(X).rank([5, [6, 7]])
    assert (automatic != closed).any()
    np.testing.assert_allclose(automatic, closed, rtol=1e-8)
    np.testing.assert_allclose(automatic.sum(axis=1), [1.0, 2.0])


def test_tolerance_bounds_the_error(X):
    exact = PersonalizedPageRank(0.85, solver="closed").fit(X).rank([0])
    rough = PersonalizedPageRank(0.85, solver="iterative", tol=1e-4).fit(X).rank([0])
    error = np.abs(rough - exact) / np.where(exact > 0, exact, 1.0)
    assert 1e-10 < error.max() < 1e-2


def test_pagerank_is_a_distribution_and_the_graph_is_symmetric(X):
    scores = PersonalizedPageRank().fit(X).rank(range(40))
    np.testing.assert_allclose(scores.sum(axis=1), 1.0)
    ranks = ManifoldRanking().fit(X).rank(range(40))
    np.testing.assert_allclose(ranks, ranks.T, rtol=1e-9)
    diffused = SelfDiffusion().fit(X).rank(range(40))
    np.testing.assert_allclose(diffused, diffused.T, rtol=1e-12)


def test_transduction_rises_to_one_within_the_component(X):
    few = GraphTransduction(3, graph="union", local_scale=None).fit(X).rank([0])[0]
    more = GraphTransduction(30, graph="union", local_scale=None).fit(X).rank([0])[0]
    end = GraphTransduction(10**9, graph="union", local_scale=None).fit(X).rank([0])[0]
    assert (few <= more).all() and (more <= end * (1 + 1e-12)).all()
    np.testing.assert_allclose(end[end > 0], 1.0, atol=1e-9)


@pytest.mark.parametrize("method", METHODS)
def test_isolated_and_separated_points(method):
    rng = np.random.default_rng(3)
    X = np.vstack([rng.standard_normal((10, 2)), 500 + rng.standard_normal((10, 2)), [[9e3, 0]]])
    model = method(graph="mutual", n_neighbors=3, sigma=1.0).fit(X)
    scores = model.rank([0, 20])
    assert np.isfinite(scores).all()
    assert not scores[0, 10:].any() and scores[0, 0] > 0
    assert scores[1, 20] > 0 and not scores[1, :20].any()
    order = model.order([0])[0]
    assert order[0] == 0 and order[-1] == 20


@pytest.mark.parametrize("graph", GRAPHS, ids=str)
@pytest.mark.parametrize("method", METHODS)
def test_outside_query_equals_joining_the_database(X, method, graph):
    V = np.vstack([np.random.default_rng(4).standard_normal((2, 2)), X[:1]])
    model = method(**graph).fit(X)
    for v, row in zip(V, model.rank_vectors(V)):
        joined = method(**graph).fit(np.vstack([X, v])).rank([40])[0]
        np.testing.assert_allclose(row, joined[:-1], rtol=1e-9, atol=1e-300)


@pytest.mark.parametrize("method", METHODS)
def test_given_neighbours(X, method):
    graph = {"graph": "union", "n_neighbors": 4, "local_scale": 0.6, "scale_neighbors": 6}
    own = method(**graph).fit(X).rank([1])
    shared = nearest_neighbors(X, 12)
    np.testing.assert_array_equal(method(**graph).fit(X, neighbors=shared).rank([1]), own)
    with pytest.raises(InputError, match="at least 6"):
        method(**graph).fit(X, neighbors=nearest_neighbors(X, 5))


@pytest.mark.parametrize("method", METHODS)
def test_blocks_of_queries(X, method, monkeypatch):
    model = method(graph="union", n_neighbors=4).fit(X)
    queries = [[0, 1], 2, [3, 9, 8], 4, 5]
    whole = model.rank(queries), model.order(queries)
    monkeypatch.setattr("pipeline_lib.retrieval.base._BLOCK_ENTRIES", 80)
    np.testing.assert_allclose(model.rank(queries), whole[0], rtol=1e-12)
    np.testing.assert_array_equal(model.order(queries), whole[1])


@pytest.mark.parametrize(
    "model",
    [
        SelfDiffusion(0),
        GraphTransduction(0),
        PersonalizedPageRank(1.0),
        PersonalizedPageRank(0.0),
        PersonalizedPageRank(solver="magic"),
        PersonalizedPageRank(tol=0.0),
        ManifoldRanking(-0.1),
        ManifoldRanking(graph="ring"),
        ManifoldRanking(n_neighbors=40),
        ManifoldRanking(n_neighbors=0),
        ManifoldRanking(local_scale=0.3, scale_neighbors=40),
    ],
    ids=repr,
)
def test_refuses(X, model):
    with pytest.raises(InputError):
        clone(model).fit(X)
