"""Many small suites in a row through the deployed worker: does anything grow?

After each flow run, with nothing running, the services' resident memory, open files, threads and
processes are counted, and the files in the temporary folder they were given. Each run computes a suite
of its own (another C), so nothing comes from the store.

    python -m tests.performance.soak_worker --runs 100
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from flows import service_state, services
from flows.checkout import locate
from pipeline_lib.home import Home
from tests.performance._table import print_table

SUITE = """
version = 1
name = "soak"
title = "Soak"
[[problems]]
name = "search"
kind = "ltr"
dataset = "digits"
splits = ["ltr"]
headline = "map"
[[problems.methods]]
name = "RankSVM"
"""

WARM_UP = 0.2
"""Share of the runs in which caches may still fill."""


def run(runs: int = 100) -> list[dict[str, Any]]:
    """Run the suites; one row a quantity: after the warm-up, at the end, growth a run."""
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        place = Path(folder)
        (place / "tmp").mkdir()
        (place / "suite.toml").write_text(SUITE, encoding="utf-8")
        os.environ["TMPDIR"] = str(place / "tmp")
        os.environ["PREFECT_WORKER_QUERY_SECONDS"] = "1"
        for name in ("PREFECT_API_URL", "MLFLOW_TRACKING_URI"):
            os.environ.pop(name, None)
        home = Home(place / "home")
        home.root.mkdir()
        try:
            services.up(home)
            return _rows(_soak(home, place, runs))
        finally:
            services.down(home)


def _soak(home: Home, place: Path, runs: int) -> list[dict[str, float]]:
    api = service_state.api_url(home)
    command = ["--no-prompt", "deploy", "--name", "on-demand"]
    subprocess.run(
        [sys.executable, "-m", "prefect", *command],
        cwd=locate()["directory"],
        env={**os.environ, "PREFECT_API_URL": api},
        check=True,
        stdout=subprocess.DEVNULL,
    )
    (deployment,) = _ask(f"{api}/deployments/filter", {})
    samples = []
    for number in range(runs):
        request = {"suite": str(place / "suite.toml"), "settings": {"C": 0.01 * (number + 1)}}
        began = time.monotonic()
        body = {"parameters": {"request": request}, "state": {"type": "SCHEDULED"}}
        made = _ask(f"{api}/deployments/{deployment['id']}/create_flow_run", body)
        while (state := _ask(f"{api}/flow_runs/{made['id']}")["state"])["type"] != "COMPLETED":
            if state["type"] in ("FAILED", "CRASHED", "CANCELLED"):
                raise SystemExit(f"run {number} {state['type']}: {state['message']}")
            time.sleep(0.5)
        seconds = time.monotonic() - began
        _settle(home)
        samples.append({"seconds a run": seconds, **_count(home, place)})
        memory = ", ".join(f"{k} {v:.1f}" for k, v in samples[-1].items() if k.endswith("MB"))
        print(f"{number + 1}/{runs}  {seconds:.1f} s, {memory}", file=sys.stderr, flush=True)
    return samples


def _settle(home: Home) -> None:
    """Wait until the worker has put the flow run's process away."""
    worker = service_state.running(home)["worker"]
    deadline = time.monotonic() + 30
    while len(worker.processes()) > 1 and time.monotonic() < deadline:
        time.sleep(0.2)


def _count(home: Home, place: Path) -> dict[str, float]:
    counted: dict[str, float] = {}
    for name, service in service_state.running(home).items():
        pids = sorted(service.processes())
        counted[f"{name} memory MB"] = sum(_resident(pid) for pid in pids) / 1e6
        counted[f"{name} open files"] = sum(len(os.listdir(f"/proc/{p}/fd")) for p in pids)
        counted[f"{name} threads"] = sum(len(os.listdir(f"/proc/{p}/task")) for p in pids)
        counted[f"{name} processes"] = len(pids)
    counted["temporary files"] = sum(1 for _ in (place / "tmp").rglob("*"))
    unfinished = home.store / "tmp", home.store / "locks"
    counted["unfinished artifacts"] = sum(1 for f in unfinished for _ in f.glob("*"))
    return counted


def _resident(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def _rows(samples: list[dict[str, float]]) -> list[dict[str, Any]]:
    kept = samples[int(len(samples) * WARM_UP) :]
    third = max(1, len(kept) // 3)
    steps = np.arange(len(kept))
    return [
        {
            "what": name,
            "first run": samples[0][name],
            "after warm-up": median(s[name] for s in kept[:third]),
            "at the end": median(s[name] for s in kept[-third:]),
            "growth a run": float(np.polyfit(steps, [s[name] for s in kept], 1)[0])
            if len(kept) > 1
            else 0.0,
        }
        for name in samples[0]
    ]


def _ask(url: str, body: dict[str, Any] | None = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    for attempt in range(10):
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            # The server's word for a busy database; Prefect's own client repeats as well.
            if error.code != 503 or attempt == 9:
                raise
            time.sleep(1.0)
    return None


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=100)
    count = parser.parse_args().runs
    print_table(f"{count} suites through the worker", run(count))
