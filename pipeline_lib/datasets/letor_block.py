"""Parse a block of LETOR lines at once, and find the exact place when a line is wrong.

The grammar of a line, blanks being spaces or tabs::

    line     = label blanks "qid:" query { blanks index ":" value } [ blanks ] [ "#" comment ]
    label    = decimal integer 0 .. 2147483647, without sign or leading zero
    query    = 1 to 256 characters other than blanks, ":" and "#"
    index    = decimal integer, without sign or leading zero, in the allowed range, once per line
    value    = decimal number, finite as a double; or NULL, a missing value

Empty lines and lines of comment only are skipped. Lines end in LF or CRLF.

`parse_block` reads by columns: it finds the boundaries of all tokens of the block with array
operations, checks the structure on them, blanks what is not a feature, and hands indices and values
as one column of numbers to a vectorised parser. It accepts exactly the grammar. Only when it refuses
a block does `explain` walk through the lines to name the first offence.
"""

from __future__ import annotations

import io
import re
from dataclasses import dataclass

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from pipeline_lib.errors import InputError

MAX_INDEX = 1 << 16  # a wider dense matrix is a mistake in the file, and would exhaust the memory
MAX_LABEL = 2**31 - 1
MAX_QUERY_LENGTH = 256

_BLANK, _TOKEN, _COLON = 0, 1, 2
_CLASSES = bytes(
    _BLANK if byte in b" \t\r\n" else _COLON if byte == ord(":") else _TOKEN for byte in range(256)
)
_TO_LINES = bytes(10 if byte in b" \t\r\n:" else byte for byte in range(256))
_DIGITS = np.char.str_len(np.arange(MAX_INDEX + 1).astype(str)).astype(np.int8)


@dataclass(frozen=True)
class Block:
    """Rows of a block: features of row i are the next ``lengths[i]`` entries of the flat arrays."""

    labels: NDArray[np.int32]
    queries: pl.Series
    comments: pl.Series  # null where a line has no "#"
    lines: NDArray[np.int64]  # one-based number of each row's line
    lengths: NDArray[np.int64]
    indices: NDArray[np.int32]
    values: NDArray[np.float64]  # 0 where missing
    missing: NDArray[np.int64]  # positions of NULL in the flat arrays
    skipped: int  # lines without a row

    def rows(self, start: int, count: int) -> Block:
        """Some consecutive rows, as a block of their own."""
        here = slice(start, start + count)
        first = int(self.lengths[:start].sum())
        last = first + int(self.lengths[here].sum())
        inside = (self.missing >= first) & (self.missing < last)
        return Block(
            labels=self.labels[here],
            queries=self.queries[here],
            comments=self.comments[here],
            lines=self.lines[here],
            lengths=self.lengths[here],
            indices=self.indices[first:last],
            values=self.values[first:last],
            missing=self.missing[inside] - first,
            skipped=0,
        )


class _Refused(Exception):
    """The block has an error somewhere."""


def parse_block(
    text: bytes, first_line: int, lowest: int, highest: int, path: str, allow_null: bool = True
) -> Block:
    """Parse whole lines.

    Parameters
    ----------
    text : bytes
        Lines, each ended by LF (CRLF), the last one perhaps not.
    first_line : int
        One-based number of the first line in its file.
    lowest, highest : int
        Allowed feature indices.
    path : str
        Name of the file, for errors.
    allow_null : bool, default=True
        Whether NULL is a value.

    Raises
    ------
    InputError
        A line departs from the grammar; with file, line and column.
    """
    if not text.endswith(b"\n"):
        text += b"\n"
    try:
        return _parse(text, first_line, lowest, highest, allow_null)
    except _Refused:
        raise explain(text, first_line, lowest, highest, path, allow_null) from None


