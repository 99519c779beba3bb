"""MLflow tracking: one experiment a suite, one parent run a run, one child a trial.

The client is used with explicit run ids throughout: the fluent interface's active run is per thread
and follows environment variables. A trial is logged in one batch. Values that are not finite are left
out, and the run is tagged with their names, because NaN breaks pages and infinity is stored as 1.8e308.

Names (documented and versioned with the project):

==================  ===============================================================================
experiment          the suite's name
parent run          the run's id; headline metrics ``<problem>/<row> <metric>``; tags
                    ``affinity.suite``, ``affinity.run``, ``affinity.code``; artifacts: report,
                    manifest, tables, values per item
child run           ``<row> · <split> · <settings>``; parameters of the trial under their plain names,
                    ``problem``, ``row``, ``dataset``, ``split``, ``repetition``, ``method``; metrics
                    of the validation side prefixed ``vali_``, of the test side plain; series
                    ``objective_history`` and others by iteration; tags ``affinity.problem``,
                    ``affinity.row``, ``affinity.path``, ``affinity.dataset_digest``,
                    ``affinity.stage``, ``affinity.selected``, ``affinity.cached``
==================  ===============================================================================
"""

from __future__ import annotations

import getpass
import json
import logging
import math
import os
import sqlite3
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline_lib.background import Background
from pipeline_lib.errors import InputError
from pipeline_lib.home import Home, database_path
from pipeline_lib.locking import alive

if TYPE_CHECKING:
    from mlflow import MlflowClient

    from pipeline_lib.results import RunRecord

_PARENT = "mlflow.parentRunId"
_PARAMETER_LENGTH = 6000
_TAG_LENGTH = 5000
_BATCH = 1000  # the server's limit of metrics in one batch
_FAREWELL_SECONDS = 3.0


@dataclass
class TrialLog:
    """What is logged of one trial.

    Attributes
    ----------
    name : str
        Name of the child run.
    params : mapping
        Parameters.
    metrics : mapping
        Final values.
    history : mapping
        Series of values, one per iteration.
    tags : mapping
        Tags.
    failed : str, optional
        The error of a trial that failed.
    """

    name: str
    params: Mapping[str, Any]
    metrics: Mapping[str, float | None]
    history: Mapping[str, Sequence[float]] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)
    failed: str | None = None


@dataclass
class LoggedTrial:
    """A trial on its way to MLflow; ``run`` is its id once it is there."""

    run: str = ""


