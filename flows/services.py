"""Prefect server, worker and MLflow page of one home: started, stopped and looked at together.

All three listen on loopback only and outlive the command that starts them. ``<home>/services.json``
says what was started; a process counts as ours only when its id and the time it began both agree, so
what a reboot left behind in that file is recognised. Servers that a team has already
(``PREFECT_API_URL``, ``MLFLOW_TRACKING_URI``) are used, and neither started nor stopped here.
"""

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
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from flows.processes import MARK, end, identity, marked
from flows.server import (
    bypass_proxies,
    healthy,
    read_state,
    running_state,
    spawn,
    wait_for_state,
)
from pipeline_lib.artifacts import write_text_atomically
from pipeline_lib.errors import AffinityError, InputError
from pipeline_lib.home import Home
from pipeline_lib.tracking import local_uri

POOL = "affinity"
"""Work pool of the deployments in prefect.yaml."""

NAMES = ("prefect", "worker", "mlflow")

_ROOT = Path(__file__).resolve().parent.parent
_START_SECONDS = 120.0
_STOP_SECONDS = 15.0
_MLFLOW_PORT = 5000


class ServiceError(AffinityError):
    """A service could not be started."""


@dataclass(frozen=True)
class Service:
    """One service.

    Attributes
    ----------
    name : {"prefect", "worker", "mlflow"}
    url : str, optional
        Address of its page; of the server it works for in the case of the worker.
    pid : int, optional
        Its process; none when it is somebody else's.
    began : str, optional
        Identity of that process, see `flows.processes.identity`.
    mark : str
        Carried by that process and all it starts, see `flows.processes.marked`.
    log : str, optional
        Where it writes.
    """

    name: str
    url: str | None = None
    pid: int | None = None
    began: str | None = None
    mark: str = ""
    log: str | None = None

    @property
    def running(self) -> bool:
        """Whether the process that was started is there."""
        return self.pid is not None and identity(self.pid) == self.began

    def processes(self) -> set[int]:
        """Its process and all that came of it, even when it is gone itself."""
        roots = {self.pid} if self.running and self.pid is not None else set()
        return roots | (marked(self.mark, roots) if self.mark else set())


def up(home: Home, report: Callable[[str], None] = lambda sentence: None) -> list[Service]:
    """Start what does not run yet.

    Parameters
    ----------
    home : Home
    report : callable, optional
        Takes a sentence on each step.

    Returns
    -------
    list of Service
        Prefect server, worker, MLflow page; with no pid where a server of the user's is used.

    Raises
    ------
    InputError
        If ``PREFECT_API_URL`` is set and nothing answers there.
    ServiceError
        If a service does not come up; what was started by this call is stopped again.
    """
    bypass_proxies()
    with home.lock("services"):
        known = _load(home)
        found = {service.pid for service in known.values() if service.running}
        try:
            with ThreadPoolExecutor(1) as beside:
                page = beside.submit(_start_mlflow, home, known.get("mlflow"), report)
                try:
                    known["prefect"] = server = _start_prefect(home, report)
                    _save(home, known)
                    known["worker"] = _start_worker(home, server, known.get("worker"), report)
                finally:
                    known["mlflow"] = page.result()
            _save(home, known)
        except BaseException:
            for service in known.values():
                if service.running and service.pid not in found:
                    _stop(home, service)
            _save(home, {n: s for n, s in known.items() if s.pid in found})
            raise
        return [known[name] for name in NAMES]


def down(home: Home) -> list[str]:
    """Stop what `up` started; returns the names of what ran.

    Flow runs in progress are interrupted first and record that. A Prefect server that runs of the
    command line use right now stays until the last of them ends.
    """
    with home.lock("services"):
        known = _load(home)
        running = [name for name in NAMES if name in known and known[name].running]
        for name in ("worker", "mlflow", "prefect"):
            if name in known:
                _stop(home, known[name])
        _path(home).unlink(missing_ok=True)
    return running


def status(home: Home) -> list[dict[str, Any]]:
    """State of each service.

    Returns
    -------
    list of dict
        ``name``, ``state`` (``running``; ``not answering``: its process is there; ``dead``: started
        once, its process is gone; ``external``: a server of the user's; ``stopped``), ``url``,
        ``pid``, ``log``.
    """
    bypass_proxies()
    known = _load(home)
    services = [known.get(name, Service(name)) for name in NAMES]
    return [
        {
            "name": service.name,
            "state": _state(service),
            "url": service.url,
            "pid": service.pid,
            "log": service.log,
        }
        for service in services
    ]


