"""HDF5 files with one dataset of features and one of labels (needs the extra ``hdf5``)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline_lib.datasets.npz import finite_matrix, whole_labels
from pipeline_lib.datasets.reading import (
    MAX_CELLS,
    PathLike,
    existing_file,
    refuse_label_leak,
    require_rows,
)
from pipeline_lib.errors import InputError


def read_hdf5(
    path: PathLike, *, features: str, labels: str
) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Read features and labels, for example ``train/data`` and ``train/target`` of USPS.

    Parameters
    ----------
    path : path
    features, labels : str
        Paths of the two datasets inside the file. Links to other places and files are refused.

    Returns
    -------
    X : ndarray of shape (n, d), float32 or float64
    y : ndarray of shape (n,), int64
    """
    path = existing_file(path)
    try:
        import h5py
    except ImportError:
        raise InputError(
            "reading HDF5 needs h5py",
            path=path,
            remedy="install affinity-bench with the extra hdf5: pip install 'affinity-bench[hdf5]'",
        ) from None
    try:
        with h5py.File(path, "r") as file:
            X = finite_matrix(_array(file, features, path), path, features)
            y = whole_labels(_array(file, labels, path).ravel(), path, labels)
    except InputError:
        raise
    except (OSError, RuntimeError, KeyError, ValueError, TypeError, MemoryError) as error:
        raise InputError(
            f"damaged HDF5 file ({type(error).__name__}: {error})",
            path=path,
            remedy="fetch it again",
        ) from None
    require_rows(len(y), len(X), path, "labels")
    refuse_label_leak(X, y, path)
    return X, y


def _array(file: Any, name: str, path: Path) -> NDArray[Any]:
    import h5py

    parent = file
    parts = [part for part in name.split("/") if part]
    for part in parts:
        if not isinstance(parent, h5py.Group) or part not in parent:
            raise InputError(
                f"no dataset {name!r}", path=path, expected="one of " + ", ".join(_datasets(file))
            )
        if not isinstance(parent.get(part, getlink=True), h5py.HardLink):
            raise InputError(f"{name!r} is a link", path=path, expected="data in the file itself")
        parent = parent[part]
    if not isinstance(parent, h5py.Dataset) or parent.external or parent.is_virtual:
        raise InputError(f"{name!r} is not a plain dataset", path=path)
    size = parent.size or 0
    if parent.dtype.kind not in "biuf" or size > MAX_CELLS:
        raise InputError(
            f"{name!r} has type {parent.dtype} and shape {parent.shape}",
            path=path,
            expected="numbers",
        )
    # Chunks that were never written cost nothing in the file and everything in memory.
    stored = parent.id.get_storage_size()
    if size * parent.dtype.itemsize > 1000 * max(stored, 2**16):
        raise InputError(f"{name!r} swells from {stored} bytes to {size} values", path=path)
    return np.asarray(parent[()])


def _datasets(file: Any) -> list[str]:
    import h5py

    found: list[str] = []
    file.visititems(
        lambda name, node: found.append(name) if isinstance(node, h5py.Dataset) else None
    )
    return sorted(found)[:20] or ["nothing"]
