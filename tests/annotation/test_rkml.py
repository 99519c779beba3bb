"""RKML: known values, and every form against the dense formulas of the thesis."""

import json
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone

from pipeline_lib.annotation.rkml import RKML, RKMLH, RKMLO, RLML
from pipeline_lib.annotation.semantic import semantic_embedding, semantic_similarity
from pipeline_lib.errors import InputError
from pipeline_lib.metric_learning.constraints import Constraints, from_labels

KNOWN = json.loads((Path(__file__).parent / "known_values_rkml.json").read_text())


@pytest.fixture(scope="module")
def known() -> dict:
    return {
        name: np.array(value) if isinstance(value, list) else value for name, value in KNOWN.items()
    }


@pytest.fixture(scope="module")
def images() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows around tag-dependent centres: 80 training images, their tags, 11 queries."""
    rng = np.random.default_rng(7)
    Y = (rng.random((80, 9)) < 0.3).astype(np.uint8)
    Y[:, 0] |= Y.sum(axis=1) == 0
    centres = rng.standard_normal((9, 5))
    X = Y @ centres + 0.3 * rng.standard_normal((80, 5))
    return X, Y, X[:11] + 0.1 * rng.standard_normal((11, 5))


def rbf(A: np.ndarray, B: np.ndarray, gamma: float) -> np.ndarray:
    return np.exp(-gamma * ((A[:, None] - B[None]) ** 2).sum(axis=2))


def pseudo_inverse(K: np.ndarray, rank: int) -> np.ndarray:
    w, V = np.linalg.eigh(K)
    w, V = w[::-1][:rank], V[:, ::-1][:, :rank]
    return (V / w) @ V.T


def test_known_values(known: dict) -> None:
    X, Y, Xq = known["X"], known["Y"], known["Xq"]
    np.testing.assert_allclose(
        semantic_similarity(Y, known["n_components"])[0],
        known["semantic_similarity_first_row"],
        atol=1e-8,
    )
    model = RKML(known["gamma"], known["rank"], known["n_components"]).fit(X, Y)
    np.testing.assert_allclose((model.coef_ @ model.coef_.T)[0], known["A_first_row"], atol=1e-8)
    np.testing.assert_allclose(
        model.transform(Xq) @ model.transform(X).T, known["similarity"], atol=1e-8
    )


@pytest.mark.parametrize("rank", [3, 8, 20])
@pytest.mark.parametrize("smoothing", [0.0, 0.7])
def test_every_row_a_landmark_is_the_original_method(
    known: dict, rank: int, smoothing: float
) -> None:
    X, Y, Xq = known["X"], known["Y"], known["Xq"]
    sampled = RKML(known["gamma"], rank, 4, n_samples=len(X), smoothing=smoothing).fit(X, Y)
    original = RKMLO(known["gamma"], rank, 4, smoothing=smoothing).fit(X, Y)
    expected = original.transform(Xq) @ original.embedding_.T
    np.testing.assert_allclose(sampled.transform(Xq) @ sampled.embedding_.T, expected, atol=1e-8)
    np.testing.assert_allclose(sampled.predict(Xq), original.predict(Xq), atol=1e-8)


def test_inner_products_are_the_similarity(images: tuple) -> None:
    X, Y, Xq = images
    model = RKML(0.3, 12, 5).fit(X, Y)
    inverse = pseudo_inverse(rbf(X, X, 0.3), 12)
    A = inverse @ semantic_similarity(Y, 5) @ inverse
    expected = rbf(Xq, X, 0.3) @ A @ rbf(X, X, 0.3)
    np.testing.assert_allclose(model.transform(Xq) @ model.transform(X).T, expected, atol=1e-9)
    np.testing.assert_array_equal(model.embedding_, model.transform(X))


def test_smoothed_inverse(images: tuple) -> None:
    X, Y, Xq = images
    w, V = np.linalg.eigh(rbf(X, X, 0.3))
    w, V = w[::-1][:12], V[:, ::-1][:, :12]
    B = (V * (w / (w**2 + 2.0))) @ V.T @ semantic_embedding(Y, 5)
    model = RKML(0.3, 12, 5, smoothing=2.0).fit(X, Y)
    np.testing.assert_allclose(model.transform(Xq), rbf(Xq, X, 0.3) @ B, atol=1e-10)


def test_landmark_form_is_the_nystroem_form(images: tuple) -> None:
    """(3.6) with phi(x) approximated alike, written out densely, at r = n_s."""
    X, Y, Xq = images
    model = RKML(0.3, 15, 5, n_samples=15, random_state=4).fit(X, Y)
    Z = model.landmarks_
    Kb, Ks, Kq = rbf(X, Z, 0.3), rbf(Z, Z, 0.3), rbf(Xq, Z, 0.3)
    Kr = Kb @ np.linalg.solve(Ks, Kb.T)
    inverse = pseudo_inverse(Kr, 15)
    A = inverse @ semantic_similarity(Y, 5) @ inverse
    phi, phi_q = Kr, Kq @ np.linalg.solve(Ks, Kb.T)
    np.testing.assert_allclose(model.transform(Xq) @ model.embedding_.T, phi_q @ A @ phi, atol=1e-6)


@pytest.mark.parametrize("n_samples", [None, 20])
def test_direct_scoring_is_algorithm_1(images: tuple, n_samples: int | None) -> None:
    X, Y, Xq = images
    model = RKML(0.3, 10, 5, n_samples, smoothing=0.05, vote="direct", random_state=1).fit(X, Y)
    Z = model.landmarks_
    assert len(Z) == (10 if n_samples is None else 20)
    Kg = rbf(X, Z, 0.3)
    _, s, Vt = np.linalg.svd(Kg, full_matrices=False)
    A = (Vt[:10].T / (s[:10] ** 2 + 0.05)) @ Vt[:10]
    expected = rbf(Xq, Z, 0.3) @ A @ (Kg.T @ Y) @ (Y.T @ Y.astype(float))
    np.testing.assert_allclose(model.predict(Xq), expected, atol=1e-8)


def test_linear_kernel_needs_no_kernel_matrix(images: tuple) -> None:
    X, Y, Xq = images
    primal = RLML(4, 5, smoothing=0.1).fit(X, Y)
    assert primal.coef_.shape[0] == X.shape[1]
    w, V = np.linalg.eigh(X @ X.T)
    w, V = w[::-1][:4], V[:, ::-1][:, :4]
    B = (V * (w / (w**2 + 0.1))) @ V.T @ semantic_embedding(Y, 5)
    np.testing.assert_allclose(primal.transform(Xq), Xq @ X.T @ B, atol=1e-10)


@pytest.mark.parametrize("kernel", ["rbf", "chi2", "linear", "intersection"])
@pytest.mark.parametrize("vote", ["majority", "similarity", "direct"])
def test_kernels_and_votes(images: tuple, kernel: str, vote: str) -> None:
    X, Y, Xq = images
    model = RKML(
        0.3, 5, 4, n_samples=30, kernel=kernel, vote=vote, n_neighbors=7, random_state=0
    ).fit(np.abs(X), Y)
    scores = model.predict(np.abs(Xq))
    assert scores.shape == (11, 9)
    assert np.isfinite(scores).all()
    if vote == "majority":
        np.testing.assert_array_equal(scores, np.round(scores))
        assert scores.max() <= 7


def test_similarity_vote_is_equation_3_7(images: tuple) -> None:
    X, Y, Xq = images
    model = RKML(0.3, 12, 5, n_neighbors=6).fit(X, Y)
    similarity = model.transform(Xq) @ model.transform(X).T
    for scores, row in zip(model.predict(Xq), similarity, strict=True):
        nearest = np.argsort(-row, kind="stable")[:6]
        np.testing.assert_allclose(scores, row[nearest] @ Y[nearest], atol=1e-10)


def test_unit_rows(images: tuple) -> None:
    X, Y, Xq = images
    model = RKML(0.3, 12, 5, normalize=True).fit(X, Y)
    np.testing.assert_allclose(np.linalg.norm(model.transform(Xq), axis=1), 1.0)
    plain = RKML(0.3, 12, 5).fit(X, Y).transform(Xq)
    np.testing.assert_allclose(
        model.transform(Xq), plain / np.linalg.norm(plain, axis=1, keepdims=True)
    )


def test_nystroem_never_holds_n_by_n() -> None:
    rng = np.random.default_rng(0)
    n = 6000
    X = rng.standard_normal((n, 4)).astype(np.float64)
    Y = (rng.random((n, 6)) < 0.3).astype(np.uint8)
    tracemalloc.start()
    RKML(0.3, 8, 4, n_samples=60, random_state=0).fit(X, Y)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 * n * n / 10


def test_single_precision_agrees(images: tuple) -> None:
    X, Y, Xq = images
    shifted, queries = X + 50.0, Xq + 50.0
    double, single = (
        RKML(0.3, 12, 5, n_samples=40, random_state=0, precision=precision).fit(shifted, Y)
        for precision in ("double", "single")
    )
    expected = double.transform(queries)
    np.testing.assert_allclose(
        single.transform(queries) @ single.embedding_.T,
        expected @ double.embedding_.T,
        atol=2e-5 * np.abs(expected @ double.embedding_.T).max(),
    )


def test_landmarks_follow_random_state(images: tuple) -> None:
    X, Y, Xq = images
    first, again, other = (
        RKML(0.3, 8, 5, n_samples=20, random_state=seed).fit(X, Y) for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(first.predict(Xq), again.predict(Xq))
    assert not np.array_equal(first.landmarks_, other.landmarks_)


def test_data_is_not_shared_with_the_caller(images: tuple) -> None:
    X, Y, Xq = images
    mine = X.copy()
    model = RKML(0.3, 8, 5).fit(mine, Y)
    before = model.predict(Xq)
    mine[:] = 0.0
    np.testing.assert_array_equal(model.predict(Xq), before)


def test_binary_constraints_are_clipped(images: tuple) -> None:
    X, Y, Xq = images
    labels = np.arange(80) % 4
    S = np.where(labels[:, None] == labels, 1.0, -1.0)
    w, V = np.linalg.eigh(S)
    clipped = (V * np.maximum(w, 0.0)) @ V.T
    inverse = pseudo_inverse(rbf(X, X, 0.3), 10)
    expected = rbf(Xq, X, 0.3) @ inverse @ clipped @ inverse @ rbf(X, X, 0.3)
    model = RKMLH(0.3, 10, 80).fit(X, Y, from_labels(labels))
    np.testing.assert_allclose(model.transform(Xq) @ model.embedding_.T, expected, atol=1e-8)


def test_binary_constraints_as_pairs(images: tuple) -> None:
    X, Y, Xq = images
    similar, dissimilar = np.array([[0, 1], [2, 3], [1, 4]]), np.array([[0, 2], [4, 3], [5, 6]])
    S = np.eye(80)
    for pairs, sign in ((similar, 1.0), (dissimilar, -1.0)):
        S[pairs[:, 0], pairs[:, 1]] = S[pairs[:, 1], pairs[:, 0]] = sign
    w, V = np.linalg.eigh(S)
    assert w[0] < 0
    clipped = (V * np.maximum(w, 0.0)) @ V.T
    inverse = pseudo_inverse(rbf(X, X, 0.3), 10)
    expected = rbf(Xq, X, 0.3) @ inverse @ clipped @ inverse @ rbf(X, X, 0.3)
    known = Constraints(80, similar=similar, dissimilar=dissimilar)
    model = RKMLH(0.3, 10, 80).fit(X, Y, known)
    np.testing.assert_allclose(model.transform(Xq) @ model.embedding_.T, expected, atol=1e-8)


def test_degenerate_rows() -> None:
    Y = np.array([[1, 0], [0, 1], [1, 0], [0, 1]])
    duplicates = np.array([[0.0], [1.0], [0.0], [1.0]])
    scores = RKML(1.0, 4, 2, n_neighbors=2).fit(duplicates, Y).predict([[0.0], [1.0]])
    np.testing.assert_array_equal(scores.argmax(axis=1), [0, 1])
    constant = RKML(1.0, 4, 2, n_neighbors=4).fit(np.ones((4, 3)), Y).predict(np.ones((1, 3)))
    assert np.isfinite(constant).all()
    single = RKML(1.0, 1, 1, n_neighbors=1).fit([[1.0, 2.0]], [[1, 0]]).predict([[1.0, 2.0]])
    assert single[0, 0] > single[0, 1]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"gamma": -1.0}, "gamma"),
        ({"rank": 0}, "rank"),
        ({"n_components": 0}, "n_components"),
        ({"n_samples": 0}, "n_samples"),
        ({"kernel": "rfb"}, "kernel"),
        ({"weighting": "entropy"}, "weighting"),
        ({"smoothing": -0.1}, "smoothing"),
        ({"vote": "all"}, "vote"),
        ({"precision": "half"}, "precision"),
        ({"n_neighbors": 0}, "n_neighbors"),
    ],
)
def test_refuses_parameters(images: tuple, changes: dict, message: str) -> None:
    X, Y, _ = images
    with pytest.raises(InputError, match=message):
        clone(RKML(0.3, 8, 5)).set_params(**changes).fit(X, Y)


def test_direct_vote_is_not_the_original_method(images: tuple) -> None:
    with pytest.raises(InputError, match="vote"):
        RKMLO(0.3, 8, 5, vote="direct").fit(*images[:2])
