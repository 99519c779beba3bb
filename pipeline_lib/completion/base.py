"""What every tag completion method shares: the call, and the checks of its input.

The problem: of a binary tag matrix (n images x m tags) only part of the ones is observed. From the
observed matrix D, and possibly from visual features X of the images, give every image-tag pair a
score by which the unobserved tags of an image are ranked.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator

from pipeline_lib.errors import InputError

Array = NDArray[np.float64]
VisualInput = Literal["none", "features", "graph"]


class TagCompleter(BaseEstimator):
    """Base of the tag completion methods: ``fit(D)`` sets ``scores_``.

    Attributes
    ----------
    scores_ : ndarray of shape (n, m)
        Larger is more likely; compare scores within a row.
    """

    takes_counts: ClassVar[bool] = False
    """Whether D may say how often a tag was drawn, instead of 0 and 1 only."""

    scores_: Array

    @property
    def visual_input(self) -> VisualInput:
        """What ``fit`` needs beside D: nothing, the features X, or X or a Laplacian."""
        return "none"

    def fit(self, D: Any, X: Any = None, laplacian: Any = None) -> Self:
        """Score every tag of every image.

        Parameters
        ----------
        D : array or sparse matrix of shape (n, m)
            Observed tags, binary (whole counts for a method that ``takes_counts``).
        X : array of shape (n, d), optional
            Visual features; methods without a visual term do not look at them.
        laplacian : array or sparse matrix of shape (n, n), optional
            Laplacian of a graph over the images, for methods with a graph term.

        Returns
        -------
        self

        Raises
        ------
        InputError
            If D is not a binary matrix with at least one observed tag, if another input is missing
            or does not fit it, or if a parameter is out of range.
        """
        tags = check_tags(D, counts=self.takes_counts)
        if X is not None:
            X = check_features(X, tags.shape[0])
        if laplacian is not None:
            laplacian = check_laplacian(laplacian, tags.shape[0])
        self.scores_ = self._complete(tags, X, laplacian)
        return self

    @abstractmethod
    def _complete(
        self, D: sparse.csr_array, X: Array | None, laplacian: sparse.csr_array | None
    ) -> Array:
        """Return the (n, m) scores for checked input."""


def check_tags(D: Any, *, counts: bool = False) -> sparse.csr_array:
    """Return D as a float64 CSR matrix of ones (or of counts), or raise `InputError`."""
    given: Any = D
    allowed = "whole numbers, not negative" if counts else "only 0 and 1"
    if sparse.issparse(D):
        tags = sparse.csr_array(given, dtype=np.float64, copy=True)
        if not np.isfinite(tags.data).all():
            raise InputError("the tag matrix D holds NaN or infinity", expected=allowed)
        tags.sum_duplicates()
        tags.eliminate_zeros()
    else:
        dense = np.asarray(given)
        if dense.dtype.kind not in "biuf":
            raise InputError("the tag matrix D is not numeric", expected="a binary matrix")
        if dense.ndim != 2:
            raise InputError(f"the tag matrix D has {dense.ndim} axes", expected="images x tags")
        if not np.isfinite(dense).all():
            raise InputError("the tag matrix D holds NaN or infinity", expected=allowed)
        tags = sparse.csr_array(dense, dtype=np.float64)
    if 0 in tags.shape:
        raise InputError(f"the tag matrix D has shape {tags.shape}", expected="images and tags")
    regular = (tags.data > 0) & (tags.data == np.floor(tags.data)) if counts else tags.data == 1.0
    if not regular.all():
        strange = tags.data[~regular][0]
        raise InputError(f"the tag matrix D holds {strange:g}", expected=allowed)
    if tags.nnz == 0:
        raise InputError("the tag matrix D has no observed tag", expected="at least one 1")
    tags.sort_indices()
    return tags


def check_features(X: Any, n: int) -> Array:
    """Return X as a finite float64 matrix of n rows, or raise `InputError`."""
    features = np.asarray(X, dtype=np.float64)
    if features.ndim != 2 or features.shape[0] != n or features.shape[1] == 0:
        raise InputError(f"the features X have shape {features.shape}", expected=f"({n}, d)")
    if not np.isfinite(features).all():
        raise InputError("the features X hold NaN or infinity", expected="finite numbers")
    return features


def check_laplacian(laplacian: Any, n: int) -> sparse.csr_array:
    """Return the Laplacian as a symmetric n x n CSR matrix, or raise `InputError`."""
    matrix = sparse.csr_array(laplacian, dtype=np.float64)
    if matrix.shape != (n, n):
        raise InputError(f"the Laplacian has shape {matrix.shape}", expected=f"({n}, {n})")
    if not np.isfinite(matrix.data).all():
        raise InputError("the Laplacian holds NaN or infinity", expected="finite numbers")
    scale = float(np.abs(matrix.data).max(initial=0.0))
    asymmetry = abs(matrix - matrix.T).max() if matrix.nnz else 0.0
    if asymmetry > 1e-8 * scale:
        raise InputError("the Laplacian is not symmetric", expected="diag(W 1) - W with W = W'")
    return matrix


def check_positive(name: str, value: float, *, zero: bool = False) -> float:
    """Return a finite number above zero (or at least zero), or raise `InputError`."""
    lowest = "at least 0" if zero else "above 0"
    if not np.isfinite(value) or value < 0 or (value == 0 and not zero):
        raise InputError(f"{name}={value!r}", expected=f"a finite number {lowest}")
    return float(value)


def check_count(name: str, value: int, *, most: int | None = None) -> int:
    """Return a whole number of at least 1 (cut to ``most``), or raise `InputError`."""
    if int(value) != value or value < 1:
        raise InputError(f"{name}={value!r}", expected="a whole number of at least 1")
    return int(value) if most is None else min(int(value), most)
