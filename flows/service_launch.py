"""How the services of a home are started, known to be ready, and stopped."""

from __future__ import annotations

import base64
import fcntl
import hashlib
import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from flows.processes import MARK, end, identity
from flows.server import healthy, read_state, running_state, spawn, wait_for_state
from flows.service_state import Service
from pipeline_lib.artifacts import write_text_atomically
from pipeline_lib.errors import AffinityError, InputError
from pipeline_lib.home import Home
from pipeline_lib.locking import exclusively
from pipeline_lib.tracking import local_uri, prepare_store

POOL = "affinity"
"""Work pool of the deployments in prefect.yaml."""

ROOT = Path(__file__).resolve().parent.parent
"""Folder that holds the packages."""

_START_SECONDS = 300.0
_STOP_SECONDS = 15.0
_MLFLOW_PORT = 5000


class ServiceError(AffinityError):
    """A service could not be started."""


def start_prefect(home: Home, report: Callable[[str], None]) -> Service:
    """Start the home's Prefect server, or take the one that runs or the user's own."""
    given = os.environ.get("PREFECT_API_URL")
    if given:
        if not healthy(given, timeout=10.0):
            raise InputError(
                f"no Prefect server answers at PREFECT_API_URL={given}",
                remedy="start it, or unset PREFECT_API_URL to use the managed one",
            )
        return Service("prefect", given.rstrip("/").removesuffix("/api"))
    folder = home.prefect
    folder.mkdir(parents=True, exist_ok=True)
    started = None
    with exclusively(folder / "start.lock"):
        state = running_state(folder)
        # A server that a run started for itself does not schedule and ends with the run; a second one
        # on the same database takes over beside it.
        if state is None or not state.keep or not _comes_up(state.api, 30.0):
            report("starting the Prefect server")
            started = spawn(folder, keep=True)
    try:
        state = wait_for_state(folder, started)
    except BaseException:
        end({started.pid} if started is not None else set(), seconds=2.0)
        raise
    log = str(folder / "server.log")
    return Service("prefect", state.url, state.pid, identity(state.pid), log=log)


def start_worker(
    home: Home, server: Service, current: Service | None, report: Callable[[str], None]
) -> Service:
    """Start a worker for the server unless one runs; it makes the work pool if there is none."""
    if current is not None:
        if current.running and current.url == server.url:
            return current
        stop(home, current)
    report("starting the worker")
    api = f"{server.url}/api"
    key = hashlib.sha256(str(home.root).encode()).hexdigest()[:8]
    name = f"{socket.gethostname()}-{key}"
    # One flow run at a time: the seconds that a benchmark reports must not depend on a neighbour.
    pool = ["--pool", POOL, "--type", "process", "--name", name, "--limit", "1"]
    before = _heartbeat(api, name)
    return _launch(
        Service("worker", server.url, log=str(home.root / "logs" / "worker.log")),
        ["flows.worker_process", *pool, "--install-policy", "never"],
        home,
        environment(home, api),
        lambda: _heartbeat(api, name) not in (None, before),
    )


