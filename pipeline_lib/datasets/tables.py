"""The user's own data: CSV or Parquet with named columns, and embeddings with a label or tag file."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from pipeline_lib.datasets.npz import (
    class_codes,
    finite_matrix,
    read_array_table,
    read_npy,
    text_array,
    whole_labels,
)
from pipeline_lib.datasets.reading import (
    MAX_CELLS,
    PathLike,
    existing_file,
    parse_number,
    read_text,
    refuse_label_leak,
    require_rows,
    shorten,
    split_lines,
)
from pipeline_lib.datasets.tag_csv import (
    csv_rows,
    header_names,
    parse_tag_list,
    read_tag_csv,
    tag_matrix,
)
from pipeline_lib.errors import InputError


@dataclass(frozen=True)
class UserTable:
    """A table of the user's own; fields that are not there are None or empty.

    ``y`` holds whole numbers as written, or positions in ``classes`` when labels are text; ``qid``
    holds query names as written, rows of a query together.
    """

    X: NDArray[Any] | None = None
    features: tuple[str, ...] = ()
    y: NDArray[np.int64] | None = None
    classes: tuple[str, ...] = ()
    qid: tuple[str, ...] | None = None
    Y: NDArray[np.uint8] | None = None
    tags: tuple[str, ...] = ()
    ids: tuple[str, ...] | None = None


class _Columns:
    """Columns of a CSV or Parquet file as text or numbers, with the place of what is wrong."""

    def __init__(self, path: Path, frame: pl.DataFrame, is_csv: bool) -> None:
        self.path = path
        self.frame = frame
        self.is_csv = is_csv

    @property
    def names(self) -> list[str]:
        return self.frame.columns

    def _place(self, name: str, row: int) -> dict[str, Any]:
        column = self.names.index(name) + 1
        # Quoted fields may span lines, so only the CSV itself knows the line of a row.
        line = csv_rows(self.path)[row + 1][0] if self.is_csv else None
        return {"path": self.path, "line": line, "column": column}

    def _what(self, name: str, row: int) -> str:
        where = "" if self.is_csv else f" in row {row + 1}"
        value = self.frame[name][row]
        shown = "a missing value" if value is None or value == "" else shorten(str(value))
        return f"{shown} in column {name!r}{where}"

    def numbers(self, name: str) -> NDArray[np.float64]:
        series = self.frame[name]
        if series.dtype == pl.String:
            values = series.str.strip_chars().cast(pl.Float64, strict=False)
        elif series.dtype.is_numeric() or series.dtype == pl.Boolean:
            values = series.cast(pl.Float64)
        else:
            raise InputError(
                f"column {name!r} has type {series.dtype}", path=self.path, expected="numbers"
            )
        wrong = (values.is_finite().fill_null(False) == False).arg_true()  # noqa: E712
        if len(wrong):
            row = int(wrong[0])
            raise InputError(
                self._what(name, row),
                expected="a finite number, as in every feature column",
                remedy=f"say what {name!r} is, or name the feature columns",
                **self._place(name, row),
            )
        return values.to_numpy()

    def text(self, name: str, *, allow_empty: bool = False) -> list[str]:
        series = self.frame[name]
        if series.dtype != pl.String and not series.dtype.is_integer():
            raise InputError(
                f"column {name!r} has type {series.dtype}", path=self.path, expected="text"
            )
        values = series.cast(pl.String).fill_null("").str.strip_chars()
        if not allow_empty and (values == "").any():
            row = int((values == "").arg_true()[0])
            raise InputError(self._what(name, row), expected="text", **self._place(name, row))
        return values.to_list()

    def tag_lists(self, name: str, separator: str) -> list[list[str]]:
        if isinstance(self.frame[name].dtype, pl.List):
            return [[str(tag) for tag in row or ()] for row in self.frame[name].to_list()]
        lists = []
        for row, text in enumerate(self.text(name, allow_empty=True)):
            try:
                lists.append(parse_tag_list(text, separator, self.path, line=row + 1))
            except InputError as error:
                # Where a row stands in the file costs a second reading, made only when asked for.
                raise InputError(
                    f"{error.what} in column {name!r}",
                    expected=error.expected,
                    **self._place(name, row),
                ) from None
        return lists


def _open_table(path: Path) -> _Columns:
    suffix = path.suffix.lower()
    if suffix in (".parquet", ".pq"):
        try:
            with pq.ParquetFile(path) as file:
                if file.metadata.num_rows * max(1, len(file.schema_arrow.names)) > MAX_CELLS:
                    raise InputError("the table is too large", path=path)
                # Metadata of a damaged file may not be text, which polars does not survive.
                table = file.read().replace_schema_metadata(None)
                table.validate(full=True)
                "".join(table.schema.names).encode()
            frame = pl.from_arrow(table)
        except (pa.ArrowException, OSError, ValueError, OverflowError, MemoryError) as error:
            if isinstance(error, InputError):
                raise
            raise InputError(f"damaged Parquet file ({error})", path=path) from None
        if not isinstance(frame, pl.DataFrame):
            raise InputError("is not a table", path=path)
        return _Columns(path, frame, is_csv=False)
    if suffix not in (".csv", ".tsv", ".txt"):
        raise InputError(
            f"unknown table suffix {path.suffix!r}", path=path, expected=".csv, .parquet"
        )
    return _Columns(path, _open_csv(path, "\t" if suffix == ".tsv" else ","), is_csv=True)


def _open_csv(path: Path, delimiter: str) -> pl.DataFrame:
    """All columns as text, missing fields as empty text."""
    text = read_text(path)
    # The fast reader fills short rows and knows no line numbers: it is asked only for tables that
    # are complete, which a table without an empty field is.
    try:
        frame = pl.read_csv(io.StringIO(text), infer_schema=False, separator=delimiter)
        if frame.height and not sum(frame.null_count().row(0)):
            header_names(text.partition("\n")[0].split(delimiter), path)
            return frame.rename({name: name.strip() for name in frame.columns})
    except (pl.exceptions.PolarsError, ValueError):
        pass
    (header_line, header), *rows = csv_rows(path, delimiter)
    names = header_names(header, path, header_line)
    if not rows:
        raise InputError("no rows below the header", path=path, line=header_line + 1)
    for line, row in rows:
        if len(row) != len(names):
            raise InputError(f"{len(row)} fields", path=path, line=line, expected=f"{len(names)}")
    return pl.DataFrame(
        [[row[j] for _, row in rows] for j in range(len(names))],
        schema=dict.fromkeys(names, pl.String),
    )


def read_table(
    path: PathLike,
    *,
    features: Sequence[str] | None = None,
    label: str | None = None,
    query: str | None = None,
    id: str | None = None,
    tags: str | Sequence[str] | None = None,
    separator: str = ";",
) -> UserTable:
    """Read a CSV (with a header) or Parquet table, columns taken by name.

    Parameters
    ----------
    path : path
        ``.csv``, ``.tsv`` or ``.parquet``.
    features : sequence of str, optional
        Feature columns; by default every column not named otherwise.
    label, query, id : str, optional
        Columns of the label (whole numbers, or text that names classes), the query and the row name.
    tags : str or sequence of str, optional
        One column with tags separated by ``separator`` (or lists of text, in Parquet), or several
        columns of 0 and 1 named after tags.

    Raises
    ------
    InputError
        With line and column of the file: a missing column, a missing value, a value that is not a
        finite number, rows of a query that are not together, a feature equal to the label.
    """
    path = existing_file(path)
    columns = _open_table(path)
    tag_columns = [] if tags is None else [tags] if isinstance(tags, str) else list(tags)
    named = [name for name in (label, query, id) if name is not None] + tag_columns
    if features is None:
        features = [name for name in columns.names if name not in named]
    for name in (*named, *features):
        if name not in columns.names:
            raise InputError(
                f"no column {name!r}",
                path=path,
                line=1 if columns.is_csv else None,
                expected="one of " + shorten(", ".join(columns.names), 200),
            )
    twice = [name for name in named if named.count(name) > 1]
    if twice:
        raise InputError(
            f"column {twice[0]!r} is named for two things",
            path=path,
            expected="one column each for label, query, name of the row and tags",
        )
    both = set(named) & set(features)
    if both:
        raise InputError(f"column {min(both)!r} is a feature and something else", path=path)
    X = np.column_stack([columns.numbers(name) for name in features]) if features else None
    y, Y = None, None
    classes: tuple[str, ...] = ()
    tag_names: tuple[str, ...] = ()
    if label is not None:
        y, classes = _labels(columns, label)
    if isinstance(tags, str):
        Y, tag_names = tag_matrix(columns.tag_lists(tags, separator), path=path)
    elif tag_columns:
        values = np.column_stack([columns.numbers(name) for name in tag_columns])
        wrong = np.argwhere((values != 0) & (values != 1))
        if wrong.size:
            row, j = wrong[0]
            name = tag_columns[j]
            raise InputError(
                f"{values[row, j]:g} for tag {name!r}",
                expected="0 or 1",
                **columns._place(name, int(row)),
            )
        Y, tag_names = values.astype(np.uint8), tuple(tag_columns)
    for labels in (y, Y):
        if X is not None and labels is not None:
            refuse_label_leak(X, labels, path)
    ids = None if id is None else tuple(columns.text(id))
    if ids is not None and len(set(ids)) != len(ids):
        raise InputError(f"column {id!r} repeats a name", path=path, expected="distinct names")
    return UserTable(
        X=X,
        features=tuple(features),
        y=y,
        classes=classes,
        qid=None if query is None else _queries(columns, query),
        Y=Y,
        tags=tag_names,
        ids=ids,
    )


def numbered_alike(found: UserTable, others: Mapping[Path, UserTable], path: PathLike) -> UserTable:
    """``found`` with the classes and tags of all parts of a dataset, so that numbers mean the same.

    Parameters
    ----------
    found : UserTable
        The part.
    others : mapping of path to UserTable
        The other parts, by the file they were read from.
    path : path
        Of ``found``, for messages.

    Raises
    ------
    InputError
        A part has other features, or its labels are text where another's are numbers.
    """
    for other_path, other in others.items():
        for name in (*other.features, *found.features):
            if (name in found.features) != (name in other.features) and other.features:
                raise InputError(
                    f"the parts differ in feature {name!r}", path=path, expected=f"as {other_path}"
                )
        if (other.y is not None) and bool(other.classes) != bool(found.classes):
            raise InputError("labels are text in one part, numbers in the other", path=other_path)
    classes = tuple(
        sorted({*found.classes, *(name for o in others.values() for name in o.classes)})
    )
    tags = tuple(sorted({*found.tags, *(name for o in others.values() for name in o.tags)}))
    if classes != found.classes and found.y is not None:
        position = np.array([classes.index(name) for name in found.classes], dtype=np.int64)
        found = replace(found, y=position[found.y], classes=classes)
    if others and found.Y is not None and set(tags) != set(found.tags):
        Y = np.zeros((len(found.Y), len(tags)), dtype=np.uint8)
        Y[:, [tags.index(name) for name in found.tags]] = found.Y
        found = replace(found, Y=Y, tags=tags)
    return found


def _labels(columns: _Columns, name: str) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    if columns.frame[name].dtype == pl.String:
        words = columns.text(name)
        if any(parse_number(word) is None for word in words):
            return class_codes(words)
    values = columns.numbers(name)
    return whole_labels(values, columns.path, f"column {name!r}"), ()


def _queries(columns: _Columns, name: str) -> tuple[str, ...]:
    words = columns.text(name)
    seen: set[str] = set()
    for row, word in enumerate(words):
        if row and word == words[row - 1]:
            continue
        if word in seen:
            raise InputError(
                f"query {shorten(word)} comes back in column {name!r}",
                expected="all rows of a query together",
                remedy="sort the table by query",
                **columns._place(name, row),
            )
        seen.add(word)
    return tuple(words)


def read_embeddings(
    path: PathLike,
    *,
    labels: PathLike | None = None,
    tags: PathLike | None = None,
    separator: str = ";",
) -> UserTable:
    """Read embeddings from ``.npy`` or ``.npz`` with their labels or tags beside them.

    Parameters
    ----------
    path : path
        A ``.npy`` matrix, or a ``.npz`` with ``X`` (and, optionally, the arrays that
        `npz.read_array_table` describes).
    labels : path, optional
        One label a line (whole numbers, or text that names classes), or a ``.npy`` of whole numbers.
    tags : path, optional
        ``.csv`` with rows in the order of the matrix (see `tag_csv.read_tag_csv`), or text with the
        tags of one row a line; an empty line is a row without tags.
    """
    path = existing_file(path)
    X: NDArray[Any] | None
    ids: tuple[str, ...] | None = None
    y, Y = None, None
    classes: tuple[str, ...] = ()
    tag_names: tuple[str, ...] = ()
    if path.suffix.lower() == ".npy":
        X = finite_matrix(read_npy(path), path, path.stem)
    else:
        table = read_array_table(path)
        X, y, Y, tag_names, ids = table.X, table.y, table.Y, table.tags, table.ids
        classes = table.classes
        if X is None:
            raise InputError("has no array X", path=path, expected="a matrix X of embeddings")
    if labels is not None:
        y, classes = _label_file(existing_file(labels))
        require_rows(len(y), len(X), labels, "labels")
    if tags is not None:
        file = existing_file(tags)
        if file.suffix.lower() == ".csv":
            tag_table = read_tag_csv(file, separator=separator)
            Y, tag_names, ids = tag_table.Y, tag_table.tags, tag_table.ids
        else:
            lines = split_lines(read_text(file))
            lists = [
                parse_tag_list(line, separator, file, line=number)
                for number, line in enumerate(lines, start=1)
            ]
            Y, tag_names = tag_matrix(lists, path=file)
        require_rows(len(Y), len(X), tags, "rows of tags")
    for found in (y, Y):
        if found is not None:
            refuse_label_leak(X, found, path)
    features = tuple(str(j) for j in range(1, X.shape[1] + 1))
    return UserTable(X, features, y, classes, None, Y, tag_names, ids)


def _label_file(path: Path) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    if path.suffix.lower() == ".npy":
        values = read_npy(path)
        if values.dtype.kind in "US":
            return class_codes(text_array(values, path.stem, path))
        return whole_labels(values, path, path.stem), ()
    words = [line.strip() for line in split_lines(read_text(path))]
    if "" in words:
        raise InputError(
            "blank line", path=path, line=words.index("") + 1, expected="one label a line"
        )
    numbers = [parse_number(word) for word in words]
    if any(number is None for number in numbers):
        return class_codes(words)
    return whole_labels(np.asarray(numbers, dtype=np.float64), path, path.stem), ()
