"""MATLAB files of version 5 to 7, read through scipy after their structure has been checked.

The check walks the tags of the file: every element must lie inside its parent, and only numbers,
text, cells, structures and sparse matrices are let through. So a damaged file ends in a message with
a byte offset instead of a huge allocation, and objects and functions are never built.
"""

from __future__ import annotations

import struct
import zlib
from pathlib import Path
from typing import Any, Literal

import numpy as np
import scipy.io
from numpy.typing import NDArray
from scipy import sparse

from pipeline_lib.datasets.reading import (
    MAX_CELLS,
    PathLike,
    existing_file,
    refuse_label_leak,
    require_dense_size,
)
from pipeline_lib.errors import InputError

_HDF5_SIGNATURE = b"\x89HDF\r\n\x1a\n"
_HEADER = 128
_COMPRESSED, _MATRIX = 15, 14
# Bytes of one value of each data type that may carry array data.
_ITEM_BYTES = {1: 1, 2: 1, 3: 2, 4: 2, 5: 4, 6: 4, 7: 4, 9: 8, 12: 8, 13: 8, 16: 1, 17: 2, 18: 4}
_CELL, _STRUCT, _CHAR, _SPARSE = 1, 2, 4, 5
_NUMERIC = range(6, 16)
_CLASS_NAMES = {3: "object", 16: "function handle", 17: "opaque object"}
_MAX_DEPTH = 16
_MAX_UNPACKED = 2**32

#: Pairs of variable names under which features and labels are found, in order of preference.
NAME_PAIRS = (("fea", "gnd"), ("X", "Y"), ("X", "y"), ("x", "y"))


