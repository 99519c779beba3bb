"""Real services: deployed, fired by a schedule, looked at, stopped; and nothing left of them.

The home's name holds what breaks addresses: a space, an accent, a percent sign, a hash.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import yaml

from flows import service_state, services
from flows.checkout import locate
from flows.processes import identity, marked
from flows.server import PrefectServer
from flows.server_process import _listen
from flows.service_launch import POOL
from flows.services_cli import services_app
from pipeline_lib.errors import InputError
from pipeline_lib.home import Home
from pipeline_lib.results import load_run

ROOT = Path(locate()["directory"])
TINY = """
version = 1
name = "tiny"
title = "Tiny"
[[problems]]
name = "search"
kind = "ltr"
dataset = "digits"
splits = ["ltr"]
headline = "map"
[[problems.methods]]
name = "RankSVM"
params = { C = 0.01 }
"""

if not (ROOT / "prefect.yaml").is_file():
    pytest.skip("prefect.yaml stands in the checkout only", allow_module_level=True)


def ask(url: str, body: dict[str, Any] | None = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    for attempt in range(10):
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return json.loads(answer.read() or b"null")
        except urllib.error.HTTPError as error:
            # The server's word for a busy database; Prefect's own client repeats as well.
            if error.code != 503 or attempt == 9:
                raise
            time.sleep(1.0)
    return None


def wait_for(what: str, ready: Callable[[], Any], seconds: float = 240.0) -> Any:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if found := ready():
            return found
        time.sleep(0.3)
    pytest.fail(f"{what} did not come within {seconds:g} s")


def live_processes(word: str) -> list[str]:
    """Command lines of live processes that name a word, zombies and this one left out."""
    listed = subprocess.run(
        ["ps", "-A", "-ww", "-o", "pid=,stat=,args="], capture_output=True, text=True, check=True
    ).stdout
    return [
        line
        for line in listed.splitlines()
        if word in line and line.split()[1][0] != "Z" and int(line.split()[0]) != os.getpid()
    ]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("hö me %41 #1")


@pytest.fixture(scope="module")
def home(folder: Path) -> Iterator[Home]:
    place = Home(folder / "home")
    place.root.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        for name in ("PREFECT_API_URL", "MLFLOW_TRACKING_URI", "PREFECT_HOME"):
            patch.delenv(name, raising=False)
        patch.setenv("AFFINITY_ALERT_COMMAND", f"cat >> '{folder}/alerts.jsonl'")
        patch.setenv("PREFECT_WORKER_QUERY_SECONDS", "1")
        try:
            services.up(place)
            yield place
        finally:
            services.down(place)


def deploy(home: Home, folder: Path, *, seconds: int) -> None:
    """Deploy everything of prefect.yaml and a copy of the nightly one that is due in some seconds.

    Prefect's own command, typed in another folder than the checkout's.
    """
    body = yaml.safe_load((ROOT / "prefect.yaml").read_text(encoding="utf-8"))
    (folder / "tiny.toml").write_text(TINY, encoding="utf-8")
    due = datetime.now(UTC) + timedelta(seconds=seconds)
    # On a machine so slow that the first time is missed, the next one is a minute later.
    schedule = {"interval": 60, "anchor_date": due.isoformat(), "timezone": "UTC", "slug": "soon"}
    soon = {
        **body["deployments"][0],
        "name": "soon",
        "parameters": {"request": {"suites": [str(folder / "tiny.toml")]}},
        "schedules": [schedule],
    }
    body["deployments"].append(soon)
    for one in body["deployments"]:
        one["entrypoint"] = f"{ROOT}/{one['entrypoint']}"
    (folder / "prefect.yaml").write_text(yaml.safe_dump(body), encoding="utf-8")
    environment = {**os.environ, "PREFECT_API_URL": service_state.api_url(home)}
    command = [sys.executable, "-m", "prefect", "--no-prompt", "deploy", "--all"]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def start(api: str, name: str, request: dict[str, Any]) -> Any:
    """Start a run of a deployment, as its form in Prefect's page does."""
    (one,) = [d for d in ask(f"{api}/deployments/filter", {}) if d["name"] == name]
    body = {"parameters": {"request": request}, "state": {"type": "SCHEDULED"}}
    return ask(f"{api}/deployments/{one['id']}/create_flow_run", body)


