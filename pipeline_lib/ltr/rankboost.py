"""RankBoost: boosting of thresholds on the exponential loss over preference pairs.

Minimises sum_{(i,j) in P} exp(f(x_j) - f(x_i)) over f = sum_t a_t h_t with weak rankers
h(x) = [x_feature > threshold]. With pair weights D_ij proportional to exp(f(x_j) - f(x_i)) each round takes
the weak ranker with the largest |r|,

    r = sum D_ij (h(x_i) - h(x_j)),    a = 1/2 log((1 + r) / (1 - r)).

r is a sum over documents, sum_d p_d h(x_d), of potentials p. Pairs come in groups in which all documents
of one side are preferred to all of the other (`pairwise`), and in each the weights factor, so
potentials take O(n log levels) and no pair is formed.

Reference
---------
Freund, Iyer, Schapire and Singer, An efficient boosting algorithm for combining preferences, 2003.
"""

from __future__ import annotations

from typing import ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pipeline_lib.errors import InputError
from pipeline_lib.kernels.functions import as_rows
from pipeline_lib.ltr.base import Ranker
from pipeline_lib.ltr.pairwise import PreferencePairs
from pipeline_lib.ltr.queries import check_labels
from pipeline_lib.ltr.thresholds import ThresholdRankers, threshold_scores

Array = NDArray[np.float64]


class RankBoost(Ranker):
    """RankBoost with threshold weak rankers (problem at the top of the module).

    Parameters
    ----------
    n_rounds : int, default 300
        Weak rankers at most.
    n_thresholds : int, default 64
        Thresholds tried per feature.

    Attributes
    ----------
    features_, thresholds_, weights_ : ndarrays of shape (rounds,)
        The weak rankers chosen and their coefficients.
    objective_, history_, n_iter_, converged_
        See `IterativeEstimator`; the objective is the mean exponential loss over pairs. A run of all
        rounds counts as converged, as does one that ends because no weak ranker helps.
    """

    features_: NDArray[np.intp]
    thresholds_: Array
    weights_: Array

    _state_names: ClassVar[tuple[str, ...]] = (
        "n_features_in_",
        "features_",
        "thresholds_",
        "weights_",
    )

    def __init__(self, n_rounds: int = 300, n_thresholds: int = 64) -> None:
        self.n_rounds = n_rounds
        self.n_thresholds = n_thresholds

    def fit(self, X: ArrayLike, y: ArrayLike, qid: ArrayLike) -> Self:
        """Fit on documents ``X`` (n, d) with labels ``y`` (n,) and query ids ``qid`` (n,)."""
        if self.n_rounds < 1 or self.n_thresholds < 1:
            raise InputError("n_rounds and n_thresholds must be at least 1")
        rows = as_rows(X)
        labels = check_labels(y, qid, len(rows))
        pairs = PreferencePairs(labels.y, labels.query)
        rankers = ThresholdRankers(rows, self.n_thresholds)
        scores = np.zeros(len(rows))
        chosen: list[tuple[int, float]] = []
        losses = []
        for _ in range(self.n_rounds):
            loss, potentials = _potentials(pairs, scores)
            if loss <= 0.0 or len(rankers.features) == 0:
                break
            r = rankers.sums_above(potentials) / loss
            # Equally good rankers differ by rounding, which depends on the order of the rows.
            best = int(np.argmax(np.round(np.abs(r), 10)))
            # Rounding alone can make |r| reach 1 when a weak ranker orders every pair.
            edge = float(np.clip(r[best], -1 + 1e-9, 1 - 1e-9))
            if abs(edge) < 1e-12:
                break
            weight = 0.5 * float(np.log((1 + edge) / (1 - edge)))
            scores += weight * rankers.values(best)
            chosen.append((best, weight))
            losses.append(_potentials(pairs, scores)[0] / pairs.n_pairs)
        index = np.array([ranker for ranker, _ in chosen], dtype=np.intp)
        self.n_features_in_ = rows.shape[1]
        self.features_ = rankers.features[index]
        self.thresholds_ = rankers.thresholds[index]
        self.weights_ = np.array([weight for _, weight in chosen])
        self._record_convergence(
            {"objective": losses or [float(pairs.n_pairs > 0)]}, converged=True, n_iter=len(chosen)
        )
        return self

    def _scores(self, rows: Array) -> Array:
        return threshold_scores(rows, self.features_, self.thresholds_, self.weights_)


def _potentials(pairs: PreferencePairs, scores: Array) -> tuple[float, Array]:
    """The loss sum exp(f_j - f_i), and each document's potential: its weight as better minus as worse."""
    if pairs.n_pairs == 0:
        return 0.0, np.zeros(len(scores))
    # Within a group only differences of scores matter: measured from the group's lowest better
    # document, no exponential of a large number is taken unless the loss itself is large.
    lowest = np.minimum.reduceat(scores[pairs.better], pairs.first_better)
    better = np.exp(np.repeat(lowest, pairs.n_better) - scores[pairs.better])
    worse = np.exp(scores[pairs.worse] - np.repeat(lowest, pairs.n_worse))
    total_better = np.add.reduceat(better, pairs.first_better)
    total_worse = np.add.reduceat(worse, pairs.first_worse)
    n = len(scores)
    as_better = np.bincount(
        pairs.better, weights=better * np.repeat(total_worse, pairs.n_better), minlength=n
    )
    as_worse = np.bincount(
        pairs.worse, weights=worse * np.repeat(total_better, pairs.n_worse), minlength=n
    )
    return float(total_better @ total_worse), np.asarray(as_better - as_worse, dtype=np.float64)
