"""Adaptive neighbours: the graph that a method learns together with its scores or codes.

The weights of point i are the row of S that minimises, for given distances d_ij >= 0::

    sum_j (d_ij s_ij + gamma s_ij^2)   subject to   s_ij >= 0,  sum_j s_ij = 1,  s_ii = 0

that is, the projection of ``-d_i / (2 gamma)`` onto the simplex. Ranking with adaptive neighbours and
graph-regularised sparse coding alternate between this step and their own, with

    d_ij = ||x_i - x_j||^2 + extra_ij,      extra_ij >= 0

where only `extra` differs (``lam (f_i - f_j)^2``, ``(lam / alpha) ||e_i - e_j||^2 / 2``).

Row i is solved over a *candidate list*: every point nearer to x_i than a radius r_i (squared). As
extra is never negative, all others have d_ij >= r_i and get weight 0 as soon as the threshold eta_i
of the projection satisfies ``-r_i / (2 gamma) <= eta_i``. Where it does, the row is exact over all
n - 1 points; where it does not, the list is extended to radius ``-2 gamma eta_i``, which is always
enough, because a longer list can only raise the threshold. Nothing of size n x n is formed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from pipeline_lib.errors import InputError
from pipeline_lib.graphs.candidates import CandidateLists, CandidatePool, splice
from pipeline_lib.graphs.neighbors import NeighborGraph, as_points, nearest_neighbors
from pipeline_lib.graphs.simplex import project_ragged

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
PairCosts = Callable[[Ints, Ints], Floats]


def initial_graph(
    X: ArrayLike, n_neighbors: int, neighbors: NeighborGraph | None = None
) -> tuple[sp.csr_array, float]:
    """Initial adaptive-neighbour graph and its regularisation weight.

    With k = `n_neighbors` and d_i1 <= d_i2 <= ... the squared distances from x_i to the other
    points in ascending order::

        s_ij    = (d_{i,k+1} - d_ij)_+ / (k d_{i,k+1} - sum_{h <= k} d_ih)
        gamma_i = (k d_{i,k+1} - sum_{h <= k} d_ih) / 2,      gamma = mean_i gamma_i

    s_i is the row that the S-step gives for gamma_i: exactly k neighbours.

    Parameters
    ----------
    X : array-like of shape (n, d)
    n_neighbors : int
        k, from 1 to n - 2 (the formula needs the neighbour k + 1).
    neighbors : NeighborGraph, optional
        Neighbours of X computed before, at least k + 1 a point.

    Returns
    -------
    S : csr_array of shape (n, n)
        Rows sum to one. A row whose k + 1 nearest points are equally far gets 1 / k on the k first.
    gamma : float
        0 when that holds for every row.

    Raises
    ------
    InputError
        If X is not a finite matrix or `n_neighbors` is out of range.

    References
    ----------
    M. Li, L. Li, F. Nie, "Ranking with adaptive neighbors", 2018, equations (16)-(19).
    """
    points = as_points(X)
    graph = _neighbors_for(points, n_neighbors, neighbors)
    n, k = len(points), n_neighbors
    weights, gammas = initial_weights(graph.sq_distances[:, : k + 1])
    S = sp.csr_array(
        (weights.ravel(), graph.indices[:, :k].ravel(), np.arange(0, n * k + 1, k)), shape=(n, n)
    )
    S.eliminate_zeros()
    S.sort_indices()
    return S, float(gammas.mean())


def initial_weights(sq_distances: Floats) -> tuple[Floats, Floats]:
    """Weights of the first k of k + 1 ascending distances a row, and gamma_i, as `initial_graph`."""
    k = sq_distances.shape[1] - 1
    gaps = sq_distances[:, k:] - sq_distances[:, :k]
    totals = gaps.sum(axis=1, keepdims=True)
    weights = np.full_like(gaps, 1.0 / k)
    np.divide(gaps, totals, out=weights, where=totals > 0)
    return weights, 0.5 * totals[:, 0]


def _neighbors_for(points: Floats, k: int, neighbors: NeighborGraph | None) -> NeighborGraph:
    n = len(points)
    if not 1 <= k <= n - 2:
        raise InputError(
            f"n_neighbors is {k} for {n} points",
            expected=f"1 to {n - 2}" if n > 2 else "at least 3 points",
        )
    if neighbors is None:
        return nearest_neighbors(points, min(n - 1, max(2 * k, k + 8)))
    if neighbors.n_points != n:
        raise InputError(
            f"the neighbour graph has {neighbors.n_points} points, X has {n}",
            remedy="build it from the same X",
        )
    if neighbors.n_neighbors < k + 1:
        raise InputError(
            f"the neighbour graph has {neighbors.n_neighbors} neighbours per point",
            expected=f"at least n_neighbors + 1 = {k + 1}",
        )
    return neighbors


def effective_gamma(gamma: float, sq_distances: Floats) -> float:
    """gamma, or the limit of a vanishing one when all its terms are zero.

    gamma is 0 only if every point has its k + 1 nearest points at one distance. The S-step then
    spreads the weight evenly over the nearest points: the limit for gamma -> 0, reached here with a
    gamma far below the scale of the distances.
    """
    if gamma > 0:
        return gamma
    scale = float(sq_distances.max(initial=0.0))
    return 1e-12 * scale if scale > 0 else 1.0


class AdaptiveNeighbors:
    """The S-step shared by the methods that learn a neighbour graph.

    Parameters
    ----------
    X : array-like of shape (n, d)
    n_neighbors : int
        k of `initial_graph`, which fixes gamma.
    neighbors : NeighborGraph, optional
        Exact neighbours of X computed before, at least k + 1 a point.
    local : bool, default False
        Keep only the k initial neighbours as candidates instead of all points.
    own_scale : bool, default False
        Divide the squared distances from each point by its own gamma_i, and take gamma = 1, instead
        of one gamma for all: every point then has k neighbours when nothing is extra, in dense and
        in sparse regions.

    Attributes
    ----------
    initial : csr_array of shape (n, n)
        Initial graph.
    gamma : float
    units : ndarray of shape (n,)
        What the squared distances from each point are divided by: gamma_i with `own_scale`, else 1.
    graph : csr_array of shape (n, n)
        The latest graph: the initial one until the first `update`.
    """

    def __init__(
        self,
        X: ArrayLike,
        n_neighbors: int,
        *,
        neighbors: NeighborGraph | None = None,
        local: bool = False,
        own_scale: bool = False,
    ) -> None:
        points = as_points(X)
        known = _neighbors_for(points, n_neighbors, neighbors)
        if not (local or known.exact):
            raise InputError(
                "the neighbour graph is approximate",
                expected="an exact one: the certificate of adaptive neighbours rests on it",
                remedy="search exactly, or keep to the initial neighbours (local)",
            )
        self.initial, self.gamma = initial_graph(points, n_neighbors, known)
        self.graph = self.initial
        self.n_neighbors = n_neighbors
        self.local = local
        units = None
        if own_scale:
            _, gammas = initial_weights(known.sq_distances[:, : n_neighbors + 1])
            # A point whose k + 1 nearest are equally far has gamma_i = 0: the limit, as below.
            least = 1e-9 * effective_gamma(self.gamma, known.sq_distances[:, :n_neighbors])
            units = np.maximum(gammas, least)
            self.gamma = 1.0
        self.effective_gamma = effective_gamma(self.gamma, known.sq_distances[:, :n_neighbors])
        self.pool = CandidatePool(points, known, units)
        self.units = self.pool.units
        self.lists = self.pool.first(n_neighbors)
        if not local:
            # The first k, with the knowledge that others exist.
            radius = known.sq_distances[:, n_neighbors] / self.units
            self.lists = replace(self.lists, radius=radius)
        self.thresholds: Floats | None = None

    def update(self, extra: PairCosts | None = None) -> sp.csr_array:
        """The graph that minimises the objective for the given extra distances.

        Parameters
        ----------
        extra : callable, optional
            ``extra(rows, cols)`` returns the non-negative extra distances of those pairs of
            points, shape (len(rows),). Default: none.

        Returns
        -------
        csr_array of shape (n, n)
            Rows sum to one; exact over all points (`local`: over the initial neighbours).
        """
        n = self.graph.shape[0]

        def costs(rows: Ints, lists: CandidateLists) -> Floats:
            if extra is None:
                return lists.sq_distances
            return lists.sq_distances + extra(rows[lists.row_of], lists.indices)

        everyone = np.arange(n)
        step = certified_step(
            self.pool,
            everyone,
            self.lists,
            costs(everyone, self.lists),
            self.effective_gamma,
            costs,
            self.thresholds,
        )
        self.lists, self.thresholds = step.lists, step.thresholds
        self.graph = graph_of(step.weights, self.lists.indices, self.lists.indptr, n)
        return self.graph


@dataclass(frozen=True)
class GraphStep:
    """Rows of an S-step.

    Attributes
    ----------
    lists : CandidateLists
        The candidates they are exact over.
    costs, weights : ndarray of shape (nnz,)
        Distances d_ij and weights s_ij of the candidates.
    thresholds : ndarray of shape (rows,)
    """

    lists: CandidateLists
    costs: Floats
    weights: Floats
    thresholds: Floats


def certified_step(
    pool: CandidatePool,
    points: Ints,
    lists: CandidateLists,
    costs: Floats,
    gamma: float,
    cost_of: Callable[[Ints, CandidateLists], Floats],
    start: Floats | None = None,
    row_of: Ints | None = None,
) -> GraphStep:
    """Exact rows of the S-step, with the candidate lists extended wherever they do not suffice.

    Parameters
    ----------
    pool : CandidatePool
    points : ndarray of int, shape (rows,)
        Database point of each row (rows of several problems may be stacked).
    lists : CandidateLists
        Candidates of each row.
    costs : ndarray of shape (nnz,)
        d_ij of the candidates, at least the squared distance.
    gamma : float
        Positive.
    cost_of : callable
        ``cost_of(rows, lists)``: the same for other candidates `lists` of some of the rows.
    start : ndarray of shape (rows,), optional
        Guess of the thresholds.
    row_of : ndarray of int, shape (nnz,), optional
        ``lists.row_of``, when the caller has it already.

    Returns
    -------
    GraphStep
        Its lists are the object given if they sufficed.
    """
    weights, thresholds = project_ragged(costs / (-2.0 * gamma), lists.indptr, start, row_of)
    rows = _uncertified(lists, thresholds, gamma)
    counts = np.diff(lists.indptr)[rows]
    while len(rows):
        # The radius is always enough; doubling first keeps lists near the length they need.
        radii = -2.0 * gamma * thresholds[rows]
        part = pool.within(points[rows], radii, most=2 * counts)
        part_costs = cost_of(rows, part)
        part_weights, thresholds[rows] = project_ragged(
            part_costs / (-2.0 * gamma), part.indptr, thresholds[rows]
        )
        _, (costs, weights) = splice(
            lists.indptr, rows, part.indptr, (costs, part_costs), (weights, part_weights)
        )
        lists = lists.replace(rows, part)
        short = _uncertified(part, thresholds[rows], gamma)
        rows, counts = rows[short], np.diff(part.indptr)[short]
    return GraphStep(lists, costs, weights, thresholds)


def _uncertified(lists: CandidateLists, thresholds: Floats, gamma: float) -> Ints:
    """Rows in which a point outside the list could still get weight."""
    return np.flatnonzero(lists.radius < -2.0 * gamma * thresholds)


def graph_of(weights: Floats, columns: Ints, indptr: Ints, n_columns: int) -> sp.csr_array:
    """Sparse matrix of the positive weights of ragged rows, columns below `n_columns` only."""
    used = (weights > 0) & (columns < n_columns)
    ends = np.concatenate([[0], np.cumsum(used)])[indptr]
    graph = sp.csr_array((weights[used], columns[used], ends), shape=(len(indptr) - 1, n_columns))
    graph.sort_indices()
    return graph
