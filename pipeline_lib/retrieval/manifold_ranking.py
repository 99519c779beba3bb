"""Manifold ranking."""

from __future__ import annotations

import numpy as np

from pipeline_lib.graphs.affinity import Graph
from pipeline_lib.retrieval.affinity_method import AffinityMethod, check_fraction, indicator
from pipeline_lib.retrieval.base import Floats, Ints
from pipeline_lib.retrieval.damped_diffusion import DampedDiffusion, Solver


class ManifoldRanking(AffinityMethod):
    """Rank by spreading the query's score over the symmetrically normalised graph.

    ::

        f = (I - a D^-1/2 W D^-1/2)^-1 y

    with W the affinity graph (zero diagonal), D its degrees and y the indicator of the query.

    Parameters
    ----------
    damping : float, default 0.99
        a: share of a point's score that comes from its neighbours.
    graph, n_neighbors, sigma, local_scale, scale_neighbors
        The affinity graph, as `PersonalizedPageRank`.
    solver : {"auto", "closed", "iterative"}, default "auto"
        Dense Cholesky factorisation (up to 2,000 points) or sparse iteration; they agree.
    tol : float, default 1e-14
        Componentwise residual of the iteration.

    References
    ----------
    D. Zhou, J. Weston, A. Gretton, O. Bousquet, B. Schoelkopf, "Ranking on data manifolds",
    NIPS 2003.
    """

    def __init__(
        self,
        damping: float = 0.99,
        graph: Graph = "union",
        n_neighbors: int = 5,
        sigma: float | None = None,
        local_scale: float | None = None,
        scale_neighbors: int = 10,
        solver: Solver = "auto",
        tol: float = 1e-14,
    ) -> None:
        self.damping = damping
        self.graph = graph
        self.n_neighbors = n_neighbors
        self.sigma = sigma
        self.local_scale = local_scale
        self.scale_neighbors = scale_neighbors
        self.solver = solver
        self.tol = tol

    def _check(self) -> None:
        check_fraction("damping", self.damping)

    def _prepare(self) -> None:
        super()._prepare()
        self._system = DampedDiffusion(
            self.affinity_, self.degrees_, self.damping, self.solver, self.tol
        )

    def _columns(self, points: Ints, columns: Ints, n_columns: int) -> Floats:
        # With f = D^1/2 h the system is (D - a W) h = D^1/2 y.
        root = np.sqrt(self.degrees_)[:, None]
        y = indicator(points, columns, (len(self.X_), n_columns))
        return root * self._system.solve(root * y)
