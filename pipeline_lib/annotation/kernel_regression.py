"""Truncated kernel regression: the coefficients B of x -> [k(x, z_1), .., k(x, z_p)] B.

RKML's metric A = K_r^+ S K_r^+ with S = Yhat Yhat' is B B' with B = K_r^+ Yhat: learning it is a
regression of the targets T = Yhat on kernel evaluations, kept to the r leading directions. Three
forms of one regression, all with the smoothed inverse of Algorithm 1 (mu = 0 is the pseudo-inverse):

- full: z are all n training rows; K = V diag(w) V', B = V_r diag(w / (w^2 + mu)) V_r' T;
- landmarks: z are n_s sampled rows and K_b (n x n_s) their rectangle of kernel evaluations;
  K_b' K_b = V diag(s^2) V', B = V_r diag(1 / (s^2 + mu)) V_r' K_b' T. K_b is read row block by
  row block, and kept between passes only while it is small;
- linear: k(x, z) = x'z needs no kernel matrix: with X'X = V diag(s^2) V' the full form becomes
  x -> x' W, W = V_r diag(s^2 / (s^4 + mu)) V_r' X' T.

Why the landmark form is the Nystroem form: (3.6) replaces K by K_b [K_s]^+ K_b' with K_b itself cut
to rank r. Put the same approximation in place of phi(x) (k(x, x_i) ~ k(x, z) [K_s]^+ K_b') and the
factors K_s cancel as long as the kept directions of K_b span those of K_s: what remains is
k(x, z) K_br^+ T, the form above, which is also what Algorithm 1 writes with r landmarks. With every
training row a landmark (n_s = n) it is the full form exactly. For r < n_s the spans differ and so do
the two: cutting K_s to rank r separately annotated worse on generated images (AP@5 25.8 against 30.7
with r = 300, n_s = 5,000).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline_lib.kernels.block_lanczos import leading_eigenpairs
from pipeline_lib.kernels.functions import iter_kernel_blocks, kernel_matrix, row_blocks

Array = NDArray[np.float64]

PRECISIONS = ("double", "single")

# Directions whose squared singular value is a smaller share of the largest are rounding. In single
# precision rounding is in the products of the centred rectangle, and a share of their norm.
_CUTOFF = 1e-12
_CUTOFF_OF_PRODUCTS = 1e-6
_TOLERANCE = {"double": 1e-11, "single": 1e-8}
# Rows of K_b made at a time: large enough for BLAS, small enough for any machine.
_BLOCK_BYTES = 256 * 2**20
# A rectangle up to this size is kept for the passes that follow the first.
_KEPT_BYTES = 2**30


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


def kernel_blocks(
    X: Array, landmarks: Array, kernel: str, gamma: float, precision: str
) -> Iterator[tuple[slice, NDArray[Any]]]:
    """Row blocks of the rectangle of kernel evaluations, in float64 or float32.

    In single precision the rbf kernel is evaluated there too (rows centred on the landmarks' mean,
    norms and product in one multiplication); other kernels are evaluated in double and rounded.
    """
    if precision == "double" or kernel != "rbf":
        for rows, block in iter_kernel_blocks(
            X, landmarks, kernel, gamma, block_bytes=_BLOCK_BYTES
        ):
            yield rows, block if precision == "double" else block.astype(np.float32)
        return
    centre = landmarks.mean(axis=0)
    right = _with_norms(landmarks - centre)
    right[:, [-2, -1]] = right[:, [-1, -2]]
    for rows in row_blocks(len(X), 4 * len(landmarks), _BLOCK_BYTES):
        left = _with_norms(X[rows] - centre)
        left[:, :-2] *= -2.0
        K: NDArray[Any] = left @ right.T  # squared distances
        np.maximum(K, 0.0, out=K)
        K *= np.float32(-gamma)
        yield rows, np.exp(K, out=K)


def _with_norms(X: Array) -> NDArray[np.float32]:
    """Rows in float32 with two more columns: their squared norm, and 1."""
    wide: NDArray[np.float32] = np.ones((len(X), X.shape[1] + 2), dtype=np.float32)
    wide[:, :-2] = X
    wide[:, -2] = np.einsum("ij,ij->i", X, X)
    return wide


class KernelRectangle:
    """K_b, the kernel of training rows against landmarks, for several passes over its row blocks.

    Kernel evaluations are nearly constant (far rows are all alike), which would drown the small
    singular values in the rounding of float32 sums. So the rectangle is kept as K_b = 1 c' + D with c
    the mean of its first rows; what c contributes to a product is added in float64.

    Parameters
    ----------
    X : ndarray of shape (n, d)
    landmarks : ndarray of shape (n_s, d)
    kernel, gamma
        As in `pipeline_lib.kernels.functions`.
    precision : {"double", "single"}, default "double"
        In single precision D and the products of its row blocks are float32; sums over blocks and
        eigenpairs are float64.
    """

    def __init__(
        self, X: Array, landmarks: Array, *, kernel: str, gamma: float, precision: str = "double"
    ) -> None:
        self.X = X
        self.landmarks = landmarks
        self.kernel = kernel
        self.gamma = gamma
        self.precision = precision
        self.centre = np.zeros(len(landmarks))
        itemsize = 8 if precision == "double" else 4
        self._keeps = itemsize * len(X) * len(landmarks) <= _KEPT_BYTES
        self._kept: list[tuple[slice, NDArray[Any]]] | None = None

    def blocks(self) -> Iterator[tuple[slice, NDArray[Any]]]:
        """Row blocks of D; a small rectangle is evaluated once."""
        if self._kept is not None:
            yield from self._kept
            return
        made = []
        for rows, K in kernel_blocks(
            self.X, self.landmarks, self.kernel, self.gamma, self.precision
        ):
            if rows.start == 0:
                self.centre = K.mean(axis=0, dtype=np.float64).astype(K.dtype).astype(np.float64)
            K -= self.centre.astype(K.dtype)
            if self._keeps:
                made.append((rows, K))
            yield rows, K
        self._kept = made if self._keeps else None

    def coefficients(self, *targets: Any, rank: int, smoothing: float = 0.0) -> tuple[Array, ...]:
        """B (n_s x t) of the landmark form for each of the ``targets``, in one pass.

        Memory beside K_b is O(n_s^2 + n_s t).

        Parameters
        ----------
        *targets : ndarray or sparse matrix of shape (n, t)
        rank, smoothing
            As in `full_coefficients`.
        """
        size = len(self.landmarks)
        gram: NDArray[Any] = np.zeros((size, size))
        moments = [np.zeros((size, target.shape[1])) for target in targets]
        sums = np.zeros(size)
        for rows, D in self.blocks():
            gram += D.T @ D
            sums += D.sum(axis=0, dtype=np.float64)
            for moment, target in zip(moments, targets, strict=True):
                moment += _product(D, target[rows].astype(D.dtype, copy=False))
        # K_b' K_b = D'D + c (D'1)' + (D'1) c' + n c c'
        border = (self.centre, sums + 0.5 * len(self.X) * self.centre)
        for moment, target in zip(moments, targets, strict=True):
            moment += np.outer(self.centre, np.asarray(target.sum(axis=0)).ravel())
        cutoff = _CUTOFF
        if self.precision == "single":
            norm = float(np.linalg.norm(gram))
            whole = norm + 2.0 * float(np.linalg.norm(border[0]) * np.linalg.norm(border[1]))
            cutoff = max(cutoff, _CUTOFF_OF_PRODUCTS * norm / whole) if whole else cutoff
            gram = gram.astype(np.float32)
        squares, V = leading_eigenpairs(gram, rank, cutoff, _TOLERANCE[self.precision], border)
        inverse = 1.0 / (squares + smoothing)[:, None]
        return tuple(V @ ((V.T @ moment) * inverse) for moment in moments)

    def apply(self, coefficients: Array) -> Array:
        """K_b B for the rows of ``X``."""
        result = np.empty((len(self.X), coefficients.shape[1]))
        for rows, D in self.blocks():
            result[rows] = D @ coefficients.astype(D.dtype, copy=False)
        result += self.centre @ coefficients
        return result


def linear_coefficients(X: Array, targets: Any, rank: int, *, smoothing: float = 0.0) -> Array:
    """W (d x t) of the linear form: the full form for k(x, z) = x'z without a kernel matrix."""
    squares, V = leading_eigenpairs(X.T @ X, rank)
    inverse = squares / (squares**2 + smoothing)
    return V @ (inverse[:, None] * (V.T @ _product(X, targets)))


def evaluate(
    X: Array,
    landmarks: Array,
    coefficients: Array,
    *,
    kernel: str,
    gamma: float,
    precision: str = "double",
) -> Array:
    """[k(x, z_1), .., k(x, z_p)] B for every row of ``X``, streaming over row blocks."""
    result = np.empty((len(X), coefficients.shape[1]))
    for rows, K in kernel_blocks(X, landmarks, kernel, gamma, precision):
        result[rows] = K @ coefficients.astype(K.dtype, copy=False)
    return result
