"""The leading part of the spectrum of a positive semidefinite matrix, with an honest rank.

For symmetric positive semidefinite K (n x n) with eigenvalues l_1 >= l_2 >= ... this module finds
the pairs (l_i, v_i) with l_i > cutoff * l_1, at most ``rank`` of them.

Kernel matrices of smooth kernels have small numerical rank. Where that is so, a pivoted Cholesky
factor K ~ L L', stopped well below the cut-off after r steps, spans almost the wanted subspace; a few
block power steps K Q with Rayleigh-Ritz projections make it exact. The work is O(n^2 r) in matrix
products instead of the many n^3 of a full decomposition. Where the rank is not small, the full
decomposition is used.

A matrix with a materially negative eigenvalue is no kernel matrix: it is refused, never repaired by
taking absolute values. (Power steps find eigenvalues by modulus, so they find negative ones down to the
share of the cut-off at which they oversample; the full decomposition finds them all.)
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import linalg

from pipeline_lib.errors import InputError

Array = NDArray[np.float64]

# Eigenvalues below -_INDEFINITE * l_1 are not rounding.
_INDEFINITE = 1e-8
# Below this size the full decomposition costs nothing.
_SMALL = 300
# The Cholesky factor stops at this share of the smallest wanted eigenvalue: the columns beyond the
# wanted ones make the power steps converge fast.
_OVERSAMPLING = 0.05
# A pair (l, v) is accepted when ||K v - l v|| is below this share of the cut-off value: eigenvalues are
# then right to the square of it.
_RESIDUAL = 1e-4
_SPARE_COLUMNS = 16
_MAX_POWER_STEPS = 12
_BLOCK = 256


def truncated_eigh(
    K: ArrayLike, rank: int | None = None, cutoff: float = 1e-6
) -> tuple[Array, Array, int]:
    """Eigenpairs of a positive semidefinite matrix above a relative cut-off, largest first.

    Parameters
    ----------
    K : array of shape (n, n)
        Symmetric positive semidefinite.
    rank : int, optional
        Keep at most this many pairs.
    cutoff : float, default 1e-6
        Keep eigenvalues above ``cutoff`` times the largest; must lie in [0, 1).

    Returns
    -------
    values : ndarray of shape (r,)
        Decreasing, all positive.
    vectors : ndarray of shape (n, r)
        Orthonormal columns; the entry of largest modulus of each is positive, so that the result
        does not depend on the sign the decomposition happened to choose.
    effective_rank : int
        Number of eigenvalues above the cut-off, before ``rank`` limits them.

    Raises
    ------
    InputError
        When K is not square, not finite, not symmetric, or materially indefinite.
    """
    matrix = _check(K, rank, cutoff)
    pairs = _by_power_steps(matrix, cutoff) if len(matrix) > _SMALL else None
    values, vectors = pairs if pairs is not None else _by_eigh(matrix)
    largest = values[0] if len(values) else 0.0
    if largest <= 0:
        return np.empty(0), np.empty((len(matrix), 0)), 0
    floor = max(cutoff, np.finfo(float).eps * len(matrix)) * largest
    effective_rank = int(np.count_nonzero(values > floor))
    kept = effective_rank if rank is None else min(rank, effective_rank)
    return values[:kept].copy(), _fix_signs(vectors[:, :kept]), effective_rank


def pivoted_cholesky(K: ArrayLike, tol: float) -> tuple[Array, NDArray[np.intp]]:
    """Cholesky factorisation with diagonal pivoting, stopped at numerical rank.

    Parameters
    ----------
    K : array of shape (n, n)
        Symmetric positive semidefinite.
    tol : float
        Stop when every remaining diagonal entry of K - L L' is at most ``tol``.

    Returns
    -------
    L : ndarray of shape (n, r)
        K ~ L L', rows in the order of K.
    pivots : ndarray of shape (r,)
        Rows chosen, in order; ``L[pivots]`` is lower triangular.
    """
    lower, order, r, _ = linalg.lapack.dpstrf(np.asarray(K, dtype=np.float64), tol=tol, lower=1)
    order = order - 1
    factor = np.empty((len(order), r))
    factor[order] = np.tril(lower[:, :r])
    return factor, order[:r].astype(np.intp)


def _check(K: ArrayLike, rank: int | None, cutoff: float) -> Array:
    matrix = np.asarray(K, dtype=np.float64)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or matrix.shape[0] == 0:
        raise InputError(f"the matrix has shape {matrix.shape}", expected="a square matrix")
    if not np.isfinite(matrix).all():
        raise InputError("the matrix has NaN or infinite entries", expected="finite numbers")
    allowed = 1e-8 * max(matrix.max(), -matrix.min())
    for start in range(0, len(matrix), _BLOCK):
        block = slice(start, start + _BLOCK)
        difference = matrix[block, start:] - matrix[start:, block].T
        if max(difference.max(), -difference.min()) > allowed:
            raise InputError("the matrix is not symmetric", expected="a symmetric matrix")
    if rank is not None and rank < 1:
        raise InputError(f"rank is {rank}", expected="at least 1")
    if not 0 <= cutoff < 1:
        raise InputError(f"cutoff is {cutoff}", expected="a number in [0, 1)")
    return matrix


def _refuse(smallest: float, largest: float) -> None:
    raise InputError(
        f"the matrix is indefinite (smallest eigenvalue {smallest:.3g}, largest {largest:.3g})",
        expected="a positive semidefinite kernel matrix",
    )


def _by_eigh(K: Array) -> tuple[Array, Array]:
    values, vectors = linalg.eigh(K, driver="evd", check_finite=False)
    if values[0] < -_INDEFINITE * max(values[-1], 0.0):
        _refuse(values[0], values[-1])
    return values[::-1], vectors[:, ::-1]


def _by_power_steps(K: Array, cutoff: float) -> tuple[Array, Array] | None:
    """The pairs above the cut-off (and some below), or None when their number is not small."""
    n = len(K)
    diagonal = np.diagonal(K)
    if diagonal.max() <= 0:
        return None
    # 1'K1/n and every diagonal entry bound the largest eigenvalue from below.
    largest = max(float(K.sum()) / n, float(diagonal.max()))
    rounding = n * np.finfo(float).eps * float(diagonal.max())
    factor, _ = pivoted_cholesky(K, max(_OVERSAMPLING * cutoff * largest, rounding))
    if factor.shape[1] > n // 5:
        return None
    # A few random columns, for factors that stop right at the wanted rank.
    spare = np.random.default_rng(0).standard_normal((n, _SPARE_COLUMNS))
    basis = linalg.qr(np.hstack([factor, spare]), mode="economic", check_finite=False)[0]
    for _ in range(_MAX_POWER_STEPS):
        image = K @ basis
        values, rotation = linalg.eigh(basis.T @ image, driver="evd", check_finite=False)
        values, rotation = values[::-1], rotation[:, ::-1]
        if values[-1] < -_INDEFINITE * values[0]:
            return None  # power steps have found a negative eigenvalue: let all of them decide
        wanted = int(np.count_nonzero(values > cutoff * values[0]))
        vectors = basis @ rotation[:, :wanted]
        residual = image @ rotation[:, :wanted] - vectors * values[:wanted]
        allowed = max(_RESIDUAL * cutoff, n * np.finfo(float).eps) * values[0]
        if wanted < basis.shape[1] and np.linalg.norm(residual, axis=0).max() <= allowed:
            return values[:wanted], vectors
        basis = linalg.qr(image, mode="economic", overwrite_a=True, check_finite=False)[0]
    return None


def _fix_signs(vectors: Array) -> Array:
    if vectors.shape[1] == 0:
        return vectors
    at = np.abs(vectors).argmax(axis=0)
    signs = np.where(vectors[at, np.arange(vectors.shape[1])] < 0, -1.0, 1.0)
    return vectors * signs
