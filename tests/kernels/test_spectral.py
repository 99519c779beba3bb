"""Truncated eigendecomposition against the full one."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline_lib.errors import InputError
from pipeline_lib.kernels.functions import kernel_matrix
from pipeline_lib.kernels.spectral import pivoted_cholesky, truncated_eigh


def gram(n, gamma, seed=0, d=4):
    return kernel_matrix(np.random.default_rng(seed).random((n, d)), gamma=gamma)


@pytest.mark.parametrize("n", [1, 2, 40, 450])
@pytest.mark.parametrize("gamma", [0.01, 1.0, 300.0])
@pytest.mark.parametrize("cutoff", [0.0, 1e-10, 1e-6, 1e-3])
def test_pairs_are_those_of_the_full_decomposition(n, gamma, cutoff):
    K = gram(n, gamma)
    full = np.linalg.eigvalsh(K)[::-1]
    values, vectors, effective = truncated_eigh(K, cutoff=cutoff)
    floor = max(cutoff, n * np.finfo(float).eps) * full[0]
    assert effective == len(values) == vectors.shape[1]
    # Values within rounding of the threshold may fall on either side of it.
    slack = 1e-8 * floor + 100 * np.finfo(float).eps * full[0]
    assert (full > floor + slack).sum() <= effective <= (full > floor - slack).sum()
    np.testing.assert_allclose(values, full[:effective], rtol=1e-7, atol=1e-12 * full[0])
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(effective), atol=1e-12)
    residual = K @ vectors - vectors * values
    assert np.linalg.norm(residual, axis=0).max() < 1e-4 * max(cutoff, 1e-9) * full[0]


def test_the_fast_path_is_taken_and_agrees_on_the_truncated_matrix(monkeypatch):
    from pipeline_lib.kernels import spectral

    K = gram(800, 0.05)
    with monkeypatch.context() as patch:
        patch.setattr(spectral, "_by_eigh", lambda K: pytest.fail("full decomposition used"))
        values, vectors, _ = truncated_eigh(K)
    full, basis = np.linalg.eigh(K)
    kept = full > 1e-6 * full[-1]
    assert kept.sum() == len(values)
    exact = (basis[:, kept] * full[kept]) @ basis[:, kept].T
    np.testing.assert_allclose((vectors * values) @ vectors.T, exact, atol=1e-9 * full[-1])


def test_rank_limits_what_is_kept_but_not_the_effective_rank():
    K = gram(50, 1.0)
    all_values, _, effective = truncated_eigh(K)
    values, vectors, reported = truncated_eigh(K, rank=3)
    assert reported == effective > 3
    assert vectors.shape == (50, 3)
    np.testing.assert_allclose(values, all_values[:3])


def test_signs_do_not_depend_on_the_decomposition():
    K = gram(60, 1.0)
    _, vectors, _ = truncated_eigh(K, rank=10)
    top = vectors[np.abs(vectors).argmax(axis=0), np.arange(10)]
    assert (top > 0).all()


@pytest.mark.parametrize("n", [3, 60, 500])
def test_indefinite_matrices_are_refused(n):
    v = np.random.default_rng(1).standard_normal(n)
    v /= np.linalg.norm(v)
    K = np.ones((n, n)) - 0.01 * n * np.outer(v, v)
    with pytest.raises(InputError, match="indefinite"):
        truncated_eigh((K + K.T) / 2)


def test_degenerate_matrices():
    values, vectors, effective = truncated_eigh(np.zeros((5, 5)))
    assert values.shape == (0,) and vectors.shape == (5, 0) and effective == 0
    values, vectors, effective = truncated_eigh(np.ones((400, 400)))
    assert effective == 1 and values[0] == pytest.approx(400.0)
    np.testing.assert_allclose(vectors[:, 0], 1 / 20.0)
    assert truncated_eigh(np.eye(400))[2] == 400


@pytest.mark.parametrize(
    ("K", "arguments", "message"),
    [
        (np.ones((2, 3)), {}, "shape"),
        ([[1.0, np.inf], [np.inf, 1.0]], {}, "NaN"),
        ([[1.0, 0.2], [0.3, 1.0]], {}, "symmetric"),
        (np.eye(2), {"rank": 0}, "rank"),
        (np.eye(2), {"cutoff": 1.0}, "cutoff"),
        (-np.eye(2), {}, "indefinite"),
    ],
)
def test_wrong_input_is_refused(K, arguments, message):
    with pytest.raises(InputError, match=message):
        truncated_eigh(K, **arguments)


def test_pivoted_cholesky_reproduces_within_its_tolerance():
    K = gram(200, 0.5)
    for tol in (1e-2, 1e-6, 1e-10):
        L, pivots = pivoted_cholesky(K, tol)
        assert np.abs(K - L @ L.T).max() <= tol + 1e-13
        assert len(set(pivots.tolist())) == L.shape[1]
        np.testing.assert_allclose(np.triu(L[pivots], 1), 0.0, atol=1e-15)
