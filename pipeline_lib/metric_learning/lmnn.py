"""Large margin nearest neighbour (LMNN)."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from pipeline_lib.base import IterativeEstimator
from pipeline_lib.errors import InputError
from pipeline_lib.graphs.neighbors import pair_sq_distances
from pipeline_lib.kernels.functions import squared_distances
from pipeline_lib.metric_learning.base import (
    LinearMetricLearner,
    check_at_least_one,
    decorrelate,
    pair_scatter,
    positive_part,
)
from pipeline_lib.metric_learning.constraints import UNKNOWN, Constraints, renumber

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

_BLOCK_ENTRIES = 4_000_000
# A listed impostor pair costs about this many times an entry of a blocked distance matrix.
_LIST_COST = 30
# Between full searches the active set keeps pairs this far outside their margin.
_MARGIN = 1.1
_REFRESH = 10


class LMNN(IterativeEstimator, LinearMetricLearner):
    """Pull target neighbours close and push differently labelled rows out of their margin.

    With the k nearest rows of its own class as targets j -> i of row i (fixed beforehand),

        min_{M >= 0}  (1 - mu) sum_{j->i} d_M(i, j)^2
                      + mu sum_{j->i} sum_{l: y_l != y_i} [1 + d_M(i, j)^2 - d_M(i, l)^2]_+

    is convex in M; it is solved by projected subgradient steps whose length grows while the
    objective falls and halves when it rises. Impostors l are searched with blocked matrix products;
    when they are few, they are kept as an active set between searches.

    Parameters
    ----------
    n_neighbors : int, default 3
        k, target neighbours of a row.
    push : float, default 0.5
        mu in (0, 1).
    tol : float, default 1e-3
        Stop when ten steps in a row lower the objective by less than this share in all.
    max_iter : int, default 200

    Attributes
    ----------
    components_ : ndarray of shape (k, d)
    objective_, history_, n_iter_, converged_
        See `pipeline_lib.base.IterativeEstimator`; the objective never rises.

    Notes
    -----
    The start is Euclidean distance in units of the mean squared distance to the targets, so the
    margin 1 has a meaning whatever the units of X; steps are made in decorrelated coordinates (the
    same problem, better conditioned).
    With pairs as constraints the targets of a row are its k nearest similar rows, and its possible
    impostors its dissimilar rows.

    References
    ----------
    K. Weinberger, L. Saul, "Distance metric learning for large margin nearest neighbor
    classification", JMLR 10, 2009.
    """

    def __init__(
        self, n_neighbors: int = 3, push: float = 0.5, tol: float = 1e-3, max_iter: int = 200
    ) -> None:
        self.n_neighbors = n_neighbors
        self.push = push
        self.tol = tol
        self.max_iter = max_iter

    def _fit(self, X: Array, constraints: Any) -> None:
        check_at_least_one(self.n_neighbors, "n_neighbors")
        if not 0 < self.push < 1:
            raise InputError(f"push is {self.push!r}", expected="a number between 0 and 1")
        pulls = _target_pairs(X, constraints, self.n_neighbors)
        Z, W, variances = decorrelate(X)
        mean_square = float(pair_sq_distances(X, X, pulls.rows, pulls.cols).mean()) or 1.0
        problem = _LargeMargin(Z, constraints, pulls, self.push)
        components, objective, converged = self._descend(problem, variances / mean_square)
        self.components_ = components @ W.T
        self._record_convergence(
            {"objective": objective}, converged=converged, n_iter=len(objective)
        )

    def _descend(self, problem: _LargeMargin, start: Array) -> tuple[Array, list[float], bool]:
        """Projected subgradient descent from diag(start), its step length following its success."""
        M, L = np.diag(start), np.diag(np.sqrt(start))
        value, gradient = problem.evaluate(L, full=True)
        history = [value]
        # The first step moves M by a tenth of its norm.
        step = (
            0.1
            * float(np.linalg.norm(start))
            / max(float(np.linalg.norm(gradient)), np.finfo(float).tiny)
        )
        for iteration in range(1, self.max_iter):
            full = iteration % _REFRESH == 0
            if full:
                # Pairs that the active set missed count from here on.
                value, gradient = problem.evaluate(L, full=True)
            trial_M, trial_L = positive_part(M - step * gradient)
            trial_value, trial_gradient = problem.evaluate(trial_L, full=False)
            if trial_value <= value:
                M, L, value, gradient = trial_M, trial_L, trial_value, trial_gradient
                step *= 1.2
            else:
                step *= 0.5
            history.append(min(value, history[-1]))
            recent = history[-_REFRESH - 1 :]
            if len(recent) > _REFRESH and recent[0] - recent[-1] <= self.tol * abs(recent[-1]):
                exact, _ = problem.evaluate(L, full=True)
                if exact <= value * (1.0 + self.tol):
                    return L, history, True
        return L, history, False


class _Pairs(NamedTuple):
    rows: Ints
    cols: Ints


class _LargeMargin:
    """Objective and subgradient of LMNN at M = L'L, with the active set of impostors."""

    def __init__(self, X: Array, constraints: Constraints, pulls: _Pairs, push: float) -> None:
        self.X = X
        self.pulls = pulls
        self.push = push
        self.slot = _slots(pulls.rows, len(X))
        self.width = int(self.slot.max()) + 1
        self.groups = None if constraints.groups is None else renumber(constraints.groups)
        self.active: _Pairs | None = None
        self.fixed = constraints.groups is None
        if constraints.groups is None:
            assert constraints.dissimilar is not None
            apart = constraints.dissimilar
            self.active = _Pairs(
                np.concatenate([apart[:, 0], apart[:, 1]]),
                np.concatenate([apart[:, 1], apart[:, 0]]),
            )

    def evaluate(self, L: Array, full: bool) -> tuple[float, Array]:
        """Objective and subgradient; ``full`` searches impostors anew, else the active set is used."""
        Z = self.X @ L.T
        pulled = pair_sq_distances(Z, Z, self.pulls.rows, self.pulls.cols)
        limits = np.full((len(Z), self.width), -np.inf)
        limits[self.pulls.rows, self.slot] = 1.0 + pulled
        searched = self.active is None or (full and not self.fixed)
        hinge, counts, scatter = self._search(Z, limits) if searched else self._listed(Z, limits)
        weight = (1.0 - self.push) + self.push * counts[self.pulls.rows, self.slot]
        value = (1.0 - self.push) * float(pulled.sum()) + self.push * hinge
        gradient = pair_scatter(self.X, *self.pulls, weight)
        gradient -= self.push * scatter
        return value, gradient

    def _search(self, Z: Array, limits: Array) -> tuple[float, Array, Array]:
        """All impostors, row block by row block of the distance matrix."""
        assert self.groups is not None
        n = len(Z)
        squares = np.einsum("ij,ij->i", Z, Z)
        counts = np.zeros_like(limits)
        degree = np.zeros(n)
        cross = np.zeros((self.X.shape[1],) * 2)
        hinge = 0.0
        found: list[_Pairs] | None = []
        n_found = 0
        rows_per_block = max(1, _BLOCK_ENTRIES // n)
        reach = limits.max(axis=1)
        for start in range(0, n, rows_per_block):
            block = slice(start, min(start + rows_per_block, n))
            D = Z[block] @ Z.T
            D *= -2.0
            D += squares
            D += squares[block, None]
            own = self.groups[block, None]
            apart = (self.groups != own) & (self.groups != UNKNOWN) & (own != UNKNOWN)
            pushes = np.zeros(D.shape)
            for slot in range(self.width):
                inside = limits[block, slot, None] > D
                inside &= apart
                pushes += inside
                counts[block, slot] = inside.sum(axis=1)
            hinge += _hinge(limits[block], counts[block]) - float(np.einsum("ij,ij->", D, pushes))
            degree[block] += pushes.sum(axis=1)
            degree += pushes.sum(axis=0)
            dense = np.count_nonzero(pushes) > pushes.size // _LIST_COST
            operator = pushes if dense else sparse.csr_array(pushes)
            cross += self.X[block].T @ np.asarray(operator @ self.X)
            if found is not None:
                near = apart & (reach[block, None] * _MARGIN > D)
                n_found += int(np.count_nonzero(near))
                if n_found * _LIST_COST > n * n:
                    found = None
                else:
                    row, col = np.nonzero(near)
                    found.append(_Pairs(row + start, col))
        self.active = None
        if found is not None:
            self.active = _Pairs(*(np.concatenate(part) for part in zip(*found, strict=True)))
        scatter = self.X.T @ (degree[:, None] * self.X) - cross - cross.T
        return hinge, counts, scatter

    def _listed(self, Z: Array, limits: Array) -> tuple[float, Array, Array]:
        """The same sums over the active set only."""
        assert self.active is not None
        rows, cols = self.active
        D = pair_sq_distances(Z, Z, rows, cols)
        counts = np.zeros_like(limits)
        pushes = np.zeros(len(rows))
        for slot in range(self.width):
            inside = limits[rows, slot] > D
            pushes += inside
            counts[:, slot] = np.bincount(rows, weights=inside, minlength=len(Z))
        hinge = _hinge(limits, counts) - float(D @ pushes)
        return hinge, counts, pair_scatter(self.X, rows, cols, pushes)


def _hinge(limits: Array, counts: Array) -> float:
    """sum of limit x count, where rows without a target have no limit and no impostor."""
    return float(np.where(counts > 0, limits, 0.0).ravel() @ counts.ravel())


def _slots(rows: Ints, n: int) -> Ints:
    """Position of every pair among the pairs of its row (rows are sorted)."""
    starts = np.searchsorted(rows, np.arange(n))
    return np.arange(len(rows)) - starts[rows]


def _target_pairs(X: Array, constraints: Constraints, k: int) -> _Pairs:
    """Every row with its k nearest rows of the same class (or similar rows), sorted by row."""
    rows: list[Ints] = []
    cols: list[Ints] = []
    if constraints.groups is not None:
        groups = renumber(constraints.groups)
        for label in range(int(groups.max()) + 1):
            members = np.flatnonzero(groups == label)
            if len(members) < 2:
                continue
            squares = squared_distances(X[members])
            np.fill_diagonal(squares, np.inf)
            nearest = np.argsort(squares, axis=1, kind="stable")[:, : min(k, len(members) - 1)]
            rows.append(np.repeat(members, nearest.shape[1]))
            cols.append(members[nearest].ravel())
    else:
        assert constraints.similar is not None
        a, b = constraints.similar.T
        both = np.unique(np.concatenate([np.stack([a, b]), np.stack([b, a])], axis=1), axis=1)
        row, col = both[:, both[0] != both[1]]
        order = np.lexsort((pair_sq_distances(X, X, row, col), row))
        row, col = row[order], col[order]
        kept = _slots(row, len(X)) < k
        rows.append(row[kept])
        cols.append(col[kept])
    if not rows or sum(map(len, rows)) == 0:
        raise InputError("no row has another row of its class", expected="classes of several rows")
    row, col = np.concatenate(rows), np.concatenate(cols)
    order = np.argsort(row, kind="stable")
    return _Pairs(row[order], col[order])
