"""Random Fourier features: unbiased, with the error their variance predicts."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline_lib.errors import InputError
from pipeline_lib.kernels.chi2 import AdditiveChi2Map, SkewedChi2Features
from pipeline_lib.kernels.fourier import FourierFeatures
from pipeline_lib.kernels.functions import kernel_matrix

X = np.random.default_rng(0).random((25, 4))

RANDOM_MAPS = {
    "rbf": lambda m, s: FourierFeatures(m, 0.9, random_state=s),
    "laplacian": lambda m, s: FourierFeatures(m, 0.9, "laplacian", random_state=s),
    "cauchy": lambda m, s: FourierFeatures(m, 0.9, "cauchy", random_state=s),
    "orthogonal": lambda m, s: FourierFeatures(m, 0.9, orthogonal=True, random_state=s),
    "skewed_chi2": lambda m, s: SkewedChi2Features(m, 0.4, random_state=s),
}


def exact(name):
    kernel = "rbf" if name == "orthogonal" else name
    return kernel_matrix(X, kernel=kernel, gamma=0.9, coef0=0.4)


def estimates(name, m, seeds):
    for seed in seeds:
        Z = RANDOM_MAPS[name](m, seed).fit(X).transform(X)
        yield Z @ Z.T


@pytest.mark.parametrize("name", RANDOM_MAPS)
def test_estimates_are_unbiased_and_within_their_variance(name):
    # One product 2 cos cos has variance at most 3/2, so a mean of m S of them at most 3/(2 m S).
    m, seeds = 400, range(60)
    errors = np.stack([K - exact(name) for K in estimates(name, m, seeds)])
    deviation = np.sqrt(1.5 / (m * len(seeds)))
    assert np.abs(errors.mean(axis=0)).max() < 5 * deviation
    # Entries share their random draws, so the bound on the mean over entries stays the same.
    assert abs(errors.mean()) < 4 * deviation
    assert np.sqrt((errors**2).mean(axis=0)).max() < 1.5 * np.sqrt(1.5 / m)


@pytest.mark.parametrize("name", RANDOM_MAPS)
def test_error_falls_as_the_root_of_the_number_of_features(name):
    def error(m):
        return np.sqrt(
            np.mean([((K - exact(name)) ** 2).mean() for K in estimates(name, m, range(30))])
        )

    assert error(100) / error(1600) == pytest.approx(4.0, rel=0.35)


def test_orthogonal_frequencies_have_less_variance():
    rng = np.random.default_rng(2)
    rows = rng.random((20, 16))
    K = kernel_matrix(rows, gamma=0.05)

    def error(orthogonal):
        total = 0.0
        for seed in range(60):
            mapping = FourierFeatures(64, 0.05, orthogonal=orthogonal, random_state=seed)
            Z = mapping.fit(rows).transform(rows)
            total += ((Z @ Z.T - K) ** 2).mean()
        return total

    assert error(True) < 0.9 * error(False)


def test_orthogonal_frequencies_are_orthogonal_within_blocks():
    W = FourierFeatures(10, 1.0, orthogonal=True, random_state=0).fit(X).frequencies_
    gram = W.T @ W
    for start in (0, 4, 8):
        block = gram[start : start + 4, start : start + 4]
        np.testing.assert_allclose(block - np.diag(np.diagonal(block)), 0.0, atol=1e-12)


def test_features_are_bounded_deterministic_and_a_function_of_the_row():
    mapping = FourierFeatures(64, 2.0, random_state=1).fit(X)
    Z = mapping.transform(X)
    assert np.abs(Z).max() <= np.sqrt(2 / 64) + 1e-15
    again = FourierFeatures(64, 2.0, random_state=1).fit(X[::-1]).transform(X)
    assert np.array_equal(Z, again)
    np.testing.assert_allclose(mapping.transform(X[7:8])[0], Z[7], atol=1e-13)


@pytest.mark.parametrize(
    "mapping",
    [
        FourierFeatures(12, 0.5, random_state=0),
        SkewedChi2Features(12, 0.5, random_state=0),
        AdditiveChi2Map(2),
    ],
)
def test_state_rebuilds_the_map(mapping):
    mapping.fit(X)
    again = type(mapping).from_state(mapping.get_params(), mapping.get_state())
    assert np.array_equal(again.transform(X), mapping.transform(X))


@pytest.mark.parametrize(("n_steps", "bound"), [(1, 0.08), (2, 0.02), (3, 0.02), (12, 0.005)])
def test_additive_chi2_map_approaches_its_kernel(n_steps, bound):
    rows = np.vstack([X, np.zeros((1, 4)), np.eye(4)])
    Z = AdditiveChi2Map(n_steps).fit(rows).transform(rows)
    assert Z.shape == (30, 4 * (2 * n_steps + 1))
    K = kernel_matrix(rows, kernel="additive_chi2")
    # Small coordinates are far apart in the logarithm, where the periodic map folds back.
    similar = kernel_matrix(rows, kernel="chi2", gamma=1.0) > 0.4
    assert np.abs(Z @ Z.T - K)[similar].max() < bound * K.max()
    assert not Z[25].any()


@pytest.mark.parametrize(
    ("mapping", "rows", "message"),
    [
        (FourierFeatures(0, 1.0), X, "n_components"),
        (FourierFeatures(5, 0.0), X, "gamma"),
        (FourierFeatures(5, 1.0, "linear"), X, "linear"),
        (FourierFeatures(5, 1.0, "cauchy", orthogonal=True), X, "orthogonal"),
        (FourierFeatures(5, 1.0), [[np.inf, 1.0]], "NaN or infinite"),
        (SkewedChi2Features(5, -1.0), X, "coef0"),
        (SkewedChi2Features(0), X, "n_components"),
        (SkewedChi2Features(5, 0.5), X - 0.7, "above -0.5"),
        (AdditiveChi2Map(-1), X, "n_steps"),
        (AdditiveChi2Map(interval=0.0), X, "interval"),
        (AdditiveChi2Map(), -X, "at least 0"),
    ],
)
def test_wrong_input_is_refused(mapping, rows, message):
    with pytest.raises(InputError, match=message):
        mapping.fit(rows)
