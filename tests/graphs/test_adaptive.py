"""Adaptive neighbours: the initial graph, and the S-step with its certificate against brute force."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline_lib.errors import InputError
from pipeline_lib.graphs.adaptive import AdaptiveNeighbors, initial_graph
from pipeline_lib.graphs.laplacian import laplacian
from pipeline_lib.graphs.neighbors import NeighborGraph, nearest_neighbors
from pipeline_lib.graphs.simplex import project_simplex


def sq_distances(X):
    return ((X[:, None] - X[None]) ** 2).sum(axis=-1)


def brute_force_step(D, gamma):
    off_diagonal = ~np.eye(len(D), dtype=bool)
    return project_simplex(-D / (2 * gamma), off_diagonal)


def random_points(rng, trial):
    n = int(rng.integers(8, 45))
    X = rng.standard_normal((n, int(rng.integers(1, 4))))
    if trial % 3 == 1:
        X = np.round(X)
    elif trial % 3 == 2:
        X[rng.integers(n, size=n // 2)] = X[rng.integers(n, size=n // 2)]
    return X


def test_initial_graph_on_a_line():
    # Squared distances from 0: 1, 9, 36; from 1: 1, 4, 25; from 3: 4, 9, 9; from 6: 9, 25, 36.
    S, gamma = initial_graph([[0.0], [1.0], [3.0], [6.0]], n_neighbors=2)
    expected = [
        [0, 35 / 62, 27 / 62, 0],
        [24 / 45, 0, 21 / 45, 0],
        [0, 1, 0, 0],
        [0, 11 / 38, 27 / 38, 0],
    ]
    np.testing.assert_allclose(S.toarray(), expected, atol=1e-15)
    assert gamma == pytest.approx((62 + 45 + 5 + 38) / 8)


def test_initial_rows_solve_the_problem_with_their_own_gamma():
    X = np.random.default_rng(0).standard_normal((30, 3))
    D, k = sq_distances(X), 4
    S, gamma = initial_graph(X, k)
    ordered = np.sort(D, axis=1)[:, 1:]
    own = 0.5 * (k * ordered[:, k] - ordered[:, :k].sum(axis=1))
    assert gamma == pytest.approx(own.mean())
    np.testing.assert_allclose(S.toarray(), brute_force_step(D, own[:, None]), atol=1e-12)
    assert (np.diff(S.indptr) == k).all()


def test_duplicates_share_the_weight_evenly():
    S, gamma = initial_graph(np.ones((6, 2)), 3)
    assert gamma == 0.0
    np.testing.assert_array_equal(np.diff(S.indptr), 3)
    np.testing.assert_allclose(S.data, 1 / 3)
    updated = AdaptiveNeighbors(np.ones((6, 2)), 3).update()
    np.testing.assert_allclose(updated.toarray(), (1 - np.eye(6)) / 5)


@pytest.mark.parametrize("lam", [0.05, 1.0, 40.0])
def test_certified_step_equals_brute_force(lam):
    rng = np.random.default_rng(1)
    grown = 0
    for trial in range(120):
        X = random_points(rng, trial)
        graph = AdaptiveNeighbors(X, int(rng.integers(1, len(X) - 2)))
        for _ in range(2):
            before = len(graph.lists.indices)
            f = rng.random(len(X))
            S = graph.update(lambda rows, cols, f=f: lam * (f[rows] - f[cols]) ** 2)
            grown += len(graph.lists.indices) > before
            D = sq_distances(X) + lam * (f[:, None] - f) ** 2
            np.testing.assert_allclose(
                S.toarray(), brute_force_step(D, graph.effective_gamma), atol=1e-9
            )
    assert grown > 20  # the certificate did fail, and lists did grow


def test_lists_stay_short():
    X = np.random.default_rng(2).random((3000, 2))
    graph = AdaptiveNeighbors(X, 8)
    S = graph.update()
    assert S.nnz < 20 * len(X)
    assert len(graph.lists.indices) < 40 * len(X)


def test_local_keeps_the_initial_neighbours():
    X = np.random.default_rng(3).standard_normal((25, 2))
    f = np.random.default_rng(4).random(25)
    graph = AdaptiveNeighbors(X, 5, local=True)
    S = graph.update(lambda rows, cols: 3.0 * (f[rows] - f[cols]) ** 2)
    allowed = graph.initial.toarray() > 0
    D = sq_distances(X) + 3.0 * (f[:, None] - f) ** 2
    expected = project_simplex(-D / (2 * graph.gamma), allowed)
    np.testing.assert_allclose(S.toarray(), expected, atol=1e-12)


def test_given_neighbours_are_used():
    X = np.random.default_rng(5).standard_normal((40, 3))
    f = np.random.default_rng(6).random(40)
    own = AdaptiveNeighbors(X, 4)
    given = AdaptiveNeighbors(X, 4, neighbors=nearest_neighbors(X, 5))
    for graph in (own, given):
        graph.update(lambda rows, cols: 9.0 * (f[rows] - f[cols]) ** 2)
    np.testing.assert_allclose(own.graph.toarray(), given.graph.toarray(), atol=1e-14)


def test_refuses():
    X = np.random.default_rng(7).standard_normal((10, 2))
    known = nearest_neighbors(X, 4)
    for k in (0, 9):
        with pytest.raises(InputError, match="n_neighbors"):
            initial_graph(X, k)
    with pytest.raises(InputError, match="at least n_neighbors"):
        initial_graph(X, 4, known)
    with pytest.raises(InputError, match="same X"):
        initial_graph(X[:8], 3, known)
    with pytest.raises(InputError, match="approximate"):
        approximate = NeighborGraph(known.indices, known.sq_distances, exact=False)
        AdaptiveNeighbors(X, 3, neighbors=approximate)


def test_laplacian():
    rng = np.random.default_rng(8)
    S = rng.random((12, 12)) * (rng.random((12, 12)) < 0.4)
    F = rng.standard_normal((12, 3))
    L = laplacian(S)
    smoothness = sum(S[i, j] * ((F[i] - F[j]) ** 2).sum() for i in range(12) for j in range(12))
    assert 2 * np.trace(F.T @ (L @ F)) == pytest.approx(smoothness)
    np.testing.assert_allclose(L.toarray(), L.toarray().T)
    np.testing.assert_allclose(L.sum(axis=1), 0, atol=1e-14)
    for bad in (np.zeros((2, 3)), -np.ones((2, 2)), np.full((2, 2), np.nan)):
        with pytest.raises(InputError):
            laplacian(bad)
