"""Gaussian affinities: values from the definition, graphs, bandwidths, limits."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from pipeline_lib.errors import InputError
from pipeline_lib.graphs.affinity import gaussian_affinity
from pipeline_lib.graphs.neighbors import nearest_neighbors


@pytest.fixture
def X():
    return np.random.default_rng(0).standard_normal((25, 3))


def definition(X, graph, k, sigma, C, K):
    n = len(X)
    D = ((X[:, None] - X[None]) ** 2).sum(axis=-1)
    order = np.argsort(np.where(np.eye(n, dtype=bool), np.inf, D), axis=1)
    near = np.zeros((n, n), dtype=bool)
    np.put_along_axis(near, order[:, :k], True, axis=1)
    edges = {"union": near | near.T, "mutual": near & near.T, "full": ~np.eye(n, dtype=bool)}[graph]
    if C is None:
        W = np.exp(-D / (2 * sigma**2))
    else:
        mean = np.sqrt(np.take_along_axis(D, order[:, :K], axis=1)).mean(axis=1)
        W = np.exp(-D / (C * 0.5 * (mean[:, None] + mean)) ** 2)
    return np.where(edges, W, 0.0)


@pytest.mark.parametrize("graph", ["union", "mutual", "full"])
@pytest.mark.parametrize(("sigma", "C"), [(0.7, None), (20.0, None), (None, 0.5)])
def test_definition(X, graph, sigma, C):
    W = gaussian_affinity(
        X,
        nearest_neighbors(X, 10),
        graph=graph,
        n_neighbors=4,
        sigma=sigma,
        local_scale=C,
        scale_neighbors=6,
    )
    W = W.toarray() if sp.issparse(W) else W
    np.testing.assert_allclose(W, definition(X, graph, 4, sigma, C, 6), atol=1e-13)
    assert (W == W.T).all()


def test_default_bandwidth_is_the_mean_edge_length(X):
    neighbors = nearest_neighbors(X, 3)
    unit = gaussian_affinity(X, neighbors, n_neighbors=3, sigma=1.0)
    mean = np.sqrt(-2 * np.log(unit.data)).mean()
    default = gaussian_affinity(X, neighbors, n_neighbors=3)
    np.testing.assert_allclose(default.data, np.exp(np.log(unit.data) / mean**2))
    full = gaussian_affinity(X, None, graph="full")
    assert 0.1 < full[full > 0].mean() < 0.9


def test_coinciding_points_have_weight_one():
    X = np.repeat([[0.0, 0.0], [5.0, 1.0]], 4, axis=0)
    for graph in ("union", "full"):
        for options in ({}, {"local_scale": 0.25, "scale_neighbors": 3}):
            W = gaussian_affinity(X, nearest_neighbors(X, 3), graph=graph, n_neighbors=3, **options)
            W = W.toarray() if sp.issparse(W) else W
            same = np.kron(np.eye(2), np.ones((4, 4))) - np.eye(8)
            np.testing.assert_allclose(W[same > 0], 1.0)


def test_underflowing_weights_are_not_stored(X):
    W = gaussian_affinity(X, nearest_neighbors(X, 3), n_neighbors=3, sigma=1e-3)
    assert W.nnz == 0


@pytest.mark.parametrize(
    "options",
    [
        {"graph": "ring"},
        {"sigma": 0.0},
        {"sigma": -1.0},
        {"sigma": np.nan},
        {"local_scale": -1.0},
        {"sigma": 1.0, "local_scale": 1.0},
        {"n_neighbors": 99},
    ],
)
def test_refuses(X, options):
    with pytest.raises(InputError):
        gaussian_affinity(X, nearest_neighbors(X, 10), **options)


def test_needs_neighbours(X):
    with pytest.raises(InputError, match="no neighbour graph"):
        gaussian_affinity(X, None)
