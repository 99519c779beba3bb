"""A run computed again, without the cache, and held against what it said the first time."""

from __future__ import annotations

import json
import math
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pipeline_lib.artifacts import ArtifactStore, write_text_atomically
from pipeline_lib.datasets import acquire
from pipeline_lib.environment import cpu_count, set_blas_threads, silence_convergence_warnings
from pipeline_lib.errors import DataMissingError, InputError
from pipeline_lib.execution import thread_executor
from pipeline_lib.home import Home
from pipeline_lib.locking import alive
from pipeline_lib.progress import Progress
from pipeline_lib.reproduction.causes import data_changes
from pipeline_lib.reproduction.outcome import Difference, Outcome, Value
from pipeline_lib.reproduction.verify import TOLERANCE, identity, verify
from pipeline_lib.results import RunRecord
from pipeline_lib.runner import Run
from pipeline_lib.suites import Suite

FILE = "rerun.json"


def rerun(
    record: RunRecord,
    home: Home,
    *,
    suite: Suite | None = None,
    tolerance: float = TOLERANCE,
    workers: int | None = None,
    blas_threads: int | None = None,
    progress: Progress | None = None,
) -> Outcome:
    """Compute a run again from the raw data and hold it against the record.

    Nothing of the artifact store is used: the run happens in an empty home of its own below `home`,
    which is gone afterwards.

    Parameters
    ----------
    record : RunRecord
        The run; its artifacts, as far as its home still has them, show where differences begin.
    home : Home
        Gets the temporary home.
    suite : Suite, optional
        Run this one instead of the record's, to see what a change of it makes.
    tolerance : float, default=1e-6
        Largest difference of a metric that counts as none.
    workers : int, optional
        Paths at once; by default the number of processors.
    blas_threads : int, optional
        Threads of BLAS; by default those of the record.
    progress : Progress, optional

    Returns
    -------
    Outcome

    Raises
    ------
    InputError
        If the run has no results to verify, or its data are missing.
    """
    if not (math.isfinite(tolerance) and tolerance >= 0):
        raise InputError(f"tolerance {tolerance}", expected="a number from 0 on")
    if not len(record.results):
        raise InputError(f"run {record.id} ({record.status}) has no results to verify")
    recorded = int(record.manifest["environment"].get("blas_threads", 1))
    set_blas_threads(blas_threads or recorded)
    silence_convergence_warnings()
    count = workers or cpu_count()
    with scratch_home(home, record.id) as place, thread_executor(count) as executor:
        run = Run(
            suite or record.suite,
            place,
            executor,
            workers=count,
            allow_mismatch=bool(record.manifest.get("allow_mismatch")),
            track=False,
            progress=progress,
        )
        try:
            again = run.execute()
        except DataMissingError:
            raise
        except InputError as error:
            return _refused_data(record, run.record, error, tolerance)
        finally:
            set_blas_threads(1)
        own = ArtifactStore(Home(record.folder.parent.parent).store)
        return verify(record, own, again, ArtifactStore(place.store), tolerance=tolerance)


def save(record: RunRecord, outcome: Outcome) -> None:
    """Write the outcome beside the run's tables."""
    text = json.dumps(outcome.as_dict(), indent=2, ensure_ascii=False)
    write_text_atomically(record.folder / FILE, text + "\n")


def _refused_data(
    before: RunRecord, after: RunRecord, error: InputError, tolerance: float
) -> Outcome:
    """The data are not accepted any more: say so when they changed, pass the error on otherwise."""
    sources = {}
    for name in before.manifest["data"]:
        dataset, _, part = name.partition("/")
        found = acquire.source_digest(dataset, part, seed=before.suite.seed)
        sources[name] = {"sources": found}
    now = {**after.manifest, "data": sources}
    changed = [
        c for name in before.manifest["data"] for c in data_changes(before.manifest, now, name)
    ]
    if not changed:
        raise error
    values = tuple(
        Value(*identity(row), row["headline"], row["value"], None)
        for row in before.results.iter_rows(named=True)
    )
    rows = tuple(dict.fromkeys(f"{value.problem} {value.label}" for value in values))
    difference = Difference("ingest", "", "", "", "", str(error), tuple(changed), rows)
    return Outcome(before.id, False, tolerance, values, (difference,), tuple(changed))


@contextmanager
def scratch_home(home: Home, run: str) -> Iterator[Home]:
    """An empty home that is gone afterwards, as are those that killed processes have left."""
    folder = home.root / "reruns"
    for stale in folder.glob("*"):
        owner = stale.name.rpartition(".")[2]
        if owner.isdigit() and not alive(int(owner)):
            shutil.rmtree(stale, ignore_errors=True)
    folder.mkdir(exist_ok=True)
    place = Path(tempfile.mkdtemp(prefix=f"{run}.", suffix=f".{os.getpid()}", dir=folder))
    try:
        yield Home(place)
    finally:
        shutil.rmtree(place, ignore_errors=True)
        with suppress(OSError):
            folder.rmdir()  # unless another rerun is in progress
