"""The few largest eigenpairs of a symmetric matrix, by block Lanczos with full reorthogonalisation.

A full decomposition of an n x n matrix costs about 4 n^3 / 3 operations for the tridiagonal form
alone, half of them memory bound. For r << n leading pairs a Krylov space of a few r dimensions is
enough: blocks of vectors are multiplied by the matrix (BLAS-3), made orthogonal to all earlier ones
(twice), and the matrix is projected on their span; the space grows until the residuals of the r
leading Ritz pairs are rounding. Pairs too small to be returned need not converge. Small matrices, and
ranks that are no small share of n, take the full decomposition.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

Array = NDArray[np.float64]
Border: TypeAlias = tuple[Array, Array]
Symmetric: TypeAlias = NDArray[np.float64] | NDArray[np.float32]

_SMALL = 500  # below this order the full decomposition is as fast
_SHARE = 10  # above n / _SHARE pairs too
_LARGEST_BLOCK = 32
_VANISHED = 1e-6
_CHECK_STEPS = 8
_CHECK_WIDTH = 16


def leading_eigenpairs(
    matrix: Symmetric,
    rank: int,
    cutoff: float = 1e-12,
    tol: float = 1e-11,
    border: Border | None = None,
) -> tuple[Array, Array]:
    """The at most ``rank`` algebraically largest eigenpairs, in decreasing order.

    Parameters
    ----------
    matrix : ndarray of shape (n, n)
        Symmetric, finite. With float32 its products are in float32 (about twice as fast; residuals
        then do not come below 1e-7 of its norm), everything else is in float64.
    rank : int
        Pairs wanted, >= 1.
    cutoff : float, default 1e-12
        Only eigenvalues above ``cutoff`` times the largest are returned.
    tol : float, default 1e-11
        Largest residual norm ||M v - l v|| of a pair, relative to the largest eigenvalue.
    border : pair of ndarrays of shape (n,), optional
        (a, b): the pairs are those of ``matrix + a b' + b a'``. Keeps a dominant part of low rank in
        float64 beside a float32 matrix.

    Returns
    -------
    values : ndarray of shape (r,)
    vectors : ndarray of shape (n, r)
        Orthonormal columns.
    """
    n = len(matrix)
    pairs = None
    if n > _SMALL and rank < n // _SHARE:
        pairs = _block_lanczos(_Products(matrix, border), rank, cutoff, tol)
    if pairs is None:
        full = matrix.astype(np.float64, copy=False)
        if border is not None:
            outer = np.outer(*border)
            full = full + outer + outer.T
        pairs = linalg.eigh(full, subset_by_index=(max(0, n - rank), n - 1), check_finite=False)
    values, vectors = pairs[0][::-1], pairs[1][:, ::-1]
    kept = int(np.count_nonzero(values > cutoff * max(values[0], 0.0)))
    return values[:kept], vectors[:, :kept]


class _Products:
    """Products with a symmetric matrix and its border, as float64."""

    def __init__(self, matrix: Symmetric, border: Border | None) -> None:
        self.matrix = matrix
        self.border = border

    def __len__(self) -> int:
        return len(self.matrix)

    def __matmul__(self, block: Array) -> Array:
        narrow: NDArray[Any] = block.astype(self.matrix.dtype, copy=False)
        product: Array = (self.matrix @ narrow).astype(np.float64, copy=False)
        if self.border is not None:
            a, b = self.border
            product += np.outer(a, b @ block)
            product += np.outer(b, a @ block)
        return product


def _block_lanczos(
    matrix: _Products, rank: int, cutoff: float, tol: float
) -> tuple[Array, Array] | None:
    """Ritz pairs in ascending order, or None when they take a full decomposition after all.

    That is when the space would outgrow a third of the matrix, or misses repeated eigenvalues.
    """
    n = len(matrix)
    # Wide blocks multiply fast, narrow ones leave more powers of the matrix in the same space.
    width = min(_LARGEST_BLOCK, max(8, rank // 4))
    limit = (n // 3 // width) * width
    basis = np.empty((n, limit + width), order="F")
    projected = np.zeros((limit, limit))
    start = np.random.default_rng(0).standard_normal((n, width))
    basis[:, :width] = linalg.qr(start, mode="economic", check_finite=False)[0]
    next_check = rank + 2 * width
    for size in range(width, limit + 1, width):
        block = slice(size - width, size)
        known = basis[:, :size]
        product = matrix @ basis[:, block]
        overlap = known.T @ product
        product -= known @ overlap
        projected[:size, block] = overlap
        projected[block, :size] = overlap.T
        fresh, coupling = _orthonormal_beside(known, product)
        basis[:, size : size + width] = fresh
        if size < min(next_check, limit):
            continue
        values, small = linalg.eigh(
            projected[:size, :size], subset_by_index=(size - rank, size - 1), check_finite=False
        )
        largest = np.abs(values).max()
        # Ritz values grow: those a little below the cut-off may still come to lie above it.
        needed = values > 0.5 * cutoff * largest
        values, small = values[needed], small[:, needed]
        residuals = np.linalg.norm(coupling @ small[block], axis=0)
        if len(values) and residuals.max() <= tol * largest:
            vectors = known @ small
            floor = values[0] if needed.all() else cutoff * largest
            return (values, vectors) if _complete(matrix, vectors, floor, largest) else None
        next_check = size + max(2 * width, rank // 2)
    return None


def _complete(matrix: _Products, vectors: Array, floor: float, largest: float) -> bool:
    """Whether no eigenvalue above ``floor`` is missing beside the found ``vectors``.

    A Krylov space holds at most as many copies of a repeated eigenvalue as its blocks are wide.
    Subspace iteration from fresh random directions beside the found ones would meet the others.
    """
    rows = np.random.default_rng(1).standard_normal((len(matrix), _CHECK_WIDTH))
    for _ in range(_CHECK_STEPS):
        rows -= vectors @ (vectors.T @ rows)
        rows = np.linalg.qr(rows)[0]
        product = matrix @ rows
        missed = linalg.eigvalsh(rows.T @ product, check_finite=False)[-1]
        if missed > floor + 1e-8 * largest:
            return False
        rows = product
    return True


def _orthonormal_beside(known: Array, product: Array) -> tuple[Array, Array]:
    """Orthonormal columns beside ``known`` and R with ``product = columns @ R`` (second pass)."""
    product -= known @ (known.T @ product)
    fresh, coupling = linalg.qr(product, mode="economic", check_finite=False)
    sizes = np.abs(np.diagonal(coupling))
    if sizes.min() <= _VANISHED * sizes.max():
        # Where the product vanished, QR invents directions: they must still avoid the known ones.
        fresh -= known @ (known.T @ fresh)
        fresh = linalg.qr(fresh, mode="economic", check_finite=False)[0]
    return np.asarray(fresh, dtype=np.float64), np.asarray(coupling, dtype=np.float64)
