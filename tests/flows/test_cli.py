"""The command line: errors in one sentence, listings, and a run that can be interrupted."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

COMMAND = [sys.executable, "-m", "flows.cli"]

SUITE = """
version = 1
name = "tiny"
title = "Tiny"
summary = "One method."

[[problems]]
kind = "ltr"
dataset = "digits"
splits = ["ltr"]
headline = "map"

[problems.selection]
metric = "map"

[[problems.methods]]
name = "RankSVM"
grid = { C = [0.001, 0.1] }
"""

# Long enough to be interrupted on any machine: many feature maps, each fitted anew.
LONG = SUITE.replace(
    'name = "RankSVM"\ngrid = { C = [0.001, 0.1] }',
    """name = "RankNystroem"
params = { n_components = 1500 }
grid = { gamma = [0.5, 0.51, 0.52, 0.53, 0.54, 0.55, 0.56, 0.57, 0.58, 0.59, 0.6, 0.61, 0.62, 0.63], C = [0.01, 0.1, 1.0, 10.0] }""",
)


def affinity(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        timeout=280,
    )


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("run", "quikstart"), 'unknown suite "quikstart"; did you mean "quickstart"?'),
        (("run", "none.toml"), "none.toml: no such suite file"),
        (
            ("run", "quickstart", "--engine", "thread"),
            'unknown engine "thread"; did you mean "threads"?',
        ),
        (("run", "--address", "tcp://x"), "--address goes with --engine dask"),
        (("run", "--set", "C"), '--set "C" cannot be read; expected NAME=VALUE'),
        (("run", "--set", "C=1\nD=2"), "holds several lines"),
        (("run", "--set", "gama=1.0"), 'unknown setting "gama"; did you mean "gamma"'),
        (("report", "nothing"), "there are no runs yet"),
        (("data", "describe", "digit"), 'unknown dataset "digit"; did you mean "digits"?'),
        (("data", "status", "mq208"), 'unknown dataset "mq208"; did you mean "mq2008"'),
        (("list", "methods", "--kind", "lrt"), 'unknown problem kind "lrt"; did you mean "ltr"?'),
    ],
)
def test_a_mistake_is_one_sentence_and_status_2(arguments: tuple[str, ...], says: str) -> None:
    done = affinity(*arguments)
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert says in done.stderr
    assert done.stderr.startswith("affinity: ")
    assert done.stderr.count("\n") == 1


def test_missing_data_says_how_to_get_them(tmp_path: Path) -> None:
    done = affinity("run", "letor-mq2008", AFFINITY_DATA=str(tmp_path))
    assert done.returncode == 2
    assert "affinity data import mq2008" in done.stderr
    assert done.stderr.count("\n") == 1


def test_debug_shows_the_traceback() -> None:
    done = affinity("--debug", "run", "quikstart")
    assert done.returncode == 2
    assert "Traceback" in done.stderr


def test_listings_are_json_for_machines() -> None:
    methods = json.loads(affinity("list", "methods", "--json").stdout)
    assert {"RankSVM", "RankNystroem", "RankRandomFourier"} <= {m["name"] for m in methods}
    assert all({"name", "kind", "source"} <= set(m) for m in methods)
    suites = json.loads(affinity("list", "suites", "--json").stdout)
    assert {"quickstart", "letor-mq2008"} <= {s["name"] for s in suites}
    datasets = json.loads(affinity("list", "datasets", "--json").stdout)
    assert {"mq2008", "digits"} <= {d["name"] for d in datasets}


def test_the_version() -> None:
    assert affinity("--version").stdout.startswith("affinity-bench ")


@pytest.mark.parametrize("engine", ["processes", "plain"])
def test_every_engine_runs_a_suite(engine: str, tmp_path: Path) -> None:
    (tmp_path / "tiny.toml").write_text(SUITE)
    done = affinity(
        "run", str(tmp_path / "tiny.toml"), "--home", str(tmp_path), "--engine", engine, "--json"
    )
    assert done.returncode == 0, done.stderr
    body = json.loads(done.stdout)
    assert body["status"] == "finished" and body["computed"] > 0


def test_a_run_with_prefect_prints_results_and_places_and_nothing_else(tmp_path: Path) -> None:
    """In a home whose path has spaces, accents, % and #, with a proxy configured, from elsewhere."""
    (tmp_path / "tiny.toml").write_text(SUITE)
    home = tmp_path / "höme with 100 % #1"
    proxy = dict.fromkeys(("HTTP_PROXY", "http_proxy", "ALL_PROXY"), "http://192.0.2.1:9")
    done = subprocess.run(
        [*COMMAND, "run", "tiny.toml", "--home", str(home)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, **proxy, "PYTHONPATH": str(Path(__file__).resolve().parents[2])},
        timeout=280,
    )
    assert done.returncode == 0, done.stderr
    assert "RankSVM" in done.stdout
    places = dict(line.split(maxsplit=1) for line in done.stdout.splitlines()[-4:])
    assert Path(places["report"]).is_file()
    assert Path(places["tables"], "results.parquet").is_file()
    assert (home / "mlflow.db").is_file()
    for noise in ("Traceback", "ERROR", "Error", "WARN", "Warning"):
        assert noise not in done.stderr + done.stdout
    _assert_nobody_left(home)
    runs = _mlflow_runs(home)
    assert [run["status"] for run in runs] == ["FINISHED"] * 3
    flow_runs = _flow_runs(home)
    assert [state for _, state in flow_runs] == ["COMPLETED"]
    # Read again as JSON, with nothing to compute.
    again = affinity(
        "run", str(tmp_path / "tiny.toml"), "--home", str(home), "--json", "--engine", "plain"
    )
    body = json.loads(again.stdout)
    assert body["computed"] == 0
    assert body["status"] == "finished"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_leaves_nothing_running(tmp_path: Path, number: int) -> None:
    (tmp_path / "long.toml").write_text(LONG)
    home = tmp_path / "home"
    process = subprocess.Popen(
        [*COMMAND, "run", str(tmp_path / "long.toml"), "--home", str(home)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("fitting"):
            break
    time.sleep(2.0)
    process.send_signal(number)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 130, out + err
    assert "interrupted; what was finished is kept" in err
    assert "Traceback" not in err
    _assert_nobody_left(home)
    statuses = {run["status"] for run in _mlflow_runs(home)}
    assert "RUNNING" not in statuses
    assert "KILLED" in statuses
    assert all(state not in ("RUNNING", "PENDING") for _, state in _flow_runs(home))


def _assert_nobody_left(home: Path) -> None:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        left = subprocess.run(
            ["pgrep", "-f", "--", str(home)], capture_output=True, text=True
        ).stdout
        if not left.strip():
            return
        time.sleep(0.2)
    pytest.fail(f"processes left: {left}")


def _mlflow_runs(home: Path) -> list[dict[str, Any]]:
    return _rows(home / "mlflow.db", "select name, status from runs")


def _flow_runs(home: Path) -> list[tuple[str, str]]:
    rows = _rows(home / "prefect" / "prefect.db", "select name, state_type from flow_run")
    return [(row["name"], row["state_type"]) for row in rows]


def _rows(database: Path, query: str) -> list[dict[str, Any]]:
    import sqlite3
    from urllib.parse import quote

    connection = sqlite3.connect(f"file:{quote(str(database))}?mode=ro", uri=True)
    connection.row_factory = sqlite3.Row
    try:
        return [dict(row) for row in connection.execute(query)]
    finally:
        connection.close()


def test_score_measures_predictions_made_elsewhere(tmp_path: Path) -> None:
    rows = ["2 qid:1 1:0.5", "0 qid:1 1:0.1", "1 qid:2 1:0.2", "0 qid:2 1:0.9"]
    (tmp_path / "test.txt").write_text("\n".join(rows) + "\n")
    (tmp_path / "scores.txt").write_text("3\n1\n0\n1\n")
    values = tmp_path / "values.csv"
    place = [str(tmp_path / "test.txt"), str(tmp_path / "scores.txt")]
    done = affinity("score", *place, "--json", "--per-item", str(values))
    assert done.returncode == 0, done.stderr
    means = {row["metric"]: row["mean"] for row in json.loads(done.stdout)}
    assert means["map"] == pytest.approx(0.75)
    assert len(values.read_text().splitlines()) == 3
    refused = affinity("score", place[0], place[0])
    assert refused.returncode == 2
    assert 'test.txt:1: "qid:1" is not a number' in refused.stderr
