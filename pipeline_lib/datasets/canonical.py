"""Canonical Parquet: the one form in which a dataset lies on disk, whatever it was read from.

A file holds one part of one dataset in one of three layouts:

========  ==================================================================================
``ltr``   learning to rank: ``qid``, ``y`` (graded relevance), features
``matrix``  a feature matrix: features, usually with ``y`` (class labels)
``tags``  a tag table: ``id``, tags, with or without features
========  ==================================================================================

Columns, in this order; the ones a layout does not name are absent:

==============  ==================  =========================================================
``id``          string              identifier of the row; optional except in ``tags``
``qid``         string              query as written in the source; ``ltr`` only, required
``y``           int32               label; required in ``ltr``, optional elsewhere
``comment``     string              rest of the source line; ``ltr`` only, optional
``x:<name>``    float32 or float64  one column per feature, one type for all, finite, no nulls
``tag:<name>``  uint8               one column per tag, 0 or 1; ``tags`` only
==============  ==================  =========================================================

Row order is part of the contract: rows stand in the order of the source, and rows of a query are
contiguous. Features are wide columns because lists of fixed size decode several times slower.
The key ``affinity`` of the file's metadata holds JSON: layout, version, feature type, names, number
of rows, and the provenance (source files and their checksums, reader and options, what was found).

Files are written block by block, and appear under their name only once complete and synced.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from pipeline_lib.datasets.container import Dataset
from pipeline_lib.datasets.layout import Layout, RawTable, Rows, Summary
from pipeline_lib.errors import InputError

LAYOUT_VERSION = 1
METADATA_KEY = b"affinity"
CELLS_PER_ROW_GROUP = 1 << 22  # 32 MiB of float64: the unit of streaming reads and writes


_DAMAGE = (
    pa.ArrowException,
    OSError,
    ValueError,
    KeyError,
    TypeError,
    OverflowError,
    MemoryError,
)


class CanonicalWriter:
    """Write one canonical file block by block; it appears whole or not at all.

    Use as a context manager, call `write` for every block and `finish` once; leaving without `finish`,
    or by an exception, removes the temporary file.

    Parameters
    ----------
    path : Path
        Final name; an existing file is replaced at `finish`.
    layout : Layout
    """

    def __init__(self, path: Path, layout: Layout) -> None:
        self.path = Path(path)
        self.layout = layout
        self.summary = Summary(features=len(layout.features), tags=len(layout.tags))
        self._schema = layout.schema
        self._temporary = self.path.with_name(f".{self.path.name}.{os.getpid()}.part")
        self._writer: pq.ParquetWriter | None = None
        width = max(1, len(layout.features) + len(layout.tags) // 8)
        self._group_rows = max(1024, CELLS_PER_ROW_GROUP // width)
        self._waiting: list[pa.Table] = []

    def __enter__(self) -> Self:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        # Dictionaries pay for text and tags, not for features; and snappy writes features three times
        # faster than zstd, for files a seventh larger.
        small = [name for name in self._schema.names if not name.startswith("x:")]
        self._writer = pq.ParquetWriter(
            self._temporary, self._schema, compression="snappy", use_dictionary=small
        )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        self._temporary.unlink(missing_ok=True)

    def write(self, rows: Rows) -> None:
        """Append a block of rows.

        Raises
        ------
        InputError
            The block does not fit the layout, or holds a value that is not finite.
        """
        assert self._writer is not None, "write() belongs inside the with block"
        if len(rows) == 0:
            return
        self._waiting.append(self._table(rows))
        self.summary.add(rows)
        if sum(table.num_rows for table in self._waiting) >= self._group_rows:
            self._flush(whole_groups=True)

    def finish(self, provenance: Mapping[str, Any]) -> dict[str, Any]:
        """Write the metadata, sync, move the file to its name; returns the metadata."""
        assert self._writer is not None, "finish() belongs inside the with block"
        self._flush(whole_groups=False)
        metadata = {
            "layout": self.layout.kind,
            "version": LAYOUT_VERSION,
            "dtype": self.layout.dtype,
            "classes": list(self.layout.classes),
            "counts": self.summary.as_dict(),
            **provenance,
        }
        text = json.dumps(metadata, ensure_ascii=False, sort_keys=True, allow_nan=False)
        self._writer.add_key_value_metadata({METADATA_KEY: text.encode()})
        self._writer.close()
        self._writer = None
        with open(self._temporary, "rb+") as handle:
            os.fsync(handle.fileno())
        os.replace(self._temporary, self.path)
        sync_folder(self.path.parent)
        return metadata

    def _flush(self, *, whole_groups: bool) -> None:
        """Write what waits; groups have one size, so the file does not depend on the blocks."""
        if not self._waiting:
            return
        assert self._writer is not None
        table = pa.concat_tables(self._waiting)
        stop = table.num_rows
        if whole_groups:
            stop -= stop % self._group_rows
        self._writer.write_table(table.slice(0, stop), row_group_size=self._group_rows)
        self._waiting = [table.slice(stop)] if stop < table.num_rows else []

    def _table(self, rows: Rows) -> pa.Table:
        n = len(rows)
        given: dict[str, Any] = {
            "id": rows.ids,
            "qid": rows.qid,
            "y": rows.y,
            "comment": rows.comment,
        }
        columns: list[Any] = []
        for name in self._schema.names:
            if name.startswith(("x:", "tag:")):
                continue
            if given[name] is None:
                raise InputError(f"a block of rows has no column {name!r}")
            if len(given[name]) != n:
                raise InputError(f"column {name!r} has {len(given[name])} rows", expected=str(n))
            try:
                columns.append(pa.array(given[name]).cast(self._schema.field(name).type))
            except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
                raise InputError(f"column {name!r} does not fit the layout ({error})") from error
        columns += self._wide(rows.X, self.layout.features, self.layout.dtype, n)
        columns += self._wide(rows.Y, self.layout.tags, "uint8", n)
        if rows.X is not None and not np.isfinite(rows.X).all():
            row, column = np.argwhere(~np.isfinite(rows.X))[0].tolist()
            raise InputError(
                f"row {self.summary.rows + row + 1}, feature {self.layout.features[column]!r} is "
                f"{rows.X[row, column]}",
                expected="a finite number",
            )
        if rows.Y is not None and rows.Y.size and rows.Y.max() > 1:
            raise InputError(f"a tag has the value {rows.Y.max()}", expected="0 or 1")
        return pa.Table.from_arrays(columns, schema=self._schema)

    @staticmethod
    def _wide(values: NDArray[Any] | None, names: tuple[str, ...], dtype: str, n: int) -> list[Any]:
        found = (n, 0) if values is None else values.shape
        if found != (n, len(names)):
            raise InputError(f"a block of rows has shape {found}", expected=str((n, len(names))))
        if values is None:
            return []
        # One transposed copy makes every column contiguous, so Arrow takes them without copying.
        by_column = np.ascontiguousarray(values.T, dtype=dtype)
        return [pa.array(column) for column in by_column]


def write_canonical(
    path: Path, table: RawTable, provenance: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Write a whole `RawTable`; returns the file's metadata, findings and counts included."""
    with CanonicalWriter(path, table.layout) as writer:
        for rows in table.blocks:
            writer.write(rows)
        return writer.finish({**(provenance or {}), "findings": table.findings})


