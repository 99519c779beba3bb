"""LETOR text: reading it strictly and in a stream, and writing it.

A line is ``label qid:query index:value ... # comment`` (the grammar is in `letor_block`). Rows are
sparse: an index that is left out means the value 0. What sets LETOR files apart from other svmlight
files, and what this reader does about it:

- *Index base and width are properties of a set of files, not of one file*: a test file may lack the
  last feature. Declare both, or take them from all files with `letor_shape`; nothing is guessed per
  file.
- *NULL is a missing value* (LETOR's ``NULL`` files have it where a language model gives minus
  infinity). It is replaced by the smallest value of the feature within the query, as in LETOR's own
  ``MIN`` files, or by 0 where the query has none; the number of replacements is reported.
- *A query is a run of lines.* One that comes back later in the file would silently be scored as two
  lists, so it is an error.
- *Query ids are text* (some exceed 2**53), and *comments are kept*; ``docid = X`` in a comment is the
  row's identifier.

Every error names file, line, column and what was expected. Files may be gzipped and may start with a
UTF-8 byte-order mark. Memory is bounded by the size of a block, whatever the size of the file.
"""

from __future__ import annotations

import gzip
import os
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Literal, cast

import numpy as np
import polars as pl
from numpy.typing import ArrayLike

from pipeline_lib.datasets.canonical import sync_folder
from pipeline_lib.datasets.layout import Layout, RawTable, Rows
from pipeline_lib.datasets.letor_block import MAX_INDEX, MAX_QUERY_LENGTH, Block, parse_block
from pipeline_lib.datasets.letor_missing import DenseRows, fill_by_query
from pipeline_lib.datasets.reading import require_dense_size
from pipeline_lib.errors import InputError

BLOCK_BYTES = 1 << 20  # stays in the cache; larger blocks only cost page faults
MAX_LINE_BYTES = 1 << 26
MAX_CELLS = 1 << 22  # of one piece of dense rows
PARSERS = 2

NullPolicy = Literal["minimum", "zero", "refuse"]


@dataclass(frozen=True)
class LetorShape:
    """Index base (0 or 1) and number of features that hold for a whole set of files."""

    base: int
    width: int


def letor_shape(paths: Iterable[Path]) -> LetorShape:
    """Take index base and width from all files of a set (train, vali and test together).

    An index 0 anywhere makes the set count from 0; the width is the largest over the files.

    Raises
    ------
    InputError
        A file cannot be read, or the set has no feature at all.
    """
    smallest, largest = MAX_INDEX, -1
    paths = list(paths)
    for path in paths:
        for block in _blocks(Path(path), 0, MAX_INDEX - 1, BLOCK_BYTES):
            if len(block.indices):
                smallest = min(smallest, int(block.indices.min()))
                largest = max(largest, int(block.indices.max()))
    if largest < 0:
        raise InputError("no line has a feature", path=paths[0] if paths else None)
    base = 0 if smallest == 0 else 1
    return LetorShape(base, largest + 1 - base)


def read_letor(
    path: Path,
    *,
    base: int | None = None,
    width: int | None = None,
    null: NullPolicy = "minimum",
    block_bytes: int = BLOCK_BYTES,
) -> RawTable:
    """Read one LETOR file as a stream of blocks of dense rows.

    Parameters
    ----------
    path : Path
        Text, or gzipped text.
    base : {0, 1}, optional
        The index of the first feature.
    width : int, optional
        Number of features; with ``base`` it bounds the indices. When either is not given, both
        come from `letor_shape` of this file alone: right only if the file is a set of its own.
    null : {"minimum", "zero", "refuse"}, default="minimum"
        What a missing value becomes: the query's minimum of that feature (0 if it has none), 0, or
        an error.
    block_bytes : int, default=1 MiB
        Text parsed at once.

    Returns
    -------
    RawTable
        Layout ``ltr`` with features named by their index in the file, identifiers and comments.
        ``findings`` counts rows, replaced values and skipped lines.

    Raises
    ------
    InputError
        At once for an empty, unreadable or impossible file; while the blocks are consumed for a
        line that departs from the grammar, an index out of range or repeated, a query that comes
        back, a value that is not finite, a damaged gzip file.
    """
    path = Path(path)
    if base is None or width is None:
        shape = letor_shape([path])
        base = shape.base if base is None else base
        width = shape.width + shape.base - base if width is None else width
    if base not in (0, 1):
        raise InputError(f"index base {base}", expected="0 or 1")
    if not 1 <= width <= MAX_INDEX:
        raise InputError(f"{width} features", expected=f"1 to {MAX_INDEX}")
    if null not in ("minimum", "zero", "refuse"):
        raise InputError(f"null policy {null!r}", expected="minimum, zero or refuse")
    findings: dict[str, Any] = {
        "index_base": base,
        "null_policy": null,
        "null_values": 0,
        "skipped_lines": 0,
    }
    layout = Layout(
        kind="ltr",
        features=tuple(str(base + feature) for feature in range(width)),
        has_id=True,
        has_y=True,
        has_comment=True,
    )
    blocks = _blocks(path, base, base + width - 1, block_bytes, allow_null=null != "refuse")
    dense = _dense_blocks(blocks, path, base, width, findings)
    rows = fill_by_query(dense) if null == "minimum" else (block.rows for block in dense)
    return RawTable(layout, rows, findings)


