"""Freq: the most frequent tags, for every image the same."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from pipeline_lib.completion.base import TagCompleter


class Frequency(TagCompleter):
    """Score tags by how often they are observed (Freq).

    q_ij = (1 / n) sum_a d_aj, the share of images tagged j.

    Attributes
    ----------
    scores_ : ndarray of shape (n, m)

    References
    ----------
    Feng, thesis, section 4.7.3.1.
    """

    def _complete(
        self,
        D: sparse.csr_array,
        X: NDArray[np.float64] | None,
        laplacian: sparse.csr_array | None,
    ) -> NDArray[np.float64]:
        share = np.asarray(D.sum(axis=0)).ravel() / D.shape[0]
        return np.tile(share, (D.shape[0], 1))
