"""The ``compare`` command: rows of runs against each other or against the published numbers."""

from __future__ import annotations

import io
import re
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from pipeline_lib.artifacts import ArtifactStore, write_text_atomically
from pipeline_lib.errors import InputError
from pipeline_lib.home import Home, resolve_home
from pipeline_lib.report import against_published, comparison
from pipeline_lib.report.comparison_page import comparison_page, published_page
from pipeline_lib.report.run_comparison import Compared, ProblemComparison, compare_runs
from pipeline_lib.report.trec_export import export_trec
from pipeline_lib.results import RunRecord, data_notes, load_run
from pipeline_lib.suggest import unknown_name
from pipeline_lib.tracking import fetch_run

FORMATS = ("terminal", "markdown", "latex", "csv", "json", "html")

_MLFLOW_ID = re.compile("[0-9a-f]{32}")
_WIDTH = 180


@dataclass(frozen=True)
class CompareCommand:
    """What the user asked for; see `flows.cli.compare`."""

    references: tuple[str, ...]
    metrics: tuple[str, ...] = ()
    baseline: str | None = None
    definition: str | None = None
    published: bool = False
    output: str = "terminal"
    out: Path | None = None
    trec: Path | None = None
    home: Path | None = None


def compare_command(command: CompareCommand) -> None:
    """Compare, and print or write what came of it.

    Raises
    ------
    InputError
        If a run, a metric, a row or a format is unknown, or there is nothing to compare.
    """
    if command.output not in FORMATS:
        raise unknown_name("format", command.output, FORMATS)
    home = resolve_home(command.home)
    with tempfile.TemporaryDirectory(prefix="affinity-") as folder:
        runs = [resolve(home, reference, Path(folder)) for reference in command.references]
        if command.trec is not None:
            try:
                written = _exported(runs, home, command.trec)
            except OSError as error:
                what = f"cannot be written ({error.strerror})"
                raise InputError(what, path=command.trec, expected="a folder") from None
            for path in written:
                typer.echo(path, err=command.out is None)
        text = (
            _published(command, [run.record for run in runs])
            if command.published
            else _compared(command, runs)
        )
    if command.out is None:
        typer.echo(text.rstrip("\n"))
        return
    try:
        write_text_atomically(command.out.absolute(), text)
    except OSError as error:
        raise InputError(f"cannot be written ({error.strerror})", path=command.out) from None
    typer.echo(command.out)


def resolve(home: Home, reference: str, folder: Path) -> Compared:
    """The run that a reference names: a suite's latest run, an MLflow id, a run id, prefix, or latest.

    Parameters
    ----------
    home : Home
    reference : str
    folder : Path
        Gets what only a tracking server has.

    Raises
    ------
    InputError
        If nothing, or more than one run, answers to it.
    """
    if _MLFLOW_ID.fullmatch(reference):
        run, row = fetch_run(home, reference, folder)
        place = home if (home.runs / run / "manifest.json").is_file() else Home(folder)
        return Compared(load_run(place, run), row)
    return Compared(load_run(home, reference))


def _compared(command: CompareCommand, runs: Sequence[Compared]) -> str:
    told = [data_notes(run.record.manifest.get("data", {})) for run in runs]
    data = [f"data: {note}" for note in dict.fromkeys(note for notes in told for note in notes)]
    notes = list(data)
    found = compare_runs(
        runs, command.metrics, command.baseline, command.definition, notice=notes.append
    )
    for note in notes:
        typer.echo(f"affinity: {note}", err=True)
    if command.output == "html":
        return comparison_page([run.record for run in runs], found, notes)
    if command.output in ("csv", "json"):
        whole = pl.concat(
            one.table.select(
                pl.lit(one.problem).alias("problem"),
                pl.lit(one.definition).alias("definition"),
                pl.all(),
            )
            for one in found
        )
        return comparison.to_csv(whole) if command.output == "csv" else comparison.to_json(whole)
    render: dict[str, Callable[[ProblemComparison], str]] = {
        "terminal": _terminal,
        "markdown": lambda one: f"## {_title(one)}\n\n{comparison.to_markdown(one.table)}",
        "latex": lambda one: f"% {_title(one)}\n{comparison.to_latex(one.table)}",
    }
    tables = [render[command.output](one) for one in found]
    if command.output in ("markdown", "latex"):
        tables += [("% " if command.output == "latex" else "") + note + "\n" for note in data]
    return "\n".join(tables)


