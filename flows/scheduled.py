"""The scheduled flow: run suites, hold each against its last good run, tell somebody when it is worse."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from prefect import State, flow, get_run_logger, runtime, task
from prefect.cache_policies import NO_CACHE
from prefect.states import Completed, Failed
from pydantic import BaseModel, ConfigDict, Field

from flows.alerts import AlertSettings, alert_body, call_webhook, run_command
from flows.benchmark import BenchmarkRequest, benchmark
from flows.prefect_artifacts import publish_verdict
from flows.run import require_data
from pipeline_lib import regression
from pipeline_lib.errors import DataMissingError
from pipeline_lib.home import Home, resolve_home
from pipeline_lib.regression import Verdict
from pipeline_lib.results import load_run
from pipeline_lib.suites import load_suite, suite_names


class ScheduledRequest(BaseModel):
    """What to run, and when to call somebody."""

    model_config = ConfigDict(extra="forbid")

    suites: list[str] = Field(
        default=["quickstart"],
        description="Names or TOML files; empty takes every suite whose data are here.",
    )
    home: str | None = Field(
        default=None, description="Home folder; default as on the command line."
    )
    settings: dict[str, Any] = Field(
        default={}, description="Seed, repetitions or parameters to override."
    )
    workers: int | None = Field(
        default=None, ge=1, description="Paths at once; default: processors."
    )
    margin: float = Field(
        default=regression.MARGIN,
        ge=0,
        description="Drop of a headline metric from which on it matters.",
    )
    level: float = Field(
        default=regression.LEVEL,
        gt=0,
        lt=1,
        description="Significance level of a run's tests together.",
    )
    accept: bool = Field(
        default=False,
        description="Take these runs as good, so that later ones are held against them.",
    )


def _name() -> str:
    request = ScheduledRequest.model_validate(runtime.flow_run.parameters["request"])
    return ", ".join(Path(suite).stem for suite in request.suites) or "all suites"


@flow(
    name="scheduled",
    flow_run_name=_name,
    persist_result=False,
    validate_parameters=True,
    log_prints=False,
)
def scheduled(request: ScheduledRequest) -> State[Any]:
    """Run suites one after the other; fails when one has become worse or did not finish."""
    home = resolve_home(request.home)
    verdicts = [_run_and_judge(suite, request, home) for suite in _suites(request)]
    alarms = [verdict for verdict in verdicts if verdict.alarm]
    if alarms:
        return Failed(message="; ".join(_headline(verdict) for verdict in alarms))
    return Completed(message=", ".join(f"{v.suite}: {v.status}" for v in verdicts) or "no data")


def _suites(request: ScheduledRequest) -> list[str]:
    if request.suites:
        return request.suites
    present = []
    for name in suite_names():
        try:
            require_data(load_suite(name))
        except DataMissingError as error:
            get_run_logger().info("%s is left out: %s", name, error)
            continue
        present.append(name)
    return present


def _run_and_judge(suite: str, request: ScheduledRequest, home: Home) -> Verdict:
    record = None
    try:
        run_id = benchmark(
            BenchmarkRequest.model_validate(
                {
                    "suite": suite,
                    "home": str(home.root),
                    "settings": request.settings,
                    "workers": request.workers,
                }
            )
        )
    except Exception as error:  # whatever it is, somebody must hear of it
        reason = f"the run failed: {type(error).__name__}: {error}"
        verdict = Verdict(suite, "", None, "alarm", (reason,))
    else:
        record = load_run(home, run_id)
        verdict = regression.judge(
            record,
            regression.last_good_run(home, record),
            margin=request.margin,
            level=request.level,
            accept=request.accept,
        )
        regression.save(record, verdict)
    publish_verdict(verdict)
    if verdict.alarm:
        report = None if record is None else str(record.report)
        body = alert_body(verdict, report, runtime.flow_run.ui_url)
        told = [
            alert_by_command(body, return_state=True),
            alert_by_webhook(body, return_state=True),
        ]
        for state in told:
            if state.is_failed():
                get_run_logger().error("nobody was told: %s", state.message)
    return verdict


@task(name="alert by command", cache_policy=NO_CACHE, persist_result=False)
def alert_by_command(body: dict[str, Any]) -> None:
    """Give an alert to the user's command."""
    run_command(AlertSettings(), body)


@task(
    name="alert by webhook",
    cache_policy=NO_CACHE,
    persist_result=False,
    # The one place of the project where a network can fail and recover.
    retries=3,
    retry_delay_seconds=[2, 10, 60],
    retry_jitter_factor=0.5,
)
def alert_by_webhook(body: dict[str, Any]) -> None:
    """Post an alert to the user's webhook."""
    call_webhook(AlertSettings(), body)


def _headline(verdict: Verdict) -> str:
    more = f" (and {len(verdict.reasons) - 1} more)" if len(verdict.reasons) > 1 else ""
    return f"{verdict.suite}: {verdict.reasons[0]}{more}"
