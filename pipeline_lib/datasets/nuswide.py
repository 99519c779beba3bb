"""NUS-WIDE: the official text release, and the concept tables in CSV that circulate.

Official folders (Chua et al. 2009), all lists in one image order:

- ``Groundtruth/TrainTestLabels/Labels_<concept>_Train.txt`` and ``..._Test.txt``: a 0 or 1 per line;
- ``ConceptsList/Concepts81.txt``: the 81 concepts, whose order is the order of the columns;
- ``NUS_WID_Tags/Train_Tags81.txt``, ``Train_Tags1k.dat``, ...: lines of 0/1, and ``TagList1k.txt``;
- ``Low_Level_Features/Train_Normalized_CH.dat`` (and CORR, EDH, WT, CM55; ``BoW_Train_int.dat``);
- ``ImageList/TrainImagelist.txt``: one image a line.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pipeline_lib.datasets.archives import check_zip_member
from pipeline_lib.datasets.reading import (
    PathLike,
    decode_text,
    existing_file,
    existing_folder,
    parse_number,
    read_number_table,
    read_words,
    require_binary,
    require_rows,
    shorten,
    split_lines,
)
from pipeline_lib.datasets.tag_csv import TagTable, header_names
from pipeline_lib.errors import InputError

#: Low-level features and their dimensions.
FEATURE_KINDS = {"CH": 64, "CORR": 144, "EDH": 73, "WT": 128, "CM55": 225, "BoW": 500}


@dataclass(frozen=True)
class StrayValue:
    """A value other than 0 and 1 in a concept table; line and column count from 1, header included."""

    line: int
    column: int
    value: int

    def __str__(self) -> str:
        return f"line {self.line}, column {self.column}: {self.value}"


@dataclass(frozen=True)
class ConceptTable:
    """A concept table and what had to be put right in it, in words and as places."""

    table: TagTable
    strays: tuple[StrayValue, ...] = ()
    swapped: tuple[tuple[str, str], ...] = ()
    findings: dict[str, Any] = field(default_factory=dict)


def read_concept_csv(
    path: PathLike,
    *,
    more_frequent: Sequence[tuple[str, str]] = (("water", "waterfall"),),
    known_strays: Sequence[tuple[int, int, int]] = (),
) -> ConceptTable:
    """Read ``image,concept,concept,...`` with 0/1 values, plain or as the only file of a zip.

    Parameters
    ----------
    path : path
        ``.csv`` or ``.zip``.
    more_frequent : sequence of (str, str)
        Pairs of concepts of which the first is on more images in the official counts. A pair found
        the other way round has its headers swapped, as tables made from a sorted folder listing
        have; the names are put back and the pair is reported. NUS-WIDE has ``water`` on 35,264 of
        its images and ``waterfall`` on 595.
    known_strays : sequence of (line, column, value)
        Values other than 0 and 1 that are known; they are read as 0 and reported. Any other stops.

    Raises
    ------
    InputError
        With line and column: a stray value, a missing field, a repeated image.
    """
    path = existing_file(path)
    text = decode_text(_csv_bytes(path), path)
    names = _header(text, path)
    values, ids = _parse(text, names, path)
    known = {(int(line), int(column)): int(value) for line, column, value in known_strays}
    strays = []
    for row, j in np.argwhere((values != 0) & (values != 1)):
        stray = StrayValue(int(row) + 2, int(j) + 2, int(values[row, j]))
        if known.get((stray.line, stray.column)) != stray.value:
            raise InputError(
                f"{stray.value} for concept {names[j + 1]!r}",
                path=path,
                line=stray.line,
                column=stray.column,
                expected="0 or 1",
                remedy="correct the value, or declare it as a known stray value",
            )
        strays.append(stray)
        values[row, j] = 0
    tags, swapped = list(names[1:]), []
    counts = values.sum(axis=0)
    for more, fewer in more_frequent:
        if more in tags and fewer in tags:
            i, j = tags.index(more), tags.index(fewer)
            if counts[i] < counts[j]:
                tags[i], tags[j] = fewer, more
                swapped.append((more, fewer))
    findings: dict[str, Any] = {}
    if strays:
        findings["stray_values_read_as_0"] = [str(stray) for stray in strays]
    if swapped:
        findings["swapped_headers_put_back"] = [
            f"columns {names.index(a) + 1} ({a}) and {names.index(b) + 1} ({b})" for a, b in swapped
        ]
    table = TagTable(ids, values.astype(np.uint8), tuple(tags))
    return ConceptTable(table, tuple(strays), tuple(swapped), findings)


def _csv_bytes(path: Path) -> bytes:
    if path.suffix.lower() != ".zip":
        return path.read_bytes()
    try:
        with zipfile.ZipFile(path) as archive:
            members = [m for m in archive.infolist() if m.filename.lower().endswith(".csv")]
            if len(members) != 1:
                raise InputError(
                    f"{len(members)} CSV files in the archive", path=path, expected="exactly one"
                )
            check_zip_member(members[0], path)
            return archive.read(members[0])
    except (
        zipfile.BadZipFile,
        OSError,
        EOFError,
        NotImplementedError,
        RuntimeError,
        ValueError,
    ) as e:
        if isinstance(e, InputError):
            raise
        raise InputError(f"damaged zip archive ({e})", path=path, remedy="fetch it again") from None
    except Exception as error:  # zlib.error, lzma and others, by the member's compression
        raise InputError(f"damaged zip archive ({error})", path=path) from None


def _header(text: str, path: PathLike) -> tuple[str, ...]:
    names = header_names(text.partition("\n")[0].removesuffix("\r").split(","), path)
    if len(names) < 2:
        raise InputError("one column", path=path, line=1, expected="image and concepts")
    return names


def _parse(
    text: str, names: tuple[str, ...], path: PathLike
) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Fast road through polars; whatever it does not take is read again line by line for the place."""
    # Positional names: a concept may be called like anything, also like another column's position.
    columns = [f"c{j}" for j in range(len(names))]
    schema = dict.fromkeys(columns, pl.Int64) | {"c0": pl.String}
    try:
        frame = pl.read_csv(
            io.StringIO(text),
            has_header=False,
            skip_rows=1,
            schema=schema,
            quote_char=None,
            eol_char="\n",
        )
        complete = sum(frame.null_count().row(0)) == 0 if frame.height else False
        n_lines = text.count("\n") + (not text.endswith("\n")) - 1
        if complete and frame.width == len(names) and frame.height == n_lines:
            ids = tuple(frame["c0"].str.strip_chars().to_list())
            if len(set(ids)) == len(ids) and "" not in ids:
                return frame.drop("c0").to_numpy(), ids
    except (pl.exceptions.PolarsError, ValueError):
        pass
    return _parse_slowly(text, len(names), path)


