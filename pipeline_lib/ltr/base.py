"""What every ranker shares: checks at prediction, an optional feature map inside, state as arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from pipeline_lib.base import IterativeEstimator
from pipeline_lib.errors import InputError
from pipeline_lib.kernels.feature_map import FeatureMap
from pipeline_lib.kernels.functions import as_rows, check_rows, row_blocks
from pipeline_lib.ltr.rows import DEFAULT_MEMORY_BYTES, ArrayRows, RowMatrix, map_rows

Array = NDArray[np.float64]

_MAP_PREFIX = "feature_map."
_PREDICT_BLOCK_BYTES = 16 * 2**20


class Ranker(IterativeEstimator):
    """A model that scores documents: ``fit(X, y, qid)``, ``predict(X)``, larger is more relevant.

    Attributes
    ----------
    n_features_in_ : int
        Columns of the fitted rows.
    """

    n_features_in_: int

    # Fitted arrays and numbers from which `predict` can be rebuilt.
    _state_names: ClassVar[tuple[str, ...]] = ("n_features_in_",)

    def fit(self, X: ArrayLike, y: ArrayLike, qid: ArrayLike) -> Self:
        raise NotImplementedError

    def predict(self, X: ArrayLike) -> Array:
        """Scores of documents.

        Parameters
        ----------
        X : array of shape (n, d)

        Returns
        -------
        ndarray of shape (n,), float64
        """
        check_is_fitted(self, "n_features_in_")
        return self._scores(as_rows(X, n_features=self.n_features_in_))

    def _scores(self, rows: Array) -> Array:
        raise NotImplementedError

    def get_state(self) -> dict[str, NDArray[Any]]:
        """What prediction needs, as plain arrays; with `get_params` it rebuilds the model."""
        check_is_fitted(self, "n_features_in_")
        return {name: np.asarray(getattr(self, name)) for name in self._state_names}

    @classmethod
    def from_state(cls, params: Mapping[str, Any], state: Mapping[str, NDArray[Any]]) -> Self:
        """Rebuild a fitted model from its parameters and what `get_state` returned."""
        missing = [name for name in cls._state_names if name not in state]
        if missing:
            raise InputError(f"the state of a {cls.__name__} lacks {', '.join(missing)}")
        fitted = cls(**params)
        for name in cls._state_names:
            value = np.asarray(state[name])
            setattr(fitted, name, value.item() if value.ndim == 0 else value)
        return fitted


class LinearRanker(Ranker):
    """A ranker linear in psi(x), for a feature map psi (or x itself).

    Attributes
    ----------
    coef_ : ndarray of shape (m,)
        Weights in the space of the feature map.
    feature_map_ : FeatureMap or None
        The fitted map.
    """

    coef_: Array
    feature_map_: FeatureMap | None

    _state_names: ClassVar[tuple[str, ...]] = ("n_features_in_", "coef_")

    def _unfitted_map(self) -> FeatureMap | None:
        """The map to fit on the training rows, or None for the rows themselves."""
        feature_map: FeatureMap | None = self.get_params(deep=False).get("feature_map")
        return None if feature_map is None else clone(feature_map)

    def _mapped(self, X: ArrayLike, *, memory_bytes: int = DEFAULT_MEMORY_BYTES) -> RowMatrix:
        """Check the training rows, fit the map, and return the mapped rows."""
        rows = check_rows(X)
        feature_map = self._unfitted_map()
        self.n_features_in_ = rows.shape[1]
        if feature_map is None:
            self.feature_map_ = None
            return ArrayRows(rows)
        self.feature_map_ = feature_map.fit(rows)
        return map_rows(feature_map, rows, memory_bytes=memory_bytes)

    def predict(self, X: ArrayLike) -> Array:
        """Scores psi(x)'w of documents.

        Parameters
        ----------
        X : array of shape (n, d)

        Returns
        -------
        ndarray of shape (n,), float64
        """
        check_is_fitted(self, "coef_")
        rows = check_rows(X, n_features=self.n_features_in_)
        if self.feature_map_ is None:
            return ArrayRows(rows).dot(self.coef_)
        scores = np.empty(len(rows))
        for part in row_blocks(len(rows), 8 * self.n_features_in_, _PREDICT_BLOCK_BYTES):
            at = part.start
            for inner, block in self.feature_map_.transform_blocks(rows[part]):
                scores[at + inner.start : at + inner.stop] = block @ self.coef_
        return scores

    def get_state(self) -> dict[str, NDArray[Any]]:
        state = super().get_state()
        if self.feature_map_ is not None:
            inner = self.feature_map_.get_state()
            state |= {_MAP_PREFIX + name: value for name, value in inner.items()}
        return state

    @classmethod
    def from_state(cls, params: Mapping[str, Any], state: Mapping[str, NDArray[Any]]) -> Self:
        fitted = super().from_state(params, state)
        feature_map = fitted._unfitted_map()
        if feature_map is not None:
            inner = {
                name.removeprefix(_MAP_PREFIX): value
                for name, value in state.items()
                if name.startswith(_MAP_PREFIX)
            }
            feature_map = type(feature_map).from_state(feature_map.get_params(), inner)
        fitted.feature_map_ = feature_map
        return fitted
