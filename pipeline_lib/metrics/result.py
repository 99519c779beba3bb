"""The one shape in which every metric of the project is returned."""

from __future__ import annotations

from typing import NamedTuple

import polars as pl


class MetricResult(NamedTuple):
    """Values per item first, their aggregates second.

    Attributes
    ----------
    per_item : polars.DataFrame
        One row per query, image or subset, in a stated order; the first column identifies the item,
        every other column is a metric such as ``ndcg_at_5`` or ``map``.
    means : dict of str to float
        The aggregate of each metric column (the mean over items unless the metric says otherwise).
    """

    per_item: pl.DataFrame
    means: dict[str, float]
