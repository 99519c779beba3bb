"""Co-occurrence: tags that are seen together with the observed ones."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from pipeline_lib.completion.base import TagCompleter

Array = NDArray[np.float64]


class CoOccurrence(TagCompleter):
    """Sum over the observed tags o of the share of o's images that carry tag t.

    q_it = sum_{o observed on i} P(t | o),   P(t | o) = c_ot / c_oo,   C = D'D,   P(o | o) := 0.

    Attributes
    ----------
    scores_ : ndarray of shape (n, m)
    """

    def _complete(
        self, D: sparse.csr_array, X: Array | None, laplacian: sparse.csr_array | None
    ) -> Array:
        counts, frequency = tag_counts(D)
        return np.asarray(D @ (counts / np.maximum(frequency, 1.0)[:, None]))


class ItemCosine(TagCompleter):
    """Sum over the observed tags of their cosine with the tag in question (item cosine).

    q_it = sum_{o observed on i} c_ot / sqrt(c_oo c_tt),   C = D'D, without its diagonal.

    Attributes
    ----------
    scores_ : ndarray of shape (n, m)

    References
    ----------
    Sarwar et al., Item-based collaborative filtering recommendation algorithms, 2001.
    """

    def _complete(
        self, D: sparse.csr_array, X: Array | None, laplacian: sparse.csr_array | None
    ) -> Array:
        counts, frequency = tag_counts(D)
        length = np.sqrt(np.maximum(frequency, 1.0))
        return np.asarray(D @ (counts / np.outer(length, length)))


def tag_counts(D: sparse.csr_array) -> tuple[Array, Array]:
    """Return how often two tags are seen together (zero diagonal), and each tag's frequency."""
    counts = (D.T @ D).toarray()
    frequency = counts.diagonal().copy()
    np.fill_diagonal(counts, 0.0)
    return counts, frequency
