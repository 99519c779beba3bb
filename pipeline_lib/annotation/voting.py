"""Annotation by nearest neighbours: blocked exact search, then a vote over the neighbours' tags.

For a query q and gallery rows g_1..g_n the neighbours are the k rows of largest score, where the
score is the inner product q'g, the cosine, or minus the squared Euclidean distance. A vote gives
tag w the score sum_{j in N(q)} v_j y_jw with v_j = 1 (majority) or v_j = the similarity (equation
3.7 of Feng's thesis). Ties between equally near rows go to the lower index.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from pipeline_lib.annotation.semantic import unit_rows
from pipeline_lib.errors import InputError
from pipeline_lib.graphs.neighbors import nearest_in_database

Array = NDArray[np.float64]

DISTANCES = ("euclidean", "cosine", "inner")
VOTES = ("majority", "similarity")

_QUERY_TILE = 512
_GALLERY_TILE = 8192


class Neighbors(NamedTuple):
    """The nearest gallery rows of every query, nearest first.

    Attributes
    ----------
    indices : ndarray of shape (n_queries, k)
    scores : ndarray of shape (n_queries, k)
        Decreasing: inner products, cosines, or minus squared Euclidean distances.
    """

    indices: NDArray[np.int64]
    scores: Array


def check_choice(value: str, choices: tuple[str, ...], name: str) -> None:
    """Raise `InputError` when ``value`` is not one of ``choices``."""
    if value not in choices:
        raise InputError(f"{name} is {value!r}", expected="one of " + ", ".join(choices))


def check_neighbors(n_neighbors: int, n_rows: int) -> int:
    """Number of neighbours to use: ``n_neighbors``, at most the gallery's size."""
    if n_neighbors < 1 or int(n_neighbors) != n_neighbors:
        raise InputError(f"n_neighbors is {n_neighbors!r}", expected="a whole number >= 1")
    return min(int(n_neighbors), n_rows)


def nearest_neighbors(
    queries: Array | None,
    gallery: Array,
    n_neighbors: int,
    distance: str = "euclidean",
) -> Neighbors:
    """Exact nearest neighbours with bounded memory.

    Parameters
    ----------
    queries : ndarray of shape (n_queries, d) or None
        None searches the neighbours of every gallery row among the other rows (leave one out).
    gallery : ndarray of shape (n, d)
    n_neighbors : int
        At most this many neighbours are returned; fewer when the gallery is smaller.
    distance : {"euclidean", "cosine", "inner"}

    Returns
    -------
    Neighbors

    Raises
    ------
    InputError
        For an unknown distance, ``n_neighbors`` below 1, a gallery of one row left out, or a
        leave-one-out search by inner product.
    """
    check_choice(distance, DISTANCES, "distance")
    if distance == "inner":
        if queries is None:
            raise InputError("leave one out is not defined by inner product", remedy="use cosine")
        return _largest_products(queries, gallery, check_neighbors(n_neighbors, len(gallery)))
    if distance == "cosine":
        gallery = unit_rows(gallery)
        queries = None if queries is None else unit_rows(queries)
    own = np.arange(len(gallery)) if queries is None else None
    k = check_neighbors(n_neighbors, len(gallery) - (own is not None))
    if k == 0:
        raise InputError("one row has no other row as neighbour", expected="at least two rows")
    indices, squares = nearest_in_database(
        gallery if queries is None else queries, gallery, k, exclude=own
    )
    # Of unit rows the cosine is 1 - d^2 / 2 (a row of zeros is at distance 1: cosine 1/2 at most).
    return Neighbors(indices, 1.0 - 0.5 * squares if distance == "cosine" else -squares)


def _largest_products(queries: Array, gallery: Array, k: int) -> Neighbors:
    """The k gallery rows of largest inner product, in tiles of queries by gallery rows."""
    indices = np.empty((len(queries), k), dtype=np.int64)
    scores = np.empty((len(queries), k))
    for start in range(0, len(queries), _QUERY_TILE):
        block = slice(start, start + _QUERY_TILE)
        rows = queries[block]
        best_index = np.empty((len(rows), 0), dtype=np.int64)
        best_score = np.empty((len(rows), 0))
        for first in range(0, len(gallery), _GALLERY_TILE):
            score = rows @ gallery[first : first + _GALLERY_TILE].T
            row, column = np.nonzero(score >= _threshold(score, best_score, k)[:, None])
            best_index, best_score = _merge(
                best_index, best_score, row, column + first, score[row, column], k
            )
        indices[block], scores[block] = best_index, best_score
    return Neighbors(indices, scores)


def select_nearest(score: Array, k: int) -> Neighbors:
    """The k largest entries of every row of a dense score matrix, ties by lower index."""
    empty = np.empty((len(score), 0))
    row, column = np.nonzero(score >= _threshold(score, empty, k)[:, None])
    return Neighbors(*_merge(empty.astype(np.int64), empty, row, column, score[row, column], k))


def _threshold(score: Array, best: Array, k: int) -> Array:
    """A score below which no entry of this block can enter the best k of its row."""
    if best.shape[1] == k:
        return best[:, -1]
    if score.shape[1] <= k:
        return np.full(len(score), -np.inf)
    return np.partition(score, score.shape[1] - k, axis=1)[:, score.shape[1] - k]


def _merge(
    best_index: NDArray[np.int64],
    best_score: Array,
    row: NDArray[np.int64],
    index: NDArray[np.int64],
    score: Array,
    k: int,
) -> tuple[NDArray[np.int64], Array]:
    """Best k per row of what was kept and new candidates: larger score first, then lower index."""
    n_rows, kept = best_index.shape
    row = np.concatenate([np.repeat(np.arange(n_rows), kept), row])
    index = np.concatenate([best_index.ravel(), index])
    score = np.concatenate([best_score.ravel(), score])
    order = np.lexsort((index, -score, row))
    row = row[order]
    starts = np.searchsorted(row, np.arange(n_rows))
    position = np.arange(len(row)) - starts[row]
    width = min(k, int(np.bincount(row, minlength=n_rows).min()))
    chosen = order[position < width]
    return index[chosen].reshape(n_rows, width), score[chosen].reshape(n_rows, width)


def vote_weights(neighbors: Neighbors, vote: str, distance: str) -> Array:
    """Weight of every neighbour's vote.

    Parameters
    ----------
    neighbors : Neighbors
    vote : {"majority", "similarity"}
        Majority weighs all alike. Similarity takes inner products and cosines as they are, and for
        Euclidean distances exp(-d^2 / s) with s the mean of d^2 over the query's own neighbours
        (scale free; all alike when every distance is 0).
    distance : {"euclidean", "cosine", "inner"}
        What ``neighbors.scores`` are.
    """
    check_choice(vote, VOTES, "vote")
    if vote == "majority":
        return np.ones_like(neighbors.scores)
    if distance != "euclidean":
        return neighbors.scores
    scale = -neighbors.scores.mean(axis=1, keepdims=True)
    return np.exp(neighbors.scores / np.where(scale > 0, scale, 1.0))


def propagate(indices: NDArray[np.int64], weights: Array, tags: sparse.csr_array) -> Array:
    """Scores (n_queries, m): sum over the neighbours of weight times tags.

    Parameters
    ----------
    indices, weights : ndarrays of shape (n_queries, k)
    tags : csr_array of shape (n, m)
    """
    n, k = indices.shape
    operator = sparse.csr_array(
        (weights.ravel(), indices.ravel(), np.arange(0, n * k + 1, k)), shape=(n, tags.shape[0])
    )
    return (operator @ tags).toarray()
