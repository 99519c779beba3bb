"""Vector files of Guillaumin's annotation features: ``.hvecs``, ``.hvecs32`` and ``.fvec``.

A file is a sequence of little-endian records, each a length followed by that many values:

=========  ======  =======  ===========================================
suffix     length  values   used for
=========  ======  =======  ===========================================
.hvecs     uint16  uint16   annotations, bags of words (SIFT, hue)
.hvecs32   uint32  uint32   colour histograms
.fvec      int32   float32  Gist
=========  ======  =======  ===========================================
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pipeline_lib.datasets.reading import PathLike, existing_file
from pipeline_lib.errors import InputError

_LAYOUTS: dict[str, tuple[str, str]] = {
    ".hvecs": ("<u2", "<u2"),
    ".hvecs32": ("<u4", "<u4"),
    ".fvec": ("<i4", "<f4"),
}

#: The fifteen feature kinds of the release, as their files are named, and their dimensions.
FEATURE_KINDS: dict[str, tuple[str, int]] = {
    "DenseHue": (".hvecs", 100),
    "DenseHueV3H1": (".hvecs", 300),
    "DenseSift": (".hvecs", 1000),
    "DenseSiftV3H1": (".hvecs", 3000),
    "Gist": (".fvec", 512),
    "HarrisHue": (".hvecs", 100),
    "HarrisHueV3H1": (".hvecs", 300),
    "HarrisSift": (".hvecs", 1000),
    "HarrisSiftV3H1": (".hvecs", 3000),
    "Hsv": (".hvecs32", 4096),
    "HsvV3H1": (".hvecs32", 5184),
    "Lab": (".hvecs32", 4096),
    "LabV3H1": (".hvecs32", 5184),
    "Rgb": (".hvecs32", 4096),
    "RgbV3H1": (".hvecs32", 5184),
}


def _layout(path: Path) -> np.dtype[Any]:
    try:
        return np.dtype(list(zip(("length", "value"), _LAYOUTS[path.suffix.lower()])))
    except KeyError:
        raise InputError(
            f"unknown vector file suffix {path.suffix!r}",
            path=path,
            expected=" or ".join(_LAYOUTS),
        ) from None


def read_vecs(path: PathLike, *, n_columns: int | None = None) -> NDArray[Any]:
    """Read every record of a vector file; the suffix says its layout.

    Parameters
    ----------
    path : path
        A file named ``*.hvecs``, ``*.hvecs32`` or ``*.fvec``.
    n_columns : int, optional
        The length that every record must have; by default that of the first one.

    Returns
    -------
    ndarray of shape (n, d), uint16, uint32 or float32

    Raises
    ------
    InputError
        A record is cut, has another length than the first, or holds a value that is not finite;
        the record (counted from 1) and its byte offset are named.
    """
    path = existing_file(path)
    layout = _layout(path)
    length_type, value_type = layout["length"], layout["value"]
    size = os.path.getsize(path)
    if size == 0:
        raise InputError("the file is empty", path=path, expected="at least one record")
    if size < length_type.itemsize:
        raise InputError("record 1 at byte 0 is cut", path=path, expected="a length")
    raw = np.fromfile(path, dtype=np.uint8)
    d = int(raw[: length_type.itemsize].view(length_type)[0])
    if n_columns is not None and d != n_columns:
        raise InputError(f"record 1 has {d} values", path=path, expected=f"{n_columns}")
    if d <= 0:
        raise InputError(f"record 1 has {d} values", path=path, expected="at least one")
    record = length_type.itemsize + d * value_type.itemsize
    n, rest = divmod(size, record)
    rows = raw[: n * record].reshape(n, record)
    lengths = np.ascontiguousarray(rows[:, : length_type.itemsize]).view(length_type).ravel()
    wrong = np.flatnonzero(lengths != d)
    if wrong.size:
        first = int(wrong[0])
        raise InputError(
            f"record {first + 1} at byte {first * record} has {int(lengths[first])} values",
            path=path,
            expected=f"{d} as in record 1",
            remedy="the file is damaged or has another layout than its suffix says",
        )
    if rest:
        raise InputError(
            f"record {n + 1} at byte {n * record} is cut after {rest} of {record} bytes",
            path=path,
            expected="complete records",
            remedy="fetch the file again",
        )
    values = np.ascontiguousarray(rows[:, length_type.itemsize :]).view(value_type)
    if value_type.kind == "f" and not np.isfinite(values).all():
        row, column = np.argwhere(~np.isfinite(values))[0]
        raise InputError(
            f"record {row + 1} at byte {row * record} has {values[row, column]} as value "
            f"{column + 1}",
            path=path,
            expected="finite values",
        )
    return values.astype(value_type.newbyteorder("="), copy=False)


def write_vecs(path: PathLike, values: ArrayLike) -> None:
    """Write a matrix as records in the layout that the suffix of ``path`` says."""
    path = Path(path)
    layout = _layout(path)
    values = np.asarray(values)
    records = np.empty(
        len(values),
        dtype=[("length", layout["length"]), ("value", layout["value"], values.shape[1:])],
    )
    records["length"] = values.shape[1]
    records["value"] = values
    records.tofile(path)
