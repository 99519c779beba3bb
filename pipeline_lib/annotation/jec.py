"""JEC: label transfer from the nearest images under the joint equal contribution of features."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pipeline_lib.annotation.base import Annotator
from pipeline_lib.annotation.distances import JointDistance
from pipeline_lib.annotation.voting import check_neighbors, propagate

Array = NDArray[np.float64]


class JEC(Annotator):
    """Transfer the tags of the nearest image first, then those of the next ones.

    Neighbours are ordered by the mean of the scaled base distances. Tags of the nearest image come
    first, by their frequency in the training set. The remaining places go to tags of neighbours
    2..k by the product of (a) their co-occurrence in training with the tags already transferred and
    (b) their frequency among neighbours 2..k, each as a share of its largest value. Tags found in
    neither come last, by training frequency.

    Parameters
    ----------
    n_neighbors : int, default 5
    distances : str or sequence of str, default "l1"
        As in `pipeline_lib.annotation.distances.JointDistance`.
    groups : sequence of int, optional
        Widths of the feature groups.

    Attributes
    ----------
    training_ : ndarray of shape (n, d)
    scales_ : ndarray of shape (n_groups,)
    tags_ : csr_array of shape (n, m)

    References
    ----------
    A. Makadia, V. Pavlovic, S. Kumar, "A new baseline for image annotation", ECCV 2008.
    """

    _state_names = ("training_", "scales_", "tags_")

    def __init__(
        self,
        n_neighbors: int = 5,
        distances: str | Sequence[str] = "l1",
        groups: Sequence[int] | None = None,
    ) -> None:
        self.n_neighbors = n_neighbors
        self.distances = distances
        self.groups = groups

    def fit(self, X: ArrayLike, Y: Any) -> Self:
        """Keep the images and their tags, and find the scale of every base distance."""
        check_neighbors(self.n_neighbors, 1)
        rows, self.tags_ = self._check_fit(X, Y)
        self.training_ = rows.copy()
        self.scales_ = JointDistance(rows, self.distances, self.groups).scales
        return self

    def predict(self, X: ArrayLike) -> Array:
        """Scores (n, m): above 3 for tags of the nearest image, 1 to 2 for the next, else below 1."""
        rows = self._check_predict(X)
        joint = JointDistance(self.training_, self.distances, self.groups, self.scales_)
        found = joint.neighbors(rows, self.n_neighbors).indices
        first = self.tags_[found[:, 0]].toarray()
        local = propagate(found[:, 1:], np.ones(found[:, 1:].shape), self.tags_)
        together = (self.tags_.T @ self.tags_).toarray()
        np.fill_diagonal(together, 0.0)
        frequency = np.asarray(self.tags_.mean(axis=0)).ravel()
        common = 0.99 * frequency / frequency.max()
        following = _share(_share(first @ together) * _share(local))
        # The local share only orders tags of equal product, such as those that never met the
        # transferred ones.
        scores = np.where(local > 0, 1.0 + following + 1e-6 * _share(local), common)
        return np.where(first > 0, 3.0 + common, scores)


def _share(values: Array) -> Array:
    """Rows divided by their largest entry; rows of zeros stay zero."""
    largest = values.max(axis=1, keepdims=True)
    return values / np.where(largest > 0, largest, 1.0)
