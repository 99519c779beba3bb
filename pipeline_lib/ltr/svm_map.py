"""SVM-MAP: a structural SVM for average precision.

For a query with relevant documents R and others N, a ranking y has the joint features

    Psi(y) = 1/(|R||N|) sum_{i in R, j in N} y_ij (x_i - x_j),   y_ij = +1 if i is before j, else -1,

so that sorting by w'x maximises w'Psi. With the loss D(y) = 1 - AP(y),

    min_w  1/2 w'w + C/Q sum_q max_y [ D(y) + w'Psi(y) - w'Psi(y*) ]

over the Q queries that have both kinds of documents. With the documents of each kind sorted by score, the
maximising y is found exactly: the place of each other document among the relevant ones can be chosen
on its own (Yue et al., section 4). All queries share one slack (cutting planes, `optimize.cutting_plane`).

Reference
---------
Yue, Finley, Radlinski and Joachims, A support vector method for optimizing average precision, 2007.
"""

from __future__ import annotations

from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pipeline_lib.errors import InputError
from pipeline_lib.kernels.feature_map import FeatureMap
from pipeline_lib.ltr.base import LinearRanker
from pipeline_lib.ltr.queries import check_labels
from pipeline_lib.optimize.cutting_plane import cutting_plane

Array = NDArray[np.float64]
Index = NDArray[np.intp]


class SVMMAP(LinearRanker):
    """SVM-MAP (problem at the top of the module); labels of at least 1 are relevant.

    Parameters
    ----------
    C : float, default 10.0
        Weight of the mean slack over queries.
    feature_map : FeatureMap, optional
        Cloned and fitted on the training rows; the features themselves by default.
    tol : float, default 1e-3
        Duality gap relative to the objective at which to stop.
    max_iter : int, default 500
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
        C: float = 10.0,
        feature_map: FeatureMap | None = None,
        tol: float = 1e-3,
        max_iter: int = 500,
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
        queries = _split(labels.y >= 1, labels.query)

        def risk(w: Array) -> tuple[float, Array]:
            scores = rows.dot(w)
            slack, pull = 0.0, np.zeros(rows.n_rows)
            for relevant, other in queries:
                value, at_relevant, at_other = most_violated(scores[relevant], scores[other])
                slack += value
                pull[relevant] += at_relevant
                pull[other] += at_other
            n = max(1, len(queries))
            return slack / n, rows.transpose_dot(pull) / n

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


def _split(relevant: NDArray[np.bool_], query: Index) -> list[tuple[Index, Index]]:
    """Relevant and other documents of each query that has both."""
    order = np.argsort(query, kind="stable")
    groups = np.split(order, np.flatnonzero(np.diff(query[order])) + 1)
    split = [(group[relevant[group]], group[~relevant[group]]) for group in groups]
    return [(r, o) for r, o in split if len(r) and len(o)]


def most_violated(relevant: Array, other: Array) -> tuple[float, Array, Array]:
    """The ranking that maximises 1 - AP(y) + w'Psi(y) - w'Psi(y*), for scores of the two kinds.

    Returns
    -------
    value : float
        The maximum, at least 0.
    at_relevant, at_other : ndarrays
        Its derivative in the scores.
    """
    r, n = len(relevant), len(other)
    by_relevant, by_other = np.argsort(-relevant, kind="stable"), np.argsort(-other, kind="stable")
    s, u = relevant[by_relevant], other[by_other]
    i = np.arange(1, r + 1)[:, None]
    j = np.arange(1, n + 1)[None, :]
    # Gain of putting the j-th other document before the i-th relevant one rather than just after
    # it: the loss of precision at i, against the score given up.
    gain = (j / (j + i) - (j - 1.0) / (j + i - 1.0)) / r - 2.0 * (s[:, None] - u[None, :]) / (r * n)
    # Gain of a place before relevant documents i, i + 1, .., r; after the last one it is 0.
    ahead = np.vstack([np.cumsum(gain[::-1], axis=0)[::-1], np.zeros((1, n))])
    place = ahead.argmax(axis=0)  # number of relevant documents before each other document
    value = float(ahead[place, np.arange(n)].sum())
    overtaken = r - place  # relevant documents that each other one is put before
    at_other = np.empty(n)
    at_other[by_other] = 2.0 * overtaken / (r * n)
    at_relevant = np.empty(r)
    overtakers = np.bincount(place, minlength=r + 1).cumsum()[:r]
    at_relevant[by_relevant] = -2.0 * overtakers / (r * n)
    return value, at_relevant, at_other
