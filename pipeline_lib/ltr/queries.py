"""Validation of learning-to-rank data: one row per document, grouped by query."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pipeline_lib.errors import InputError


class RankingLabels(NamedTuple):
    """Checked labels.

    Attributes
    ----------
    y : ndarray of shape (n,), float64
        Relevance labels, finite.
    query : ndarray of shape (n,), intp
        Number of each row's query, 0..n_queries-1 in the sorted order of the ids.
    n_queries : int
    """

    y: NDArray[np.float64]
    query: NDArray[np.intp]
    n_queries: int


def check_labels(y: ArrayLike, qid: ArrayLike, n_rows: int) -> RankingLabels:
    """Check labels and query ids of ``n_rows`` documents; rows of a query may come in any order.

    Raises
    ------
    InputError
        When lengths differ or a label is not a finite number.
    """
    try:
        labels = np.asarray(y, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError("y cannot be read as numbers", expected="one label per row") from error
    ids = np.asarray(qid)
    for name, values in (("y", labels), ("qid", ids)):
        if values.ndim != 1 or len(values) != n_rows:
            raise InputError(
                f"{name} has shape {values.shape}", expected=f"one value for each of {n_rows} rows"
            )
    if not np.isfinite(labels).all():
        raise InputError("y contains NaN or infinite values", expected="finite labels")
    if ids.dtype.kind == "f" and not np.isfinite(ids).all():
        raise InputError("qid contains NaN or infinite values", expected="query ids")
    values, query = np.unique(ids, return_inverse=True)
    return RankingLabels(labels, query.reshape(-1), len(values))
