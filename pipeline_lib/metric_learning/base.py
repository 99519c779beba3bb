"""One interface for metric learners: ``fit(X, Y)`` or ``fit(X, constraints=...)``, ``transform(X)``.

A linear metric learner finds a positive semidefinite M (d x d) = L'L so that
d_M(x, x')^2 = (x - x')' M (x - x') is small for similar and large for dissimilar rows. Rows are
mapped by x -> L x, and Euclidean distance there is d_M. Kernel and boosted learners keep ``fit`` and
``transform`` and leave M out: derive from `MetricLearner` and implement ``_fit`` and ``transform``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import linalg, sparse
from sklearn.base import BaseEstimator, TransformerMixin

from pipeline_lib.errors import InputError
from pipeline_lib.kernels.functions import as_rows
from pipeline_lib.metric_learning.constraints import Constraints, from_labels, from_tags
from pipeline_lib.seeds import RandomState

Array = NDArray[np.float64]


class MetricLearner(TransformerMixin, BaseEstimator, ABC):
    """Base of all metric learners: resolves what ``fit`` is given into `Constraints`.

    Attributes
    ----------
    n_features_in_ : int
        Columns of the training rows.
    """

    n_features_in_: int
    # Learners that draw nothing themselves have no such parameter: tags are then clustered alike
    # every time.
    random_state: RandomState = 0

    # Fitted arrays that ``transform`` reads.
    _state_names: ClassVar[tuple[str, ...]] = ("components_",)
    supervised: ClassVar[bool] = True  # whether ``fit`` needs classes, tags or constraints

    def fit(
        self, X: ArrayLike, Y: Any = None, constraints: Constraints | ArrayLike | None = None
    ) -> Self:
        """Learn the metric.

        Parameters
        ----------
        X : array of shape (n, d)
        Y : array of shape (n,) or (n, m), optional
            Class labels, or a binary tag matrix that is turned into groups by probabilistic
            clustering (`pipeline_lib.metric_learning.constraints.from_tags`).
        constraints : Constraints, array of shape (n,), or pair of arrays, optional
            What is known instead of ``Y``: an array is read as groups, -1 for unknown; a pair
            ``(similar, dissimilar)`` as row indices of shapes (p, 2) and (q, 2).

        Raises
        ------
        InputError
            For NaN or infinity, mismatched lengths, neither or both of ``Y`` and ``constraints``,
            or a single class.
        """
        rows = as_rows(X)
        self.n_features_in_ = rows.shape[1]
        known = self._resolve(rows, Y, constraints) if self.supervised else None
        self._fit(rows, known)
        return self

    def _resolve(
        self, rows: Array, Y: Any, constraints: Constraints | ArrayLike | None
    ) -> Constraints:
        if (Y is None) == (constraints is None):
            raise InputError(
                f"{type(self).__name__} needs either Y or constraints",
                expected="class labels, tags, or constraints",
            )
        if isinstance(constraints, Constraints):
            known = constraints
        elif isinstance(constraints, tuple) and len(constraints) == 2:
            similar, dissimilar = (np.asarray(pairs, dtype=np.int64) for pairs in constraints)
            known = Constraints(len(rows), similar=similar, dissimilar=dissimilar)
        elif constraints is not None:
            known = from_labels(constraints)
        elif sparse.issparse(Y) or np.ndim(Y) == 2:
            known = from_tags(Y, random_state=self.random_state)
        else:
            known = from_labels(Y)
        known.check_rows(len(rows))
        return known

    @abstractmethod
    def _fit(self, X: Array, constraints: Any) -> None:
        """Learn from checked rows and `Constraints` (None for unsupervised learners)."""

    @abstractmethod
    def transform(self, X: ArrayLike) -> Array:
        """Map rows to where Euclidean distance is the learned distance."""

    def _check_transform(self, X: ArrayLike) -> Array:
        if not hasattr(self, "n_features_in_"):
            raise InputError(f"this {type(self).__name__} is not fitted", remedy="call fit first")
        return as_rows(X, n_features=self.n_features_in_)

    def get_state(self) -> dict[str, NDArray[Any]]:
        """Everything ``transform`` needs, as plain arrays."""
        self._check_transform(np.zeros((1, getattr(self, "n_features_in_", 1))))
        names = ("n_features_in_", *self._state_names)
        return {name: np.asarray(getattr(self, name)) for name in names}

    @classmethod
    def from_state(cls, params: dict[str, Any], state: dict[str, NDArray[Any]]) -> Self:
        """Restore a fitted learner from ``get_params()`` and ``get_state()``."""
        learner = cls(**params)
        for name in ("n_features_in_", *cls._state_names):
            if name not in state:
                raise InputError(f"the state of {cls.__name__} lacks {name!r}")
            value = np.asarray(state[name])
            setattr(learner, name, value.item() if value.ndim == 0 else value)
        return learner


class LinearMetricLearner(MetricLearner):
    """Base of the learners of one matrix.

    Attributes
    ----------
    components_ : ndarray of shape (k, d)
        L: rows are mapped by x -> L x.
    """

    components_: Array

    @property
    def metric_(self) -> Array:
        """M = L'L (d x d), positive semidefinite by construction."""
        return self.components_.T @ self.components_

    def transform(self, X: ArrayLike) -> Array:
        """Map rows: ``X @ components_.T``."""
        return self._check_transform(X) @ self.components_.T


