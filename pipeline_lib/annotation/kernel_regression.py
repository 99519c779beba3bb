"""Truncated kernel regression: the coefficients B of x -> [k(x, z_1), .., k(x, z_p)] B.

RKML's metric A = K_r^+ S K_r^+ with S = Yhat Yhat' is B B' with B = K_r^+ Yhat: learning it is a
regression of the targets T = Yhat on kernel evaluations, kept to the r leading directions. Three
forms of one regression, all with the smoothed inverse of Algorithm 1 (mu = 0 is the pseudo-inverse):

- full: z are all n training rows; K = V diag(w) V', B = V_r diag(w / (w^2 + mu)) V_r' T;
- landmarks: z are n_s sampled rows and K_b (n x n_s) their rectangle of kernel evaluations;
  K_b' K_b = V diag(s^2) V', B = V_r diag(1 / (s^2 + mu)) V_r' K_b' T. K_b is read row block by
  row block and never held;
- linear: k(x, z) = x'z needs no kernel matrix: with X'X = V diag(s^2) V' the full form becomes
  x -> x' W, W = V_r diag(s^2 / (s^4 + mu)) V_r' X' T.

Why the landmark form is the Nystroem form: (3.6) replaces K by K_b [K_s]^+ K_b' with K_b itself cut
to rank r. Put the same approximation in place of phi(x) (k(x, x_i) ~ k(x, z) [K_s]^+ K_b') and the
factors K_s cancel as long as the kept directions of K_b span those of K_s: what remains is
k(x, z) K_br^+ T, the form above, which is also what Algorithm 1 writes with r landmarks. With every
training row a landmark (n_s = n) it is the full form exactly.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline_lib.kernels.block_lanczos import leading_eigenpairs
from pipeline_lib.kernels.functions import iter_kernel_blocks, kernel_matrix

Array = NDArray[np.float64]

# Rows of K_b held at a time: large enough for BLAS, small enough for any machine.
_BLOCK_BYTES = 256 * 2**20


def _product(A: Array, T: Any) -> Array:
    """A' T for dense or sparse T, dense."""
    if isinstance(T, np.ndarray):
        return A.T @ T
    return (T.T @ A).T


def full_coefficients(
    X: Array, targets: Any, rank: int, *, kernel: str, gamma: float, smoothing: float = 0.0
) -> Array:
    """B (n x t) of the full form: regression on the kernel with every training row.

    Parameters
    ----------
    X : ndarray of shape (n, d)
    targets : ndarray or sparse matrix of shape (n, t)
    rank : int
        Leading eigenpairs of K kept (fewer when K has lower numerical rank).
    kernel, gamma
        As in `pipeline_lib.kernels.functions`.
    smoothing : float, default 0
        mu >= 0.
    """
    w, V = leading_eigenpairs(kernel_matrix(X, None, kernel, gamma), rank)
    return V @ ((w / (w**2 + smoothing))[:, None] * _product(V, targets))


def landmark_coefficients(
    X: Array,
    landmarks: Array,
    targets: Any,
    rank: int,
    *,
    kernel: str,
    gamma: float,
    smoothing: float = 0.0,
) -> Array:
    """B (n_s x t) of the landmark form; memory is O(n_s^2 + n_s t), time one pass over the rows.

    Parameters
    ----------
    X : ndarray of shape (n, d)
    landmarks : ndarray of shape (n_s, d)
    targets : ndarray or sparse matrix of shape (n, t)
    rank, kernel, gamma, smoothing
        As in `full_coefficients`.
    """
    size = len(landmarks)
    gram = np.zeros((size, size))
    moments = np.zeros((size, targets.shape[1]))
    for rows, K in iter_kernel_blocks(X, landmarks, kernel, gamma, block_bytes=_BLOCK_BYTES):
        gram += K.T @ K
        moments += _product(K, targets[rows])
    # The Gram matrix has squared eigenvalues: its rounding noise starts at the same cut-off.
    squares, V = leading_eigenpairs(gram, rank)
    return V @ ((V.T @ moments) / (squares + smoothing)[:, None])


def linear_coefficients(X: Array, targets: Any, rank: int, *, smoothing: float = 0.0) -> Array:
    """W (d x t) of the linear form: the full form for k(x, z) = x'z without a kernel matrix."""
    squares, V = leading_eigenpairs(X.T @ X, rank)
    inverse = squares / (squares**2 + smoothing)
    return V @ (inverse[:, None] * (V.T @ _product(X, targets)))


def evaluate(
    X: Array, landmarks: Array, coefficients: Array, *, kernel: str, gamma: float
) -> Array:
    """[k(x, z_1), .., k(x, z_p)] B for every row of ``X``, streaming over row blocks."""
    result = np.empty((len(X), coefficients.shape[1]))
    for rows, K in iter_kernel_blocks(X, landmarks, kernel, gamma):
        np.matmul(K, coefficients, out=result[rows])
    return result