def test_up_is_safe_to_repeat(home: Home) -> None:
    first = services.status(home)
    assert [row["state"] for row in first] == ["running"] * 3
    assert all(row["url"].startswith("http://127.0.0.1:") for row in first)
    services.up(home)
    assert services.status(home) == first
    listening = subprocess.run(["ss", "-ltnpH"], capture_output=True, text=True)
    if listening.returncode == 0:
        pids = {
            pid for s in service_state.running(home).values() for pid in {s.pid} | marked(s.mark)
        }
        ours = [l for l in listening.stdout.splitlines() if any(f"pid={p}," in l for p in pids)]
        assert all(line.split()[3].startswith("127.0.0.1:") for line in ours)


def test_schedule_fires_and_the_worker_completes_the_run(home: Home, folder: Path) -> None:
    deploy(home, folder, seconds=15)
    api = service_state.api_url(home)
    found = {d["name"]: d for d in ask(f"{api}/deployments/filter", {})}
    assert set(found) == {"nightly", "weekly", "on-demand", "soon"}
    for name, one in found.items():
        assert len(one["schedules"]) == (0 if name == "on-demand" else 1)
        assert str(folder) not in json.dumps([one["path"], one["pull_steps"]])
        assert one["parameter_openapi_schema"]["required"] == ["request"]

    query = {"deployments": {"id": {"any_": [found["soon"]["id"]]}}, "sort": "START_TIME_ASC"}

    def ended() -> Any:
        runs = ask(f"{api}/flow_runs/filter", query)
        return [r for r in runs if r["state_type"] in ("COMPLETED", "FAILED", "CRASHED")]

    run = wait_for("the scheduled run", ended)[0]
    ask(f"{api}/deployments/{found['soon']['id']}/pause_deployment", {})
    assert run["auto_scheduled"]
    assert (run["state_type"], run["state"]["message"]) == ("COMPLETED", "tiny: first")
    assert run["work_pool_name"] == POOL

    record = load_run(home, "latest")
    assert record.status == "finished" and record.report.is_file()
    assert record.results["value"].is_between(0.5, 1.0).all()
    assert isinstance(record.per_item["search"], pl.DataFrame)
    assert (record.folder / "regression.json").is_file()

    page = service_state.page(home, "mlflow")
    parent = ask(f"{page}/api/2.0/mlflow/runs/get?run_id={record.manifest['mlflow']['run']}")
    assert parent["run"]["info"]["status"] == "FINISHED"
    assert str(record.manifest["mlflow"]["experiment"]) == parent["run"]["info"]["experiment_id"]

    artifacts = {a["key"]: a for a in ask(f"{api}/artifacts/filter", {})}
    assert {"tiny-search-letor4", "tiny-links", "tiny-regression"} <= set(artifacts)
    (row,) = json.loads(artifacts["tiny-search-letor4"]["data"])
    assert row["method"] == "RankSVM" and row["map"] == round(record.results["value"][0], 4)
    shown = artifacts["tiny-links"]["data"]
    assert f"({page}/#/experiments/" in shown and record.report.as_uri() in shown


@pytest.mark.slow
def test_failure_calls_the_users_command(home: Home, folder: Path) -> None:
    api = service_state.api_url(home)
    run = start(api, "nightly", {"suites": [str(folder / "absent.toml")]})
    state = wait_for(
        "the failure",
        lambda: (s := ask(f"{api}/flow_runs/{run['id']}")["state"])["type"] == "FAILED" and s,
    )
    assert "no such suite file" in state["message"]
    (alert,) = map(json.loads, (folder / "alerts.jsonl").read_text().splitlines())
    assert alert["event"] == "failure" and alert["flow_run"].endswith(run["id"])


def test_dead_worker_is_recognised_and_replaced(home: Home) -> None:
    worker = service_state.running(home)["worker"]
    assert worker.pid is not None
    os.kill(worker.pid, signal.SIGKILL)
    wait_for("its end", lambda: identity(worker.pid) is None)
    states = {row["name"]: row["state"] for row in services.status(home)}
    assert states == {"prefect": "running", "worker": "dead", "mlflow": "running"}
    services.up(home)
    assert {row["state"] for row in services.status(home)} == {"running"}
    assert service_state.running(home)["worker"].pid != worker.pid


