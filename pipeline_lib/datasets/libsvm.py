"""LIBSVM's sparse text (``label index:value ...``), plain or compressed (``usps.bz2``)."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pipeline_lib.datasets.archives import read_compressed
from pipeline_lib.datasets.reading import (
    NUMBER,
    PathLike,
    decode_text,
    require_dense_size,
    shorten,
    split_lines,
)
from pipeline_lib.errors import InputError

_NUMBER = NUMBER.pattern
# Possessive pieces: a long line that does not match must not be tried in many ways.
_PAIR = rf"[ \t]++\d{{1,9}}+:(?:{_NUMBER})"
_LINE = re.compile(rf"[ \t]*+(?:{_NUMBER})(?:{_PAIR})*+[ \t]*+(?:#.*)?")
_FIRST_PAIRS = re.compile(rf"[ \t]*+(?:(?:{_NUMBER})(?:{_PAIR})*+)?+")


def read_libsvm(
    path: PathLike, *, n_features: int | None = None, index_base: int = 1
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Read a file as a dense matrix and class labels.

    Parameters
    ----------
    path : path
        Text, or text compressed as ``.bz2``, ``.gz`` or ``.xz``.
    n_features : int, optional
        Columns; by default the largest index of the file.
    index_base : {0, 1}, default 1
        The index of the first column; never guessed.

    Returns
    -------
    X : ndarray of shape (n, d), float64
    y : ndarray of shape (n,), int64

    Raises
    ------
    InputError
        With line and column: anything but a whole label and rising ``index:value`` pairs.
    """
    if index_base not in (0, 1):
        raise InputError(f"index_base is {index_base}", expected="0 or 1")
    path = Path(path)
    text = decode_text(read_compressed(path), path)
    labels: list[float] = []
    columns: list[NDArray[np.int64]] = []
    values: list[NDArray[np.float64]] = []
    lengths: list[int] = []
    for number, line in enumerate(split_lines(text), start=1):
        if not line.strip():
            continue
        if _LINE.fullmatch(line) is None:
            raise _misread(line, number, path)
        tokens = line.partition("#")[0].replace(":", " ").split()
        label = float(tokens[0])
        if not label.is_integer() or abs(label) >= 2**31:
            raise InputError(
                f"label {shorten(tokens[0])}", path=path, line=number, column=1, expected="a class"
            )
        # Python's own conversions are exact and several times faster than numpy's from text.
        indices = np.array([*map(int, tokens[1::2])], dtype=np.int64)
        row = np.array([*map(float, tokens[2::2])], dtype=np.float64)
        _check_row(indices, row, n_features, index_base, path, number)
        labels.append(label)
        columns.append(indices - index_base)
        values.append(row)
        lengths.append(len(row))
    if not labels:
        raise InputError("the file is empty", path=path, expected="label index:value ...")
    flat = np.concatenate(columns)
    d = n_features if n_features is not None else int(flat.max()) + 1 if flat.size else 0
    if d == 0:
        raise InputError("no row has a feature", path=path, expected="label index:value ...")
    require_dense_size(len(labels), d, flat.size, path, "a table")
    X = np.zeros((len(labels), d))
    X[np.repeat(np.arange(len(labels)), lengths), flat] = np.concatenate(values)
    return X, np.asarray(labels, dtype=np.int64)


def _check_row(
    indices: NDArray[np.int64],
    values: NDArray[np.float64],
    n_features: int | None,
    index_base: int,
    path: PathLike,
    line: int,
) -> None:
    if not indices.size:
        return
    falls = np.flatnonzero(np.diff(indices) <= 0)
    last = n_features - 1 + index_base if n_features is not None else 10**9
    place: dict[str, Any] = {"path": path, "line": line}
    if falls.size:
        at = int(falls[0])
        raise InputError(
            f"index {indices[at + 1]} after {indices[at]}",
            column=at + 3,
            expected="rising indices",
            **place,
        )
    if indices[0] < index_base or indices[-1] > last:
        wrong = indices[0] if indices[0] < index_base else indices[-1]
        raise InputError(f"index {wrong}", expected=f"{index_base} to {last}", **place)
    if not np.isfinite(values).all():
        at = int(np.flatnonzero(~np.isfinite(values))[0])
        raise InputError("a value is too large", column=at + 2, expected="finite values", **place)


def _misread(line: str, number: int, path: PathLike) -> InputError:
    """The place where a line stops being a label and pairs."""
    match = _FIRST_PAIRS.match(line)
    good = line[: match.end()] if match else ""
    rest = line[len(good) :].split()
    return InputError(
        f"cannot read {shorten(rest[0] if rest else line)}",
        path=path,
        line=number,
        column=len(good.split()) + 1,
        expected="label index:value index:value ...",
    )


def write_libsvm(path: PathLike, X: ArrayLike, y: ArrayLike, *, index_base: int = 1) -> None:
    """Write rows as ``label index:value ...``, zeros left out, values exact."""
    lines = []
    for row, label in zip(np.asarray(X, dtype=np.float64), np.asarray(y)):
        pairs = (f"{j + index_base}:{row[j]!s}" for j in np.flatnonzero(row))
        lines.append(" ".join([str(int(label)), *pairs]))
    Path(path).write_text("".join(line + "\n" for line in lines), encoding="utf-8")
