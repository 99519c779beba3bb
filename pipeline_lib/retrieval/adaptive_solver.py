"""Alternating minimisation of ranking with adaptive neighbours, for several queries at a time.

Per query the work is far below n^2:

- the S-step runs over candidate lists with the certificate of `graphs.adaptive`;
- the graph of a point changes only if scores differ in its neighbourhood. Where all scores are below
  a bound at which ``lam (f_i - f_j)^2`` is lost in the rounding of ``2 gamma s_ij``, rows keep their
  *resting* value, the S-step for f = 0, which all queries share. The alternation therefore runs on
  the *active* points above the bound and what touches them; the rest enters once more at the end,
  when the scores of all points are solved for on the final graph, accurately in every component;
- small databases are stacked: the active points of many queries form one block-diagonal problem.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from pipeline_lib.graphs.adaptive import (
    AdaptiveNeighbors,
    certified_step,
    graph_of,
    initial_weights,
)
from pipeline_lib.graphs.candidates import CandidateLists
from pipeline_lib.graphs.chebyshev import RELATIVE_ACCURACY
from pipeline_lib.graphs.clamped import solve_clamped
from pipeline_lib.graphs.neighbors import NeighborGraph
from pipeline_lib.graphs.simplex import project_ragged

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

STACK_ROWS = 16_384  # rows of a stacked problem: its arrays stay in the cache
_STEP_ACCURACY = 1e-13  # absolute, of scores between 0 and 1, while alternating
_LOST = 1e-17  # a change of a weight below this is lost in rounding
_MARGIN = 30.0  # the active set is chosen this much below the bound that is checked at the end
_SLACK = 1.5  # radius of the shared candidate lists over what resting rows need
_SMALL = 2_000  # databases of which every point is active
_WORTHWHILE = 0.7  # share of active points above which all are made active


@dataclass(frozen=True)
class RankingSolution:
    """Solution for one query.

    Attributes
    ----------
    scores : ndarray of shape (n,)
        Optimal for `graph`, accurate in every component.
    objective : list of float
        After each f-step.
    converged : bool
    graph : csr_array of shape (n, n) or None
        The query's own S, if asked for.
    """

    scores: Floats
    objective: list[float]
    converged: bool
    graph: sp.csr_array | None


class AdaptiveRanking:
    """The problem of ranking with adaptive neighbours on one database.

    Parameters
    ----------
    points : ndarray of shape (n, d)
    neighbors : NeighborGraph
        Exact, at least ``n_neighbors + 1`` a point.
    n_neighbors, lam, local
        As `RankingAdaptiveNeighbors`.
    fidelity, own_scale
        As `LocallyScaledAdaptiveNeighbors`; 1 and False for the plain method.

    Attributes
    ----------
    gamma : float
        Weight of the quadratic term.
    lists, resting : CandidateLists, ndarray
        Candidates of every point and their weights for f = 0.
    """

    def __init__(
        self,
        points: Floats,
        neighbors: NeighborGraph,
        *,
        n_neighbors: int,
        lam: float,
        local: bool,
        fidelity: float = 1.0,
        own_scale: bool = False,
    ) -> None:
        n, k = len(points), n_neighbors
        adaptive = AdaptiveNeighbors(
            points, k, neighbors=neighbors, local=local, own_scale=own_scale
        )
        self.n, self.lam, self.gamma = n, lam, adaptive.effective_gamma
        self.fidelity, self.strength = fidelity, lam / fidelity
        self.pool = adaptive.pool
        self.initial = adaptive.initial
        weights, _ = initial_weights(neighbors.sq_distances[:, : k + 1])
        distances = neighbors.sq_distances[:, :k] / self.pool.units[:, None]
        self.initial_cost = float((weights * (distances + self.gamma * weights)).sum())

        adaptive.update()
        self.lists, thresholds = adaptive.lists, adaptive.thresholds
        if not local:
            assert thresholds is not None
            # A few more candidates than rows at rest use, since lists grow query by query.
            support = np.diff(adaptive.graph.indptr)
            radii = _SLACK * -2.0 * self.gamma * thresholds
            self.lists = self.pool.within(np.arange(n), radii, most=support + support // 4 + 2)
        self.resting, self.resting_thresholds = project_ragged(
            self.lists.sq_distances / (-2.0 * self.gamma), self.lists.indptr, thresholds
        )
        costs = self.resting * (self.lists.sq_distances + self.gamma * self.resting)
        self.resting_costs = np.add.reduceat(costs, self.lists.indptr[:-1])
        self.received = np.bincount(self.lists.indices, self.resting, minlength=n)
        # Scores below this leave the graph of a point at rest.
        self.lost = float(np.sqrt(2.0 * self.gamma * _LOST / lam))

    def solve(
        self, queries: list[Ints], *, tol: float, max_iter: int, keep_graphs: bool = False
    ) -> list[RankingSolution]:
        """Solve for each query: its points are clamped to score 1."""
        first, costs = self._first_scores(queries)
        if max_iter == 1:
            return [
                RankingSolution(
                    self._refined(self.initial, query, f), [float(cost)], False, self.initial
                )
                for query, f, cost in zip(queries, first.T, costs)
            ]
        active = self._active(first)
        solutions = self._alternate(queries, first, costs, active, tol, max_iter, keep_graphs)
        # Where a score outside the active points is one that its graph would have answered to after
        # all, solve again with every point active.
        for place, query in enumerate(queries):
            if (solutions[place].scores[~active[place]] > self.lost).any():
                one = slice(place, place + 1)
                everything = np.ones((1, self.n), dtype=bool)
                solutions[place] = self._alternate(
                    [query], first[:, one], costs[one], everything, tol, max_iter, keep_graphs
                )[0]
        return solutions

    def _first_scores(self, queries: list[Ints]) -> tuple[Floats, Floats]:
        """Scores on the initial graph, shape (n, queries), and their objective."""
        counts = [len(query) for query in queries]
        clamp = (np.concatenate(queries), np.repeat(np.arange(len(queries)), counts))
        scores = solve_clamped(
            *self._system(self.initial),
            clamp,
            np.zeros((self.n, len(queries))),
            accuracy=_STEP_ACCURACY,
            componentwise=False,
        )
        rows = np.repeat(np.arange(self.n), np.diff(self.initial.indptr))
        smooth = [self.initial.data @ (f[rows] - f[self.initial.indices]) ** 2 for f in scores.T]
        fidelity = self.fidelity * ((scores**2).sum(axis=0) - counts)
        return scores, self.initial_cost + self.lam * np.array(smooth) + fidelity

    def _active(self, scores: Floats) -> NDArray[np.bool_]:
        """Points whose rows take part in the alternation, shape (queries, n)."""
        n_queries = scores.shape[1]
        if self.n * n_queries <= STACK_ROWS and self.n <= _SMALL:
            return np.ones((n_queries, self.n), dtype=bool)
        above = (scores > self.lost / _MARGIN).astype(np.float64)
        resting = graph_of(self.resting, self.lists.indices, self.lists.indptr, self.n)
        active = (above + resting @ above + self.initial @ above).T > 0
        active[active.sum(axis=1) > _WORTHWHILE * self.n] = True
        return active

    def _alternate(
        self,
        queries: list[Ints],
        first: Floats,
        costs: Floats,
        active: NDArray[np.bool_],
        tol: float,
        max_iter: int,
        keep_graphs: bool,
    ) -> list[RankingSolution]:
        stack = _Stack.build(self, queries, first, active)
        outside = np.array([self.resting_costs[~points].sum() for points in active])
        objective = [[float(cost)] for cost in costs]
        pending = np.ones(len(queries), dtype=bool)
        solutions: dict[int, RankingSolution] = {}
        for iteration in range(2, max_iter + 1):
            before = stack.scores.copy()
            stack.update_graph()
            stack.update_scores()
            values = stack.objective() + outside
            change = np.sqrt(stack.per_query((stack.scores - before)[:-1] ** 2))
            converged = pending & (change <= tol * np.sqrt(stack.per_query(before[:-1] ** 2)))
            for place in np.flatnonzero(pending).tolist():
                objective[place].append(float(values[place]))
            leaving = pending if iteration == max_iter else converged
            if leaving.any():
                done = stack.keep(leaving)
                whole = len(done.point) == np.count_nonzero(leaving) * self.n
                if whole:
                    done.update_scores(refined=True)
                for place in np.flatnonzero(leaving).tolist():
                    scores = done.scores_of(place, first[:, place])
                    graph = done.graph_of(place) if keep_graphs or not whole else None
                    if graph is not None and not whole:
                        scores = self._refined(graph, queries[place], scores)
                    solutions[place] = RankingSolution(
                        scores, objective[place], bool(converged[place]), graph
                    )
            pending = pending & ~leaving
            if not pending.any():
                break
            if leaving.any():
                stack = stack.keep(pending)
        return [solutions[place] for place in range(len(queries))]

    def _refined(self, graph: sp.csr_array, query: Ints, scores: Floats) -> Floats:
        """The scores of all points on a query's graph, accurate in every component."""
        return solve_clamped(*self._system(graph), (query,), scores)

    def _system(self, graph: sp.csr_array) -> tuple[sp.csr_array, Floats]:
        """Conductances and degrees of ``(2 lam L_S + fidelity I) f = 0``, over the fidelity."""
        conductances = sp.csr_array(self.strength * (graph + graph.T))
        degrees: Floats = 1.0 + np.asarray(conductances.sum(axis=1), dtype=np.float64).ravel()
        return conductances, degrees


