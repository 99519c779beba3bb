"""Personalised PageRank."""

from __future__ import annotations

from pipeline_lib.graphs.affinity import Graph
from pipeline_lib.retrieval.affinity_method import AffinityMethod, check_fraction, indicator
from pipeline_lib.retrieval.base import Floats, Ints
from pipeline_lib.retrieval.damped_diffusion import DampedDiffusion, Solver


class PersonalizedPageRank(AffinityMethod):
    """Rank by the stationary visits of a random walk that restarts at the query.

    ::

        f = (1 - a) (I - a P')^-1 y,    P = D^-1 W

    with W the affinity graph, D its degrees and y the indicator of the query.

    Parameters
    ----------
    damping : float, default 0.85
        a: probability of going on instead of restarting.
    graph : {"union", "mutual", "full"}, default "union"
        Edges of W, as `graphs.affinity.gaussian_affinity`, like the parameters below.
    n_neighbors : int, default 5
    sigma : float, optional
        Bandwidth; default: the mean length of an edge.
    local_scale : float, optional
        Factor of a local bandwidth, instead of `sigma`.
    scale_neighbors : int, default 10
        Neighbours that make the local bandwidth.
    solver : {"auto", "closed", "iterative"}, default "auto"
        Dense Cholesky factorisation (up to 2,000 points) or sparse iteration; they agree.
    tol : float, default 1e-14
        Componentwise residual of the iteration.

    Notes
    -----
    The walk ends at an isolated point: its row of P is 0.

    References
    ----------
    T. Haveliwala, "Topic-sensitive PageRank", WWW 2002; as a baseline: M. Li, L. Li, F. Nie,
    "Ranking with adaptive neighbors", 2018.
    """

    def __init__(
        self,
        damping: float = 0.85,
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
        # (I - a W D^-1) f = (1 - a) y has the solution f = (1 - a) D g, (D - a W) g = y.
        y = indicator(points, columns, (len(self.X_), n_columns))
        return (1.0 - self.damping) * self.degrees_[:, None] * self._system.solve(y)
