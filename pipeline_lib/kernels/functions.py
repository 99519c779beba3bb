"""Kernel functions between two sets of rows, whole or block by block under a memory budget.

For rows x, y in R^d this module evaluates k(x, y):

================= ==================================================== ==========================
name              k(x, y)                                              parameters
================= ==================================================== ==========================
rbf               exp(-gamma ||x - y||^2)                              gamma > 0
laplacian         exp(-gamma ||x - y||_1)                              gamma > 0
cauchy            prod_j 1 / (1 + gamma (x_j - y_j)^2)                 gamma > 0
linear            x'y                                                  none
cosine            x'y / (||x|| ||y||), 0 when a row is 0               none
polynomial        (gamma x'y + coef0)^degree                           gamma > 0, coef0 >= 0
chi2              exp(-gamma sum_j (x_j - y_j)^2 / (x_j + y_j))        gamma > 0, x, y >= 0
additive_chi2     sum_j 2 x_j y_j / (x_j + y_j)                        x, y >= 0
intersection      sum_j min(x_j, y_j)                                  x, y >= 0
skewed_chi2       prod_j 2 sqrt((x_j + c)(y_j + c)) / (x_j + y_j + 2c) c = coef0 > 0, x, y > -c
================= ==================================================== ==========================

In the chi-square kernels a coordinate that is 0 on both sides contributes 0. All of them are
positive definite on their domain, so every Gram matrix has only non-negative eigenvalues (up to
rounding).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.spatial.distance import cdist
from sklearn.metrics.pairwise import additive_chi2_kernel

from pipeline_lib.errors import InputError

Array = NDArray[np.float64]

# Blocks of a few megabytes stay in a core's cache between the product that makes it and the passes that
# follow; larger blocks are several times slower and gain nothing.
DEFAULT_BLOCK_BYTES = 4 * 2**20


def as_rows(X: ArrayLike, name: str = "X", *, n_features: int | None = None) -> Array:
    """Check that ``X`` is a finite matrix with at least one row and return it as float64.

    Raises
    ------
    InputError
        When ``X`` is not two-dimensional, empty, not finite, or not ``n_features`` wide.
    """
    return check_rows(X, name, n_features=n_features).astype(np.float64, copy=False)


def check_rows(
    X: ArrayLike, name: str = "X", *, n_features: int | None = None
) -> NDArray[np.float64] | NDArray[np.float32]:
    """`as_rows`, except that float32 stays float32, for data too large to be copied."""
    try:
        rows = np.asarray(X)
        if rows.dtype != np.float32:
            rows = np.asarray(rows, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} cannot be read as numbers", expected="a 2-d array") from error
    if rows.ndim != 2 or rows.shape[0] == 0 or rows.shape[1] == 0:
        raise InputError(
            f"{name} has shape {rows.shape}",
            expected="a 2-d array with at least one row and column",
        )
    if n_features is not None and rows.shape[1] != n_features:
        raise InputError(
            f"{name} has {rows.shape[1]} columns", expected=f"{n_features}, as in the fitted rows"
        )
    # The sum is finite exactly when no entry is NaN or infinite, short of an overflow that the
    # full test then resolves; it needs no temporary of the size of X.
    with np.errstate(over="ignore", invalid="ignore"):
        total = rows.sum(dtype=np.float64)
    if not np.isfinite(total) and not np.isfinite(rows).all():
        raise InputError(f"{name} contains NaN or infinite values", expected="finite numbers")
    return rows


def squared_distances(
    X: ArrayLike, Y: ArrayLike | None = None, *, refine: bool = False
) -> NDArray[np.float64]:
    """Squared Euclidean distances between rows, by one matrix product.

    Both sets are first centred on the mean of ``Y``, which removes the cancellation a common offset
    would cause; negative rounding is cut to 0.

    Parameters
    ----------
    X : array of shape (n, d)
    Y : array of shape (m, d), optional
        ``X`` when absent; the diagonal is then exactly 0 and the matrix exactly symmetric.
    refine : bool, default False
        Recompute, from the differences themselves, the entries too small for the product to
        resolve: identical rows then get exactly 0 and near duplicates full relative accuracy.

    Returns
    -------
    ndarray of shape (n, m)
    """
    A = as_rows(X)
    B = A if Y is None else as_rows(Y, "Y", n_features=A.shape[1])
    centre = B.mean(axis=0)
    A = A - centre
    B = A if Y is None else B - centre
    a = np.einsum("ij,ij->i", A, A)
    b = a if Y is None else np.einsum("ij,ij->i", B, B)
    D = A @ B.T
    D *= -2.0
    D += a[:, None]
    D += b[None, :]
    np.maximum(D, 0.0, out=D)
    if refine:
        _refine_small(D, A, B, a, b)
    if Y is None:
        _mirror_lower(D)
        np.fill_diagonal(D, 0.0)
    return D


def _mirror_lower(M: Array) -> None:
    """Copy the lower triangle to the upper one: BLAS may round the two differently."""
    for start in range(0, len(M), _MIRROR_BLOCK):
        stop = start + _MIRROR_BLOCK
        M[start:stop, stop:] = M[stop:, start:stop].T
        corner = M[start:stop, start:stop]
        lower = np.tril(corner, -1)
        corner[:] = lower + lower.T + np.diag(np.diagonal(corner))


_MIRROR_BLOCK = 256
_REFINE_BYTES = 32 * 2**20


def _refine_small(D: Array, A: Array, B: Array, a: Array, b: Array) -> None:
    """Replace entries below 1e-8 of the squared norms involved by sums of squared differences."""
    rows_per_block = max(1, _REFINE_BYTES // (8 * max(1, D.shape[1])))
    for start in range(0, len(D), rows_per_block):
        block = D[start : start + rows_per_block]
        scale = a[start : start + rows_per_block, None] + b[None, :]
        i, j = np.nonzero(block <= 1e-8 * scale)
        step = max(1, _REFINE_BYTES // (8 * A.shape[1]))
        for at in range(0, len(i), step):
            ii, jj = i[at : at + step], j[at : at + step]
            difference = A[start + ii] - B[jj]
            block[ii, jj] = np.einsum("ij,ij->i", difference, difference)


# A kernel is written as a function of the right-hand rows and the parameters that returns a function of
# the left-hand rows: what depends on the right-hand rows alone is computed once for many blocks.
_Evaluate = Callable[[Array], Array]


def _negative_norms(A: Array, gamma: float) -> Array:
    """-gamma ||a||^2 of each row, refused when it overflows."""
    with np.errstate(over="ignore", invalid="ignore"):
        norms: Array = -gamma * np.einsum("ij,ij->i", A, A)
    if not np.isfinite(norms).all():
        raise InputError("values are too large for squared distances", expected="rescaled features")
    return norms


def _rbf(Y: Array, gamma: float, coef0: float, degree: int) -> _Evaluate:
    # The norms ride along in the matrix product as two extra columns, which saves passes over the
    # block; centring removes the cancellation that a common offset would cause.
    with np.errstate(over="ignore", invalid="ignore"):
        centre = Y.mean(axis=0)
        B = Y - centre
    right = np.empty((B.shape[1] + 2, len(B)))
    right[:-2] = B.T
    right[-2] = 1.0
    right[-1] = _negative_norms(B, gamma)

    def evaluate(X: Array) -> Array:
        left = np.empty((len(X), X.shape[1] + 2))
        A = left[:, :-2]
        with np.errstate(over="ignore", invalid="ignore"):
            np.subtract(X, centre, out=A)
        left[:, -2] = _negative_norms(A, gamma)
        left[:, -1] = 1.0
        A *= 2.0 * gamma
        K = left @ right
        np.minimum(K, 0.0, out=K)
        return np.exp(K, out=K)

    return evaluate


def _laplacian(Y: Array, gamma: float, coef0: float, degree: int) -> _Evaluate:
    def evaluate(X: Array) -> Array:
        K = cdist(X, Y, "cityblock")
        K *= -gamma
        return np.exp(K, out=K)

    return evaluate


def _cauchy(Y: Array, gamma: float, coef0: float, degree: int) -> _Evaluate:
    def evaluate(X: Array) -> Array:
        K = np.ones((len(X), len(Y)))
        factor = np.empty_like(K)
        with np.errstate(over="ignore"):  # an overflowing product is a kernel value of 0
            for j in range(X.shape[1]):
                np.subtract(X[:, j, None], Y[None, :, j], out=factor)
                np.multiply(factor, factor, out=factor)
                factor *= gamma
                factor += 1.0
                K *= factor
        return np.reciprocal(K, out=K)

    return evaluate


def _linear(Y: Array, gamma: float, coef0: float, degree: int) -> _Evaluate:
    return lambda X: X @ Y.T


def _unit_rows(X: Array) -> Array:
    norms = np.sqrt(np.einsum("ij,ij->i", X, X))
    return X / np.where(norms > 0, norms, 1.0)[:, None]


def _cosine(Y: Array, gamma: float, coef0: float, degree: int) -> _Evaluate:
    right = _unit_rows(Y).T

    def evaluate(X: Array) -> Array:
        K = _unit_rows(X) @ right
        return np.clip(K, -1.0, 1.0, out=K)

    return evaluate


def _polynomial(Y: Array, gamma: float, coef0: float, degree: int) -> _Evaluate:
    def evaluate(X: Array) -> Array:
        K = X @ Y.T
        K *= gamma
        K += coef0
        return np.power(K, degree, out=K)

    return evaluate


def _chi2(Y: Array, gamma: float, coef0: float, degree: int) -> _Evaluate:
    def evaluate(X: Array) -> Array:
        K = additive_chi2_kernel(X, Y)  # minus the chi-square distance
        K *= gamma
        return np.exp(K, out=K)

    return evaluate


def _additive_chi2(Y: Array, gamma: float, coef0: float, degree: int) -> _Evaluate:
    sums = Y.sum(axis=1)

    def evaluate(X: Array) -> Array:
        # 2xy/(x+y) = (x + y)/2 - (x - y)^2 / (2(x + y))
        K = additive_chi2_kernel(X, Y)
        K += X.sum(axis=1)[:, None]
        K += sums
        K *= 0.5
        return np.maximum(K, 0.0, out=K)

    return evaluate


def _intersection(Y: Array, gamma: float, coef0: float, degree: int) -> _Evaluate:
    sums = Y.sum(axis=1)

    def evaluate(X: Array) -> Array:
        # min(x, y) = (x + y - |x - y|) / 2
        K = cdist(X, Y, "cityblock")
        np.subtract(X.sum(axis=1)[:, None], K, out=K)
        K += sums
        K *= 0.5
        return np.maximum(K, 0.0, out=K)

    return evaluate


def _skewed_chi2(Y: Array, gamma: float, coef0: float, degree: int) -> _Evaluate:
    B = Y + coef0
    root_b = np.sqrt(B)

    def evaluate(X: Array) -> Array:
        A = X + coef0
        root_a = 2.0 * np.sqrt(A)
        K = np.ones((len(A), len(B)))
        factor = np.empty_like(K)
        for j in range(A.shape[1]):
            np.multiply(root_a[:, j, None], root_b[None, :, j], out=factor)
            factor /= A[:, j, None] + B[None, :, j]
            K *= factor
        return np.minimum(K, 1.0, out=K)

    return evaluate


def _ones(X: Array, gamma: float, coef0: float, degree: int) -> Array:
    return np.ones(len(X))


def _square_norms(X: Array, gamma: float, coef0: float, degree: int) -> Array:
    return np.einsum("ij,ij->i", X, X)


def _nonzero(X: Array, gamma: float, coef0: float, degree: int) -> Array:
    return np.asarray(X.any(axis=1), dtype=np.float64)


def _polynomial_diagonal(X: Array, gamma: float, coef0: float, degree: int) -> Array:
    return np.asarray((gamma * np.einsum("ij,ij->i", X, X) + coef0) ** degree)


def _sums(X: Array, gamma: float, coef0: float, degree: int) -> Array:
    return X.sum(axis=1)


@dataclass(frozen=True)
class _Kernel:
    evaluator: Callable[[Array, float, float, int], _Evaluate]
    diagonal: Callable[[Array, float, float, int], Array]
    uses_gamma: bool = True
    domain: str = "real"


_KERNELS: dict[str, _Kernel] = {
    "rbf": _Kernel(_rbf, _ones),
    "laplacian": _Kernel(_laplacian, _ones),
    "cauchy": _Kernel(_cauchy, _ones),
    "linear": _Kernel(_linear, _square_norms, uses_gamma=False),
    "cosine": _Kernel(_cosine, _nonzero, uses_gamma=False),
    "polynomial": _Kernel(_polynomial, _polynomial_diagonal),
    "chi2": _Kernel(_chi2, _ones, domain="non-negative"),
    "additive_chi2": _Kernel(_additive_chi2, _sums, uses_gamma=False, domain="non-negative"),
    "intersection": _Kernel(_intersection, _sums, uses_gamma=False, domain="non-negative"),
    "skewed_chi2": _Kernel(_skewed_chi2, _ones, uses_gamma=False, domain="skewed"),
}

KERNELS: tuple[str, ...] = tuple(_KERNELS)
"""Names of the kernels, in the order of the table above."""


def check_kernel(kernel: str, gamma: float = 1.0, coef0: float = 1.0, degree: int = 3) -> None:
    """Raise `InputError` when the kernel is unknown or a parameter it uses is out of range."""
    if kernel not in _KERNELS:
        raise InputError(f"unknown kernel {kernel!r}", expected="one of " + ", ".join(KERNELS))
    if _KERNELS[kernel].uses_gamma and not (np.isfinite(gamma) and gamma > 0):
        raise InputError(f"gamma is {gamma!r}", expected="a positive number")
    if kernel == "polynomial" and (coef0 < 0 or degree < 1 or int(degree) != degree):
        raise InputError(
            f"coef0 {coef0!r}, degree {degree!r}", expected="coef0 >= 0 and a whole degree >= 1"
        )
    if kernel == "skewed_chi2" and not (np.isfinite(coef0) and coef0 > 0):
        raise InputError(f"coef0 is {coef0!r}", expected="a positive skewness")


def _check_domain(rows: Array, name: str, kernel: str, coef0: float) -> None:
    domain = _KERNELS[kernel].domain
    if domain == "non-negative" and rows.min() < 0:
        raise InputError(f"{name} has negative values", expected=f"values >= 0 for kernel {kernel}")
    if domain == "skewed" and rows.min() <= -coef0:
        raise InputError(
            f"{name} has values at or below {-coef0:g}", expected="values above -coef0"
        )


def kernel_evaluator(
    Y: ArrayLike,
    kernel: str = "rbf",
    gamma: float = 1.0,
    *,
    coef0: float = 1.0,
    degree: int = 3,
) -> Callable[[Array], Array]:
    """The function that maps checked rows X to ``kernel_matrix(X, Y)``, for many X and one ``Y``.

    What depends on ``Y`` alone is computed once. The rows given to the function must be a finite
    float64 matrix as wide as ``Y`` (see `as_rows`); only the kernel's domain is still checked.
    """
    check_kernel(kernel, gamma, coef0, degree)
    B = as_rows(Y, "Y")
    _check_domain(B, "Y", kernel, coef0)
    evaluate = _KERNELS[kernel].evaluator(B, gamma, coef0, degree)

    def evaluate_checked(X: Array) -> Array:
        _check_domain(X, "X", kernel, coef0)
        return evaluate(X)

    return evaluate_checked


def kernel_matrix(
    X: ArrayLike,
    Y: ArrayLike | None = None,
    kernel: str = "rbf",
    gamma: float = 1.0,
    *,
    coef0: float = 1.0,
    degree: int = 3,
) -> Array:
    """Evaluate k(x, y) for every row x of ``X`` and y of ``Y`` (formulas at the top of the module).

    Parameters
    ----------
    X : array of shape (n, d)
    Y : array of shape (m, d), optional
        ``X`` when absent; the result is then exactly symmetric with an exact diagonal.
    kernel : str, default "rbf"
        One of `KERNELS`.
    gamma, coef0, degree
        Parameters of the kernel, ignored where it has none.

    Returns
    -------
    ndarray of shape (n, m), float64

    Raises
    ------
    InputError
        For an unknown kernel, a parameter out of range, or rows outside the kernel's domain.
    """
    check_kernel(kernel, gamma, coef0, degree)
    A = as_rows(X)
    _check_domain(A, "X", kernel, coef0)
    if Y is None:
        K = _KERNELS[kernel].evaluator(A, gamma, coef0, degree)(A)
        _mirror_lower(K)
        np.fill_diagonal(K, _KERNELS[kernel].diagonal(A, gamma, coef0, degree))
        return K
    B = as_rows(Y, "Y", n_features=A.shape[1])
    _check_domain(B, "Y", kernel, coef0)
    return _KERNELS[kernel].evaluator(B, gamma, coef0, degree)(A)


def kernel_diagonal(
    X: ArrayLike,
    kernel: str = "rbf",
    gamma: float = 1.0,
    *,
    coef0: float = 1.0,
    degree: int = 3,
) -> Array:
    """k(x, x) for every row of ``X``, without the matrix."""
    check_kernel(kernel, gamma, coef0, degree)
    A = as_rows(X)
    _check_domain(A, "X", kernel, coef0)
    return _KERNELS[kernel].diagonal(A, gamma, coef0, degree)


def row_blocks(n_rows: int, bytes_per_row: int, block_bytes: int) -> Iterator[slice]:
    """Cut ``range(n_rows)`` into slices whose rows take at most ``block_bytes`` (at least one row)."""
    step = max(1, int(block_bytes // max(1, bytes_per_row)))
    for start in range(0, n_rows, step):
        yield slice(start, min(start + step, n_rows))


def iter_kernel_blocks(
    X: ArrayLike,
    Y: ArrayLike,
    kernel: str = "rbf",
    gamma: float = 1.0,
    *,
    coef0: float = 1.0,
    degree: int = 3,
    block_bytes: int = DEFAULT_BLOCK_BYTES,
) -> Iterator[tuple[slice, Array]]:
    """Yield ``(rows, kernel_matrix(X[rows], Y))`` so that no block exceeds ``block_bytes``.

    The blocks depend only on the shapes and on ``block_bytes``, never on what else runs.
    """
    A = as_rows(X)
    B = as_rows(Y, "Y", n_features=A.shape[1])
    evaluate = kernel_evaluator(B, kernel, gamma, coef0=coef0, degree=degree)
    for rows in row_blocks(len(A), 8 * len(B), block_bytes):
        yield rows, evaluate(A[rows])
