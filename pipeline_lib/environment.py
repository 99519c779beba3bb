"""The environment of a run: what is recorded about it, and the threads that BLAS may use."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
import sys
import warnings
from functools import cache
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_info, threadpool_limits

RECORDED_PACKAGES = (
    "affinity-bench",
    "numpy",
    "scipy",
    "scikit-learn",
    "polars",
    "pyarrow",
    "prefect",
    "mlflow",
    "lightgbm",
    "xgboost",
    "implicit",
    "faiss-cpu",
    "scikit-image",
    "pillow",
)

_limits: list[threadpool_limits] = []


def cpu_count() -> int:
    """Processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def set_blas_threads(threads: int) -> None:
    """Set the threads of BLAS and OpenMP once for the whole process.

    Limits are process-wide, and results differ in the last bits between thread counts, so the count is
    set before the first computation and recorded with every result.
    """
    # Limits reach only libraries that are loaded.
    import scipy.linalg
    import sklearn.utils  # noqa: F401

    del scipy
    _limits.append(threadpool_limits(limits=threads))


def silence_convergence_warnings() -> None:
    """Keep `ConvergenceWarning` off the terminal of a pipeline: it is recorded with each trial instead."""
    from sklearn.exceptions import ConvergenceWarning

    warnings.filterwarnings("ignore", category=ConvergenceWarning)


def blas_threads() -> int:
    """Threads that BLAS uses now (the largest over the loaded libraries)."""
    return max(
        (pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"), default=1
    )


@cache
def package_versions() -> dict[str, str]:
    """Versions of the packages that results can depend on."""
    found = {}
    for name in RECORDED_PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


@cache
def code_version() -> dict[str, Any]:
    """Version of this project, and the commit of the checkout it runs from, if it does."""
    try:
        version = importlib.metadata.version("affinity-bench")
    except importlib.metadata.PackageNotFoundError:
        version = "0+unknown"
    root = Path(__file__).resolve().parent.parent
    commit = _git(root, "rev-parse", "HEAD") if (root / ".git").exists() else None
    dirty = bool(_git(root, "status", "--porcelain", "--untracked-files=no")) if commit else None
    return {"version": version, "commit": commit, "dirty": dirty}


def environment_record() -> dict[str, Any]:
    """Everything about the environment that a result row refers to."""
    libraries = sorted(
        {
            f"{pool.get('internal_api')} {pool.get('version')}"
            for pool in threadpool_info()
            if pool["user_api"] == "blas"
        }
    )
    return {
        "python": platform.python_version(),
        "implementation": sys.implementation.name,
        "platform": platform.platform(),
        "machine": platform.machine(),
        "cpus": cpu_count(),
        "blas": libraries,
        "blas_threads": blas_threads(),
        "packages": package_versions(),
        "code": code_version(),
    }


def _git(root: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(root), *arguments],
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
