"""Prefect server, worker and MLflow page of one home: started, stopped and looked at together.

All three listen on loopback only and outlive the command that starts them. ``<home>/services.json``
says what was started; a process counts as ours only when its id and the time it began both agree, so
what a reboot left behind in that file is recognised. Servers that a team has already
(``PREFECT_API_URL``, ``MLFLOW_TRACKING_URI``) are used, and neither started nor stopped here.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from flows.server import bypass_proxies
from flows.service_launch import (
    ROOT,
    answers,
    environment,
    start_mlflow,
    start_prefect,
    start_worker,
    stop,
)
from flows.service_state import NAMES, Service, api_url, given, load, save, state_file
from pipeline_lib.errors import InputError
from pipeline_lib.home import Home


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
        known = load(home)
        found = {service.pid for service in known.values() if service.running}
        try:
            with ThreadPoolExecutor(1) as beside:
                mlflow = beside.submit(start_mlflow, home, known.get("mlflow"), report)
                try:
                    known["prefect"] = server = start_prefect(home, report)
                    save(home, known)
                    known["worker"] = start_worker(home, server, known.get("worker"), report)
                finally:
                    known["mlflow"] = mlflow.result()
            save(home, known)
        except BaseException:
            for service in known.values():
                if service.running and service.pid not in found:
                    stop(home, service)
            save(home, {n: s for n, s in known.items() if s.pid in found})
            raise
        return [known[name] for name in NAMES]


def down(home: Home) -> dict[str, str]:
    """Stop what `up` started.

    Flow runs in progress are interrupted first and record that. A Prefect server that runs of the
    command line use right now stays until the last of them ends.

    Returns
    -------
    dict of str
        For each service that ran ``stopped``, or ``in use``.
    """
    with home.lock("services"):
        known = load(home)
        ran = [name for name in NAMES if name in known and known[name].running]
        for name in ("worker", "mlflow", "prefect"):
            if name in known:
                stop(home, known[name])
        state_file(home).unlink(missing_ok=True)
    return {name: "in use" if known[name].running else "stopped" for name in ran}


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
    known = load(home)
    services = [known.get(name, Service(name)) for name in NAMES]
    return [
        {
            "name": service.name,
            "state": _state_of(service),
            "url": service.url,
            "pid": service.pid,
            "log": service.log,
        }
        for service in services
    ]


def deploy(home: Home, file: Path | None = None) -> int:
    """Register the deployments of a ``prefect.yaml`` with the server; returns Prefect's exit status.

    Parameters
    ----------
    home : Home
    file : Path, optional
        Default: the one of this project.
    """
    chosen = file or ROOT / "prefect.yaml"
    if not chosen.is_file():
        raise InputError("no such file", path=chosen, remedy="name one with --file")
    arguments = ["--no-prompt", "deploy", "--all", "--prefect-file", str(chosen.resolve())]
    return subprocess.run(
        [sys.executable, "-m", "prefect", *arguments],
        # Entrypoints are relative to the folder that holds the packages.
        cwd=ROOT,
        env={**os.environ, **environment(home, api_url(home))},
        stdin=subprocess.DEVNULL,
        check=False,
    ).returncode


def _state_of(service: Service) -> str:
    if service.pid is None:
        return "external" if given(service.name) else "stopped"
    if not service.running:
        return "dead"
    if service.name == "worker":
        return "running"
    path = "/api/health" if service.name == "prefect" else "/health"
    return "running" if answers(f"{service.url}{path}") else "not answering"
