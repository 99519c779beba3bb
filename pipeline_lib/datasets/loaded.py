"""What every format of the catalogue gives, and how it is put together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline_lib.datasets.container import Dataset
from pipeline_lib.datasets.layout import Kind
from pipeline_lib.datasets.tag_csv import TagTable
from pipeline_lib.errors import InputError

Files = Mapping[str, tuple[Path, ...]]
Findings = Mapping[str, Any]


@dataclass(frozen=True)
class Loaded:
    """What a format gives: the data, the kind of its table, and names of features and classes.

    ``data.info`` holds the findings of the reader.
    """

    data: Dataset
    kind: Kind
    features: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()


def only_file(files: Files, role: str = "data") -> Path:
    """The single file of a role."""
    paths = files.get(role, ())
    if len(paths) != 1:
        raise InputError(f"{len(paths)} files with the role {role!r}", expected="exactly one")
    return paths[0]


def as_features(X: NDArray[Any]) -> NDArray[Any]:
    """Features as float64; many of them as float32 where that holds them exactly."""
    if X.dtype == np.float64:
        return X
    single = X.dtype in (np.float32, np.uint8, np.uint16) or (X.size > 0 and X.max() < 2**24)
    return X.astype(np.float32 if single and X.size > 2**24 else np.float64)


def matrix(
    X: NDArray[Any],
    y: NDArray[np.int64],
    *,
    classes: tuple[str, ...] = (),
    ids: Sequence[str] | None = None,
    findings: Findings | None = None,
) -> Loaded:
    """Labelled vectors."""
    data = Dataset("", "", X=as_features(X), y=y, ids=texts(ids), info=findings or {})
    return Loaded(data, "matrix", classes=classes)


def tagged(
    table: TagTable, X: NDArray[Any] | None = None, findings: Findings | None = None
) -> Loaded:
    """A tag table, with features or without."""
    data = Dataset(
        "",
        "",
        X=None if X is None else as_features(X),
        Y=table.Y,
        tags=table.tags,
        ids=texts(table.ids),
        info=findings or {},
    )
    return Loaded(data, "tags")


def texts(names: Sequence[str] | None) -> NDArray[Any] | None:
    """Names as an array; None where there are none."""
    return None if names is None else np.array(list(names), dtype=object)
