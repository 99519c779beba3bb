"""A part that is some rows of a file: chosen by a stored split, filtered while the rows pass by."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline_lib.datasets.layout import RawTable, Rows
from pipeline_lib.datasets.splits import read_splits
from pipeline_lib.errors import InputError


def stored_subset(table: RawTable, split: Path, trial: int, part: str) -> RawTable:
    """The rows of ``table`` that a stored split gives to one part of one trial.

    Parameters
    ----------
    table : RawTable
        Read block by block; memory stays that of a block.
    split : Path
        See `splits.write_splits`; ``n`` in its description is the number of rows it was drawn for.
    trial, part
        Which of it.

    Raises
    ------
    InputError
        No such trial or part; while the blocks are consumed, a table of another number of rows.
    """
    splits = read_splits(split)
    if not 0 <= trial < len(splits) or part not in splits[trial]:
        raise InputError(f"has no part {part!r} of trial {trial}", path=split)
    kept = np.zeros(splits.info["n"], dtype=bool)
    kept[splits[trial][part]] = True
    return replace(table, blocks=_filtered(table, kept, split))


def _filtered(table: RawTable, kept: NDArray[np.bool_], split: Path) -> Iterator[Rows]:
    start = 0
    for rows in table.blocks:
        stop = start + len(rows)
        mask = kept[start:stop]
        if len(mask) == len(rows):
            fields = ("X", "y", "qid", "ids", "comment", "Y")
            yield Rows(**{name: _take(getattr(rows, name), mask) for name in fields})
        start = stop
    if start != len(kept):
        raise InputError(
            f"was drawn for {len(kept):,} rows, the data have {start:,}",
            path=split,
            remedy="add the data again with --replace",
        )


def _take(values: Any, mask: NDArray[np.bool_]) -> Any:
    if values is None:
        return None
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return values.filter(pa.array(mask))
    return values[mask] if isinstance(values, np.ndarray) else np.asarray(values, object)[mask]
