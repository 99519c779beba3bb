"""Missing values in LETOR rows: replaced by the query's minimum while blocks of rows stream by.

For query q, feature j and a missing x_ij of q,

    x_ij := min { x_kj : k in q, x_kj present },      0 where q has no value of j.

This is how LETOR's ``MIN`` files follow from its ``NULL`` files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pipeline_lib.datasets.layout import Rows


@dataclass(frozen=True)
class DenseRows:
    """Dense rows of one block, and where values are missing in them."""

    rows: Rows
    missing_row: NDArray[np.int64]
    missing_column: NDArray[np.int64]

    @property
    def X(self) -> NDArray[np.float64]:
        return cast(NDArray[np.float64], self.rows.X)

    @property
    def y(self) -> NDArray[np.int32]:
        return cast(NDArray[np.int32], self.rows.y)


def fill_by_query(blocks: Iterable[DenseRows]) -> Iterator[Rows]:
    """Replace missing values by the query's minimum.

    A query may span blocks, so a block is held until the next one is there. If either has missing
    values, the rows of the query at their border move over to the next block; if not, the held block
    goes out, and of that query only the minima are kept (``floor``) for what may still come.
    """
    held: DenseRows | None = None
    floor: NDArray[np.float64] | None = None
    for block in blocks:
        if held is not None:
            shared = pl.Series(held.rows.qid)[-1] == pl.Series(block.rows.qid)[0]
            if shared and (len(held.missing_row) or len(block.missing_row)):
                held, block = _move_border(held, block)
                shared = False
            if len(held.rows):
                yield _filled(held, floor)
                floor = _floor(held, floor) if shared else None
        held = block
    if held is not None:
        yield _filled(held, floor)


def _floor(block: DenseRows, floor: NDArray[np.float64] | None) -> NDArray[np.float64]:
    """Minima of the block's last query, the part that is already out included."""
    begin = _query_begins(pl.Series(block.rows.qid))[-1]
    minima = block.X[begin:].min(axis=0)
    return minima if floor is None or begin > 0 else np.minimum(minima, floor)


def _move_border(before: DenseRows, after: DenseRows) -> tuple[DenseRows, DenseRows]:
    queries = pl.Series(before.rows.qid)
    cut = int(_query_begins(queries)[-1])
    moved = len(queries) - cut
    tail = before.missing_row >= cut
    joined = DenseRows(
        Rows(
            X=np.concatenate([before.X[cut:], after.X]),
            y=np.concatenate([before.y[cut:], after.y]),
            qid=_joined(before.rows.qid, cut, after.rows.qid),
            ids=_joined(before.rows.ids, cut, after.rows.ids),
            comment=_joined(before.rows.comment, cut, after.rows.comment),
        ),
        np.concatenate([before.missing_row[tail] - cut, after.missing_row + moved]),
        np.concatenate([before.missing_column[tail], after.missing_column]),
    )
    kept = Rows(
        X=before.X[:cut],
        y=before.y[:cut],
        qid=before.rows.qid[:cut],
        ids=before.rows.ids[:cut],
        comment=before.rows.comment[:cut],
    )
    return DenseRows(kept, before.missing_row[~tail], before.missing_column[~tail]), joined


def _joined(first: Any, cut: int, second: Any) -> Any:
    return pl.concat([pl.Series(first[cut:]), pl.Series(second)]).to_arrow()


def _query_begins(queries: pl.Series) -> NDArray[np.int64]:
    return np.flatnonzero((queries != queries.shift()).fill_null(True).to_numpy())


def _filled(block: DenseRows, floor: NDArray[np.float64] | None) -> Rows:
    if len(block.missing_row) == 0:
        return block.rows
    X = block.X.copy()
    X[block.missing_row, block.missing_column] = np.inf
    begins = _query_begins(pl.Series(block.rows.qid))
    minima = np.minimum.reduceat(X, begins, axis=0)
    if floor is not None:
        minima[0] = np.minimum(minima[0], floor)
    query = np.searchsorted(begins, block.missing_row, side="right") - 1
    found = minima[query, block.missing_column]
    X[block.missing_row, block.missing_column] = np.where(np.isinf(found), 0.0, found)
    return replace(block.rows, X=X)
