"""Whether two artifacts of one stage hold the same values, to a tolerance."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl

from pipeline_lib.artifacts import Artifact

_TABLE = ".parquet"


def content_difference(old: Artifact, new: Artifact, tolerance: float) -> str | None:
    """Say where two artifacts differ; times are left out.

    Parameters
    ----------
    old, new : Artifact
    tolerance : float
        Largest difference of numbers that counts as none, relative to the largest one of a column.

    Returns
    -------
    str or None
        The first place, and by how much; None when there is none.
    """
    if old.sidecar["files"] == new.sidecar["files"]:
        return None
    if old.tables() != new.tables():
        return f"tables {', '.join(old.tables())} before, {', '.join(new.tables())} now"
    for name in old.tables():
        if old.sidecar["files"][name + _TABLE] == new.sidecar["files"][name + _TABLE]:
            continue
        where = _table_difference(old.table(name), new.table(name), tolerance)
        if where is not None:
            return f"table {name}, {where}"
    return None


def checksum_difference(old: Mapping[str, str], new: Mapping[str, str]) -> str | None:
    """Say which file differs where only the checksums of an artifact are known.

    The table of trials holds times and always differs.
    """
    if set(old) != set(new):
        return f"files {', '.join(sorted(old))} before, {', '.join(sorted(new))} now"
    for name in sorted(old):
        if name != "trials.parquet" and old[name] != new[name]:
            return f"table {name.removesuffix(_TABLE)}, by its checksum"
    return None


def _table_difference(old: pl.DataFrame, new: pl.DataFrame, tolerance: float) -> str | None:
    old, new = (frame.drop(c for c in frame.columns if _is_time(c)) for frame in (old, new))
    if old.columns != new.columns:
        changed = sorted(set(old.columns) ^ set(new.columns)) or ["the order of columns"]
        return f"column {changed[0]}"
    if len(old) != len(new):
        return f"{len(old)} rows before, {len(new)} now"
    for name in old.columns:
        where = _column_difference(old[name], new[name], tolerance)
        if where is not None:
            return f"column {name}, {where}"
    return None


def _column_difference(old: pl.Series, new: pl.Series, tolerance: float) -> str | None:
    if old.dtype != new.dtype:
        return f"type {old.dtype} before, {new.dtype} now"
    if old.equals(new, null_equal=True):
        return None
    if not old.dtype.is_float() or not (old.is_null() == new.is_null()).all():
        changed = int((~old.eq_missing(new)).sum())
        return f"{changed} of {len(old)} values"
    # Nulls stand in the same places, and become the same number.
    before, after = (series.fill_null(0.0).to_numpy() for series in (old, new))
    if not np.array_equal(np.isfinite(before), np.isfinite(after)):
        return "values that are not finite"
    finite = np.isfinite(before)
    if not np.array_equal(before[~finite], after[~finite], equal_nan=True):
        return "values that are not finite"
    gap = float(np.abs(before[finite] - after[finite]).max(initial=0.0))
    scale = float(np.abs(before[finite]).max(initial=0.0))
    return f"by up to {gap:.3g}" if gap > tolerance * scale else None


def _is_time(column: str) -> bool:
    return column == "seconds" or column.endswith("_seconds")