def _published(command: CompareCommand, records: Sequence[RunRecord]) -> str:
    if len(records) != 1:
        raise InputError(f"--published goes with one run, {len(records)} are named")
    (record,) = records
    table = against_published.published_table(record)
    if command.metrics:
        for metric in command.metrics:
            if metric not in table["metric"]:
                raise unknown_name("published metric", metric, table["metric"].unique())
        table = table.filter(pl.col("metric").is_in(command.metrics))
    notes = against_published.warnings(record, table)
    if command.output == "html":
        return published_page(record, table)
    if command.output == "json":
        return against_published.to_json(table)
    if command.output == "csv":
        return table.write_csv()
    if command.output == "markdown":
        return "\n".join([against_published.to_markdown(table), *notes]) + "\n"
    if command.output == "latex":
        return "".join(f"% {note}\n" for note in notes) + against_published.to_latex(table)
    header, rows = against_published.text_rows(table)
    shown = _rich(f"{record.id} beside the published numbers", header, rows, names=3)
    inside = table["inside"].drop_nulls()
    verdict = (
        f"{int(inside.sum())} of {len(inside)} published values lie inside our 95 % interval over "
        "items (which says nothing of the paper's own spread)"
    )
    return "\n".join([shown, verdict, *notes]) + "\n"


def _exported(runs: Sequence[Compared], home: Home, folder: Path) -> list[Path]:
    written = []
    for run in runs:
        place = folder if len(runs) == 1 else folder / run.record.id
        written += export_trec(run.record, ArtifactStore(home.store), place)
    return written


def _terminal(one: ProblemComparison) -> str:
    marks = (" ", "▲", "▼")
    header, rows = comparison.wide(
        one.table,
        0.05,
        lambda row, best, sign: (
            f"{row['mean']:.4f}{'*' if best else ' '}{marks[sign]}"
            f"  {row['mean_low']:.4f}–{row['mean_high']:.4f}"
        ),
    )
    parts = [_rich(_title(one), header, rows, names=1)]
    tested = [row for row in one.table.iter_rows(named=True) if row["difference"] is not None]
    titles = ["metric", "method", "against", "difference, 95 % interval", "d", "rank-biserial"]
    titles += ["p rand.", "Holm", "p Wilc.", "Holm"]
    cells = [
        [row["metric"], row["method"], row["baseline"], *comparison.difference_cells(row)]
        for row in tested
    ]
    parts.append(_rich("", titles, cells, names=3))
    parts.append(f"{comparison.caption(one.table, 0.05)} * best, ▲ better, ▼ worse.\n")
    if one.ranks is not None:
        ranks = ", ".join(
            f"{m} {r:.2f}" for m, r in zip(one.ranks.methods, one.ranks.average_ranks)
        )
        parts.append(
            f"average ranks: {ranks}; critical difference {one.ranks.critical_difference:.2f} "
            f"(Nemenyi), Friedman p {one.ranks.friedman_p:.2g}\n"
        )
    return "\n".join(parts)


def _title(one: ProblemComparison) -> str:
    return one.problem if one.definition == "default" else f"{one.problem}, {one.definition}"


def _rich(title: str, header: Sequence[str], rows: Sequence[Sequence[str]], names: int) -> str:
    table = Table(box=None, pad_edge=False, header_style="bold", title_justify="left")
    table.title = title or None
    for position, name in enumerate(header):
        table.add_column(
            name, justify="left" if position < names else "right", no_wrap=position >= names
        )
    for row in rows:
        table.add_row(*map(Text, row))  # brackets in a name are no markup
    terminal = sys.stdout.isatty()
    buffer = io.StringIO()
    console = Console(
        file=buffer, force_terminal=terminal, width=None if terminal else _WIDTH, highlight=False
    )
    console.print(table)
    return "\n".join(line.rstrip() for line in buffer.getvalue().splitlines()) + "\n"