def positive_part(M: Array) -> tuple[Array, Array]:
    """The nearest positive semidefinite matrix and its factor.

    Returns
    -------
    projected : ndarray of shape (d, d)
        M with its negative eigenvalues set to 0.
    factor : ndarray of shape (k, d)
        L with L'L = projected, one row per positive eigenvalue, largest first.
    """
    values, vectors = linalg.eigh(M, check_finite=False)
    kept = values > np.finfo(float).eps * len(M) * max(values[-1], 0.0)
    factor = (vectors[:, kept] * np.sqrt(values[kept])).T[::-1]
    return factor.T @ factor, factor


def check_components(n_components: int | None, limit: int) -> int:
    """Number of output dimensions: ``n_components``, at most ``limit`` (all when None)."""
    if n_components is None:
        return limit
    if n_components < 1 or int(n_components) != n_components:
        raise InputError(f"n_components is {n_components!r}", expected="a whole number >= 1")
    return min(int(n_components), limit)


def check_at_least_one(value: int, name: str) -> None:
    """Raise `InputError` when ``value`` is not a whole number >= 1."""
    if value < 1 or int(value) != value:
        raise InputError(f"{name} is {value!r}", expected="a whole number >= 1")


def pair_scatter(X: Array, rows: NDArray[np.int64], cols: NDArray[np.int64], w: Array) -> Array:
    """sum_p w_p (x_rows[p] - x_cols[p])(x_rows[p] - x_cols[p])' through a graph Laplacian."""
    n = len(X)
    W = sparse.csr_array(sparse.coo_array((w, (rows, cols)), shape=(n, n)))
    degree = np.bincount(rows, weights=w, minlength=n) + np.bincount(cols, weights=w, minlength=n)
    cross = X.T @ (W @ X)
    return X.T @ (degree[:, None] * X) - cross - cross.T


def decorrelate(X: Array) -> tuple[Array, Array, Array]:
    """Rows in coordinates of unit covariance: a better conditioned place to learn the same metric.

    Returns
    -------
    Z : ndarray of shape (n, k)
        ``(X - mean) @ W``; directions in which X does not vary are left out.
    W : ndarray of shape (d, k)
        A metric M_z learned on Z is W M_z W' on X.
    variances : ndarray of shape (k,)
        Euclidean distance of X is diag(variances) on Z.
    """
    centred = X - X.mean(axis=0)
    variances, vectors = whitening(centred.T @ centred / len(X), ridge=0.0)
    W = vectors / np.sqrt(variances)
    return centred @ W, W, variances


def group_means(X: Array, groups: NDArray[np.int64]) -> tuple[Array, Array, Array]:
    """Means and sizes of groups 0..g-1, and the known rows centred on their group's mean.

    ``groups`` is numbered without gaps; rows of unknown group (-1) are left out.
    """
    known = groups >= 0
    members, labels = X[known], groups[known]
    sizes = np.bincount(labels).astype(np.float64)
    one_hot = sparse.csr_array(
        (np.ones(len(labels)), (labels, np.arange(len(labels)))), shape=(len(sizes), len(labels))
    )
    means = np.asarray(one_hot @ members) / sizes[:, None]
    return means, sizes, members - means[labels]


def whitening(C: Array, ridge: float) -> tuple[Array, Array]:
    """Eigenvalues (ascending, > 0) and eigenvectors of a covariance on its numerical range.

    ``ridge`` times the mean eigenvalue is added to every eigenvalue; with 0, directions without
    variance are left out.
    """
    values, vectors = linalg.eigh(C, check_finite=False)
    values = values + ridge * max(values.mean(), 0.0)
    kept = values > 1e-10 * max(values[-1], 0.0)
    if not kept.any():
        raise InputError("the rows do not vary", expected="rows that differ")
    return values[kept], vectors[:, kept]
