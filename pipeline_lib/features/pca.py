"""Principal components, with the scaling of rows to norm 1 as an explicit choice."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import linalg
from sklearn.base import BaseEstimator, TransformerMixin

from pipeline_lib.errors import InputError

Array = NDArray[np.float64]
UnitNorm = Literal["none", "before", "after", "both"]
_UNIT_NORM = ("none", "before", "after", "both")


class PCA(TransformerMixin, BaseEstimator):
    """Projection on the directions of largest variance.

        z = V' (x - m),    V = argmax tr(V' C V)  subject to  V'V = I

    x : row of d features; m : mean of the training rows; C : their covariance; V : (d, n_components).

    Sparse coding weighs sparsity against the remainder of a row, so its parameters depend on the scale of
    rows: ``unit_norm`` says whether rows are brought to norm 1, and on which side of the projection.

    Parameters
    ----------
    n_components : int, default=64
        1 to min(n - 1, d) useful directions; up to min(n, d) is allowed.
    unit_norm : {"none", "before", "after", "both"}, default="none"
        Scale rows to norm 1 before m and V are computed and applied, after, or both. Rows of zeros stay.

    Attributes
    ----------
    mean_ : ndarray of shape (d,)
    components_ : ndarray of shape (n_components, d)
        V', directions by falling variance, the largest entry of each positive.
    explained_variance_ : ndarray of shape (n_components,)
        Variance along each direction (divided by n - 1).
    explained_variance_ratio_ : ndarray of shape (n_components,)
        As a share of the total variance.
    n_features_in_ : int
    """

    _state_names = (
        "mean_",
        "components_",
        "explained_variance_",
        "explained_variance_ratio_",
        "n_features_in_",
    )

    def __init__(self, n_components: int = 64, unit_norm: UnitNorm = "none") -> None:
        self.n_components = n_components
        self.unit_norm = unit_norm

    def fit(self, X: ArrayLike, y: object = None) -> Self:
        """Find mean and directions.

        Parameters
        ----------
        X : array-like of shape (n, d)
        y : ignored

        Raises
        ------
        InputError
            If X is not a finite matrix, or a parameter does not fit it.
        """
        if self.unit_norm not in _UNIT_NORM:
            raise InputError(
                f"unknown unit_norm {self.unit_norm!r}", expected=f"one of {', '.join(_UNIT_NORM)}"
            )
        rows = _as_matrix(X)
        n, d = rows.shape
        if not 1 <= self.n_components <= min(n, d):
            raise InputError(
                f"n_components is {self.n_components} for {n} rows of {d} features",
                expected=f"1 to {min(n, d)}",
            )
        if self.unit_norm in ("before", "both"):
            rows = unit_rows(rows)
        self.n_features_in_ = d
        self.mean_ = rows.mean(axis=0)
        _, values, directions = linalg.svd(
            rows - self.mean_, full_matrices=False, check_finite=False
        )
        directions = directions[: self.n_components]
        # The sign of a direction is arbitrary: fix it, so that equal data give equal features.
        largest = np.abs(directions).argmax(axis=1)
        signs = np.sign(directions[np.arange(len(directions)), largest])
        self.components_ = directions * signs[:, None]
        variances = values**2 / max(n - 1, 1)
        self.explained_variance_ = variances[: self.n_components]
        total = variances.sum()
        self.explained_variance_ratio_ = self.explained_variance_ / (total if total > 0 else 1.0)
        return self

    def transform(self, X: ArrayLike) -> Array:
        """Project rows.

        Parameters
        ----------
        X : array-like of shape (m, d)

        Returns
        -------
        ndarray of shape (m, n_components)
        """
        if not hasattr(self, "components_"):
            raise InputError("this PCA is not fitted", remedy="call fit first")
        rows = _as_matrix(X)
        if rows.shape[1] != self.n_features_in_:
            raise InputError(
                f"X has {rows.shape[1]} features", expected=f"{self.n_features_in_} as in fit"
            )
        if self.unit_norm in ("before", "both"):
            rows = unit_rows(rows)
        projected = (rows - self.mean_) @ self.components_.T
        return unit_rows(projected) if self.unit_norm in ("after", "both") else projected

    def get_state(self) -> dict[str, NDArray[Any]]:
        """The fitted map as plain arrays; with ``get_params()`` it rebuilds the map."""
        if not hasattr(self, "components_"):
            raise InputError("this PCA is not fitted", remedy="call fit first")
        return {name: np.asarray(getattr(self, name)) for name in self._state_names}

    @classmethod
    def from_state(cls, params: Mapping[str, Any], state: Mapping[str, NDArray[Any]]) -> Self:
        """Rebuild a fitted map from its parameters and what `get_state` returned.

        Raises
        ------
        InputError
            When an array is missing.
        """
        missing = [name for name in cls._state_names if name not in state]
        if missing:
            raise InputError(f"the state of a PCA lacks {', '.join(missing)}")
        fitted = cls(**params)
        for name in cls._state_names:
            value = np.asarray(state[name])
            setattr(fitted, name, value.item() if value.ndim == 0 else value)
        return fitted


def unit_rows(X: ArrayLike) -> Array:
    """Rows scaled to Euclidean norm 1; rows of zeros stay as they are.

    Parameters
    ----------
    X : array-like of shape (n, d)

    Returns
    -------
    ndarray of shape (n, d), float64
    """
    rows = np.asarray(X, dtype=np.float64)
    # Dividing by the largest entry first keeps the squares of huge and tiny rows in range.
    largest = np.abs(rows).max(axis=1, keepdims=True, initial=0.0)
    scaled = np.divide(rows, largest, out=np.zeros_like(rows), where=largest > 0.0)
    norms = np.linalg.norm(scaled, axis=1, keepdims=True)
    return np.divide(scaled, norms, out=scaled, where=norms > 0.0)


def _as_matrix(X: ArrayLike) -> Array:
    rows = np.asarray(X, dtype=np.float64)
    if rows.ndim != 2 or 0 in rows.shape:
        raise InputError(f"X has shape {rows.shape}", expected="(n, d) with n, d >= 1")
    if not np.isfinite(rows).all():
        raise InputError("X contains NaN or infinity", expected="finite values")
    return rows
