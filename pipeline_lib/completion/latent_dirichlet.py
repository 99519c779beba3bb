"""LDA: latent Dirichlet allocation as a completion method."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.decomposition import LatentDirichletAllocation

from pipeline_lib.completion.base import TagCompleter, check_count
from pipeline_lib.seeds import RandomState, as_generator


class LatentDirichlet(TagCompleter):
    """Score tags by their probability under a topic model of the observed tags (LDA).

    q_ij = sum_z P(z | i) P(j | z), with the topics P(. | z) and the mixtures P(. | i) inferred by
    variational Bayes (scikit-learn's `LatentDirichletAllocation`). D may hold counts.

    Parameters
    ----------
    n_components : int, default=50
        Number of topics.
    max_iter : int, default=20
        Passes over the images.
    random_state : int, Generator or None, default=None

    Attributes
    ----------
    scores_ : ndarray of shape (n, m)
        Rows are probabilities.

    References
    ----------
    Blei, Ng and Jordan, Latent Dirichlet allocation, 2003; Feng, thesis, section 4.7.3.1.
    """

    takes_counts = True

    def __init__(
        self, n_components: int = 50, max_iter: int = 20, random_state: RandomState = None
    ) -> None:
        self.n_components = n_components
        self.max_iter = max_iter
        self.random_state = random_state

    def _complete(
        self,
        D: sparse.csr_array,
        X: NDArray[np.float64] | None,
        laplacian: sparse.csr_array | None,
    ) -> NDArray[np.float64]:
        seed = int(as_generator(self.random_state).integers(2**31))
        model = LatentDirichletAllocation(
            n_components=check_count("n_components", self.n_components),
            max_iter=check_count("max_iter", self.max_iter),
            learning_method="batch",
            random_state=seed,
        )
        # scikit-learn takes the older sparse matrix class.
        mixtures = model.fit_transform(sparse.csr_matrix(D))
        topics = model.components_ / model.components_.sum(axis=1, keepdims=True)
        return np.asarray(mixtures @ topics)