def write_letor(
    path: Path,
    X: ArrayLike,
    y: ArrayLike,
    qid: ArrayLike,
    comments: Iterable[str | None] | None = None,
    *,
    base: int = 1,
) -> None:
    """Write LETOR text that `read_letor` reads back to equal arrays.

    Parameters
    ----------
    path : Path
        Replaced whole; a name in ``.gz`` is compressed.
    X : array of shape (n, d)
        Finite features; every value is written, as the shortest decimal that gives it back.
    y : array of shape (n,)
        Labels, non-negative integers.
    qid : array of shape (n,)
        Query ids; rows of a query are contiguous.
    comments : iterable of n str or None, optional
        Text after ``#``, on one line.
    base : {0, 1}, default=1
        Index of the first feature.
    """
    X = np.asarray(X)
    n, width = X.shape
    labels = pl.Series(np.asarray(y)).cast(pl.Int32, strict=False)
    queries = pl.Series(np.asarray(qid)).cast(pl.String)
    notes = pl.Series([None] * n if comments is None else list(comments), dtype=pl.String)
    if not (len(labels) == len(queries) == len(notes) == n and np.isfinite(X).all()):
        raise InputError("X, y, qid and comments must have one finite row each")
    if labels.null_count() or (labels < 0).any() or (labels != np.asarray(y)).any():
        raise InputError("a label is not an integer from 0 to 2147483647")
    if not queries.str.contains("^[^ \t\r\n:#\0]+$").all() or (
        (queries.str.len_bytes() > MAX_QUERY_LENGTH).any()
    ):
        raise InputError("a query id is empty, too long, or holds a blank, : or #")
    if notes.str.contains("[\r\n\0]").any():
        raise InputError("a comment holds a line break or zero byte", expected="text of one line")
    _refuse_returning_queries(_runs(queries, np.arange(1, n + 1)), Path(path))
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    opener: Any = gzip.open if path.suffix == ".gz" else open
    step = max(1, (1 << 20) // max(1, width))
    try:
        with opener(temporary, "wb") as file:
            for start in range(0, n, step):
                here = slice(start, start + step)
                columns = [labels[here].cast(pl.String), "qid:" + queries[here]]
                for feature, values in enumerate(X[here].T, start=base):
                    number = pl.Series(np.ascontiguousarray(values)).cast(pl.String)
                    columns.append(f"{feature}:" + number)
                tails = (" #" + notes[here]).fill_null("")
                lines = pl.select(pl.concat_str(columns, separator=" ")).to_series()
                file.write(((lines + tails).str.join("\n").item() + "\n").encode())
        os.replace(temporary, path)
        sync_folder(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def _dense_blocks(
    blocks: Iterable[Block],
    path: Path,
    base: int,
    width: int,
    findings: dict[str, Any],
) -> Iterator[DenseRows]:
    """Dense rows in pieces of bounded size, however sparse the lines are."""
    rows = stored = 0
    step = max(1, MAX_CELLS // width)
    for block in blocks:
        rows += len(block.labels)
        stored += len(block.values)
        require_dense_size(rows, width, stored, path, "a feature matrix")
        findings["null_values"] += len(block.missing)
        findings["skipped_lines"] += block.skipped
        for start in range(0, len(block.labels), step):
            yield _dense(
                block if len(block.labels) <= step else block.rows(start, step), base, width
            )


def _dense(block: Block, base: int, width: int) -> DenseRows:
    n = len(block.labels)
    columns = block.indices - base
    regular = len(columns) == n * width and bool(
        (columns.reshape(n, width) == np.arange(width)).all()
    )
    row_of = np.empty(0, np.int64)
    if not regular or len(block.missing):
        row_of = np.repeat(np.arange(n), block.lengths)
    if regular:
        X = block.values.reshape(n, width)
    else:
        X = np.zeros((n, width))
        X[row_of, columns] = block.values
    rows = Rows(
        X=X,
        y=block.labels,
        qid=block.queries.to_arrow(),
        ids=block.comments.str.extract(r"docid\s*=\s*(\S+)").to_arrow(),
        comment=block.comments.to_arrow(),
    )
    return DenseRows(rows, row_of[block.missing], columns[block.missing].astype(np.int64))


def _blocks(
    path: Path, lowest: int, highest: int, block_bytes: int, *, allow_null: bool = True
) -> Iterator[Block]:
    """Parsed blocks of a file, in order; at the end, the check that no query came back."""
    runs: list[pl.DataFrame] = []
    parse = partial(
        parse_block, lowest=lowest, highest=highest, path=str(path), allow_null=allow_null
    )
    for block in _in_parallel(parse, _text_blocks(path, block_bytes)):
        if len(block.labels) == 0:
            continue
        runs.append(_runs(block.queries, block.lines))
        yield block
    if not runs:
        raise InputError("the file has no rows", path=path, expected="LETOR text")
    _refuse_returning_queries(pl.concat(runs), path)


def _in_parallel(
    parse: Callable[[bytes, int], Block], texts: Iterable[tuple[bytes, int]]
) -> Iterator[Block]:
    # Two blocks are parsed at once: array operations and the number parser release the lock.
    with ThreadPoolExecutor(PARSERS) as pool:
        waiting: deque[Future[Block]] = deque()
        for text, line in texts:
            waiting.append(pool.submit(parse, text, line))
            if len(waiting) > PARSERS:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def _runs(queries: pl.Series, lines: ArrayLike) -> pl.DataFrame:
    """First line of each run of one query."""
    rows = pl.DataFrame({"query": queries, "line": np.asarray(lines)})
    return rows.filter((pl.col("query") != pl.col("query").shift()).fill_null(True))


def _refuse_returning_queries(runs: pl.DataFrame, path: Path) -> None:
    # A query that runs across the border of two blocks appears as two runs in a row.
    runs = _runs(runs["query"], runs["line"])
    again = runs.filter(~pl.col("query").is_first_distinct())
    if again.height:
        query, line = again.row(0)
        first = runs.filter(pl.col("query") == query).row(0)[1]
        raise InputError(
            f"query {query} comes back",
            path=path,
            line=line,
            column=1,
            expected=f"its lines together; they began at line {first}",
        )


def _text_blocks(path: Path, block_bytes: int) -> Iterator[tuple[bytes, int]]:
    """Whole lines in blocks, with the number of their first line."""
    line, carry = 1, b""
    with closing(_open(path)) as file:
        while True:
            try:
                chunk = file.read(block_bytes)
            except (EOFError, gzip.BadGzipFile, zlib.error) as error:
                raise InputError(
                    "the gzip file is damaged or cut",
                    path=path,
                    line=line,
                    expected="a complete gzip file",
                ) from error
            if line == 1 and not carry and chunk.startswith(b"\xef\xbb\xbf"):
                chunk = chunk[3:]
            if not chunk:
                break
            cut = chunk.rfind(b"\n") + 1
            if cut:
                text = carry + chunk[:cut]
                carry = chunk[cut:]
                yield text, line
                line += text.count(b"\n")
            else:
                carry += chunk
            if len(carry) > MAX_LINE_BYTES:
                raise InputError(
                    f"a line of more than {MAX_LINE_BYTES >> 20} MiB",
                    path=path,
                    line=line,
                    column=1,
                    expected="LETOR text",
                )
    if carry:
        yield carry, line


def _open(path: Path) -> BinaryIO:
    try:
        file = open(path, "rb")  # noqa: SIM115 (closed by the caller)
        magic = file.read(2)
        file.seek(0)
    except OSError as error:
        raise InputError(f"cannot be opened ({error.strerror})", path=path) from error
    if magic == b"\x1f\x8b":
        return cast(BinaryIO, gzip.GzipFile(fileobj=file, mode="rb"))
    return file
