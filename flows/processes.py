"""Processes of this machine by identity, and the end of all that belong together.

A process id alone says little: after a reboot or a long time it belongs to another process. An
identity is the id together with the time the process began. What was started together carries a mark
in its environment, which children inherit: so the processes of a service are found even when the one
that started them is gone.
"""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import time
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path

MARK = "AFFINITY_SERVICES_MARK"
"""Environment variable that the processes of one set of services have in common."""

_PROC = Path("/proc")


def identity(pid: int) -> str | None:
    """Identity of a process; None when it does not exist or has ended.

    Two processes that have one id at different times have different identities.
    """
    if (_PROC / "self" / "stat").exists():
        try:
            # The second field, the command's name in brackets, may hold spaces and brackets.
            fields = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            return None
        state, began = fields[0], fields[19]
        return None if state in "ZX" else f"{_boot_id()}/{began}"
    shown = _ps("-o", "state=,lstart=", "-p", str(pid)).split(maxsplit=1)
    return None if len(shown) < 2 or shown[0].startswith("Z") else " ".join(shown[1].split())


def marked(mark: str, roots: Iterable[int] = ()) -> set[int]:
    """Processes of this user that carry a mark.

    Where environments of other processes cannot be read (outside Linux), the descendants of `roots`
    stand in for them.
    """
    if not (_PROC / "self" / "environ").exists():
        return _descendants(roots)
    wanted = f"{MARK}={mark}".encode()
    found = set()
    for entry in _PROC.iterdir():
        if not entry.name.isdigit():
            continue
        with suppress(OSError):
            if wanted in (entry / "environ").read_bytes().split(b"\0"):
                found.add(int(entry.name))
    return found - {os.getpid()}


def end(pids: Iterable[int], *, seconds: float) -> None:
    """End processes politely, and by force those that are still there after some seconds."""
    alive = {pid: name for pid in pids if (name := identity(pid)) is not None}
    for number, patience in ((signal.SIGTERM, seconds), (signal.SIGKILL, 5.0)):
        _send(alive, number)
        deadline = time.monotonic() + patience
        while alive and time.monotonic() < deadline:
            for pid in list(alive):
                # A child of ours stays a zombie until it is waited for.
                with suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)
                if identity(pid) != alive[pid]:
                    del alive[pid]
            time.sleep(0.05)


def _send(alive: dict[int, str], number: int) -> None:
    for pid, name in alive.items():
        if identity(pid) == name:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)


def _descendants(roots: Iterable[int]) -> set[int]:
    children: dict[int, list[int]] = {}
    for line in _ps("-A", "-o", "pid=,ppid=").splitlines():
        pid, parent = map(int, line.split())
        children.setdefault(parent, []).append(pid)
    found: set[int] = set()
    waiting = list(roots)
    while waiting:
        pid = waiting.pop()
        if pid not in found:
            found.add(pid)
            waiting.extend(children.get(pid, []))
    return found


def _ps(*arguments: str) -> str:
    done = subprocess.run(["ps", *arguments], capture_output=True, text=True, check=False)
    return done.stdout


@cache
def _boot_id() -> str:
    try:
        return (_PROC / "sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def collect_often() -> None:
    """Keep the memory of a process level that serves for weeks; called once it has imported what it uses.

    Prefect leaves large but few objects in reference cycles, half a megabyte a flow run (clients with
    their TLS contexts). Python counts objects, and waits with a full collection until what is new is
    a quarter of what lives, which takes tens of flow runs. What lives now is exempt from then on, so
    that full collections come often and take milliseconds.
    """
    gc.collect()
    gc.freeze()
    gc.collect()  # the quarter is of what the last collection left
    gc.set_threshold(700, 2, 1)
