"""Where a user's results live: the home folder and what stands in it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pipeline_lib.errors import InputError
from pipeline_lib.locking import exclusively


@dataclass(frozen=True)
class Home:
    """The folder that holds the artifact store, the runs, the MLflow database and Prefect's files.

    Attributes
    ----------
    root : Path
        Absolute path of the folder.
    """

    root: Path

    @property
    def store(self) -> Path:
        """Artifacts of the stages, shared by all runs."""
        return self.root / "store"

    @property
    def runs(self) -> Path:
        """One folder a run: manifest, results, per-item values, report."""
        return self.root / "runs"

    @property
    def mlflow_database(self) -> Path:
        """SQLite database of the local MLflow tracking store."""
        return self.root / "mlflow.db"

    @property
    def mlflow_artifacts(self) -> Path:
        """Files logged to the local MLflow tracking store."""
        return self.root / "mlflow-artifacts"

    @property
    def prefect(self) -> Path:
        """Home of the managed Prefect server."""
        return self.root / "prefect"

    @contextmanager
    def lock(self, name: str) -> Iterator[None]:
        """Hold a named lock against other processes (and other threads) that use this home."""
        folder = self.root / "locks"
        folder.mkdir(parents=True, exist_ok=True)
        with exclusively(folder / f"{name}.lock"):
            yield


def resolve_home(home: str | Path | None = None) -> Home:
    """Find the home folder, and make it.

    Parameters
    ----------
    home : path, optional
        A folder to use. Default: ``$AFFINITY_HOME``; else ``.affinity`` beside the nearest
        ``pyproject.toml`` at or above the current folder; else ``.affinity`` in the current folder.

    Raises
    ------
    InputError
        If the folder cannot be made or written.
    """
    chosen = home or os.environ.get("AFFINITY_HOME") or _default_root()
    root = Path(chosen).expanduser().absolute()
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"the home folder cannot be made ({error.strerror})",
            path=root,
            remedy="set AFFINITY_HOME to a folder you can write",
        ) from None
    if not os.access(root, os.W_OK):
        raise InputError(
            "the home folder cannot be written",
            path=root,
            remedy="set AFFINITY_HOME to a folder you can write",
        )
    return Home(root)


def database_path(path: Path) -> str:
    """Write a path so that it can stand in the address of a SQLite database.

    Only what such an address would read otherwise is escaped: MLflow also makes the folder of the path
    as it stands there, so a letter escaped without need leaves a stray folder beside the home.
    """
    return str(path).replace("%", "%25").replace("?", "%3F")


def _default_root() -> Path:
    here = Path.cwd()
    for folder in (here, *here.parents):
        if (folder / "pyproject.toml").is_file():
            return folder / ".affinity"
    return here / ".affinity"
