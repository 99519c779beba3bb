"""MLflow gets every trial beside the computation, and nothing is left standing as running."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient

from pipeline_lib.background import Background
from pipeline_lib.execution import thread_executor
from pipeline_lib.home import Home
from pipeline_lib.report.page import write_report
from pipeline_lib.results import load_run
from pipeline_lib.runner import Run
from pipeline_lib.suites import parse_suite
from pipeline_lib.tracking import (
    Tracker,
    TrialLog,
    attach_report,
    fetch_run,
    local_uri,
    prepare_store,
)


def test_background_keeps_the_order_and_waits() -> None:
    background, seen = Background("test"), []
    for number in range(50):
        background.submit(lambda number=number: seen.append(number))
    background.close()
    assert seen == list(range(50)) and background.error is None and background.dropped == 0


def test_background_stops_at_the_first_error() -> None:
    background, seen = Background("test"), []
    background.submit(lambda: seen.append(1))
    background.submit(lambda: 1 / 0)
    background.submit(lambda: seen.append(2))
    background.close()
    assert seen == [1] and background.dropped == 2
    assert isinstance(background.error, ZeroDivisionError)


def test_background_drops_what_it_has_no_time_for_but_ends_what_it_began() -> None:
    background, seen = Background("test"), []
    started = threading.Event()

    def slow() -> None:
        started.set()
        time.sleep(0.4)
        seen.append("slow")

    background.submit(slow)
    background.submit(lambda: seen.append("never"))
    started.wait()
    background.close(0.05)
    assert seen == ["slow"] and background.dropped == 1


def trial(number: int, failed: str | None = None) -> TrialLog:
    return TrialLog(
        name=f"row {number}",
        params={"C": 0.1 * number},
        metrics={"seconds": 0.5, "objective": float("nan")},
        history={"objective_history": [3.0, 2.0, 1.0]},
        tags={"affinity.run": "run-1", "affinity.selected": "false"},
        failed=failed,
    )


def begun(home: Home, suite: str = "small") -> Tracker:
    tracker = Tracker(home)
    tracker.start(suite, "run-1", {"seed": 0}, {"affinity.run": "run-1"})
    return tracker


def runs(home: Home, suite: str = "small") -> dict[str, Any]:
    client = MlflowClient(tracking_uri=local_uri(home))
    experiment = client.get_experiment_by_name(suite)
    assert experiment is not None
    return {r.info.run_name: r for r in client.search_runs([experiment.experiment_id])}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    return Home(tmp_path_factory.mktemp("home"))


def test_trials_arrive_whole_and_in_order(home: Home) -> None:
    tracker = begun(home)
    logged = [tracker.log_trial(trial(n, "went wrong" if n == 2 else None)) for n in range(3)]
    tracker.log_metrics({"map": 0.75}, {"affinity.selected": "true"}, trial=logged[1])
    tracker.log_metrics({"best": 0.75})
    tracker.finish("FINISHED")
    assert tracker.error is None
    found = runs(home)
    assert found["run-1"].info.status == "FINISHED" and found["run-1"].data.metrics["best"] == 0.75
    assert [found[f"row {n}"].info.run_id for n in range(3)] == [one.run for one in logged]
    assert [found[f"row {n}"].info.status for n in range(3)] == ["FINISHED", "FINISHED", "FAILED"]
    chosen = found["row 1"].data
    assert chosen.metrics["map"] == 0.75 and chosen.tags["affinity.selected"] == "true"
    assert chosen.tags["affinity.not_finite"] == "objective" and chosen.params["C"] == "0.1"
    assert found["row 2"].data.tags["affinity.error"] == "went wrong"
    client = MlflowClient(tracking_uri=local_uri(home))
    history = client.get_metric_history(logged[0].run, "objective_history")
    assert [(m.step, m.value) for m in history] == [(0, 3.0), (1, 2.0), (2, 1.0)]


def test_a_failing_store_does_not_stop_the_run(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    tracker = begun(home, "failing")
    monkeypatch.setattr(tracker.client, "log_batch", lambda *a, **k: 1 / 0)
    logged = tracker.log_trial(trial(0))
    tracker.log_metrics({"map": 1.0}, trial=logged)
    tracker.finish("FINISHED")
    assert tracker.error is not None and "failed (division by zero)" in tracker.error
    parent = runs(home, "failing")["run-1"]
    assert parent.info.status == "FINISHED" and parent.data.tags["affinity.not_logged"] == "2"


def test_an_interrupted_run_does_not_wait_for_a_slow_store(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipeline_lib.tracking._FAREWELL_SECONDS", 0.2)
    tracker = begun(home, "slow")
    honest = tracker.client.create_run

    def create_run(*arguments: Any, **more: Any) -> Any:
        time.sleep(0.5)
        return honest(*arguments, **more)

    monkeypatch.setattr(tracker.client, "create_run", create_run)
    for number in range(40):
        tracker.log_trial(trial(number))
    began = time.monotonic()
    tracker.finish("KILLED")
    assert time.monotonic() - began < 10
    found = runs(home, "slow")
    assert found["run-1"].info.status == "KILLED"
    missing = int(found["run-1"].data.tags["affinity.not_logged"])
    assert missing >= 30 and len(found) == 41 - missing
    assert "RUNNING" not in {run.info.status for run in found.values()}


_VICTIM = """
import sys, time
sys.path.insert(0, sys.argv[2])
from pathlib import Path
from pipeline_lib.home import Home
from test_tracking import begun, trial
tracker = begun(Home(Path(sys.argv[1])), "killed")
for number in range(10_000):
    tracker.log_trial(trial(number))
