"""Which function reads which format.

A reader takes a `ReadRequest` and returns a `RawTable`: the layout at once, the rows while they are
consumed. It raises `InputError` with file, line and column for anything it does not understand, and
never writes. Adding a format means one function and one line in `READERS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from pipeline_lib.datasets.container import Dataset
from pipeline_lib.datasets.digits import digits_table
from pipeline_lib.datasets.formats import FORMATS, read_format
from pipeline_lib.datasets.layout import Kind, Layout, RawTable, Rows
from pipeline_lib.datasets.letor import letor_shape, read_letor
from pipeline_lib.suggest import unknown_name


@dataclass(frozen=True)
class ReadRequest:
    """What a reader is asked for.

    Attributes
    ----------
    dataset, part : str
        Catalogue names.
    files : mapping of str to tuple of Path
        Files by role (``data`` unless the catalogue says otherwise), in catalogue order; empty for
        bundled and generated data.
    options : mapping
        The reader's options as declared; a reader refuses those it does not know.
    seed : int
        For generated data; everything else ignores it.
    scratch : Path or None
        Where finished blocks of long work may be kept.
    """

    dataset: str
    part: str
    files: Mapping[str, tuple[Path, ...]] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    scratch: Path | None = None

    def only_file(self, role: str = "data") -> Path:
        """The single file of a role."""
        (path,) = self.files[role]
        return path


Reader = Callable[[ReadRequest], RawTable]


def table_of(data: Dataset, kind: Kind, **layout: Any) -> RawTable:
    """A `Dataset` made in memory, as the table a reader returns.

    Parameters
    ----------
    data : Dataset
        With the fields of its kind; identifiers are numbered where a tag table lacks them.
    kind : {"ltr", "matrix", "tags"}
    **layout
        Further fields of `Layout`, for example ``features`` (names; ``0``, ``1``, ... by default)
        or ``classes``.
    """
    n, width = len(data), 0 if data.X is None else data.X.shape[1]
    ids = data.ids
    if ids is None and kind == "tags":
        ids = np.array([f"{row:0{len(str(n - 1))}d}" for row in range(n)], dtype=object)
    single = data.X is not None and data.X.dtype == np.float32
    fields: dict[str, Any] = {
        "features": tuple(str(column) for column in range(width)),
        "dtype": "float32" if single else "float64",
        "tags": data.tags,
        "has_id": ids is not None,
        "has_y": data.y is not None,
    }
    rows = Rows(
        X=data.X,
        y=data.y,
        qid=None if data.qid is None else data.qid.astype(str).astype(object),
        ids=ids,
        Y=data.Y,
    )
    return RawTable(Layout(kind=kind, **(fields | layout)), [rows], dict(data.info))


def _read_letor(request: ReadRequest) -> RawTable:
    """One LETOR file; files with the role ``set`` share its index base and width."""
    options = dict(request.options)
    if not {"base", "width"} <= options.keys():
        shape = letor_shape([*request.files["data"], *request.files.get("set", ())])
        options.setdefault("base", shape.base)
        options.setdefault("width", shape.width + shape.base - options["base"])
    return read_letor(request.only_file(), **options)


def _read_digits(request: ReadRequest) -> RawTable:
    return digits_table(request.seed, **request.options)


def _reader_by_format(name: str) -> Reader:
    def read(request: ReadRequest) -> RawTable:
        loaded = read_format(name, request.files, request.options, request.seed, request.scratch)
        layout: dict[str, Any] = {"classes": loaded.classes}
        if loaded.features:
            layout["features"] = loaded.features
        return table_of(loaded.data, loaded.kind, **layout)

    return read


READERS: Mapping[str, Reader] = {
    "digits": _read_digits,
    "letor": _read_letor,
    **{name: _reader_by_format(name) for name in FORMATS},
}


def reader_of(format_name: str) -> Reader:
    """The reader of a format; an unknown one is an `InputError` with the nearest names."""
    if format_name not in READERS:
        raise unknown_name("format", format_name, READERS)
    return READERS[format_name]
