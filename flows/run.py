"""The ``run`` command: server, flow, progress, results; nothing left behind when it is interrupted."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flows.progress import ProgressDisplay, listening
from flows.server import PrefectServer
from flows.terminal import print_results
from pipeline_lib.environment import cpu_count
from pipeline_lib.errors import InputError
from pipeline_lib.home import Home, resolve_home
from pipeline_lib.results import RunRecord, data_notes, load_run
from pipeline_lib.suggest import unknown_name
from pipeline_lib.suites import Suite, load_suite, with_overrides

ENGINES = ("threads", "processes", "dask", "plain")


@dataclass(frozen=True)
class RunCommand:
    """What the user asked for; see `flows.cli.run`."""

    suite: str = "quickstart"
    dataset: str | None = None
    only: tuple[str, ...] = ()
    settings: dict[str, Any] = field(default_factory=dict)
    workers: int | None = None
    engine: str = "threads"
    address: str | None = None
    allow_mismatch: bool = False
    quiet: bool = False
    as_json: bool = False
    home: Path | None = None


def run_command(command: RunCommand) -> int:
    """Run a suite as the command line does; returns the exit status."""
    if command.engine not in ENGINES:
        raise unknown_name("engine", command.engine, ENGINES)
    if command.address is not None and command.engine != "dask":
        raise InputError("--address goes with --engine dask")
    suite = with_overrides(
        load_suite(command.suite),
        only=command.only,
        dataset=command.dataset,
        settings=command.settings,
    )
    require_data(suite)
    home = resolve_home(command.home)
    display = ProgressDisplay(quiet=command.quiet or command.as_json)
    display.line(f"home  {home.root}")
    with interruptible(display):
        record = (
            _plain(command, suite, home, display)
            if command.engine == "plain"
            else _with_prefect(command, home, display)
        )
    show(record, home, command, display)
    return 1 if record.status == "failed" else 0


def require_data(suite: Suite) -> None:
    """Say at once, before anything is started, when raw files are missing."""
    from pipeline_lib import registry
    from pipeline_lib.datasets import acquire
    from pipeline_lib.suites import expand

    for index, problem in enumerate(suite.problems):
        for planned in expand(suite, index, problem.methods[0]):
            for part in registry.kind(problem.kind).parts(planned.spec).values():
                acquire.locate(problem.dataset, part)


def _plain(command: RunCommand, suite: Suite, home: Home, display: ProgressDisplay) -> RunRecord:
    from pipeline_lib.environment import set_blas_threads, silence_convergence_warnings
    from pipeline_lib.execution import thread_executor
    from pipeline_lib.report.page import write_report
    from pipeline_lib.runner import Run
    from pipeline_lib.tracking import attach_report

    workers = command.workers or cpu_count()
    set_blas_threads(1)
    silence_convergence_warnings()
    with thread_executor(workers) as executor, display:
        record = Run(
            suite,
            home,
            executor,
            workers=workers,
            allow_mismatch=command.allow_mismatch,
            progress=display,
        ).execute()
    write_report(record)
    if sentence := attach_report(record):
        display.notice(sentence)
    return record


def _with_prefect(command: RunCommand, home: Home, display: ProgressDisplay) -> RunRecord:
    server = PrefectServer(home)
    server.begin()
    try:
        with display:
            display.stage("starting Prefect")
            configure_prefect(home)
            # Importing takes seconds, which the server needs for itself as well.
            import mlflow  # noqa: F401

            import flows.benchmark  # noqa: F401

            api = server.wait()
            display.line(f"Prefect  {api.removesuffix('/api')}")
            # Worker processes read the environment, this one has read it already.
            os.environ["PREFECT_API_URL"] = api
            with prefect_settings(api, managed=server.given is None):
                try:
                    run_id = _run_flow(command, home, display)
                finally:
                    with suppress(Exception):
                        drain()
        return load_run(home, run_id)
    finally:
        server.end()


def configure_prefect(home: Home) -> None:
    """Set Prefect's settings for this process; they are read when Prefect is imported."""
    os.environ.setdefault("PREFECT_HOME", str(home.prefect))
    os.environ.setdefault("PREFECT_PROFILES_PATH", str(home.prefect / "profiles.toml"))
    # The log of a flow run is on its page; the terminal belongs to the progress and the results.
    os.environ.setdefault("PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL", "CRITICAL")
    os.environ.setdefault("PREFECT_LOGGING_TO_API_WHEN_MISSING_FLOW", "ignore")
    os.environ.setdefault("DO_NOT_TRACK", "1")
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    os.environ.setdefault("MLFLOW_LOGGING_LEVEL", "ERROR")


