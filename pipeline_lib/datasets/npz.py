"""numpy's ``.npy`` and ``.npz``, never unpickled: feature matrices and embeddings with tags or labels.

Large collections (Flickr1M- and ImageNet-style) come as one ``.npz`` with the arrays

- ``X`` (n, d) features;
- ``Y`` (n, tags) of 0 and 1, or the same as ``Y_indices`` and ``Y_indptr`` (compressed sparse rows:
  the tags of image i are ``Y_indices[Y_indptr[i]:Y_indptr[i+1]]``), or ``y`` (n,) class labels, whole
  numbers or text;
- ``tags`` and ``ids``, text, both optional.
"""

from __future__ import annotations

import io
import math
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from pipeline_lib.datasets.archives import check_zip_member
from pipeline_lib.datasets.reading import (
    PathLike,
    existing_file,
    refuse_label_leak,
    require_dense_size,
    require_rows,
)
from pipeline_lib.errors import InputError


@dataclass(frozen=True)
class ArrayTable:
    """What a ``.npz`` dataset holds; fields that are not there are None.

    ``y`` holds positions in ``classes`` when the labels are text.
    """

    X: NDArray[Any] | None
    Y: NDArray[np.uint8] | None
    y: NDArray[np.int64] | None
    tags: tuple[str, ...]
    ids: tuple[str, ...] | None
    classes: tuple[str, ...] = ()


def _read_array(stream: IO[bytes], size: int, path: PathLike, name: str) -> NDArray[Any]:
    """One array of numbers or text whose header and length in bytes agree."""

    def fail(what: str, expected: str = "a whole .npy array") -> InputError:
        return InputError(f"array {name!r}: {what}", path=path, expected=expected)

    try:
        version = np.lib.format.read_magic(stream)
        if version == (1, 0):
            shape, fortran, dtype = np.lib.format.read_array_header_1_0(stream)
        elif version == (2, 0):
            shape, fortran, dtype = np.lib.format.read_array_header_2_0(stream)
        else:
            raise fail(f"format version {version}", "1.0 or 2.0")
    except InputError:
        raise
    except Exception as error:
        # The header is a Python literal; numpy reports a bad one in many ways.
        raise fail(f"damaged header ({type(error).__name__})") from None
    if dtype.hasobject:
        raise InputError(
            f"array {name!r} holds Python objects, which are never unpickled",
            path=path,
            expected="numbers or text",
            remedy="save it again as an array of numbers, or of text with astype(str)",
        )
    if dtype.kind not in "biufUS" or dtype.itemsize == 0 or any(n < 0 for n in shape):
        raise fail(f"type {dtype}", "numbers or text")
    wanted = math.prod(shape) * dtype.itemsize
    if wanted != size - stream.tell():
        raise fail(f"{size - stream.tell()} bytes of data", f"{wanted} for shape {shape}")
    values = np.frombuffer(stream.read(wanted), dtype=dtype)
    array = values.reshape(shape, order="F" if fortran else "C")
    if dtype.kind == "U" and wanted:
        codes = values.view(np.uint32 if dtype.isnative else np.dtype(np.uint32).newbyteorder())
        if codes.max() > 0x10FFFF:
            raise fail("text with impossible characters", "Unicode text")
    return np.ascontiguousarray(array).astype(dtype.newbyteorder("="), copy=False).reshape(shape)


def read_npy(path: PathLike) -> NDArray[Any]:
    """Read a ``.npy`` file of numbers or text."""
    path = existing_file(path)
    raw = path.read_bytes()
    return _read_array(io.BytesIO(raw), len(raw), path, path.stem)