def page(home: Home, name: str) -> str | None:
    """Address of a service's page, without a slash at its end; None when it does not run."""
    service = _load(home).get(name)
    if service is None or not (service.running or _given(name)):
        return None
    return service.url


def api_url(home: Home) -> str:
    """Address of the Prefect API that the services use.

    Raises
    ------
    InputError
        If they are not up.
    """
    url = page(home, "prefect")
    if url is None:
        raise InputError(
            "the services are not running",
            path=home.root,
            remedy="start them: affinity services up",
        )
    return f"{url}/api"


def deploy(home: Home, file: Path | None = None) -> int:
    """Register the deployments of a ``prefect.yaml`` with the server; returns Prefect's exit status.

    Parameters
    ----------
    home : Home
    file : Path, optional
        Default: the one of this project.
    """
    chosen = file or _ROOT / "prefect.yaml"
    if not chosen.is_file():
        raise InputError("no such file", path=chosen, remedy="name one with --file")
    arguments = ["--no-prompt", "deploy", "--all", "--prefect-file", str(chosen.resolve())]
    return subprocess.run(
        [sys.executable, "-m", "prefect", *arguments],
        # Entrypoints are relative to the folder that holds the packages.
        cwd=_ROOT,
        env={**os.environ, **_environment(home, api_url(home))},
        stdin=subprocess.DEVNULL,
        check=False,
    ).returncode


# -- the three of them -------------------------------------------------------------------------------


def _start_prefect(home: Home, report: Callable[[str], None]) -> Service:
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
    with _server_lock(folder):
        state = running_state(folder)
        # A server that a run started for itself does not schedule and ends with the run; a second one
        # on the same database takes over beside it.
        if state is None or not state.keep or not _answers(state.api, 30.0):
            report("starting the Prefect server")
            started = spawn(folder, keep=True)
    try:
        state = wait_for_state(folder, started)
    except BaseException:
        end({started.pid} if started is not None else set(), seconds=2.0)
        raise
    log = str(folder / "server.log")
    return Service("prefect", state.url, state.pid, identity(state.pid), log=log)


def _start_worker(
    home: Home, server: Service, current: Service | None, report: Callable[[str], None]
) -> Service:
    if current is not None:
        if current.running and current.url == server.url:
            return current
        _stop(home, current)
    report("starting the worker")
    api = f"{server.url}/api"
    key = hashlib.sha256(str(home.root).encode()).hexdigest()[:8]
    name = f"{socket.gethostname()}-{key}"
    # One flow run at a time: the seconds that a benchmark reports must not depend on a neighbour.
    pool = ["--pool", POOL, "--type", "process", "--name", name, "--limit", "1"]
    since = datetime.now(UTC)
    return _launch(
        Service("worker", server.url, log=str(home.root / "logs" / "worker.log")),
        ["prefect", "worker", "start", *pool, "--install-policy", "never"],
        home,
        _environment(home, api),
        lambda: _worker_online(api, name, since),
    )


