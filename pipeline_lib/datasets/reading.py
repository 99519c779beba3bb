"""What the readers share: opening a file, decoding text, parsing tables of numbers strictly."""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as arrow_csv
from numpy.typing import DTypeLike, NDArray

from pipeline_lib.errors import DataMissingError, InputError

PathLike = str | Path

_MAX_WHOLE = 2**53  # beyond it not every whole number is a float64
_TEXT_BLOCK = 1 << 25  # bytes of text parsed at a time

NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")

# A dense matrix may have this many cells whatever it was read from, ...
_ALWAYS_CELLS = 2**26
# ... this many at most, ...
MAX_CELLS = 2**32
# ... and in between this many for each value that the file really stores: a few bytes of a sparse
# table can claim any size.
_CELLS_PER_VALUE = 5_000


def existing_file(path: PathLike) -> Path:
    """``path`` as a `Path`, after checking that it is a readable file."""
    path = Path(path)
    if path.is_dir():
        raise InputError("is a folder", path=path, expected="a file")
    if not path.is_file():
        raise DataMissingError("no such file", path=path, remedy="check the name and the folder")
    return path


def existing_folder(path: PathLike) -> Path:
    """``path`` as a `Path`, after checking that it is a folder."""
    path = Path(path)
    if path.is_file():
        raise InputError("is a file", path=path, expected="a folder")
    if not path.is_dir():
        raise DataMissingError("no such folder", path=path, remedy="check the name")
    return path


def decode_text(raw: bytes, path: PathLike, *, first_line: int = 1) -> str:
    """UTF-8 (a byte order mark is dropped); a wrong byte is an error with its line."""
    try:
        return raw.removeprefix(b"\xef\xbb\xbf").decode("utf-8")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + first_line
        raise InputError(
            f"byte 0x{raw[error.start]:02x} is not UTF-8",
            path=path,
            line=line,
            expected="text in UTF-8",
            remedy="convert the file, for example with iconv",
        ) from None


def read_text(path: PathLike) -> str:
    """The whole of a UTF-8 text file."""
    path = existing_file(path)
    return decode_text(path.read_bytes(), path)


def split_lines(text: str) -> list[str]:
    """Lines ended by LF or CRLF only (``str.splitlines`` would also cut at form feeds and others)."""
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    if lines and not lines[-1]:
        lines.pop()
    return lines


def text_lines(path: PathLike) -> Iterator[tuple[int, str]]:
    """Number (from 1) and text of each line that is not blank."""
    for number, line in enumerate(split_lines(read_text(path)), start=1):
        if line.strip():
            yield number, line


def parse_number(token: str) -> float | None:
    """A finite decimal number, or None (no nan, inf, hexadecimal or underscores)."""
    if NUMBER.fullmatch(token) is None:
        return None
    value = float(token)
    return value if np.isfinite(value) else None


def read_words(path: PathLike, *, what: str = "word", unique: bool = True) -> tuple[str, ...]:
    """One name a line, in order; blank lines are refused inside and dropped at the end."""
    lines = [line.strip() for line in split_lines(read_text(path))]
    while lines and not lines[-1]:
        lines.pop()
    first: dict[str, int] = {}
    for number, word in enumerate(lines, start=1):
        if not word:
            raise InputError("blank line", path=path, line=number, expected=f"one {what} a line")
        if unique and word in first:
            raise InputError(
                f"{what} {word!r} stands already on line {first[word]}",
                path=path,
                line=number,
                expected=f"every {what} once",
            )
        first[word] = number
    if not lines:
        raise InputError("the file is empty", path=path, expected=f"one {what} a line")
    return tuple(lines)


