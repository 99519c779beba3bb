"""The ``compare`` command: rows of one or several runs, paired over the items they share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import polars as pl

from pipeline_lib.errors import InputError
from pipeline_lib.home import resolve_home
from pipeline_lib.report import comparison
from pipeline_lib.report.page import problem_view
from pipeline_lib.report.paired import item_means
from pipeline_lib.results import RunRecord, load_run
from pipeline_lib.suggest import unknown_name

FORMATS: dict[str, Callable[[pl.DataFrame], str]] = {
    "markdown": comparison.to_markdown,
    "latex": comparison.to_latex,
    "csv": comparison.to_csv,
    "json": comparison.to_json,
}


def compare_runs(
    references: Sequence[str],
    metrics: Sequence[str],
    baseline: str | None,
    output: str,
    home: Path | None,
) -> str:
    """Compare rows of runs and render the comparison, one table a problem.

    Parameters
    ----------
    references : sequence of str
        Runs; with several, a row is named ``label [run]``.
    metrics : sequence of str
        Metrics; each problem's headline when empty.
    baseline : str, optional
        Row the others are compared with; the first one by default.
    output : str
        A key of `FORMATS`.
    home : Path, optional

    Raises
    ------
    InputError
        If a run, a metric, a row or a format is unknown, or the runs share no problem.
    """
    if output not in FORMATS:
        raise unknown_name("format", output, FORMATS)
    place = resolve_home(home)
    records = [load_run(place, reference) for reference in references]
    shared = [
        title
        for title in records[0].per_item
        if all(title in record.per_item for record in records)
    ]
    if not shared:
        raise InputError("these runs have no problem in common", remedy="name runs of one suite")
    tables = []
    for title in shared:
        problem = next(p for p in records[0].suite.problems if p.title == title)
        chosen = list(metrics) or [problem.headline]
        frames = _frames(records, title, chosen)
        if baseline is not None and baseline not in frames:
            raise unknown_name("row", baseline, frames)
        if len(frames) < 2 or min(map(len, frames.values())) < 2:
            continue  # one row, or one item: nothing to test
        tables.append(FORMATS[output](comparison.comparison_table(frames, chosen, baseline)))
    if not tables:
        raise InputError(
            "there is nothing to compare: one row, or one item", remedy="name a second run"
        )
    return "\n".join(tables)


def _frames(
    records: Sequence[RunRecord], title: str, metrics: Sequence[str]
) -> dict[str, pl.DataFrame]:
    """Values per item of each row of each run, with every metric asked for."""
    frames: dict[str, pl.DataFrame] = {}
    for record in records:
        view = problem_view(record, title)
        definition = str(view.results["definition"][0])
        by_metric = []
        for metric in metrics:
            if metric not in view.per_item.columns:
                known = [c for c, t in view.per_item.schema.items() if t.is_numeric()]
                raise unknown_name(f"metric of {title}", metric, known)
            by_metric.append(item_means(view, metric, definition))
        for label in by_metric[0]:
            joined = by_metric[0][label]
            for others in by_metric[1:]:
                joined = joined.join(others[label], on=joined.columns[0], maintain_order="left")
            name = label if len(records) == 1 else f"{label} [{record.id}]"
            frames[name] = joined
    return frames
