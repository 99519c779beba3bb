"""The one shape in which every metric of the project is returned."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray


class MetricResult(NamedTuple):
    """Values per item first, their aggregates second.

    Attributes
    ----------
    per_item : polars.DataFrame
        One row per query, image, tag or subset, in a stated order; the first column identifies the
        item, every other column is a metric such as ``ndcg_at_5`` or ``map``, or a count of the
        item (``n_documents``). A metric that is not defined for an item is null there.
    means : dict of str to float
        The aggregate of each metric column (the mean over the items where it is defined, unless the
        metric says otherwise; NaN when it is defined for none). Counts have no entry.
    """

    per_item: pl.DataFrame
    means: dict[str, float]


def metric_result(
    item: str,
    ids: ArrayLike,
    metrics: Mapping[str, NDArray[np.floating[Any]]],
    counts: Mapping[str, NDArray[np.integer[Any]]] | None = None,
) -> MetricResult:
    """Assemble a `MetricResult` from whole columns.

    Parameters
    ----------
    item : str
        Name of the identifying column: ``qid``, ``query``, ``image``, ``tag`` or ``subset``.
    ids : array-like of shape (n_items,)
        Identifiers.
    metrics : mapping of str to ndarray of shape (n_items,)
        Metric columns; NaN marks an item for which the metric is not defined.
    counts : mapping of str to ndarray of shape (n_items,), optional
        Integer columns that describe the item and are not aggregated.
    """
    columns = {name: pl.Series(name, values, dtype=pl.Float64) for name, values in metrics.items()}
    per_item = pl.DataFrame(
        {
            item: ids,
            **{
                name: pl.Series(name, values, dtype=pl.Int64)
                for name, values in (counts or {}).items()
            },
            **{name: series.fill_nan(None) for name, series in columns.items()},
        }
    )
    means = {name: _defined_mean(np.asarray(values)) for name, values in metrics.items()}
    return MetricResult(per_item, means)


def _defined_mean(values: NDArray[np.floating[Any]]) -> float:
    defined = values[~np.isnan(values)]
    return float(defined.mean()) if defined.size else float("nan")
