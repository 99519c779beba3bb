"""Ranking by Euclidean distance."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from pipeline_lib.graphs.neighbors import sq_distances
from pipeline_lib.retrieval.base import Floats, Ints, RetrievalMethod, blocks


class EuclideanRanking(RetrievalMethod):
    """Score of a point: minus its Euclidean distance to the query.

    For a query of several points the nearest of them counts. The baseline that ignores the
    manifold.
    """

    def rank_vectors(self, V: ArrayLike) -> Floats:
        """Score the database for queries outside it, which need not join it."""
        vectors = self._vectors(V)
        scores = np.empty((len(vectors), len(self.X_)))
        for block in blocks(len(vectors), len(self.X_)):
            scores[block] = -np.sqrt(sq_distances(vectors[block], self.X_))
        return scores

    def _needed_neighbors(self, n: int) -> int:
        return 0

    def _prepare(self) -> None:
        """Nothing is shared between queries."""

    def _scores(self, queries: list[Ints]) -> Floats:
        scores = np.empty((len(queries), len(self.X_)))
        for block in blocks(len(queries), len(self.X_)):
            scores[block] = -np.sqrt(self._distances(queries[block]))
        return scores
