"""Friedman's test and Nemenyi's critical difference: many methods over many items by rank."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
from scipy.stats import chi2, rankdata, studentized_range

from pipeline_lib.errors import InputError
from pipeline_lib.metrics.checks import finite_scores


@dataclass(frozen=True)
class CriticalDifference:
    """Average ranks of methods and the difference between them that is significant.

    Attributes
    ----------
    methods : tuple of str
        From best (lowest average rank) to worst.
    average_ranks : tuple of float
        In the same order; rank 1 is best, tied values share their mean rank.
    n_items : int
        Items ranked.
    friedman_statistic, friedman_p : float
        Friedman's chi-square, corrected for ties, and its p-value; 0 and 1 when no item separates
        the methods.
    alpha : float
        Significance level of the critical difference.
    critical_difference : float
        Average ranks further apart than this differ significantly.
    groups : tuple of tuples of str
        Maximal runs of methods within the critical difference of one another, best first; only
        runs of two or more.
    """

    methods: tuple[str, ...]
    average_ranks: tuple[float, ...]
    n_items: int
    friedman_statistic: float
    friedman_p: float
    alpha: float
    critical_difference: float
    groups: tuple[tuple[str, ...], ...]


def critical_difference(
    table: pl.DataFrame, *, alpha: float = 0.05, higher_is_better: bool = True
) -> CriticalDifference:
    """Rank methods within each item, and test the average ranks.

    With k methods, N items, R_j the average rank of method j and C the tie correction
    1 - sum (t^3 - t) / (N (k^3 - k)): Friedman's statistic is
    (12 N / (k (k + 1))) (sum_j R_j^2 - k (k + 1)^2 / 4) / C, and Nemenyi's critical difference
    q_alpha sqrt(k (k + 1) / (6 N)) with q_alpha the studentised range quantile over sqrt(2).

    Parameters
    ----------
    table : polars.DataFrame
        One row per item, the first column identifying it, one column of values per method. Items
        that are null for every method are left out.
    alpha : float, default=0.05
        Significance level.
    higher_is_better : bool, default=True
        Whether rank 1 goes to the largest value.

    Raises
    ------
    InputError
        If there are fewer than two methods or items, a value is missing, or `alpha` is out of range.

    References
    ----------
    Demšar (2006). Statistical comparisons of classifiers over multiple data sets. JMLR 7.
    """
    methods = table.columns[1:]
    k = len(methods)
    if k < 2:
        raise InputError(f"{k} methods to rank", expected="at least two")
    if not 0.0 < alpha < 1.0:
        raise InputError(f"alpha is {alpha}", expected="a number between 0 and 1")
    rows = table.select(methods).filter(~pl.all_horizontal(pl.all().is_null()))
    n = len(rows)
    if n < 2:
        raise InputError(f"{n} items to rank methods on", expected="at least two")
    values = finite_scores(rows.cast(pl.Float64).to_numpy(), ndim=2)
    ranks = rankdata(-values if higher_is_better else values, axis=1)
    average = ranks.mean(axis=0)

    # The spread of the ranks within items is N k (k^2 - 1) / 12 without ties, and C times that with.
    within = ((ranks - (k + 1) / 2) ** 2).sum()
    between = n * ((average - (k + 1) / 2) ** 2).sum()
    statistic = float(n * (k - 1) * between / within) if within > 0 else 0.0
    cd = float(
        studentized_range.ppf(1.0 - alpha, k, np.inf) / np.sqrt(2) * np.sqrt(k * (k + 1) / (6 * n))
    )
    order = np.argsort(average, kind="stable")
    return CriticalDifference(
        methods=tuple(methods[j] for j in order),
        average_ranks=tuple(float(average[j]) for j in order),
        n_items=n,
        friedman_statistic=statistic,
        friedman_p=float(chi2.sf(statistic, k - 1)) if within > 0 else 1.0,
        alpha=alpha,
        critical_difference=cd,
        groups=_groups([methods[j] for j in order], average[order], cd),
    )


def _groups(
    methods: list[str], average: np.ndarray[tuple[int], np.dtype[np.float64]], cd: float
) -> tuple[tuple[str, ...], ...]:
    ends = np.searchsorted(average, average + cd, side="right")
    return tuple(
        tuple(methods[start:end])
        for start, end in enumerate(ends)
        if end - start > 1 and (start == 0 or end > ends[start - 1])
    )
