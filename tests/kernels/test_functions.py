"""Kernel functions against their formulas written out entry by entry."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pipeline_lib.errors import InputError
from pipeline_lib.kernels.functions import (
    KERNELS,
    iter_kernel_blocks,
    kernel_diagonal,
    kernel_matrix,
    squared_distances,
)

GAMMA, COEF0, DEGREE = 0.7, 0.3, 2


def by_formula(kernel, x, y):
    d = x - y
    if kernel == "rbf":
        return math.exp(-GAMMA * float(d @ d))
    if kernel == "laplacian":
        return math.exp(-GAMMA * float(np.abs(d).sum()))
    if kernel == "cauchy":
        return float(np.prod(1 / (1 + GAMMA * d**2)))
    if kernel == "linear":
        return float(x @ y)
    if kernel == "cosine":
        norms = np.linalg.norm(x) * np.linalg.norm(y)
        return float(x @ y / norms) if norms else 0.0
    if kernel == "polynomial":
        return (GAMMA * float(x @ y) + COEF0) ** DEGREE
    if kernel == "chi2":
        return math.exp(-GAMMA * sum((a - b) ** 2 / (a + b) for a, b in zip(x, y) if a + b))
    if kernel == "additive_chi2":
        return sum(2 * a * b / (a + b) for a, b in zip(x, y) if a + b)
    if kernel == "intersection":
        return float(np.minimum(x, y).sum())
    assert kernel == "skewed_chi2"
    terms = 2 * np.sqrt((x + COEF0) * (y + COEF0)) / (x + y + 2 * COEF0)
    return float(np.prod(terms))


@pytest.fixture
def rows():
    rng = np.random.default_rng(3)
    X = rng.random((9, 4)) * (rng.random((9, 4)) > 0.3)
    X[0] = 0.0
    X[5] = X[2]
    return X


@pytest.mark.parametrize("kernel", KERNELS)
def test_every_kernel_is_its_formula(kernel, rows):
    X, Y = rows, rows[::-1][:6]
    expected = np.array([[by_formula(kernel, x, y) for y in Y] for x in X])
    got = kernel_matrix(X, Y, kernel, GAMMA, coef0=COEF0, degree=DEGREE)
    np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("kernel", KERNELS)
def test_gram_matrix_is_symmetric_semidefinite_with_exact_diagonal(kernel, rows):
    K = kernel_matrix(rows, kernel=kernel, gamma=GAMMA, coef0=COEF0, degree=DEGREE)
    assert np.array_equal(K, K.T)
    diagonal = kernel_diagonal(rows, kernel, GAMMA, coef0=COEF0, degree=DEGREE)
    assert np.array_equal(np.diagonal(K), diagonal)
    assert np.linalg.eigvalsh(K).min() > -1e-12 * np.abs(K).max()


@pytest.mark.parametrize("kernel", KERNELS)
def test_blocks_are_the_rows_of_the_matrix(kernel, rows):
    whole = kernel_matrix(rows, rows[:5], kernel, GAMMA, coef0=COEF0, degree=DEGREE)
    seen = 0
    for part, block in iter_kernel_blocks(
        rows, rows[:5], kernel, GAMMA, coef0=COEF0, degree=DEGREE, block_bytes=2 * 5 * 8
    ):
        assert part.start == seen and block.shape[0] <= 2
        seen = part.stop
        np.testing.assert_allclose(block, whole[part], rtol=1e-13, atol=1e-15)
    assert seen == len(rows)


def test_a_budget_below_one_row_still_gives_single_rows(rows):
    sizes = [len(block) for _, block in iter_kernel_blocks(rows, rows, block_bytes=1)]
    assert sizes == [1] * len(rows)


def test_squared_distances_are_exact_on_identical_rows_and_near_duplicates():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((30, 5)) + 1e6
    X[7] = X[3]
    X[8] = X[3]
    X[8, 0] += 2.0**-10
    D = squared_distances(X, X.copy(), refine=True)
    assert D[3, 7] == 0.0 and D[7, 3] == 0.0
    assert D[3, 8] == (X[8, 0] - X[3, 0]) ** 2
    exact = ((X[:, None, :] - X[None, :, :]) ** 2).sum(axis=2)
    np.testing.assert_allclose(D, exact, rtol=1e-6, atol=1e-9)
    assert (squared_distances(X, X.copy()) >= 0).all()


def test_squared_distances_of_a_set_with_itself():
    X = np.random.default_rng(1).standard_normal((20, 3))
    D = squared_distances(X)
    assert np.array_equal(D, D.T) and not np.diagonal(D).any()
    np.testing.assert_allclose(D, ((X[:, None] - X[None]) ** 2).sum(2), atol=1e-13)


def test_a_large_common_offset_does_not_spoil_the_rbf_kernel():
    X = np.random.default_rng(2).standard_normal((12, 3))
    np.testing.assert_allclose(
        kernel_matrix(X + 2.0**20, X[:4] + 2.0**20), kernel_matrix(X, X[:4]), atol=1e-8
    )


def test_far_points_underflow_to_zero_without_warning(recwarn):
    X = np.array([[0.0] * 40, [1e10] * 40])
    for kernel in ("rbf", "laplacian", "cauchy"):
        assert kernel_matrix(X, X, kernel)[0, 1] == 0.0
    assert not recwarn.list


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"kernel": "rbg"}, "unknown kernel 'rbg'"),
        ({"gamma": 0.0}, "gamma"),
        ({"gamma": float("nan")}, "gamma"),
        ({"kernel": "polynomial", "degree": 0}, "degree"),
        ({"kernel": "skewed_chi2", "coef0": 0.0}, "coef0"),
        ({"Y": [[1.0, 2.0, 3.0]]}, "columns"),
        ({"Y": [[np.nan, 1.0]]}, "NaN"),
        ({"kernel": "chi2", "Y": [[-1.0, 1.0]]}, "negative"),
        ({"kernel": "skewed_chi2", "Y": [[-1.0, 1.0]]}, "at or below"),
    ],
)
def test_wrong_input_is_refused(arguments, message):
    with pytest.raises(InputError, match=message):
        kernel_matrix([[0.5, 1.0]], **arguments)


@pytest.mark.parametrize("X", [[], [1.0, 2.0], [["a", "b"]], np.empty((0, 3)), np.empty((3, 0))])
def test_what_is_no_matrix_is_refused(X):
    with pytest.raises(InputError):
        kernel_matrix(X)


def test_values_whose_sum_overflows_are_finite_but_cannot_be_squared(recwarn):
    X = np.full((4, 2), 1e308)
    assert kernel_matrix(X, X, "laplacian").min() == 1.0
    with pytest.raises(InputError, match="too large"):
        kernel_matrix(X, -X, "rbf")
    assert not recwarn.list
