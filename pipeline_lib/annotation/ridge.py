"""Ridge regression of the tags on a kernel, exact and on Nystroem features: strong simple company."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import linalg

from pipeline_lib.annotation.base import Annotator
from pipeline_lib.annotation.kernel_regression import evaluate
from pipeline_lib.errors import InputError
from pipeline_lib.kernels.functions import check_kernel, iter_kernel_blocks, kernel_matrix
from pipeline_lib.seeds import RandomState, as_generator

Array = NDArray[np.float64]


class KernelRidgeAnnotator(Annotator):
    """Least squares on the kernel of all training rows.

        F(x) = k(x)' (K + alpha I)^{-1} (Y - 1 y_mean') + y_mean

    Parameters
    ----------
    gamma : float
    alpha : float, default 1.0
    kernel : str, default "rbf"
        One of `pipeline_lib.kernels.functions.KERNELS`.

    Attributes
    ----------
    landmarks_ : ndarray of shape (n, d)
    coef_ : ndarray of shape (n, m)
    mean_ : ndarray of shape (m,)
    """

    _state_names = ("landmarks_", "coef_", "mean_")

    def __init__(self, gamma: float, alpha: float = 1.0, kernel: str = "rbf") -> None:
        self.gamma = gamma
        self.alpha = alpha
        self.kernel = kernel

    def fit(self, X: ArrayLike, Y: Any) -> Self:
        """Solve the n x n system once for all tags."""
        check_kernel(self.kernel, self.gamma)
        _check_alpha(self.alpha)
        rows, tags = self._check_fit(X, Y)
        self.landmarks_ = rows.copy()
        self.mean_ = np.asarray(tags.mean(axis=0)).ravel()
        K = kernel_matrix(rows, None, self.kernel, self.gamma)
        K[np.diag_indices_from(K)] += self.alpha
        self.coef_ = linalg.solve(
            K, tags.toarray() - self.mean_, assume_a="pos", overwrite_a=True, check_finite=False
        )
        return self

    def predict(self, X: ArrayLike) -> Array:
        """F(x) (n, m)."""
        rows = self._check_predict(X)
        scores = evaluate(rows, self.landmarks_, self.coef_, kernel=self.kernel, gamma=self.gamma)
        return scores + self.mean_


class NystroemRidge(Annotator):
    """Least squares on kernel evaluations against sampled landmarks, in the kernel's norm.

        min_B ||K_b B - (Y - 1 y_mean')||^2 + alpha tr(B' K_s B),

    the ridge regression of Nystroem features K_b K_s^{-1/2}, solved without forming them.

    Parameters
    ----------
    gamma : float
    n_components : int, default 1000
        Landmarks, drawn uniformly from the training rows.
    alpha : float, default 1.0
    kernel : str, default "rbf"
    random_state : int, Generator, RandomState or None

    Attributes
    ----------
    landmarks_ : ndarray of shape (n_components, d)
    coef_ : ndarray of shape (n_components, m)
    mean_ : ndarray of shape (m,)
    """

    _state_names = ("landmarks_", "coef_", "mean_")

    def __init__(
        self,
        gamma: float,
        n_components: int = 1000,
        alpha: float = 1.0,
        kernel: str = "rbf",
        random_state: RandomState = None,
    ) -> None:
        self.gamma = gamma
        self.n_components = n_components
        self.alpha = alpha
        self.kernel = kernel
        self.random_state = random_state

    def fit(self, X: ArrayLike, Y: Any) -> Self:
        """Accumulate the normal equations row block by row block and solve them for all tags."""
        check_kernel(self.kernel, self.gamma)
        _check_alpha(self.alpha)
        if self.n_components < 1:
            raise InputError(f"n_components is {self.n_components}", expected="at least 1")
        rows, tags = self._check_fit(X, Y)
        size = min(int(self.n_components), len(rows))
        drawn = as_generator(self.random_state).choice(len(rows), size=size, replace=False)
        self.landmarks_ = rows[np.sort(drawn)]
        self.mean_ = np.asarray(tags.mean(axis=0)).ravel()
        gram = np.zeros((size, size))
        moments = np.zeros((size, tags.shape[1]))
        for block, K in iter_kernel_blocks(rows, self.landmarks_, self.kernel, self.gamma):
            gram += K.T @ K
            moments += (tags[block].T @ K).T - np.outer(K.sum(axis=0), self.mean_)
        gram += self.alpha * kernel_matrix(self.landmarks_, None, self.kernel, self.gamma)
        # Repeated landmarks make the system singular; the smallest ridge that shows ends that.
        gram[np.diag_indices_from(gram)] += 1e-10 * np.trace(gram) / size
        self.coef_ = linalg.solve(
            gram, moments, assume_a="pos", overwrite_a=True, check_finite=False
        )
        return self

    def predict(self, X: ArrayLike) -> Array:
        """Scores (n, m)."""
        rows = self._check_predict(X)
        scores = evaluate(rows, self.landmarks_, self.coef_, kernel=self.kernel, gamma=self.gamma)
        return scores + self.mean_


def _check_alpha(alpha: float) -> None:
    if not (np.isfinite(alpha) and alpha > 0):
        raise InputError(f"alpha is {alpha!r}", expected="a positive number")
