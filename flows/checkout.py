"""Where a worker finds the code of the deployments: a pull step of prefect.yaml."""

from __future__ import annotations

from pathlib import Path


def locate() -> dict[str, str]:
    """Folder that holds this project's packages on the worker's machine.

    Asked where the flow runs, not where it was deployed from: the folder in which somebody happened to
    type ``prefect deploy`` means nothing to a worker.
    """
    return {"directory": str(Path(__file__).resolve().parent.parent)}
