"""Nystroem approximation of a kernel, with its rank reported.

Given landmarks x_1..x_m, their kernel matrix K_mm = V L V' and k_m(x) = [k(x, x_1), .., k(x, x_m)], the
map

    psi(x) = L_r^{-1/2} V_r' k_m(x)

keeps the r eigenpairs whose eigenvalue exceeds ``cutoff`` times the largest, at most ``rank`` of them.
Then psi(x)'psi(y) = k_m(x)' [K_mm]_r^+ k_m(y), which is the kernel itself when every row is a
landmark and nothing is cut.

psi is determined up to a rotation, which changes no inner product and no linear model. The Cholesky form

    psi(x) = L_pp^{-1} k_p(x)

uses that freedom: p are the landmarks that a pivoted Cholesky factorisation of K_mm takes before every
residual diagonal entry is below ``cutoff`` times the largest diagonal entry of K_mm. It needs no
eigenvectors and evaluates the kernel on the r landmarks p only, so a small error costs far less time;
its r is larger than the eigenvalue form's for equal error.

Landmarks are rows drawn uniformly without replacement, or the centres of a k-means clustering started
from such rows ("improved Nystroem").

References
----------
Williams and Seeger, Using the Nystroem method to speed up kernel machines, NIPS 2000.
Zhang and Kwok, Clustered Nystroem method, IEEE Trans. Neural Networks 2010 (k-means landmarks).
Chen, Li, Chen, Liao, Ranking support vector machine with kernel approximation, 2017, Algorithm 1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import linalg
from sklearn.cluster import KMeans

from pipeline_lib.errors import InputError
from pipeline_lib.kernels.feature_map import FeatureMap
from pipeline_lib.kernels.functions import (
    Array,
    as_rows,
    check_kernel,
    kernel_evaluator,
    kernel_matrix,
)
from pipeline_lib.kernels.sampling import sample_rows
from pipeline_lib.kernels.spectral import pivoted_cholesky, truncated_eigh
from pipeline_lib.seeds import RandomState, as_generator

_KMEANS_ITERATIONS = 10
_KMEANS_ROWS_PER_CENTRE = 20


class Nystroem(FeatureMap):
    """Explicit feature map of a kernel from m landmarks (formulas at the top of the module).

    Parameters
    ----------
    n_components : int
        Number m of landmarks; all rows when there are fewer.
    gamma : float
        Parameter of the kernel; ignored by kernels without one.
    kernel : str, default "rbf"
        One of `pipeline_lib.kernels.functions.KERNELS`.
    rank : int, optional
        Keep at most this many dimensions (the rank-k form).
    cutoff : float, default 1e-6
        Eigenvalues of K_mm below ``cutoff`` times the largest are dropped (eigenvalue form), or the
        residual allowed, relative to the largest diagonal entry (Cholesky form).
    landmarks : {"uniform", "kmeans"}, default "uniform"
        Rows drawn uniformly without replacement, or k-means centres (10 Lloyd steps, on at most 20
        rows a centre).
    factorization : {"eigh", "cholesky"}, default "eigh"
        Eigenvalue or Cholesky form of the map.
    coef0, degree
        Parameters of the skewed chi-square and polynomial kernels.
    random_state : int, Generator, RandomState or None
        For the draw of landmarks. The draw depends on the seed and on which rows there are, not on
        their order.

    Attributes
    ----------
    landmarks_ : ndarray of shape (m, d), or (r, d) in the Cholesky form
    projection_ : ndarray of shape (m, r) or (r, r)
        V_r L_r^{-1/2}, or the transpose of L_pp^{-1}.
    eigenvalues_ : ndarray of shape (r,)
        The kept eigenvalues of K_mm, or the pivots, decreasing.
    effective_rank_ : int
        Dimension r of the map: eigenvalues or pivots above the cut-off, at most ``rank``.

    Raises
    ------
    InputError
        In `fit`, for parameters or rows that cannot be used, and for an indefinite K_mm.
    """

    landmarks_: Array
    projection_: Array
    eigenvalues_: Array
    effective_rank_: int

    _state_names: ClassVar[tuple[str, ...]] = (
        "landmarks_",
        "projection_",
        "eigenvalues_",
        "effective_rank_",
        "n_features_in_",
        "n_features_out_",
    )

    def __init__(
        self,
        n_components: int,
        gamma: float = 1.0,
        kernel: str = "rbf",
        rank: int | None = None,
        cutoff: float = 1e-6,
        landmarks: str = "uniform",
        *,
        factorization: str = "eigh",
        coef0: float = 1.0,
        degree: int = 3,
        random_state: RandomState = None,
    ) -> None:
        self.n_components = n_components
        self.gamma = gamma
        self.kernel = kernel
        self.rank = rank
        self.cutoff = cutoff
        self.landmarks = landmarks
        self.factorization = factorization
        self.coef0 = coef0
        self.degree = degree
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: object = None) -> Self:
        """Choose landmarks among the rows of ``X`` (n, d) and factor their kernel matrix."""
        if self.n_components < 1:
            raise InputError(f"n_components is {self.n_components}", expected="at least 1")
        if self.landmarks not in ("uniform", "kmeans"):
            raise InputError(f"landmarks is {self.landmarks!r}", expected="'uniform' or 'kmeans'")
        if self.factorization not in ("eigh", "cholesky"):
            raise InputError(
                f"factorization is {self.factorization!r}", expected="'eigh' or 'cholesky'"
            )
        check_kernel(self.kernel, self.gamma, self.coef0, self.degree)
        rows = as_rows(X)
        rng = as_generator(self.random_state)
        if self.landmarks == "uniform":
            chosen = rows[sample_rows(rows, self.n_components, rng)]
        else:
            chosen = _kmeans_centres(rows, self.n_components, rng)
        K = kernel_matrix(
            chosen, None, self.kernel, self.gamma, coef0=self.coef0, degree=self.degree
        )
        if self.factorization == "eigh":
            values, vectors, _ = truncated_eigh(K, self.rank, self.cutoff)
            projection = vectors / np.sqrt(values)
        else:
            values, pivots, projection = _whitening_cholesky(K, self.rank, self.cutoff)
            chosen = chosen[pivots]
        if len(values) == 0:
            raise InputError(
                f"the {self.kernel} kernel vanishes on all landmarks", remedy="check the features"
            )
        self.landmarks_ = chosen
        self.eigenvalues_ = values
        self.projection_ = projection
        self.effective_rank_ = len(values)
        self.n_features_in_ = rows.shape[1]
        self.n_features_out_ = len(values)
        return self

    def exact_kernel(self, X: ArrayLike) -> Array:
        """The kernel matrix (n, n) of rows ``X`` (n, d), which the map approximates."""
        return kernel_matrix(X, None, self.kernel, self.gamma, coef0=self.coef0, degree=self.degree)

    def _bytes_per_row(self) -> int:
        return 8 * len(self.landmarks_)

    def _row_transformer(self) -> Callable[[Array], Array]:
        evaluate = kernel_evaluator(
            self.landmarks_, self.kernel, self.gamma, coef0=self.coef0, degree=self.degree
        )
        projection = self.projection_
        if self.factorization == "eigh":
            return lambda rows: evaluate(rows) @ projection

        def transform(rows: Array) -> Array:
            # The projection is upper triangular: each panel of columns needs the first rows only.
            K = evaluate(rows)
            Z = np.empty_like(K)
            width = max(64, -(-K.shape[1] // 8))
            for start in range(0, K.shape[1], width):
                stop = start + width
                np.matmul(K[:, :stop], projection[:stop, start:stop], out=Z[:, start:stop])
            return Z

        return transform


def _whitening_cholesky(
    K: Array, rank: int | None, cutoff: float
) -> tuple[Array, NDArray[np.intp], Array]:
    """Pivots and their landmarks, and the transpose of L_pp^{-1}."""
    if rank is not None and rank < 1:
        raise InputError(f"rank is {rank}", expected="at least 1")
    if not 0 <= cutoff < 1:
        raise InputError(f"cutoff is {cutoff}", expected="a number in [0, 1)")
    tol = max(cutoff, len(K) * np.finfo(float).eps) * float(np.diagonal(K).max())
    if tol <= 0:
        return np.empty(0), np.empty(0, np.intp), np.empty((0, 0))
    factor, pivots = pivoted_cholesky(K, tol)
    # The residual of a positive semidefinite matrix has its largest entry on the diagonal, and it
    # vanishes in the rows and columns of the pivots.
    left = np.setdiff1d(np.arange(len(K)), pivots)
    residual = K[np.ix_(left, left)] - factor[left] @ factor[left].T
    if len(left) and max(residual.max(), -residual.min()) > 10.0 * tol:
        raise InputError("the kernel matrix is indefinite", expected="a positive definite kernel")
    pivots = pivots[:rank]
    triangle = factor[pivots, : len(pivots)]
    inverse = linalg.solve_triangular(triangle, np.eye(len(pivots)), lower=True)
    return np.diagonal(triangle) ** 2, pivots, inverse.T


def _kmeans_centres(rows: Array, n_centres: int, rng: np.random.Generator) -> Array:
    n_centres = min(n_centres, len(rows))
    order = sample_rows(rows, max(_KMEANS_ROWS_PER_CENTRE * n_centres, 10_000), rng)
    # Copies of a row among the starting centres would make empty clusters.
    start = np.unique(rows[order[:n_centres]], axis=0)
    clustering = KMeans(len(start), init=start, n_init=1, max_iter=_KMEANS_ITERATIONS)
    return np.asarray(clustering.fit(rows[order]).cluster_centers_)
