"""PCA against its definition and scikit-learn's; scaling of rows as a choice; state."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray
from sklearn.decomposition import PCA as SklearnPCA

from pipeline_lib.errors import InputError
from pipeline_lib.features.pca import PCA, unit_rows

Array = NDArray[np.float64]


def rows(seed: int = 0, n: int = 30, d: int = 8) -> Array:
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, d)) @ rng.standard_normal((d, d)) + rng.standard_normal(d)


@pytest.mark.parametrize("shape", [(30, 8), (8, 30)])
def test_same_projection_as_scikit_learn(shape: tuple[int, int]) -> None:
    X = rows(n=shape[0], d=shape[1])
    ours, theirs = PCA(5).fit(X), SklearnPCA(5, svd_solver="full").fit(X)
    np.testing.assert_allclose(np.abs(ours.transform(X)), np.abs(theirs.transform(X)), atol=1e-9)
    np.testing.assert_allclose(ours.explained_variance_, theirs.explained_variance_)
    np.testing.assert_allclose(ours.explained_variance_ratio_, theirs.explained_variance_ratio_)


def test_components_are_orthonormal_and_their_signs_fixed() -> None:
    X = rows(1)
    model = PCA(6).fit(X)
    V = model.components_
    np.testing.assert_allclose(V @ V.T, np.eye(6), atol=1e-12)
    assert (V[np.arange(6), np.abs(V).argmax(axis=1)] > 0).all()
    np.testing.assert_allclose(
        np.cov(model.transform(X).T), np.diag(model.explained_variance_), atol=1e-9
    )
    mirrored = PCA(6).fit(-X)
    np.testing.assert_allclose(mirrored.components_, V, atol=1e-9)


def test_all_components_keep_distances() -> None:
    X = rows(2)
    Z = PCA(8).fit_transform(X)
    np.testing.assert_allclose(
        np.linalg.norm(Z[:, None] - Z[None], axis=2), np.linalg.norm(X[:, None] - X[None], axis=2)
    )


def test_unit_norm_says_on_which_side() -> None:
    X = rows(3)
    U = X / np.linalg.norm(X, axis=1, keepdims=True)
    plain, scaled = PCA(4).fit_transform(X), PCA(4).fit_transform(U)
    np.testing.assert_allclose(PCA(4, unit_norm="before").fit_transform(X), scaled)
    for expected, choice in ((plain, "after"), (scaled, "both")):
        Z = PCA(4, unit_norm=choice).fit(X).transform(X)
        np.testing.assert_allclose(np.linalg.norm(Z, axis=1), 1.0)
        np.testing.assert_allclose(Z, expected / np.linalg.norm(expected, axis=1, keepdims=True))


def test_new_rows_use_the_training_mean() -> None:
    X, new = rows(4), rows(5, n=3)
    model = PCA(3).fit(X)
    np.testing.assert_allclose(model.transform(new), (new - X.mean(axis=0)) @ model.components_.T)


def test_state_restores_the_map() -> None:
    X = rows(6)
    model = PCA(3, unit_norm="both").fit(X)
    state = model.get_state()
    assert all(isinstance(value, np.ndarray) and value.dtype != object for value in state.values())
    restored = PCA.from_state(model.get_params(), state)
    np.testing.assert_array_equal(restored.transform(X), model.transform(X))
    del state["mean_"]
    with pytest.raises(InputError, match="mean_"):
        PCA.from_state(model.get_params(), state)


def test_degenerate_rows() -> None:
    constant = PCA(2, unit_norm="both").fit(np.ones((4, 3)))
    assert not constant.transform(np.ones((4, 3))).any()
    np.testing.assert_allclose(constant.explained_variance_ratio_, 0.0)
    one = PCA(1).fit(np.array([[1.0, 2.0]]))
    assert not one.transform(np.array([[1.0, 2.0]])).any()


@given(
    arrays(np.float64, (4, 3), elements=st.floats(-1e300, 1e300, allow_subnormal=False)),
)
def test_unit_rows_are_unit_or_zero(X: Array) -> None:
    scaled = unit_rows(X)
    norms = np.linalg.norm(scaled, axis=1)
    zero = ~X.any(axis=1)
    np.testing.assert_allclose(norms[~zero], 1.0)
    assert not scaled[zero].any()
    assert (np.sign(scaled[scaled != 0]) == np.sign(X[scaled != 0])).all()


@pytest.mark.parametrize("n_components", [0, 9, -1])
def test_component_counts_out_of_range(n_components: int) -> None:
    with pytest.raises(InputError, match="n_components"):
        PCA(n_components).fit(rows())


def test_unusable_input() -> None:
    with pytest.raises(InputError, match="unit_norm"):
        PCA(2, unit_norm="l2").fit(rows())  # type: ignore[arg-type]
    with pytest.raises(InputError, match="NaN"):
        PCA(2).fit(np.full((4, 3), np.nan))
    with pytest.raises(InputError, match="not fitted"):
        PCA(2).transform(rows())
    with pytest.raises(InputError, match="features"):
        PCA(2).fit(rows()).transform(np.zeros((2, 3)))
