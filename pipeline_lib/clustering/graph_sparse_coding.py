"""Graph-regularised sparse coding: neighbouring images get similar codes."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from pipeline_lib.clustering.coder import Solver, SparseCoder, check_number
from pipeline_lib.clustering.graph_terms import FixedGraph, GraphTerm
from pipeline_lib.errors import InputError
from pipeline_lib.graphs.affinity import neighbor_pairs
from pipeline_lib.graphs.neighbors import nearest_in_database, nearest_neighbors
from pipeline_lib.seeds import RandomState

Array = NDArray[np.float64]
Weights = Literal["binary", "heat"]
_WEIGHTS = ("binary", "heat")
_ROWS_FOR_SCALE = 1_000
_BLOCK_ENTRIES = 4_000_000


class GraphSC(SparseCoder):
    """Graph-regularised sparse coding on a fixed neighbour graph (GraphSC).

        min_{D, H}  ||X - H D||_F^2 + beta ||H||_1 + lam tr(H' L H),    ||d_j||^2 <= 1

    X : (n, d) rows; H : (n, n_atoms) codes; D : (n_atoms, d) dictionary; L = diag(W 1) - W the Laplacian
    of the graph that joins two rows when either is among the other's n_neighbors nearest, with weight
    1 (``binary``) or exp(-||x_i - x_j||^2 / (2 t^2)) (``heat``).

    Parameters
    ----------
    n_atoms : int, default=128
    n_neighbors : int, default=5
        1 to n - 1.
    beta : float, default=0.1
        Weight of sparsity, at least 0.
    lam : float, default=1.0
        Weight of smoothness, at least 0; 0 is plain sparse coding. The method's public code minimises
        half of the first term and of the smoothness: its a and b are lam = a, beta = 2 b here.
    weights : {"binary", "heat"}, default="binary"
    heat_width : float, optional
        t. Default: the mean distance between rows.
    tol, max_iter, solver, code_tol, initial_dictionary, random_state
        As in `SparseCoding`.

    Attributes
    ----------
    dictionary_ : ndarray of shape (n_atoms, d)
    codes_ : ndarray of shape (n, n_atoms)
        Optimal for ``dictionary_`` and ``graph_``.
    graph_ : csr_array of shape (n, n)
        W, symmetric.
    heat_width_ : float
        t (infinite for binary weights).
    objective_, history_, n_iter_, converged_
        As in `SparseCoding`.

    Notes
    -----
    `transform` attaches a new row to its n_neighbors nearest training rows with the same weights.

    References
    ----------
    Zheng, Bu, Chen, Wang, Zhang, Qiu, Cai, "Graph regularized sparse coding for image representation",
    IEEE Trans. Image Processing 20 (2011).
    """

    def __init__(
        self,
        n_atoms: int = 128,
        n_neighbors: int = 5,
        beta: float = 0.1,
        lam: float = 1.0,
        weights: Weights = "binary",
        heat_width: float | None = None,
        tol: float = 1e-5,
        max_iter: int = 50,
        solver: Solver = "batch",
        code_tol: float = 1e-8,
        initial_dictionary: Any = "random",
        random_state: RandomState = None,
    ) -> None:
        self.n_atoms = n_atoms
        self.n_neighbors = n_neighbors
        self.beta = beta
        self.lam = lam
        self.weights = weights
        self.heat_width = heat_width
        self.tol = tol
        self.max_iter = max_iter
        self.solver = solver
        self.code_tol = code_tol
        self.initial_dictionary = initial_dictionary
        self.random_state = random_state

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_number("lam", self.lam, least=0.0)
        if self.weights not in _WEIGHTS:
            raise InputError(
                f"unknown weights {self.weights!r}", expected=f"one of {', '.join(_WEIGHTS)}"
            )
        if self.heat_width is not None:
            check_number("heat_width", self.heat_width, least=np.finfo(float).tiny)

    def _smoothness(self) -> float:
        return self.lam

    def _make_graph(self, X: Array) -> GraphTerm:
        graph = neighbor_pairs(
            nearest_neighbors(X, self.n_neighbors), self.n_neighbors, graph="union"
        )
        self.heat_width_ = np.inf
        if self.weights == "heat":
            self.heat_width_ = mean_distance(X) if self.heat_width is None else self.heat_width
        graph.data = self._weigh(graph.data)
        return FixedGraph(graph)

    def _weigh(self, sq_distances: Array) -> Array:
        # Rows that all coincide have width 0 and distance 0: weight 1, the limit.
        width = self.heat_width_ if self.heat_width_ > 0.0 else np.inf
        return np.exp(-0.5 * sq_distances / width**2)

    def _keep(self, X: Array, graph: GraphTerm | None) -> None:
        self.X_fit_ = X

    def _attach(self, X: Array) -> sp.csr_array:
        found, distances = nearest_in_database(X, self.X_fit_, self.n_neighbors)
        ends = np.arange(0, found.size + 1, found.shape[1])
        weights = self._weigh(distances.ravel())
        return sp.csr_array((weights, found.ravel(), ends), shape=(len(X), len(self.X_fit_)))

    @classmethod
    def _state_names(cls) -> tuple[str, ...]:
        return (*super()._state_names(), "X_fit_", "heat_width_")


def mean_distance(X: Array, most: int = _ROWS_FOR_SCALE) -> float:
    """Mean Euclidean distance between rows; from `most` evenly spaced rows to all when there are more."""
    rows = X if len(X) <= most else X[np.linspace(0, len(X) - 1, most).astype(int)]
    step = max(1, _BLOCK_ENTRIES // len(X))
    total = sum(float(cdist(rows[i : i + step], X).sum()) for i in range(0, len(rows), step))
    return total / (len(rows) * len(X))