print("begun", flush=True)
time.sleep(60)
"""


def test_what_a_killed_run_left_is_closed_by_the_next_one(home: Home) -> None:
    victim = subprocess.Popen(
        [sys.executable, "-c", _VICTIM, str(home.root), str(Path(__file__).parent)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert victim.stdout is not None and victim.stdout.readline() == "begun\n"
    time.sleep(0.5)
    os.kill(victim.pid, signal.SIGKILL)
    victim.wait()
    victim.stdout.close()
    assert runs(home, "killed")["run-1"].info.status == "RUNNING"
    foreign = MlflowClient(tracking_uri=local_uri(home)).create_run("0")
    # A run of another suite.
    begun(home, "next").finish("FINISHED")
    assert "RUNNING" not in {run.info.status for run in runs(home, "killed").values()}
    client = MlflowClient(tracking_uri=local_uri(home))
    assert client.get_run(foreign.info.run_id).info.status == "RUNNING"


SUITE = """
version = 1
name = "useful"
title = "A useful page"
[[problems]]
name = "search"
kind = "ltr"
dataset = "digits"
splits = ["ltr"]
headline = "map"
[problems.selection]
metric = "map"
[[problems.methods]]
name = "RankSVM"
label = "linear, plain"
grid = { C = [0.001, 0.1] }
"""


def test_a_store_whose_making_is_interrupted_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mlflow.store.db import utils

    home = Home(tmp_path / "interrupted")
    whole = utils._initialize_tables

    def half(engine: Any) -> None:
        with engine.begin() as connection:
            connection.exec_driver_sql("CREATE TABLE experiments (experiment_id INTEGER)")
        raise KeyboardInterrupt

    monkeypatch.setattr(utils, "_initialize_tables", half)
    with pytest.raises(KeyboardInterrupt):
        prepare_store(home)
    assert not home.mlflow_database.exists()
    monkeypatch.setattr(utils, "_initialize_tables", whole)
    tracker = begun(home)
    tracker.finish("FINISHED")
    assert tracker.error is None
    assert not list(home.root.glob(".mlflow*"))


def test_a_suites_runs_compare_by_themselves(home: Home) -> None:
    with thread_executor(1) as executor:
        record = Run(parse_suite(SUITE), home, executor).execute()
    write_report(record)
    assert attach_report(record) is None
    client = MlflowClient(tracking_uri=local_uri(home))
    experiment = client.get_experiment_by_name("useful")
    assert experiment is not None
    assert experiment.tags["mlflow.experimentKind"] == "custom_model_development"
    assert "A useful page" in experiment.tags["mlflow.note.content"]
    found = runs(home, "useful")
    parent = found.pop(record.id)
    value = record.results["value"][0]
    assert parent.data.metrics == {"search/linear plain map": pytest.approx(value)}
    assert (
        f"| search | linear, plain | map | {value:.4f} |" in parent.data.tags["mlflow.note.content"]
    )
    assert {one.dataset.name for one in parent.inputs.dataset_inputs} == set(
        record.manifest["data"]
    )
    assert set(found) == {"linear, plain · ltr · C=0.001", "linear, plain · ltr · C=0.1"}
    selected = [r for r in found.values() if r.data.tags["affinity.selected"] == "true"]
    for run in found.values():
        assert run.data.params["problem"] == "search" and run.data.params["row"] == "linear, plain"
        assert {"C", "dataset", "split", "method"} <= set(run.data.params)
        assert "vali_map" in run.data.metrics
        assert len(client.get_metric_history(run.info.run_id, "objective_history")) > 1
        assert ("map" in run.data.metrics) == (run in selected)
    assert len(selected) == 1 and selected[0].data.metrics["map"] == pytest.approx(value)
    files = {file.path for file in client.list_artifacts(parent.info.run_id)}
    assert {"report.html", "manifest.json", "results.parquet", "trials.parquet"} <= files
    inner = {file.path for file in client.list_artifacts(parent.info.run_id, "per_item")}
    assert inner == {"per_item/search.parquet"}


def test_a_run_of_another_home_is_fetched_by_its_mlflow_id(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As from a team's tracking server: the tables come from the artifacts."""
    (folder,) = home.runs.glob("useful-*")
    found = runs(home, "useful")
    parent = found[folder.name]
    (chosen,) = [r for r in found.values() if r.data.tags.get("affinity.selected") == "true"]
    monkeypatch.setenv("MLFLOW_TRACKING_URI", local_uri(home))
    elsewhere = Home(tmp_path / "elsewhere")
    for number, one in enumerate((parent, chosen)):
        place = tmp_path / str(number)
        run, row = fetch_run(elsewhere, one.info.run_id, place)
        assert run == folder.name and row == (None, "linear, plain")[number]
        again = load_run(Home(place), run)
        assert again.results.equals(load_run(home, run).results)
        assert again.per_item["search"].equals(load_run(home, run).per_item["search"])
