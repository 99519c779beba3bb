"""Sparse coding regularised by the graph of a low-rank representation."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from pipeline_lib.clustering.coder import Solver, SparseCoder, check_number
from pipeline_lib.clustering.graph_terms import FixedGraph, GraphTerm
from pipeline_lib.clustering.low_rank_representation import (
    low_rank_graph,
    low_rank_representation,
)
from pipeline_lib.seeds import RandomState


class LogSC(SparseCoder):
    """Low-rank regularised sparse coding (LogSC).

        min_{D, H}  ||X - H D||_F^2 + beta ||H||_1 + lam tr(H' L H),    ||d_j||^2 <= 1

    X : (n, d) rows; H : (n, n_atoms) codes; D : (n_atoms, d) dictionary; L the Laplacian of
    W = max(R + R', 0), where R writes every row as a combination of all rows at low rank::

        min_{R, E}  ||R||_* + representation_weight sum_i ||e_i||    subject to   X = R X + E

    Parameters
    ----------
    n_atoms : int, default=128
    beta : float, default=0.02
        Weight of sparsity, at least 0.
    lam : float, default=0.1
        Weight of smoothness, at least 0. The defaults of beta and lam are the public settings a = .1,
        b = .01 of an objective with half of the first term and of the smoothness.
    representation_weight : float, default=2.0
        Positive.
    tol, max_iter, solver, code_tol, initial_dictionary, random_state
        As in `SparseCoding`.

    Attributes
    ----------
    dictionary_ : ndarray of shape (n_atoms, d)
    codes_ : ndarray of shape (n, n_atoms)
        Optimal for ``dictionary_`` and ``graph_``.
    graph_ : csr_array of shape (n, n)
        W with zero diagonal; about half of it is not zero, so memory grows as n^2.
    representation_gap_ : float
        Relative duality gap at which the low-rank representation stopped.
    objective_, history_, n_iter_, converged_
        As in `SparseCoding`.

    Notes
    -----
    R belongs to the training rows and is not defined for others: `transform` codes new rows with the
    dictionary alone.

    References
    ----------
    Sha, Schonfeld, "Graph Laplacian regularization with sparse coding for image restoration and
    representation", IEEE Trans. Circuits and Systems for Video Technology 30 (2020); Liu et al., "Robust
    recovery of subspace structures by low-rank representation", IEEE PAMI 35 (2013).
    """

    def __init__(
        self,
        n_atoms: int = 128,
        beta: float = 0.02,
        lam: float = 0.1,
        representation_weight: float = 2.0,
        tol: float = 1e-5,
        max_iter: int = 100,
        solver: Solver = "batch",
        code_tol: float = 1e-8,
        initial_dictionary: Any = "random",
        random_state: RandomState = None,
    ) -> None:
        self.n_atoms = n_atoms
        self.beta = beta
        self.lam = lam
        self.representation_weight = representation_weight
        self.tol = tol
        self.max_iter = max_iter
        self.solver = solver
        self.code_tol = code_tol
        self.initial_dictionary = initial_dictionary
        self.random_state = random_state

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_number("lam", self.lam, least=0.0)
        check_number("representation_weight", self.representation_weight, least=1e-300)

    def _smoothness(self) -> float:
        return self.lam

    def _make_graph(self, X: NDArray[np.float64]) -> GraphTerm:
        representation = low_rank_representation(X, self.representation_weight)
        if not representation.converged:
            warnings.warn(
                "LogSC's low-rank representation stopped at a relative duality gap of "
                f"{representation.gap:.1g}",
                ConvergenceWarning,
                stacklevel=3,
            )
        self.representation_gap_ = representation.gap
        return FixedGraph(low_rank_graph(representation))
