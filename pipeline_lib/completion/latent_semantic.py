"""LSA: latent semantic analysis, the best low-rank approximation of the observed tags."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, sparse

from pipeline_lib.completion.base import TagCompleter, check_count


class LatentSemanticAnalysis(TagCompleter):
    """Project the observed tags on their leading right singular vectors (LSA).

    Q = D V V' minimises ||D - Q||_F over matrices of rank at most r; the columns of V (m x r) are
    the leading eigenvectors of D'D.

    Parameters
    ----------
    n_components : int, default=50
        r, cut to the size of the vocabulary.

    Attributes
    ----------
    scores_ : ndarray of shape (n, m)
        Q.

    References
    ----------
    Deerwester et al., Indexing by latent semantic analysis, 1990; Feng, thesis, section 4.7.3.1.
    """

    def __init__(self, n_components: int = 50) -> None:
        self.n_components = n_components

    def _complete(
        self,
        D: sparse.csr_array,
        X: NDArray[np.float64] | None,
        laplacian: sparse.csr_array | None,
    ) -> NDArray[np.float64]:
        m = D.shape[1]
        rank = check_count("n_components", self.n_components, most=m)
        _, V = linalg.eigh((D.T @ D).toarray(), subset_by_index=(m - rank, m - 1))
        return np.asarray(D @ (V @ V.T))