def _parse(text: bytes, first_line: int, lowest: int, highest: int, allow_null: bool) -> Block:
    _require(b"\0" not in text)
    original = np.frombuffer(text, np.uint8)
    ends = np.flatnonzero(original == 10)
    begins = np.concatenate(([0], ends[:-1] + 1))
    if b"\r" in text:
        # The text ends in LF, so there is a next byte.
        _require((original[np.flatnonzero(original == 13) + 1] == 10).all())

    # The working copy loses its comments, labels and queries one after the other.
    work = bytearray(text)
    cells = np.frombuffer(work, np.uint8)  # a writable view
    marks = np.flatnonzero(original == ord("#")) if b"#" in text else np.empty(0, np.int64)
    comment_begins = _first_in_line(marks, begins, ends)
    commented = comment_begins >= 0
    stops = ends - ((ends > 0) & (original[ends - 1] == 13))  # before CR
    cells[_spans(comment_begins[commented], ends[commented])] = 32

    kinds = np.frombuffer(work.translate(_CLASSES), np.uint8)
    is_token = kinds != _BLANK
    starts = np.flatnonzero(is_token[1:] & ~is_token[:-1]) + 1
    if is_token[0]:
        starts = np.concatenate(([0], starts))
    colons = np.flatnonzero(kinds == _COLON)

    first_token = np.searchsorted(starts, begins)
    counts = np.diff(first_token, append=len(starts))
    rows = np.flatnonzero(counts)
    counts, label_at = counts[rows], first_token[rows]
    _require((counts >= 2).all())

    # After the label every token has exactly one colon, with something on both sides of it.
    pairs = np.delete(starts, label_at)
    _require(len(pairs) == len(colons))
    _require((pairs < colons).all() and (colons[:-1] < pairs[1:]).all())
    _require((kinds[colons + 1] == _TOKEN).all())
    query_at = label_at - np.arange(len(rows))  # position of each row's qid among the pairs
    query_begins = colons[query_at] + 1
    for offset, letter in enumerate(b"qid:"):
        _require((cells[pairs[query_at] + offset] == letter).all())

    label_begins = starts[label_at]
    label_ends = _token_ends(is_token, label_begins, limit=10)
    query_ends = _token_ends(is_token, query_begins, limit=MAX_QUERY_LENGTH)
    labels = _labels(_strings(original, label_begins, label_ends), label_ends - label_begins)
    queries = _text(_strings(original, query_begins, query_ends))
    comments = _text(_strings(original, comment_begins + 1, stops, keep=commented).take(rows))

    cells[_spans(label_begins, label_ends)] = 32
    cells[_spans(pairs[query_at], query_ends)] = 32
    lengths = counts - 2
    widths = np.delete(colons - pairs, query_at)
    missing = np.empty(0, np.int64)
    if b"NULL" in text:
        missing = _blank_nulls(cells, np.delete(colons, query_at))
        _require(allow_null or len(missing) == 0)
    numbers = _numbers(work.translate(_TO_LINES), 2 * len(widths)).reshape(-1, 2)
    values = np.ascontiguousarray(numbers[:, 1])
    _require(np.isfinite(values).all())
    written = numbers[:, 0]
    _require(((written >= lowest) & (written <= highest)).all())
    indices = written.astype(np.int32)
    _require((indices == written).all())
    _check_indices(indices, widths, lengths)
    return Block(
        labels=labels,
        queries=queries,
        comments=comments,
        lines=first_line + rows,
        lengths=lengths,
        indices=indices,
        values=values,
        missing=missing,
        skipped=len(ends) - len(rows),
    )


def _require(condition: bool | np.bool_) -> None:
    if not condition:
        raise _Refused


