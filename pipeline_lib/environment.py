"""The environment of a run: what is recorded about it, and the threads that BLAS may use."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
import sys
import warnings
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_info, threadpool_limits

COMPUTING_PACKAGES = (
    "numpy",
    "scipy",
    "scikit-learn",
    "polars",
    "pyarrow",
    "joblib",
    "threadpoolctl",
    "h5py",
    "lightgbm",
    "xgboost",
    "implicit",
    "faiss-cpu",
    "scikit-image",
    "pillow",
)
"""Packages whose version a computed value can depend on; those that bring methods come on top."""

_OTHER_PACKAGES = ("affinity-bench", "prefect", "mlflow")
_PLUGINS = "affinity_bench.methods"


def cpu_count() -> int:
    """Processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def set_blas_threads(threads: int) -> None:
    """Set the threads of BLAS, for the whole process, and of OpenMP, for the calling thread.

    OpenMP keeps its limit per thread, so every thread that computes calls this before its first
    computation. Results differ in the last bits between thread counts: the count is recorded with them.
    """
    # Limits reach only libraries that are loaded.
    import scipy.linalg
    import sklearn.utils  # noqa: F401

    del scipy
    threadpool_limits(limits=threads)


def silence_convergence_warnings() -> None:
    """Keep `ConvergenceWarning` off the terminal of a pipeline: it is recorded with each trial instead."""
    from sklearn.exceptions import ConvergenceWarning

    warnings.filterwarnings("ignore", category=ConvergenceWarning)


def package_versions() -> dict[str, str]:
    """Versions of the packages that a run uses, as far as they are installed."""
    return _versions(_OTHER_PACKAGES) | computing_packages()


def blas_threads() -> int:
    """Threads that BLAS uses now."""
    return int(_blas()["blas_threads"])


@cache
def computing_packages() -> dict[str, str]:
    """Versions of the packages that computed values can depend on."""
    plugins = {
        point.dist.name
        for point in importlib.metadata.entry_points(group=_PLUGINS)
        if point.dist is not None
    }
    return _versions((*COMPUTING_PACKAGES, *sorted(plugins)))


def computing_environment() -> dict[str, Any]:
    """What a value computed now can depend on beside its specification, its data and the code.

    Kept with each artifact: names of artifacts leave it out, so that a run may reuse what another
    environment has computed, and a run's own environment is not that of everything it shows.
    """
    return {
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
        **_blas(),
        "packages": computing_packages(),
    }


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
    return {
        "python": platform.python_version(),
        "implementation": sys.implementation.name,
        "platform": platform.platform(),
        "machine": platform.machine(),
        "cpus": cpu_count(),
        **_blas(),
        "packages": package_versions(),
        "code": code_version(),
    }


def _blas() -> dict[str, Any]:
    """Libraries of BLAS, and the threads they use now (the largest number over them)."""
    pools = [pool for pool in threadpool_info() if pool["user_api"] == "blas"]
    return {
        "blas": sorted({f"{pool.get('internal_api')} {pool.get('version')}" for pool in pools}),
        "blas_threads": max((pool["num_threads"] for pool in pools), default=1),
    }


def _versions(names: Iterable[str]) -> dict[str, str]:
    found = {}
    for name in names:
        with suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


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