def canonical_info(path: Path) -> dict[str, Any]:
    """The metadata of a canonical file.

    Raises
    ------
    InputError
        It is not a Parquet file, not a canonical one, or of a version this code does not read.
    """
    try:
        metadata = pq.read_metadata(path).metadata or {}
    except (pa.ArrowException, OSError) as error:
        raise InputError(
            "cannot be read as Parquet", path=path, expected="a canonical Parquet file"
        ) from error
    if METADATA_KEY not in metadata:
        raise InputError(
            "no canonical metadata", path=path, expected="a file written by this project"
        )
    with _reporting(path):
        info: dict[str, Any] = dict(json.loads(metadata[METADATA_KEY]))
    if info.get("version") != LAYOUT_VERSION:
        raise InputError(
            f"layout version {info.get('version')}", path=path, expected=f"version {LAYOUT_VERSION}"
        )
    return info


def iter_canonical(path: Path) -> Iterator[Dataset]:
    """Read a canonical file block by block, in row order; each block is a `Dataset`.

    Query codes agree with those of `read_canonical`.
    """
    info = canonical_info(path)
    with pq.ParquetFile(path) as file:
        layout = _layout_of(file, info)
        codes = query_codes(file.read(["qid"])["qid"]) if layout.kind == "ltr" else None
        start = 0
        for group in range(file.num_row_groups):
            table = file.read_row_group(group)
            stop = start + table.num_rows
            yield Dataset(
                name=info.get("name", ""),
                part=info.get("part", ""),
                X=_matrix(table, "x:", layout.features, layout.dtype),
                y=table["y"].to_numpy() if layout.has_y else None,
                qid=None if codes is None else codes[start:stop],
                Y=_matrix(table, "tag:", layout.tags, "uint8"),
                tags=layout.tags,
                ids=_identifiers(table["id"]) if layout.has_id else None,
                info=info,
            )
            start = stop