class _Walker:
    """Checks the tag structure of one file; ``data`` is the stream being walked."""

    def __init__(self, path: Path, order: Literal["<", ">"]) -> None:
        self.path = path
        self.order = order
        self.unpacked = 0

    def fail(self, what: str, offset: int, expected: str | None = None) -> InputError:
        return InputError(
            f"{what} at byte {offset}",
            path=self.path,
            expected=expected,
            remedy="the file is damaged: fetch or export it again",
        )

    def tag(self, data: memoryview, at: int, end: int) -> tuple[int, int, int, int]:
        """Type, payload start, payload bytes, and where the next element starts."""
        if at + 8 > end:
            raise self.fail("an element is cut", at)
        kind, count = struct.unpack_from(self.order + "II", data, at)
        if kind >> 16:
            kind, count = kind & 0xFFFF, kind >> 16
            if count > 4:
                raise self.fail(f"a small element of {count} bytes", at, "at most 4")
            return kind, at + 4, count, at + 8
        start = at + 8
        if count > end - start:
            raise self.fail(
                f"an element of {count} bytes where {end - start} are left", at, "a whole element"
            )
        # Compressed elements are not padded to eight bytes, everything else is.
        after = start + count + (0 if kind == _COMPRESSED else -count % 8)
        return kind, start, count, min(after, end)

    def top(self, data: memoryview) -> None:
        at = _HEADER
        while at < len(data):
            kind, start, count, after = self.tag(data, at, len(data))
            if kind == _COMPRESSED:
                inner = memoryview(self.inflate(data[start : start + count], at))
                kind, start, count, _ = self.tag(inner, 0, len(inner))
                if kind != _MATRIX:
                    raise self.fail(f"a compressed element of type {kind}", at, "a variable")
                self.matrix(inner, start, start + count, 0)
            elif kind == _MATRIX:
                self.matrix(data, start, start + count, 0)
            else:
                raise self.fail(f"an element of type {kind}", at, "a variable")
            at = after

    def inflate(self, packed: memoryview, at: int) -> bytes:
        engine = zlib.decompressobj()
        try:
            data = engine.decompress(packed, _MAX_UNPACKED - self.unpacked)
        except zlib.error as error:
            raise self.fail(f"a variable cannot be decompressed ({error})", at) from None
        self.unpacked += len(data)
        if not engine.eof:
            raise self.fail("a compressed variable is cut or larger than 4 GiB", at)
        return data

    def matrix(self, data: memoryview, at: int, end: int, depth: int) -> None:
        if at == end:  # an empty matrix inside a cell may have no content at all
            return
        if depth > _MAX_DEPTH:
            raise self.fail("cells nested too deeply", at, f"at most {_MAX_DEPTH} levels")
        opened = at
        kind, start, count, at = self.tag(data, at, end)
        if kind != 6 or count != 8:
            raise self.fail("no array flags", opened)
        flags, n_nonzero = struct.unpack_from(self.order + "II", data, start)
        array_class, is_complex = flags & 0xFF, bool(flags & 0x800)
        if array_class in _CLASS_NAMES:
            raise InputError(
                f"holds a {_CLASS_NAMES[array_class]}",
                path=self.path,
                expected="numbers, text, cells and structures",
                remedy="save the plain arrays in MATLAB",
            )
        kind, start, count, at = self.tag(data, at, end)
        if kind != 5 or count < 8 or count % 4:
            raise self.fail("no dimensions", opened)
        shape = struct.unpack_from(f"{self.order}{count // 4}i", data, start)
        cells = 1
        for extent in shape:
            if extent < 0:
                raise self.fail(f"a dimension of {extent}", opened)
            cells *= extent
        if cells > MAX_CELLS or len(shape) > 8:
            raise self.fail(f"an array of shape {'x'.join(map(str, shape[:8]))}", opened)
        kind, start, count, at = self.tag(data, at, end)
        if kind not in (1, 2):
            raise self.fail("no variable name", opened)
        if array_class == _CELL:
            at = self.children(data, at, end, cells, depth, opened)
        elif array_class == _STRUCT:
            at = self.structure(data, at, end, cells, depth, opened)
        elif array_class == _SPARSE:
            columns = shape[1] if len(shape) == 2 else -1
            if columns < 0 or n_nonzero > MAX_CELLS:
                raise self.fail("a malformed sparse matrix", opened)
            at, _ = self.values(data, at, end, None, opened)
            at, _ = self.values(data, at, end, columns + 1, opened)
            at, _ = self.values(data, at, end, None, opened)
            if is_complex:
                at, _ = self.values(data, at, end, None, opened)
        elif array_class == _CHAR:
            at, _ = self.values(data, at, end, None, opened)
        elif array_class in _NUMERIC:
            for _ in range(1 + is_complex):
                at, _ = self.values(data, at, end, cells, opened)
        else:
            raise self.fail(f"an array of class {array_class}", opened)
        if at < end:
            raise self.fail("bytes are left over in a variable", at)

    def values(
        self, data: memoryview, at: int, end: int, expected: int | None, opened: int
    ) -> tuple[int, int]:
        kind, _, count, after = self.tag(data, at, end)
        if kind not in _ITEM_BYTES or count % _ITEM_BYTES[kind]:
            raise self.fail(f"array data of type {kind}", at)
        n = count // _ITEM_BYTES[kind]
        if expected is not None and n != expected:
            raise self.fail(f"an array with {n} values", opened, f"{expected} from its dimensions")
        return after, n

    def children(self, data: memoryview, at: int, end: int, n: int, depth: int, opened: int) -> int:
        if n * 8 > end - at:
            raise self.fail(f"{n} cells in {end - at} bytes", opened)
        for _ in range(n):
            kind, start, count, after = self.tag(data, at, end)
            if kind != _MATRIX:
                raise self.fail(f"a cell of type {kind}", at)
            self.matrix(data, start, start + count, depth + 1)
            at = after
        return at

    def structure(
        self, data: memoryview, at: int, end: int, n: int, depth: int, opened: int
    ) -> int:
        kind, start, count, at = self.tag(data, at, end)
        if kind != 5 or count != 4:
            raise self.fail("no field name length", opened)
        (length,) = struct.unpack_from(self.order + "i", data, start)
        kind, start, count, at = self.tag(data, at, end)
        if kind not in (1, 2) or length <= 0 or count % length:
            raise self.fail("malformed field names", opened)
        return self.children(data, at, end, n * (count // length), depth, opened)


def read_mat(path: PathLike) -> dict[str, Any]:
    """The variables of a MATLAB file (version 5 to 7), by name.

    Raises
    ------
    InputError
        The file is of version 7.3 (HDF5) or 4, damaged (with the byte offset), or holds objects.
    """
    path = existing_file(path)
    raw = path.read_bytes()
    if raw.startswith(_HDF5_SIGNATURE) or raw[512:520] == _HDF5_SIGNATURE:
        raise InputError(
            "is a MATLAB 7.3 file (HDF5)",
            path=path,
            expected="version 7 or older",
            remedy="in MATLAB, save it again with: save('file.mat', '-v7')",
        )
    if len(raw) < _HEADER or raw[126:128] not in (b"IM", b"MI"):
        raise InputError(
            "is not a MATLAB file of version 5 to 7",
            path=path,
            expected="a .mat file",
            remedy="in MATLAB, save it again with: save('file.mat', '-v7')",
        )
    order: Literal["<", ">"] = "<" if raw[126:128] == b"IM" else ">"
    (version,) = struct.unpack_from(order + "H", raw, 124)
    if version != 0x0100:
        raise InputError(f"has format version {version:#06x}", path=path, expected="0x0100")
    _Walker(path, order).top(memoryview(raw))
    try:
        content = scipy.io.loadmat(str(path), verify_compressed_data_integrity=True)
    except Exception as error:
        # scipy raises many kinds for a damaged file; all of them mean the same to the user.
        raise InputError(
            f"scipy cannot read it ({type(error).__name__}: {error})",
            path=path,
            remedy="the file is damaged: fetch or export it again",
        ) from None
    return {name: value for name, value in content.items() if not name.startswith("__")}


def numeric_matrix(content: dict[str, Any], name: str, path: PathLike) -> NDArray[Any]:
    """One variable as a dense, finite, real matrix."""
    if name not in content:
        raise InputError(
            f"no variable {name!r}", path=path, expected="one of " + ", ".join(sorted(content))
        )
    value = content[name]
    if isinstance(value, (sparse.spmatrix, sparse.sparray)):
        value = _dense(value, name, path)
    if not isinstance(value, np.ndarray) or value.ndim != 2 or value.dtype.kind not in "buif":
        raise InputError(f"variable {name!r} is not a matrix of real numbers", path=path)
    if not np.isfinite(value).all():
        row, column = np.argwhere(~np.isfinite(value))[0]
        raise InputError(
            f"{name}({row + 1},{column + 1}) is {value[row, column]}",
            path=path,
            expected="finite numbers",
        )
    return value.astype(value.dtype.newbyteorder("="), copy=False)


def _dense(value: Any, name: str, path: PathLike) -> NDArray[Any]:
    rows, columns = value.shape
    require_dense_size(rows, columns, value.nnz, path, name)
    try:
        # A damaged file can hold positions outside the matrix, which are not checked on the way.
        value.check_format(full_check=True)
    except ValueError as error:
        raise InputError(f"sparse matrix {name!r} is damaged ({error})", path=path) from None
    return np.asarray(value.toarray())


def read_features_and_labels(
    path: PathLike,
    *,
    features: str | None = None,
    labels: str | None = None,
    samples: Literal["rows", "columns"] | None = None,
) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Features and class labels of the ``fea``/``gnd`` or ``X``/``Y`` files that circulate.

    Parameters
    ----------
    path : path
    features, labels : str, optional
        Variable names; by default the first pair of `NAME_PAIRS` that is there.
    samples : {"rows", "columns"}, optional
        Where the samples stand; by default the side whose length is the number of labels. A square
        matrix needs it said.

    Returns
    -------
    X : ndarray of shape (n, d)
        In the units and type of the file (uint8 images stay 0 to 255).
    y : ndarray of shape (n,), int64
    """
    content = read_mat(path)
    if features is None and labels is None:
        for pair in NAME_PAIRS:
            if set(pair) <= set(content):
                features, labels = pair
                break
        else:
            raise InputError(
                f"holds {', '.join(sorted(content)) or 'nothing'}",
                path=path,
                expected=" or ".join("/".join(pair) for pair in NAME_PAIRS),
                remedy="name the variables with the options features and labels",
            )
    if features is None or labels is None:
        raise InputError("only one of the variables is named", path=path, expected="both or none")
    X = numeric_matrix(content, features, path)
    y = numeric_matrix(content, labels, path)
    if min(y.shape) != 1:
        raise InputError(f"{labels} has shape {y.shape}", path=path, expected="a vector of labels")
    y = y.ravel()
    if not (y == np.floor(y)).all():
        raise InputError(f"{labels} has values that are not whole", path=path, expected="classes")
    if samples is None:
        sides = [side for side, n in zip(("rows", "columns"), X.shape) if n == y.size]
        if not sides:
            raise InputError(
                f"{features} is {X.shape[0]} x {X.shape[1]} and {labels} has {y.size} values",
                path=path,
                expected="one side as long as the labels",
            )
        if len(sides) == 2:
            raise InputError(
                f"{features} is square ({X.shape[0]} x {X.shape[1]})",
                path=path,
                remedy='say where the samples stand with the option samples = "rows" or "columns"',
            )
        samples = "rows" if sides[0] == "rows" else "columns"
    if samples == "columns":
        X = X.T
    if len(X) != y.size:
        raise InputError(f"{len(X)} samples in {samples}", path=path, expected=f"{y.size}")
    X = np.ascontiguousarray(X)
    refuse_label_leak(X, y, path)
    return X, y.astype(np.int64)
