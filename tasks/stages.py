"""The four stages of a path as Prefect tasks.

Prefect's own result cache and persistence are off: the artifact store is the cache, and nothing but
specifications and references passes between tasks. A stage is not retried: it reads and writes local
files, and a failure that is not transient would only be repeated.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from prefect import Task, task
from prefect.cache_policies import NO_CACHE

from pipeline_lib import stages
from pipeline_lib.artifacts import ArtifactRef
from pipeline_lib.environment import set_blas_threads, silence_convergence_warnings
from pipeline_lib.specs import PathSpec

_prepared = threading.local()


def _prepare() -> None:
    """Set up a worker thread once: one thread of BLAS and OpenMP, convergence recorded, not warned of."""
    if not getattr(_prepared, "done", False):
        set_blas_threads(1)
        silence_convergence_warnings()
        _prepared.done = True


def _stage(name: str) -> Callable[[Callable[..., Any]], Task[..., Any]]:
    return task(
        name=name,
        task_run_name=name + ": {title}",
        cache_policy=NO_CACHE,
        persist_result=False,
        retries=0,
        log_prints=False,
        # No tags: for each of them Prefect asks the server for a concurrency slot, twice a task run.
    )


@_stage("ingest")
def ingest(
    title: str, store: Path, dataset: str, part: str, allow_mismatch: bool, seed: int
) -> ArtifactRef:
    """Bring one part of a dataset into canonical Parquet."""
    return stages.run_ingest(store, dataset, part, allow_mismatch, seed)


@_stage("features")
def features(title: str, store: Path, spec: PathSpec, ingested: stages.Refs) -> list[ArtifactRef]:
    """Make the artifacts of a path's features stage."""
    _prepare()
    return stages.run_features(store, spec, ingested)


@_stage("fit")
def fit(
    title: str,
    store: Path,
    spec: PathSpec,
    ingested: stages.Refs,
    feature_refs: list[ArtifactRef],
) -> ArtifactRef:
    """Fit a path's method over its settings."""
    _prepare()
    return stages.run_fit(store, spec, ingested, feature_refs)


@_stage("evaluate")
def evaluate(
    title: str,
    store: Path,
    spec: PathSpec,
    index: int,
    ingested: stages.Refs,
    feature_refs: list[ArtifactRef],
    fitted: ArtifactRef,
) -> ArtifactRef:
    """Evaluate one chosen trial on the test side."""
    _prepare()
    return stages.run_evaluate(store, spec, index, ingested, feature_refs, fitted)


BY_STAGE: dict[str, Task[..., Any]] = {
    "ingest": ingest,
    "features": features,
    "fit": fit,
    "evaluate": evaluate,
}
"""The task that carries out each stage."""
