"""Spectral embedding, k-means on representations, and the two together."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.base import clone

from pipeline_lib.clustering import spectral
from pipeline_lib.clustering.labels import RepresentationClustering, codes_to_labels
from pipeline_lib.clustering.spectral import SpectralEmbedding, smoothest_functions
from pipeline_lib.errors import InputError
from pipeline_lib.features.pca import PCA
from pipeline_lib.metrics.clustering import clustering_accuracy

Array = NDArray[np.float64]


def rings(n: int = 120) -> tuple[Array, NDArray[np.int64]]:
    y = np.repeat([0, 1, 2], n // 3)
    angle = np.tile(np.linspace(0, 2 * np.pi, n // 3, endpoint=False), 3)
    radius = 1.0 + 2.0 * y
    return np.column_stack([radius * np.cos(angle), radius * np.sin(angle)]), y


def test_embedding_solves_the_eigenproblem() -> None:
    X, _ = rings()
    model = SpectralEmbedding(n_components=6, n_neighbors=4).fit(X)
    W = model.graph_.toarray()
    scale = 1 / np.sqrt(W.sum(axis=1))
    normalized = np.eye(len(X)) - scale[:, None] * W * scale
    np.testing.assert_allclose(model.eigenvalues_, np.linalg.eigvalsh(normalized)[:6], atol=1e-9)
    np.testing.assert_allclose(np.linalg.norm(model.embedding_, axis=1), 1.0)
    _, vectors = smoothest_functions(model.graph_, 6)
    np.testing.assert_allclose(normalized @ vectors, vectors * model.eigenvalues_, atol=1e-7)


def test_separate_components_give_the_eigenvalue_zero_as_often() -> None:
    X, _y = rings()
    model = SpectralEmbedding(n_components=4, n_neighbors=2).fit(X)
    assert model.n_connected_ == 3
    assert (np.abs(model.eigenvalues_[:3]) < 1e-9).all() and model.eigenvalues_[3] > 1e-4


def test_lanczos_and_dense_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    blocks = [sp.random_array((40, 40), density=0.2, rng=rng) for _ in range(3)]
    graph = sp.block_diag([abs(block) + abs(block.T) for block in blocks], format="csr")
    graph = sp.csr_array(graph)
    expected, dense_vectors = smoothest_functions(graph, 5)
    monkeypatch.setattr(spectral, "_DENSE_BELOW", 10)
    values, vectors = smoothest_functions(graph, 5)
    np.testing.assert_allclose(values, expected, atol=1e-8)
    np.testing.assert_allclose(
        vectors[:, :3] @ vectors[:, :3].T, dense_vectors[:, :3] @ dense_vectors[:, :3].T, atol=1e-6
    )


@pytest.mark.parametrize("graph", ["union", "adaptive"])
def test_spectral_clustering_separates_rings_where_k_means_cannot(graph: str) -> None:
    X, y = rings()
    embedding = SpectralEmbedding(n_components=3, n_neighbors=3, graph=graph)
    model = RepresentationClustering(embedding, n_clusters=3, random_state=0)
    assert clustering_accuracy(y, model.fit_predict(X)) == 1.0
    assert model.embedding_.shape == (len(X), 3)
    plain = RepresentationClustering(n_clusters=3, random_state=0).fit_predict(X)
    assert clustering_accuracy(y, plain) < 0.7


def test_isolated_point_and_extreme_counts() -> None:
    graph = sp.csr_array(np.array([[0, 1.0, 0], [1.0, 0, 0], [0, 0, 0]]))
    values, vectors = smoothest_functions(graph, 3)
    assert np.isfinite(vectors).all()
    np.testing.assert_allclose(values, [0.0, 1.0, 2.0], atol=1e-12)
    with pytest.raises(InputError, match="n_components"):
        SpectralEmbedding(n_components=5, n_neighbors=1).fit(np.eye(3))
    with pytest.raises(InputError, match="graph"):
        SpectralEmbedding(n_components=2, n_neighbors=1, graph="full").fit(np.eye(3))


def test_labels_are_the_best_of_the_restarts() -> None:
    rng = np.random.default_rng(1)
    codes = rng.standard_normal((120, 3))

    def spread(labels: NDArray[np.int64]) -> float:
        groups = [codes[labels == k] for k in range(12)]
        return float(sum(((g - g.mean(axis=0)) ** 2).sum() for g in groups if len(g)))

    once = [spread(codes_to_labels(codes, 12, n_init=1, random_state=s)) for s in range(10)]
    best = spread(codes_to_labels(codes, 12, n_init=50, random_state=0))
    assert best < np.mean(once) and best <= np.sort(once)[1]
    first = codes_to_labels(codes, 12, random_state=7)
    np.testing.assert_array_equal(first, codes_to_labels(codes, 12, random_state=7))


def test_degenerate_and_unusable_codes() -> None:
    assert set(codes_to_labels(np.zeros((5, 2)), 3)) == {0}
    assert len(set(codes_to_labels(np.eye(4), 4))) == 4
    with pytest.raises(InputError, match="n_clusters"):
        codes_to_labels(np.eye(3), 4)
    with pytest.raises(InputError, match="n_init"):
        codes_to_labels(np.eye(3), 2, n_init=0)
    with pytest.raises(InputError, match="NaN"):
        codes_to_labels(np.full((3, 2), np.nan), 2)


def test_representation_is_cloned_and_composes() -> None:
    X, _ = rings()
    pca = PCA(n_components=1)
    model = clone(RepresentationClustering(pca, n_clusters=2, n_init=3, random_state=0)).fit(X)
    assert not hasattr(pca, "components_")
    np.testing.assert_allclose(model.embedding_, model.representation_.transform(X))
    np.testing.assert_array_equal(
        model.labels_, codes_to_labels(model.embedding_, 2, n_init=3, random_state=0)
    )
