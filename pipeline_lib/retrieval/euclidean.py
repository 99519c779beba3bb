"""Ranking by Euclidean distance."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from pipeline_lib.retrieval.base import (
    Floats,
    Ints,
    RetrievalMethod,
    sq_distances_to,
)


class EuclideanRanking(RetrievalMethod):
    """Score of a point: minus its Euclidean distance to the query.

    For a query of several points the nearest of them counts. The baseline that ignores the
    manifold.
    """

    def _needed_neighbors(self, n: int) -> int:
        return 0

    def _prepare(self) -> None:
        """Nothing is shared between queries."""

    def _scores(self, queries: list[Ints]) -> Floats:
        return np.array([-np.sqrt(sq_distances_to(self.X_, self.X_[q])) for q in queries])

    def rank_vectors(self, V: ArrayLike) -> Floats:
        return np.array([-np.sqrt(sq_distances_to(self.X_, v[None])) for v in self._vectors(V)])