@dataclass
class _Stack:
    """Active points of several queries, one query after the other, each in database order.

    Candidates are named twice: `lists` holds database indices, `columns` rows of the stack, where
    ``len(point)`` stands for any inactive point; its score counts as 0.
    """

    problem: AdaptiveRanking
    n_queries: int
    owner: Ints  # query of each row
    point: Ints  # database index of each row
    lookup: Ints  # (queries, n): row of each point, or len(point)
    lists: CandidateLists
    row_of: Ints
    columns: Ints
    costs: Floats  # d_ij of the candidates, for the present scores
    thresholds: Floats
    weights: Floats
    from_outside: Floats  # weight that each row receives from inactive rows
    clamped: Ints  # rows that are query points
    scores: Floats  # one for each row, and the inactive points' 0

    @classmethod
    def build(
        cls,
        problem: AdaptiveRanking,
        queries: list[Ints],
        first: Floats,
        active: NDArray[np.bool_],
    ) -> _Stack:
        owner, point = np.nonzero(active)
        size = len(point)
        lookup = np.full(active.shape, size)
        lookup[owner, point] = np.arange(size)
        lists = problem.lists.take(point)
        row_of = lists.row_of
        columns = lookup[owner[row_of], lists.indices]
        counts = np.diff(problem.lists.indptr)[point]
        entries = np.arange(len(row_of)) - np.repeat(lists.indptr[:-1], counts)
        weights = problem.resting[entries + np.repeat(problem.lists.indptr[point], counts)]
        inside = np.bincount(columns, weights, minlength=size + 1)[:-1]
        stack = cls(
            problem=problem,
            n_queries=len(queries),
            owner=owner,
            point=point,
            lookup=lookup,
            lists=lists,
            row_of=row_of,
            columns=columns,
            costs=lists.sq_distances,
            thresholds=problem.resting_thresholds[point],
            weights=weights,
            from_outside=np.maximum(problem.received[point] - inside, 0.0),
            clamped=np.concatenate([lookup[place, query] for place, query in enumerate(queries)]),
            scores=np.append(first.T[active], 0.0),
        )
        stack._update_costs()
        return stack

    def keep(self, queries: NDArray[np.bool_]) -> _Stack:
        """The rows of some queries, which keep their numbers."""
        kept = queries[self.owner]
        number = np.cumsum(np.append(kept, True)) - 1
        entries = kept[self.row_of]
        lists = self.lists.take(np.flatnonzero(kept))
        return _Stack(
            problem=self.problem,
            n_queries=self.n_queries,
            owner=self.owner[kept],
            point=self.point[kept],
            lookup=number[self.lookup],
            lists=lists,
            row_of=lists.row_of,
            columns=number[self.columns[entries]],
            costs=self.costs[entries],
            thresholds=self.thresholds[kept],
            weights=self.weights[entries],
            from_outside=self.from_outside[kept],
            clamped=number[self.clamped[kept[self.clamped]]],
            scores=np.append(self.scores[:-1][kept], 0.0),
        )

    def update_graph(self) -> None:
        """S-step."""
        problem = self.problem
        step = certified_step(
            problem.pool,
            self.point,
            self.lists,
            self.costs,
            problem.gamma,
            self._costs_of,
            self.thresholds,
            self.row_of,
        )
        if step.lists is not self.lists:
            self.lists, self.row_of = step.lists, step.lists.row_of
            self.columns = self.lookup[self.owner[self.row_of], self.lists.indices]
        self.costs, self.weights, self.thresholds = step.costs, step.weights, step.thresholds

    def _costs_of(self, rows: Ints, lists: CandidateLists) -> Floats:
        row_of = rows[lists.row_of]
        columns = self.lookup[self.owner[row_of], lists.indices]
        return self._costs(row_of, columns, lists.sq_distances)

    def _update_costs(self) -> None:
        self.costs = self._costs(self.row_of, self.columns, self.lists.sq_distances)

    def _costs(self, row_of: Ints, columns: Ints, sq_distances: Floats) -> Floats:
        """``||x_i - x_j||^2 + lam (f_i - f_j)^2`` of candidate pairs."""
        costs = self.scores[row_of]
        costs -= self.scores[columns]
        costs *= costs
        costs *= self.problem.lam
        costs += sq_distances
        return costs

    def update_scores(self, *, refined: bool = False) -> None:
        """f-step on the active points; `refined` for scores accurate in every component."""
        size = len(self.point)
        graph = graph_of(self.weights, self.columns, self.lists.indptr, size)
        strength = self.problem.strength
        conductances = sp.csr_array(strength * (graph + graph.T))
        received = np.bincount(self.columns, self.weights, minlength=size + 1)[:-1]
        degrees = 1.0 + strength * (1.0 + received + self.from_outside)
        self.scores[:-1] = solve_clamped(
            conductances,
            degrees,
            (self.clamped,),
            self.scores[:-1],
            accuracy=RELATIVE_ACCURACY if refined else _STEP_ACCURACY,
            componentwise=refined,
        )
        self._update_costs()

    def objective(self) -> Floats:
        """Objective of each query, without the rows of inactive points."""
        terms = self.problem.gamma * self.weights
        terms += self.costs
        terms *= self.weights
        fidelity = self.problem.fidelity * self.scores[:-1] ** 2
        fidelity[self.clamped] = 0.0
        return self.per_query(np.add.reduceat(terms, self.lists.indptr[:-1]) + fidelity)

    def per_query(self, values: Floats) -> Floats:
        """Sums of row values, shape (n_queries,)."""
        sums = np.bincount(self.owner, values, minlength=self.n_queries)
        return sums.astype(np.float64, copy=False)

    def scores_of(self, place: int, first: Floats) -> Floats:
        """Scores of all points for one query; inactive points have their first ones."""
        own = self.owner == place
        scores = first.copy()
        scores[self.point[own]] = self.scores[:-1][own]
        return scores

    def graph_of(self, place: int) -> sp.csr_array:
        """Graph of all points for one query."""
        problem = self.problem
        own = np.flatnonzero(self.owner == place)
        entries = slice(self.lists.indptr[own[0]], self.lists.indptr[own[-1] + 1])
        at_rest = np.ones(problem.n, dtype=bool)
        at_rest[self.point[own]] = False
        resting_rows = problem.lists.row_of
        used = at_rest[resting_rows]
        rows = np.concatenate([self.point[self.row_of[entries]], resting_rows[used]])
        columns = np.concatenate([self.lists.indices[entries], problem.lists.indices[used]])
        weights = np.concatenate([self.weights[entries], problem.resting[used]])
        positive = weights > 0
        return sp.csr_array(
            sp.coo_array(
                (weights[positive], (rows[positive], columns[positive])),
                shape=(problem.n, problem.n),
            )
        )
