"""How well probabilities are recovered: against the truth where it is known, by likelihood elsewhere."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from pipeline_lib.errors import InputError
from pipeline_lib.metrics.checks import finite_scores
from pipeline_lib.metrics.result import MetricResult, metric_result

# A draw to which a method gave no probability at all must not outweigh all the others: the least
# that counts is this share of the uniform probability.
_LEAST_SHARE = 0.1


def recovery_metrics(estimated: ArrayLike, true: ArrayLike) -> MetricResult:
    """Compare estimated multinomials with the true ones, row by row.

    Parameters
    ----------
    estimated, true : array-like of shape (n, tags)
        Rows of probabilities.

    Returns
    -------
    MetricResult
        One row per image: ``overlap``, 1 - |q - p|_1 / 2 (1 for equal distributions, 0 for disjoint
        ones). The recovery error |Q - P|_1 / n of the thesis's Theorem 4.1 is 2 (1 - mean overlap).

    Raises
    ------
    InputError
        If shapes differ or a value is not finite.
    """
    Q, P = finite_scores(estimated, ndim=2), finite_scores(true, ndim=2)
    if Q.shape != P.shape:
        raise InputError(f"estimated probabilities have shape {Q.shape}", expected=f"{P.shape}")
    overlap = 1.0 - 0.5 * np.abs(Q - P).sum(axis=1)
    return metric_result("image", np.arange(len(Q)), {"overlap": overlap})


def held_out_likelihood(estimated: ArrayLike, held_out: ArrayLike) -> MetricResult:
    """Mean log-probability that estimated multinomials give to draws they were not fitted on.

    Parameters
    ----------
    estimated : array-like of shape (n, tags)
        Rows of probabilities; those below a tenth of the uniform one count as that.
    held_out : array-like of shape (n, tags)
        Counts of the draws.

    Returns
    -------
    MetricResult
        One row per image: ``log_likelihood``, null for an image without such a draw.

    Raises
    ------
    InputError
        If shapes differ or a value is not finite.
    """
    Q, counts = finite_scores(estimated, ndim=2), finite_scores(held_out, ndim=2)
    if Q.shape != counts.shape:
        raise InputError(
            f"estimated probabilities have shape {Q.shape}", expected=f"{counts.shape}"
        )
    drawn = counts.sum(axis=1)
    total = (counts * np.log(np.maximum(Q, _LEAST_SHARE / Q.shape[1]))).sum(axis=1)
    mean = np.divide(total, drawn, out=np.full(len(Q), np.nan), where=drawn > 0)
    return metric_result("image", np.arange(len(Q)), {"log_likelihood": mean})
