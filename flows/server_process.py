"""The process of the managed Prefect server: loopback only, ends when nobody uses it any more.

Run as ``python -m flows.server_process STATE_FOLDER [--keep]``. The folder holds ``users.lock``, on which
every run holds a shared lock while it uses the server. The process watches that lock: once nobody has
held it for some seconds (a run that was killed cannot say goodbye), it ends by itself. ``--keep`` is
for ``affinity services up``: no watching, and the scheduler on.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import socket
import sys
import threading
import time
from pathlib import Path

from flows.processes import collect_often, identity
from pipeline_lib.home import database_path

GRACE_SECONDS = 10.0
_PORTS = (4200, 0)
_BACKLOG = 2048


def main() -> None:
    """Serve until told to end, or until unused."""
    folder = Path(sys.argv[1])
    keep = "--keep" in sys.argv[2:]
    listener = _listen(folder)
    host, port = listener.getsockname()[:2]
    _configure(folder, host, port, keep=keep)

    import uvicorn
    from prefect.server.api.server import create_app

    app = create_app(webserver_only=not keep, final=True)
    config = uvicorn.Config(
        app, log_level="error", lifespan="on", timeout_graceful_shutdown=2, timeout_keep_alive=30
    )

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            collect_often()

    server = Server(config)
    if not keep:
        watcher = threading.Thread(target=_end_when_unused, args=(server, folder), daemon=True)
        watcher.start()
    _announce(folder, host, port, keep=keep)
    server.run(sockets=[listener])


def _listen(folder: Path) -> socket.socket:
    """Take a loopback port: the one of last time if it is free, so that bookmarks keep working.

    It listens at once: two processes may both bind a port that nobody listens on yet, and the one that
    comes second would take the answers of the other's server for its own.
    """
    last = _last_port(folder)
    for port in (*((last,) if last else ()), *_PORTS):
        # Named as TCP, so that asyncio sends its answers without delay; else each takes 40 ms more.
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("127.0.0.1", port))
            listener.listen(_BACKLOG)
        except OSError:
            listener.close()
            continue
        return listener
    raise SystemExit("no loopback port can be bound")


def _last_port(folder: Path) -> int | None:
    try:
        return int(json.loads((folder / "port.json").read_text(encoding="utf-8"))["port"])
    except (OSError, ValueError, KeyError):
        return None


def _configure(folder: Path, host: str, port: int, *, keep: bool) -> None:
    """Set Prefect's settings; they are read when Prefect is imported."""
    database = database_path(folder / "prefect.db")
    for name in list(os.environ):
        if name.startswith("PREFECT_"):
            del os.environ[name]
    os.environ.update(
        PREFECT_HOME=str(folder),
        PREFECT_SERVER_DATABASE_CONNECTION_URL=f"sqlite+aiosqlite:///{database}",
        PREFECT_SERVER_API_HOST=host,
        PREFECT_SERVER_API_PORT=str(port),
        PREFECT_SERVER_ANALYTICS_ENABLED="false",
        PREFECT_SERVER_LOGGING_LEVEL="ERROR",
        PREFECT_LOGGING_LEVEL="ERROR",
        DO_NOT_TRACK="1",
        # By default each state of each task run is a transaction of its own, and twenty events are one,
        # which takes more of the processor than they are worth; seconds' worth of them at once are as
        # good on the page.
        PREFECT_SERVER_SERVICES_EVENT_PERSISTER_BATCH_SIZE="500",
        PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_BATCH_SIZE="200",
        PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_FLUSH_INTERVAL="1",
    )
    if not keep:
        os.environ["PREFECT_SERVER_SERVICES_SCHEDULER_ENABLED"] = "false"
        os.environ["PREFECT_SERVER_SERVICES_LATE_RUNS_ENABLED"] = "false"


def _announce(folder: Path, host: str, port: int, *, keep: bool) -> None:
    (folder / "port.json").write_text(json.dumps({"port": port}), encoding="utf-8")
    pid = os.getpid()
    state = {"pid": pid, "began": identity(pid), "url": f"http://{host}:{port}", "keep": keep}
    sibling = folder / ".server.json.partial"
    sibling.write_text(json.dumps(state), encoding="utf-8")
    sibling.replace(folder / "server.json")


def _end_when_unused(server: object, folder: Path) -> None:
    unused_since: float | None = None
    while True:
        time.sleep(1.0)
        with (folder / "users.lock").open("a") as handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                unused_since = None
                continue
        unused_since = unused_since or time.monotonic()
        if time.monotonic() - unused_since > GRACE_SECONDS:
            server.should_exit = True  # type: ignore[attr-defined]
            time.sleep(5.0)
            os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()