class Tracker:
    """Writes one run to MLflow, in a thread beside the computation.

    Between `start` and `finish` nothing waits for the store, and nothing that goes wrong with it stops
    the run: `error` says what did. A run that is interrupted gives the store some seconds to take what
    is under way; the number of trials it did not take is a tag of the run then.

    Parameters
    ----------
    home : Home
        Holds the local store, used unless ``MLFLOW_TRACKING_URI`` is set.
    """

    def __init__(self, home: Home) -> None:
        self.home = home
        self.uri = os.environ.get("MLFLOW_TRACKING_URI") or local_uri(home)
        self.local = "MLFLOW_TRACKING_URI" not in os.environ
        self._client: MlflowClient | None = None
        self.experiment = ""
        self.run = ""
        self.error: str | None = None
        self._background: Background | None = None

    @property
    def client(self) -> MlflowClient:
        """The client, made at first use (importing MLflow takes seconds)."""
        if self._client is None:
            _silence()
            from mlflow import MlflowClient

            _silence_loggers()

            if self.local:
                prepare_store(self.home)
            self._client = MlflowClient(tracking_uri=self.uri)
        return self._client

    def start(
        self,
        suite: str,
        run_name: str,
        params: Mapping[str, Any],
        tags: Mapping[str, str],
        note: str = "",
    ) -> str:
        """Make the experiment if needed and start the parent run; returns its id.

        ``note`` describes the experiment, as Markdown.

        Raises
        ------
        InputError
            If the tracking server cannot be reached.
        """
        try:
            # The first opening of a database makes its tables, which races between processes.
            with self.home.lock("mlflow"):
                self.experiment = self._experiment(suite, note)
                self._close_orphans()
                everything = {
                    **tags,
                    "affinity.pid": str(os.getpid()),
                    "mlflow.runName": run_name,
                    "mlflow.user": _user(),
                }
                run = self.client.create_run(self.experiment, tags=everything, run_name=run_name)
        except Exception as error:
            raise InputError(
                f"the MLflow tracking store {self.uri} cannot be used ({_first_line(error)})",
                remedy=f"move {self.home.mlflow_database} away, results are kept without it"
                if self.local
                else "check MLFLOW_TRACKING_URI, or unset it to use the local store",
            ) from error
        self.run = run.info.run_id
        self._batch(self.run, params, {}, {}, {})
        self._background = Background("affinity-mlflow")
        return self.run

    def log_trial(self, trial: TrialLog) -> LoggedTrial:
        """Log a trial as a finished child run."""
        logged = LoggedTrial()

        def write() -> None:
            tags = {_PARENT: self.run, **trial.tags}
            if trial.failed is not None:
                tags["affinity.error"] = trial.failed[:_TAG_LENGTH]
            with self.home.lock("mlflow"):
                child = self.client.create_run(self.experiment, tags=tags, run_name=trial.name)
                logged.run = child.info.run_id
                self._batch(logged.run, trial.params, trial.metrics, trial.history, {})
                self.client.set_terminated(logged.run, "FAILED" if trial.failed else "FINISHED")

        self._later(write)
        return logged

    def log_metrics(
        self,
        metrics: Mapping[str, float | None],
        tags: Mapping[str, str] | None = None,
        *,
        trial: LoggedTrial | None = None,
    ) -> None:
        """Add metrics and tags to a trial (default: to the parent run)."""

        def write() -> None:
            with self.home.lock("mlflow"):
                self._batch(trial.run if trial else self.run, {}, metrics, {}, tags or {})

        self._later(write)

    def log_data(self, parts: Mapping[str, Mapping[str, Any]]) -> None:
        """Name the parts of datasets that the parent run reads; values as in a run's manifest."""

        def write() -> None:
            from mlflow.entities import Dataset, DatasetInput

            inputs = []
            for name, entry in parts.items():
                counts = (entry.get("info") or {}).get("counts") or {}
                source = json.dumps({"files": sorted(entry["sources"])})
                dataset = Dataset(
                    name, entry["digest"], "affinity", source, profile=json.dumps(counts)
                )
                inputs.append(DatasetInput(dataset))
            with self.home.lock("mlflow"):
                self.client.log_inputs(self.run, inputs)

        self._later(write)

    def finish(self, status: str) -> None:
        """End the parent run: ``FINISHED``, ``FAILED`` or ``KILLED``; never raises."""
        if not self.run or self._background is None:
            return
        self._background.close(_FAREWELL_SECONDS if status == "KILLED" else None)
        failure, dropped = self._background.error, self._background.dropped
        try:
            with self.home.lock("mlflow"):
                if dropped:
                    self.client.set_tag(self.run, "affinity.not_logged", str(dropped))
                self.client.set_terminated(self.run, status)
        except Exception as error:
            failure = failure or error
        if failure is not None:
            self.error = f"the MLflow store {self.uri} failed ({_first_line(failure)})"

    def _later(self, write: Callable[[], None]) -> None:
        if self._background is not None:
            self._background.submit(write)

    def _experiment(self, suite: str, note: str) -> str:
        found = self.client.get_experiment_by_name(suite)
        if found is not None:
            if found.lifecycle_stage == "deleted":
                self.client.restore_experiment(found.experiment_id)
            return str(found.experiment_id)
        location = None
        if self.local:
            self.home.mlflow_artifacts.mkdir(parents=True, exist_ok=True)
            location = f"{self.home.mlflow_artifacts.as_uri()}/{suite}"
        # Without its kind the page of an experiment opens on tools for language models.
        tags = {"mlflow.experimentKind": "custom_model_development", "mlflow.note.content": note}
        return str(self.client.create_experiment(suite, artifact_location=location, tags=tags))

    def _close_orphans(self) -> None:
        """End the runs of processes that were killed: they stand as running for ever otherwise."""
        if not self.local:
            return
        query = "attributes.status = 'RUNNING'"
        experiments = [e.experiment_id for e in self.client.search_experiments(max_results=1000)]
        for run in self.client.search_runs(experiments, filter_string=query, max_results=1000):
            if "affinity.run" not in run.data.tags:
                continue  # somebody else's, in the same store
            pid = run.data.tags.get("affinity.pid") or self._parent_pid(run)
            if pid is None or not pid.isdigit() or not alive(int(pid)):
                self.client.set_terminated(run.info.run_id, "KILLED")

    def _parent_pid(self, run: Any) -> str | None:
        parent = run.data.tags.get(_PARENT)
        if parent is None:
            return None
        with suppress(Exception):
            return str(self.client.get_run(parent).data.tags.get("affinity.pid"))
        return None

    def _batch(
        self,
        run: str,
        params: Mapping[str, Any],
        metrics: Mapping[str, float | None],
        history: Mapping[str, Sequence[float]],
        tags: Mapping[str, str],
    ) -> None:
        from mlflow.entities import Metric, Param, RunTag

        now = int(time.time() * 1000)
        points = []
        skipped = []
        for name, value in metrics.items():
            if value is None or not math.isfinite(value):
                skipped.append(name)
                continue
            points.append(Metric(name, float(value), now, 0))
        for name, values in history.items():
            finite = [(step, v) for step, v in enumerate(values) if math.isfinite(v)]
            points.extend(Metric(name, float(v), now, step) for step, v in finite)
        pairs = [Param(name, _text(value)) for name, value in params.items()]
        marks = [RunTag(name, value) for name, value in tags.items()]
        if skipped:
            marks.append(RunTag("affinity.not_finite", ", ".join(skipped)))
        for start in range(0, max(len(points), 1), _BATCH - 100):
            self.client.log_batch(
                run,
                metrics=points[start : start + _BATCH - 100],
                params=pairs if start == 0 else [],
                tags=marks if start == 0 else [],
                synchronous=True,
            )


