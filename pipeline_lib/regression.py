"""Has a run become worse than the last good one? Each headline metric, row by row.

Where both runs hold values of the same items, a row alarms when the paired randomisation test over
items finds a difference (Holm-corrected over the rows) *and* the mean has dropped by at least a stated
margin: a difference that is certain but negligible does not wake anybody. Where items cannot be paired
(other items, none kept, or too few for the test to reach its level at all), a row alarms when its value
lies below the bootstrap interval of the good run and the drop reaches the margin. A row that is gone,
a value that is gone and a run that did not finish alarm as well.

The last good run is the latest one of the same suite that passed this check (or was accepted): runs
made by hand in between, perhaps with the fault already in them, do not become the measure.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import polars as pl

from pipeline_lib.artifacts import write_text_atomically
from pipeline_lib.errors import InputError
from pipeline_lib.home import Home
from pipeline_lib.metrics.significance import compare, holm
from pipeline_lib.results import RunRecord, load_run

MARGIN = 0.005
LEVEL = 0.01
FILE = "regression.json"

_GOOD = ("pass", "first", "accepted")
_IDENTITY = ("problem", "label", "definition")
_MEASURED = "per_item"

Status = Literal["pass", "alarm", "first", "accepted"]


@dataclass(frozen=True)
class RowCheck:
    """One row of a results table against the same row of the good run.

    Attributes
    ----------
    problem, label, definition, metric : str
        Which value.
    before, after : float or None
        The good run's value and this run's.
    low : float or None
        Lower end of the good run's bootstrap interval.
    items : int
        Items paired; 0 when the interval decides.
    p : float or None
        Holm-corrected p-value of the paired randomisation test; only of rows that fell by the margin.
    alarm : bool
    reason : str
        One sentence, when there is an alarm.
    """

    problem: str
    label: str
    definition: str
    metric: str
    before: float | None
    after: float | None
    low: float | None = None
    items: int = 0
    p: float | None = None
    alarm: bool = False
    reason: str = ""

    @property
    def drop(self) -> float:
        """How much worse; negative when better."""
        if self.before is None or self.after is None:
            return math.nan
        return self.before - self.after


@dataclass(frozen=True)
class Verdict:
    """Outcome of the check of one run.

    Attributes
    ----------
    suite, run : str
        The run is empty when it could not even begin.
    baseline : str or None
        The good run compared with.
    status : {"pass", "alarm", "first", "accepted"}
        ``first``: there is no good run yet, this one is the measure from now on.
    reasons : tuple of str
        Why there is an alarm.
    rows : tuple of RowCheck
    """

    suite: str
    run: str
    baseline: str | None
    status: Status
    reasons: tuple[str, ...] = ()
    rows: tuple[RowCheck, ...] = ()

    @property
    def alarm(self) -> bool:
        """Whether somebody should look."""
        return self.status == "alarm"

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return asdict(self)


def judge(
    record: RunRecord,
    baseline: RunRecord | None,
    *,
    margin: float = MARGIN,
    level: float = LEVEL,
    accept: bool = False,
    seed: int = 0,
) -> Verdict:
    """Compare a run with a good one.

    Parameters
    ----------
    record : RunRecord
        The run in question.
    baseline : RunRecord or None
        The last good run.
    margin : float, default=0.005
        Drop of a metric, in its own units, from which on it matters.
    level : float, default=0.01
        Significance level of all paired tests of the run together.
    accept : bool, default=False
        Take the run as good whatever it shows; the rows are compared all the same.
    seed : int, default=0
        Of the randomisation tests.

    Returns
    -------
    Verdict

    Raises
    ------
    InputError
        If margin or level are out of range.
    """
    if not (math.isfinite(margin) and margin >= 0):
        raise InputError(f"margin {margin}", expected="a number from 0 on")
    if not 0 < level < 1:
        raise InputError(f"level {level}", expected="a number between 0 and 1")
    reasons = []
    if record.status != "finished":
        failed = _failures(record)
        reasons.append(f"the run {record.status}{f': {failed}' if failed else ''}")
    rows = () if baseline is None else check_rows(record, baseline, margin, level, seed)
    reasons += [row.reason for row in rows if row.alarm]
    status: Status = "alarm" if reasons else "first" if baseline is None else "pass"
    return Verdict(
        suite=record.suite.name,
        run=record.id,
        baseline=None if baseline is None else baseline.id,
        status="accepted" if accept else status,
        reasons=tuple(reasons),
        rows=rows,
    )


def check_rows(
    record: RunRecord, baseline: RunRecord, margin: float, level: float, seed: int = 0
) -> tuple[RowCheck, ...]:
    """Compare each headline value of the good run with its counterpart; see `judge`."""
    now = _values(record)
    checks: list[RowCheck] = []
    pairs: list[tuple[pl.DataFrame, pl.DataFrame] | None] = []
    for key, old in _values(baseline).items():
        new = now.get(key)
        check = RowCheck(
            *key,
            metric=old["headline"],
            before=old["value"],
            after=None if new is None else new["value"],
            low=old["low"],
        )
        if check.before is None:
            continue
        if check.after is None:
            what = "row is gone" if new is None else "value is gone"
            checks.append(replace(check, alarm=True, reason=f"{_title(check)}: the {what}"))
            pairs.append(None)
            continue
        checks.append(check)
        pairs.append(_paired(record, baseline, check))
    tested = _test(checks, pairs, margin, level, seed)
    return tuple(_decide(check, margin, level) for check in tested)


def last_good_run(home: Home, record: RunRecord) -> RunRecord | None:
    """Find the latest run of the same suite, defined alike, that passed the check or was accepted."""
    wanted = _definition(record.manifest)
    newest: tuple[str, str] | None = None
    for path in home.runs.glob(f"*/{FILE}"):
        if path.parent.name == record.id:
            continue
        try:
            status = json.loads(path.read_text(encoding="utf-8"))["status"]
            manifest = json.loads((path.parent / "manifest.json").read_text(encoding="utf-8"))
        except (OSError, ValueError, KeyError):
            continue
        if status in _GOOD and _definition(manifest) == wanted:
            candidate = (str(manifest["started"]), path.parent.name)
            newest = max(newest or candidate, candidate)
    return None if newest is None else load_run(home, newest[1])


def save(record: RunRecord, verdict: Verdict) -> None:
    """Write the verdict beside the run's tables; it decides what later runs are compared with."""
    text = json.dumps(verdict.as_dict(), indent=2, ensure_ascii=False)
    write_text_atomically(record.folder / FILE, text + "\n")


