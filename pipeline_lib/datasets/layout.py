"""What every reader hands over: a layout, and blocks of rows; and the counts taken from them.

The layouts are described in `canonical`, which writes them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from pipeline_lib.errors import InputError

Kind = Literal["ltr", "matrix", "tags"]


@dataclass(frozen=True)
class Layout:
    """What the columns of a canonical file are.

    Parameters
    ----------
    kind : {"ltr", "matrix", "tags"}
    features : tuple of str
        Names of the feature columns; may be empty in ``tags`` only.
    dtype : {"float32", "float64"}
        Type of every feature column.
    tags : tuple of str
        Names of the tag columns; distinct, and any text is a name (``NA``, ``null`` too).
    has_id, has_y, has_comment : bool
        Which of the optional columns are there.
    classes : tuple of str
        Names of the class labels 0, 1, ... where ``y`` numbers named classes.
    """

    kind: Kind
    features: tuple[str, ...] = ()
    dtype: Literal["float32", "float64"] = "float64"
    tags: tuple[str, ...] = ()
    has_id: bool = False
    has_y: bool = False
    has_comment: bool = False
    classes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for what, names in (("feature", self.features), ("tag", self.tags)):
            repeated = [name for name, count in Counter(names).items() if count > 1]
            if repeated:
                raise InputError(
                    f"the {what} name {repeated[0]!r} stands {names.count(repeated[0])} times",
                    expected="distinct names",
                )
        if self.kind == "ltr" and not (self.has_y and self.features):
            raise InputError("a learning-to-rank table needs labels and features")
        if self.kind == "matrix" and not self.features:
            raise InputError("a feature matrix needs features")
        if self.kind == "tags" and not (self.has_id and self.tags):
            raise InputError("a tag table needs row identifiers and tags")
        if self.kind != "tags" and self.tags:
            raise InputError(f"a table of kind {self.kind!r} has no tags")

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema: names, types and order of the columns."""
        number = pa.float32() if self.dtype == "float32" else pa.float64()
        fields = []
        if self.has_id:
            fields.append(pa.field("id", pa.string()))
        if self.kind == "ltr":
            fields.append(pa.field("qid", pa.string(), nullable=False))
        if self.has_y:
            fields.append(pa.field("y", pa.int32(), nullable=False))
        if self.has_comment:
            fields.append(pa.field("comment", pa.string()))
        fields += [pa.field(f"x:{name}", number, nullable=False) for name in self.features]
        fields += [pa.field(f"tag:{name}", pa.uint8(), nullable=False) for name in self.tags]
        return pa.schema(fields)


@dataclass(frozen=True)
class Rows:
    """A block of consecutive rows, as a reader yields them and the writer takes them.

    Fields follow the columns of the layout: ``X`` (b, d), ``y`` (b,), ``qid``, ``ids`` and ``comment``
    as sequences of b strings (numpy or Arrow; None where a row has no id or comment), ``Y`` (b, tags)
    with values 0 and 1.
    """

    X: NDArray[Any] | None = None
    y: NDArray[Any] | None = None
    qid: Any = None
    ids: Any = None
    comment: Any = None
    Y: NDArray[np.uint8] | None = None

    def __len__(self) -> int:
        for values in (self.X, self.Y, self.y, self.qid, self.ids):
            if values is not None:
                return len(values)
        return 0


@dataclass
class RawTable:
    """What every reader returns: a layout, and rows that are read while they are consumed.

    ``findings`` is the reader's report (missing values replaced, hints, counts); it is complete once
    ``blocks`` is exhausted, and becomes part of the file's provenance.
    """

    layout: Layout
    blocks: Iterable[Rows]
    findings: dict[str, Any] = field(default_factory=dict)


@dataclass
class Summary:
    """Counts taken while rows pass by; compared with what the catalogue declares."""

    rows: int = 0
    features: int = 0
    tags: int = 0
    queries: int = 0
    labels: Counter[int] = field(default_factory=Counter)
    minimum: float | None = None
    maximum: float | None = None
    nonzeros: int = 0
    tag_entries: int = 0
    _last_query: str | None = field(default=None, repr=False)

    def add(self, rows: Rows) -> None:
        """Count one block."""
        n = len(rows)
        self.rows += n
        if n == 0:
            return
        if rows.X is not None and rows.X.size:
            low, high = float(rows.X.min()), float(rows.X.max())
            self.minimum = low if self.minimum is None else min(self.minimum, low)
            self.maximum = high if self.maximum is None else max(self.maximum, high)
            self.nonzeros += int(np.count_nonzero(rows.X))
        if rows.y is not None:
            values, counts = np.unique(rows.y, return_counts=True)
            self.labels.update(dict(zip(values.tolist(), counts.tolist(), strict=True)))
        if rows.qid is not None:
            qid = pl.Series(rows.qid)
            self.queries += int((qid != qid.shift()).sum()) + (qid[0] != self._last_query)
            self._last_query = qid[-1]
        if rows.Y is not None:
            self.tag_entries += int(np.count_nonzero(rows.Y))

    def as_dict(self) -> dict[str, Any]:
        """The counts that apply, as plain JSON values."""
        counts: dict[str, Any] = {"rows": self.rows, "features": self.features}
        if self.features:
            counts |= {"minimum": self.minimum, "maximum": self.maximum}
            counts["density"] = self.nonzeros / max(1, self.rows * self.features)
        if self.queries:
            counts["queries"] = self.queries
        if self.labels:
            counts["labels"] = {str(label): self.labels[label] for label in sorted(self.labels)}
        if self.tags:
            counts |= {"tags": self.tags, "tag_entries": self.tag_entries}
        return counts