def number_table(
    text: str,
    path: PathLike,
    *,
    delimiter: str | None = None,
    n_columns: int | None = None,
    dtype: DTypeLike = np.float64,
    first_line: int = 1,
) -> NDArray[Any]:
    """Parse lines of finite numbers, all of one length, into a matrix.

    Parameters
    ----------
    text, path
        The text, and the file it comes from (for messages).
    delimiter : str or None
        Between values; None is any run of blanks. A delimiter at the end of a line is allowed.
    n_columns : int, optional
        Values per line; by default that of the first line.
    dtype : dtype, default float64
    first_line : int, default 1
        Number of the first line of ``text`` in the file.

    Raises
    ------
    InputError
        With line and column of the first value that is missing, extra, or not a finite number.
    """
    lines = split_lines(text)
    while lines and not lines[-1].strip():
        lines.pop()
    if not lines:
        raise InputError("the file is empty", path=path, expected="lines of numbers")
    width = len(_cells(lines[0], delimiter)) if n_columns is None else n_columns
    # Fast road first; whatever it does not take is looked at again cell by cell, for the place.
    table = _fast_number_table(text, len(lines), width, delimiter)
    if table is None:
        return _checked_number_table(lines, path, delimiter, width, dtype, first_line)
    whole = (table == np.floor(table)) & (np.abs(table) <= _MAX_WHOLE)
    if np.issubdtype(np.dtype(dtype), np.integer) and not whole.all():
        return _checked_number_table(lines, path, delimiter, width, dtype, first_line)
    return table.astype(dtype, copy=False)


def _fast_number_table(
    text: str, n_lines: int, width: int, delimiter: str | None
) -> NDArray[np.float64] | None:
    """The table by Arrow's parser, or None when the text is not of its plain kind."""
    separator = delimiter or " "
    if delimiter is None:
        text = text.replace("\t", " ")
    ends = text[: text.find("\n")].rstrip("\r").endswith(separator)
    names = [str(j) for j in range(width + ends)]
    try:
        found = arrow_csv.read_csv(
            io.BytesIO(text.encode()),
            read_options=arrow_csv.ReadOptions(column_names=names, block_size=1 << 24),
            parse_options=arrow_csv.ParseOptions(
                delimiter=separator, quote_char=False, ignore_empty_lines=False
            ),
            convert_options=arrow_csv.ConvertOptions(
                column_types={name: pa.float64() for name in names[:width]},
                include_columns=names[:width],
                null_values=[],
            ),
        )
    except pa.ArrowException:
        return None
    # Blank lines at the end come as rows without values, which the type does not take.
    if found.num_rows != n_lines:
        return None
    table = np.empty((n_lines, width))
    for j in range(width):
        table[:, j] = found.column(j).to_numpy()
    return table if np.isfinite(table).all() else None


def _cells(line: str, delimiter: str | None) -> list[str]:
    cells = [cell.strip() for cell in line.split(delimiter)]
    if len(cells) > 1 and not cells[-1]:
        cells.pop()
    return cells


def _checked_number_table(
    lines: Sequence[str],
    path: PathLike,
    delimiter: str | None,
    width: int,
    dtype: DTypeLike,
    first_line: int,
) -> NDArray[Any]:
    integers = np.issubdtype(np.dtype(dtype), np.integer)
    rows = []
    for number, line in enumerate(lines, start=first_line):
        cells = _cells(line, delimiter)
        if len(cells) != width:
            raise InputError(
                f"{len(cells)} values", path=path, line=number, expected=f"{width} on every line"
            )
        row = [parse_number(cell) for cell in cells]
        for column, value in enumerate(row, start=1):
            if value is None or (
                integers and not (value.is_integer() and abs(value) <= _MAX_WHOLE)
            ):
                raise InputError(
                    f"{shorten(cells[column - 1])} is not a finite number"
                    if value is None
                    else f"{value} is not a whole number",
                    path=path,
                    line=number,
                    column=column,
                    expected="a whole number" if integers else "a finite number",
                )
        rows.append(row)
    return np.asarray(rows, dtype=np.float64).reshape(len(rows), width).astype(dtype)


def read_number_table(
    path: PathLike,
    *,
    delimiter: str | None = None,
    n_columns: int | None = None,
    dtype: DTypeLike = np.float64,
) -> NDArray[Any]:
    """`number_table` of a file, read in blocks: the peak is the table and one block."""
    path = existing_file(path)
    blocks: list[NDArray[Any]] = []
    first_line = 1
    with path.open("rb") as handle:
        while raw := handle.read(_TEXT_BLOCK):
            raw += handle.readline()
            if not raw.strip() and blocks:
                if handle.read(1):
                    raise InputError("blank line", path=path, line=first_line)
                break
            block = number_table(
                decode_text(raw, path, first_line=first_line),
                path,
                delimiter=delimiter,
                n_columns=blocks[0].shape[1] if blocks else n_columns,
                dtype=dtype,
                first_line=first_line,
            )
            n_lines = raw.count(b"\n")
            if len(block) < n_lines and handle.peek(1):
                raise InputError("blank line", path=path, line=first_line + len(block))
            first_line += n_lines
            blocks.append(block)
    if not blocks:
        raise InputError("the file is empty", path=path, expected="lines of numbers")
    return blocks[0] if len(blocks) == 1 else np.concatenate(blocks)


