"""What every explicit feature map of the library shares: transformation by row blocks, and its state.

A feature map psi: R^d -> R^m turns a kernel into an inner product, k(x, y) ~ psi(x)'psi(y). It is
fitted once, applied block by block so that no temporary grows with the number of rows, and stored as
plain arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from pipeline_lib.errors import InputError
from pipeline_lib.kernels.functions import DEFAULT_BLOCK_BYTES, Array, as_rows, row_blocks
from pipeline_lib.kernels.sampling import sample_rows

_ERROR_ROWS = 1_000


class FeatureMap(TransformerMixin, BaseEstimator):
    """Base of the explicit feature maps; a map implements `fit` and `_row_transformer`.

    Attributes
    ----------
    n_features_in_ : int
        Columns of the fitted rows.
    n_features_out_ : int
        Dimension m of the feature space.
    """

    n_features_in_: int
    n_features_out_: int

    # The fitted arrays, from which the map can be rebuilt.
    _state_names: ClassVar[tuple[str, ...]] = ()

    def fit(self, X: ArrayLike, y: object = None) -> Self:
        raise NotImplementedError

    def _row_transformer(self) -> Callable[[Array], Array]:
        """The map as a function of checked rows; what does not depend on them is computed here."""
        raise NotImplementedError

    def exact_kernel(self, X: ArrayLike) -> Array:
        """The kernel matrix (n, n) of rows ``X`` (n, d), which the map approximates."""
        raise NotImplementedError

    def approximation_error(self, X: ArrayLike, *, n_rows: int = _ERROR_ROWS) -> float:
        """Relative error ||K - Z Z'||_F / ||K||_F of the map on a sample of the rows of ``X``.

        Parameters
        ----------
        X : array of shape (n, d)
        n_rows : int, default 1000
            Rows of the sample; which ones depends on the rows alone, so maps can be compared.
        """
        rows = as_rows(X, n_features=self.n_features_in_)
        sample = rows[sample_rows(rows, n_rows, np.random.default_rng(0))]
        K, Z = self.exact_kernel(sample), self.transform(sample)
        return float(np.linalg.norm(K - Z @ Z.T) / np.linalg.norm(K))

    def _bytes_per_row(self) -> int:
        """Size of the largest temporary that one row needs."""
        return 8 * self.n_features_out_

    def transform_blocks(
        self, X: ArrayLike, *, block_bytes: int = DEFAULT_BLOCK_BYTES
    ) -> Iterator[tuple[slice, Array]]:
        """Yield ``(rows, psi(X[rows]))`` in order, with temporaries of about ``block_bytes``."""
        check_is_fitted(self)
        rows = np.asarray(X)
        if rows.ndim != 2 or len(rows) == 0:
            raise InputError(f"X has shape {rows.shape}", expected="a 2-d array with rows")
        transform = self._row_transformer()
        for part in row_blocks(len(rows), self._bytes_per_row(), block_bytes):
            yield part, transform(as_rows(rows[part], n_features=self.n_features_in_))

    def transform(self, X: ArrayLike) -> NDArray[np.float64]:
        """Map rows to the feature space.

        Parameters
        ----------
        X : array of shape (n, d)

        Returns
        -------
        ndarray of shape (n, n_features_out_), float64
        """
        rows = np.asarray(X)
        blocks = self.transform_blocks(rows)  # checks when the first block is asked for
        part, block = next(blocks)
        Z = np.empty((len(rows), block.shape[1]))
        Z[part] = block
        for part, block in blocks:
            Z[part] = block
        return Z

    def get_state(self) -> dict[str, NDArray[Any]]:
        """The fitted map as plain arrays; with `get_params` it rebuilds the map."""
        check_is_fitted(self)
        return {name: np.asarray(getattr(self, name)) for name in self._state_names}

    @classmethod
    def from_state(cls, params: Mapping[str, Any], state: Mapping[str, NDArray[Any]]) -> Self:
        """Rebuild a fitted map from its parameters and what `get_state` returned."""
        missing = [name for name in cls._state_names if name not in state]
        if missing:
            raise InputError(f"the state of a {cls.__name__} lacks {', '.join(missing)}")
        fitted = cls(**params)
        for name in cls._state_names:
            value = np.asarray(state[name])
            setattr(fitted, name, value.item() if value.ndim == 0 else value)
        return fitted
