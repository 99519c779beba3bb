"""Rows that belong together (the documents of a query), handled for all groups at once.

A set of ranked lists of different lengths has no natural array shape. Two views serve every
computation: the rows sorted so that each segment is one slice (`Segments.order`,
`Segments.starts`), on which ``ufunc.reduceat`` works, and padded rectangles (`Segments.blocks`),
on which any row-wise numpy operation works: sorting, cumulative sums, prefix counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pipeline_lib.errors import InputError

_MAX_CELLS = 1 << 16
"""Cells of a padded rectangle: half a megabyte of float64, so that temporaries stay in cache."""


class PaddedBlock(NamedTuple):
    """Several segments of similar length as one rectangle.

    Attributes
    ----------
    segments : ndarray of shape (s,)
        Which segments, as positions in `Segments.ids`.
    rows : ndarray of shape (s, width)
        Row numbers of the original arrays in file order; padding repeats some valid row.
    valid : ndarray of shape (s, width), bool
        False at the padding, which always follows the rows of a segment.
    """

    segments: NDArray[np.intp]
    rows: NDArray[np.intp]
    valid: NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Segments:
    """A partition of n rows by identifier, segments in the order of their first appearance.

    The rows of a segment need not be contiguous; within a segment file order is kept.

    Attributes
    ----------
    ids : ndarray of shape (n_segments,)
        Identifier of each segment.
    order : ndarray of shape (n,)
        Row numbers, segment after segment.
    starts, lengths : ndarray of shape (n_segments,)
        Segment k is ``order[starts[k] : starts[k] + lengths[k]]``; lengths are at least 1.
    """

    ids: NDArray[Any]
    order: NDArray[np.intp]
    starts: NDArray[np.intp]
    lengths: NDArray[np.intp]

    @classmethod
    def from_ids(cls, ids: ArrayLike, *, name: str = "qid") -> Segments:
        """Group rows by an array of integers or strings.

        Raises
        ------
        InputError
            If the array is empty, not one-dimensional, or holds anything but integers or strings.
        """
        values = _identifiers(ids, name)
        n = len(values)
        changes = np.flatnonzero(values[1:] != values[:-1]) + 1
        starts = np.concatenate([[0], changes]).astype(np.intp)
        run_ids = values[starts]
        distinct, first, inverse = np.unique(run_ids, return_index=True, return_inverse=True)
        if len(distinct) == len(run_ids):
            return cls(run_ids, np.arange(n), starts, np.diff(starts, append=n))
        appearance = np.argsort(first)
        position = np.empty_like(appearance)
        position[appearance] = np.arange(len(appearance))
        codes = np.repeat(position[inverse], np.diff(starts, append=n))
        lengths = np.bincount(codes).astype(np.intp)
        return cls(
            distinct[appearance],
            np.argsort(codes, kind="stable"),
            np.concatenate([[0], np.cumsum(lengths)[:-1]]).astype(np.intp),
            lengths,
        )

    def __len__(self) -> int:
        return len(self.ids)

    def sum(self, values: NDArray[Any]) -> NDArray[Any]:
        """Sum row values within each segment; booleans are counted."""
        ordered = values[self.order]
        if ordered.dtype == np.bool_:
            ordered = ordered.astype(np.int64)
        return np.add.reduceat(ordered, self.starts)

    def blocks(self, max_cells: int = _MAX_CELLS) -> Iterator[PaddedBlock]:
        """Cut all segments into padded rectangles, each less than half padding.

        Segments are grouped by the power of two above their length, so the number of rectangles
        grows with the logarithm of the longest segment and with n / max_cells only.
        """
        size_class = np.ceil(np.log2(self.lengths)).astype(np.int64)
        for members in (np.flatnonzero(size_class == size) for size in np.unique(size_class)):
            width = int(self.lengths[members].max())
            per_block = max(1, max_cells // width)
            columns = np.arange(width)
            for begin in range(0, len(members), per_block):
                chosen = members[begin : begin + per_block]
                lengths = self.lengths[chosen][:, None]
                valid = columns < lengths
                places = self.starts[chosen][:, None] + np.minimum(columns, lengths - 1)
                yield PaddedBlock(chosen, self.order[places], valid)


def _identifiers(ids: ArrayLike, name: str) -> NDArray[Any]:
    values = np.asarray(ids)
    if values.dtype == object and all(isinstance(value, str) for value in values.ravel()):
        values = values.astype(str)
    if values.ndim != 1 or values.size == 0:
        raise InputError(f"{name} has shape {values.shape}", expected="one identifier per row")
    if values.dtype.kind not in "iuUT":
        raise InputError(f"{name} has type {values.dtype}", expected="integers or strings")
    return values
