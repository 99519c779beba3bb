"""Codes of rows that do not depend on one another: feature-sign search on many rows at once.

    min_h  h (G + p_i I) h' - 2 b_i h' + beta ||h||_1        for every row i

G : (atoms, atoms) Gram matrix of the dictionary; b_i : (atoms,) correlations of row i; p_i >= 0.

A row at its minimum uses few atoms. Its *face* is the set of atoms it uses with their signs; the minimiser
of a face is a linear system of that size. One round serves all rows that are not optimal yet: a row that
is optimal on its face takes in the atoms that violate its conditions most, every other row moves towards
the minimiser of its face, as far as the best point where an entry reaches zero. Gradients are one matrix
product, the systems one stacked solve, so the work in Python does not grow with the number of rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Indices = NDArray[np.intp]

# Largest number of entries of the stacked systems, and by how much a stack may pad its smallest system.
_STACK_ENTRIES = 2_000_000
_STACK_WIDTH = 8
# Rows that use more than this share of the atoms (in the root mean square) are given up: a round then costs
# more than the iterations of a gradient method it saves.
_DENSE = 1 / 6
# Added to the diagonal, relative to the largest of G: keeps systems of collinear atoms solvable. Steps are
# taken from exact gradients, so that it costs rounds and no accuracy.
_RIDGE = 1e-9
# A settled row takes in atoms whose violation is at least this share of its largest ...
_SHARE = 0.5
# ... and no more than this many, or half as many as it uses.
_FEWEST = 2


@dataclass(frozen=True)
class RowProblems:
    """The problems above, stacked.

    Attributes
    ----------
    gram : ndarray of shape (atoms, atoms)
    shift : ndarray of shape (n,)
        p.
    target : ndarray of shape (n, atoms)
        b.
    beta : float
        Positive.
    """

    gram: Array
    shift: Array
    target: Array
    beta: float

    def gradient(self, codes: Array, rows: Indices) -> Array:
        """Gradient of the smooth part at the codes of some rows."""
        gradient = codes @ self.gram
        gradient += self.shift[rows, None] * codes
        gradient -= self.target[rows]
        gradient *= 2.0
        return gradient


def solve_rows(
    problems: RowProblems, start: Array, *, goal: float, max_rounds: int = 200
) -> tuple[Array, int, bool]:
    """Minimise every row until no optimality condition is violated by more than ``goal``.

    Parameters
    ----------
    problems : RowProblems
    start : ndarray of shape (n, atoms)
        Any point; no row ends above its start.
    goal : float
        Accepted violation, absolute.
    max_rounds : int, default=200
        Rounds after which rows that are still not optimal are left as they are.

    Returns
    -------
    codes : ndarray of shape (n, atoms)
    rounds : int
    done : bool
        Whether every row has met the goal. Rows that have not are left where they were when `max_rounds`
        had passed, when rounding allowed no further descent, or when faces had become so large that
        another method is faster.
    """
    codes = start.copy()
    open_rows: Indices = np.arange(len(codes))
    signs = np.sign(codes)
    careful = np.zeros(len(codes), dtype=bool)
    for round_number in range(max_rounds):
        now = codes[open_rows]
        gradient = problems.gradient(now, open_rows)
        faces = signs[open_rows]
        gradient += problems.beta * faces
        outside = np.abs(gradient)
        inside = np.where(faces != 0.0, outside, 0.0).max(axis=1)
        outside -= problems.beta
        outside[faces != 0.0] = 0.0
        worst = outside.max(axis=1)
        left = (inside > goal) | (worst > goal)
        if not left.any():
            return codes, round_number, True
        settled = inside <= goal
        taken = _most_violated(outside, worst, faces, careful[open_rows])
        taken[~settled] = False
        # On an atom that comes in, the l1 term joins the gradient with the sign of the atom.
        coming = -np.sign(gradient[taken])
        faces[taken] = coming
        gradient[taken] += problems.beta * coming
        open_rows = open_rows[left]
        now, gradient, faces = now[left], gradient[left], faces[left]
        sizes = np.count_nonzero(faces, axis=1)
        if np.square(sizes).sum() > codes.shape[0] * (_DENSE * codes.shape[1]) ** 2:
            return codes, round_number + 1, False
        moved = np.zeros(len(open_rows), dtype=bool)
        for rows, atoms, used in _stacks(faces, sizes):
            moved[rows] = _step(problems, open_rows, now, gradient, faces, rows, atoms, used)
        codes[open_rows] = now
        signs[open_rows] = np.sign(now)
        # A row that several new atoms have not moved takes in one at a time, which always moves it;
        # one that does not move even so is as low as rounding lets it.
        stuck = ~moved & careful[open_rows] & settled[left]
        careful[open_rows] |= ~moved
        open_rows = open_rows[~stuck]
        if not len(open_rows):
            break
    return codes, round_number + 1, False


def _most_violated(
    outside: Array, worst: Array, faces: Array, careful: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    """Which atoms each row would take in."""
    most = np.maximum(_FEWEST, np.count_nonzero(faces, axis=1) // 2)
    most[careful] = 1
    limit = min(int(most.max()), outside.shape[1])
    largest = np.argpartition(-outside, limit - 1, axis=1)[:, :limit]
    falling = np.argsort(-np.take_along_axis(outside, largest, axis=1), axis=1, kind="stable")
    best = np.take_along_axis(largest, falling, axis=1)
    values = np.take_along_axis(outside, best, axis=1)
    chosen = (values >= _SHARE * worst[:, None]) & (values > 0.0)
    chosen &= np.arange(limit) < most[:, None]
    taken = np.zeros(outside.shape, dtype=bool)
    np.put_along_axis(taken, best, chosen, axis=1)
    return taken


def _stacks(faces: Array, sizes: Indices) -> Iterator[tuple[Indices, Indices, NDArray[np.bool_]]]:
    """Rows of similar size, with the atoms they use side by side and which places are filled."""
    order = np.argsort(sizes, kind="stable")
    order = order[sizes[order] > 0]
    first = 0
    while first < len(order):
        width = int(sizes[order[first]]) + _STACK_WIDTH
        last = first + int(np.searchsorted(sizes[order[first:]], width, side="right"))
        last = min(last, first + max(1, _STACK_ENTRIES // width**2))
        rows = order[first:last]
        width = int(sizes[rows[-1]])
        used = np.arange(width) < sizes[rows, None]
        atoms = np.zeros(used.shape, dtype=np.intp)
        atoms[used] = np.nonzero(faces[rows])[1]
        yield rows, atoms, used
        first = last


def _step(
    problems: RowProblems,
    open_rows: Indices,
    now: Array,
    gradient: Array,
    faces: Array,
    rows: Indices,
    atoms: Indices,
    used: NDArray[np.bool_],
) -> NDArray[np.bool_]:
    """Move a stack of rows towards the minimisers of their faces; tell which have moved."""
    system = problems.gram[atoms[:, :, None], atoms[:, None, :]]
    system *= used[:, :, None] & used[:, None, :]
    diagonal = np.einsum("raa->ra", system)
    ridge = _RIDGE * float(np.diag(problems.gram).max())
    diagonal += np.where(used, problems.shift[open_rows[rows], None], 1.0)
    place = (rows[:, None], atoms)
    slope = np.where(used, gradient[place], 0.0)
    damped = system.copy()
    np.einsum("raa->ra", damped)[...] += ridge
    direction = np.asarray(np.linalg.solve(damped, -0.5 * slope[:, :, None])[:, :, 0], dtype=float)
    values = np.where(used, now[place], 0.0)
    bend = np.einsum("ra,rab,rb->r", direction, system, direction)
    fall = np.einsum("ra,ra->r", slope, direction)
    step, at_zero = _best_point(values, direction, faces[place], used, bend, fall, problems.beta)
    values += step[:, None] * direction
    values[at_zero] = 0.0
    whole = np.broadcast_to(rows[:, None], atoms.shape)
    now[whole[used], atoms[used]] = values[used]
    return step > 0.0


def _best_point(
    values: Array,
    direction: Array,
    signs: Array,
    used: NDArray[np.bool_],
    bend: Array,
    fall: Array,
    beta: float,
) -> tuple[Array, NDArray[np.bool_]]:
    """The best among the end of each segment and the points on it where an entry reaches zero.

    Along the segment the objective is  fall t + bend t^2 + 2 beta sum_j |d_j| max(t - t_j, 0)  above its
    start, t_j being where entry j reaches zero: at once for an atom that comes in and heads the
    wrong way.
    """
    against = used & (direction * signs < 0.0)
    crossing = np.full(values.shape, np.inf)
    np.divide(-values, direction, out=crossing, where=against)
    crossing[crossing >= 1.0] = np.inf
    order = np.argsort(crossing, axis=1, kind="stable")
    sorted_crossing = np.take_along_axis(crossing, order, axis=1)
    reached = np.isfinite(sorted_crossing)
    points = np.where(reached, sorted_crossing, 1.0)
    speed = np.abs(np.take_along_axis(direction, order, axis=1)) * reached
    passed = np.cumsum(speed, axis=1)
    late = np.cumsum(speed * points, axis=1)
    points = np.column_stack([points, np.ones(len(points))])
    passed, late = (np.column_stack([part, part[:, -1]]) for part in (passed, late))
    change = fall[:, None] * points + bend[:, None] * points**2
    change += 2.0 * beta * (points * passed - late)
    best = change.argmin(axis=1)[:, None]
    step = np.take_along_axis(points, best, axis=1)[:, 0]
    step[np.take_along_axis(change, best, axis=1)[:, 0] >= 0.0] = 0.0
    # Entries of equal atoms arrive together: none may stay behind as a rounding error.
    at_zero = np.abs(crossing - step[:, None]) <= 1e-12 * step[:, None]
    return step, at_zero
