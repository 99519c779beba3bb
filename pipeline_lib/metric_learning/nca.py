"""Neighbourhood components analysis (NCA), scikit-learn's, on the interface of this package."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.neighbors import NeighborhoodComponentsAnalysis

from pipeline_lib.metric_learning.base import LinearMetricLearner, check_components
from pipeline_lib.metric_learning.constraints import UNKNOWN
from pipeline_lib.seeds import RandomState, as_generator

Array = NDArray[np.float64]


class NCA(LinearMetricLearner):
    """Maximise the expected leave-one-out accuracy of stochastic nearest neighbours.

        max_L  sum_i sum_{j: y_j = y_i} p_ij,
        p_ij proportional to exp(-||L x_i - L x_j||^2) over j != i.

    Parameters
    ----------
    n_components : int, optional
        Rows of L; all columns of X by default.
    init : str, default "identity"
        Start, as in scikit-learn.
    tol : float, default 1e-5
    max_iter : int, default 50
    random_state : int, Generator, RandomState or None

    Attributes
    ----------
    components_ : ndarray of shape (k, d)
    n_iter_ : int

    References
    ----------
    J. Goldberger, S. Roweis, G. Hinton, R. Salakhutdinov, "Neighbourhood components analysis",
    NIPS 2004.
    """

    def __init__(
        self,
        n_components: int | None = None,
        init: str = "identity",
        tol: float = 1e-5,
        max_iter: int = 50,
        random_state: RandomState = None,
    ) -> None:
        self.n_components = n_components
        self.init = init
        self.tol = tol
        self.max_iter = max_iter
        self.random_state = random_state

    def _fit(self, X: Array, constraints: Any) -> None:
        groups = constraints.require_groups("NCA")
        known = groups != UNKNOWN
        rows = X[known]
        scale = float(np.sqrt(2.0 * rows.var(axis=0).sum())) or 1.0
        model = NeighborhoodComponentsAnalysis(
            n_components=check_components(self.n_components, X.shape[1]),
            init=self.init,
            tol=self.tol,
            max_iter=self.max_iter,
            random_state=int(as_generator(self.random_state).integers(2**31)),
        )
        model.fit(rows / scale, groups[known])
        self.components_ = model.components_ / scale
        self.n_iter_ = int(model.n_iter_)
