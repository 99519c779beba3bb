"""Suggest further tags for tagged images: from a CSV file of image, tag rows to ranked rows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl
from scipy import sparse

from pipeline_lib.completion.base import TagCompleter
from pipeline_lib.datasets.tag_csv import csv_rows, header_names
from pipeline_lib.errors import InputError

COLUMNS = ("image", "tag")

_BLOCK_ENTRIES = 4_000_000


class TagTable(NamedTuple):
    """Observed tags with the names of their rows and columns, both in order of first appearance."""

    D: sparse.csr_array
    images: list[str]
    tags: list[str]


def read_tags(path: str | Path) -> TagTable:
    """Read a CSV file with one observed tag a row.

    The first line names the columns; ``image`` and ``tag`` must be among them, in any order, and
    others are not looked at. Every value is text: tags called NA, null or nan, or 007, are tags.
    Blanks around a value are dropped. A row may repeat. The file is UTF-8, with or without a byte
    order mark, lines ending in LF or CRLF.

    Parameters
    ----------
    path : str or Path

    Returns
    -------
    TagTable

    Raises
    ------
    InputError
        With the line: a missing, unnamed or doubled column, a row with too few or too many values,
        an empty image or tag, an unfinished quotation; or a file that is missing, empty or not
        UTF-8.
    """
    images: dict[str, int] = {}
    tags: dict[str, int] = {}
    pairs: dict[tuple[int, int], None] = {}
    for image, tag in _rows(path):
        pairs[images.setdefault(image, len(images)), tags.setdefault(tag, len(tags))] = None
    if not pairs:
        raise InputError("no image is tagged", path=path, expected="rows of image, tag")
    rows, columns = np.array(list(pairs), dtype=np.int64).T
    ones = np.ones(len(rows))
    D = sparse.csr_array((ones, (rows, columns)), shape=(len(images), len(tags)))
    return TagTable(D, list(images), list(tags))


def suggest_tags(
    table: str | Path | TagTable, completer: TagCompleter, n_suggestions: int = 5
) -> pl.DataFrame:
    """Rank the tags that each image of a file does not have yet.

    Parameters
    ----------
    table : str, Path or TagTable
        File as in `read_tags`, or what that has read.
    completer : TagCompleter
        Method to fit; it sees the tags only.
    n_suggestions : int, default=5
        Suggestions an image, fewer where it lacks fewer tags.

    Returns
    -------
    polars.DataFrame
        Columns ``image`` (str), ``rank`` (int64, from 1), ``tag`` (str) and ``score`` (float64),
        images in the order of the file. Equal scores rank by first appearance of the tag.

    Raises
    ------
    InputError
        If the file cannot be read or the number of suggestions is below 1.
    """
    if n_suggestions < 1:
        raise InputError(f"n_suggestions={n_suggestions}", expected="at least 1")
    if not isinstance(table, TagTable):
        table = read_tags(table)
    scores = completer.fit(table.D).scores_
    n, m = scores.shape
    wanted = min(n_suggestions, m)
    ranked = np.empty((n, wanted), dtype=np.int64)
    lacking = m - np.diff(table.D.indptr)
    step = max(1, _BLOCK_ENTRIES // m)
    for start in range(0, n, step):
        observed = table.D[start : start + step].toarray() > 0
        block = np.where(observed, np.inf, -scores[start : start + step])
        ranked[start : start + step] = np.argsort(block, axis=1, kind="stable")[:, :wanted]
    images, places = np.nonzero(np.arange(wanted) < lacking[:, None])
    chosen = ranked[images, places]
    return pl.DataFrame(
        {
            "image": np.asarray(table.images, dtype=object)[images].tolist(),
            "rank": (places + 1).astype(np.int64),
            "tag": np.asarray(table.tags, dtype=object)[chosen].tolist(),
            "score": scores[images, chosen],
        },
        schema={"image": pl.String, "rank": pl.Int64, "tag": pl.String, "score": pl.Float64},
    )


def _rows(path: str | Path) -> Iterator[tuple[str, str]]:
    """Yield image and tag of every row; blank lines are passed over."""
    (header_line, header), *rows = csv_rows(path)
    names = header_names(header, path, header_line)
    for name in COLUMNS:
        if name not in names:
            expected = f"a first line with {' and '.join(COLUMNS)}"
            raise InputError(
                f"the column {name} is missing", path=path, line=header_line, expected=expected
            )
    places = [names.index(name) for name in COLUMNS]
    for line, row in rows:
        if len(row) != len(names):
            expected = f"{len(names)}, as in the first line"
            raise InputError(f"{len(row)} values", path=path, line=line, expected=expected)
        image, tag = (row[place].strip() for place in places)
        for name, value, place in zip(COLUMNS, (image, tag), places, strict=True):
            if not value:
                raise InputError(f"the {name} is empty", path=path, line=line, column=place + 1)
        yield image, tag
