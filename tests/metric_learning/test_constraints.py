"""The five ways of making binary constraints, and what is refused."""

import numpy as np
import pytest
from scipy import sparse

from pipeline_lib.errors import InputError
from pipeline_lib.metric_learning.constraints import (
    METHODS,
    UNKNOWN,
    Constraints,
    constraint_embedding,
    from_labels,
    from_tags,
    renumber,
    sample_pairs,
)


@pytest.fixture(scope="module")
def themes() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Images of three themes with tags of their own, features that show the theme, the themes."""
    rng = np.random.default_rng(0)
    theme = np.repeat([0, 1, 2], 30)
    Y = np.zeros((90, 18), dtype=np.uint8)
    for i, t in enumerate(theme):
        Y[i, 6 * t + rng.permutation(6)[:5]] = 1
    X = np.eye(3)[theme] * 4 + 0.1 * rng.standard_normal((90, 3))
    return X, Y, theme


@pytest.mark.parametrize("method", ["clusters", "hierarchical", "joint"])
def test_clusterings_find_the_themes(themes: tuple, method: str) -> None:
    X, Y, theme = themes
    known = from_tags(Y, method, X=X, n_clusters=3, random_state=0)
    assert known.groups is not None
    pairs = {(int(a), int(b)) for a, b in zip(known.groups, theme, strict=True)}
    assert len(pairs) == 3
    again = from_tags(sparse.csr_array(Y), method, X=X, n_clusters=3, random_state=0)
    np.testing.assert_array_equal(known.groups, again.groups)


def test_topics_carry_probabilities_and_leave_untagged_images_out(themes: tuple) -> None:
    _, Y, _ = themes
    Y = Y.copy()
    Y[7] = 0
    known = from_tags(Y, "clusters", n_clusters=3, random_state=0)
    assert known.groups[7] == UNKNOWN
    mass = known.memberships.sum(axis=1)
    assert mass[7] == 0.0
    np.testing.assert_allclose(np.delete(mass, 7), 1.0)


def test_class_labels(themes: tuple) -> None:
    _, Y, theme = themes
    known = from_tags(Y, "classes", labels=np.array(["c", "a", "b"])[theme])
    np.testing.assert_array_equal(known.groups, np.array([2, 0, 1])[theme])
    with pytest.raises(InputError, match="labels"):
        from_tags(Y, "classes")


def test_shared_tags(themes: tuple) -> None:
    _, Y, _ = themes
    known = from_tags(Y, "shared-tags")
    shared = Y.astype(int) @ Y.T
    i, j = known.similar.T
    assert (shared[i, j] > 4).all()
    assert len(known.similar) == np.count_nonzero(np.triu(shared > 4, k=1))
    i, j = known.dissimilar.T
    assert (shared[i, j] == 0).all()
    with pytest.raises(InputError, match="share more than"):
        from_tags(np.eye(6), "shared-tags")


def test_pairs_from_groups_keep_their_promise() -> None:
    groups = np.array([0, 0, 0, 1, 1, 2, UNKNOWN, 1])
    similar, dissimilar = sample_pairs(from_labels(groups), 500, np.random.default_rng(0))
    assert {tuple(p) for p in similar} == {(0, 1), (0, 2), (1, 2), (3, 4), (3, 7), (4, 7)}
    known = [i for i in range(8) if groups[i] != UNKNOWN]
    every = {(i, j) for i in known for j in known if i < j and groups[i] != groups[j]}
    assert {tuple(p) for p in dissimilar} == every


def test_pairs_from_pairs_are_a_subset() -> None:
    rng = np.random.default_rng(1)
    similar = np.array([[0, 1], [1, 0], [2, 2], [2, 3], [4, 5]])
    known = Constraints(6, similar=similar, dissimilar=np.array([[0, 5]]))
    drawn, apart = sample_pairs(known, 10, rng)
    assert {tuple(p) for p in drawn} == {(0, 1), (2, 3), (4, 5)}
    assert len(sample_pairs(known, 2, rng)[0]) == 2
    np.testing.assert_array_equal(apart, [[0, 5]])


def test_group_spectrum_is_that_of_the_dense_matrix() -> None:
    groups = np.array([0, 1, 1, 2, 2, 2, UNKNOWN, 0])
    known = groups != UNKNOWN
    S = np.where(groups[:, None] == groups, 1.0, -1.0) * np.outer(known, known)
    w, V = np.linalg.eigh(S)
    clipped = (V * np.maximum(w, 0.0)) @ V.T
    embedding = constraint_embedding(from_labels(groups), 8)
    np.testing.assert_allclose(embedding @ embedding.T, clipped, atol=1e-10)


def test_pair_spectrum_by_lanczos_is_that_of_the_dense_matrix() -> None:
    rng = np.random.default_rng(2)
    similar, dissimilar = rng.integers(0, 300, (400, 2)), rng.integers(0, 300, (400, 2))
    known = Constraints(300, similar=similar, dissimilar=dissimilar)
    S = known.signs().toarray() + np.eye(300)
    w, V = np.linalg.eigh(S)
    leading = (V[:, -5:] * w[-5:]) @ V[:, -5:].T
    embedding = constraint_embedding(known, 5)
    np.testing.assert_allclose(embedding @ embedding.T, leading, atol=1e-8)


def test_renumber() -> None:
    np.testing.assert_array_equal(renumber([5, -1, 2, 5]), [1, -1, 0, 1])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: from_labels([1, 1, 1]), "one class"),
        (lambda: from_labels([1, -1, 1]), "one class"),
        (lambda: from_labels([0.0, np.nan]), "NaN"),
        (lambda: from_labels([[0, 1]]), "one label a row"),
        (lambda: Constraints(3), "empty"),
        (lambda: Constraints(3, similar=np.array([[0, 1]])), "only one kind"),
        (
            lambda: Constraints(3, similar=np.array([[0, 3]]), dissimilar=np.array([[0, 1]])),
            "holds row 3",
        ),
        (lambda: Constraints(3, similar=np.array([0, 1])), r"expected \(pairs, 2\)"),
        (lambda: Constraints(3, groups=np.array([0, 1])), "shape"),
        (lambda: from_tags(np.eye(3), "topics"), "unknown method"),
        (lambda: from_tags(np.eye(3), "joint", n_clusters=2), "visual features"),
        (lambda: from_tags(np.eye(3), n_clusters=1), "n_clusters"),
        (
            lambda: sample_pairs(from_labels([0, 1, 2]), 5, np.random.default_rng(0)),
            "alone in its class",
        ),
    ],
)
def test_refuses(make, message: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(InputError, match=message):
        make()


def test_methods_are_those_of_the_table() -> None:
    assert METHODS == ("clusters", "classes", "hierarchical", "joint", "shared-tags")
