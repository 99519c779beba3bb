"""The managed Prefect server, as its users see it: started or reused, and gone when unused.

Prefect's own temporary server prints tracebacks of its shutdown after a flow that completed; this one
writes to a log file, is shared by runs of one home, and ends with the last of them.
"""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

from flows.processes import end, identity
from pipeline_lib.artifacts import write_text_atomically
from pipeline_lib.errors import AffinityError, InputError
from pipeline_lib.home import Home
from pipeline_lib.locking import exclusively

_START_SECONDS = 120.0
_LOOPBACK = "127.0.0.1,localhost"


class ServerError(AffinityError):
    """The managed server could not be started."""


@dataclass(frozen=True)
class ServerState:
    """A server that has announced itself.

    Attributes
    ----------
    pid : int
    began : str or None
        Identity of that process, see `flows.processes.identity`.
    url : str
    keep : bool
        Whether it stays when unused.
    """

    pid: int
    began: str | None
    url: str
    keep: bool

    @property
    def api(self) -> str:
        """Address of the API."""
        return f"{self.url}/api"

    @property
    def running(self) -> bool:
        """Whether the process that announced itself is there; another one may have its id by now."""
        return self.began is not None and identity(self.pid) == self.began

    def write(self, folder: Path) -> None:
        """Announce it."""
        write_text_atomically(folder / "server.json", json.dumps(asdict(self)))


class PrefectServer:
    """Use of a Prefect server for the time of a run.

    Parameters
    ----------
    home : Home
        Whose managed server to use; ``PREFECT_API_URL``, when set, is used instead.

    Notes
    -----
    `begin` returns at once while the server starts; `wait` blocks until it answers.
    """

    def __init__(self, home: Home) -> None:
        self.folder = home.prefect
        self.given = os.environ.get("PREFECT_API_URL")
        self._lock: IO[str] | None = None
        self._started: subprocess.Popen[bytes] | None = None

    def begin(self) -> None:
        """Register as a user, and start the server unless one runs."""
        bypass_proxies()
        if self.given:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        self._lock = (self.folder / "users.lock").open("a")
        fcntl.flock(self._lock, fcntl.LOCK_SH)
        with exclusively(self.folder / "start.lock"):
            if running_state(self.folder) is None:
                self._started = spawn(self.folder, keep=False)

    def wait(self) -> str:
        """Wait for the server; returns the address of its API.

        Raises
        ------
        InputError
            If ``PREFECT_API_URL`` is set and nothing answers there.
        ServerError
            If the managed server does not come up.
        """
        if self.given:
            if not healthy(self.given, timeout=10.0):
                raise InputError(
                    f"no Prefect server answers at PREFECT_API_URL={self.given}",
                    remedy="start it, or unset PREFECT_API_URL to use the managed one",
                )
            return self.given
        state = wait_for_state(self.folder, self._started)
        return state.api

    def end(self) -> None:
        """Stop using the server, and stop it when nobody else uses it."""
        if self._lock is None:
            return
        with exclusively(self.folder / "start.lock"):
            state = read_state(self.folder)
            self._lock.close()
            self._lock = None
            if state is not None and state.keep:
                return
            with (self.folder / "users.lock").open("a") as handle:
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except OSError:
                    return
                doomed = {state.pid} if state is not None and state.running else set()
                if self._started is not None:
                    doomed.add(self._started.pid)
                end(doomed, seconds=5.0)
                (self.folder / "server.json").unlink(missing_ok=True)
        if self._started is not None:
            with suppress(subprocess.TimeoutExpired):
                self._started.wait(timeout=5.0)


def spawn(folder: Path, *, keep: bool) -> subprocess.Popen[bytes]:
    """Start a server process in a session of its own, so that Ctrl-C does not reach it."""
    (folder / "server.json").unlink(missing_ok=True)
    command = [sys.executable, "-m", "flows.server_process", str(folder)]
    environment = dict(os.environ)
    # The package must be importable from any current folder, installed or not.
    root = str(Path(__file__).resolve().parent.parent)
    environment["PYTHONPATH"] = os.pathsep.join(
        [root, *filter(None, [environment.get("PYTHONPATH")])]
    )
    with (folder / "server.log").open("ab") as log:
        return subprocess.Popen(
            [*command, "--keep"] if keep else command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=environment,
            start_new_session=True,
        )


def wait_for_state(folder: Path, started: subprocess.Popen[bytes] | None) -> ServerState:
    """Wait until the server has announced itself and answers."""
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline:
        state = read_state(folder)
        if state is not None and healthy(state.api, timeout=2.0):
            return state
        if started is not None and started.poll() is not None:
            break
        time.sleep(0.1)
    raise ServerError(
        f"the Prefect server did not start; its log is {folder / 'server.log'} "
        "(run with --engine plain to do without)"
    )


def read_state(folder: Path) -> ServerState | None:
    """What a server has announced about itself, whether it still runs or not."""
    try:
        state = json.loads((folder / "server.json").read_text(encoding="utf-8"))
        return ServerState(
            int(state["pid"]), state.get("began"), str(state["url"]), bool(state["keep"])
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def running_state(folder: Path) -> ServerState | None:
    """The announced server if its process lives."""
    state = read_state(folder)
    return state if state is not None and state.running else None


def healthy(api: str, timeout: float) -> bool:
    """Whether a Prefect API answers."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"{api.rstrip('/')}/health", timeout=timeout) as answer:
            return bool(answer.status == 200)
    except (OSError, urllib.error.URLError, ValueError):
        return False


def bypass_proxies() -> None:
    """Keep requests to this machine off any HTTP proxy that is configured."""
    for name in ("NO_PROXY", "no_proxy"):
        current = os.environ.get(name, "")
        if "127.0.0.1" not in current:
            os.environ[name] = f"{current},{_LOOPBACK}" if current else _LOOPBACK
