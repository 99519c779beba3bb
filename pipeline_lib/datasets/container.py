"""The typed container in which every dataset reaches a method."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Dataset:
    """One part of a dataset, with the fields that apply to its problem kind.

    Attributes
    ----------
    name, part : str
        Catalogue name and part, for example ``mq2008`` and ``fold1/train``.
    X : ndarray of shape (n, d), float32 or float64, or None
        Features.
    y : ndarray of shape (n,), or None
        Relevance or class labels.
    qid : ndarray of shape (n,), int64 codes, or None
        Query of each row; rows of a query are contiguous.
    Y : ndarray of shape (n, tags), uint8, or None
        Binary tag matrix.
    tags : tuple of str
        Names of the columns of ``Y``.
    ids : ndarray of shape (n,) of str, or None
        Identifier of each row (document or image).
    info : mapping
        Provenance: source files, checksums, what a reader found and kept.
    """

    name: str
    part: str
    X: NDArray[Any] | None = None
    y: NDArray[Any] | None = None
    qid: NDArray[np.int64] | None = None
    Y: NDArray[np.uint8] | None = None
    tags: tuple[str, ...] = ()
    ids: NDArray[Any] | None = None
    info: Mapping[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        for values in (self.X, self.y, self.Y, self.ids):
            if values is not None:
                return len(values)
        return 0