def attach_report(record: RunRecord) -> str | None:
    """Attach the files of a run (report, manifest, tables) to its MLflow run, where there is one.

    Returns
    -------
    str or None
        A sentence on what went wrong; the run itself is whole all the same.
    """
    place = record.manifest.get("mlflow")
    if not place:
        return None
    from mlflow import MlflowClient

    try:
        MlflowClient(tracking_uri=place["uri"]).log_artifacts(place["run"], str(record.folder))
    except Exception as error:
        return f"the report could not be attached to the MLflow run ({_first_line(error)})"
    return None


def fetch_run(home: Home, mlflow_id: str, folder: Path) -> tuple[str, str | None]:
    """Find the run that an MLflow id names, and bring its tables here unless the home has them.

    Parameters
    ----------
    home : Home
    mlflow_id : str
        Of a run, or of one of its trials.
    folder : Path
        Home folder that gets the tables of a run that `home` does not have.

    Returns
    -------
    run : str
        Its id.
    row : str or None
        Label of the row that a trial belongs to.

    Raises
    ------
    InputError
        If MLflow does not know the id, or it is not of this project.
    """
    uri = os.environ.get("MLFLOW_TRACKING_URI") or local_uri(home)
    if uri == local_uri(home) and not home.mlflow_database.exists():
        raise InputError(f"no MLflow run {mlflow_id}", path=home.mlflow_database)
    _silence()
    from mlflow import MlflowClient
    from mlflow.exceptions import MlflowException

    _silence_loggers()
    client = MlflowClient(tracking_uri=uri)
    try:
        found = client.get_run(mlflow_id)
    except MlflowException as error:
        raise InputError(f"no MLflow run {mlflow_id} in {uri} ({_first_line(error)})") from None
    tags = found.data.tags
    run, row = tags.get("affinity.run"), tags.get("affinity.row")
    if run is None:
        raise InputError(f"the MLflow run {mlflow_id} is not one of this project")
    if not (home.runs / run / "manifest.json").is_file():
        target = folder / "runs" / run
        target.mkdir(parents=True)
        client.download_artifacts(tags.get(_PARENT, mlflow_id), "", str(target))
        if not (target / "manifest.json").is_file():
            raise InputError(f"the MLflow run {mlflow_id} has no tables attached")
    return run, row


def local_uri(home: Home) -> str:
    """Address of the local MLflow store; characters with a meaning in addresses are escaped."""
    return "sqlite:///" + database_path(home.mlflow_database)


def prepare_store(home: Home) -> None:
    """Make the database of the local store unless it is there, whole or not at all.

    MLflow makes its tables by seconds of migrations, and one that was interrupted among them can be
    neither used nor resumed. So they are made in a file beside, which takes the name once complete. It
    writes ahead into a log: a commit costs a third, and survives a kill alike. The caller holds the
    home's lock ``mlflow``.
    """
    if home.mlflow_database.exists():
        return
    _silence()
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

    _silence_loggers()
    home.root.mkdir(parents=True, exist_ok=True)
    for left in home.root.glob(".mlflow.db.*"):  # of a start that was killed
        left.unlink()
    # A name of its own: MLflow keeps its connection to a file by name, also when that is gone.
    partial = home.mlflow_database.with_name(f".mlflow.db.{uuid.uuid4().hex}")
    store = SqlAlchemyStore(f"sqlite:///{database_path(partial)}", home.mlflow_artifacts.as_uri())
    store.engine.dispose()
    # A file system that cannot share memory between processes keeps the rollback journal.
    with suppress(sqlite3.Error), closing(sqlite3.connect(partial)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
    partial.replace(home.mlflow_database)


def _silence() -> None:
    """Keep MLflow from reporting home, and from logging its own set-up to the user's terminal."""
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    os.environ.setdefault("DO_NOT_TRACK", "true")
    os.environ.setdefault("MLFLOW_LOGGING_LEVEL", "ERROR")


def _silence_loggers() -> None:
    for name in ("alembic", "mlflow"):
        logging.getLogger(name).setLevel(logging.ERROR)


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.10g}"
    return str(value)[:_PARAMETER_LENGTH]


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):
        return "unknown"  # a container without an entry for the user


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
