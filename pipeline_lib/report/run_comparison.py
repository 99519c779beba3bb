"""Rows of one or several runs against each other, problem by problem, paired over the items they share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from pipeline_lib.errors import InputError
from pipeline_lib.metrics.average_ranks import CriticalDifference, critical_difference
from pipeline_lib.report.comparison import comparison_table, paired_table
from pipeline_lib.report.page import problem_view
from pipeline_lib.report.paired import item_means
from pipeline_lib.results import RunRecord
from pipeline_lib.suggest import unknown_name


@dataclass(frozen=True)
class Compared:
    """One run in a comparison.

    Attributes
    ----------
    record : RunRecord
    row : str, optional
        Label of the only row of it that takes part (what a trial's MLflow id names).
    """

    record: RunRecord
    row: str | None = None


@dataclass(frozen=True)
class ProblemComparison:
    """The rows of one problem side by side.

    Attributes
    ----------
    problem : str
    definition : str
        Metric definition.
    item : str
        Column that the values are paired by.
    table : DataFrame
        As `pipeline_lib.report.comparison.comparison_table`.
    ranks : CriticalDifference or None
        Average ranks on the first metric; None where fewer than three methods share their items.
    """

    problem: str
    definition: str
    item: str
    table: pl.DataFrame
    ranks: CriticalDifference | None


def compare_runs(
    runs: Sequence[Compared],
    metrics: Sequence[str] = (),
    baseline: str | None = None,
    definition: str | None = None,
    notice: Callable[[str], None] = lambda sentence: None,
) -> list[ProblemComparison]:
    """Compare the rows of runs.

    Rows of one run are compared with a baseline among them. Of several runs, each row is compared
    with the same row of the first run, unless a baseline is named or the runs share no row; rows are
    named ``label [run]`` then.

    Parameters
    ----------
    runs : sequence of Compared
    metrics : sequence of str
        Each problem's headline when empty.
    baseline : str, optional
        Row that all others are compared with; with several runs a label of the first run will do.
    definition : str, optional
        Metric definition; each problem's first by default.
    notice : callable, optional
        Takes a sentence on a problem that is left out, or whose data are not the same.

    Returns
    -------
    list of ProblemComparison
        Problems that all runs have and where there is something to test.

    Raises
    ------
    InputError
        If a metric, a row or a definition is unknown, the runs share no problem or not their items,
        or there is nothing to compare.
    """
    shared = [
        title
        for title in runs[0].record.per_item
        if all(title in run.record.per_item for run in runs)
    ]
    if not shared:
        raise InputError("these runs have no problem in common", remedy="name runs of one suite")
    labels = _run_names(runs)
    compared = []
    known: set[str] = set()
    left_out: list[InputError] = []
    for title in shared:
        problem = next(p for p in runs[0].record.suite.problems if p.title == title)
        chosen = list(metrics) or [problem.headline]
        by_run = [_frames(run, title, chosen, definition) for run in runs]
        frames = {
            _name(label, labels[i]): frame
            for i, own in enumerate(by_run)
            for label, frame in own[1].items()
        }
        known |= set(frames)
        against = baseline
        if baseline is not None and baseline not in frames:
            against = _name(baseline, labels[0])
        if against is not None and against not in frames:
            continue
        if len(frames) < 2 or min(map(len, frames.values())) < 2:
            continue  # one row, or one item: nothing to test
        pairs = {
            _name(label, labels[i]): _name(label, labels[0])
            for i, own in enumerate(by_run[1:], start=1)
            for label in own[1]
            if label in by_run[0][1]
        }
        for sentence in _other_data(runs, problem.dataset):
            notice(f"{title}: {sentence}")
        try:
            table = (
                paired_table(frames, pairs, chosen)
                if against is None and pairs
                else comparison_table(frames, chosen, against)
            )
        except InputError as error:
            left_out.append(error)
            notice(f"{title} is left out: {error}")
            continue
        item = next(iter(frames.values())).columns[0]
        compared.append(
            ProblemComparison(title, by_run[0][0], item, table, _ranks(frames, chosen[0]))
        )
    if baseline is not None and not compared and not any(baseline in name for name in known):
        raise unknown_name("row", baseline, known)
    if not compared and left_out:
        raise left_out[0]
    if not compared:
        raise InputError(
            "there is nothing to compare: one row, or one item", remedy="name a second run"
        )
    return compared


def _other_data(runs: Sequence[Compared], dataset: str) -> Iterator[str]:
    """Sentences on parts of a dataset that hold other rows in one run than in the first."""
    first = runs[0].record
    for run in runs[1:]:
        for part, entry in run.record.manifest["data"].items():
            known = first.manifest["data"].get(part, entry)
            if part.partition("/")[0] == dataset and known["digest"] != entry["digest"]:
                yield f"{part} is not the same in {run.record.id} as in {first.id}"


def _run_names(runs: Sequence[Compared]) -> list[str | None]:
    """How each run is called in the names of rows; None when there is only one."""
    if len(runs) == 1:
        return [None]
    names: list[str | None] = []
    for run in runs:
        times = sum(name == run.record.id or str(name).startswith(run.record.id) for name in names)
        names.append(f"{run.record.id} again" if times else run.record.id)
    return names


def _name(label: str, run: str | None) -> str:
    return label if run is None else f"{label} [{run}]"


def _frames(
    run: Compared, title: str, metrics: Sequence[str], definition: str | None
) -> tuple[str, dict[str, pl.DataFrame]]:
    """Definition, and values per item of each row with every metric asked for."""
    view = problem_view(run.record, title)
    definitions = view.results["definition"].unique(maintain_order=True).to_list()
    chosen = definition or str(definitions[0])
    if chosen not in definitions:
        raise unknown_name(f"metric definition of {title}", chosen, definitions)
    frames: dict[str, pl.DataFrame] = {}
    for metric in metrics:
        if metric not in view.per_item.columns:
            known = [c for c, t in view.per_item.schema.items() if t.is_numeric()]
            raise unknown_name(f"metric of {title}", metric, known)
        for label, values in item_means(view, metric, chosen).items():
            if run.row not in (None, label):
                continue
            frames[label] = (
                frames[label].join(values, on=values.columns[0], maintain_order="left")
                if label in frames
                else values
            )
    return chosen, frames


def _ranks(frames: Mapping[str, pl.DataFrame], metric: str) -> CriticalDifference | None:
    if len(frames) < 3:
        return None
    (_, first), *others = frames.items()
    item = first.columns[0]
    wide = first.select(item, pl.col(metric).alias(next(iter(frames))))
    for name, frame in others:
        renamed = frame.select(item, pl.col(metric).alias(name))
        wide = wide.join(renamed, on=item, how="inner", maintain_order="left")
    if len(wide) < len(first) or wide.null_count().sum_horizontal()[0]:
        return None  # not the same items
    return critical_difference(wide)
