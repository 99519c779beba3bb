"""The benchmark flow: ingest -> features -> fit -> evaluate over all paths of a suite, then the report."""

from __future__ import annotations

import queue
from collections.abc import Callable
from pathlib import Path
from typing import Any

from prefect import flow, get_run_logger, runtime
from prefect.futures import PrefectFuture
from prefect.task_runners import ProcessPoolTaskRunner, ThreadPoolTaskRunner
from pydantic import BaseModel, ConfigDict, Field

from flows.prefect_artifacts import publish_artifacts
from flows.progress import current_listener
from pipeline_lib.environment import cpu_count, set_blas_threads
from pipeline_lib.errors import InputError
from pipeline_lib.execution import Outcome
from pipeline_lib.home import resolve_home
from pipeline_lib.report.page import write_report
from pipeline_lib.results import RunRecord
from pipeline_lib.runner import Run
from pipeline_lib.suites import load_suite, with_overrides
from pipeline_lib.tracking import attach_report
from tasks.stages import BY_STAGE


class BenchmarkRequest(BaseModel):
    """What to run."""

    model_config = ConfigDict(extra="forbid")

    suite: str = Field(default="quickstart", description="Name of a suite, or path of a TOML file.")
    home: str | None = Field(
        default=None, description="Home folder; default as on the command line."
    )
    only: list[str] = Field(
        default=[], description="Problems, methods or rows to keep; empty keeps all."
    )
    dataset: str | None = Field(default=None, description="Dataset to use instead of the suite's.")
    settings: dict[str, Any] = Field(
        default={}, description="Seed, repetitions or parameters to override."
    )
    workers: int | None = Field(
        default=None, ge=1, description="Paths at once; default: processors."
    )
    allow_mismatch: bool = Field(
        default=False, description="Accept data that differ from their declaration."
    )


class PrefectExecutor:
    """Carries stages out as Prefect task runs of the current flow."""

    def __init__(self) -> None:
        self._finished: queue.SimpleQueue[tuple[Any, PrefectFuture[Any]]] = queue.SimpleQueue()

    def submit(self, key: Any, stage: str, name: str, call: Callable[..., Any], *args: Any) -> None:
        """Submit the stage's task; ``call`` is what that task wraps."""
        future = BY_STAGE[stage].submit(name, *args)
        future.add_done_callback(lambda finished: self._finished.put((key, finished)))

    def next(self, timeout: float) -> Outcome | None:
        """Return one outcome, or None when none arrives in time."""
        try:
            key, finished = self._finished.get(timeout=timeout)
        except queue.Empty:
            return None
        # Asked for here and not in the callback, which would keep a worker waiting for Prefect's loop.
        try:
            return Outcome(key, value=finished.result())
        except Exception as error:
            return Outcome(key, error=error)


def task_runner(engine: str, workers: int, address: str | None = None) -> Any:
    """Task runner of an engine.

    Parameters
    ----------
    engine : {"threads", "processes", "dask"}
        Threads share the process, and BLAS releases the interpreter's lock; processes pay some
        seconds to start each and suit long trials; Dask reaches other machines.
    workers : int
        Task runs at once.
    address : str, optional
        Scheduler of a running Dask cluster; by default a local one is started.

    Raises
    ------
    InputError
        If the extra that the engine needs is not installed.
    """
    if engine == "threads":
        return ThreadPoolTaskRunner(max_workers=workers)
    if engine == "processes":
        return ProcessPoolTaskRunner(max_workers=workers)
    try:
        from prefect_dask import DaskTaskRunner
    except ImportError:
        raise InputError(
            "the engine dask needs the package prefect-dask",
            remedy='pip install "affinity-bench[dask]"',
        ) from None
    if address is not None:
        return DaskTaskRunner(address=address)
    return DaskTaskRunner(cluster_kwargs={"n_workers": workers, "threads_per_worker": 1})


def _name() -> str:
    """Name of a flow run: its suite, without the folder of a file."""
    request = BenchmarkRequest.model_validate(runtime.flow_run.parameters["request"])
    return Path(request.suite).stem


@flow(
    name="benchmark",
    flow_run_name=_name,
    persist_result=False,
    validate_parameters=True,
    log_prints=False,
)
def benchmark(request: BenchmarkRequest) -> str:
    """Run a suite and write its report; returns the run's id."""
    suite = with_overrides(
        load_suite(request.suite),
        only=request.only,
        dataset=request.dataset,
        settings=request.settings,
    )
    set_blas_threads(1)
    record = Run(
        suite,
        resolve_home(request.home),
        PrefectExecutor(),
        workers=request.workers or cpu_count(),
        allow_mismatch=request.allow_mismatch,
        progress=current_listener(),
        tags={"affinity.flow_run": str(runtime.flow_run.id)},
    ).execute()
    publish(record)
    return record.id


def publish(record: RunRecord) -> Path:
    """Write the report of a run, attach it in MLflow, show the results on the flow run's page."""
    report = write_report(record)
    if sentence := attach_report(record):
        get_run_logger().warning(sentence)
    publish_artifacts(record)
    return report
