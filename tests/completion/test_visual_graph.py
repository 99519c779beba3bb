"""The visual graph against its definition."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline_lib.completion.visual_graph import (
    neighbor_distances,
    visual_affinity,
    visual_laplacian,
)
from pipeline_lib.errors import InputError


def distances(X: np.ndarray, metric: str) -> np.ndarray:
    A, B = X[:, None], X[None]
    if metric == "euclidean":
        return np.linalg.norm(A - B, axis=2)
    total = A + B
    terms = np.divide((A - B) ** 2, total, out=np.zeros_like(total), where=total > 0)
    return 0.5 * terms.sum(axis=2)


@pytest.mark.parametrize("metric", ["euclidean", "chi2"])
@pytest.mark.parametrize("k", [1, 3, 24])
def test_affinity_by_definition(metric: str, k: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline_lib.completion.visual_graph._BLOCK_ENTRIES", 7 * 25)
    X = np.random.default_rng(0).random((25, 4))
    X[3] = X[4]
    d = distances(X, metric)
    sigma = d.sum() / (25 * 24)
    np.fill_diagonal(d, np.inf)
    near = np.argsort(np.argsort(d, axis=1, kind="stable"), axis=1) < k
    expected = np.where(near | near.T, np.exp(-((d / sigma) ** 2)), 0.0)
    np.fill_diagonal(expected, 0.0)
    W = visual_affinity(X, k, metric).toarray()
    assert np.allclose(W, expected, atol=1e-9)
    L = visual_laplacian(X, k, metric).toarray()
    assert np.allclose(L, np.diag(expected.sum(axis=1)) - expected, atol=1e-9)
    assert np.linalg.eigvalsh(L)[0] > -1e-9


def test_default_number_of_neighbours_is_a_thousandth() -> None:
    X = np.random.default_rng(1).random((2600, 2))
    counts = np.diff(visual_affinity(X).indptr)
    assert counts.min() >= 3
    indices, found = neighbor_distances(X, 3)
    assert indices.shape == found.shape == (2600, 3)
    assert np.all(np.diff(found, axis=1) >= 0.0)


def test_identical_images_are_fully_similar() -> None:
    W = visual_affinity(np.ones((6, 3)), 2)
    assert np.array_equal(W.data, np.ones(W.nnz))


@pytest.mark.parametrize(
    ("X", "k", "metric"),
    [
        (np.ones((1, 2)), None, "euclidean"),
        (np.ones((5, 2)), 5, "euclidean"),
        (np.ones((5, 2)), 0, "chi2"),
        (-np.ones((5, 2)), 2, "chi2"),
        (np.ones((5, 2)), 2, "cosine"),
        (np.full((5, 2), np.nan), 2, "euclidean"),
    ],
)
def test_unusable_input(X: np.ndarray, k: int | None, metric: str) -> None:
    with pytest.raises(InputError):
        visual_affinity(X, k, metric)
