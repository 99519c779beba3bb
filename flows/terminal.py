"""Results in the terminal."""

from __future__ import annotations

import sys

import polars as pl
from rich.console import Console
from rich.table import Table

from pipeline_lib.results import RESULT_COLUMNS, RunRecord, data_notes
from pipeline_lib.summary import metric_columns

_PREFERRED = {
    "ltr": ("ndcg_at_1", "ndcg_at_3", "ndcg_at_5", "ndcg_at_10", "mean_ndcg", "map"),
    "annotation": ("ap_at_1", "ap_at_3", "ap_at_5", "ar_at_5", "f1_at_5"),
    "clustering": ("acc", "nmi", "ari"),
    "completion": ("ap_at_1", "ap_at_3", "ar_at_3", "c_at_3"),
    "retrieval": ("p_at_10", "p_at_15", "recall_at_15", "p_at_50", "map", "bulls_eye"),
}
_MOST_COLUMNS = 6


def print_results(record: RunRecord) -> None:
    """Print one table for each problem and metric definition."""
    # A table in a file or a pipe is not cut to the width of a terminal that is not there.
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 160)
    if not len(record.results):
        console.print("no row was completed")
        return
    for (problem, definition), part in record.results.group_by(
        "problem", "definition", maintain_order=True
    ):
        title = f"{problem}, {definition} definitions" if definition != "default" else str(problem)
        console.print(_table(title, part))
        console.print()
    for note in data_notes(record.manifest.get("data", {})):
        console.print(f"data: {note}", soft_wrap=True, markup=False)


def _table(title: str, part: pl.DataFrame) -> Table:
    kind = part["kind"][0]
    metrics = [
        name
        for name in _PREFERRED.get(kind, ())
        if name in part.columns and part[name].null_count() < len(part)
    ] or metric_columns(
        part.drop(c for c in part.columns if part[c].null_count() == len(part)), RESULT_COLUMNS
    )
    headline = part["headline"][0]
    if headline not in metrics and headline in part.columns:
        metrics = [headline, *metrics]
    metrics = metrics[:_MOST_COLUMNS]
    table = Table(box=None, pad_edge=False, header_style="bold", title=title, title_justify="left")
    table.add_column("method")
    for name in metrics:
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column(f"{headline}, 95 %", justify="right", no_wrap=True)
    table.add_column("fit s", justify="right")
    for row in part.iter_rows(named=True):
        interval = "" if row["low"] is None else f"{row['low']:.4f}–{row['high']:.4f}"
        table.add_row(
            row["label"],
            *("" if row[name] is None else f"{row[name]:.4f}" for name in metrics),
            interval,
            f"{row['fit_seconds']:.2f}",
        )
    return table
