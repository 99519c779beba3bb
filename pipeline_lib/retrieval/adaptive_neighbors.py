"""Ranking with adaptive neighbours (RAN)."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pipeline_lib.base import IterativeEstimator
from pipeline_lib.errors import InputError
from pipeline_lib.graphs.neighbors import NeighborGraph
from pipeline_lib.retrieval.adaptive_solver import (
    STACK_ROWS,
    AdaptiveRanking,
    RankingSolution,
)
from pipeline_lib.retrieval.base import Floats, Ints, Query, RetrievalMethod, query_points


class RankingAdaptiveNeighbors(RetrievalMethod, IterativeEstimator):
    """Learn, for each query, a neighbour graph and the ranking scores on it.

    For a query with the points q, solves::

        min_{S, f}  sum_ij (||x_i - x_j||^2 s_ij + gamma s_ij^2) + 2 lam f' L_S f + (f - y)' U (f - y)
        subject to  s_ij >= 0,  sum_j s_ij = 1,  s_ii = 0

    where S (n, n) is the graph, f (n,) the scores, ``L_S = D_S - (S + S') / 2`` its Laplacian, y the
    indicator of the query, and U diagonal with 1 at other points and infinity at the query's, whose
    score is therefore exactly 1. The minimisation alternates between

    - f: ``(2 lam L_S + U) f = U y``;
    - row i of S: the projection of ``-d_i / (2 gamma)`` onto the simplex, with
      ``d_ij = ||x_i - x_j||^2 + lam (f_i - f_j)^2``.

    S starts from `graphs.initial_graph`, which also fixes gamma so that a point has about
    `n_neighbors` neighbours. The objective never rises.

    Parameters
    ----------
    n_neighbors : int, default 5
        k, 1 to n - 2.
    lam : float, default 1.0
        Weight of the smoothness of f, positive, in units of squared distance.
    local : bool, default False
        Let a point choose among its k initial neighbours only, instead of all points.
    tol : float, default 1e-8
        A query is done when ``||f - f_before|| <= tol ||f_before||``.
    max_iter : int, default 100
        f-steps at most; 1 ranks on the initial graph.
    n_jobs : int, default 1
        Threads over which groups of queries are spread.

    Attributes
    ----------
    gamma_ : float
        Set by `fit`.
    unreached_ : ndarray of int, shape (n_queries,)
        Points with score 0: no path of the query's graph leads to them (or one so long that the
        score falls below 1e-250). They rank last, by Euclidean distance (`order`). This and the attributes below describe the latest ranking.
    objective_, history_, n_iter_, converged_
        Sums over the queries (those that are done keep their last value), the most iterations of a
        query, and whether all converged.

    Notes
    -----
    Each query costs a few sparse solves and projections on the points whose scores matter
    (`adaptive_solver`); rows of S are exact over all points by a certificate, and scores are accurate
    relative to their own size, so the order of a tail that falls to 1e-9 and below is right.
    gamma is on the scale of squared distances to neighbours: where data are dense it becomes small
    against lam, and a query may end up with few points that it reaches.

    References
    ----------
    M. Li, L. Li, F. Nie, "Ranking with adaptive neighbors", 2018, equations (5)-(19), algorithm 1;
    `local`: F. Nie, X. Wang, H. Huang, "Clustering and projected clustering with adaptive
    neighbors", KDD 2014.
    """

    gamma_: float
    unreached_: NDArray[np.int64]

    def __init__(
        self,
        n_neighbors: int = 5,
        lam: float = 1.0,
        local: bool = False,
        tol: float = 1e-8,
        max_iter: int = 100,
        n_jobs: int = 1,
    ) -> None:
        self.n_neighbors = n_neighbors
        self.lam = lam
        self.local = local
        self.tol = tol
        self.max_iter = max_iter
        self.n_jobs = n_jobs

    def learned_graph(self, query: Query) -> RankingSolution:
        """Scores, graph S and objective history of one query of the database."""
        indices = query_points([query], len(self.X_))
        return self._problem.solve(indices, tol=self.tol, max_iter=self.max_iter, keep_graphs=True)[
            0
        ]

    def rank_vectors(self, V: ArrayLike) -> Floats:
        """Score the database for queries outside it, as `RetrievalMethod.rank_vectors`."""
        scores, solutions = [], []
        for v in self._vectors(V):
            joined = self._joined(v)
            (row,), (solution,) = joined._solve([np.array([len(self.X_)])])
            scores.append(row[:-1])
            solutions.append(solution)
        self._record(solutions, np.array(scores))
        return np.array(scores)

    def _needed_neighbors(self, n: int) -> int:
        self._check(n)
        return min(n - 1, max(2 * self.n_neighbors, self.n_neighbors + 8))

    def _least_neighbors(self, n: int) -> int:
        return self.n_neighbors + 1

    def _check(self, n: int) -> None:
        if not 1 <= self.n_neighbors <= n - 2:
            raise InputError(
                f"n_neighbors is {self.n_neighbors} for {n} points",
                expected=f"1 to {n - 2}" if n > 2 else "at least 3 points",
            )
        if not (np.isfinite(self.lam) and self.lam > 0):
            raise InputError(f"lam is {self.lam}", expected="a positive number")
        if self.tol < 0 or self.max_iter < 1:
            raise InputError(
                f"tol is {self.tol}, max_iter is {self.max_iter}",
                expected="tol >= 0, max_iter >= 1",
            )

    def _prepare(self) -> None:
        self._check(len(self.X_))
        assert self.neighbors_ is not None
        self._problem = self._build(self.X_, self.neighbors_)
        self.gamma_ = self._problem.gamma

    def _build(self, points: Floats, neighbors: NeighborGraph) -> AdaptiveRanking:
        return AdaptiveRanking(
            points, neighbors, n_neighbors=self.n_neighbors, lam=self.lam, local=self.local
        )

    def _scores(self, queries: list[Ints]) -> Floats:
        scores, solutions = self._solve(queries)
        self._record(solutions, scores)
        return scores

    def _solve(self, queries: list[Ints]) -> tuple[Floats, list[tuple[list[float], bool]]]:
        """Scores, and the history of each query; graphs are dropped as soon as a group is done."""
        size = max(1, STACK_ROWS // len(self.X_))
        groups = [queries[first : first + size] for first in range(0, len(queries), size)]

        def solve(group: list[Ints]) -> list[tuple[Floats, list[float], bool]]:
            solutions = self._problem.solve(group, tol=self.tol, max_iter=self.max_iter)
            return [(s.scores, s.objective, s.converged) for s in solutions]

        if self.n_jobs > 1 and len(groups) > 1:
            with ThreadPoolExecutor(self.n_jobs) as executor:
                solved = list(executor.map(solve, groups))
        else:
            solved = [solve(group) for group in groups]
        rows = [row for group in solved for row in group]
        scores = np.array([row[0] for row in rows]).reshape(len(queries), len(self.X_))
        return scores, [(history, converged) for _, history, converged in rows]

    def _record(self, solutions: list[tuple[list[float], bool]], scores: Floats) -> None:
        self.unreached_ = np.count_nonzero(scores == 0.0, axis=1)
        if not solutions:
            return
        longest = max(len(history) for history, _ in solutions)
        values = np.array(
            [history + history[-1:] * (longest - len(history)) for history, _ in solutions]
        )
        open_queries = sum(not converged for _, converged in solutions)
        self._record_convergence(
            {"objective": values.sum(axis=0)},
            converged=not open_queries,
            n_iter=longest,
            advice=f"{open_queries} of {len(solutions)} queries are open; raise max_iter or loosen tol",
        )
