"""Neighbour search and votes against brute force, ties and tile borders included."""

import numpy as np
import pytest
from scipy import sparse

from pipeline_lib.annotation import voting
from pipeline_lib.annotation.voting import (
    Neighbors,
    nearest_neighbors,
    propagate,
    select_nearest,
    vote_weights,
)
from pipeline_lib.errors import InputError


def brute_force(queries: np.ndarray, gallery: np.ndarray, k: int, distance: str) -> np.ndarray:
    if distance == "cosine":
        queries = queries / np.linalg.norm(queries, axis=1, keepdims=True)
        gallery = gallery / np.linalg.norm(gallery, axis=1, keepdims=True)
    if distance == "euclidean":
        score = -((queries[:, None] - gallery[None]) ** 2).sum(axis=2)
    else:
        score = queries @ gallery.T
    return np.argsort(-score, axis=1, kind="stable")[:, :k]


@pytest.mark.parametrize("distance", voting.DISTANCES)
@pytest.mark.parametrize("k", [1, 7, 60, 100])
def test_matches_brute_force(distance: str, k: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(voting, "_QUERY_TILE", 5)
    monkeypatch.setattr(voting, "_GALLERY_TILE", 17)
    rng = np.random.default_rng(k)
    gallery, queries = rng.standard_normal((60, 4)), rng.standard_normal((23, 4))
    found = nearest_neighbors(queries, gallery, k, distance)
    np.testing.assert_array_equal(found.indices, brute_force(queries, gallery, k, distance))
    assert np.all(np.diff(found.scores, axis=1) <= 0)


@pytest.mark.parametrize("tile", [3, 8, 100])
def test_ties_go_to_the_lower_index_in_every_tiling(
    tile: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(voting, "_GALLERY_TILE", tile)
    rng = np.random.default_rng(0)
    gallery = rng.integers(0, 2, size=(40, 3)).astype(float)
    queries = rng.integers(0, 2, size=(15, 3)).astype(float)
    found = nearest_neighbors(queries, gallery, 9, "inner")
    np.testing.assert_array_equal(found.indices, brute_force(queries, gallery, 9, "inner"))


@pytest.mark.parametrize("distance", ["euclidean", "cosine"])
def test_leave_one_out_never_finds_the_row_itself(distance: str) -> None:
    gallery = np.repeat(np.random.default_rng(1).standard_normal((5, 3)), 3, axis=0)
    found = nearest_neighbors(None, gallery, 14, distance)
    assert found.indices.shape == (15, 14)
    assert not (found.indices == np.arange(15)[:, None]).any()
    np.testing.assert_array_equal(found.indices[3, :2], [4, 5])


def test_select_nearest_sorts_and_breaks_ties() -> None:
    score = np.array([[1.0, 3.0, 3.0, 2.0], [0.0, 0.0, 0.0, 0.0]])
    found = select_nearest(score, 2)
    np.testing.assert_array_equal(found.indices, [[1, 2], [0, 1]])
    np.testing.assert_array_equal(found.scores, [[3.0, 3.0], [0.0, 0.0]])


def test_votes_are_weighted_tag_counts() -> None:
    tags = sparse.csr_array(np.array([[1, 0, 1], [0, 1, 1], [1, 1, 0]], float))
    indices = np.array([[0, 1], [2, 1]])
    weights = np.array([[2.0, 0.5], [1.0, 1.0]])
    np.testing.assert_allclose(
        propagate(indices, weights, tags), [[2.0, 0.5, 2.5], [1.0, 2.0, 1.0]]
    )


def test_similarity_weights_do_not_depend_on_units() -> None:
    rng = np.random.default_rng(5)
    gallery, queries = rng.standard_normal((30, 3)), rng.standard_normal((4, 3))
    weights = [
        vote_weights(
            nearest_neighbors(scale * queries, scale * gallery, 6), "similarity", "euclidean"
        )
        for scale in (1.0, 1e3)
    ]
    np.testing.assert_allclose(weights[0], weights[1], rtol=1e-9)
    same = Neighbors(np.zeros((1, 3), dtype=np.int64), np.zeros((1, 3)))
    np.testing.assert_array_equal(vote_weights(same, "similarity", "euclidean"), np.ones((1, 3)))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((np.eye(2), np.eye(2), 0), "n_neighbors"),
        ((np.eye(2), np.eye(2), 1, "manhattan"), "distance"),
        ((None, np.eye(1), 1), "one row"),
        ((None, np.eye(2), 1, "inner"), "leave one out"),
    ],
)
def test_refuses(arguments: tuple, message: str) -> None:
    with pytest.raises(InputError, match=message):
        nearest_neighbors(*arguments)
