"""The ``rerun`` and ``freeze`` commands: a run computed again, here or elsewhere, and verified."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import typer

from flows.progress import ProgressDisplay
from flows.run import interruptible, require_data
from pipeline_lib.errors import InputError
from pipeline_lib.home import Home, resolve_home
from pipeline_lib.reproduction import frozen
from pipeline_lib.reproduction.outcome import Difference, Outcome, Value
from pipeline_lib.reproduction.rerun import rerun, save, scratch_home
from pipeline_lib.results import RunRecord, load_run
from pipeline_lib.suites import with_overrides

_MOST_SHOWN = 12


@dataclass(frozen=True)
class RerunCommand:
    """What the user asked for; see `flows.cli.rerun`."""

    reference: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    tolerance: float = 1e-6
    workers: int | None = None
    blas_threads: int | None = None
    quiet: bool = False
    as_json: bool = False
    home: Path | None = None


def rerun_command(command: RerunCommand) -> int:
    """Rerun and print what came of it; returns the exit status: 0 verified, 1 not."""
    home = resolve_home(command.home)
    display = ProgressDisplay(quiet=command.quiet or command.as_json)
    with (
        interruptible(display, kept="nothing of the rerun is kept"),
        _opened(command, home) as (
            record,
            is_file,
        ),
    ):
        suite = with_overrides(record.suite, settings=command.settings)
        require_data(suite)
        display.line(f"rerun of {record.id}, from the raw data")
        with display:
            outcome = rerun(
                record,
                home,
                suite=suite,
                tolerance=command.tolerance,
                workers=command.workers,
                blas_threads=command.blas_threads,
                progress=display,
            )
        if not is_file and not command.settings:
            save(record, outcome)
    if command.as_json:
        typer.echo(json.dumps(outcome.as_dict(), indent=2, ensure_ascii=False))
    else:
        for line in lines(outcome):
            typer.echo(line)
    return 0 if outcome.verified else 1


def freeze_command(
    reference: str, out: Path | None, small_megabytes: float, as_json: bool, home: Path | None
) -> None:
    """Freeze a run and print where it is."""
    record = load_run(resolve_home(home), reference)
    target = out or Path(f"{record.id}.frozen.zip")
    largest = min(small_megabytes * (1 << 20), float(sys.maxsize))  # inf takes everything along
    done = frozen.freeze(record, target.absolute(), small=int(largest))
    if as_json:
        body = {"file": str(done.path), "bytes": done.bytes, "artifacts": done.artifacts}
        typer.echo(json.dumps({**body, "left_out": list(done.left_out)}, indent=2))
        return
    typer.echo(f"{done.path}  {done.bytes / 1e6:.1f} MB, {done.artifacts} artifacts")
    for name in done.left_out:
        typer.echo(f"left out, too large or gone: {name}")
    typer.echo(f"repeat it: affinity rerun {done.path.name}")


def lines(outcome: Outcome) -> Iterator[str]:
    """Sentences on an outcome."""
    rows = {(value.problem, value.label) for value in outcome.values}
    wrong = {(value.problem, value.label) for value in outcome.wrong}
    if outcome.verified:
        yield (
            f"verified: {len(outcome.values)} values of {len(rows)} rows within "
            f"{outcome.tolerance:g} (largest difference {outcome.largest:.2g})"
        )
        for change in outcome.changes:
            yield f"changed since, without effect: {change.kind}: {change.what}"
        return
    yield f"NOT verified: {len(wrong)} of {len(rows)} rows differ by more than {outcome.tolerance:g}"
    for value in outcome.wrong[:_MOST_SHOWN]:
        yield f"  {_value(value)}"
    if len(outcome.wrong) > _MOST_SHOWN:
        yield f"  and {len(outcome.wrong) - _MOST_SHOWN} more values"
    if not outcome.differences:
        yield "where they part is not known: an earlier version made the run, without steps"
        for change in outcome.changes:
            yield f"changed since: {change.kind}: {change.what}"
    for number, difference in enumerate(outcome.differences):
        yield ("first difference: " if number == 0 else "then: ") + _place(difference)
        for cause in difference.causes:
            yield f"  {cause.kind}: {cause.what}"
        others = [
            row for row in difference.rows if row != f"{difference.problem} {difference.label}"
        ]
        if others:
            yield f"  reaches {', '.join(others)}"


def _place(difference: Difference) -> str:
    names = [n for n in (difference.problem, difference.label, difference.split) if n]
    stage = f"{difference.stage} {difference.step}".strip()
    parts = [part for part in (stage, " ".join(names)) if part]
    return f"{' of '.join(parts)}: {difference.what}" if parts else difference.what


def _value(value: Value) -> str:
    definition = "" if value.definition == "default" else f" ({value.definition})"
    before, after = (
        "absent" if number is None else f"{number:.6f}" for number in (value.before, value.after)
    )
    return f"{value.problem} {value.label}{definition}: {value.metric} {before} → {after}"


@contextmanager
def _opened(command: RerunCommand, home: Home) -> Iterator[tuple[RunRecord, bool]]:
    """The run of a reference or of a frozen file, and which of the two it is."""
    file = Path(command.reference)
    if file.is_file():
        with (
            scratch_home(home, "frozen") as folder,
            frozen.thawed(file.absolute(), folder.root) as record,
        ):
            yield record, True
        return
    if file.suffix == ".zip":
        raise InputError("no such file", path=file, expected="a file made by affinity freeze")
    yield load_run(home, command.reference), False
