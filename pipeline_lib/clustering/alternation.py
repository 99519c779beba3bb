"""Alternating minimisation of the sparse coding objectives over dictionary, graph and codes.

    min_{D, H, S}  ||X - H D||_F^2 + beta ||H||_1 + lam tr(H' L_S H) + energy(S),    ||d_j||^2 <= c = 1

One outer iteration is an A-step (dictionary), an S-step (graph, where it is learned) and an E-step
(codes), in this order, so that the codes are those of the dictionary and the graph beside them. No step
raises the objective. E-steps on the way reduce the optimality residual of the codes to a fifth, which
reaches the same objective as exact ones at a fraction of their cost; the last one is exact.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipeline_lib.clustering.code_solver import CodeProblem, CodeSolution, solve_codes
from pipeline_lib.clustering.dictionary import solve_dictionary
from pipeline_lib.clustering.graph_terms import GraphTerm

Array = NDArray[np.float64]
CodeSolver = Callable[..., CodeSolution]

# Share of the code residual left by an E-step on the way.
_REDUCTION = 0.2
_BOUND = 1.0  # c


@dataclass(frozen=True)
class Factorization:
    """The end of an alternation.

    ``history`` has one value per outer iteration: ``objective``; ``code_residual``, the
    violation of the optimality conditions left by the E-step; ``dictionary_gap``, the relative duality
    gap left by the A-step; ``code_iterations``, the cost of the E-step; ``reseeded``, atoms replaced
    because no row used them.
    """

    dictionary: Array
    codes: Array
    history: dict[str, list[float]]
    n_iter: int
    converged: bool
    codes_converged: bool


def alternate(
    X: Array,
    dictionary: Array,
    graph: GraphTerm | None,
    *,
    beta: float,
    lam: float,
    tol: float,
    max_iter: int,
    code_tol: float,
    solver: CodeSolver = solve_codes,
) -> Factorization:
    """Alternate until the objective falls by less than ``tol`` of itself, or `max_iter` times.

    Parameters
    ----------
    X : ndarray of shape (n, d)
    dictionary : ndarray of shape (atoms, d)
        Start, atoms within the unit ball.
    graph : GraphTerm or None
        None for plain sparse coding.
    beta, lam : float
        Weights of sparsity and smoothness.
    tol : float
    max_iter : int
        At least 1.
    code_tol : float
        Residual of the final codes, relative to the largest entry of 2 XD'.
    solver : callable
        E-step, called like `solve_codes`.
    """
    history: dict[str, list[float]] = {
        key: []
        for key in (
            "objective",
            "code_residual",
            "dictionary_gap",
            "code_iterations",
            "reseeded",
        )
    }

    def code_step(codes: Array | None, reduction: float) -> CodeSolution:
        coupling = None if graph is None or lam == 0.0 else lam * graph.laplacian
        problem = CodeProblem(dictionary @ dictionary.T, X @ dictionary.T, beta, coupling)
        return solver(problem, codes, tol=code_tol, reduction=reduction)

    def objective() -> float:
        return sparse_coding_objective(X, dictionary, solution.codes, graph, beta, lam)

    solution = code_step(None, _REDUCTION)
    before, cost = objective(), solution.n_iter
    multipliers: Array | None = None
    converged = False
    for iteration in range(1, max_iter + 1):
        codes = solution.codes
        step = solve_dictionary(codes.T @ codes, codes.T @ X, dictionary, multipliers, bound=_BOUND)
        dictionary, multipliers = step.dictionary, step.multipliers
        dictionary, reseeded = reseed_unused_atoms(X, codes, dictionary)
        if graph is not None:
            graph.update(codes)
        solution = code_step(codes, _REDUCTION)
        value = objective()
        converged = before - value <= tol * abs(value)
        last = converged or iteration == max_iter
        cost += solution.n_iter
        if last:
            solution = code_step(solution.codes, 0.0)
            cost += solution.n_iter
            value = objective()
        history["objective"].append(value)
        history["code_residual"].append(solution.residual)
        history["dictionary_gap"].append(step.gap)
        history["code_iterations"].append(cost)
        cost = 0
        history["reseeded"].append(reseeded)
        if last:
            break
        before = value
    return Factorization(
        dictionary, solution.codes, history, iteration, converged, solution.converged
    )


def sparse_coding_objective(
    X: Array, dictionary: Array, codes: Array, graph: GraphTerm | None, beta: float, lam: float
) -> float:
    """||X - HD||_F^2 + beta ||H||_1 + lam tr(H' L_S H) + energy(S)."""
    remainder = X - codes @ dictionary
    value = float(np.vdot(remainder, remainder) + beta * np.abs(codes).sum())
    if graph is not None:
        value += graph.energy()
        if lam != 0.0:
            value += lam * float(np.vdot(codes, graph.laplacian @ codes))
    return value


def reseed_unused_atoms(X: Array, codes: Array, dictionary: Array) -> tuple[Array, int]:
    """Replace every atom that no code uses by what the worst coded rows are missing.

    The t-th unused atom becomes the remainder x_i - h_i D of the row i with the t-th largest one,
    scaled to norm 1. As its codes are all zero the objective does not change, and the next E-step may
    only lower it by using the atom.
    """
    unused = np.flatnonzero(~codes.any(axis=0))
    if not len(unused):
        return dictionary, 0
    remainder = X - codes @ dictionary
    norms = np.linalg.norm(remainder, axis=1)
    rows = np.argsort(-norms, kind="stable")[: len(unused)]
    rows = rows[norms[rows] > 0.0]
    dictionary = dictionary.copy()
    dictionary[unused[: len(rows)]] = remainder[rows] / norms[rows, None]
    return dictionary, len(rows)


def random_dictionary(n_atoms: int, n_features: int, rng: np.random.Generator) -> Array:
    """Uniform entries, every atom centred and scaled to norm 1 (the start of GraphSC's public code)."""
    atoms = rng.uniform(-0.5, 0.5, size=(n_features, n_atoms))
    if n_features > 1:
        atoms -= atoms.mean(axis=0)
    return np.ascontiguousarray((atoms / np.linalg.norm(atoms, axis=0)).T)