def _parse_slowly(
    text: str, width: int, path: PathLike
) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    lines = split_lines(text)[1:]
    while lines and not lines[-1].strip():
        lines.pop()
    if not lines:
        raise InputError("no rows", path=path, line=2, expected="one line per image")
    first: dict[str, int] = {}
    rows = []
    for line, content in enumerate(lines, start=2):
        fields = content.split(",")
        if len(fields) != width:
            raise InputError(f"{len(fields)} fields", path=path, line=line, expected=f"{width}")
        image = fields[0].strip()
        if not image or image in first:
            what = f"image {shorten(image)} stands already on line {first.get(image)}"
            raise InputError(what if image else "no image name", path=path, line=line, column=1)
        first[image] = line
        row = []
        for column, cell in enumerate(fields[1:], start=2):
            value = parse_number(cell.strip())
            if value is None or not value.is_integer() or abs(value) > 2**53:
                raise InputError(
                    shorten(cell), path=path, line=line, column=column, expected="0 or 1"
                )
            row.append(int(value))
        rows.append(row)
    return np.asarray(rows, dtype=np.int64), tuple(first)


def read_ground_truth(
    folder: PathLike, concepts: PathLike, part: str, images: PathLike | None = None
) -> TagTable:
    """Read ``Labels_<concept>_<part>.txt`` of every concept.

    Parameters
    ----------
    folder : path
        ``Groundtruth/TrainTestLabels``, or ``Groundtruth/AllLabels`` with ``part=""``.
    concepts : path
        ``Concepts81.txt``; its order is the order of the columns (a folder listing has another).
    part : str
        ``Train``, ``Test``, or empty for ``AllLabels``.
    images : path, optional
        The image list of the part; by default images are numbered from 1.
    """
    folder = existing_folder(folder)
    tags = read_words(concepts, what="concept")
    suffix = f"_{part}.txt" if part else ".txt"
    columns: list[NDArray[np.uint8]] = []
    for tag in tags:
        file = folder / f"Labels_{tag}{suffix}"
        values = read_number_table(file, n_columns=1, dtype=np.int64)
        if columns:
            require_rows(len(values), len(columns[0]), file, "lines")
        columns.append(require_binary(values, file)[:, 0])
    Y = np.column_stack(columns)
    return TagTable(_image_names(images, len(Y)), Y, tags)


def read_tags(path: PathLike, tag_list: PathLike, images: PathLike | None = None) -> TagTable:
    """Read a 0/1 table of tags (``Train_Tags81.txt``, ``Train_Tags1k.dat``) and its list of names."""
    tags = read_words(tag_list, what="tag")
    values = read_number_table(path, n_columns=len(tags), dtype=np.int64)
    return TagTable(_image_names(images, len(values)), require_binary(values, path), tags)


def read_features(path: PathLike, kind: str | None = None) -> NDArray[np.float64]:
    """Read a ``.dat`` table of low-level features; ``kind`` (see `FEATURE_KINDS`) checks its width."""
    if kind is not None and kind not in FEATURE_KINDS:
        raise InputError(f"feature kind {kind!r}", expected="one of " + ", ".join(FEATURE_KINDS))
    return read_number_table(path, n_columns=None if kind is None else FEATURE_KINDS[kind])


def _image_names(images: PathLike | None, n: int) -> tuple[str, ...]:
    if images is None:
        return tuple(str(i) for i in range(1, n + 1))
    names = read_words(images, what="image")
    require_rows(len(names), n, images, "images")
    return names
