"""Paired comparison of methods over the same queries, images or subsets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray
from scipy.stats import rankdata, wilcoxon

from pipeline_lib.errors import InputError
from pipeline_lib.metrics.checks import finite_scores
from pipeline_lib.metrics.resampling import bootstrap_intervals, sign_flip_pvalues


@dataclass(frozen=True)
class Comparison:
    """Difference of two methods on one metric, item by item.

    Attributes
    ----------
    metric : str
        The compared column.
    n_items : int
        Items where the metric is defined.
    mean_a, mean_b : float
        Means over those items.
    effect : float
        mean_a - mean_b.
    interval_low, interval_high : float
        BCa bootstrap interval of the effect at `level`.
    level : float
        Confidence level of the interval.
    cohen_d : float
        Mean over standard deviation (n - 1) of the differences; 0 when all are 0, infinite when
        they are all equal and not 0.
    rank_biserial : float
        (R+ - R-) / (R+ + R-) over the rank sums of positive and negative differences, in [-1, 1];
        0 when all are 0.
    p_randomisation : float
        Two-sided paired randomisation (sign-flip) test of equal means.
    p_wilcoxon : float
        Two-sided Wilcoxon signed-rank test, zero differences dropped; 1 when all are 0.
    """

    metric: str
    n_items: int
    mean_a: float
    mean_b: float
    effect: float
    interval_low: float
    interval_high: float
    level: float
    cohen_d: float
    rank_biserial: float
    p_randomisation: float
    p_wilcoxon: float


def compare(
    per_item_a: pl.DataFrame,
    per_item_b: pl.DataFrame,
    metric: str,
    *,
    item: str | Sequence[str] | None = None,
    level: float = 0.95,
    n_resamples: int = 10_000,
    seed: int = 0,
) -> Comparison:
    """Test whether two methods differ on one metric, paired by item.

    Parameters
    ----------
    per_item_a, per_item_b : polars.DataFrame
        Per-item values (``MetricResult.per_item``), rows in any order.
    metric : str
        The column to compare.
    item : str or sequence of str, optional
        Identifying columns; the first column of `per_item_a` when omitted.
    level : float, default=0.95
        Confidence level of the bootstrap interval.
    n_resamples : int, default=10000
        Bootstrap resamples, and random sign assignments where not all can be enumerated.
    seed : int, default=0
        Equal seeds give equal results.

    Returns
    -------
    Comparison
        Effect (a minus b), effect sizes, interval and p-values. A method compared with itself has
        effect 0 and p-values 1.

    Raises
    ------
    InputError
        If the frames hold different items, an item twice, no such column, a missing value in one
        frame only, or fewer than two items with values.
    """
    columns = {"a": per_item_a, "b": per_item_b}
    values = paired_values(columns, metric, item)[1]
    return _paired_comparisons(values, [(0, 1)], metric, level, n_resamples, seed)[0]


def compare_many(
    frames: Mapping[str, pl.DataFrame],
    metric: str,
    baseline: str | None = None,
    *,
    item: str | Sequence[str] | None = None,
    level: float = 0.95,
    n_resamples: int = 10_000,
    seed: int = 0,
) -> pl.DataFrame:
    """Compare several methods on one metric, with p-values corrected for their number.

    Parameters
    ----------
    frames : mapping of str to polars.DataFrame
        Per-item values of each method.
    metric : str
        The column to compare.
    baseline : str, optional
        Compare every other method with this one; all pairs when omitted.
    item, level, n_resamples, seed
        As in `compare`.

    Returns
    -------
    polars.DataFrame
        One row per pair: ``method``, ``baseline``, then the fields of `Comparison` (a is the
        method, b the baseline), then ``p_randomisation_holm`` and ``p_wilcoxon_holm``, corrected by
        Holm's method over the rows.

    Raises
    ------
    InputError
        As `compare`, and if there are fewer than two methods or the baseline is not among them.
    """
    names = list(frames)
    if len(names) < 2:
        raise InputError(f"{len(names)} methods to compare", expected="at least two")
    if baseline is not None and baseline not in frames:
        raise InputError(f"unknown baseline {baseline!r}", expected=f"one of {', '.join(names)}")
    if baseline is None:
        pairs = list(combinations(range(len(names)), 2))
    else:
        b = names.index(baseline)
        pairs = [(a, b) for a in range(len(names)) if a != b]
    values = paired_values(frames, metric, item)[1]
    comparisons = _paired_comparisons(values, pairs, metric, level, n_resamples, seed)
    return pl.DataFrame(
        [
            {"method": names[a], "baseline": names[b], **asdict(comparison)}
            for (a, b), comparison in zip(pairs, comparisons)
        ]
    ).with_columns(
        pl.Series("p_randomisation_holm", holm([c.p_randomisation for c in comparisons])),
        pl.Series("p_wilcoxon_holm", holm([c.p_wilcoxon for c in comparisons])),
    )


def holm(pvalues: ArrayLike) -> NDArray[np.float64]:
    """Adjust p-values for multiple tests by Holm's step-down method.

    With m p-values sorted ascending, p_(i) becomes max_{j<=i} min(1, (m - j + 1) p_(j)).

    Parameters
    ----------
    pvalues : array-like of shape (m,)
        p-values in [0, 1].

    Returns
    -------
    ndarray of shape (m,)
        Adjusted values in the given order.

    References
    ----------
    Holm (1979). A simple sequentially rejective multiple test procedure. Scand. J. Statistics 6.
    """
    values = finite_scores(pvalues, ndim=1)
    if (values < 0).any() or (values > 1).any():
        raise InputError("p-values out of range", expected="numbers from 0 to 1")
    order = np.argsort(values)
    stepped = values[order] * np.arange(len(values), 0, -1)
    adjusted = np.empty_like(values)
    adjusted[order] = np.minimum(np.maximum.accumulate(stepped), 1.0)
    return adjusted


def paired_values(
    frames: Mapping[str, pl.DataFrame], metric: str, item: str | Sequence[str] | None = None
) -> tuple[pl.DataFrame, NDArray[np.float64]]:
    """Align one metric of several methods by item.

    Returns
    -------
    items : polars.DataFrame
        The identifying columns, sorted.
    values : ndarray of shape (n_items, n_methods)
        Items where the metric is null for every method are left out.

    Raises
    ------
    InputError
        As `compare`.
    """
    names = list(frames)
    keys = _item_columns(frames[names[0]], item)
    reference = _sorted_column(names[0], frames[names[0]], keys, metric)
    columns = [reference[metric]]
    for name in names[1:]:
        aligned = _sorted_column(name, frames[name], keys, metric)
        _refuse_other_items(names[0], reference.select(keys), name, aligned.select(keys))
        columns.append(aligned[metric])
    missing = np.stack([column.is_null().to_numpy() for column in columns], axis=1)
    uneven = missing.any(axis=1) & ~missing.all(axis=1)
    if uneven.any():
        where = reference.select(keys).row(int(np.flatnonzero(uneven)[0]))
        raise InputError(
            f"{metric} of item {_shown(where)} is missing for some methods only",
            expected="a value for every method or for none",
        )
    defined = ~missing.all(axis=1)
    if defined.sum() < 2:
        raise InputError(
            f"{int(defined.sum())} items have a value of {metric}",
            expected="at least two to compare",
        )
    values = np.stack([column.to_numpy()[defined] for column in columns], axis=1).astype(np.float64)
    return reference.select(keys).filter(pl.Series(defined)), finite_scores(values, ndim=2)


def _paired_comparisons(
    values: NDArray[np.float64],
    pairs: Sequence[tuple[int, int]],
    metric: str,
    level: float,
    n_resamples: int,
    seed: int,
) -> list[Comparison]:
    means = values.mean(axis=0)
    differences = np.stack([values[:, a] - values[:, b] for a, b in pairs], axis=1)
    low, high = bootstrap_intervals(differences, level, seed, n_resamples)
    p_randomisation = sign_flip_pvalues(differences, seed, n_resamples)
    return [
        Comparison(
            metric=metric,
            n_items=len(values),
            mean_a=float(means[a]),
            mean_b=float(means[b]),
            effect=float(difference.mean()),
            interval_low=float(low[column]),
            interval_high=float(high[column]),
            level=level,
            cohen_d=_cohen_d(difference),
            rank_biserial=_rank_biserial(difference),
            p_randomisation=float(p_randomisation[column]),
            p_wilcoxon=float(wilcoxon(difference).pvalue) if difference.any() else 1.0,
        )
        for column, ((a, b), difference) in enumerate(zip(pairs, differences.T))
    ]


def _cohen_d(differences: NDArray[np.float64]) -> float:
    mean = differences.mean()
    if np.ptp(differences) == 0:
        return float(np.sign(mean) * np.inf) if mean else 0.0
    return float(mean / differences.std(ddof=1))


def _rank_biserial(differences: NDArray[np.float64]) -> float:
    moved = differences[differences != 0]
    if not moved.size:
        return 0.0
    ranks = rankdata(np.abs(moved))
    return float((ranks * np.sign(moved)).sum() / ranks.sum())


def _item_columns(frame: pl.DataFrame, item: str | Sequence[str] | None) -> list[str]:
    if item is None:
        return frame.columns[:1]
    return [item] if isinstance(item, str) else list(item)


def _sorted_column(name: str, frame: pl.DataFrame, keys: list[str], metric: str) -> pl.DataFrame:
    for column in (*keys, metric):
        if column not in frame.columns:
            raise InputError(
                f"method {name!r} has no column {column!r}",
                expected=f"one of {', '.join(frame.columns)}",
            )
    selected = frame.select(*keys, metric).sort(keys)
    repeated = selected.select(keys).is_duplicated()
    if repeated.any():
        raise InputError(
            f"item {_shown(selected.select(keys).filter(repeated).row(0))} occurs more than once "
            f"for method {name!r}",
            expected=f"one row per {' and '.join(keys)}",
        )
    return selected


def _refuse_other_items(a: str, items_a: pl.DataFrame, b: str, items_b: pl.DataFrame) -> None:
    if items_a.equals(items_b):
        return
    rows_a, rows_b = set(items_a.rows()), set(items_b.rows())
    if rows_a == rows_b:
        return
    only_a, only_b = rows_a - rows_b, rows_b - rows_a
    example, holder = (min(only_a, key=str), a) if only_a else (min(only_b, key=str), b)
    raise InputError(
        f"methods {a!r} and {b!r} were scored on different items: {len(only_a)} only in the first, "
        f"{len(only_b)} only in the second, for example {_shown(example)} of {holder!r}",
        expected="the same items for both",
    )


def _shown(row: tuple[Any, ...]) -> str:
    return repr(row[0]) if len(row) == 1 else repr(row)
