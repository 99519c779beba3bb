"""Rankings of a run and the judgements behind them as TREC files, for other people's tools."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pipeline_lib.artifacts import Artifact, ArtifactRef, ArtifactStore
from pipeline_lib.errors import InputError
from pipeline_lib.metrics.trec import write_qrels, write_trec_run
from pipeline_lib.results import RunRecord


def export_trec(record: RunRecord, store: ArtifactStore, folder: Path) -> list[Path]:
    """Write the rankings of every evaluated row, and the judgements they are measured by.

    ``<folder>/<problem>/<split>[-<repetition>]/`` gets ``qrels.txt`` and ``<label>.run`` for each row.
    Documents are named by their ids where they have ids that are unique within a query, else ``d`` and
    their row. Learning to rank exports whole rankings; image retrieval the places that were kept, with
    images of the query's class as relevant. Other problems have no rankings of documents.

    Parameters
    ----------
    record : RunRecord
    store : ArtifactStore
        Holds the run's artifacts.
    folder : Path

    Returns
    -------
    list of Path
        The files written.

    Raises
    ------
    InputError
        If the run has no rankings.
    ArtifactError
        If an artifact is not there any more.
    """
    written: list[Path] = []
    kinds = {problem.title: problem.kind for problem in record.suite.problems}
    judged: set[Path] = set()
    for path in record.manifest.get("paths", ()):
        steps = [step for step in path["steps"] if step["stage"] == "evaluate"]
        kind = kinds[path["problem"]]
        if not steps or kind not in ("ltr", "retrieval"):
            continue
        evaluated = store.open(ArtifactRef.of(steps[0]["artifact"]))
        place = folder / _file_name(path["problem"]) / _split(path["spec"])
        place.mkdir(parents=True, exist_ok=True)
        run = place / f"{_file_name(path['label'])}.run"
        predictions = evaluated.table("predictions")
        if kind == "ltr":
            qid, documents, scores = _documents(predictions)
            judgements = qid, documents, predictions["y"].to_numpy()
        else:
            qid, documents, scores = _images(predictions)
            judgements = _same_class(path, store, np.unique(qid))
        write_trec_run(run, qid, documents, scores, _file_name(path["label"]))
        written.append(run)
        if place not in judged:
            judged.add(place)
            write_qrels(place / "qrels.txt", *judgements)
            written.append(place / "qrels.txt")
    if not written:
        raise InputError(
            f"run {record.id} has no rankings of documents",
            expected="learning to rank or retrieval, run by this version",
        )
    return written


def _documents(predictions: pl.DataFrame) -> tuple[NDArray[Any], NDArray[np.str_], NDArray[Any]]:
    rows = np.array([f"d{row}" for row in range(len(predictions))])
    names = rows
    if "id" in predictions.columns and not predictions.select("qid", "id").is_duplicated().any():
        ids = predictions["id"].to_numpy().astype(str)
        if all(len(name.split()) == 1 for name in ids):
            names = ids
    return predictions["qid"].to_numpy(), names, predictions["score"].to_numpy()


def _images(predictions: pl.DataFrame) -> tuple[NDArray[Any], NDArray[np.str_], NDArray[Any]]:
    names = np.array([f"d{image}" for image in predictions["image"]])
    return predictions["query"].to_numpy(), names, -1.0 - predictions["place"].to_numpy()


def _same_class(
    path: Mapping[str, Any], store: ArtifactStore, queries: NDArray[Any]
) -> tuple[NDArray[Any], NDArray[np.str_], NDArray[Any]]:
    y = _points(path, store).array("y")
    relevant = [np.flatnonzero(y == y[query]) for query in queries]
    qid = np.repeat(queries, [len(images) for images in relevant])
    names = np.array([f"d{image}" for images in relevant for image in images])
    return qid, names, np.ones(len(qid), dtype=np.int64)


def _points(path: Mapping[str, Any], store: ArtifactStore) -> Artifact:
    def opened() -> Iterator[Artifact]:
        for step in path["steps"]:
            if step["stage"] == "features":
                yield store.open(ArtifactRef.of(step["artifact"]))

    return next(artifact for artifact in opened() if "y" in artifact.array_names())


def _split(spec: Mapping[str, Any]) -> str:
    name = _file_name(spec["split"])
    return f"{name}-{spec['repetition']}" if spec["repetition"] else name


def _file_name(text: str) -> str:
    """Name without what a file system or a TREC file would stumble over."""
    return re.sub(r"[^\w.=+-]+", "-", text).strip("-")