def _first_in_line(
    marks: NDArray[np.int64], begins: NDArray[np.int64], ends: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Position of the first mark in each line, -1 where there is none."""
    first = np.full(len(ends), -1)
    if len(marks):
        at = np.searchsorted(marks, begins)
        candidate = marks[np.minimum(at, len(marks) - 1)]
        inside = (candidate >= begins) & (candidate < ends)
        first[inside] = candidate[inside]
    return first


def _spans(begins: NDArray[np.int64], ends: NDArray[np.int64]) -> NDArray[np.int64]:
    """All positions of the half-open spans, one after the other."""
    lengths = ends - begins
    offsets = np.cumsum(lengths) - lengths
    return np.repeat(begins - offsets, lengths) + np.arange(lengths.sum())


def _token_ends(
    is_token: NDArray[np.bool_], begins: NDArray[np.int64], limit: int
) -> NDArray[np.int64]:
    """Where each token ends; a token longer than ``limit`` is refused."""
    ends = begins.copy()
    growing = np.arange(len(begins))
    for _ in range(limit + 1):
        growing = growing[is_token[ends[growing]]]
        if len(growing) == 0:
            return ends
        ends[growing] += 1
    raise _Refused


def _strings(
    cells: NDArray[np.uint8],
    begins: NDArray[np.int64],
    ends: NDArray[np.int64],
    keep: NDArray[np.bool_] | None = None,
) -> pa.LargeBinaryArray:
    """The bytes of each span; null where ``keep`` is false."""
    lengths = ends - begins if keep is None else np.where(keep, ends - begins, 0)
    offsets = np.concatenate(([0], np.cumsum(lengths)))
    content = cells[_spans(begins, begins + lengths)]
    valid = None if keep is None else pa.py_buffer(np.packbits(keep, bitorder="little").tobytes())
    buffers = [valid, pa.py_buffer(offsets.astype(np.int64)), pa.py_buffer(content)]
    return pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(begins), buffers)


def _text(strings: pa.LargeBinaryArray) -> pl.Series:
    try:
        return pl.Series(strings.cast(pa.large_string()), dtype=pl.String)
    except pa.ArrowInvalid:  # not UTF-8
        raise _Refused from None


def _labels(strings: pa.LargeBinaryArray, widths: NDArray[np.int64]) -> NDArray[np.int32]:
    try:
        labels = strings.cast(pa.large_string()).cast(pa.int64()).to_numpy()
    except pa.ArrowInvalid:
        raise _Refused from None
    _require(((labels >= 0) & (labels <= MAX_LABEL)).all())
    canonical = 1 + sum((labels >= 10**power).astype(np.int64) for power in range(1, 10))
    _require((widths == canonical).all())
    return labels.astype(np.int32)


def _blank_nulls(cells: NDArray[np.uint8], colons: NDArray[np.int64]) -> NDArray[np.int64]:
    """Turn each value NULL into 0; returns their positions among the feature tokens."""
    suspects = np.flatnonzero(cells[colons + 1] == ord("N"))
    at = colons[suspects] + 1
    if len(at) == 0:
        return suspects
    _require(at[-1] + 4 < len(cells))
    for offset, letter in enumerate(b"NULL"):
        _require((cells[at + offset] == letter).all())
    _require(np.isin(cells[at + 4], np.frombuffer(b" \t\r\n", np.uint8)).all())
    cells[at] = ord("0")
    for offset in (1, 2, 3):
        cells[at + offset] = 32
    return suspects


def _numbers(column: bytes | bytearray, expected: int) -> NDArray[np.float64]:
    """Parse one number per line, empty lines skipped."""
    if expected == 0:
        _require(not column.strip())
        return np.empty(0)
    try:
        parsed = pl.read_csv(
            io.BytesIO(column),
            has_header=False,
            schema={"number": pl.Float64},
            quote_char=None,
            truncate_ragged_lines=False,
        )["number"]
    except (pl.exceptions.PolarsError, UnicodeError):
        raise _Refused from None
    numbers = parsed.drop_nulls().to_numpy()
    _require(len(numbers) == expected)
    return numbers


def _check_indices(
    indices: NDArray[np.int32], widths: NDArray[np.int64], lengths: NDArray[np.int64]
) -> None:
    """Every index is written plainly and stands once in its row."""
    if len(indices) == 0:
        return
    first = int(lengths[0])
    if (lengths == first).all():
        # The usual file has the same indices in every line: then one line stands for all.
        table, texts = indices.reshape(-1, first), widths.reshape(-1, first)
        if (table == table[0]).all() and (texts == texts[0]).all():
            indices, widths, lengths = table[0], texts[0], lengths[:1]
    # Without sign, zeros in front, point or exponent exactly when the text is this wide.
    _require((_DIGITS[indices] == widths).all())
    rising = np.diff(indices) > 0
    ends = np.cumsum(lengths)[:-1]
    rising[ends[(ends > 0) & (ends < len(indices))] - 1] = True
    if not rising.all():
        keys = np.repeat(np.arange(len(lengths)), lengths) * (MAX_INDEX + 1) + indices
        keys.sort()
        _require((np.diff(keys) > 0).all())


_INTEGER = re.compile(rb"0|[1-9][0-9]*\Z")
_NUMBER = re.compile(rb"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?\Z")
_TOKENS = re.compile(rb"[^ \t]+")


def explain(
    text: bytes, first_line: int, lowest: int, highest: int, path: str, allow_null: bool
) -> InputError:
    """The first offence against the grammar, walking line by line."""
    for number, raw in enumerate(text.split(b"\n"), start=first_line):
        line = raw[:-1] if raw.endswith(b"\r") else raw
        offence = _offence(line, lowest, highest, allow_null)
        if offence is not None:
            column, what, expected = offence
            return InputError(what, path=path, line=number, column=column + 1, expected=expected)
    raise AssertionError(f"{path}: block at line {first_line} refused without an offence")


def _offence(
    line: bytes, lowest: int, highest: int, allow_null: bool
) -> tuple[int, str, str] | None:
    """Column (from 0), what is wrong and what was expected; None when the line is right."""
    if b"\0" in line:
        return line.index(b"\0"), "a zero byte: this is not a text file", "LETOR text"
    if b"\r" in line:
        return line.index(b"\r"), "a carriage return inside a line", "lines ended by LF or CRLF"
    try:
        line.decode()
    except UnicodeDecodeError as error:
        return error.start, f"byte 0x{line[error.start]:02x} is not UTF-8", "UTF-8 text"
    tokens = [(match.start(), match[0]) for match in _TOKENS.finditer(line.partition(b"#")[0])]
    if not tokens:
        return None
    column, label = tokens[0]
    if not _INTEGER.fullmatch(label) or int(label[:11]) > MAX_LABEL or len(label) > 10:
        return column, f"bad label {_show(label)}", f"an integer from 0 to {MAX_LABEL}"
    if len(tokens) == 1:
        return len(line), "the line ends after the label", "qid:<query>"
    column, query = tokens[1]
    if not query.startswith(b"qid:"):
        return column, f"missing qid: found {_show(query)}", "qid:<query> after the label"
    name = query[4:]
    if not name or b":" in name or len(name) > MAX_QUERY_LENGTH:
        return (
            column + 4,
            f"bad query id {_show(name)}",
            (f"1 to {MAX_QUERY_LENGTH} characters without a colon"),
        )
    seen: dict[bytes, int] = {}
    for column, token in tokens[2:]:
        index, colon, value = token.partition(b":")
        after = column + len(index) + 1
        if not colon:
            return column, f"{_show(token)} has no colon", "<index>:<value>"
        if not _INTEGER.fullmatch(index):
            return column, f"bad feature index {_show(index)}", "an integer"
        if len(index) > 9 or not lowest <= int(index) <= highest:
            return column, f"feature index {_show(index)}", f"one from {lowest} to {highest}"
        if index in seen:
            return (
                column,
                f"feature index {_show(index)} stands twice",
                (f"it once; it is already in column {seen[index] + 1}"),
            )
        seen[index] = column
        if value == b"NULL":
            if allow_null:
                continue
            return after, f"feature {_show(index)} is NULL", "no missing values (null = refuse)"
        if not _NUMBER.fullmatch(value):
            return after, f"bad value {_show(value)}", "a finite decimal number or NULL"
        if not np.isfinite(float(value)):
            return after, f"value {_show(value)} overflows", "a number below 1.8e308"
    return None


def _show(token: bytes) -> str:
    text = token.decode(errors="replace")
    return repr(text if len(text) <= 40 else text[:37] + "...")