def test_down_leaves_no_process(home: Home) -> None:
    started = service_state.running(home)
    # ps shows other letters than ASCII as it likes.
    word = f"{home.root.parent.parent}/"
    assert live_processes(word)
    run = PrefectServer(home)
    run.begin()
    try:
        ended = services.down(home)
        assert ended == {"prefect": "in use", "worker": "stopped", "mlflow": "stopped"}
        assert started["prefect"].running and not started["worker"].running
        assert run.wait() == f"{started['prefect'].url}/api"
    finally:
        run.end()
    for service in started.values():
        assert service.pid is not None and identity(service.pid) is None
        assert not service.mark or not marked(service.mark)
    assert live_processes(word) == []
    assert [row["state"] for row in services.status(home)] == ["stopped"] * 3
    assert services.down(home) == {}
    # Nothing beside the home either.
    assert {p.name for p in home.root.parent.iterdir()} <= {
        "home",
        "tiny.toml",
        "prefect.yaml",
        "alerts.jsonl",
    }


@pytest.mark.slow
def test_down_closes_a_run_in_progress(home: Home, folder: Path) -> None:
    services.up(home)
    long = TINY.replace('"tiny"', '"long"').replace('"RankSVM"', '"RankNystroem"')
    grid = "grid = { gamma = [1.0, 0.5, 0.25, 0.1, 0.05], C = [0.1, 1.0, 10.0, 100.0, 1000.0] }"
    long = long.replace("params = { C = 0.01 }", "params = { n_components = 1500 }\n" + grid)
    long += '[problems.selection]\nmetric = "map"\n'
    (folder / "tiny.toml").write_text(long, encoding="utf-8")
    start(service_state.api_url(home), "on-demand", {"suite": str(folder / "tiny.toml")})
    (manifest,) = wait_for("the run", lambda: list(home.runs.glob("long-*/manifest.json")))
    wait_for("its first artifacts", lambda: list(home.store.glob("features/*")))
    assert json.loads(manifest.read_text())["status"] == "running"
    services.down(home)
    body = json.loads(manifest.read_text())
    assert body["status"] == "interrupted" and body["artifacts"]
    assert live_processes(f"{home.root.parent.parent}/") == []


def test_state_from_before_a_reboot_harms_nobody(tmp_path: Path) -> None:
    place = Home(tmp_path)
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as stranger:
        try:
            rows = [
                {"name": n, "url": "http://127.0.0.1:1", "pid": stranger.pid, "began": "earlier"}
                for n in service_state.NAMES
            ]
            (tmp_path / "services.json").write_text(json.dumps({"services": rows}))
            assert [row["state"] for row in services.status(place)] == ["dead"] * 3
            assert service_state.page(place, "mlflow") is None
            assert services.down(place) == {}
            assert stranger.poll() is None
        finally:
            stranger.kill()


def test_servers_of_the_user_are_not_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:9/api")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9/")
    with pytest.raises(InputError, match="no Prefect server answers"):
        services.up(Home(tmp_path))
    states = {row["name"]: row["state"] for row in services.status(Home(tmp_path))}
    assert states == {"prefect": "external", "worker": "stopped", "mlflow": "external"}
    assert services.down(Home(tmp_path)) == {}


def test_damaged_state_is_no_state(tmp_path: Path) -> None:
    (tmp_path / "services.json").write_text('{"services": [{"nome": 1}]}')
    assert [row["state"] for row in services.status(Home(tmp_path))] == ["stopped"] * 3


def test_command_line(tmp_path: Path) -> None:
    from typer.testing import CliRunner

    runner = CliRunner()
    shown = runner.invoke(services_app, ["status", "--json", "--home", str(tmp_path)])
    assert shown.exit_code == 0
    assert [s["state"] for s in json.loads(shown.output)["services"]] == ["stopped"] * 3
    assert runner.invoke(services_app, ["down", "--home", str(tmp_path)]).output == (
        "nothing was running\n"
    )
    refused = runner.invoke(services_app, ["deploy", "--home", str(tmp_path)])
    assert isinstance(refused.exception, InputError)


def test_two_servers_that_start_at_once_take_two_ports(tmp_path: Path) -> None:
    first, second = _listen(tmp_path), _listen(tmp_path)
    try:
        assert first.getsockname()[1] != second.getsockname()[1]
    finally:
        first.close()
        second.close()
