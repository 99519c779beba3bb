"""Ranking by descending score with one rule for ties: the smaller index first."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def descending_order(scores: NDArray[np.floating[Any]]) -> NDArray[np.intp]:
    """Sort each row by descending score; equal scores keep index order.

    numpy's default sort is several times faster than its stable one but leaves ties in any order.
    In the rows that have ties, indices are therefore sorted once more, as the integers
    (number of the tied group) * width + index, which keeps every group in its place.
    """
    keys = -scores
    order = np.argsort(keys, axis=1)
    ranked = np.take_along_axis(keys, order, axis=1)
    differs = ranked[:, 1:] != ranked[:, :-1]
    tied = np.flatnonzero(~differs.all(axis=1))
    if tied.size:
        width = scores.shape[1]
        offset = np.zeros((len(tied), width), dtype=np.intp)
        np.cumsum(differs[tied], axis=1, out=offset[:, 1:])
        offset *= width
        order[tied] = np.sort(order[tied] + offset, axis=1) - offset
    return order


def top_k(scores: NDArray[np.floating[Any]], k: int) -> NDArray[np.intp]:
    """Return the first k columns of `descending_order` without sorting whole rows."""
    n_columns = scores.shape[1]
    if 2 * k >= n_columns:
        return descending_order(scores)[:, :k]
    chosen = np.argpartition(scores, n_columns - k, axis=1)[:, n_columns - k :]
    chosen.sort(axis=1)
    chosen_scores = np.take_along_axis(scores, chosen, axis=1)
    within = np.argsort(-chosen_scores, axis=1, kind="stable")
    chosen = np.take_along_axis(chosen, within, axis=1)
    # A tie across the k-th place leaves the choice of partners to the partition: sort those rows.
    threshold = chosen_scores.min(axis=1, keepdims=True)
    straddling = np.flatnonzero((scores >= threshold).sum(axis=1) > k)
    if straddling.size:
        chosen[straddling] = descending_order(scores[straddling])[:, :k]
    return chosen
