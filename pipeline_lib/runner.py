"""Runs a suite: expands it into paths, carries their stages out, chooses, evaluates, records.

One executor of paths for every way of running: `run_suite` calls the stages in threads of this process,
the Prefect flow (`flows.benchmark`) hands in an executor whose calls are Prefect tasks.
"""

from __future__ import annotations

import os
import traceback
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import polars as pl

from pipeline_lib import manifest, registry, stages, suites, tracked
from pipeline_lib.artifacts import ArtifactRef, ArtifactStore
from pipeline_lib.environment import cpu_count, environment_record, set_blas_threads
from pipeline_lib.errors import AffinityError, TrialError
from pipeline_lib.execution import Executor, Outcome, thread_executor
from pipeline_lib.home import Home, resolve_home
from pipeline_lib.progress import Counts, Progress, Silent
from pipeline_lib.results import RunRecord
from pipeline_lib.run_state import PathState, RowState
from pipeline_lib.run_tracking import RunTracking
from pipeline_lib.selection import choose
from pipeline_lib.specs import Parameters
from pipeline_lib.store_care import using_store
from pipeline_lib.suggest import unknown_name
from pipeline_lib.suites import MethodEntry, Suite
from pipeline_lib.summary import summarise
from pipeline_lib.tracking import Tracker


def run_suite(
    suite: str | Path | Suite,
    home: str | Path | None = None,
    *,
    workers: int | None = None,
    allow_mismatch: bool = False,
    track: bool = True,
    progress: Progress | None = None,
) -> pl.DataFrame:
    """Run a suite in this process and return its results table.

    Parameters
    ----------
    suite : str, Path or Suite
        Name of a suite that comes with the project, path of a TOML file, or a suite.
    home : path, optional
        Home folder; see `pipeline_lib.home.resolve_home`.
    workers : int, optional
        Paths worked on at once; by default the number of processors. BLAS gets one thread each.
    allow_mismatch : bool
        Accept data that differ from their declaration; the report says so.
    track : bool
        Whether to write to MLflow.
    progress : Progress, optional
        Listener.

    Returns
    -------
    polars.DataFrame
        One row for each row of each problem and each metric definition; columns as in
        `pipeline_lib.results.RESULT_COLUMNS`, then one for each metric.

    Raises
    ------
    InputError
        If the suite is wrong or its data are missing; nothing has been computed then.
    """
    chosen = suite if isinstance(suite, Suite) else suites.load_suite(suite)
    count = workers or cpu_count()
    set_blas_threads(1)
    with thread_executor(count) as executor:
        return (
            Run(
                chosen,
                resolve_home(home),
                executor,
                workers=count,
                allow_mismatch=allow_mismatch,
                track=track,
                progress=progress,
            )
            .execute()
            .results
        )


