"""tRel: tag relevance by neighbour voting, minus the vote expected by chance."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pipeline_lib.annotation.base import Annotator
from pipeline_lib.annotation.voting import (
    DISTANCES,
    check_choice,
    check_neighbors,
    nearest_neighbors,
    propagate,
)

Array = NDArray[np.float64]


class TagRelevance(Annotator):
    """Votes of the k visual neighbours for a tag, minus its prior share of k images.

        relevance(w, x) = |{j in N_k(x) : y_jw = 1}| - k |{j : y_jw = 1}| / n

    Frequent tags are among any k images; what counts is how much more often than that.

    Parameters
    ----------
    n_neighbors : int, default 200
    distance : {"euclidean", "cosine", "inner"}, default "euclidean"

    Attributes
    ----------
    training_ : ndarray of shape (n, d)
    tags_ : csr_array of shape (n, m)

    References
    ----------
    X. Li, C. Snoek, M. Worring, "Learning social tag relevance by neighbor voting", IEEE
    Transactions on Multimedia 11, 2009.
    """

    _state_names = ("training_", "tags_")

    def __init__(self, n_neighbors: int = 200, distance: str = "euclidean") -> None:
        self.n_neighbors = n_neighbors
        self.distance = distance

    def fit(self, X: ArrayLike, Y: Any) -> Self:
        """Keep the images and their tags."""
        check_choice(self.distance, DISTANCES, "distance")
        check_neighbors(self.n_neighbors, 1)
        rows, self.tags_ = self._check_fit(X, Y)
        self.training_ = rows.copy()
        return self

    def predict(self, X: ArrayLike) -> Array:
        """Relevance (n, m); negative where a tag is rarer among the neighbours than overall."""
        rows = self._check_predict(X)
        found = nearest_neighbors(rows, self.training_, self.n_neighbors, self.distance).indices
        votes = propagate(found, np.ones(found.shape), self.tags_)
        return votes - found.shape[1] * np.asarray(self.tags_.mean(axis=0)).ravel()
