"""Neighbour search against brute force, with ties, duplicates and bad scales."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline_lib.errors import InputError
from pipeline_lib.graphs import neighbors as module
from pipeline_lib.graphs.neighbors import NeighborGraph, nearest_neighbors


def brute_force(X, k):
    D = ((X[:, None] - X[None]) ** 2).sum(axis=-1)
    np.fill_diagonal(D, np.inf)
    order = np.argsort(D, axis=1, kind="stable")[:, :k]
    return order, np.take_along_axis(D, order, axis=1)


def points(kind, n, rng):
    X = rng.standard_normal((n, 3))
    if kind == "grid":
        X = np.round(X)
    elif kind == "duplicates":
        X[n // 2 :] = X[rng.integers(n // 2, size=n - n // 2)]
    elif kind == "far from the origin":
        X = 1e6 + np.round(X, 3)
    elif kind == "all equal":
        X[:] = 0.3
    return X


KINDS = ["plain", "grid", "duplicates", "far from the origin", "all equal"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("road", ["blocks", "small blocks", "tree"])
def test_equals_brute_force(kind, road, monkeypatch):
    monkeypatch.setattr(module, "_TREE_POINTS", 0 if road == "tree" else 10**9)
    if road == "small blocks":
        monkeypatch.setattr(module, "_BLOCK_ENTRIES", 500)
        monkeypatch.setattr(module, "_PAIR_ENTRIES", 50)
    X = points(kind, 120, np.random.default_rng(4))
    graph = nearest_neighbors(X, 9)
    indices, distances = brute_force(X, 9)
    np.testing.assert_array_equal(graph.indices, indices)
    np.testing.assert_allclose(graph.sq_distances, distances, rtol=1e-13)
    assert graph.exact


def test_near_duplicates_keep_their_tiny_distance():
    rng = np.random.default_rng(5)
    X = rng.standard_normal((50, 20)) * 100
    X = np.vstack([X, X + 1e-9 * rng.standard_normal(X.shape)])
    graph = nearest_neighbors(X, 1)
    np.testing.assert_array_equal(graph.indices[:, 0], np.r_[50:100, 0:50])
    np.testing.assert_allclose(
        graph.sq_distances[:50, 0], ((X[:50] - X[50:]) ** 2).sum(axis=1), rtol=1e-12
    )


def test_all_other_points_and_two_points():
    X = np.random.default_rng(6).standard_normal((7, 2))
    assert np.array_equal(
        np.sort(nearest_neighbors(X, 6).indices, axis=1),
        [[j for j in range(7) if j != i] for i in range(7)],
    )
    assert nearest_neighbors(X[:2], 1).indices.tolist() == [[1], [0]]


def test_first_columns():
    X = np.random.default_rng(7).standard_normal((30, 4))
    wide, narrow = nearest_neighbors(X, 8), nearest_neighbors(X, 3)
    np.testing.assert_array_equal(wide.nearest(3).indices, narrow.indices)
    np.testing.assert_array_equal(wide.nearest(3).sq_distances, narrow.sq_distances)
    with pytest.raises(InputError, match="3 neighbours per point"):
        narrow.nearest(4)


@pytest.mark.parametrize(
    ("X", "k"),
    [
        (np.zeros((4, 2)), 0),
        (np.zeros((4, 2)), 4),
        (np.zeros((1, 2)), 1),
        (np.full((4, 2), np.nan), 1),
        (np.zeros(4), 1),
    ],
)
def test_refuses(X, k):
    with pytest.raises(InputError):
        nearest_neighbors(X, k)


def test_graph_needs_one_shape():
    with pytest.raises(InputError, match="one shape"):
        NeighborGraph(np.zeros((3, 2), dtype=int), np.zeros((3, 1)))
