"""2PKNN: two-pass nearest neighbours, balanced over tags."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from pipeline_lib.annotation.base import Annotator
from pipeline_lib.annotation.distances import JointDistance
from pipeline_lib.annotation.voting import check_neighbors
from pipeline_lib.errors import InputError

Array = NDArray[np.float64]


class TwoPassKNN(Annotator):
    """Choose the nearest images of every tag first, then weigh the chosen ones by distance.

    Pass 1 takes, for each tag, the ``n_neighbors`` nearest training images that have it; their
    union T(x) holds every tag, rare ones too. Pass 2 scores

        P(x | w) proportional to sum_{j in T(x)} exp(-bandwidth D(x, x_j)) y_jw.

    Parameters
    ----------
    n_neighbors : int, default 5
        Images a tag, K_1.
    bandwidth : float, default 10
        Decay with the joint distance, whose base distances lie in [0, 1].
    distances : str or sequence of str, default "euclidean"
        As in `pipeline_lib.annotation.distances.JointDistance`.
    groups : sequence of int, optional
        Widths of the feature groups.

    Attributes
    ----------
    training_ : ndarray of shape (n, d)
    scales_ : ndarray of shape (n_groups,)
    tags_ : csr_array of shape (n, m)

    Notes
    -----
    The metric learning of the paper's 2PKNN+ML is not part of this model.

    References
    ----------
    Y. Verma, C. Jawahar, "Image annotation using metric learning in semantic neighbourhoods", ECCV
    2012.
    """

    _state_names = ("training_", "scales_", "tags_")

    def __init__(
        self,
        n_neighbors: int = 5,
        bandwidth: float = 10.0,
        distances: str | Sequence[str] = "euclidean",
        groups: Sequence[int] | None = None,
    ) -> None:
        self.n_neighbors = n_neighbors
        self.bandwidth = bandwidth
        self.distances = distances
        self.groups = groups

    def fit(self, X: ArrayLike, Y: Any) -> Self:
        """Keep the images and their tags, and find the scale of every base distance."""
        check_neighbors(self.n_neighbors, 1)
        if not (np.isfinite(self.bandwidth) and self.bandwidth >= 0):
            raise InputError(f"bandwidth is {self.bandwidth!r}", expected="a number >= 0")
        rows, self.tags_ = self._check_fit(X, Y)
        self.training_ = rows.copy()
        self.scales_ = JointDistance(rows, self.distances, self.groups).scales
        return self

    def predict(self, X: ArrayLike) -> Array:
        """Scores (n, m) of every tag."""
        rows = self._check_predict(X)
        joint = JointDistance(self.training_, self.distances, self.groups, self.scales_)
        by_tag = sparse.csc_array(self.tags_)
        scores = np.empty((len(rows), self.n_tags_))
        for block, stack in joint.blocks(rows):
            D = stack.mean(axis=0)
            chosen = np.zeros(D.shape, dtype=bool)
            for start, stop in zip(by_tag.indptr[:-1], by_tag.indptr[1:], strict=True):
                members = by_tag.indices[start:stop]
                if len(members) > self.n_neighbors:
                    near = np.argpartition(D[:, members], self.n_neighbors - 1, axis=1)
                    np.put_along_axis(chosen, members[near[:, : self.n_neighbors]], True, axis=1)
                else:
                    chosen[:, members] = True
            weights = np.where(chosen, np.exp(-self.bandwidth * D), 0.0)
            scores[block] = (self.tags_.T @ weights.T).T
        return scores
