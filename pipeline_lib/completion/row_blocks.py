"""Entrywise work on the rows of a low-rank matrix, block by block and in parallel."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_info

Array = NDArray[np.float64]
Work = Callable[[int, int, Array, Array], tuple[float, ...]]

# Rows are multiplied out in groups of blocks: large enough for a matrix product to be fast.
_GROUP_ENTRIES = 1_000_000


class RowBlocks:
    """Run a function over blocks of rows of left @ right.T, none of which outlives its turn.

    Parameters
    ----------
    blocks : sequence of (start, stop)
        Rows of the blocks, in order and without gaps.
    m : int
        Number of columns.

    Notes
    -----
    As many threads as BLAS has (numpy releases the interpreter lock), none if that is one. Sums are
    taken in the order of the blocks, so they do not depend on the number of threads.
    """

    def __init__(self, blocks: Sequence[tuple[int, int]], m: int) -> None:
        rows = blocks[0][1] - blocks[0][0]
        size = max(1, _GROUP_ENTRIES // (rows * m))
        self._groups = [blocks[i : i + size] for i in range(0, len(blocks), size)]
        self._product = np.empty((max(g[-1][1] - g[0][0] for g in self._groups), m))
        self._scratch = threading.local()
        self._shape = (rows, m)
        threads = [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]
        workers = min(max(threads, default=1), len(blocks))
        self._pool = ThreadPoolExecutor(workers) if workers > 1 else None

    def total(self, left: Array, right: Array, work: Work) -> tuple[float, ...]:
        """Sum the results of ``work(start, stop, rows, scratch)`` over the blocks.

        ``rows`` holds rows start to stop of left @ right.T; both arrays may be overwritten.
        """
        results: list[tuple[float, ...]] = []
        for group in self._groups:
            first, last = group[0][0], group[-1][1]
            product = np.matmul(left[first:last], right.T, out=self._product[: last - first])

            def one(
                block: tuple[int, int], first: int = first, product: Array = product
            ) -> tuple[float, ...]:
                start, stop = block
                return work(start, stop, product[start - first : stop - first], self._own(block))

            results.extend(map(one, group) if self._pool is None else self._pool.map(one, group))
        return tuple(map(sum, zip(*results, strict=True)))

    def _own(self, block: tuple[int, int]) -> Array:
        """Scratch rows of this thread."""
        if not hasattr(self._scratch, "rows"):
            self._scratch.rows = np.empty(self._shape)
        rows: Array = self._scratch.rows
        return rows[: block[1] - block[0]]