def read_canonical(path: Path) -> Dataset:
    """Read a canonical file into memory.

    The feature matrix is allocated once and filled block by block, so the peak is the matrix and one
    block.
    """
    info = canonical_info(path)
    with _reporting(path), pq.ParquetFile(path) as file:
        layout = _layout_of(file, info)
        n = file.metadata.num_rows
        X = np.empty((n, len(layout.features)), layout.dtype) if layout.features else None
        Y = np.empty((n, len(layout.tags)), np.uint8) if layout.tags else None
        start = 0
        for group in range(file.num_row_groups):
            names = [f"x:{name}" for name in layout.features] + [
                f"tag:{name}" for name in layout.tags
            ]
            table = file.read_row_group(group, columns=names)
            stop = start + table.num_rows
            for target, prefix, columns in ((X, "x:", layout.features), (Y, "tag:", layout.tags)):
                if target is not None:
                    target[start:stop] = _matrix(table, prefix, columns, target.dtype.name)
            start = stop
        present = [name for name in ("id", "qid", "y") if name in file.schema_arrow.names]
        narrow = file.read(present)
    return Dataset(
        name=info.get("name", ""),
        part=info.get("part", ""),
        X=X,
        y=narrow["y"].to_numpy() if layout.has_y else None,
        qid=query_codes(narrow["qid"]) if layout.kind == "ltr" else None,
        Y=Y,
        tags=layout.tags,
        ids=_identifiers(narrow["id"]) if layout.has_id else None,
        info=info,
    )


def query_codes(queries: Any) -> NDArray[np.int64]:
    """Turn query ids as written into int64 codes, equal exactly where the texts are equal.

    The code is the id itself when every id is a plain decimal integer of 64 bits (``10002``, not
    ``007``); otherwise ids are numbered 0, 1, ... in order of first appearance.
    """
    text = pl.Series("qid", queries, dtype=pl.String)
    numbers = text.cast(pl.Int64, strict=False)
    if bool((numbers.cast(pl.String) == text).fill_null(False).all()):
        return numbers.to_numpy().astype(np.int64)
    run = text.to_frame().with_row_index("at")
    first = run.group_by("qid").agg(pl.col("at").min()).sort("at").with_row_index("code")
    codes = run.join(first.select("qid", "code"), on="qid", how="left").sort("at")["code"]
    return codes.to_numpy().astype(np.int64)


def sync_folder(folder: Path) -> None:
    """Make a rename inside ``folder`` durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _reporting(path: Path) -> Iterator[None]:
    """A file that another program damaged ends in a sentence, like any input."""
    try:
        yield
    except InputError:
        raise
    except _DAMAGE as error:
        raise InputError(
            f"damaged canonical Parquet ({type(error).__name__}: {error})",
            path=path,
            expected="a file written by this project",
        ) from None


def _layout_of(file: pq.ParquetFile, info: Mapping[str, Any]) -> Layout:
    names = file.schema_arrow.names
    return Layout(
        kind=info["layout"],
        features=tuple(name[2:] for name in names if name.startswith("x:")),
        dtype=info["dtype"],
        tags=tuple(name[4:] for name in names if name.startswith("tag:")),
        has_id="id" in names,
        has_y="y" in names,
        has_comment="comment" in names,
        classes=tuple(info["classes"]),
    )


def _matrix(
    table: pa.Table, prefix: str, names: tuple[str, ...], dtype: str
) -> NDArray[Any] | None:
    if not names:
        return None
    by_column = np.empty((len(names), table.num_rows), dtype)
    for at, name in enumerate(names):
        by_column[at] = table[prefix + name].to_numpy()
    return np.ascontiguousarray(by_column.T)


def _identifiers(column: pa.ChunkedArray) -> NDArray[Any] | None:
    """Texts, None where a row has none; None alone when no row has one."""
    if column.null_count == len(column):
        return None
    return np.asarray(column.to_pylist(), dtype=object)
