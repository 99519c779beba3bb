"""Singular value soft-thresholding without a full singular value decomposition.

For C (n x m) and a threshold tau >= 0, the proximal operator of the trace norm is

    argmin_Q  tau ||Q||_tr + 1/2 ||Q - C||_F^2  =  U diag(max(s - tau, 0)) V',   C = U diag(s) V'.

Only the singular triplets above tau are needed. They come from the eigenvectors of the smaller Gram
matrix (C'C when m <= n): one symmetric product and a k x k problem with k = min(n, m), exact and
always the same work. (Subspace iteration warm-started with the last triplets does not pay: near a
minimum a bulk of singular values lies just below tau, and telling it from those above takes as many
products.)
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
    residual : float
        ||C - left @ right.T||_F.
    """

    left: Array
    right: Array
    singular_values: Array
    residual: float

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
        values = flipped.singular_values
        # The scale goes to the left factor.
        left, right = flipped.right * values, flipped.left / values
        return ShrunkMatrix(left, right, values, flipped.residual)
    gram = C.T @ C
    square = max(float(np.trace(gram)), 0.0)
    if threshold < _GRAM_LIMIT * np.sqrt(square):
        return _from_svd(C, threshold)
    squares, V = linalg.eigh(gram, subset_by_value=(threshold**2, np.inf), check_finite=False)
    squares, V = squares[::-1], np.ascontiguousarray(V[:, ::-1])
    values = np.sqrt(squares)
    shrunk = values - threshold
    cut = max(square - float((squares - threshold**2).sum()), 0.0)
    left = C @ (V * (shrunk / values))
    return ShrunkMatrix(left, V, shrunk, float(np.sqrt(cut)))


def _from_svd(C: Array, threshold: float) -> ShrunkMatrix:
    U, s, Vt = linalg.svd(C, full_matrices=False, check_finite=False)
    kept = int(np.count_nonzero(s > threshold))
    shrunk = s[:kept] - threshold
    cut = float(np.linalg.norm(np.minimum(s, threshold)))
    return ShrunkMatrix(U[:, :kept] * shrunk, np.ascontiguousarray(Vt[:kept].T), shrunk, cut)
