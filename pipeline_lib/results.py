"""What a run leaves: results table, trials, values per item, manifest; how it is read again.

Layout of ``<home>/runs/<run id>/``:

=====================  ============================================================================
``manifest.json``      suite, paths, data, artifacts, environment, status (see `manifest`)
``results.parquet``    one row for each row of a problem and each metric definition: `RESULT_COLUMNS`,
                       then one column a metric
``trials.parquet``     one row a trial: `TRIAL_COLUMNS`, then ``vali_<metric>`` columns
``history.parquet``    objective history of the chosen trials
``per_item/*.parquet`` one file a problem: the values that the means are made of
``pictures/*.parquet`` one file a problem that keeps something to be drawn
``report.html``        the report
``errors.log``         tracebacks of failed trials, when there are any
``rerun.json``         outcome of the last rerun, see `reproduction.outcome.Outcome`
``regression.json``    verdict of the regression check, of scheduled runs
=====================  ============================================================================
"""

from __future__ import annotations

import glob
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from pipeline_lib.artifacts import write_text_atomically
from pipeline_lib.errors import InputError
from pipeline_lib.home import Home
from pipeline_lib.suggest import unknown_name
from pipeline_lib.suites import Suite

RESULT_COLUMNS = (
    "problem",
    "kind",
    "dataset",
    "method",
    "label",
    "definition",
    "splits",
    "repetitions",
    "items",
    "params",
    "fit_seconds",
    "predict_seconds",
    "headline",
    "value",
    "low",
    "high",
    "std",
)
"""Identity of a row, what was chosen, times in seconds (mean over splits and repetitions), and the
headline metric with its bootstrap interval over items (95 %) and its standard deviation over splits and
repetitions (null when there is one)."""

TRIAL_COLUMNS = (
    "problem",
    "label",
    "method",
    "split",
    "repetition",
    "path",
    "setting",
    "params",
    "selected",
    "cached",
    "seconds",
    "objective",
    "n_iter",
    "converged",
    "error",
    "evaluation",
)


_TOLD = ("dictionary", "stray_values_read_as_0", "swapped_headers_put_back")
"""Findings of readers that change how numbers and names are to be read."""


def data_notes(data: Mapping[str, Any], dataset: str | None = None) -> list[str]:
    """What a reader must know of the data of a run: variants, allowed mismatches, repaired values.

    Parameters
    ----------
    data : mapping
        ``data`` of a run's manifest.
    dataset : str, optional
        Only the notes on this dataset.
    """
    notes = []
    for name, entry in data.items():
        if dataset is not None and name.partition("/")[0] != dataset:
            continue
        info = entry.get("info") or {}
        variant, why = info.get("variant") or "official", info.get("variant_note")
        if variant != "official":
            notes.append(
                f"{name}: the declared variant “{variant}”, not the official release"
                + (f": {why}" if why else "")
            )
        for mismatch in info.get("mismatch") or ():
            notes.append(f"{name}: {mismatch} (accepted with --allow-mismatch)")
        for doubt in info.get("unconfirmed") or ():
            notes.append(f"{name}: {doubt}; the declared number is not confirmed")
        for key, found in (info.get("findings") or {}).items():
            if key.rpartition(": ")[2] in _TOLD:
                told = ", ".join(map(str, found)) if isinstance(found, list) else found
                notes.append(f"{name}: {key.replace('_', ' ')}: {told}")
    return notes


