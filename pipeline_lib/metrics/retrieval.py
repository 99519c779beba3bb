"""Metrics of retrieval by example: every item of the query's class is relevant."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pipeline_lib.errors import InputError
from pipeline_lib.metrics.checks import finite_scores, labels_of_length, valid_cutoffs
from pipeline_lib.metrics.ordering import descending_order
from pipeline_lib.metrics.result import MetricResult, metric_result

Query = int | Sequence[int] | NDArray[np.integer[Any]]

_MAX_CELLS = 1 << 22
"""Scores ranked at a time: bounds the temporaries to about 200 MB however many queries there are."""


def retrieval_metrics(
    scores: ArrayLike,
    labels: ArrayLike,
    queries: Sequence[Query] | NDArray[np.integer[Any]],
    cutoffs: int | Sequence[int],
    count_query: bool = True,
) -> MetricResult:
    """Score the ranking of a whole database for each of several queries.

    An item is relevant when it has the query's label. With h_k relevant items among the first k
    and R relevant items in all:

    - P@K = h_K / K; R@K = h_K / R;
    - AP = mean of h_r / r over the ranks r of the R relevant items;
    - bull's-eye score = h_{2R} / R.

    With `count_query` (the protocol of the published tables) the query's own points are retrieved
    first, whatever their scores, and count as relevant; R is then the size of the class. Without
    it they are taken out of the ranking, and R is what remains of the class.

    Parameters
    ----------
    scores : array-like of shape (n_queries, n)
        Nearness of each item to each query, larger is nearer; finite. Equal scores rank by index:
        methods that order ties otherwise do so in the scores.
    labels : array-like of shape (n,)
        Class of each item, integers or strings.
    queries : sequence of length n_queries
        For each row of scores the index of the query in the database, or a sequence of indices for
        a query of several points, which must share one label.
    cutoffs : int or sequence of int
        Values of K, each at most the number of items ranked.
    count_query : bool, default=True
        Whether the query is part of the ranking.

    Returns
    -------
    MetricResult
        One row per query in the given order: ``query`` (its index; for queries of several points
        the indices joined by ``+``), ``p_at_K`` and ``recall_at_K`` per cut-off, ``map`` (the
        query's AP), ``bulls_eye``. A query with nothing to find (R = 0) is null in every column and
        left out of the means.

    Raises
    ------
    InputError
        If shapes differ, a score is not finite, a query is no index of the database or mixes
        labels, or a cut-off is out of range.
    """
    matrix = finite_scores(scores, ndim=2)
    n_queries, n = matrix.shape
    codes = np.unique(labels_of_length(labels, n, name="labels"), return_inverse=True)[1]
    rows, points = _query_points(queries, n_queries, n)
    first = np.unique(rows, return_index=True)[1]
    query_code = codes[points[first]]
    mixed = codes[points] != query_code[rows]
    if mixed.any():
        raise InputError(
            f"query {int(rows[mixed][0])} has points of different labels",
            expected="points of one class",
        )
    n_points = np.bincount(rows)
    ranked_items = n if count_query else n - int(n_points.max())
    ks = valid_cutoffs(cutoffs, ranked_items)

    class_size = np.bincount(codes)[query_code]
    n_relevant = class_size if count_query else class_size - n_points
    columns = {name: np.full(n_queries, np.nan) for name in _names(ks)}
    step = max(1, _MAX_CELLS // n)
    for begin in range(0, n_queries, step):
        block = slice(begin, min(begin + step, n_queries))
        inside = (rows >= block.start) & (rows < block.stop)
        own = rows[inside] - block.start, points[inside]
        keys = matrix[block].copy()
        keys[own] = np.inf if count_query else -np.inf
        relevant = codes == query_code[block, None]
        relevant[own] = count_query
        ranked = np.take_along_axis(relevant, descending_order(keys), axis=1)
        for name, values in _scores_of_lists(ranked, n_relevant[block], ks).items():
            columns[name][block] = values
    return metric_result("query", _query_names(rows, points, n_points), columns)


def _names(ks: list[int]) -> list[str]:
    return [*(f"p_at_{k}" for k in ks), *(f"recall_at_{k}" for k in ks), "map", "bulls_eye"]


def _scores_of_lists(
    ranked: NDArray[np.bool_], n_relevant: NDArray[np.intp], ks: list[int]
) -> dict[str, NDArray[np.float64]]:
    """Metrics from relevance in ranked order, (queries, ranks); NaN where nothing is relevant."""
    n = ranked.shape[1]
    hits = np.cumsum(ranked, axis=1, dtype=np.int32)
    to_find = np.where(n_relevant > 0, n_relevant, np.nan)
    bulls_eye_rank = np.clip(2 * n_relevant, 1, n)
    in_bulls_eye = np.take_along_axis(hits, bulls_eye_rank[:, None] - 1, axis=1)[:, 0]
    precision_sum = np.sum(hits / np.arange(1, n + 1), axis=1, where=ranked)
    defined = to_find / to_find  # 1, or NaN for a query with nothing to find
    return {
        **{f"p_at_{k}": hits[:, k - 1] / k * defined for k in ks},
        **{f"recall_at_{k}": hits[:, k - 1] / to_find for k in ks},
        "map": precision_sum / to_find,
        "bulls_eye": in_bulls_eye / to_find,
    }


def _query_points(
    queries: Sequence[Query] | NDArray[np.integer[Any]], n_queries: int, n: int
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Flatten queries to (row of scores, index of the point), rows ascending."""
    if len(queries) != n_queries:
        raise InputError(f"{len(queries)} queries", expected=f"{n_queries}, one per row of scores")
    points = [np.unique(np.atleast_1d(np.asarray(query))) for query in queries]
    for row, indices in enumerate(points):
        if indices.size == 0 or indices.dtype.kind not in "iu":
            raise InputError(f"query {row} is {queries[row]!r}", expected="one or more indices")
        if indices[0] < 0 or indices[-1] >= n:
            raise InputError(
                f"query {row} is {queries[row]!r}", expected=f"indices from 0 to {n - 1}"
            )
    rows = np.repeat(np.arange(n_queries), [len(indices) for indices in points])
    return rows, np.concatenate(points).astype(np.intp)


def _query_names(
    rows: NDArray[np.intp], points: NDArray[np.intp], n_points: NDArray[np.intp]
) -> NDArray[Any] | list[str]:
    if (n_points == 1).all():
        return points
    return ["+".join(map(str, part)) for part in np.split(points, np.cumsum(n_points)[:-1])]
