"""From a representation of the images to clusters: k-means, best of many starts."""

from __future__ import annotations

import warnings
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClusterMixin, clone
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning

from pipeline_lib.clustering.coder import check_number
from pipeline_lib.errors import InputError
from pipeline_lib.graphs.neighbors import as_points
from pipeline_lib.seeds import RandomState, as_generator


def codes_to_labels(
    codes: ArrayLike,
    n_clusters: int,
    *,
    n_init: int = 50,
    random_state: RandomState = None,
) -> NDArray[np.int64]:
    """Cluster the rows of a representation by k-means.

    min over centres c_1..c_K of  sum_i min_k ||h_i - c_k||^2, the best of `n_init` k-means++ starts.

    Parameters
    ----------
    codes : array-like of shape (n, m)
    n_clusters : int
        1 to n. With fewer distinct rows than clusters, some clusters stay empty.
    n_init : int, default=50
        The papers' number of restarts.
    random_state : int, Generator, RandomState or None

    Returns
    -------
    ndarray of int64, shape (n,)
        Clusters 0 to n_clusters - 1.

    Raises
    ------
    InputError
        If codes is not a finite matrix or a number is out of range.
    """
    points = as_points(codes, what="codes")
    check_number("n_clusters", n_clusters, least=1, whole=True)
    check_number("n_init", n_init, least=1, whole=True)
    if n_clusters > len(points):
        raise InputError(
            f"n_clusters is {n_clusters} for {len(points)} rows", expected=f"1 to {len(points)}"
        )
    seed = int(as_generator(random_state).integers(2**31))
    with warnings.catch_warnings():
        # Fewer distinct rows than clusters: the labels say so themselves.
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = KMeans(n_clusters, n_init=n_init, random_state=seed).fit(points)
    return model.labels_.astype(np.int64)


class RepresentationClustering(ClusterMixin, BaseEstimator):
    """Represent the rows, then cluster them by k-means.

    Every method of this folder is compared in this form: plain k-means has no representation, PCA and
    spectral clustering have `PCA` and `SpectralEmbedding`, the coding methods their codes.

    Parameters
    ----------
    representation : estimator with ``fit_transform``, optional
        For example `GraphSCAN`. Default: the rows as they are.
    n_clusters : int, default=10
    n_init : int, default=50
        k-means restarts, the one with the best objective is kept.
    random_state : int, Generator, RandomState or None
        Of k-means; the representation has its own.

    Attributes
    ----------
    labels_ : ndarray of int64, shape (n,)
    representation_ : fitted estimator or None
    embedding_ : ndarray of shape (n, m)
        What was clustered.
    """

    def __init__(
        self,
        representation: Any = None,
        n_clusters: int = 10,
        n_init: int = 50,
        random_state: RandomState = None,
    ) -> None:
        self.representation = representation
        self.n_clusters = n_clusters
        self.n_init = n_init
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: object = None) -> Self:
        """Represent and cluster X, shape (n, d)."""
        rows = as_points(X)
        if self.representation is None:
            self.representation_, self.embedding_ = None, rows
        else:
            self.representation_ = clone(self.representation)
            self.embedding_ = self.representation_.fit_transform(rows)
        self.labels_ = codes_to_labels(
            self.embedding_, self.n_clusters, n_init=self.n_init, random_state=self.random_state
        )
        return self