class Run:
    """One run of a suite.

    Parameters
    ----------
    suite : Suite
    home : Home
    executor : Executor
        Carries out the stages.
    workers : int
        How many calls it carries out at once (for the record and the progress display).
    allow_mismatch, track, progress
        See `run_suite`.
    """

    def __init__(
        self,
        suite: Suite,
        home: Home,
        executor: Executor,
        *,
        workers: int = 1,
        allow_mismatch: bool = False,
        track: bool = True,
        progress: Progress | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> None:
        self.suite = suite
        self.home = home
        self.executor = executor
        self.workers = workers
        self.allow_mismatch = allow_mismatch
        self.progress: Progress = progress or Silent()
        self.store = ArtifactStore(home.store)
        self.tags = dict(tags or {})
        self.rows: dict[tuple[int, str], RowState] = {}
        self.ingested: dict[tuple[str, str], ArtifactRef] = {}
        self.counts = Counts()
        self.computed: set[tuple[str, str]] = set()
        self.reused: set[tuple[str, str]] = set()
        self.record = RunRecord(_new_id(suite.name), home.runs, suite, "running")
        self.record.folder = home.runs / self.record.id
        self.tracking = RunTracking(self.record, self.store, Tracker(home) if track else None)

    def execute(self) -> RunRecord:
        """Run everything; the record returned is saved, its MLflow run ended, whatever happens.

        Raises
        ------
        InputError
            If data are missing or wrong: nothing has been computed then.
        """
        # A run names what it uses only at its end: until then nothing may be collected.
        with using_store(self.home):
            return self._execute()

    def _execute(self) -> RunRecord:
        phases = suites.phases(self.suite)
        self._check_data()
        self.store.clean_temporary()
        self.counts = replace(self.counts, total=self._total())
        status = "interrupted"
        self._begin()
        try:
            self.progress.stage("data")
            self._ingest()
            for number, phase in enumerate(phases):
                self.progress.stage("fitting" if number == 0 else "fitting the winners")
                self._work_through(phase)
            failures = [path for row in self.rows.values() for path in row.paths if path.error]
            failed_rows = [row for row in self.rows.values() if row.error]
            status = "failed" if failures or failed_rows or self.counts.failed else "finished"
        except Exception:
            status = "failed"
            raise
        finally:
            self._end(status)
        return self.record

    # -- stages ---------------------------------------------------------------------------------

    def _check_data(self) -> None:
        """Find every raw file before anything is computed."""
        from pipeline_lib.datasets import acquire

        for dataset, part in self._needed_parts():
            acquire.source_digest(dataset, part, seed=self.suite.seed)

    def _needed_parts(self) -> list[tuple[str, str]]:
        needed: dict[tuple[str, str], None] = {}
        for index, problem in enumerate(self.suite.problems):
            for planned in suites.expand(self.suite, index, problem.methods[0]):
                for part in registry.kind(problem.kind).parts(planned.spec).values():
                    needed[planned.spec.dataset, part] = None
        return list(needed)

    def _ingest(self) -> None:
        parts = self._needed_parts()
        for dataset, part in parts:
            self.executor.submit(
                (dataset, part),
                "ingest",
                f"{dataset} {part}",
                stages.run_ingest,
                self.store.root,
                dataset,
                part,
                self.allow_mismatch,
                self.suite.seed,
            )
        for _ in parts:
            outcome = self._next()
            if outcome.error is not None:
                raise outcome.error
            self.ingested[outcome.key] = self._seen(outcome.value)
        for dataset, part in parts:
            self.record.manifest["data"][f"{dataset}/{part}"] = manifest.data_entry(
                self.store, self.ingested[dataset, part]
            )
        self.tracking.data()

    def _work_through(self, phase: Sequence[tuple[int, MethodEntry]]) -> None:
        """Fit, choose and evaluate the rows of one phase."""
        pending = 0
        waiting_features: dict[str, list[tuple[RowState, int]]] = {}
        for index, entry in phase:
            row = self._plan_row(index, entry)
            for position, path in enumerate(row.paths):
                key = stages.features_key(path.spec)
                if key in waiting_features:
                    waiting_features[key].append((row, position))
                    continue
                waiting_features[key] = [(row, position)]
                self.executor.submit(
                    ("features", key),
                    "features",
                    path.title,
                    stages.run_features,
                    self.store.root,
                    path.spec,
                    path.ingested,
                )
                pending += 1
        while pending:
            outcome = self._next()
            pending -= 1
            if outcome.key[0] == "features":
                pending += self._after_features(outcome, waiting_features[outcome.key[1]])
            elif outcome.key[0] == "fit":
                pending += self._after_fit(outcome)
            else:
                self._after_evaluate(outcome)

    def _plan_row(self, index: int, entry: MethodEntry) -> RowState:
        problem = self.suite.problems[index]
        row = RowState(index, entry, [])
        self.rows[index, entry.row] = row
        reason = registry.method(entry.name, problem.kind).skip({"dataset": problem.dataset})
        if reason is not None:
            row.error = f"skipped: {reason}"
            self.progress.notice(f"{entry.row} is skipped: {reason}")
            return row
        winner: Parameters | None = None
        if entry.winners_of is not None:
            source = self.rows[suites.winner_key(self.suite, index, entry.winners_of)]
            if not source.choices:
                row.error = f"no winner of {entry.winners_of} to take over"
                self._notice_failure(f"{entry.row}: {row.error}")
                return row
            choice = source.choices[0]
            chosen = source.paths[choice.path].spec
            winner = {**chosen.trial(choice.setting)}
        planned = suites.expand(
            self.suite, index, entry, winner, allow_mismatch=self.allow_mismatch
        )
        for one in planned:
            parts = registry.kind(problem.kind).parts(one.spec)
            refs = {role: self.ingested[one.spec.dataset, part] for role, part in parts.items()}
            row.paths.append(PathState(one, refs))
        row.waiting = len(row.paths)
        return row

    def _after_features(self, outcome: Outcome, users: list[tuple[RowState, int]]) -> int:
        submitted = 0
        for row, position in users:
            path = row.paths[position]
            if outcome.error is not None:
                submitted += self._fail_path(row, path, outcome.error)
                continue
            path.features = [self._seen(ref) for ref in outcome.value]
            self.executor.submit(
                ("fit", (row.problem, row.entry.row), position),
                "fit",
                path.title,
                stages.run_fit,
                self.store.root,
                path.spec,
                path.ingested,
                path.features,
            )
            submitted += 1
        return submitted

    def _after_fit(self, outcome: Outcome) -> int:
        _, key, position = outcome.key
        row = self.rows[key]
        path = row.paths[position]
        if outcome.error is not None:
            return self._fail_path(row, path, outcome.error)
        path.fitted = self._seen(outcome.value)
        fitted = self.store.open(path.fitted)
        trials = fitted.table("trials")
        failed = int(trials["error"].is_not_null().sum())
        for setting, error in trials.select("setting", "error").iter_rows():
            if error is not None:
                self._notice_failure(f"{path.title} {_pairs(path.spec.settings[setting])}: {error}")
        self._count(len(trials), cached=path.fitted.cached, failed=failed)
        self.tracking.trials(row, path)
        return self._path_done(row)

    def _fail_path(self, row: RowState, path: PathState, error: BaseException) -> int:
        if not isinstance(error, Exception):
            raise error
        path.error = _sentence(error)
        self._notice_failure(f"{path.title}: {path.error}", error)
        self._count(len(path.spec.settings), failed=len(path.spec.settings))
        return self._path_done(row)

    def _path_done(self, row: RowState) -> int:
        """Choose and submit the evaluations once the last path of a row has come in."""
        row.waiting -= 1
        if row.waiting:
            return 0
        problem = self.suite.problems[row.problem]
        fits = {
            position: self.store.open(path.fitted)
            for position, path in enumerate(row.paths)
            if path.fitted is not None
        }
        try:
            row.choices = choose([path.spec for path in row.paths], fits, problem.selection)
        except TrialError as error:
            row.error = str(error)
            self._notice_failure(f"{row.entry.row}: {row.error}")
            return 0
        for choice in row.choices:
            path = row.paths[choice.path]
            self.executor.submit(
                ("evaluate", (row.problem, row.entry.row), choice.path),
                "evaluate",
                path.title,
                stages.run_evaluate,
                self.store.root,
                path.spec,
                choice.setting,
                path.ingested,
                path.features,
                path.fitted,
            )
        return len(row.choices)

    def _after_evaluate(self, outcome: Outcome) -> None:
        _, key, position = outcome.key
        row = self.rows[key]
        path = row.paths[position]
        if outcome.error is not None:
            if not isinstance(outcome.error, Exception):
                raise outcome.error
            row.error = _sentence(outcome.error)
            self._notice_failure(f"{path.title}: {row.error}", outcome.error)
            self._count(1, failed=1)
            return
        self._check_headline(row, outcome.value)
        row.evaluations[position] = self._seen(outcome.value)
        self._count(1, cached=outcome.value.cached)
        self.tracking.evaluation(row, position)

    def _check_headline(self, row: RowState, evaluated: ArtifactRef) -> None:
        """Refuse a headline that is no metric: which there are, only the first evaluation tells."""
        problem = self.suite.problems[row.problem]
        means = self.store.open(evaluated).records["means"]
        names = {name for metrics in means.values() for name in metrics}
        if problem.headline not in names:
            raise unknown_name(f"headline of {problem.title}", problem.headline, sorted(names))

    # -- bookkeeping ----------------------------------------------------------------------------

    def _next(self) -> Outcome:
        while True:
            outcome = self.executor.next(timeout=0.2)
            if outcome is not None:
                return outcome
            self.progress.counts(self.counts)

    def _seen(self, ref: ArtifactRef) -> ArtifactRef:
        if ref.notice is not None:
            self.progress.notice(ref.notice)
        name = (ref.stage, ref.fingerprint)
        if name not in self.computed:
            (self.reused if ref.cached else self.computed).add(name)
        return ref

    def _count(self, units: int, *, cached: bool = False, failed: int = 0) -> None:
        self.counts = replace(
            self.counts,
            done=self.counts.done + units,
            cached=self.counts.cached + (units if cached else 0),
            failed=self.counts.failed + failed,
        )
        self.progress.counts(self.counts)

    def _total(self) -> int:
        total = 0
        for index, problem in enumerate(self.suite.problems):
            for entry in problem.methods:
                if registry.method(entry.name, problem.kind).skip({"dataset": problem.dataset}):
                    continue
                planned = suites.expand(self.suite, index, entry)
                draws = {(p.spec.split, p.spec.repetition) for p in planned}
                total += sum(len(p.spec.settings) for p in planned) + len(draws)
        return total

    def _notice_failure(self, sentence: str, error: BaseException | None = None) -> None:
        self.progress.notice(f"failed: {sentence}")
        self.record.folder.mkdir(parents=True, exist_ok=True)
        with (self.record.folder / "errors.log").open("a", encoding="utf-8") as log:
            log.write(f"{sentence}\n")
            if error is not None:
                log.writelines(traceback.format_exception(error))

    def _begin(self) -> None:
        self.record.manifest = {
            "version": manifest.VERSION,
            "run": self.record.id,
            "suite": self.suite.model_dump(mode="json"),
            "started": _now(),
            "ended": None,
            "pid": os.getpid(),
            "workers": self.workers,
            "allow_mismatch": self.allow_mismatch,
            "environment": environment_record(),
            "data": {},
            "paths": [],
            "artifacts": {},
            "environments": [],
            "home": str(self.home.root),
        }
        self.tracking.begin(self.tags)
        self.record.save_manifest()

    def _end(self, status: str) -> None:
        """Save what there is, and leave the run marked as running neither here nor in MLflow."""
        self.record.status = status
        self.record.manifest["ended"] = _now()
        self.record.manifest["computed"] = len(self.computed)
        self.record.manifest["reused"] = len(self.reused)
        try:
            summarise(self.record, [row.outcome() for row in self.rows.values()], self.store)
            self._describe()
            self.record.save_tables()
            self.record.save_manifest()
            self.tracking.results()
        except BaseException as error:
            # Also a second Ctrl-C, or a fault of the summary: the run has ended all the same.
            self.record.status = "failed" if isinstance(error, Exception) else "interrupted"
            self.record.save_manifest()
            raise
        finally:
            if sentence := self.tracking.end():
                self.progress.notice(sentence)

    def _describe(self) -> None:
        """Write into the manifest what was computed, by which code, and what it came out as."""
        rows = sorted(self.rows.values(), key=lambda row: row.problem)
        body = self.record.manifest
        body["paths"] = [
            entry
            for row in rows
            for entry in row.manifest_entries(self.suite.problems[row.problem].title)
        ]
        body["environment"]["code"]["modules"] = manifest.module_digests(
            path.spec for row in rows for path in row.paths
        )
        refs = [ArtifactRef(*name) for name in self.computed | self.reused]
        body["artifacts"], body["environments"] = manifest.artifact_entries(self.store, refs)


def _new_id(suite: str) -> str:
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    return f"{suite}-{stamp}-{uuid.uuid4().hex[:4]}"


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _sentence(error: BaseException) -> str:
    if isinstance(error, AffinityError):
        return str(error)
    return f"{type(error).__name__}: {error}"


def _pairs(params: Parameters) -> str:
    return " ".join(f"{key}={tracked.short(value)}" for key, value in params.items())
