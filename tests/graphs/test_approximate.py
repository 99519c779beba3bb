"""Approximate neighbour search: honest recall, true distances, clear failure without its extra."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from pipeline_lib.errors import InputError
from pipeline_lib.graphs.approximate import _cleaned, approximate_neighbors
from pipeline_lib.graphs.neighbors import nearest_neighbors
from pipeline_lib.retrieval.adaptive_neighbors import RankingAdaptiveNeighbors
from pipeline_lib.retrieval.personalized_pagerank import PersonalizedPageRank


def test_without_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(InputError, match="extra 'ann'"):
        approximate_neighbors(np.eye(5), 2)


def test_recall_and_distances():
    pytest.importorskip("faiss", reason="needs the extra ann")
    X = np.random.default_rng(0).random((1500, 8))
    search = approximate_neighbors(X, 10, sample=1500)
    exact = nearest_neighbors(X, 10)
    hits = [len(np.intersect1d(a, b)) for a, b in zip(search.graph.indices, exact.indices)]
    assert search.recall == pytest.approx(np.mean(hits) / 10)
    assert search.recall > 0.95 and search.sampled == 1500
    assert not search.graph.exact
    assert not (search.graph.indices == np.arange(1500)[:, None]).any()
    rows = np.repeat(np.arange(1500), 10)
    true = ((X[rows] - X[search.graph.indices.ravel()]) ** 2).sum(axis=1)
    np.testing.assert_allclose(search.graph.sq_distances.ravel(), true)
    assert (np.diff(search.graph.sq_distances, axis=1) >= 0).all()
    poor = approximate_neighbors(X, 10, links=2, effort=1)
    assert poor.recall < search.recall


def test_what_was_not_found_is_searched_exactly():
    X = np.random.default_rng(1).random((6, 2))
    exact = nearest_neighbors(X, 2)
    found = np.column_stack([np.arange(6), exact.indices])
    found[4] = [-1, -1, -1]
    found[5] = [5, exact.indices[5, 0], -1]
    graph = _cleaned(X, found, 2)
    np.testing.assert_array_equal(graph.indices, exact.indices)
    np.testing.assert_allclose(graph.sq_distances, exact.sq_distances)


def test_methods_on_an_approximate_graph():
    pytest.importorskip("faiss", reason="needs the extra ann")
    X = np.random.default_rng(2).random((300, 4))
    graph = approximate_neighbors(X, 12).graph
    assert np.isfinite(PersonalizedPageRank().fit(X, neighbors=graph).rank([0])).all()
    local = RankingAdaptiveNeighbors(5, local=True).fit(X, neighbors=graph)
    assert local.rank([0])[0, 0] == 1.0
    with pytest.raises(InputError, match="approximate"):
        RankingAdaptiveNeighbors(5).fit(X, neighbors=graph)
