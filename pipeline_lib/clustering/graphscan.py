"""Graph-regularised sparse coding whose neighbour graph is learned with the codes."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from pipeline_lib.clustering.coder import Solver, SparseCoder, check_number
from pipeline_lib.clustering.graph_terms import AdaptiveGraph, GraphTerm
from pipeline_lib.errors import InputError
from pipeline_lib.graphs.adaptive import initial_weights
from pipeline_lib.graphs.neighbors import nearest_in_database
from pipeline_lib.seeds import RandomState

Array = NDArray[np.float64]


class GraphSCAN(SparseCoder):
    """Graph regularisation sparse coding with adaptive neighbours (GraphSCAN).

        min_{D, H, S}  ||X - H D||_F^2 + alpha sum_ij (||x_i - x_j||^2 s_ij + gamma s_ij^2)
                       + beta ||H||_1 + lam tr(H' L_S H)
        subject to     ||d_j||^2 <= 1,   s_ij >= 0,  sum_j s_ij = 1,  s_ii = 0

    X : (n, d) rows; H : (n, n_atoms) codes; D : (n_atoms, d) dictionary; S : (n, n) graph, row i the
    probabilities of i's neighbours; L_S = D_S - (S + S')/2 its Laplacian; gamma : fixed by n_neighbors so
    that the initial rows, from X alone, have that many neighbours on average.

    Parameters
    ----------
    n_atoms : int, default=128
    n_neighbors : int, default=5
        1 to n - 2.
    beta : float, default=0.01
        Weight of sparsity, at least 0. The paper's 0.3 belongs to rows whose scale it does not tell; on
        rows of norm 1 it is far too strong.
    lam : float, default=10.0
        Weight of the smoothness of the codes, at least 0; 0 is plain sparse coding.
    alpha : float, optional
        Weight of the graph's own terms. Default: lam, as in the paper. Positive when lam is.
    local_scale : bool, default=False
        Not in the paper: each row i of S has a gamma_i of its own, that of its initial weights, instead of
        their mean. See the notes.
    tol, max_iter, solver, code_tol, initial_dictionary, random_state
        As in `SparseCoding`.

    Attributes
    ----------
    dictionary_ : ndarray of shape (n_atoms, d)
    codes_ : ndarray of shape (n, n_atoms)
        Optimal for ``dictionary_`` and ``graph_``.
    graph_ : csr_array of shape (n, n)
        S; rows sum to one, exact over all n - 1 possible neighbours.
    gamma_ : float
        With ``local_scale``, the mean of gamma_i.
    objective_, history_, n_iter_, converged_
        As in `SparseCoding`.

    Notes
    -----
    `transform` gives a new row the initial weights s_j of its n_neighbors nearest training rows. Its terms
    of the objective are then those of one more row of S: lam sum_j s_j ||h - h_j||^2 / 2.

    With ``local_scale`` the graph of the rows alone is the initial one, k neighbours a row. With one gamma,
    rows in dense regions have more and those in sparse regions hang on one, and groups fall apart: on CMU-PIE
    (suite ``clustering-pie``, two subsets) NMI is .73, with ``local_scale`` and alpha above lam .87. Alpha
    equal to lam lets the codes cut the graph in both.

    References
    ----------
    Yu, Lu, Li, "Graph regularization sparse coding with adaptive neighbour", Journal of Shaanxi Normal
    University (Natural Science Edition) 51 (2023), equation (5).
    """

    def __init__(
        self,
        n_atoms: int = 128,
        n_neighbors: int = 5,
        beta: float = 0.01,
        lam: float = 10.0,
        alpha: float | None = None,
        local_scale: bool = False,
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
        self.alpha = alpha
        self.local_scale = local_scale
        self.tol = tol
        self.max_iter = max_iter
        self.solver = solver
        self.code_tol = code_tol
        self.initial_dictionary = initial_dictionary
        self.random_state = random_state

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_number("lam", self.lam, least=0.0)
        if self.alpha is not None:
            check_number("alpha", self.alpha, least=0.0)
            if self.alpha == 0.0 and self.lam > 0.0:
                raise InputError(
                    "alpha is 0 while lam is not",
                    expected="a positive alpha: nothing else keeps the graph from collapsing",
                )

    def _smoothness(self) -> float:
        return self.lam

    def _make_graph(self, X: Array) -> GraphTerm:
        alpha = self.lam if self.alpha is None else self.alpha
        return AdaptiveGraph(X, self.n_neighbors, self.lam, alpha, self.local_scale)

    def _keep(self, X: Array, graph: GraphTerm | None) -> None:
        assert isinstance(graph, AdaptiveGraph)
        self.X_fit_ = X
        self.gamma_ = float(graph.gamma.mean())

    def _attach(self, X: Array) -> sp.csr_array:
        k, n = self.n_neighbors, len(self.X_fit_)
        found, distances = nearest_in_database(X, self.X_fit_, k + 1)
        weights, _ = initial_weights(distances)
        ends = np.arange(0, weights.size + 1, k)
        return sp.csr_array((0.5 * weights.ravel(), found[:, :k].ravel(), ends), shape=(len(X), n))

    @classmethod
    def _state_names(cls) -> tuple[str, ...]:
        return (*super()._state_names(), "X_fit_", "gamma_")
