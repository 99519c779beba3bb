"""Semantic similarity: every weighting against the formulas of Tables 3.9 and 3.10, entry by entry."""

import math

import numpy as np
import pytest
from scipy import sparse

from pipeline_lib.annotation.semantic import (
    WEIGHTINGS,
    semantic_embedding,
    semantic_similarity,
    weight_tags,
)
from pipeline_lib.errors import InputError

COUNTS = np.array(
    [[1, 0, 2, 0, 1], [0, 1, 1, 0, 1], [3, 0, 0, 0, 1], [0, 0, 0, 0, 1], [1, 1, 0, 0, 1]], float
)


def local_weight(name: str, tf: float) -> float:
    return {"binary": float(tf > 0), "tf": tf, "log": math.log(tf + 1)}[name]


def global_weight(name: str, column: np.ndarray) -> float:
    n = len(column)
    if name == "binary":
        return 1.0
    if name == "normal":
        return 1.0 / math.sqrt(sum(tf * tf for tf in column)) if column.any() else 1.0
    if name == "idf":
        return math.log2(n / (1 + sum(tf > 0 for tf in column)))
    shares = [tf / column.sum() for tf in column if tf > 0]
    return 1.0 + sum(p * math.log(p) for p in shares) / math.log(n)


@pytest.mark.parametrize("weighting", [name for name in WEIGHTINGS if name != "cosine"])
def test_weights_follow_the_tables(weighting: str) -> None:
    local, across = weighting.split("-")
    expected = np.array(
        [
            [
                local_weight(local, COUNTS[i, j]) * global_weight(across, COUNTS[:, j])
                for j in range(COUNTS.shape[1])
            ]
            for i in range(COUNTS.shape[0])
        ]
    )
    np.testing.assert_allclose(weight_tags(COUNTS, weighting).toarray(), expected, atol=1e-12)
    np.testing.assert_allclose(
        weight_tags(sparse.csr_array(COUNTS), weighting).toarray(), expected, atol=1e-12
    )


def test_all_twelve_combinations_and_cosine_exist() -> None:
    assert len(WEIGHTINGS) == 13
    assert "log-entropy" in WEIGHTINGS


def test_cosine_is_the_cosine_of_tag_vectors() -> None:
    lengths = np.linalg.norm(COUNTS, axis=1)
    expected = COUNTS @ COUNTS.T / np.outer(lengths, lengths)
    np.testing.assert_allclose(semantic_similarity(COUNTS, 3, "cosine"), expected, atol=1e-12)


@pytest.mark.parametrize("shape", [(40, 9), (6, 11)])
def test_embedding_matches_a_dense_decomposition(shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(3)
    Y = (rng.random(shape) < 0.4).astype(float)
    Y[0, 0] = 1.0
    W = weight_tags(Y, "log-entropy").toarray()
    U = np.linalg.svd(W, full_matrices=False)[0][:, :4]
    U /= np.maximum(np.linalg.norm(U, axis=1, keepdims=True), 1e-300)
    np.testing.assert_allclose(semantic_similarity(Y, 4), U @ U.T, atol=1e-10)


def test_rows_are_of_unit_length_and_untagged_images_are_zero() -> None:
    rng = np.random.default_rng(0)
    Y = (rng.random((30, 8)) < 0.3).astype(np.uint8)
    Y[4] = 0
    embedding = semantic_embedding(Y, 3)
    lengths = np.linalg.norm(embedding, axis=1)
    assert lengths[4] == 0.0
    tagged = Y.any(axis=1)
    assert np.all(np.isclose(lengths[tagged], 1.0) | (lengths[tagged] == 0.0))


def test_components_are_cut_to_the_rank() -> None:
    Y = np.repeat(np.eye(3), 4, axis=0)
    embedding = semantic_embedding(np.hstack([Y, Y]), 6)
    assert embedding.shape == (12, 3)
    np.testing.assert_allclose(embedding @ embedding.T, Y @ Y.T, atol=1e-12)


@pytest.mark.parametrize(
    ("Y", "kwargs", "message"),
    [
        (np.eye(3), {"weighting": "log"}, "unknown weighting"),
        (np.eye(3), {"n_components": 0}, "n_components"),
        (-np.eye(3), {}, "negative"),
        (np.full((3, 2), np.nan), {}, "NaN"),
        (np.zeros((3, 2)), {}, "all zero"),
        (np.ones((4, 2)), {}, "all zero"),
    ],
)
def test_refuses(Y: np.ndarray, kwargs: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        semantic_embedding(Y, **{"n_components": 2, **kwargs})
