"""Pop: every image gets the most frequent tags."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pipeline_lib.annotation.base import Annotator

Array = NDArray[np.float64]


class Popularity(Annotator):
    """Rank tags by their share of the training images, whatever the image.

    Attributes
    ----------
    frequency_ : ndarray of shape (m,)
    """

    _state_names = ("frequency_",)

    def fit(self, X: ArrayLike, Y: Any) -> Self:
        """Count the tags."""
        _, tags = self._check_fit(X, Y)
        self.frequency_ = np.asarray(tags.mean(axis=0)).ravel()
        return self

    def predict(self, X: ArrayLike) -> Array:
        """The frequencies, once for every row."""
        rows = self._check_predict(X)
        return np.tile(self.frequency_, (len(rows), 1))
