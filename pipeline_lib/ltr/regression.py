"""Pointwise regression: scores fitted to the labels by least squares.

    min_{w, b}  sum_i (w'psi(x_i) + b - y_i)^2 + alpha w'w

Queries play no part. With alpha = 0 the solution of smallest norm is taken where it is not unique.

Reference
---------
The "Regression" baseline of LETOR (Liu et al., 2007).
"""

from __future__ import annotations

from typing import Self

import numpy as np
from numpy.typing import ArrayLike
from scipy import linalg

from pipeline_lib.errors import InputError
from pipeline_lib.kernels.feature_map import FeatureMap
from pipeline_lib.ltr.base import LinearRanker
from pipeline_lib.ltr.queries import check_labels


class RegressionRanker(LinearRanker):
    """Least squares on the labels (problem at the top of the module).

    Parameters
    ----------
    alpha : float, default 0.0
        Ridge penalty; the intercept is free.
    feature_map : FeatureMap, optional
        Cloned and fitted on the training rows; the features themselves by default.

    Attributes
    ----------
    coef_ : ndarray of shape (m,)
        Weights. The intercept does not change a ranking and is dropped.
    """

    def __init__(self, alpha: float = 0.0, feature_map: FeatureMap | None = None) -> None:
        self.alpha = alpha
        self.feature_map = feature_map

    def fit(self, X: ArrayLike, y: ArrayLike, qid: ArrayLike) -> Self:
        """Fit on documents ``X`` (n, d) with labels ``y`` (n,); ``qid`` (n,) is only checked."""
        if not (np.isfinite(self.alpha) and self.alpha >= 0):
            raise InputError(f"alpha is {self.alpha}", expected="a number of at least 0")
        rows = self._mapped(X)
        labels = check_labels(y, qid, rows.n_rows)
        Z = rows.take(np.arange(rows.n_rows))
        mean = Z.mean(axis=0)
        Z = Z - mean
        target = labels.y - labels.y.mean()
        if self.alpha > 0:
            gram = Z.T @ Z
            gram[np.diag_indices_from(gram)] += self.alpha
            coef = linalg.solve(gram, Z.T @ target, assume_a="pos")
        else:
            coef = linalg.lstsq(Z, target)[0]
        self.coef_ = np.asarray(coef, dtype=np.float64)
        residual = Z @ self.coef_ - target
        objective = float(residual @ residual + self.alpha * self.coef_ @ self.coef_)
        self._record_convergence({"objective": [objective]}, converged=True, n_iter=1)
        return self