def read_npz(path: PathLike) -> dict[str, NDArray[Any]]:
    """Read every array of a ``.npz`` file."""
    path = existing_file(path)
    arrays = {}
    try:
        with zipfile.ZipFile(path) as archive:
            for member in archive.infolist():
                check_zip_member(member, path)
                if not member.filename.endswith(".npy"):
                    raise InputError(
                        f"holds {member.filename!r}", path=path, expected="only .npy arrays"
                    )
                name = member.filename.removesuffix(".npy")
                raw = archive.read(member)
                arrays[name] = _read_array(io.BytesIO(raw), len(raw), path, name)
    except InputError:
        raise
    except Exception as error:
        # zipfile and the decompressors raise a dozen kinds for a damaged archive.
        raise InputError(
            f"damaged archive ({type(error).__name__}: {error})", path=path, expected="a .npz file"
        ) from None
    return arrays


def read_array_table(path: PathLike) -> ArrayTable:
    """Read a ``.npz`` dataset (see the module's description of its arrays).

    Raises
    ------
    InputError
        Naming the array: unknown names, other shapes than the rest, values that are not finite or
        not 0 and 1, tag positions out of range, features that repeat a label column.
    """
    arrays = read_npz(path)
    unknown = set(arrays) - {"X", "Y", "Y_indices", "Y_indptr", "y", "tags", "ids"}
    if unknown:
        raise InputError(
            f"unknown array {min(unknown)!r}",
            path=path,
            expected="X, Y (or Y_indices and Y_indptr), y, tags, ids",
        )
    X = None if "X" not in arrays else finite_matrix(arrays["X"], path, "X")
    tags = _names(arrays.get("tags"), "tags", path) or ()
    ids = _names(arrays.get("ids"), "ids", path)
    Y = _tag_matrix(arrays, len(tags), path)
    y: NDArray[np.int64] | None = None
    classes: tuple[str, ...] = ()
    if "y" in arrays:
        if arrays["y"].dtype.kind in "US":
            y, classes = class_codes(text_array(arrays["y"], "y", path))
        else:
            y = whole_labels(arrays["y"], path, "y")
    lengths = {
        name: len(values)
        for name, values in (("X", X), ("Y", Y), ("y", y), ("ids", ids))
        if values is not None
    }
    if not lengths.keys() & {"X", "Y"}:
        raise InputError("neither X nor Y is there", path=path, expected="features or tags")
    if len(set(lengths.values())) > 1:
        found = ", ".join(f"{name} {n}" for name, n in lengths.items())
        raise InputError(f"different numbers of rows: {found}", path=path, expected="equal ones")
    if Y is not None:
        tags = tags or tuple(f"tag{j}" for j in range(Y.shape[1]))
        require_rows(len(tags), Y.shape[1], path, "tag names")
    if X is not None:
        for labels in (Y, y):
            if labels is not None:
                refuse_label_leak(X, labels, path)
    return ArrayTable(X, Y, y, tags, ids, classes)


def finite_matrix(values: NDArray[Any], path: PathLike, name: str) -> NDArray[Any]:
    """A float32 or float64 matrix of finite numbers; other types become float64."""
    if values.ndim != 2 or values.dtype.kind not in "biuf":
        raise InputError(
            f"{name} has shape {values.shape} and type {values.dtype}",
            path=path,
            expected="a matrix of numbers",
        )
    if not values.size:
        what = "rows" if not len(values) else "columns"
        raise InputError(f"{name} has no {what}", path=path, expected="at least one row and column")
    values = values if values.dtype in (np.float32, np.float64) else values.astype(np.float64)
    if not np.isfinite(values).all():
        row, column = np.argwhere(~np.isfinite(values))[0]
        raise InputError(
            f"{name}[{row}, {column}] is {values[row, column]}", path=path, expected="finite values"
        )
    return values


def whole_labels(values: NDArray[Any], path: PathLike, name: str) -> NDArray[np.int64]:
    """Class labels as int64."""
    if values.ndim != 1 or values.dtype.kind not in "biuf":
        raise InputError(
            f"{name} has shape {values.shape} and type {values.dtype}",
            path=path,
            expected="one whole number per row",
        )
    wrong = ~((np.abs(values.astype(np.float64)) < 2**31) & (values == np.floor(values)))
    if wrong.any():
        at = int(np.flatnonzero(wrong)[0])
        raise InputError(f"{name}[{at}] is {values[at]}", path=path, expected="a whole number")
    return values.astype(np.int64)


