"""Paired comparison of the rows of a problem, the same way in every report."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from pipeline_lib.metrics.significance import compare_many
from pipeline_lib.report.sections import Column, ProblemView, Section, html_table, p_value_text

_NOTE = (
    "Each method against {baseline} on the same {items}: difference of the means with a 95 % bootstrap "
    "interval, Cohen's d of the differences, and p-values of the randomisation and the Wilcoxon "
    "test, corrected for the number of rows by Holm's method. {verdict}"
)


def item_means(
    view: ProblemView, metric: str, definition: str, *, per_draw: bool = False
) -> dict[str, pl.DataFrame]:
    """Values per item of each row, repetitions averaged; items of different splits are different.

    With `per_draw` a repetition is one item, and its items are averaged: where each repetition draws
    a database of its own, the results of one draw depend on each other.
    """
    own = view.per_item.filter(pl.col("definition") == definition)
    item = own.columns[own.columns.index("repetition") + (0 if per_draw else 1)]
    return {
        str(label): part.group_by("split", item, maintain_order=True)
        .agg(pl.col(metric).mean())
        .select(pl.concat_str(["split", item], separator=" ").alias(item), metric)
        for (label,), part in own.group_by("label", maintain_order=True)
    }


def paired_table(
    view: ProblemView,
    *,
    baseline: str | None = None,
    metric: str | None = None,
    rows: Sequence[str] | None = None,
    per_draw: bool = False,
) -> pl.DataFrame:
    """Comparison of each row with the baseline (`compare_many`), empty when there is only one row.

    Parameters as those of `paired_section`.
    """
    chosen = metric or view.problem.headline
    means = item_means(view, chosen, str(view.results["definition"][0]), per_draw=per_draw)
    if rows is not None:
        means = {label: means[label] for label in rows if label in means}
    if len(means) < 2:
        return pl.DataFrame()
    return compare_many(means, chosen, baseline=baseline or next(iter(means)))


def paired_section(
    view: ProblemView,
    *,
    baseline: str | None = None,
    metric: str | None = None,
    items: str = "items",
    rows: Sequence[str] | None = None,
    per_draw: bool = False,
) -> list[Section]:
    """Make the section of paired tests against a baseline.

    Parameters
    ----------
    view : ProblemView
    baseline : str, optional
        Row to compare with; the first one by default.
    metric : str, optional
        Metric to compare; the headline by default.
    items : str
        What the values belong to, in the plural.
    rows : sequence of str, optional
        Rows to compare; all by default.
    per_draw : bool
        See `item_means`.

    Returns
    -------
    list of Section
        Empty when there is only one row.
    """
    table = paired_table(view, baseline=baseline, metric=metric, rows=rows, per_draw=per_draw)
    if not len(table):
        return []
    chosen, against = metric or view.problem.headline, str(table["baseline"][0])
    shown = [
        {
            **row,
            "interval": f"{row['interval_low']:+.4f} … {row['interval_high']:+.4f}",
            "signed": f"{row['effect']:+.4f}",
            "randomisation": p_value_text(row["p_randomisation_holm"]),
            "wilcoxon": p_value_text(row["p_wilcoxon_holm"]),
        }
        for row in table.iter_rows(named=True)
    ]
    columns = [
        Column("method", "method"),
        Column("mean_a", "mean", 4),
        Column("signed", "difference"),
        Column("interval", "95 % interval"),
        Column("cohen_d", "Cohen's d", 2),
        Column("randomisation", "p randomisation"),
        Column("wilcoxon", "p Wilcoxon"),
    ]
    different = [r["method"] for r in shown if r["p_randomisation_holm"] < 0.05]
    verdict = (
        f"Different at the 5 % level: {', '.join(different)}."
        if different
        else "No difference is significant at the 5 % level."
    )
    note = _NOTE.format(baseline=against, items=items, verdict=verdict)
    title = f"{chosen.replace('_', ' ')} against {against}, paired"
    return [Section(title, html_table(shown, columns), note)]
