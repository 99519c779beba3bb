"""Euclidean ranking, query expansion, k-reciprocal re-ranking, and the order of ranked lists."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

from pipeline_lib.errors import InputError
from pipeline_lib.graphs.neighbors import sq_distances
from pipeline_lib.retrieval.base import query_points, ranked_list, scores_of_order
from pipeline_lib.retrieval.euclidean import EuclideanRanking
from pipeline_lib.retrieval.query_expansion import AverageQueryExpansion
from pipeline_lib.retrieval.reciprocal_reranking import KReciprocalReranking


@pytest.fixture
def X():
    return np.random.default_rng(0).standard_normal((45, 3))


def distances(A, B):
    return np.sqrt(((A[:, None] - B) ** 2).sum(axis=-1))


def test_euclidean(X):
    model = EuclideanRanking().fit(X)
    D = distances(X, X)
    expected = -np.array([D[3], np.minimum(D[4], D[5]), D[6]])
    np.testing.assert_allclose(model.rank([3, [5, 4, 5], 6]), expected, atol=1e-12)
    np.testing.assert_allclose(model.rank_vectors(X[:4] + 1), -distances(X[:4] + 1, X))
    np.testing.assert_array_equal(model.order([3])[0], np.argsort(D[3], kind="stable"))
    np.testing.assert_array_equal(model.order_vectors(X[3:4])[0], model.order([3])[0])


def test_distances_between_near_points_are_accurate():
    rng = np.random.default_rng(1)
    A = 1e4 + rng.standard_normal((30, 5))
    B = np.vstack([A + 1e-7 * rng.standard_normal(A.shape), 1e4 + rng.standard_normal((20, 5))])
    direct = ((A[:, None] - B) ** 2).sum(axis=-1)
    np.testing.assert_allclose(sq_distances(A, B), direct, rtol=1e-9)
    assert not np.diag(sq_distances(A, A)).any()


def test_order_of_ties():
    scores = np.array([0.0, 0.5, 0.0, 0.5, 0.9, 0.0])
    nearness = np.array([1.0, 4.0, 1.0, 3.0, 9.0, 0.5])
    assert ranked_list(scores, nearness).tolist() == [4, 3, 1, 5, 0, 2]
    assert ranked_list(scores, nearness, first=np.array([2])).tolist() == [2, 4, 3, 1, 5, 0]
    order = np.array([[2, 0, 1], [0, 1, 2]])
    np.testing.assert_array_equal(np.argsort(-scores_of_order(order), axis=1), order)


def test_query_expansion(X):
    k = 3
    model = AverageQueryExpansion(k).fit(X)
    D = distances(X, X)
    order = np.argsort(D, axis=1, kind="stable")
    for query in (0, 9):
        expanded = X[order[query, : k + 1]].mean(axis=0)
        np.testing.assert_allclose(
            model.rank([query])[0], -distances(expanded[None], X)[0], atol=1e-9
        )
    v = np.array([[0.3, -0.2, 0.1]])
    found = np.argsort(distances(v, X)[0])[:k]
    expanded = (v[0] + X[found].sum(axis=0)) / (k + 1)
    np.testing.assert_allclose(model.rank_vectors(v)[0], -distances(expanded[None], X)[0])


def test_query_expansion_of_several_points(X):
    model = AverageQueryExpansion(2).fit(X)
    mean = X[[1, 2]].mean(axis=0)
    D = distances(mean[None], X)[0]
    D[[1, 2]] = np.inf
    expanded = (mean + X[np.argsort(D)[:2]].sum(axis=0)) / 3
    np.testing.assert_allclose(model.rank([[2, 1]])[0], -distances(expanded[None], X)[0])
    tiny = AverageQueryExpansion(2).fit(X[:3])
    assert np.isfinite(tiny.rank([[0, 1]])).all()


def reciprocal_by_definition(X, query, k1, k2, weight):
    n = len(X)
    D = ((X[:, None] - X) ** 2).sum(axis=-1)
    order = np.argsort(np.where(np.eye(n, dtype=bool), -1.0, D), axis=1, kind="stable")
    d = D / (D.sum() / (n * (n - 1)))

    def near(p, k):
        return set(order[p, : k + 1].tolist())

    def mutual(p, k):
        return {g for g in near(p, k) if p in near(g, k)}

    V = np.zeros((n, n))
    for p in range(n):
        base = mutual(p, k1)
        expanded = set(base)
        for g in base:
            other = mutual(g, max(1, round(k1 / 2)))
            if 3 * len(base & other) >= 2 * len(other):
                expanded |= other
        members = sorted(expanded)
        V[p, members] = np.exp(-d[p, members])
        V[p] /= V[p].sum()
    V = np.array([V[sorted(near(p, k2 - 1))].mean(axis=0) for p in range(n)])
    J = 1 - np.minimum(V[query], V).sum(axis=1) / np.maximum(V[query], V).sum(axis=1)
    return -((1 - weight) * J + weight * d[query])


@pytest.mark.parametrize(
    ("k1", "k2", "weight"), [(8, 3, 0.3), (5, 1, 0.0), (12, 6, 1.0), (1, 1, 0.5)]
)
def test_reciprocal_reranking(X, k1, k2, weight):
    model = KReciprocalReranking(k1, k2, weight).fit(X)
    expected = [reciprocal_by_definition(X, query, k1, k2, weight) for query in (0, 11)]
    np.testing.assert_allclose(model.rank([0, 11]), expected, atol=1e-12)
    np.testing.assert_allclose(model.rank([[11, 0]])[0], np.max(expected, axis=0), atol=1e-12)


def test_reciprocal_reranking_outside(X):
    v = np.array([[0.1, 0.2, -0.3]])
    row = KReciprocalReranking(6, 3).fit(X).rank_vectors(v)[0]
    joined = KReciprocalReranking(6, 3).fit(np.vstack([X, v])).rank([45])[0]
    np.testing.assert_allclose(row, joined[:-1], atol=1e-12)


def test_equal_points():
    X = np.ones((9, 2))
    for model in (EuclideanRanking(), AverageQueryExpansion(3), KReciprocalReranking(4, 2)):
        scores = model.fit(X).rank([0, 5])
        assert np.isfinite(scores).all()
        assert model.order([5])[0].tolist() == [5, 0, 1, 2, 3, 4, 6, 7, 8] or np.ptp(scores) > 0


@pytest.mark.parametrize(
    "model",
    [
        AverageQueryExpansion(0),
        AverageQueryExpansion(45),
        KReciprocalReranking(0),
        KReciprocalReranking(45),
        KReciprocalReranking(5, 7),
        KReciprocalReranking(5, 0),
        KReciprocalReranking(5, 2, 1.5),
    ],
    ids=repr,
)
def test_refuses(X, model):
    with pytest.raises(InputError):
        model.fit(X)


def test_not_fitted_and_queries():
    with pytest.raises(NotFittedError):
        EuclideanRanking().rank([0])
    assert [q.tolist() for q in query_points(np.array([3, 0]), 4)] == [[3], [0]]
    assert query_points([[2, 1, 2]], 4)[0].tolist() == [1, 2]
    for bad in ([4], [-1], [[]], [1.5], [True]):
        with pytest.raises(InputError):
            query_points(bad, 4)