def _names(values: NDArray[Any] | None, what: str, path: PathLike) -> tuple[str, ...] | None:
    if values is None:
        return None
    names = text_array(values, what, path)
    if len(set(names)) != len(names) or "" in names:
        raise InputError(f"{what} has an empty or repeated name", path=path)
    return names


def text_array(values: NDArray[Any], what: str, path: PathLike) -> tuple[str, ...]:
    """An array of text (or of whole numbers, as text)."""
    if values.ndim != 1 or values.dtype.kind not in "USiu":
        raise InputError(f"{what} is not a list of text", path=path)
    if values.dtype.kind == "S":
        try:
            values = np.char.decode(values, "utf-8")
        except UnicodeDecodeError:
            raise InputError(f"{what} is not UTF-8 text", path=path) from None
    try:
        names = tuple(str(name) for name in values.tolist())
        "".join(names).encode()
    except UnicodeError:
        raise InputError(f"{what} has characters that are not Unicode", path=path) from None
    return names


def class_codes(words: Sequence[str]) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Labels that are text as positions in the sorted names of the classes."""
    classes = tuple(sorted(set(words)))
    position = {name: code for code, name in enumerate(classes)}
    return np.array([position[word] for word in words], dtype=np.int64), classes


def _tag_matrix(
    arrays: dict[str, NDArray[Any]], n_tags: int, path: PathLike
) -> NDArray[np.uint8] | None:
    sparse_names = {"Y_indices", "Y_indptr"} & set(arrays)
    if "Y" in arrays:
        if sparse_names:
            raise InputError("both Y and Y_indices", path=path, expected="one of the two")
        Y = finite_matrix(arrays["Y"], path, "Y")
        if not ((Y == 0) | (Y == 1)).all():
            raise InputError("Y has values other than 0 and 1", path=path)
        return Y.astype(np.uint8)
    if not sparse_names:
        return None
    if len(sparse_names) == 1:
        raise InputError("only one of Y_indices and Y_indptr", path=path, expected="both")
    indices, indptr = arrays["Y_indices"], arrays["Y_indptr"]
    if any(values.ndim != 1 or values.dtype.kind not in "iu" for values in (indices, indptr)):
        raise InputError("Y_indices and Y_indptr are not lists of whole numbers", path=path)
    indices, indptr = indices.astype(np.int64), indptr.astype(np.int64)
    if (
        indptr.size < 1
        or indptr[0] != 0
        or indptr[-1] != indices.size
        or (np.diff(indptr) < 0).any()
    ):
        raise InputError("Y_indptr does not rise from 0 to the length of Y_indices", path=path)
    width = n_tags or (int(indices.max()) + 1 if indices.size else 0)
    if indices.size and (indices.min() < 0 or indices.max() >= width):
        raise InputError(
            f"Y_indices names tag {indices.max()}", path=path, expected=f"0-{width - 1}"
        )
    n = indptr.size - 1
    require_dense_size(n, width, indices.size, path, "Y")
    Y = np.zeros((n, width), dtype=np.uint8)
    Y[np.repeat(np.arange(n), np.diff(indptr)), indices] = 1
    return Y


def write_npz(path: PathLike, table: ArrayTable) -> None:
    """Write the arrays that `read_array_table` reads."""
    arrays: dict[str, Any] = {
        name: values
        for name, values in (("X", table.X), ("Y", table.Y), ("y", table.y))
        if values is not None
    }
    if table.y is not None and table.classes:
        arrays["y"] = np.asarray(table.classes, dtype=str)[table.y]
    if table.tags:
        arrays["tags"] = np.asarray(table.tags, dtype=str)
    if table.ids is not None:
        arrays["ids"] = np.asarray(table.ids, dtype=str)
    np.savez(Path(path), **arrays)
