"""The typed container in which every dataset reaches a method."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline_lib.errors import InputError


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

    def ranking(self) -> tuple[NDArray[Any], NDArray[Any], NDArray[np.int64]]:
        """Features, relevance labels and queries.

        Raises
        ------
        InputError
            If the part has not all three; likewise below.
        """
        if self.X is None or self.y is None or self.qid is None:
            raise self._lacks("features, relevance labels and queries")
        return self.X, self.y, self.qid

    def features(self) -> NDArray[Any]:
        """The feature matrix."""
        if self.X is None:
            raise self._lacks("features")
        return self.X

    def labelled(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """Features and class labels."""
        if self.X is None or self.y is None:
            raise self._lacks("features and class labels")
        return self.X, self.y

    def tag_matrix(self) -> NDArray[np.uint8]:
        """The binary tag matrix."""
        if self.Y is None:
            raise self._lacks("tags")
        return self.Y

    def _lacks(self, what: str) -> InputError:
        return InputError(
            f"{self.name} {self.part} does not have {what}", remedy="choose another part or dataset"
        )
