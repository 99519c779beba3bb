"""Self-diffusion."""

from __future__ import annotations

from pipeline_lib.graphs.affinity import Graph
from pipeline_lib.retrieval.affinity_method import AffinityMethod, check_steps, indicator
from pipeline_lib.retrieval.base import Floats, Ints


class SelfDiffusion(AffinityMethod):
    """Rank by affinities that have diffused for a few steps.

    ::

        W_0 = I,    W_t = W_{t-1} P + I,    W* = W_T D^-1,    P = D^-1 W

    with W the affinity graph and D its degrees; the scores of a query are its row of W*. As
    ``W* = sum_t P^t D^-1`` is symmetric, the rows of a few queries are columns that need T sparse
    products, and W* is never formed. A query of several points has the sum of their rows.

    Parameters
    ----------
    n_steps : int, default 5
        T.
    graph, n_neighbors, sigma, local_scale, scale_neighbors
        The affinity graph, as `PersonalizedPageRank`.

    References
    ----------
    B. Wang, Z. Tu, "Affinity learning via self-diffusion for image segmentation and clustering",
    CVPR 2012.
    """

    def __init__(
        self,
        n_steps: int = 5,
        graph: Graph = "union",
        n_neighbors: int = 5,
        sigma: float | None = None,
        local_scale: float | None = None,
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
        y = indicator(points, columns, (len(self.X_), n_columns))
        start = y / self.degrees_[:, None]
        diffused = start.copy()
        for _ in range(self.n_steps):
            diffused = self._transitions @ diffused
            diffused += start
        return diffused
