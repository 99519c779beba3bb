"""Nystroem maps: identities, definition, rank, landmarks, state."""

from __future__ import annotations

import json

import numpy as np
import pytest
from sklearn.base import clone

from pipeline_lib.errors import InputError
from pipeline_lib.kernels.functions import KERNELS, kernel_matrix
from pipeline_lib.kernels.nystroem import Nystroem
from pipeline_lib.kernels.sampling import sample_rows


@pytest.fixture(scope="module")
def rows():
    return np.random.default_rng(0).random((150, 6))


@pytest.mark.parametrize("kernel", KERNELS)
def test_every_row_a_landmark_reproduces_the_kernel(rows, kernel):
    mapping = Nystroem(150, 0.8, kernel, cutoff=1e-13, random_state=0).fit(rows)
    Z = mapping.transform(rows)
    K = kernel_matrix(rows, kernel=kernel, gamma=0.8)
    np.testing.assert_allclose(Z @ Z.T, K, atol=1e-8 * K.max())
    assert Z.shape[1] == mapping.effective_rank_ == mapping.n_features_out_


@pytest.mark.parametrize(("rank", "cutoff"), [(None, 1e-6), (7, 1e-6), (None, 1e-3)])
def test_the_map_is_its_definition(rows, rank, cutoff):
    mapping = Nystroem(60, 2.0, rank=rank, cutoff=cutoff, random_state=1).fit(rows)
    landmarks = mapping.landmarks_
    assert landmarks.shape == (60, 6)
    values, vectors = np.linalg.eigh(kernel_matrix(landmarks, gamma=2.0))
    kept = np.flatnonzero(values > cutoff * values[-1])[::-1][:rank]
    inverse = (vectors[:, kept] / values[kept]) @ vectors[:, kept].T
    K = kernel_matrix(rows, landmarks, gamma=2.0)
    Z = mapping.transform(rows)
    assert mapping.effective_rank_ == len(kept)
    np.testing.assert_allclose(Z @ Z.T, K @ inverse @ K.T, atol=1e-10)


def test_the_cholesky_form_in_panels_is_one_product():
    X = np.random.default_rng(3).random((300, 6))
    mapping = Nystroem(300, 9.0, cutoff=1e-10, factorization="cholesky", random_state=0).fit(X)
    assert mapping.effective_rank_ > 250
    K = kernel_matrix(X, mapping.landmarks_, gamma=9.0)
    np.testing.assert_allclose(mapping.transform(X), K @ mapping.projection_, atol=1e-10)


@pytest.mark.parametrize("rank", [None, 12])
def test_the_cholesky_form_is_nystroem_on_its_pivots(rows, rank):
    mapping = Nystroem(
        100, 0.1, rank=rank, cutoff=1e-4, factorization="cholesky", random_state=1
    ).fit(rows)
    landmarks = mapping.landmarks_
    assert len(landmarks) == mapping.effective_rank_ < 100
    assert rank is None or len(landmarks) == rank
    K = kernel_matrix(rows, landmarks, gamma=0.1)
    Z = mapping.transform(rows)
    exact = K @ np.linalg.solve(kernel_matrix(landmarks, gamma=0.1), K.T)
    np.testing.assert_allclose(Z @ Z.T, exact, atol=1e-9)
    if rank is None:
        all_landmarks = Nystroem(100, 0.1, cutoff=1e-13, random_state=1).fit(rows).landmarks_
        residual = 1.0 - np.square(mapping.transform(all_landmarks)).sum(axis=1)
        assert residual.max() <= 1e-4 + 1e-10 and residual.min() > -1e-10


@pytest.mark.parametrize("kernel", ["rbf", "linear", "additive_chi2"])
def test_the_two_forms_agree_when_nothing_is_cut(rows, kernel):
    forms = [
        Nystroem(40, 1.0, kernel, cutoff=1e-12, factorization=f, random_state=2).fit(rows)
        for f in ("eigh", "cholesky")
    ]
    one, other = (form.transform(rows) for form in forms)
    np.testing.assert_allclose(one @ one.T, other @ other.T, atol=1e-7 * np.abs(one @ one.T).max())


