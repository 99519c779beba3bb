"""tKNN: a vote of the images with the most similar observed tags."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from pipeline_lib.completion.base import TagCompleter, check_count

Array = NDArray[np.float64]

_BLOCK_ENTRIES = 2_000_000


class TagNeighbors(TagCompleter):
    """Majority vote of the nearest images in the space of tags (tKNN).

    q_ij = (1 / k) sum_{a among the k nearest of i} d_aj, nearness being the cosine of the observed
    tag vectors, the image itself left out.

    Tag vectors are short, so that many images are equally near. Where more of them tie for the last
    places than there are places, they share these places in equal parts (the expected vote under
    random tie-breaking): the result does not depend on the order of the images.

    Parameters
    ----------
    n_neighbors : int, default=200
        k, cut to n - 1.

    Attributes
    ----------
    scores_ : ndarray of shape (n, m)

    Notes
    -----
    Images with equal tags have equal neighbours, so the work is done once per distinct tag vector:
    O(u^2) cosines for u of them, in blocks of rows.

    References
    ----------
    Feng, thesis, section 4.7.3.1.
    """

    def __init__(self, n_neighbors: int = 200) -> None:
        self.n_neighbors = n_neighbors

    def _complete(
        self, D: sparse.csr_array, X: Array | None, laplacian: sparse.csr_array | None
    ) -> Array:
        n = D.shape[0]
        k = check_count("n_neighbors", self.n_neighbors, most=max(n - 1, 1))
        first, group = _distinct_rows(D)
        distinct = sparse.csr_array(D[first])
        copies = np.bincount(group).astype(np.float64)
        if n == 1:
            return np.zeros(D.shape)
        length = np.sqrt(np.maximum(np.diff(distinct.indptr), 1).astype(np.float64))
        directions = sparse.csr_array(sparse.diags_array(1.0 / length) @ distinct)
        votes = np.empty(distinct.shape)
        step = max(1, _BLOCK_ENTRIES // len(copies))
        for start in range(0, len(copies), step):
            cosines = (directions[start : start + step] @ directions.T).toarray()
            # Cosines of equal pairs must compare equal, whatever the order of summation.
            np.round(cosines, 12, out=cosines)
            others = np.repeat(copies[None, :], len(cosines), axis=0)
            own = np.arange(len(cosines))
            others[own, start + own] -= 1.0
            votes[start : start + step] = _places(cosines, others, k) @ distinct / k
        return votes[group]


def _places(similarity: Array, copies: Array, k: int) -> Array:
    """Share out k places per row to columns in order of similarity, tied columns in equal parts.

    Column j stands for ``copies[i, j]`` images; returns the places they get.
    """
    order = np.argsort(-similarity, axis=1)
    ranked = np.take_along_axis(similarity, order, axis=1)
    filled = np.take_along_axis(copies, order, axis=1).cumsum(axis=1)
    # The similarity at which place k falls.
    last = np.argmax(filled >= k, axis=1)
    level = ranked[np.arange(len(ranked)), last][:, None]
    nearer = np.where(similarity > level, copies, 0.0)
    tied = np.where(similarity == level, copies, 0.0)
    left = k - nearer.sum(axis=1)
    return nearer + tied * (left / tied.sum(axis=1))[:, None]


def _distinct_rows(D: sparse.csr_array) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return one row index per distinct row, and the number of the distinct row of every row."""
    known: dict[bytes, int] = {}
    first: list[int] = []
    group = np.empty(D.shape[0], dtype=np.int64)
    for i in range(D.shape[0]):
        key = D.indices[D.indptr[i] : D.indptr[i + 1]].tobytes()
        if key not in known:
            known[key] = len(first)
            first.append(i)
        group[i] = known[key]
    return np.asarray(first, dtype=np.int64), group
