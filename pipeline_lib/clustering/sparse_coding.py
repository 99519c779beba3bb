"""Sparse coding: every image a sparse combination of learned atoms, no graph."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline_lib.clustering.coder import Solver, SparseCoder
from pipeline_lib.clustering.graph_terms import GraphTerm
from pipeline_lib.seeds import RandomState


class SparseCoding(SparseCoder):
    """Sparse coding with a learned dictionary (SC).

        min_{D, H}  ||X - H D||_F^2 + beta ||H||_1,    ||d_j||^2 <= 1 for every atom

    X : (n, d) rows; H : (n, n_atoms) codes; D : (n_atoms, d) dictionary with atoms d_j in its rows;
    beta : weight of sparsity, on the scale of X.

    Alternates the dictionary by its Lagrange dual and all codes by an accelerated proximal gradient
    method; the objective never rises. An atom that no row uses is replaced by the remainder of the worst
    coded row.

    Parameters
    ----------
    n_atoms : int, default=128
    beta : float, default=0.1
        At least 0. In papers and code that minimise ``||X - HD||^2 / 2 + b ||H||_1``, b is half of it.
    tol : float, default=1e-5
        Stop once an outer iteration lowers the objective by at most this share of it.
    max_iter : int, default=50
        Largest number of outer iterations.
    solver : {"batch", "feature-sign"}, default="batch"
        All codes at once, or image by image as in the paper; the same minimum.
    code_tol : float, default=1e-8
        Violation of the optimality conditions left in ``codes_``, relative to the largest entry of
        2 X D'.
    initial_dictionary : {"random", "samples"} or array of shape (n_atoms, d), default="random"
        Centred uniform atoms, rows of X, or given ones; scaled into the unit ball.
    random_state : int, Generator, RandomState or None
        Of the initial dictionary.

    Attributes
    ----------
    dictionary_ : ndarray of shape (n_atoms, d)
    codes_ : ndarray of shape (n, n_atoms)
        Optimal for ``dictionary_`` (and ``graph_``).
    graph_ : csr_array of shape (n, n)
        Empty.
    objective_, history_, n_iter_, converged_
        As every iterative method; ``history_`` also has ``code_residual`` (violation of the
        optimality conditions after the E-step), ``dictionary_gap`` (relative duality gap after the
        A-step), ``code_iterations`` (cost of the E-step) and ``reseeded`` (atoms replaced).

    References
    ----------
    Lee, Battle, Raina, Ng, "Efficient sparse coding algorithms", NIPS 2006; the baseline SC of Yu, Lu,
    Li, "Graph regularization sparse coding with adaptive neighbour", 2023, equation (2).
    """

    def __init__(
        self,
        n_atoms: int = 128,
        beta: float = 0.1,
        tol: float = 1e-5,
        max_iter: int = 50,
        solver: Solver = "batch",
        code_tol: float = 1e-8,
        initial_dictionary: Any = "random",
        random_state: RandomState = None,
    ) -> None:
        self.n_atoms = n_atoms
        self.beta = beta
        self.tol = tol
        self.max_iter = max_iter
        self.solver = solver
        self.code_tol = code_tol
        self.initial_dictionary = initial_dictionary
        self.random_state = random_state

    def _make_graph(self, X: NDArray[np.float64]) -> GraphTerm | None:
        return None
