"""Kernel principal component analysis as an (unsupervised) metric learner."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pipeline_lib.errors import InputError
from pipeline_lib.kernels.block_lanczos import leading_eigenpairs
from pipeline_lib.kernels.functions import iter_kernel_blocks, kernel_matrix
from pipeline_lib.metric_learning.base import MetricLearner, check_at_least_one

Array = NDArray[np.float64]


class KernelPCA(MetricLearner):
    """Distance in the leading principal components of the kernel's feature space.

    With the centred kernel matrix Kc = H K H (H = I - 11'/n) and its leading eigenpairs (l_i, v_i),
    row x has the coordinates <phi(x) - mean, v_i> = kc(x)' v_i / sqrt(l_i).

    Parameters
    ----------
    n_components : int, default 50
    kernel : str, default "rbf"
        One of `pipeline_lib.kernels.functions.KERNELS`.
    gamma : float, optional
        Width of the kernel; by default 1 over the mean squared distance between rows, so that
        results do not depend on the units of X.

    Attributes
    ----------
    training_ : ndarray of shape (n, d)
        Rows the kernel is evaluated against.
    components_ : ndarray of shape (k, n)
        Coefficients of the components on the training rows.
    offset_ : ndarray of shape (k,)
        Subtracted from the products of kernel values and coefficients (the centring).
    gamma_ : float
    eigenvalues_ : ndarray of shape (k,)

    Notes
    -----
    There is no matrix in the input space, so no ``metric_``. ``Y`` and constraints are not used.

    References
    ----------
    B. Schoelkopf, A. Smola, K.-R. Mueller, "Nonlinear component analysis as a kernel eigenvalue
    problem", Neural Computation 10, 1998.
    """

    supervised = False
    _state_names = ("training_", "components_", "offset_", "gamma_")

    def __init__(
        self, n_components: int = 50, kernel: str = "rbf", gamma: float | None = None
    ) -> None:
        self.n_components = n_components
        self.kernel = kernel
        self.gamma = gamma

    def _fit(self, X: Array, constraints: Any) -> None:
        check_at_least_one(self.n_components, "n_components")
        # The mean of ||x - y||^2 over all pairs is twice the total variance.
        spread = 2.0 * float(X.var(axis=0).sum())
        self.gamma_ = float(self.gamma if self.gamma is not None else 1.0 / (spread or 1.0))
        K = kernel_matrix(X, None, self.kernel, self.gamma_)
        column_means = K.mean(axis=0)
        K -= column_means
        K -= column_means[:, None] - column_means.mean()
        values, vectors = leading_eigenpairs(K, min(self.n_components, len(X)))
        if len(values) == 0:
            raise InputError("all rows are identical", expected="rows that differ")
        at = np.abs(vectors).argmax(axis=0)
        vectors = vectors * np.sign(vectors[at, np.arange(len(values))])
        self.training_ = X.copy()
        self.eigenvalues_ = values.copy()
        # Eigenvectors of Kc sum to 0, so only the mean over the training columns remains to be
        # subtracted from k(x)'v: it is the same for every x.
        self.components_ = (vectors / np.sqrt(values)).T
        self.offset_ = self.components_ @ column_means

    def transform(self, X: ArrayLike) -> Array:
        """Coordinates (n, k) of rows in the leading components."""
        rows = self._check_transform(X)
        result = np.empty((len(rows), len(self.components_)))
        blocks = iter_kernel_blocks(rows, self.training_, self.kernel, self.gamma_)
        for block, K in blocks:
            result[block] = K @ self.components_.T - self.offset_
        return result
