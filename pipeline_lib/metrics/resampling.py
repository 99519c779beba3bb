"""Bootstrap and sign-flip resampling of means, for many columns at once.

Both are matrix products: a bootstrap mean is a row of multinomial counts times the values, a
sign-flipped sum a row of signs times the differences. Columns (methods, metrics) share the draws,
which are made block by block so that memory does not depend on the number of resamples.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr, ndtri

from pipeline_lib.errors import InputError
from pipeline_lib.metrics.checks import finite_scores
from pipeline_lib.seeds import RandomState, as_generator

_BLOCK_CELLS = 1 << 21
_EXACT_ITEMS = 16
_TIE = 1e-12
"""Resampled sums within this share of sum |d| of the observed one are as extreme as it is."""


def bootstrap_interval(
    values: ArrayLike,
    level: float = 0.95,
    seed: RandomState = 0,
    n_resamples: int = 10_000,
) -> tuple[float, float]:
    """Confidence interval of a mean by the bias-corrected and accelerated (BCa) bootstrap.

    With theta* the means of `n_resamples` resamples drawn with replacement, z0 = Phi^-1(share of
    theta* below the mean, ties half), a = sum_i (x_i - mean)^3 / (6 (sum_i (x_i - mean)^2)^1.5) and
    z = Phi^-1((1 -+ level) / 2), the ends are the quantiles of theta* at
    Phi(z0 + (z0 + z) / (1 - a (z0 + z))).

    Parameters
    ----------
    values : array-like of shape (n,)
        One finite value per independent item.
    level : float, default=0.95
        Confidence level, between 0 and 1.
    seed : int, Generator or RandomState, default=0
        Equal seeds give equal intervals.
    n_resamples : int, default=10000
        Bootstrap resamples.

    Returns
    -------
    low, high : float
        Both equal to the mean when all values are equal (one value included).

    Raises
    ------
    InputError
        If a value is not finite, or `level` or `n_resamples` is out of range.

    References
    ----------
    Efron (1987). Better bootstrap confidence intervals. JASA 82.
    """
    column = finite_scores(values, ndim=1)[:, None]
    low, high = bootstrap_intervals(column, level, seed, n_resamples)
    return float(low[0]), float(high[0])


def bootstrap_intervals(
    values: NDArray[np.float64], level: float, seed: RandomState, n_resamples: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """`bootstrap_interval` of each column of an (items, columns) matrix, on shared resamples."""
    if not 0.0 < level < 1.0:
        raise InputError(f"confidence level {level}", expected="a number between 0 and 1")
    rng = as_generator(seed)
    n_columns = values.shape[1]
    mean = values.mean(axis=0)
    centred = values - mean
    spread = np.ptp(values, axis=0) > 0
    resampled = np.empty((_at_least_one(n_resamples), n_columns))
    for block in _blocks(n_resamples, len(values)):
        resampled[block] = _bootstrap_counts(block.stop - block.start, len(values), rng) @ centred
    resampled /= len(values)
    # Sums of equal values in another order differ in the last bits; those are ties with the mean.
    tie = _TIE * np.abs(centred).max(axis=0)
    below = (resampled < -tie).mean(axis=0) + 0.5 * (np.abs(resampled) <= tie).mean(axis=0)
    share = np.clip(below, 0.5 / n_resamples, 1.0 - 0.5 / n_resamples)
    bias = ndtri(share)
    squares = np.where(spread, (centred**2).sum(axis=0), 1.0)
    acceleration = (centred**3).sum(axis=0) / (6.0 * squares**1.5)
    low, high = mean.copy(), mean.copy()
    for end, tail in ((low, 0.5 * (1.0 - level)), (high, 0.5 * (1.0 + level))):
        shifted = bias + ndtri(tail)
        probability = ndtr(bias + shifted / (1.0 - acceleration * shifted))
        for column in np.flatnonzero(spread):
            end[column] += np.quantile(resampled[:, column], probability[column])
    return low, high


def sign_flip_pvalues(
    differences: NDArray[np.float64], seed: RandomState, n_resamples: int
) -> NDArray[np.float64]:
    """Two-sided paired randomisation test that the mean difference of each column is 0.

    Under the hypothesis every difference d_i is as likely to have the other sign. With T the sum of
    the differences, p is the share of sign assignments with |T*| >= |T|: over all of them when at
    most 16 differences are not 0, else (1 + count) / (1 + n_resamples) over random ones.

    Parameters
    ----------
    differences : ndarray of shape (n, columns)
        Paired differences.
    seed : int, Generator or RandomState
        Of the random assignments, shared by all columns.
    n_resamples : int
        Random assignments.

    Returns
    -------
    ndarray of shape (columns,)
        p-values; 1 for a column of zeros.

    References
    ----------
    Smucker, Allan, Carterette (2007). A comparison of statistical significance tests for
    information retrieval evaluation. CIKM.
    """
    rng = as_generator(seed)
    _at_least_one(n_resamples)
    n, n_columns = differences.shape
    observed = np.abs(differences.sum(axis=0)) - _TIE * np.abs(differences).sum(axis=0)
    pvalues = np.empty(n_columns)
    exact = (differences != 0).sum(axis=0) <= _EXACT_ITEMS
    for column in np.flatnonzero(exact):
        sums = np.zeros(1)
        for difference in differences[differences[:, column] != 0, column]:
            sums = np.concatenate([sums - difference, sums + difference])
        pvalues[column] = (np.abs(sums) >= observed[column]).mean()
    if not exact.all():
        sampled = differences[:, ~exact]
        total = sampled.sum(axis=0)
        extreme = np.zeros(sampled.shape[1])
        for block in _blocks(n_resamples, n):
            heads = _coin_flips(block.stop - block.start, n, rng)
            extreme += (np.abs(2.0 * (heads @ sampled) - total) >= observed[~exact]).sum(axis=0)
        pvalues[~exact] = (1.0 + extreme) / (1.0 + n_resamples)
    return pvalues


def _blocks(n_resamples: int, n_items: int) -> Iterator[slice]:
    step = max(1, _BLOCK_CELLS // n_items)
    for begin in range(0, n_resamples, step):
        yield slice(begin, min(begin + step, n_resamples))


def _bootstrap_counts(n_rows: int, n: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """How often each of n items is drawn in each of n_rows resamples of size n."""
    drawn = rng.integers(0, n, size=(n_rows, n))
    drawn += np.arange(n_rows)[:, None] * n
    return np.bincount(drawn.ravel(), minlength=n_rows * n).reshape(n_rows, n).astype(np.float64)


def _coin_flips(n_rows: int, n: int, rng: np.random.Generator) -> NDArray[np.float64]:
    random_bytes = rng.integers(0, 256, size=(n_rows, math.ceil(n / 8)), dtype=np.uint8)
    return np.unpackbits(random_bytes, axis=1, count=n).astype(np.float64)


def _at_least_one(n_resamples: int) -> int:
    if n_resamples < 1:
        raise InputError(f"n_resamples is {n_resamples}", expected="at least 1")
    return n_resamples
