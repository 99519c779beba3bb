"""The graph part of a graph-regularised sparse coding objective.

A term knows its graph S, the Laplacian L_S = D_S - (S + S')/2 it couples the codes by, its own part of
the objective, how it changes with the codes (the S-step), and how a new row would be attached to it.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from pipeline_lib.graphs.adaptive import AdaptiveNeighbors
from pipeline_lib.graphs.laplacian import laplacian
from pipeline_lib.graphs.neighbors import pair_sq_distances

Array = NDArray[np.float64]


class GraphTerm(Protocol):
    """What the alternation asks of a graph."""

    graph: sp.csr_array
    laplacian: sp.csr_array

    def energy(self) -> float:
        """Part of the objective that depends on the graph but not on the codes."""
        ...

    def update(self, codes: Array) -> None:
        """S-step: the graph that minimises the objective for these codes."""
        ...


class FixedGraph:
    """A graph that does not change.

    Parameters
    ----------
    graph : sparse matrix of shape (n, n)
        Non-negative weights.
    """

    def __init__(self, graph: Any) -> None:
        self.graph = sp.csr_array(graph)
        self.laplacian = laplacian(self.graph)

    def energy(self) -> float:
        """0."""
        return 0.0

    def update(self, codes: Array) -> None:
        """Nothing to do."""


class AdaptiveGraph:
    """The adaptive neighbours of rows and codes together.

        alpha sum_ij (||x_i - x_j||^2 s_ij + gamma_i s_ij^2) + lam tr(H' L_S H),   rows of S on the simplex

    Parameters
    ----------
    X : ndarray of shape (n, d)
    n_neighbors : int
        Fixes the initial graph and gamma.
    lam, alpha : float
        Weights of the smoothness of the codes and of the graph's own terms. With ``lam = 0`` the graph
        depends on X alone and stays at its initial value.
    local_scale : bool, default False
        Each row has the gamma_i of its initial weights, instead of all their mean.

    Attributes
    ----------
    gamma : ndarray of shape (n,)
        gamma_i.
    """

    def __init__(
        self, X: Array, n_neighbors: int, lam: float, alpha: float, local_scale: bool = False
    ) -> None:
        self.X = X
        self.lam = lam
        self.alpha = alpha
        self.neighbors = AdaptiveNeighbors(X, n_neighbors, own_scale=local_scale)
        self.gamma = self.neighbors.gamma * self.neighbors.units
        self.graph = self.neighbors.graph
        self.laplacian = laplacian(self.graph)

    def energy(self) -> float:
        """alpha sum_ij (||x_i - x_j||^2 s_ij + gamma_i s_ij^2)."""
        if self.alpha == 0.0:
            return 0.0
        edges = self.graph.tocoo()
        rows, cols = edges.row.astype(np.int64), edges.col.astype(np.int64)
        distances = pair_sq_distances(self.X, self.X, rows, cols)
        return self.alpha * float(np.vdot(distances + self.gamma[rows] * edges.data, edges.data))

    def update(self, codes: Array) -> None:
        """Project every row of -(||x_i - x_j||^2 + (lam/alpha) ||h_i - h_j||^2 / 2) / (2 gamma_i)."""
        if self.lam == 0.0:
            return
        # With scales of their own, the distances of a row are measured in its unit.
        factors = 0.5 * self.lam / self.alpha / self.neighbors.units

        def extra(rows: NDArray[np.int64], cols: NDArray[np.int64]) -> Array:
            return factors[rows] * pair_sq_distances(codes, codes, rows, cols)

        self.graph = self.neighbors.update(extra)
        self.laplacian = laplacian(self.graph)