def start_mlflow(home: Home, current: Service | None, report: Callable[[str], None]) -> Service:
    """Start the page of the home's MLflow store unless it runs; the user's own is left alone."""
    given = os.environ.get("MLFLOW_TRACKING_URI")
    if given:
        return Service("mlflow", given.rstrip("/") if given.startswith("http") else None)
    if current is not None:
        if current.running:
            return current
        stop(home, current)
    report("starting the MLflow page")
    artifacts = home.mlflow_artifacts.as_uri()
    store = ["--backend-store-uri", local_uri(home), "--artifacts-destination", artifacts]
    # Whoever comes first makes the database, this or a run that begins.
    with reserved_port(_last_port(home) or _MLFLOW_PORT) as port, home.lock("mlflow"):
        prepare_store(home)
        url = f"http://127.0.0.1:{port}"
        listen = ["--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
        service = _launch(
            Service("mlflow", url, log=str(home.root / "logs" / "mlflow.log")),
            ["mlflow", "server", *store, *listen],
            home,
            {
                "MLFLOW_DISABLE_TELEMETRY": "true",
                "DO_NOT_TRACK": "true",
                "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
            },
            lambda: answers(f"{url}/health"),
        )
    write_text_atomically(home.root / "mlflow-port.json", json.dumps({"port": port}))
    return service


def stop(home: Home, service: Service) -> None:
    """Stop a service that was started here and all that came of it."""
    if service.name == "prefect":
        _stop_prefect(home, service)
        return
    # Flow runs first, and asked once: a second signal from the worker would break off their farewell.
    end(service.processes() - {service.pid}, seconds=_STOP_SECONDS)
    end(service.processes(), seconds=_STOP_SECONDS)
    # What a dying worker may still have started.
    end(service.processes(), seconds=1.0)


def _stop_prefect(home: Home, service: Service) -> None:
    if not service.running:
        return
    folder = home.prefect
    with exclusively(folder / "start.lock"):
        state = read_state(folder)
        announced = state is not None and state.pid == service.pid
        if state is not None and announced and _in_use(folder):
            replace(state, keep=False).write(folder)
            return
        end(service.processes(), seconds=_STOP_SECONDS)
        if announced:
            (folder / "server.json").unlink(missing_ok=True)


def environment(home: Home, api: str) -> dict[str, str]:
    """What a process needs to work for this home with this Prefect server."""
    return {
        "AFFINITY_HOME": str(home.root),
        "PREFECT_API_URL": api,
        "PREFECT_HOME": os.environ.get("PREFECT_HOME", str(home.prefect)),
        "PREFECT_WORKER_QUERY_SECONDS": os.environ.get("PREFECT_WORKER_QUERY_SECONDS", "5"),
        "DO_NOT_TRACK": "1",
        "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])),
    }


def _launch(
    service: Service,
    module: list[str],
    home: Home,
    extra: Mapping[str, str],
    ready: Callable[[], bool],
) -> Service:
    """Start a module in a session of its own, so that Ctrl-C does not reach it, and wait for it."""
    assert service.log is not None
    log = Path(service.log)
    log.parent.mkdir(parents=True, exist_ok=True)
    mark = uuid.uuid4().hex
    if log.exists():
        log.replace(log.with_suffix(".previous.log"))
    with log.open("ab") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", *module],
            cwd=home.root,
            env={**os.environ, **extra, MARK: mark},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    started = replace(service, pid=process.pid, began=identity(process.pid), mark=mark)
    deadline = time.monotonic() + _START_SECONDS
    try:
        while time.monotonic() < deadline and process.poll() is None:
            if ready():
                return started
            time.sleep(0.2)
        raise ServiceError(f"the service {service.name} did not start; its log is {log}")
    except BaseException:
        end(started.processes(), seconds=2.0)
        raise


def _comes_up(api: str, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if healthy(api, timeout=2.0):
            return True
        time.sleep(0.2)
    return False


def _heartbeat(api: str, name: str) -> str | None:
    """When a worker last reported to its pool, by the server's clock; None before the first time."""
    rows = _ask(f"{api}/work_pools/{POOL}/workers/filter", {})
    times = (row["last_heartbeat_time"] for row in rows or () if row["name"] == name)
    return next(times, None)


def answers(url: str) -> bool:
    """Whether a page is there."""
    try:
        with urllib.request.urlopen(url, timeout=5.0) as answer:
            return bool(answer.status == 200)
    except (OSError, ValueError):
        return False


def _ask(url: str, body: Mapping[str, Any]) -> Any:
    headers = {"Content-Type": "application/json"}
    if key := os.environ.get("PREFECT_API_KEY"):
        headers["Authorization"] = f"Bearer {key}"
    elif login := os.environ.get("PREFECT_API_AUTH_STRING"):
        headers["Authorization"] = f"Basic {base64.b64encode(login.encode()).decode()}"
    request = urllib.request.Request(url, data=json.dumps(body).encode(), headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=5.0) as answer:
            return json.load(answer)
    except (OSError, ValueError):
        return None


@contextmanager
def reserved_port(preferred: int) -> Iterator[int]:
    """A loopback port that nobody listens on, the preferred one if possible, for a service to start on.

    The service takes it only once it is up. Until the block ends the UDP port of the same number is
    held, so that another home that starts in the same second chooses another.
    """
    for wanted in (preferred, 0):
        with (
            socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe,
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as held,
        ):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", wanted))
                port = int(probe.getsockname()[1])
                held.bind(("127.0.0.1", port))
            except OSError:
                continue
            probe.close()
            yield port
            return
    raise ServiceError("no loopback port can be bound")


def _in_use(folder: Path) -> bool:
    """Whether runs of the command line use the managed server."""
    with (folder / "users.lock").open("a") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return True
    return False


def _last_port(home: Home) -> int | None:
    try:
        text = (home.root / "mlflow-port.json").read_text(encoding="utf-8")
        return int(json.loads(text)["port"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