def _start_mlflow(home: Home, current: Service | None, report: Callable[[str], None]) -> Service:
    given = os.environ.get("MLFLOW_TRACKING_URI")
    if given:
        return Service("mlflow", given.rstrip("/") if given.startswith("http") else None)
    if current is not None:
        if current.running:
            return current
        _stop(home, current)
    report("starting the MLflow page")
    port = _free_port(_last_port(home) or _MLFLOW_PORT)
    url = f"http://127.0.0.1:{port}"
    artifacts = home.mlflow_artifacts.as_uri()
    store = ["--backend-store-uri", local_uri(home), "--artifacts-destination", artifacts]
    listen = ["--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    # The first opening of a database makes its tables, which races with a run that begins.
    with home.lock("mlflow"):
        service = _launch(
            Service("mlflow", url, log=str(home.root / "logs" / "mlflow.log")),
            ["mlflow", "server", *store, *listen],
            home,
            {
                "MLFLOW_DISABLE_TELEMETRY": "true",
                "DO_NOT_TRACK": "true",
                "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
            },
            lambda: _ok(f"{url}/health"),
        )
    write_text_atomically(home.root / "mlflow-port.json", json.dumps({"port": port}))
    return service


def _stop(home: Home, service: Service) -> None:
    if service.name == "prefect":
        _stop_prefect(home, service)
        return
    end(service.processes(), seconds=_STOP_SECONDS)
    # What a dying worker may still have started.
    end(service.processes(), seconds=1.0)


def _stop_prefect(home: Home, service: Service) -> None:
    if not service.running:
        return
    folder = home.prefect
    with _server_lock(folder):
        state = read_state(folder)
        announced = state is not None and state.pid == service.pid
        if announced and _in_use(folder):
            body = {"pid": service.pid, "url": service.url, "keep": False}
            write_text_atomically(folder / "server.json", json.dumps(body))
            return
        end(service.processes(), seconds=_STOP_SECONDS)
        if announced:
            (folder / "server.json").unlink(missing_ok=True)


def _environment(home: Home, api: str) -> dict[str, str]:
    """What a process needs to work for this home with this Prefect server."""
    return {
        "AFFINITY_HOME": str(home.root),
        "PREFECT_API_URL": api,
        "PREFECT_HOME": os.environ.get("PREFECT_HOME", str(home.prefect)),
        "PREFECT_WORKER_QUERY_SECONDS": os.environ.get("PREFECT_WORKER_QUERY_SECONDS", "5"),
        "DO_NOT_TRACK": "1",
        "PYTHONPATH": os.pathsep.join(filter(None, [str(_ROOT), os.environ.get("PYTHONPATH")])),
    }


# -- starting and watching ---------------------------------------------------------------------------


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


def _state(service: Service) -> str:
    if service.pid is None:
        return "external" if _given(service.name) else "stopped"
    if not service.running:
        return "dead"
    if service.name == "worker":
        return "running"
    path = "/api/health" if service.name == "prefect" else "/health"
    return "running" if _ok(f"{service.url}{path}") else "not answering"


def _given(name: str) -> bool:
    variable = {"prefect": "PREFECT_API_URL", "mlflow": "MLFLOW_TRACKING_URI"}.get(name, "")
    return bool(os.environ.get(variable))


def _answers(api: str, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if healthy(api, timeout=2.0):
            return True
        time.sleep(0.2)
    return False


def _worker_online(api: str, name: str, since: datetime) -> bool:
    """Whether the worker has made its pool and reported to it since it was started."""
    rows = _ask(f"{api}/work_pools/{POOL}/workers/filter", {})
    return isinstance(rows, list) and any(
        row["name"] == name and datetime.fromisoformat(row["last_heartbeat_time"]) >= since
        for row in rows
    )


def _ok(url: str) -> bool:
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


def _free_port(preferred: int) -> int:
    """A loopback port that nobody listens on: the preferred one if it is free."""
    for port in (preferred, 0):
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with suppress(OSError):
                probe.bind(("127.0.0.1", port))
                return int(probe.getsockname()[1])
    raise ServiceError("no loopback port can be bound")


@contextmanager
def _server_lock(folder: Path) -> Iterator[None]:
    """Keep runs from starting or stopping the managed server meanwhile."""
    with (folder / "start.lock").open("a") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _in_use(folder: Path) -> bool:
    """Whether runs of the command line use the managed server."""
    with (folder / "users.lock").open("a") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return True
    return False


# -- state -------------------------------------------------------------------------------------------


def _path(home: Home) -> Path:
    return home.root / "services.json"


def _load(home: Home) -> dict[str, Service]:
    """What was started, whether it still runs or not."""
    try:
        rows = json.loads(_path(home).read_text(encoding="utf-8"))["services"]
        return {row["name"]: Service(**row) for row in rows}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def _save(home: Home, services: Mapping[str, Service]) -> None:
    body = {"version": 1, "services": [asdict(service) for service in services.values()]}
    write_text_atomically(_path(home), json.dumps(body, indent=2) + "\n")


def _last_port(home: Home) -> int | None:
    try:
        text = (home.root / "mlflow-port.json").read_text(encoding="utf-8")
        return int(json.loads(text)["port"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
