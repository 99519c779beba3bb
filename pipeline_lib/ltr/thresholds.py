"""Threshold weak rankers h(x) = 1 if x_j > t else 0, over all features and many t at once.

Boosting needs, for every feature j and threshold t, sums of document weights over {x_j > t}. Features are
cut into bins once; a round is then one weighted histogram per feature and a running sum.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


class ThresholdRankers:
    """Weak rankers for training rows.

    Parameters
    ----------
    rows : ndarray of shape (n, d)
    n_thresholds : int
        Thresholds per feature at most: midpoints between distinct values, or between quantiles where
        there are more.

    Attributes
    ----------
    features, thresholds : ndarrays of shape (n_rankers,)
        Feature and threshold of each weak ranker.
    bins : ndarray of shape (n, d), int
        Number of the feature's thresholds below each value: h(x) = 1 for threshold number t when
        the bin exceeds t.
    first : ndarray of shape (d + 1,)
        The rankers of feature j are ``first[j] .. first[j + 1] - 1``.
    """

    def __init__(self, rows: Array, n_thresholds: int) -> None:
        n, d = rows.shape
        cuts = []
        self.bins = np.empty((n, d), dtype=np.int32)
        for j in range(d):
            values = np.unique(rows[:, j])
            if len(values) > n_thresholds + 1:
                at = np.linspace(0, len(rows) - 1, n_thresholds + 2)[1:-1].astype(np.intp)
                values = np.unique(np.concatenate([values[[0, -1]], np.sort(rows[:, j])[at]]))
            # A midpoint that rounds up to the larger value would separate nothing.
            middle = values[:-1] + 0.5 * (values[1:] - values[:-1])
            cut = np.where(middle < values[1:], middle, values[:-1])
            cuts.append(cut)
            self.bins[:, j] = np.searchsorted(cut, rows[:, j], side="left")
        sizes = np.array([len(cut) for cut in cuts])
        self.first = np.concatenate([[0], np.cumsum(sizes)])
        self.features = np.repeat(np.arange(d), sizes)
        self.thresholds = np.concatenate(cuts) if cuts else np.empty(0)
        # Histograms of all features lie one after the other, one more bin than thresholds each.
        starts = self.first[:-1] + np.arange(d)
        self._flat = (self.bins + starts).astype(np.intp).T.copy()
        self._n_bins = int(self.first[-1] + d)
        self._above = np.delete(np.arange(self._n_bins), starts) if d else np.empty(0, np.intp)
        self._ends = starts + sizes

    def sums_above(self, weights: Array) -> Array:
        """For each weak ranker, the sum of document weights over h = 1."""
        histogram = np.bincount(
            self._flat.ravel(),
            weights=np.broadcast_to(weights, self._flat.shape).ravel(),
            minlength=self._n_bins,
        )
        running = np.cumsum(histogram)
        feature_total = np.repeat(running[self._ends], np.diff(self.first))
        # Bin b is above threshold t when b > t, so the sum from bin t + 1 to the feature's end.
        return np.asarray(feature_total - running[self._above] + histogram[self._above])

    def values(self, ranker: int) -> NDArray[np.bool_]:
        """h of the training rows."""
        j = self.features[ranker]
        return np.asarray(self.bins[:, j] > ranker - self.first[j])


def threshold_scores(
    rows: Array, features: NDArray[np.intp], thresholds: Array, weights: Array
) -> Array:
    """sum_k weights_k [x_{features_k} > thresholds_k] for each row, feature by feature."""
    scores = np.zeros(len(rows))
    for j in np.unique(features):
        mine = np.flatnonzero(features == j)
        order = mine[np.argsort(thresholds[mine], kind="stable")]
        steps = np.concatenate([[0.0], np.cumsum(weights[order])])
        scores += steps[np.searchsorted(thresholds[order], rows[:, j], side="left")]
    return scores
