"""Scores of predictions that were made elsewhere, by the metrics every method here is judged by.

What the data have decides what is measured: queries with relevance labels a ranking, tags an
annotation, classes a clustering.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline_lib.datasets.container import Dataset
from pipeline_lib.errors import InputError
from pipeline_lib.metrics.annotation import annotation_metrics
from pipeline_lib.metrics.clustering import ari, clustering_accuracy, nmi
from pipeline_lib.metrics.ranking import ranking_metrics
from pipeline_lib.metrics.result import MetricResult, metric_result

CUTOFFS = (1, 3, 5)


def read_predictions(path: Path) -> NDArray[Any]:
    """Read predictions in the order of the data's rows.

    Parameters
    ----------
    path : Path
        A ``.npy`` array, or text with one row a line, its numbers separated by blanks or commas (the
        output of SVM-rank, LIBLINEAR and RankLib's scores alike).

    Returns
    -------
    ndarray of shape (n,) or (n, columns)

    Raises
    ------
    InputError
        If the file is missing, empty, no array of numbers, or a line has another number of values
        than the first.
    """
    if not path.is_file():
        raise InputError("no such file", path=path)
    if path.suffix == ".npy":
        try:
            values = np.load(path, allow_pickle=False)
        except (OSError, ValueError) as error:
            raise InputError(f"not an array of numbers ({error})", path=path) from None
        if values.ndim not in (1, 2) or values.dtype.kind not in "iufb" or not values.size:
            raise InputError(
                f"an array of shape {values.shape} and type {values.dtype}",
                path=path,
                expected="numbers, one row for each row of the data",
            )
        return np.asarray(values)
    rows: list[list[float]] = []
    try:
        with path.open(encoding="utf-8-sig") as file:
            for number, line in enumerate(file, start=1):
                rows.append(_numbers(line, path, number))
                if len(rows[-1]) != len(rows[0]):
                    raise InputError(
                        f"{len(rows[-1])} values",
                        path=path,
                        line=number,
                        expected=f"{len(rows[0])}, as in the first line",
                    )
    except UnicodeDecodeError:
        raise InputError("not a text file", path=path, expected="numbers, or .npy") from None
    if not rows:
        raise InputError("an empty file", path=path)
    table = np.array(rows)
    return table[:, 0] if table.shape[1] == 1 else table


def score(
    data: Dataset,
    predictions: NDArray[Any],
    *,
    definition: str = "letor4",
    cutoffs: Sequence[int] = CUTOFFS,
) -> MetricResult:
    """Score predictions for the rows of a dataset.

    Parameters
    ----------
    data : Dataset
        With ``qid`` and ``y`` (ranking), ``Y`` (annotation), or ``y`` alone (clustering).
    predictions : ndarray
        Scores (n,) of documents, larger ranks first; scores (n, tags) of tags; or the cluster (n,) of
        each row, whole numbers in any coding.
    definition : {"letor4", "letor3", "standard"}, default="letor4"
        Of the ranking metrics.
    cutoffs : sequence of int, default=(1, 3, 5)
        Of the annotation metrics.

    Returns
    -------
    MetricResult
        As `ranking_metrics` and `annotation_metrics`; for a clustering one row, with ``acc``, ``nmi``
        (over the larger entropy) and ``ari``.

    Raises
    ------
    InputError
        If the data have nothing to score by, or the shapes differ.
    """
    y = data.y
    if y is None and data.Y is None:
        raise InputError(f"{data.name} {data.part} has no labels or tags to score by")
    if len(predictions) != len(data):
        raise InputError(
            f"{len(predictions):,} predictions for {len(data):,} rows of {data.name} {data.part}",
            expected="one for each row, in their order",
        )
    if data.Y is not None:
        return annotation_metrics(predictions, data.Y, cutoffs)
    if predictions.ndim != 1:
        raise InputError(f"{predictions.shape[1]} values a row", expected="one")
    if data.qid is not None:
        return ranking_metrics(predictions, np.asarray(y), data.qid, definition=definition)
    if not np.array_equal(predictions, np.round(predictions)):
        raise InputError("a cluster is not a whole number", expected="the cluster of each row")
    clusters = predictions.astype(np.int64)
    measures = {"acc": clustering_accuracy, "nmi": nmi, "ari": ari}
    values = {name: np.array([float(f(np.asarray(y), clusters))]) for name, f in measures.items()}
    return metric_result("part", [data.part], values)


def _numbers(line: str, path: Path, number: int) -> list[float]:
    words = line.replace(",", " ").split()
    if not words:
        raise InputError("an empty line", path=path, line=number, expected="a number")
    values = []
    for word in words:
        try:
            values.append(float(word))
        except ValueError:
            raise InputError(
                f'"{word}" is not a number', path=path, line=number, expected="numbers alone"
            ) from None
    return values
