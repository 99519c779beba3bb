"""Tag tables as text: 0/1 matrices with their dictionary, and ``image,tags`` lists of the user's own.

Any text is a tag, ``NA``, ``null`` and ``nan`` too, and an image without tags stays an image.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pipeline_lib.datasets.reading import (
    PathLike,
    read_number_table,
    read_text,
    read_words,
    require_binary,
    require_dense_size,
    require_rows,
    shorten,
)
from pipeline_lib.errors import InputError

csv.field_size_limit(2**31 - 1)


@dataclass(frozen=True)
class TagTable:
    """Images and their tags.

    Attributes
    ----------
    ids : tuple of str
        Image names, distinct, in file order.
    Y : ndarray of shape (n, tags), uint8
    tags : tuple of str
    """

    ids: tuple[str, ...]
    Y: NDArray[np.uint8]
    tags: tuple[str, ...]


def read_annotation_matrix(
    annotations: PathLike, dictionary: PathLike, images: PathLike
) -> TagTable:
    """Read the three files of IAPR TC12's annotation: a headless 0/1 CSV, its words, its images.

    Parameters
    ----------
    annotations : path
        One line per image, one 0 or 1 per word, separated by commas.
    dictionary, images : path
        One word, and one image name, a line.
    """
    tags = read_words(dictionary)
    ids = read_words(images, what="image")
    values = read_number_table(annotations, delimiter=",", dtype=np.int64)
    if values.shape[1] != len(tags):
        raise InputError(
            f"{values.shape[1]} columns", path=annotations, expected=f"{len(tags)}, one per word"
        )
    require_rows(len(values), len(ids), annotations, "lines")
    return TagTable(ids, require_binary(values, annotations), tags)


def csv_rows(path: PathLike, delimiter: str = ",") -> list[tuple[int, list[str]]]:
    """Line number and fields of each row that is not blank, quotes resolved strictly."""
    text = read_text(path)
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise InputError("a zero byte", path=path, line=line, expected="text")
    rows = []
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    before = 0
    try:
        for row in reader:
            if row:
                rows.append((before + 1, row))
            before = reader.line_num
    except csv.Error as error:
        raise InputError(f"not valid CSV ({error})", path=path, line=before + 1) from None
    if not rows:
        raise InputError("the file is empty", path=path, expected="a header and rows")
    return rows


def header_names(row: Sequence[str], path: PathLike, line: int = 1) -> tuple[str, ...]:
    """The column names of a CSV header: stripped, not empty, distinct."""
    names = tuple(name.strip() for name in row)
    for column, name in enumerate(names, start=1):
        if not name:
            raise InputError("a column without a name", path=path, line=line, column=column)
        if name in names[: column - 1]:
            raise InputError(
                f"column name {name!r} stands twice", path=path, line=line, column=column
            )
    return names


def read_tag_csv(path: PathLike, *, separator: str = ";", delimiter: str = ",") -> TagTable:
    """Read a user's tags in one of two layouts, told apart by the header.

    - Two columns, image and tags: the tags of a row separated by ``separator`` (``cat;red;NA``).
    - An image column and any other number of columns named after tags, holding 0 and 1.

    Tags of the first layout are numbered in alphabetical order.

    Raises
    ------
    InputError
        With line and column: a row of another length, an empty or repeated image, an empty tag,
        a value other than 0 and 1.
    """
    (header_line, header), *rows = csv_rows(path, delimiter)
    names = header_names(header, path, header_line)
    if len(names) < 2:
        raise InputError(
            f"{len(names)} column",
            path=path,
            line=header_line,
            expected="an image column and a tags column, or one column per tag",
        )
    ids: dict[str, int] = {}
    for line, row in rows:
        if len(row) != len(names):
            raise InputError(
                f"{len(row)} fields", path=path, line=line, expected=f"{len(names)} as the header"
            )
        image = row[0].strip()
        if not image:
            raise InputError("no image name", path=path, line=line, column=1)
        if image in ids:
            raise InputError(
                f"image {shorten(image)} stands already on line {ids[image]}",
                path=path,
                line=line,
                column=1,
            )
        ids[image] = line
    if len(names) == 2 and not _is_binary_column(rows):
        lists = [parse_tag_list(row[1], separator, path, line=line, column=2) for line, row in rows]
        Y, tags = tag_matrix(lists, path=path)
        return TagTable(tuple(ids), Y, tags)
    Y = np.zeros((len(rows), len(names) - 1), dtype=np.uint8)
    for i, (line, row) in enumerate(rows):
        for j, cell in enumerate(row[1:]):
            value = cell.strip()
            if value not in ("0", "1"):
                raise InputError(
                    f"{shorten(value)} for tag {names[j + 1]!r}",
                    path=path,
                    line=line,
                    column=j + 2,
                    expected="0 or 1",
                )
            Y[i, j] = value == "1"
    return TagTable(tuple(ids), Y, names[1:])


def _is_binary_column(rows: Sequence[tuple[int, list[str]]]) -> bool:
    """Whether a two-column table is one tag's 0/1 column rather than lists of tags."""
    return bool(rows) and {row[1].strip() for _, row in rows} <= {"0", "1"}


def parse_tag_list(
    text: str, separator: str, path: PathLike, *, line: int, column: int | None = None
) -> list[str]:
    """Split ``red;cat``; blanks around tags are dropped, empty tags refused, empty text is no tag."""
    if not separator:
        raise InputError("an empty separator", path=path, expected="the character between tags")
    if not text.strip():
        return []
    tags = [tag.strip() for tag in text.split(separator)]
    if "" in tags:
        raise InputError(
            f"an empty tag in {shorten(text)}",
            path=path,
            line=line,
            column=column,
            expected=f"tags separated by single {separator!r}",
        )
    return tags


def tag_matrix(
    lists: Sequence[Iterable[str]],
    *,
    tags: Sequence[str] | None = None,
    min_images: int = 1,
    path: PathLike,
) -> tuple[NDArray[np.uint8], tuple[str, ...]]:
    """Turn a list of tags per image into a binary matrix.

    Parameters
    ----------
    lists : sequence of iterables of str
    tags : sequence of str, optional
        The vocabulary and its order; other tags are dropped. By default every tag that occurs on at
        least ``min_images`` images, in alphabetical order.
    min_images : int, default 1
    path : path
        For messages.

    Returns
    -------
    Y : ndarray of shape (n, tags), uint8
    tags : tuple of str
    """
    sets = [set(names) for names in lists]
    if tags is None:
        counts: dict[str, int] = {}
        for names in sets:
            for name in names:
                counts[name] = counts.get(name, 0) + 1
        tags = sorted(name for name, count in counts.items() if count >= min_images)
    if not tags:
        raise InputError("no image has a tag", path=path, expected="at least one tag")
    n_stored = sum(map(len, sets))
    require_dense_size(len(sets), len(tags), n_stored, path, "a tag table")
    column = {name: j for j, name in enumerate(tags)}
    Y = np.zeros((len(sets), len(tags)), dtype=np.uint8)
    for i, names in enumerate(sets):
        Y[i, [column[name] for name in names if name in column]] = 1
    return Y, tuple(tags)


def write_tag_csv(path: PathLike, table: TagTable, *, separator: str = ";") -> None:
    """Write the two-column layout that `read_tag_csv` reads."""
    with Path(path).open("w", newline="", encoding="utf-8") as handle:
        writer = csv.writer(handle, lineterminator="\n")
        writer.writerow(["image", "tags"])
        for image, row in zip(table.ids, table.Y):
            writer.writerow([image, separator.join(table.tags[j] for j in np.flatnonzero(row))])
