"""Distances between images with several groups of features, combined with equal contribution.

The columns of X are cut into consecutive groups (colour, texture, ..); each has a base distance,

========== =========================================
euclidean  ||x - y||
cosine     1 - x'y / (||x|| ||y||)
l1         ||x - y||_1
chi2       sum_j (x_j - y_j)^2 / (x_j + y_j), x, y >= 0
========== =========================================

divided by its largest value on the training rows, and the joint distance is the mean over groups
(the joint equal contribution of Makadia et al.). With one group the order of neighbours is that of
the base distance.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist
from sklearn.metrics.pairwise import additive_chi2_kernel

from pipeline_lib.annotation.semantic import unit_rows
from pipeline_lib.annotation.voting import check_choice, check_neighbors, select_nearest
from pipeline_lib.errors import InputError
from pipeline_lib.kernels.functions import row_blocks, squared_distances

Array = NDArray[np.float64]

BASE_DISTANCES = ("euclidean", "cosine", "l1", "chi2")

_BLOCK_BYTES = 64 * 2**20
_SCALE_ROWS = 500


class JointNeighbors(NamedTuple):
    """Nearest training rows by joint distance, nearest first.

    Attributes
    ----------
    indices : ndarray of shape (n_queries, k)
    joint : ndarray of shape (n_queries, k)
        Joint distances, ascending.
    base : ndarray of shape (n_groups, n_queries, k)
        Scaled distance of every feature group.
    """

    indices: NDArray[np.int64]
    joint: Array
    base: Array


class JointDistance:
    """Scaled base distances to fixed training rows.

    Parameters
    ----------
    X : ndarray of shape (n, d)
        Training rows.
    distances : str or sequence of str
        One base distance for all groups, or one for each.
    groups : sequence of int, optional
        Widths of the feature groups, summing to d; one group by default.
    scales : ndarray of shape (n_groups,), optional
        Largest base distances, when known from an earlier fit.

    Raises
    ------
    InputError
        For an unknown distance, widths that do not add up, or negative values under chi2.
    """

    def __init__(
        self,
        X: Array,
        distances: str | Sequence[str],
        groups: Sequence[int] | None = None,
        scales: Array | None = None,
    ) -> None:
        self.X = X
        widths = [X.shape[1]] if groups is None else [int(width) for width in groups]
        if min(widths, default=0) < 1 or sum(widths) != X.shape[1]:
            raise InputError(
                f"feature groups are {widths}", expected=f"widths that sum to {X.shape[1]}"
            )
        self.names = (distances,) * len(widths) if isinstance(distances, str) else tuple(distances)
        if len(self.names) != len(widths):
            raise InputError(
                f"{len(self.names)} distances for {len(widths)} feature groups",
                expected="one distance, or one for each group",
            )
        for name in self.names:
            check_choice(name, BASE_DISTANCES, "distance")
        ends = np.cumsum(widths)
        self.columns = [slice(end - width, end) for end, width in zip(ends, widths, strict=True)]
        self.scales = self._largest() if scales is None else np.asarray(scales, dtype=np.float64)

    def _largest(self) -> Array:
        """Largest base distance from an even sample of the rows to all of them."""
        sample = np.unique(np.linspace(0, len(self.X) - 1, _SCALE_ROWS).astype(int))
        largest = np.zeros(len(self.names))
        for _, stack in self._blocks(self.X[sample]):
            largest = np.maximum(largest, stack.max(axis=(1, 2)))
        return np.where(largest > 0, largest, 1.0)

    def _blocks(self, rows: Array) -> Iterator[tuple[slice, Array]]:
        for block in row_blocks(len(rows), 8 * len(self.X) * len(self.names), _BLOCK_BYTES):
            yield (
                block,
                np.stack(
                    [
                        _base_distance(name, rows[block, columns], self.X[:, columns])
                        for name, columns in zip(self.names, self.columns, strict=True)
                    ]
                ),
            )

    def blocks(self, rows: Array | None) -> Iterator[tuple[slice, Array]]:
        """Yield ``(rows, scaled distances (n_groups, b, n))``; None excludes each row from itself.

        A row's distance to itself is then infinite.
        """
        leave_one_out = rows is None
        for block, stack in self._blocks(self.X if rows is None else rows):
            stack /= self.scales[:, None, None]
            if leave_one_out:
                own = np.arange(block.start, block.stop)
                stack[:, own - block.start, own] = np.inf
            yield block, stack

    def neighbors(self, rows: Array | None, n_neighbors: int) -> JointNeighbors:
        """The nearest training rows of ``rows`` (None: of every training row, leaving it out)."""
        n_rows = len(self.X) if rows is None else len(rows)
        k = check_neighbors(n_neighbors, len(self.X) - (rows is None))
        if k == 0:
            raise InputError("one row has no other row as neighbour", expected="at least two rows")
        indices = np.empty((n_rows, k), dtype=np.int64)
        base = np.empty((len(self.names), n_rows, k))
        for block, stack in self.blocks(rows):
            indices[block] = select_nearest(-stack.mean(axis=0), k).indices
            base[:, block] = np.take_along_axis(stack, indices[None, block], axis=2)
        return JointNeighbors(indices, base.mean(axis=0), base)


def _base_distance(name: str, A: Array, B: Array) -> Array:
    if name == "euclidean":
        return np.sqrt(squared_distances(A, B))
    if name == "cosine":
        return np.maximum(1.0 - unit_rows(A) @ unit_rows(B).T, 0.0)
    if name == "l1":
        return cdist(A, B, "cityblock")
    if A.min() < 0 or B.min() < 0:
        raise InputError("rows have negative values", expected="values >= 0 for distance chi2")
    return np.maximum(-additive_chi2_kernel(A, B), 0.0)