def _definition(manifest: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in manifest["suite"].items() if k not in ("title", "summary")}


def _values(record: RunRecord) -> dict[tuple[str, str, str], dict[str, Any]]:
    if not len(record.results):
        return {}
    return {
        tuple(row[name] for name in _IDENTITY): row for row in record.results.iter_rows(named=True)
    }


def _paired(
    record: RunRecord, baseline: RunRecord, check: RowCheck
) -> tuple[pl.DataFrame, pl.DataFrame] | None:
    frames = [_items(run, check) for run in (record, baseline)]
    if frames[0] is None or frames[1] is None:
        return None
    return frames[0], frames[1]


def _items(run: RunRecord, check: RowCheck) -> pl.DataFrame | None:
    """Values of a row's headline by item; repetitions of an item count once, by their mean."""
    frame = run.per_item.get(check.problem)
    if frame is None or check.metric not in frame.columns:
        return None
    item = frame.columns[4]
    own = frame.filter(
        (pl.col("label") == check.label) & (pl.col("definition") == check.definition)
    )
    return (
        own.group_by("split", item)
        .agg(pl.col(check.metric).mean())
        .select("split", pl.col(item).alias("item"), pl.col(check.metric).alias(_MEASURED))
    )


def _test(
    checks: Sequence[RowCheck],
    pairs: Sequence[tuple[pl.DataFrame, pl.DataFrame] | None],
    margin: float,
    level: float,
    seed: int,
) -> list[RowCheck]:
    """Add p-values to the rows that fell, where their items can be paired and are enough."""
    count = sum(pair is not None for pair in pairs)
    # A random sample of sign assignments must be able to show the smallest corrected p-value.
    resamples = max(10_000, math.ceil(10 * count / level))
    results: dict[int, tuple[int, float]] = {}
    for position, (check, pair) in enumerate(zip(checks, pairs)):
        if pair is None or not _fell(check, margin):
            continue
        try:
            outcome = compare(
                *pair, _MEASURED, item=["split", "item"], n_resamples=resamples, seed=seed
            )
        except InputError:
            continue  # other items than before
        if 2.0 ** (1 - outcome.n_items) <= level / count:
            results[position] = (outcome.n_items, outcome.p_randomisation)
    if not results:
        return list(checks)
    # Rows that were not tested count as tests that found nothing.
    corrected = holm([p for _, p in results.values()] + [1.0] * (count - len(results)))
    tested = list(checks)
    for (position, (items, _)), p in zip(results.items(), corrected):
        tested[position] = replace(checks[position], items=items, p=float(p))
    return tested


def _fell(check: RowCheck, margin: float) -> bool:
    return check.drop > 0 and check.drop >= margin


def _decide(check: RowCheck, margin: float, level: float) -> RowCheck:
    if check.alarm or not _fell(check, margin):
        return check
    if check.p is not None:
        if check.p >= level:
            return check
        why = f"p = {check.p:.2g} over {check.items} items"
    elif check.low is not None and check.after is not None:
        if check.after >= check.low:
            return check
        why = f"below the interval, which ends at {check.low:.4f}"
    else:
        why = "no interval to hold it against"
    change = f"{check.metric} fell from {check.before:.4f} to {check.after:.4f}"
    return replace(check, alarm=True, reason=f"{_title(check)}: {change} ({why})")


def _title(check: RowCheck) -> str:
    definition = "" if check.definition == "default" else f" ({check.definition})"
    return f"{check.problem}, {check.label}{definition}"


def _failures(record: RunRecord) -> str:
    if "error" not in record.trials.columns:
        return ""
    failed = record.trials.filter(pl.col("error").is_not_null())
    if not len(failed):
        return ""
    first = failed.row(0, named=True)
    return f"{len(failed)} trials failed, first {first['label']}: {first['error']}"
