"""What ``services.json`` says of the services of a home, and whether it still holds."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from flows.processes import identity, marked
from pipeline_lib.artifacts import write_text_atomically
from pipeline_lib.errors import InputError
from pipeline_lib.home import Home

NAMES = ("prefect", "worker", "mlflow")


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


def running(home: Home) -> dict[str, Service]:
    """The services that were started here and run, by name."""
    return {name: service for name, service in load(home).items() if service.running}


def page(home: Home, name: str) -> str | None:
    """Address of a service's page, without a slash at its end; None when it does not run."""
    service = load(home).get(name)
    if service is None or not (service.running or given(name)):
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


def given(name: str) -> bool:
    """Whether the user has a server of that kind already, by their environment."""
    variable = {"prefect": "PREFECT_API_URL", "mlflow": "MLFLOW_TRACKING_URI"}.get(name, "")
    return bool(os.environ.get(variable))


def state_file(home: Home) -> Path:
    """Where the state stands."""
    return home.root / "services.json"


def load(home: Home) -> dict[str, Service]:
    """What was started, whether it still runs or not."""
    try:
        rows = json.loads(state_file(home).read_text(encoding="utf-8"))["services"]
        return {row["name"]: Service(**row) for row in rows}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def save(home: Home, services: Mapping[str, Service]) -> None:
    """Write down what runs."""
    body = {"version": 1, "services": [asdict(service) for service in services.values()]}
    write_text_atomically(state_file(home), json.dumps(body, indent=2) + "\n")
