"""Singular value soft-thresholding without a full singular value decomposition.

For C (n x m) and a threshold tau >= 0, the proximal operator of the trace norm is

    argmin_Q  tau ||Q||_tr + 1/2 ||Q - C||_F^2  =  U diag(max(s - tau, 0)) V',   C = U diag(s) V'.

Only the singular triplets above tau are needed. They come from the eigenvectors of the smaller Gram
matrix (C'C when m <= n), one symmetric product and a k x k problem with k = min(n, m); or, when the
rank is small against a large k, from a block subspace iteration warm-started with the triplets of
the previous call.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

Array = NDArray[np.float64]

# Squaring in the Gram matrix leaves an error of about machine epsilon * s_max^2 / tau in a singular
# value near tau; below this share of s_max the decomposition of C itself is used.
_GRAM_LIMIT = 1e-6

# Subspace iteration: accepted residual of an eigenpair of C'C against its largest eigenvalue, number
# of sweeps before giving up, spare columns, and the sizes from which it pays.
_RESIDUAL = 1e-7
_SWEEPS = 3
_SPARE = 12
_LEAST_COLUMNS = 512
_LARGEST_SHARE = 0.12


@dataclass(frozen=True)
class ShrunkMatrix:
    """U diag(max(s - tau, 0)) V' in two factors, ``left @ right.T``.

    Attributes
    ----------
    left : ndarray of shape (n, r)
        Columns orthogonal, of norm s - tau.
    right : ndarray of shape (m, r)
        Columns orthonormal.
    singular_values : ndarray of shape (r,)
        s - tau > 0, descending.
    exact : bool
        Whether they come from a complete decomposition (not from a converged part of one).
    """

    left: Array
    right: Array
    singular_values: Array
    exact: bool

    @property
    def trace_norm(self) -> float:
        """Sum of the singular values of the product."""
        return float(self.singular_values.sum())


def shrink_singular_values(C: Array, threshold: float) -> ShrunkMatrix:
    """Soft-threshold the singular values of C, exactly.

    Parameters
    ----------
    C : ndarray of shape (n, m)
    threshold : float
        tau, at least 0.

    Returns
    -------
    ShrunkMatrix
    """
    if C.shape[0] < C.shape[1]:
        flipped = shrink_singular_values(C.T, threshold)
        return _balance(flipped.right, flipped.left, flipped.singular_values)
    gram = C.T @ C
    top = float(np.sqrt(max(np.trace(gram), 0.0)))
    if top <= threshold:
        return _nothing(C)
    if threshold < _GRAM_LIMIT * top:
        return _from_svd(C, threshold)
    squares, V = linalg.eigh(gram, subset_by_value=(threshold**2, np.inf), check_finite=False)
    if squares.size == 0:
        return _nothing(C)
    return _assemble(C @ V[:, ::-1], V[:, ::-1], squares[::-1], threshold, exact=True)


class SingularValueShrinker:
    """Soft-threshold a sequence of slowly changing matrices, warm-starting each from the last.

    Parameters
    ----------
    partial : bool, default=True
        Allow the warm-started subspace iteration where it is cheaper. With False every call is
        `shrink_singular_values`.

    Notes
    -----
    A partial result is accepted only if every retained pair satisfies the eigenvalue equation of
    C'C to a relative residual of 1e-7 and the spare columns have settled below the threshold, so
    that the spectrum beyond the retained part is seen to end; otherwise the call falls back to the
    Gram matrix. Set ``partial`` to False to confirm an end point with complete decompositions.
    """

    def __init__(self, partial: bool = True) -> None:
        self.partial = partial
        self._basis: Array | None = None

    def __call__(self, C: Array, threshold: float) -> ShrunkMatrix:
        """Return the soft-thresholded C in factors."""
        n, m = C.shape
        result = None
        if self.partial and self._basis is not None and m >= _LEAST_COLUMNS and n >= m:
            result = self._subspace(C, threshold, self._basis)
        if result is None:
            result = shrink_singular_values(C, threshold)
            self._basis = self._widen(result.right) if result.exact and n >= m else None
        return result

    @staticmethod
    def _widen(right: Array) -> Array | None:
        """Retained directions and spare ones to start from, if they are few enough to pay."""
        m, rank = right.shape
        spare = _SPARE + rank // 5
        if rank + spare > _LARGEST_SHARE * m:
            return None
        random = np.random.default_rng(0).standard_normal((m, spare))
        return np.asarray(linalg.qr(np.hstack([right, random]), mode="economic")[0])

    def _subspace(self, C: Array, threshold: float, basis: Array) -> ShrunkMatrix | None:
        for _ in range(_SWEEPS):
            W = C @ basis
            squares, rotation = linalg.eigh(W.T @ W, check_finite=False)
            order = slice(None, None, -1)
            squares, rotation = squares[order], rotation[:, order]
            V, W = basis @ rotation, W @ rotation
            image = C.T @ W
            residual = np.linalg.norm(image - V * squares, axis=0)
            kept = int(np.count_nonzero(squares > threshold**2))
            # The residual bounds how far a Ritz value may still move: the spare columns next to
            # the threshold must not be able to cross it.
            settled = residual <= _RESIDUAL * squares[0]
            below = squares[kept:] + residual[kept:] <= threshold**2
            if kept < len(squares) - _SPARE // 2 and settled[:kept].all() and below.all():
                self._basis = np.asarray(linalg.qr(image, mode="economic")[0])
                return _assemble(W[:, :kept], V[:, :kept], squares[:kept], threshold, exact=False)
            basis = np.asarray(linalg.qr(image, mode="economic")[0])
        return None


def _assemble(W: Array, V: Array, squares: Array, threshold: float, *, exact: bool) -> ShrunkMatrix:
    """Scale W = C V (columns orthogonal, squared norms given) to the shrunk singular values."""
    values = np.sqrt(squares)
    shrunk = values - threshold
    return ShrunkMatrix(W * (shrunk / values), np.ascontiguousarray(V), shrunk, exact)


def _from_svd(C: Array, threshold: float) -> ShrunkMatrix:
    U, s, Vt = linalg.svd(C, full_matrices=False, check_finite=False)
    kept = int(np.count_nonzero(s > threshold))
    shrunk = s[:kept] - threshold
    return ShrunkMatrix(U[:, :kept] * shrunk, np.ascontiguousarray(Vt[:kept].T), shrunk, True)


def _nothing(C: Array) -> ShrunkMatrix:
    n, m = C.shape
    return ShrunkMatrix(np.zeros((n, 0)), np.zeros((m, 0)), np.zeros(0), True)


def _balance(left: Array, right: Array, values: Array) -> ShrunkMatrix:
    """Give the scale to the left factor: left comes in orthonormal, right scaled by ``values``."""
    return ShrunkMatrix(left * values, right / values, values, True)
