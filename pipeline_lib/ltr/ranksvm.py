"""RankSVM: linear, or on any explicit feature map.

Given documents x_i with query q_i and relevance label y_i, preference pairs P = {(i, j): q_i = q_j,
y_i > y_j} and a feature map psi, find the weights w of the score f(x) = w'psi(x) that minimise

    1/2 w'w + C sum_{(i,j) in P} max(0, 1 - w'(psi(x_i) - psi(x_j)))^2       (loss="squared_hinge")
    1/2 w'w + C sum_{(i,j) in P} max(0, 1 - w'(psi(x_i) - psi(x_j)))         (loss="hinge")

All pairs count, unweighted, and none is ever formed (`pairwise`). C multiplies the plain sum; the
authors' code of the paper below has C/2 in its place for the squared hinge.

References
----------
Chen, Li, Chen, Liao, Ranking support vector machine with kernel approximation, 2017, equations 4 and 13
and Algorithm 3. Chapelle and Keerthi, Efficient algorithms for ranking with SVMs, 2010.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pipeline_lib.errors import InputError
from pipeline_lib.kernels.feature_map import FeatureMap
from pipeline_lib.ltr.base import LinearRanker
from pipeline_lib.ltr.primal import LinearFit, fit_path


class PrimalRanker(LinearRanker):
    """Fitting by `fit_path`; subclasses name their parameters and their map.

    Attributes
    ----------
    duality_gap_ : float
        Upper bound of ``objective_`` minus the minimum.
    """

    C: float
    loss: str
    tol: float | None
    max_iter: int
    memory_mb: int

    duality_gap_: float

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        qid: ArrayLike,
        coef_init: NDArray[np.float64] | None = None,
    ) -> Self:
        """Fit on documents.

        Parameters
        ----------
        X : array of shape (n, d)
            Features; float32 is used as it is, without a copy.
        y : array of shape (n,)
            Relevance labels, larger is better.
        qid : array of shape (n,)
            Query of each row; rows may come in any order.
        coef_init : ndarray of shape (m,), optional
            Weights to start from, in the space of the map.

        Raises
        ------
        InputError
            For parameters or data that cannot be used.
        """
        if self.memory_mb < 1:
            raise InputError(f"memory_mb is {self.memory_mb}", expected="at least 1")
        rows = self._mapped(X, memory_bytes=self.memory_mb * 2**20)
        path = fit_path(
            rows,
            y,
            qid,
            [self.C],
            loss=self.loss,
            tol=self.tol,
            max_iter=self.max_iter,
            coef_init=coef_init,
        )
        return self._accept(next(path))

    def _accept(self, fit: LinearFit) -> Self:
        self.coef_ = fit.coef
        self.duality_gap_ = fit.duality_gap
        self._record_convergence(
            fit.history, converged=fit.converged, n_iter=fit.n_iter, objective=fit.objective
        )
        return self

    @classmethod
    def from_fit(
        cls, params: Mapping[str, Any], feature_map: FeatureMap | None, fit: LinearFit
    ) -> Self:
        """The model that `fit` would return, from one point of a path over mapped rows.

        Along a grid of C one fitted map and one mapped matrix serve all fits (`fit_path`).

        Parameters
        ----------
        params : mapping
            Constructor parameters, C included.
        feature_map : FeatureMap or None
            The fitted map.
        fit : LinearFit
        """
        model = cls(**params)
        model.feature_map_ = feature_map
        model.n_features_in_ = len(fit.coef) if feature_map is None else feature_map.n_features_in_
        return model._accept(fit)


class RankSVM(PrimalRanker):
    """RankSVM on the features or on a feature map of them (problem at the top of the module).

    Parameters
    ----------
    C : float, default 1.0
        Weight of the plain sum of losses over pairs.
    loss : {"squared_hinge", "hinge"}, default "squared_hinge"
    feature_map : FeatureMap, optional
        Cloned and fitted on the training rows; the features themselves by default.
    tol : float, optional
        Squared hinge: Newton decrement relative to the objective at which to stop (default 1e-8). Hinge:
        duality gap relative to the objective (default 1e-3).
    max_iter : int, default 100
        Newton steps at most.
    memory_mb : int, default 4096
        What the mapped training rows may take; beyond it they are recomputed block by block.

    Attributes
    ----------
    coef_ : ndarray of shape (m,)
    feature_map_ : FeatureMap or None
    duality_gap_ : float
        Upper bound of ``objective_`` minus the minimum.
    objective_, history_, n_iter_, converged_
        See `IterativeEstimator`.
    """

    def __init__(
        self,
        C: float = 1.0,
        loss: str = "squared_hinge",
        feature_map: FeatureMap | None = None,
        tol: float | None = None,
        max_iter: int = 100,
        memory_mb: int = 4096,
    ) -> None:
        self.C = C
        self.loss = loss
        self.feature_map = feature_map
        self.tol = tol
        self.max_iter = max_iter
        self.memory_mb = memory_mb
