"""RankSVM with hinge loss by the 1-slack cutting plane method.

    min_w  1/2 w'w + C sum_{(i,j) in P} max(0, 1 - w'(x_i - x_j))

over preference pairs P (same query, y_i > y_j). All pairs share one slack: a plane is given by a subset
of pairs, and the most violated one is the set of active pairs, whose sum of differences is found without
forming a pair (`pairwise`). Iteration stops at a duality gap relative to the objective.

Convention: SVM-rank's parameter c divides by the number of queries, C = c / n_queries.

References
----------
Joachims, Training linear SVMs in linear time, 2006.
"""

from __future__ import annotations

from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pipeline_lib.errors import InputError
from pipeline_lib.kernels.feature_map import FeatureMap
from pipeline_lib.ltr.base import LinearRanker
from pipeline_lib.ltr.pairwise import PreferencePairs
from pipeline_lib.ltr.queries import check_labels
from pipeline_lib.optimize.cutting_plane import cutting_plane

Array = NDArray[np.float64]


class RankSVMStruct(LinearRanker):
    """Hinge RankSVM by cutting planes (problem at the top of the module).

    Parameters
    ----------
    C : float, default 1.0
        Weight of the plain sum of hinges over pairs; SVM-rank's c divided by the number of queries.
    feature_map : FeatureMap, optional
        Cloned and fitted on the training rows; the features themselves by default.
    tol : float, default 1e-3
        Duality gap relative to the objective at which to stop.
    max_iter : int, default 2000
        Planes at most.

    Attributes
    ----------
    coef_ : ndarray of shape (m,)
    duality_gap_ : float
        Upper bound of ``objective_`` minus the minimum.
    objective_, history_, n_iter_, converged_
        See `IterativeEstimator`.
    """

    duality_gap_: float

    def __init__(
        self,
        C: float = 1.0,
        feature_map: FeatureMap | None = None,
        tol: float = 1e-3,
        max_iter: int = 2000,
    ) -> None:
        self.C = C
        self.feature_map = feature_map
        self.tol = tol
        self.max_iter = max_iter

    def fit(self, X: ArrayLike, y: ArrayLike, qid: ArrayLike) -> Self:
        """Fit on documents ``X`` (n, d) with labels ``y`` (n,) and query ids ``qid`` (n,)."""
        if not (np.isfinite(self.C) and self.C > 0):
            raise InputError(f"C is {self.C}", expected="a positive number")
        if not self.tol > 0 or self.max_iter < 1:
            raise InputError("tol and max_iter must be positive")
        rows = self._mapped(X)
        labels = check_labels(y, qid, rows.n_rows)
        pairs = PreferencePairs(labels.y, labels.query)

        def risk(w: Array) -> tuple[float, Array]:
            active = pairs.active(rows.dot(w))
            return active.hinge(), rows.transpose_dot(active.hinge_gradient())

        result = cutting_plane(risk, rows.n_features, self.C, tol=self.tol, max_iter=self.max_iter)
        self.coef_ = result.w
        self.duality_gap_ = result.duality_gap
        self._record_convergence(
            result.history,
            converged=result.converged,
            n_iter=result.n_iter,
            objective=result.objective,
        )
        return self