@dataclass
class RunRecord:
    """One run, finished or read again.

    Attributes
    ----------
    id : str
        Name of the run.
    folder : Path
        Where it stands.
    suite : Suite
        What was run.
    status : str
        ``running``, ``finished``, ``failed`` (some trials failed) or ``interrupted``.
    results, trials, history : DataFrame
    per_item, pictures : dict of DataFrame
        By problem title.
    manifest : dict
    """

    id: str
    folder: Path
    suite: Suite
    status: str
    results: pl.DataFrame = field(default_factory=pl.DataFrame)
    trials: pl.DataFrame = field(default_factory=pl.DataFrame)
    history: pl.DataFrame = field(default_factory=pl.DataFrame)
    per_item: dict[str, pl.DataFrame] = field(default_factory=dict)
    pictures: dict[str, pl.DataFrame] = field(default_factory=dict)
    manifest: dict[str, Any] = field(default_factory=dict)

    @property
    def report(self) -> Path:
        """Path of the HTML report."""
        return self.folder / "report.html"

    def save_tables(self) -> None:
        """Write every table; each appears whole or not at all."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for name in ("results", "trials", "history"):
            _write_parquet(self.folder / f"{name}.parquet", getattr(self, name))
        for folder in ("per_item", "pictures"):
            for title, frame in getattr(self, folder).items():
                _write_parquet(self.folder / folder / f"{title}.parquet", frame)

    def save_manifest(self) -> None:
        """Write the manifest."""
        self.manifest["status"] = self.status
        text = json.dumps(self.manifest, indent=2, ensure_ascii=False)
        write_text_atomically(self.folder / "manifest.json", text + "\n")


def load_run(home: Home, reference: str) -> RunRecord:
    """Read a run by id, by the beginning of one, by its suite, or as ``latest``; see `find_run`.

    Raises
    ------
    InputError
        If no run, or more than one, answers to the reference, or its manifest is damaged.
    """
    folder = find_run(home, reference)
    path = folder / "manifest.json"
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
        suite = Suite.model_validate(manifest["suite"])
        status = str(manifest["status"])
    except (OSError, ValueError, KeyError, TypeError):
        raise InputError("the manifest of the run cannot be read", path=path) from None
    record = RunRecord(id=folder.name, folder=folder, suite=suite, status=status, manifest=manifest)
    for name in ("results", "trials", "history"):
        path = folder / f"{name}.parquet"
        if path.is_file():
            setattr(record, name, _read_parquet(path))
    for name in ("per_item", "pictures"):
        for path in sorted((folder / name).glob("*.parquet")):
            getattr(record, name)[path.stem] = _read_parquet(path)
    return record


def _read_parquet(path: Path) -> pl.DataFrame:
    try:
        return pl.read_parquet(path)
    except (OSError, pl.exceptions.PolarsError):
        raise InputError("a table of the run is damaged", path=path) from None


def find_run(home: Home, reference: str) -> Path:
    """Folder of a run.

    Parameters
    ----------
    home : Home
    reference : str
        ``latest`` (the last that left results, else the last), an id, a suite (its latest run that
        ended), or the beginning of one id only.

    Raises
    ------
    InputError
        If no run, or more than one, answers to the reference.
    """
    folders = {path.parent.name: path.parent for path in home.runs.glob("*/manifest.json")}
    if not folders:
        raise InputError(
            "there are no runs yet", path=home.runs, remedy="start one with `affinity run`"
        )
    if not reference:
        raise InputError("an empty name of a run", expected="an id, a suite, or latest")
    if reference == "latest":
        return max(folders.values(), key=_age)
    if reference in folders:
        return folders[reference]
    ended = [run.run for run in known_runs(home, reference) if run.ended]
    if ended:
        return folders[ended[-1]]
    matches = [folder for name, folder in sorted(folders.items()) if name.startswith(reference)]
    if len(matches) == 1:
        return matches[0]
    if matches:
        shown = ", ".join(folder.name for folder in matches[:5])
        raise InputError(
            f'"{reference}" is the beginning of {len(matches)} runs ({shown})',
            remedy="write more of it",
        )
    raise unknown_name("run", reference, folders)


def _age(folder: Path) -> tuple[bool, int]:
    written = (folder / "manifest.json").stat().st_mtime_ns
    return (folder / "results.parquet").is_file(), written


class KnownRun(NamedTuple):
    """What a list of runs says of one."""

    run: str
    suite: str
    status: str
    started: str
    seconds: float | None

    @property
    def ended(self) -> bool:
        """Whether it came to its end, though trials may have failed."""
        return self.status in ("finished", "failed")


def known_runs(home: Home, suite: str | None = None) -> list[KnownRun]:
    """The runs of a home folder by the time they started, the latest last; damaged ones are left out.

    Parameters
    ----------
    home : Home
    suite : str, optional
        Only the runs of this suite.
    """
    found = []
    begins = "" if suite is None else f"{glob.escape(suite)}-"
    for path in home.runs.glob(f"{begins}*/manifest.json"):
        try:
            manifest = json.loads(path.read_text(encoding="utf-8"))
            started, ended = str(manifest["started"]), manifest.get("ended")
            seconds = None
            if ended is not None:
                took = datetime.fromisoformat(ended) - datetime.fromisoformat(started)
                seconds = took.total_seconds()
            of, status = str(manifest["suite"]["name"]), str(manifest["status"])
        except (OSError, ValueError, KeyError, TypeError):
            continue
        if suite in (None, of):
            found.append(KnownRun(path.parent.name, of, status, started, seconds))
    return sorted(found, key=lambda run: (run.started, run.run))


def _write_parquet(path: Path, frame: pl.DataFrame) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    sibling = path.with_name(f".{path.name}.partial")
    frame.write_parquet(sibling)
    sibling.replace(path)
