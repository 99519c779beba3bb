"""Average query expansion."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from pipeline_lib.errors import InputError
from pipeline_lib.graphs.neighbors import nearest_in_database, sq_distances
from pipeline_lib.retrieval.base import Floats, Ints, RetrievalMethod, blocks


class AverageQueryExpansion(RetrievalMethod):
    """Ask again with the mean of the query and what it found first.

    ::

        q' = (q + sum of the k nearest database points) / (k + 1),    score_i = -||q' - x_i||

    A query inside the database is not among its own k nearest. For a query of several points q is
    their mean, and none of them is found.

    Parameters
    ----------
    n_neighbors : int, default 5
        k.

    References
    ----------
    O. Chum, J. Philbin, J. Sivic, M. Isard, A. Zisserman, "Total recall: automatic query expansion
    with a generative feature model for object retrieval", ICCV 2007.
    """

    def __init__(self, n_neighbors: int = 5) -> None:
        self.n_neighbors = n_neighbors

    def rank_vectors(self, V: ArrayLike) -> Floats:
        """Score the database for queries outside it, which need not join it."""
        vectors = self._vectors(V)
        found, _ = nearest_in_database(vectors, self.X_, self.n_neighbors)
        return self._asked_again(vectors, found)

    def _needed_neighbors(self, n: int) -> int:
        if not 1 <= self.n_neighbors <= n - 1:
            raise InputError(
                f"n_neighbors is {self.n_neighbors} for {n} points", expected=f"1 to {n - 1}"
            )
        return self.n_neighbors

    def _prepare(self) -> None:
        """Nothing is shared between queries but the neighbours."""

    def _scores(self, queries: list[Ints]) -> Floats:
        assert self.neighbors_ is not None
        points = np.array([query[0] for query in queries], dtype=np.int64)
        means = self.X_[points]
        found = self.neighbors_.indices[points, : self.n_neighbors].copy()
        for place, query in enumerate(queries):
            if len(query) > 1:
                means[place] = self.X_[query].mean(axis=0)
                others = np.setdiff1d(np.arange(len(self.X_)), query)
                k = min(self.n_neighbors, len(others))
                nearest, _ = nearest_in_database(means[place, None], self.X_[others], k)
                # Fewer others than k: the mean over those there are.
                found[place] = np.resize(others[nearest[0]], self.n_neighbors)
        return self._asked_again(means, found)

    def _asked_again(self, vectors: Floats, found: Ints) -> Floats:
        scores = np.empty((len(vectors), len(self.X_)))
        for block in blocks(len(vectors), len(self.X_)):
            total = vectors[block] + self.X_[found[block]].sum(axis=1)
            expanded = total / (self.n_neighbors + 1)
            scores[block] = -np.sqrt(sq_distances(expanded, self.X_))
        return scores
