"""Re-ranking by k-reciprocal neighbours."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from pipeline_lib.errors import InputError
from pipeline_lib.graphs.neighbors import pair_sq_distances, sq_distances
from pipeline_lib.retrieval.base import Floats, Ints, RetrievalMethod, blocks


class KReciprocalReranking(RetrievalMethod):
    """Rank by how far two points' sets of reciprocal neighbours overlap.

    With N(p, k) the k nearest points of p and p itself::

        R(p, k)  = {g in N(p, k) : p in N(g, k)}
        R*(p, k) = R(p, k) and every R(g, k/2), g in R(p, k), of which two thirds lie in R(p, k)
        V_p      = exp(-d(p, g)) for g in R*(p, k1), else 0, scaled to sum 1;
                   then the mean of V_g over g in N(p, k2)
        J(p, g)  = 1 - sum min(V_p, V_g) / sum max(V_p, V_g)
        score_g  = -((1 - w) J(p, g) + w d(p, g))

    d is the squared Euclidean distance over its mean between all pairs of points, so the weights do
    not depend on the scale of the data. For a query of several points the smallest distance
    counts.

    Parameters
    ----------
    k1 : int, default 20
        Size of the reciprocal neighbourhood.
    k2 : int, default 6
        Points, the point itself included, over which V is averaged.
    weight : float, default 0.3
        w: share of the original distance, 0 to 1.

    Attributes
    ----------
    encodings_ : csr_array of shape (n, n)
        The vectors V, sparse.

    References
    ----------
    Z. Zhong, L. Zheng, D. Cao, S. Li, "Re-ranking person re-identification with k-reciprocal
    encoding", CVPR 2017.
    """

    encodings_: sp.csr_array

    def __init__(self, k1: int = 20, k2: int = 6, weight: float = 0.3) -> None:
        self.k1 = k1
        self.k2 = k2
        self.weight = weight

    def _needed_neighbors(self, n: int) -> int:
        if not 1 <= self.k1 <= n - 1:
            raise InputError(f"k1 is {self.k1} for {n} points", expected=f"1 to {n - 1}")
        if not 1 <= self.k2 <= self.k1 + 1:
            raise InputError(f"k2 is {self.k2}", expected=f"1 to k1 + 1 = {self.k1 + 1}")
        if not 0.0 <= self.weight <= 1.0:
            raise InputError(f"weight is {self.weight}", expected="0 to 1")
        return self.k1

    def _prepare(self) -> None:
        assert self.neighbors_ is not None
        n = len(self.X_)
        centred = self.X_ - self.X_.mean(axis=0)
        # Mean over all ordered pairs of different points.
        self._scale = float(2.0 * (centred**2).sum() / max(n - 1, 1)) or 1.0
        wide = self._reciprocal(self.k1)
        half = self._reciprocal(max(1, round(self.k1 / 2)))
        sizes = np.asarray(half.sum(axis=1)).ravel()
        # shared[p, g]: how much of R(g, k/2) lies in R(p, k).
        shared = sp.csr_array((wide @ half.T).multiply(wide))
        shared.data = (3.0 * shared.data >= 2.0 * sizes[shared.indices]).astype(np.float64)
        expanded = sp.csr_array(wide + shared @ half)
        rows = np.repeat(np.arange(n), np.diff(expanded.indptr))
        distances = pair_sq_distances(self.X_, self.X_, rows, expanded.indices.astype(np.int64))
        expanded.data = np.exp(-distances / self._scale)
        encodings = _row_scaled(expanded)
        if self.k2 > 1:
            averaged = self._nearest(self.k2 - 1) @ encodings
            encodings = sp.csr_array(averaged * (1.0 / self.k2))
        self.encodings_ = encodings
        self._by_column = sp.csc_array(encodings)

    def _nearest(self, k: int) -> sp.csr_array:
        """Indicator of N(p, k), row p."""
        assert self.neighbors_ is not None
        n = len(self.X_)
        indices = np.column_stack([np.arange(n), self.neighbors_.indices[:, :k]])
        ends = np.arange(0, n * (k + 1) + 1, k + 1)
        return sp.csr_array((np.ones(indices.size), indices.ravel(), ends), shape=(n, n))

    def _reciprocal(self, k: int) -> sp.csr_array:
        """Indicator of R(p, k), row p."""
        nearest = self._nearest(k)
        return sp.csr_array(nearest.multiply(nearest.T))

    def _scores(self, queries: list[Ints]) -> Floats:
        n = len(self.X_)
        scores = np.empty((len(queries), n))
        for block in blocks(len(queries), n):
            points = np.concatenate(queries[block])
            original = sq_distances(self.X_[points], self.X_) / self._scale
            jaccard = np.array([self._jaccard(point) for point in points])
            mixed = (1.0 - self.weight) * jaccard + self.weight * original
            starts = np.cumsum([0, *(len(query) for query in queries[block][:-1])])
            scores[block] = -np.minimum.reduceat(mixed, starts, axis=0)
        return scores

    def _jaccard(self, point: int) -> Floats:
        """``J(point, g)`` for every g, from the columns that the point's encoding touches."""
        row = slice(self.encodings_.indptr[point], self.encodings_.indptr[point + 1])
        touched = self._by_column[:, self.encodings_.indices[row]]
        own = np.repeat(self.encodings_.data[row], np.diff(touched.indptr))
        smaller = np.minimum(touched.data, own)
        overlap = np.bincount(touched.indices, smaller, minlength=len(self.X_))
        # Encodings sum to 1, so the sum of maxima is 2 minus the sum of minima.
        distance: Floats = 1.0 - overlap / (2.0 - overlap)
        return distance


def _row_scaled(matrix: sp.csr_array) -> sp.csr_array:
    totals = np.asarray(matrix.sum(axis=1)).ravel()
    data = matrix.data / np.repeat(totals, np.diff(matrix.indptr))
    return sp.csr_array((data, matrix.indices, matrix.indptr), shape=matrix.shape)
