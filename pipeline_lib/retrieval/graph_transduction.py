"""Graph transduction."""

from __future__ import annotations

import numpy as np

from pipeline_lib.graphs.affinity import Graph
from pipeline_lib.retrieval.affinity_method import AffinityMethod, check_steps, indicator
from pipeline_lib.retrieval.base import Floats, Ints


class GraphTransduction(AffinityMethod):
    """Rank by label propagation from a query that is clamped to 1.

    ::

        f_0 = y,    f_{t+1} = P f_t with the query's entries set to 1,    P = D^-1 W

    for T steps: f_T is the probability that a walk from a point meets the query within T steps. On a
    connected graph it tends to 1 everywhere, so T is part of the definition.

    Parameters
    ----------
    n_steps : int, default 5000
        T. Ends earlier when a step changes no score beyond rounding.
    graph : {"full", "union", "mutual"}, default "full"
    n_neighbors : int, default 5
    sigma : float, optional
    local_scale : float, optional, default 0.25
    scale_neighbors : int, default 10
        The affinity graph, as `PersonalizedPageRank`.

    References
    ----------
    X. Bai, X. Yang, L. J. Latecki, W. Liu, Z. Tu, "Learning context-sensitive shape similarity by
    graph transduction", TPAMI 2010.
    """

    def __init__(
        self,
        n_steps: int = 5000,
        graph: Graph = "full",
        n_neighbors: int = 5,
        sigma: float | None = None,
        local_scale: float | None = 0.25,
        scale_neighbors: int = 10,
    ) -> None:
        self.n_steps = n_steps
        self.graph = graph
        self.n_neighbors = n_neighbors
        self.sigma = sigma
        self.local_scale = local_scale
        self.scale_neighbors = scale_neighbors

    def _check(self) -> None:
        check_steps(self.n_steps)

    def _prepare(self) -> None:
        super()._prepare()
        self._transitions = self._walk()

    def _columns(self, points: Ints, columns: Ints, n_columns: int) -> Floats:
        scores = indicator(points, columns, (len(self.X_), n_columns))
        for _ in range(self.n_steps):
            following = self._transitions @ scores
            following[points, columns] = 1.0
            # Scores rise from 0, so what does not grow by a rounding unit has arrived.
            still = (following - scores <= np.finfo(float).eps * following).all()
            scores = following
            if still:
                break
        return scores