def test_an_indefinite_kernel_is_refused_by_both_forms(rows, monkeypatch):
    from pipeline_lib.kernels import nystroem

    K = np.eye(30)
    K[0, 1] = K[1, 0] = 3.0
    monkeypatch.setattr(nystroem, "kernel_matrix", lambda *a, **k: K)
    for factorization in ("eigh", "cholesky"):
        with pytest.raises(InputError, match="indefinite"):
            Nystroem(30, 1.0, factorization=factorization, random_state=0).fit(rows)


def test_the_fast_spectrum_gives_the_same_map_as_the_full_one():
    rng = np.random.default_rng(5)
    X = rng.random((1200, 5))
    mapping = Nystroem(900, 2.0**-4, random_state=0).fit(X)
    assert mapping.effective_rank_ < 90
    values, vectors = np.linalg.eigh(kernel_matrix(mapping.landmarks_, gamma=2.0**-4))
    kept = values > 1e-6 * values[-1]
    K = kernel_matrix(X, mapping.landmarks_, gamma=2.0**-4)
    Z = mapping.transform(X)
    exact = (K @ vectors[:, kept]) / np.sqrt(values[kept])
    np.testing.assert_allclose(Z @ Z.T, exact @ exact.T, atol=1e-8)


def test_landmarks_are_distinct_rows_and_more_than_all_is_all(rows):
    mapping = Nystroem(40, 1.0, random_state=3).fit(rows)
    found = [np.flatnonzero((rows == mark).all(axis=1)) for mark in mapping.landmarks_]
    assert len({int(i[0]) for i in found}) == 40
    assert len(Nystroem(1000, 1.0, random_state=3).fit(rows).landmarks_) == 150


def test_error_falls_with_the_number_of_landmarks(rows):
    K = kernel_matrix(rows, gamma=1.0)

    def mean_error(m):
        maps = [Nystroem(m, 1.0, random_state=s).fit(rows).transform(rows) for s in range(5)]
        return np.mean([np.linalg.norm(K - Z @ Z.T) for Z in maps])

    errors = [mean_error(m) for m in (5, 15, 45, 120)]
    assert errors == sorted(errors, reverse=True) and errors[-1] < 0.05 * errors[0]


def test_kmeans_landmarks_beat_uniform_ones():
    X = np.random.default_rng(0).standard_normal((600, 3))
    K = kernel_matrix(X, gamma=0.1)

    def error(landmarks, seed):
        Z = Nystroem(20, 0.1, landmarks=landmarks, random_state=seed).fit(X).transform(X)
        return np.linalg.norm(K - Z @ Z.T)

    uniform = np.mean([error("uniform", s) for s in range(5)])
    assert np.mean([error("kmeans", s) for s in range(5)]) < 0.6 * uniform


@pytest.mark.parametrize("landmarks", ["uniform", "kmeans"])
def test_same_seed_same_map_whatever_the_row_order(rows, landmarks):
    X = np.vstack([rows, rows[:20]])  # with duplicates
    order = np.random.default_rng(9).permutation(len(X))
    one = Nystroem(30, 1.0, landmarks=landmarks, random_state=4).fit(X)
    other = Nystroem(30, 1.0, landmarks=landmarks, random_state=4).fit(X[order])
    np.testing.assert_allclose(one.transform(X), other.transform(X), atol=1e-9)
    different = Nystroem(30, 1.0, landmarks=landmarks, random_state=5).fit(X)
    assert not np.array_equal(one.landmarks_, different.landmarks_)


def test_sampling_is_uniform_over_rows_and_over_copies():
    X = np.zeros((10, 2))
    X[5:, 0] = np.arange(5)  # six equal rows, four different ones
    counts = np.zeros(10)
    draws = 4000
    for seed in range(draws):
        chosen = sample_rows(X, 3, np.random.default_rng(seed))
        assert len(set(chosen.tolist())) == 3
        counts[chosen] += 1
    # Binomial(4000, .3) has a standard deviation of 29; 5 of them.
    different = counts[6:]
    assert np.abs(different - 0.3 * draws).max() < 145
    assert abs(counts[:6].sum() - 6 * 0.3 * draws) < 4 * 145
    assert len(sample_rows(X, 99, np.random.default_rng(0))) == 10


