"""The error that every feature map reports of itself."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline_lib.kernels.chi2 import AdditiveChi2Map, SkewedChi2Features
from pipeline_lib.kernels.feature_map import FeatureMap
from pipeline_lib.kernels.fourier import FourierFeatures
from pipeline_lib.kernels.functions import kernel_matrix
from pipeline_lib.kernels.nystroem import Nystroem

X = np.random.default_rng(0).random((40, 3))
MAPS: dict[str, tuple[FeatureMap, dict[str, object]]] = {
    "Nystroem": (
        Nystroem(5, 0.7, "laplacian", random_state=0),
        {"kernel": "laplacian", "gamma": 0.7},
    ),
    "Fourier": (
        FourierFeatures(30, 0.7, "cauchy", random_state=0),
        {"kernel": "cauchy", "gamma": 0.7},
    ),
    "additive": (AdditiveChi2Map(1), {"kernel": "additive_chi2"}),
    "skewed": (
        SkewedChi2Features(30, 0.5, random_state=0),
        {"kernel": "skewed_chi2", "coef0": 0.5},
    ),
}


@pytest.mark.parametrize("name", MAPS)
def test_it_is_the_relative_distance_to_the_kernel_of_the_map(name: str) -> None:
    mapping, kernel = MAPS[name]
    K = kernel_matrix(X, None, **kernel)  # type: ignore[arg-type]
    np.testing.assert_allclose(mapping.fit(X).exact_kernel(X), K)
    Z = mapping.transform(X)
    expected = np.linalg.norm(K - Z @ Z.T) / np.linalg.norm(K)
    assert mapping.approximation_error(X) == pytest.approx(expected, rel=1e-9)
    assert expected > 1e-4


def test_it_vanishes_with_every_row_a_landmark() -> None:
    assert Nystroem(40, 0.7, cutoff=0.0).fit(X).approximation_error(X) < 1e-8


def test_the_sample_depends_on_the_rows_alone() -> None:
    first = FourierFeatures(30, 0.7, random_state=0).fit(X)
    shuffled = X[np.random.default_rng(1).permutation(len(X))]
    assert first.approximation_error(shuffled, n_rows=10) == pytest.approx(
        first.approximation_error(X, n_rows=10), rel=1e-12
    )