def require_binary(
    values: NDArray[Any], path: PathLike, *, first_line: int = 1
) -> NDArray[np.uint8]:
    """``values`` as uint8, after checking that every one is 0 or 1; else line and column."""
    wrong = (values != 0) & (values != 1)
    if wrong.any():
        row, column = np.argwhere(wrong)[0]
        raise InputError(
            f"{values[row, column]} ({int(wrong.sum())} such values in the table)",
            path=path,
            line=int(row) + first_line,
            column=int(column) + 1,
            expected="0 or 1",
        )
    return values.astype(np.uint8)


def require_dense_size(n: int, d: int, n_stored: int, path: PathLike, what: str) -> None:
    """Refuse to make a dense n x d matrix of a table that stores only ``n_stored`` values."""
    if n * d > min(MAX_CELLS, max(_ALWAYS_CELLS, _CELLS_PER_VALUE * n_stored)):
        raise InputError(
            f"{what} of {n:,} x {d:,} with {n_stored:,} stored values is too large",
            path=path,
            expected=f"at most {MAX_CELLS:,} cells, {_CELLS_PER_VALUE:,} for each stored value",
        )


def require_rows(actual: int, expected: int, path: PathLike, what: str) -> None:
    """Stop when two files that describe the same items disagree on their number."""
    if actual != expected:
        raise InputError(f"{actual} {what}", path=path, expected=f"{expected}, one for each row")


def refuse_label_leak(
    X: NDArray[Any], labels: NDArray[Any], path: PathLike, *, minimum: int = 3
) -> None:
    """Refuse features among which a label column stands (a known Corel5k copy has all of them).

    Parameters
    ----------
    X : ndarray of shape (n, d)
    labels : ndarray of shape (n,) or (n, tags)
    minimum : int, default 3
        Columns whose values differ from their most common one on fewer rows are not compared: two
        rare binary columns can be equal by chance.
    """
    n = len(labels)
    if n <= minimum:
        return
    labels = labels.reshape(n, -1)
    # Columns that differ on some rows differ: few are left to be compared as a whole.
    some = np.unique(np.linspace(0, n - 1, min(n, 1024)).astype(np.intp))
    seen: dict[bytes, int] = {}
    whole: dict[bytes, int] = {}
    for j in range(labels.shape[1]):
        if _off_mode(labels[:, j]) >= minimum:
            seen[_digest(labels[some, j])] = j
            whole[_digest(labels[:, j])] = j
    excerpt = np.ascontiguousarray(X[some].T)
    for j in range(X.shape[1]):
        if _digest(excerpt[j]) in seen and (label := whole.get(_digest(X[:, j]))) is not None:
            raise InputError(
                f"feature column {j + 1} equals label column {label + 1}: the labels leak into the "
                "features",
                path=path,
                expected="features without labels",
                remedy="drop the label columns from the features",
            )


def _off_mode(column: NDArray[Any]) -> int:
    """How many rows do not have the most common value."""
    if column.dtype == np.uint8 and column.max(initial=0) <= 1:
        ones = int(np.count_nonzero(column))
        return min(ones, len(column) - ones)
    return len(column) - int(np.unique(column, return_counts=True)[1].max())


def _digest(column: NDArray[Any]) -> bytes:
    # + 0.0 makes a negative zero positive, so that equal columns have equal bytes.
    values = np.ascontiguousarray(column, dtype=np.float64) + 0.0
    return hashlib.blake2b(values.tobytes(), digest_size=16).digest()


def shorten(text: str, length: int = 40) -> str:
    """A quoted excerpt for messages."""
    return repr(text if len(text) <= length else text[: length - 3] + "...")