def test_zero_and_minus_zero_are_the_same_value():
    X = np.array([[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]])
    Y = np.array([[-0.0, 1.0], [2.0, 3.0], [4.0, 5.0]])
    for seed in range(10):
        draw = [sample_rows(M, 2, np.random.default_rng(seed)).tolist() for M in (X, Y)]
        assert draw[0] == draw[1]


def test_blocks_and_rows_alone_give_the_same_values(rows):
    mapping = Nystroem(50, 1.0, random_state=0).fit(rows)
    Z = mapping.transform(rows)
    parts = list(mapping.transform_blocks(rows, block_bytes=8 * 50 * 7))
    assert len(parts) == 22 and all(len(block) <= 7 for _, block in parts)
    np.testing.assert_allclose(np.vstack([block for _, block in parts]), Z, atol=1e-9)
    np.testing.assert_allclose(mapping.transform(rows[3:4])[0], Z[3], atol=1e-9)


@pytest.mark.parametrize("X", [np.ones((5, 3)), np.ones((1, 2)), np.zeros((4, 2))])
def test_degenerate_rows_give_one_dimension(X):
    mapping = Nystroem(5, 1.0, random_state=0).fit(X)
    assert mapping.effective_rank_ == 1
    np.testing.assert_allclose(np.abs(mapping.transform(X)), 1.0)


def test_kmeans_with_fewer_distinct_rows_than_centres():
    X = np.repeat(np.eye(3), 10, axis=0)
    mapping = Nystroem(8, 1.0, landmarks="kmeans", random_state=0).fit(X)
    assert mapping.effective_rank_ == 3
    Z = mapping.transform(X)
    np.testing.assert_allclose(Z @ Z.T, kernel_matrix(X), atol=1e-12)


def test_state_rebuilds_the_map(rows):
    mapping = Nystroem(20, 1.0, random_state=0).fit(rows)
    state = mapping.get_state()
    assert all(isinstance(value, np.ndarray) and value.dtype != object for value in state.values())
    params = json.loads(json.dumps(mapping.get_params()))
    again = Nystroem.from_state(params, state)
    assert np.array_equal(again.transform(rows), mapping.transform(rows))
    assert again.effective_rank_ == mapping.effective_rank_
    with pytest.raises(InputError, match="lacks"):
        Nystroem.from_state(params, {})
    assert clone(mapping).get_params() == mapping.get_params()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n_components": 0}, "n_components"),
        ({"gamma": -1.0}, "gamma"),
        ({"kernel": "sigmoid"}, "unknown kernel"),
        ({"landmarks": "random"}, "landmarks"),
        ({"rank": 0}, "rank"),
        ({"factorization": "svd"}, "factorization"),
        ({"factorization": "cholesky", "rank": 0}, "rank"),
        ({"factorization": "cholesky", "cutoff": 1.0}, "cutoff"),
        ({"cutoff": -1.0}, "cutoff"),
    ],
)
def test_wrong_parameters_are_refused_at_fit(rows, arguments, message):
    with pytest.raises(InputError, match=message):
        Nystroem(**{"n_components": 5, "gamma": 1.0, **arguments}).fit(rows)


def test_wrong_rows_are_refused(rows):
    mapping = Nystroem(5, 1.0, random_state=0).fit(rows)
    bad = rows.copy()
    bad[100, 2] = np.nan
    for X, message in [(rows[:, :3], "columns"), (bad, "NaN"), (rows[0], "shape")]:
        with pytest.raises(InputError, match=message):
            mapping.transform(X)
    with pytest.raises(InputError, match="NaN"):
        Nystroem(5, 1.0).fit(bad)
    for factorization in ("eigh", "cholesky"):
        with pytest.raises(InputError, match="vanishes"):
            Nystroem(5, kernel="linear", factorization=factorization).fit(np.zeros((4, 2)))
