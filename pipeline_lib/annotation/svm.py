"""SVML and SVMK: one support vector machine a tag, tags ranked by probability."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold
from sklearn.svm import SVC, LinearSVC

from pipeline_lib.annotation.base import Annotator
from pipeline_lib.errors import InputError
from pipeline_lib.kernels.functions import iter_kernel_blocks, kernel_matrix
from pipeline_lib.seeds import RandomState, as_generator

Array = NDArray[np.float64]


class _TagwiseSVM(Annotator):
    """One machine for every tag against the rest, with Platt's probabilities.

    The decision values behind a tag's sigmoid come from ``n_folds`` held-out folds; a tag with fewer
    images than folds uses those of the machine itself. A tag on no image (or on all) has a constant
    probability.
    """

    C: float
    n_folds: int
    random_state: RandomState

    def _fit_tags(self, inputs: Array, truth: Array) -> None:
        if not (np.isfinite(self.C) and self.C > 0):
            raise InputError(f"C is {self.C!r}", expected="a positive number")
        if self.n_folds < 2:
            raise InputError(f"n_folds is {self.n_folds}", expected="at least 2")
        seed = int(as_generator(self.random_state).integers(2**31))
        n, m = truth.shape
        self.coef_ = np.zeros((self._width(inputs), m))
        self.intercept_ = np.zeros(m)
        self.slopes_, self.offsets_ = np.zeros(m), np.zeros(m)
        everyone = np.arange(n)
        for tag in range(m):
            y = truth[:, tag]
            positives = int(y.sum())
            if positives in (0, n):
                # The rule of succession keeps the logit finite.
                self.offsets_[tag] = np.log((positives + 1.0) / (n - positives + 1.0))
                continue
            self.coef_[:, tag], self.intercept_[tag] = self._fit_one(inputs, everyone, y, seed)
            if min(positives, n - positives) >= self.n_folds:
                held = self._held_out(inputs, y, seed)
            else:
                held = self._decide(inputs, self.coef_[:, tag]) + self.intercept_[tag]
            self.slopes_[tag], self.offsets_[tag] = _platt(held, y)

    def _held_out(self, inputs: Array, y: Array, seed: int) -> Array:
        values = np.empty(len(y))
        folds = StratifiedKFold(self.n_folds, shuffle=True, random_state=seed)
        for kept, out in folds.split(inputs, y):
            coef, intercept = self._fit_one(inputs, kept, y[kept], seed)
            values[out] = self._decide(inputs[out], coef) + intercept
        return values

    def _width(self, inputs: Array) -> int:
        return inputs.shape[1]

    def _fit_one(
        self, inputs: Array, kept: NDArray[np.intp], y: Array, seed: int
    ) -> tuple[Array, float]:
        raise NotImplementedError

    def _decide(self, inputs: Array, coef: Array) -> Array:
        return inputs @ coef

    def _probabilities(self, decisions: Array) -> Array:
        return expit(self.slopes_ * (decisions + self.intercept_) + self.offsets_)


def _platt(decisions: Array, y: Array) -> tuple[float, float]:
    """Slope and offset of P(y = 1) = 1 / (1 + exp(-a f - b)), with Platt's softened targets.

    The targets (n_+ + 1)/(n_+ + 2) and 1/(n_- + 2) enter as weighted copies of both outcomes.
    """
    positives = y.sum()
    target = np.where(
        y > 0, (positives + 1.0) / (positives + 2.0), 1.0 / (len(y) - positives + 2.0)
    )
    spread = float(decisions.std()) or 1.0
    scaled = np.concatenate([decisions, decisions])[:, None] / spread
    outcome = np.repeat([1, 0], len(y))
    model = LogisticRegression(C=1e6, max_iter=200)
    model.fit(scaled, outcome, sample_weight=np.concatenate([target, 1.0 - target]))
    return float(model.coef_[0, 0]) / spread, float(model.intercept_[0])


class LinearSVMAnnotator(_TagwiseSVM):
    """SVML: a linear machine a tag (squared hinge, scikit-learn's LinearSVC).

    Parameters
    ----------
    C : float, default 1.0
    n_folds : int, default 3
        Folds behind the probabilities.
    random_state : int, Generator, RandomState or None
        Shuffles the folds and liblinear's coordinates.

    Attributes
    ----------
    coef_ : ndarray of shape (d, m)
    intercept_, slopes_, offsets_ : ndarrays of shape (m,)

    Notes
    -----
    Feng's thesis says one-vs-one; images have several tags, so it is read as tag against rest.
    """

    _state_names = ("coef_", "intercept_", "slopes_", "offsets_")

    def __init__(self, C: float = 1.0, n_folds: int = 3, random_state: RandomState = None) -> None:
        self.C = C
        self.n_folds = n_folds
        self.random_state = random_state

    def fit(self, X: ArrayLike, Y: Any) -> Self:
        """Fit one machine for every tag."""
        rows, tags = self._check_fit(X, Y)
        self._fit_tags(rows, tags.toarray())
        return self

    def _fit_one(
        self, inputs: Array, kept: NDArray[np.intp], y: Array, seed: int
    ) -> tuple[Array, float]:
        model = LinearSVC(C=self.C, random_state=seed, max_iter=5000)
        model.fit(inputs[kept], y)
        return model.coef_[0], float(model.intercept_[0])

    def predict(self, X: ArrayLike) -> Array:
        """Probabilities (n, m)."""
        return self._probabilities(self._check_predict(X) @ self.coef_)


class KernelSVMAnnotator(_TagwiseSVM):
    """SVMK: a kernel machine a tag (hinge, scikit-learn's SVC) on one shared kernel matrix.

    Parameters
    ----------
    gamma : float
    C : float, default 1.0
    kernel : str, default "rbf"
        One of `pipeline_lib.kernels.functions.KERNELS`.
    n_folds : int, default 3
        Folds behind the probabilities.
    random_state : int, Generator, RandomState or None
        Shuffles the folds.

    Attributes
    ----------
    training_ : ndarray of shape (n, d)
    coef_ : ndarray of shape (n, m)
        Dual coefficients, 0 off the support.
    intercept_, slopes_, offsets_ : ndarrays of shape (m,)

    Notes
    -----
    The kernel matrix (n x n) is the machine's definition; it is computed once for all tags.
    """

    _state_names = ("training_", "coef_", "intercept_", "slopes_", "offsets_")

    def __init__(
        self,
        gamma: float,
        C: float = 1.0,
        kernel: str = "rbf",
        n_folds: int = 3,
        random_state: RandomState = None,
    ) -> None:
        self.gamma = gamma
        self.C = C
        self.kernel = kernel
        self.n_folds = n_folds
        self.random_state = random_state

    def fit(self, X: ArrayLike, Y: Any) -> Self:
        """Fit one machine for every tag."""
        rows, tags = self._check_fit(X, Y)
        self.training_ = rows.copy()
        self._fit_tags(kernel_matrix(rows, None, self.kernel, self.gamma), tags.toarray())
        return self

    def _fit_one(
        self, inputs: Array, kept: NDArray[np.intp], y: Array, seed: int
    ) -> tuple[Array, float]:
        model = SVC(C=self.C, kernel="precomputed", cache_size=10)
        model.fit(inputs[np.ix_(kept, kept)] if len(kept) < len(inputs) else inputs, y)
        coef = np.zeros(inputs.shape[1])
        coef[kept[model.support_]] = model.dual_coef_[0]
        return coef, float(model.intercept_[0])

    def predict(self, X: ArrayLike) -> Array:
        """Probabilities (n, m)."""
        rows = self._check_predict(X)
        decisions = np.empty((len(rows), self.n_tags_))
        for block, K in iter_kernel_blocks(rows, self.training_, self.kernel, self.gamma):
            decisions[block] = K @ self.coef_
        return self._probabilities(decisions)
