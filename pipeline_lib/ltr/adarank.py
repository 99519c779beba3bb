"""AdaRank: boosting of single features on a ranking measure.

Every query q has a weight P_q. Each round takes the weak ranker h (a feature, upwards or downwards) with
the largest sum_q P_q E(h, q), where E in [-1, 1] is the query's average precision or NDCG under h, and

    a = 1/2 log( sum_q P_q (1 + E(h, q)) / sum_q P_q (1 - E(h, q)) ),   f = f + a h,
    P_q proportional to exp(-E(f, q)).

The weights vary too little to make another feature the best one by themselves: left alone the algorithm
would choose its first feature for ever. So a feature whose addition does not raise the mean of E is taken
back and passed over until another one has raised it, which is what the authors' assumption that every
round improves f amounts to.

Documents that a ranker ties are put in the order that is worst for it, so that the measure does not
depend on the order of the rows and a constant feature earns nothing. Queries without a relevant
document say nothing and are left out.

Reference
---------
Xu and Li, AdaRank: a boosting algorithm for information retrieval, 2007.
"""

from __future__ import annotations

from typing import ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pipeline_lib.errors import InputError
from pipeline_lib.kernels.functions import as_rows
from pipeline_lib.ltr.base import Ranker
from pipeline_lib.ltr.queries import check_labels

Array = NDArray[np.float64]
Index = NDArray[np.intp]

MEASURES = ("map", "ndcg")


class AdaRank(Ranker):
    """AdaRank with single features as weak rankers (algorithm at the top of the module).

    Parameters
    ----------
    measure : {"map", "ndcg"}, default "map"
        Average precision (labels of at least 1 are relevant), or NDCG at 10 with gain 2^y - 1.
    n_rounds : int, default 100
        Weak rankers at most.
    tol : float, default 1e-4
        Least rise of the mean of the measure for which a feature is added.

    Attributes
    ----------
    coef_ : ndarray of shape (d,)
        The sum of the chosen features' coefficients.
    objective_, history_, n_iter_, converged_
        See `IterativeEstimator`; the objective is minus the mean of the measure over queries.
    """

    coef_: Array

    _state_names: ClassVar[tuple[str, ...]] = ("n_features_in_", "coef_")

    def __init__(self, measure: str = "map", n_rounds: int = 100, tol: float = 1e-4) -> None:
        self.measure = measure
        self.n_rounds = n_rounds
        self.tol = tol

    def fit(self, X: ArrayLike, y: ArrayLike, qid: ArrayLike) -> Self:
        """Fit on documents ``X`` (n, d) with labels ``y`` (n,) and query ids ``qid`` (n,)."""
        if self.measure not in MEASURES:
            raise InputError(
                f"unknown measure {self.measure!r}", expected="one of " + ", ".join(MEASURES)
            )
        if self.n_rounds < 1 or not self.tol >= 0:
            raise InputError("n_rounds must be at least 1 and tol at least 0")
        rows = as_rows(X)
        labels = check_labels(y, qid, len(rows))
        d = rows.shape[1]
        self.n_features_in_ = d
        measure = _Measure(labels.y, labels.query, self.measure)
        self.coef_ = np.zeros(d)
        if measure.n_queries == 0:
            self._record_convergence({"objective": [0.0]}, converged=True, n_iter=0)
            return self
        # Columns: features upwards, then downwards.
        signed = [rows[:, j] for j in range(d)] + [-rows[:, j] for j in range(d)]
        quality = np.column_stack([measure(values) for values in signed])
        weights = np.full(measure.n_queries, 1.0 / measure.n_queries)
        scores = np.zeros(len(rows))
        mean = float(measure(scores).mean())
        means: list[float] = []
        passed_over = np.zeros(2 * d, dtype=bool)
        while len(means) < self.n_rounds and not passed_over.all():
            gains = np.where(passed_over, -np.inf, weights @ quality)
            # Equally good features differ by rounding, which depends on the order of the rows.
            chosen = int(np.argmax(np.round(gains, 12)))
            gain = min(float(gains[chosen]), 1.0 - 1e-9)
            weight = 0.5 * float(np.log((1.0 + gain) / (1.0 - gain)))
            candidate = scores + weight * signed[chosen]
            reached = measure(candidate)
            if reached.mean() <= mean + self.tol:
                passed_over[chosen] = True
                continue
            passed_over[:] = False
            scores, mean = candidate, float(reached.mean())
            self.coef_[chosen % d] += weight if chosen < d else -weight
            means.append(mean)
            weights = np.exp(-reached)
            weights /= weights.sum()
        self._record_convergence(
            {"objective": [-value for value in means or [mean]]}, converged=True, n_iter=len(means)
        )
        return self

    def _scores(self, rows: Array) -> Array:
        return rows @ self.coef_


class _Measure:
    """Average precision or NDCG at 10 of every query with a relevant document."""

    def __init__(self, y: Array, query: Index, name: str) -> None:
        relevant = y >= 1
        useful = np.bincount(query, weights=relevant) > 0
        self._rows = np.flatnonzero(useful[query])
        self._y = y[self._rows]
        self._query = np.unique(query[self._rows], return_inverse=True)[1].reshape(-1)
        self.n_queries = int(useful.sum())
        self._sizes = np.bincount(self._query, minlength=self.n_queries)
        self._starts = np.cumsum(self._sizes) - self._sizes
        rank = np.arange(len(self._rows)) - np.repeat(self._starts, self._sizes) + 1
        self._name = name
        self._rank = rank
        if name == "map":
            self._total = self._sum(relevant[self._rows][np.argsort(self._query, kind="stable")])
        else:
            self._discount = np.where(rank <= 10, 1.0 / np.log2(rank + 1.0), 0.0)
            ideal = np.lexsort((-self._y, self._query))
            self._total = self._sum((2.0 ** self._y[ideal] - 1.0) * self._discount)

    def _sum(self, values: Array | NDArray[np.bool_]) -> Array:
        return np.asarray(np.add.reduceat(values.astype(np.float64), self._starts))

    def __call__(self, scores: Array) -> Array:
        # Rounding keeps sums of features that are equal in exact arithmetic tied.
        mine = np.round(scores[self._rows], 10)
        order = np.lexsort((self._y, -mine, self._query))
        labels = self._y[order]
        if self._name == "ndcg":
            return self._sum((2.0**labels - 1.0) * self._discount) / self._total
        relevant = labels >= 1
        found = np.cumsum(relevant)
        before: Index = (found - relevant)[self._starts]
        precision = (found - np.repeat(before, self._sizes)) / self._rank
        return self._sum(precision * relevant) / self._total
