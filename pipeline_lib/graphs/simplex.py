"""Euclidean projection onto the probability simplex, for dense, masked and ragged rows."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pipeline_lib.errors import InputError

Floats = NDArray[np.float64]

_MAX_PASSES = 100  # of Newton's method, which needs a handful; rounding must not keep it going


def project_simplex(V: ArrayLike, mask: ArrayLike | None = None) -> Floats:
    """Project every row onto the probability simplex.

    Solves, for each row v of V::

        min_p ||p - v||^2   subject to   p >= 0,  sum(p) = 1

    whose solution is ``p = (v - eta)_+`` with the one threshold ``eta`` for which the row sums to
    one.

    Parameters
    ----------
    V : array-like of shape (n, m) or (m,)
        Finite values; a single row may be given as a vector.
    mask : array-like of bool, same shape as V, optional
        Entries that may take weight. The others get exactly 0. Default: all.

    Returns
    -------
    ndarray, same shape as V
        The projected rows.

    Raises
    ------
    InputError
        If a value is not finite, or a row has no entry that may take weight.

    References
    ----------
    J. Duchi, S. Shalev-Shwartz, Y. Singer, T. Chandra, "Efficient projections onto the l1-ball for
    learning in high dimensions", ICML 2008, figure 1.
    """
    values = np.asarray(V, dtype=np.float64)
    if values.ndim not in (1, 2) or values.shape[-1] == 0:
        raise InputError(
            f"rows to project have shape {values.shape}", expected="(n, m) or (m,) with m >= 1"
        )
    if not np.isfinite(values).all():
        raise InputError("rows to project contain NaN or infinity", expected="finite values")
    rows = np.atleast_2d(values)
    if mask is None:
        top = rows.max(axis=1, keepdims=True)
    else:
        allowed = np.atleast_2d(np.asarray(mask, dtype=bool))
        if allowed.shape != rows.shape:
            raise InputError(f"mask has shape {np.shape(mask)}", expected=str(values.shape))
        if not allowed.any(axis=1).all():
            raise InputError("a row has no entry that may take weight")
        top = np.where(allowed, rows, -np.inf).max(axis=1, keepdims=True)
    # The threshold is at least top - 1, so whatever lies lower has no weight and is clipped there:
    # sums stay small and exact however far apart the values of a row are.
    with np.errstate(over="ignore"):
        shifted = np.maximum(rows - top, -1.0)
    if mask is not None:
        shifted = np.where(allowed, shifted, -1.0)
    descending = -np.sort(-shifted, axis=1)
    excess = np.cumsum(descending, axis=1) - 1.0
    size = np.arange(1, rows.shape[1] + 1)
    support = np.count_nonzero(descending * size > excess, axis=1)
    threshold = np.take_along_axis(excess, support[:, None] - 1, axis=1) / support[:, None]
    return np.maximum(shifted - threshold, 0.0).reshape(values.shape)


def project_ragged(
    values: Floats,
    indptr: NDArray[np.integer],
    start: Floats | None = None,
    row_of: NDArray[np.integer] | None = None,
) -> tuple[Floats, Floats]:
    """Project rows of different lengths, stored one after the other, onto the simplex.

    The threshold of each row is the root of ``sum((v - eta)_+) = 1``, a convex decreasing piecewise
    linear function, found by Newton's method: exact after finitely many passes without sorting, and
    after two passes when ``start`` lies on the right piece, as it does between the iterations of an
    alternating method.

    Parameters
    ----------
    values : ndarray of shape (nnz,)
        Row r holds ``values[indptr[r]:indptr[r + 1]]``; no row is empty.
    indptr : ndarray of int, shape (n + 1,)
    start : ndarray of shape (n,), optional
        Guess of the thresholds.
    row_of : ndarray of int, shape (nnz,), optional
        Row of each value, when the caller has it already.

    Returns
    -------
    weights : ndarray of shape (nnz,)
    thresholds : ndarray of shape (n,)
        ``weights = (values - threshold)_+`` within each row.
    """
    n_rows = len(indptr) - 1
    if n_rows == 0:
        return np.zeros(0), np.zeros(0)
    if row_of is None:
        row_of = np.repeat(np.arange(n_rows), np.diff(indptr))
    top = np.maximum.reduceat(values, indptr[:-1])
    shifted = values - top[row_of]
    np.maximum(shifted, -1.0, out=shifted)
    if start is None:
        eta = np.full(n_rows, -1.0)
    else:
        # The largest value of a row always has weight, so a guess above it is moved just below.
        eta = np.clip(start - top, -1.0, -np.finfo(float).eps)
    weights, eta = _newton(shifted, indptr[:-1], row_of, eta)
    return weights, eta + top


def _newton(
    shifted: Floats, offsets: NDArray[np.integer], row_of: NDArray[np.integer], eta: Floats
) -> tuple[Floats, Floats]:
    """Newton's method for the thresholds of rows whose largest value is 0.

    The first step leads to or below the root, the following ones rise to it; each row is done when
    its weights sum to one to rounding.
    """
    weights = shifted - eta[row_of]
    np.maximum(weights, 0.0, out=weights)
    for _ in range(_MAX_PASSES):
        total = np.add.reduceat(weights, offsets)
        support = np.add.reduceat(weights > 0, offsets, dtype=np.int64)
        open_rows = np.abs(total - 1.0) > 4.0 * np.finfo(float).eps * (support + 1)
        if not open_rows.any():
            break
        eta = np.where(open_rows, eta + (total - 1.0) / support, eta)
        if 4 * np.count_nonzero(open_rows) < len(open_rows):
            # Few rows are left: go on with their values alone.
            entries = open_rows[row_of]
            counts = np.diff(np.append(offsets, len(row_of)))[open_rows]
            ends = np.cumsum(counts)
            weights[entries], eta[open_rows] = _newton(
                shifted[entries],
                ends - counts,
                np.repeat(np.arange(len(counts)), counts),
                eta[open_rows],
            )
            break
        np.subtract(shifted, eta[row_of], out=weights)
        np.maximum(weights, 0.0, out=weights)
    return weights, eta
