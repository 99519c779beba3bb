"""The rows a linear ranker is fitted on: in memory, in single precision, or recomputed from a map.

A fit needs two products with the matrix Z (n x m) of mapped documents, Z w and Z'r. Each comes in two
accuracies: exact to float64 for values and gradients, and fast for Hessian products inside conjugate
gradients, which tolerate an error far below their own stopping rule. Single-precision storage thus
costs the minimiser no accuracy beyond the rounding of the features themselves.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from pipeline_lib.kernels.feature_map import FeatureMap
from pipeline_lib.kernels.functions import row_blocks

Array = NDArray[np.float64]
Rows = NDArray[np.float64] | NDArray[np.float32]

DEFAULT_MEMORY_BYTES = 4 * 2**30
_BLOCK_BYTES = 4 * 2**20
_CACHED_BYTES = 16 * 2**20  # rows that a processor's cache may hold
_MAPPED_BLOCK_BYTES = 16 * 2**20


class RowMatrix(Protocol):
    """A matrix Z of shape (n_rows, n_features), seen through its products."""

    n_rows: int
    n_features: int

    def dot(self, w: Array) -> Array:
        """Z w."""

    def transpose_dot(self, r: Array) -> Array:
        """Z'r."""

    def fast_dot(self, w: Array) -> Array:
        """Z w, in the precision of storage."""

    def fast_transpose_dot(self, r: Array) -> Array:
        """Z'r, in the precision of storage."""

    def take(self, index: NDArray[np.intp]) -> Array:
        """Some rows of Z, float64."""


class ArrayRows:
    """Rows held in memory, float64 or float32.

    Parameters
    ----------
    Z : ndarray of shape (n, m)
    single_copy : bool, default False
        Keep a float32 copy of float64 rows beside them: the fast products, which wait for memory,
        then take half the time.
    """

    def __init__(self, Z: Rows, *, single_copy: bool = False) -> None:
        self.n_rows, self.n_features = Z.shape
        self._Z = Z
        self._single = Z.dtype == np.float32
        self._fast: Rows = Z.astype(np.float32) if single_copy else Z

    def dot(self, w: Array) -> Array:
        if not self._single:
            return self._Z @ w
        scores = np.empty(self.n_rows)
        for part in row_blocks(self.n_rows, 8 * self.n_features, _BLOCK_BYTES):
            scores[part] = self._Z[part].astype(np.float64) @ w
        return scores

    def transpose_dot(self, r: Array) -> Array:
        if not self._single:
            return r @ self._Z
        total = np.zeros(self.n_features)
        for part in row_blocks(self.n_rows, 8 * self.n_features, _BLOCK_BYTES):
            total += r[part] @ self._Z[part].astype(np.float64)
        return total

    def fast_dot(self, w: Array) -> Array:
        scores = self._fast @ w.astype(self._fast.dtype, copy=False)
        return np.asarray(scores, dtype=np.float64)

    def fast_transpose_dot(self, r: Array) -> Array:
        if self._fast.dtype == np.float64:
            return r @ self._fast
        # Long sums in single precision lose digits: add up blocks in double.
        total = np.zeros(self.n_features)
        weights = r.astype(np.float32)
        for part in row_blocks(self.n_rows, 4 * self.n_features, 4 * _BLOCK_BYTES):
            total += weights[part] @ self._fast[part]
        return total

    def take(self, index: NDArray[np.intp]) -> Array:
        return self._Z[index].astype(np.float64, copy=False)


class MappedRows:
    """Rows psi(x) recomputed block by block at each product: the memory of X and no more."""

    def __init__(self, feature_map: FeatureMap, X: Rows) -> None:
        self.n_rows, self.n_features = len(X), feature_map.n_features_out_
        self._map = feature_map
        self._X = X

    def dot(self, w: Array) -> Array:
        scores = np.empty(self.n_rows)
        for part, block in self._map.transform_blocks(self._X, block_bytes=_MAPPED_BLOCK_BYTES):
            scores[part] = block @ w
        return scores

    def transpose_dot(self, r: Array) -> Array:
        total = np.zeros(self.n_features)
        for part, block in self._map.transform_blocks(self._X, block_bytes=_MAPPED_BLOCK_BYTES):
            total += r[part] @ block
        return total

    fast_dot = dot
    fast_transpose_dot = transpose_dot

    def take(self, index: NDArray[np.intp]) -> Array:
        return self._map.transform(self._X[index])


def map_rows(
    feature_map: FeatureMap, X: Rows, *, memory_bytes: int = DEFAULT_MEMORY_BYTES
) -> RowMatrix:
    """psi(X) in the most convenient form that ``memory_bytes`` allow.

    In float64 when half the budget holds it (with a float32 copy for the fast products), in float32 when the budget does, otherwise recomputed
    block by block at each product.
    """
    n, m = len(X), feature_map.n_features_out_
    if 8 * n * m <= memory_bytes // 2:
        Z = _filled(feature_map, X, np.empty((n, m)))
        return ArrayRows(Z, single_copy=Z.nbytes > _CACHED_BYTES)
    if 4 * n * m <= memory_bytes:
        return ArrayRows(_filled(feature_map, X, np.empty((n, m), dtype=np.float32)))
    return MappedRows(feature_map, X)


def _filled(feature_map: FeatureMap, X: Rows, Z: Rows) -> Rows:
    for part, block in feature_map.transform_blocks(X):
        Z[part] = block
    return Z