def prefect_settings(api: str, *, managed: bool) -> AbstractContextManager[Any]:
    """Settings of flows of this process; `managed` says that the server is one of ours.

    Heartbeats are for whoever declares silent runs dead, which nobody does on our own server, and
    ending their thread takes up to a second.
    """
    from prefect.settings import (
        PREFECT_API_URL,
        PREFECT_FLOWS_HEARTBEAT_FREQUENCY,
        temporary_settings,
    )

    settings: dict[Any, Any] = {PREFECT_API_URL: api}
    if managed:
        settings[PREFECT_FLOWS_HEARTBEAT_FREQUENCY] = None
    return temporary_settings(settings)


def _run_flow(command: RunCommand, home: Home, display: ProgressDisplay) -> str:
    from flows.benchmark import BenchmarkRequest, benchmark, task_runner

    request = BenchmarkRequest(
        suite=command.suite
        if not command.suite.endswith(".toml")
        else str(Path(command.suite).absolute()),
        home=str(home.root),
        only=list(command.only),
        dataset=command.dataset,
        settings=command.settings,
        workers=command.workers,
        allow_mismatch=command.allow_mismatch,
    )
    runner = task_runner(command.engine, command.workers or cpu_count(), command.address)
    with listening(display):
        return benchmark.with_options(task_runner=runner)(request)


def drain() -> None:
    """Send what Prefect still holds while its server is there to take it."""
    from prefect.events.worker import EventsWorker
    from prefect.logging.handlers import APILogWorker

    APILogWorker.drain_all(timeout=5)
    EventsWorker.drain_all(timeout=5)


@contextmanager
def interruptible(
    display: ProgressDisplay,
    kept: str = "what was finished is kept, the same command goes on from there",
) -> Iterator[None]:
    """Turn SIGTERM into the same orderly end as Ctrl-C; `kept` says what is left then.

    The run has been closed (its tables saved, its MLflow run ended) when the exception arrives here;
    what still computes in threads is not waited for.
    """

    def interrupt(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        display.close()
        print(f"affinity: interrupted; {kept}", file=sys.stderr, flush=True)
        os._exit(130)
    finally:
        signal.signal(signal.SIGTERM, previous)


def show(record: RunRecord, home: Home, command: RunCommand, display: ProgressDisplay) -> None:
    """Print results and paths."""
    places = {
        "run": record.id,
        "report": str(record.report),
        "tables": str(record.folder),
        "mlflow": str(record.manifest.get("mlflow", {}).get("uri", "")),
    }
    if command.as_json:
        body = {
            **places,
            "status": record.status,
            "computed": record.manifest["computed"],
            "reused": record.manifest["reused"],
            "data_notes": data_notes(record.manifest["data"]),
            "results": record.results.to_dicts(),
        }
        print(json.dumps(body, indent=2, ensure_ascii=False, default=str))
        return
    print_results(record)
    computed, reused = record.manifest["computed"], record.manifest["reused"]
    if computed == 0:
        display.line(f"nothing was computed: all {reused} artifacts were there and verified")
    else:
        display.line(f"{computed} artifacts computed, {reused} reused")
    for name, place in places.items():
        print(f"{name.ljust(7)}{place}")
