"""FRank: boosting of thresholds on the fidelity loss.

A pair (i, j) with y_i > y_j has the modelled probability P = 1 / (1 + exp(-(f(x_i) - f(x_j)))) of being in
the right order; its fidelity loss is 1 - sqrt(P), and the loss of a query is the mean over its pairs:

    min_f  sum_q 1/|P_q| sum_{(i,j) in P_q} (1 - sqrt(P_ij)),    f = sum_t a_t h_t,  h_t(x) = [x_feature > t]

Unlike logistic or exponential losses it is bounded by 1, so hopeless pairs do not dominate. With the
negative derivatives W_ij = 1/(2|P_q|) sqrt(P_ij) (1 - P_ij) as pair weights, and W+ and W- their sums over the
pairs a weak ranker orders rightly and wrongly, each round takes the weak ranker for which sqrt(W+) and
sqrt(W-) differ most, with a = 1/2 log(W+ / W-). The step is halved while it does not reduce the loss,
which is not convex.

The pair weights do not factor, so the pairs are listed: memory is O(|P| d), up to a budget. `LinearFRank` puts
the same loss on f(x) = w'psi(x) for a feature map psi.

Reference
---------
Tsai, Liu, Qin, Chen and Ma, FRank: a ranking method with fidelity loss, 2007.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import optimize, sparse

from pipeline_lib.errors import InputError
from pipeline_lib.kernels.feature_map import FeatureMap
from pipeline_lib.kernels.functions import as_rows, row_blocks
from pipeline_lib.ltr.base import LinearRanker
from pipeline_lib.ltr.pairwise import PreferencePairs
from pipeline_lib.ltr.queries import RankingLabels, check_labels
from pipeline_lib.ltr.thresholds import ThresholdRankers, threshold_scores

Array = NDArray[np.float64]
Index = NDArray[np.intp]

_CONVERGENCE = ("objective_", "history_", "n_iter_", "converged_")
_PAIR_LIMIT = 50_000_000
_BLOCK_BYTES = 256 * 2**20
_MEMORY_BYTES = 2 * 2**30


class FRank(LinearRanker):
    """FRank with threshold weak rankers, or linear on a feature map (problem at the top).

    Parameters
    ----------
    n_rounds : int, default 100
        Weak rankers at most.
    n_thresholds : int, default 30
        Thresholds tried per feature.
    feature_map : FeatureMap, optional
        When given, the ranker is linear in this map (`LinearFRank`) instead of boosted.
    C : float, default 1.0
        With a feature map, weight of the loss against 1/2 w'w.
    max_iter : int, default 500
        With a feature map, L-BFGS iterations at most.

    Attributes
    ----------
    features_, thresholds_, weights_ : ndarrays of shape (rounds,)
        The weak rankers chosen and their coefficients; empty with a feature map.
    coef_ : ndarray of shape (m,)
        Weights in the map's space; empty without one.
    objective_, history_, n_iter_, converged_
        See `IterativeEstimator`; the objective is the mean loss over queries with pairs (boosting) or
        the penalised sum (feature map).

    Raises
    ------
    InputError
        In `fit`, for parameters or data that cannot be used, and for more than 50 million pairs.
    """

    features_: Index
    thresholds_: Array
    weights_: Array

    _state_names: ClassVar[tuple[str, ...]] = (
        "n_features_in_",
        "features_",
        "thresholds_",
        "weights_",
        "coef_",
    )

    def __init__(
        self,
        n_rounds: int = 100,
        n_thresholds: int = 30,
        feature_map: FeatureMap | None = None,
        C: float = 1.0,
        max_iter: int = 500,
    ) -> None:
        self.n_rounds = n_rounds
        self.n_thresholds = n_thresholds
        self.feature_map = feature_map
        self.C = C
        self.max_iter = max_iter

    def fit(self, X: ArrayLike, y: ArrayLike, qid: ArrayLike) -> Self:
        """Fit on documents ``X`` (n, d) with labels ``y`` (n,) and query ids ``qid`` (n,)."""
        if self.n_rounds < 1 or self.n_thresholds < 1 or self.max_iter < 1:
            raise InputError("n_rounds, n_thresholds and max_iter must be at least 1")
        if not (np.isfinite(self.C) and self.C > 0):
            raise InputError(f"C is {self.C}", expected="a positive number")
        rows = as_rows(X)
        if self.feature_map is None:
            labels = check_labels(y, qid, len(rows))
            self.n_features_in_ = rows.shape[1]
            self.feature_map_ = None
            self.coef_ = np.empty(0)
            return self._boost(rows, _ListedPairs(labels))
        self.features_, self.thresholds_ = np.empty(0, np.intp), np.empty(0)
        self.weights_ = np.empty(0)
        linear = LinearFRank(self.feature_map, self.C, self.max_iter).fit(rows, y, qid)
        for name in ("n_features_in_", "feature_map_", "coef_", *_CONVERGENCE):
            setattr(self, name, getattr(linear, name))
        return self

    def _boost(self, rows: Array, pairs: _ListedPairs) -> Self:
        rankers = ThresholdRankers(rows, self.n_thresholds)
        separations = _Separations(pairs, rankers)
        scores = np.zeros(len(rows))
        loss = pairs.loss(scores)
        chosen: list[tuple[int, float]] = []
        losses = [loss]
        for _ in range(self.n_rounds):
            if not len(pairs.better) or not len(rankers.features):
                break
            right, wrong = separations.sums(pairs.weights(scores))
            # Equally good rankers differ by rounding, which depends on the order of the rows.
            best = int(np.argmax(np.round(np.abs(np.sqrt(right) - np.sqrt(wrong)), 10)))
            tiny = 1e-9 * (right[best] + wrong[best]) + np.finfo(float).tiny
            weight = 0.5 * float(np.log((right[best] + tiny) / (wrong[best] + tiny)))
            values = rankers.values(best).astype(np.float64)
            while abs(weight) > 1e-8 and pairs.loss(scores + weight * values) >= loss:
                weight *= 0.5
            if abs(weight) <= 1e-8:
                break
            scores += weight * values
            loss = pairs.loss(scores)
            chosen.append((best, weight))
            losses.append(loss)
        index = np.array([ranker for ranker, _ in chosen], dtype=np.intp)
        self.features_ = rankers.features[index]
        self.thresholds_ = rankers.thresholds[index]
        self.weights_ = np.array([weight for _, weight in chosen])
        self._record_convergence(
            {"objective": losses[1:] or losses}, converged=True, n_iter=len(chosen)
        )
        return self

    def predict(self, X: ArrayLike) -> Array:
        """Scores of documents ``X`` (n, d)."""
        if getattr(self, "feature_map_", None) is not None:
            return super().predict(X)
        return super(LinearRanker, self).predict(X)

    def _scores(self, rows: Array) -> Array:
        return threshold_scores(rows, self.features_, self.thresholds_, self.weights_)


class LinearFRank(LinearRanker):
    """The fidelity loss minimised over linear scores, on the features or on a feature map.

        min_w  1/2 w'w + C sum_q 1/|P_q| sum_{(i,j) in P_q} (1 - sqrt(P_ij)),    f(x) = w'psi(x)

    by L-BFGS from w = 0; the loss is not convex. Pairs are listed, as in `FRank`.

    Parameters
    ----------
    feature_map : FeatureMap, optional
        Cloned and fitted on the training rows; the features themselves by default.
    C : float, default 1.0
        Weight of the loss against 1/2 w'w.
    max_iter : int, default 500
        Iterations at most.

    Attributes
    ----------
    coef_ : ndarray of shape (m,)
    feature_map_ : FeatureMap or None
    objective_, history_, n_iter_, converged_
        See `IterativeEstimator`.

    Raises
    ------
    InputError
        In `fit`, for parameters or data that cannot be used, and for more than 50 million pairs.
    """

    def __init__(
        self, feature_map: FeatureMap | None = None, C: float = 1.0, max_iter: int = 500
    ) -> None:
        self.feature_map = feature_map
        self.C = C
        self.max_iter = max_iter

    def fit(self, X: ArrayLike, y: ArrayLike, qid: ArrayLike) -> Self:
        """Fit on documents ``X`` (n, d) with labels ``y`` (n,) and query ids ``qid`` (n,)."""
        if not (np.isfinite(self.C) and self.C > 0):
            raise InputError(f"C is {self.C}", expected="a positive number")
        if self.max_iter < 1:
            raise InputError(f"max_iter is {self.max_iter}", expected="at least 1")
        mapped = self._mapped(X)
        pairs = _ListedPairs(check_labels(y, qid, mapped.n_rows))
        objectives: list[float] = []

        def value_and_gradient(w: Array) -> tuple[float, Array]:
            scores = mapped.dot(w)
            pull = pairs.spread(pairs.weights(scores))
            value = 0.5 * float(w @ w) + self.C * pairs.n_queries * pairs.loss(scores)
            return value, w - self.C * mapped.transpose_dot(pull)

        def record(intermediate_result: Any) -> None:
            objectives.append(float(intermediate_result.fun))

        result = optimize.minimize(
            value_and_gradient,
            np.zeros(mapped.n_features),
            jac=True,
            method="L-BFGS-B",
            callback=record,
            options={"maxiter": self.max_iter, "maxfun": 3 * self.max_iter, "ftol": 1e-10},
        )
        self.coef_ = np.asarray(result.x)
        self._record_convergence(
            {"objective": objectives or [float(result.fun)]},
            converged=bool(result.success),
            n_iter=int(result.nit),
            objective=float(result.fun),
        )
        return self


class _ListedPairs:
    """All pairs, each with the weight 1/|P_q|, as documents ``better`` and ``worse``."""

    def __init__(self, labels: RankingLabels) -> None:
        groups = PreferencePairs(labels.y, labels.query)
        if groups.n_pairs > _PAIR_LIMIT:
            raise InputError(
                f"{groups.n_pairs} preference pairs",
                expected=f"at most {_PAIR_LIMIT}, as FRank lists them",
                remedy="fit on a sample of queries",
            )
        # Group by group, each better document beside each worse one.
        sizes = groups.n_better * groups.n_worse
        group = np.repeat(np.arange(len(sizes)), sizes)
        within = np.arange(groups.n_pairs) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        width = groups.n_worse[group]
        self.better = groups.better[groups.first_better[group] + within // width]
        self.worse = groups.worse[groups.first_worse[group] + within % width]
        self._n_documents = len(labels.y)
        query = labels.query[self.better]
        counts = np.bincount(query, minlength=labels.n_queries)
        self.n_queries = int(np.count_nonzero(counts))
        self._share = 1.0 / counts[query]

    def _probability(self, scores: Array) -> Array:
        """P = 1 / (1 + exp(-difference)), without overflow."""
        return 0.5 * (1.0 + np.tanh(0.5 * (scores[self.better] - scores[self.worse])))

    def loss(self, scores: Array) -> float:
        """Mean over queries of the mean fidelity loss of their pairs."""
        total = float(self._share @ (1.0 - np.sqrt(self._probability(scores))))
        return total / max(1, self.n_queries)

    def weights(self, scores: Array) -> Array:
        """Minus the derivative of each pair's loss in its score difference."""
        probability = self._probability(scores)
        return np.asarray(0.5 * self._share * np.sqrt(probability) * (1.0 - probability))

    def spread(self, weights: Array) -> Array:
        """Each document's pair weights, as better minus as worse."""
        n = self._n_documents
        as_better = np.bincount(self.better, weights=weights, minlength=n)
        as_worse = np.bincount(self.worse, weights=weights, minlength=n)
        return np.asarray(as_better - as_worse, dtype=np.float64)


class _Separations:
    """Which weak rankers order which pairs, rightly and wrongly.

    A threshold separates a pair when it lies between the bins of its documents, so a pair adds its
    weight to a run of thresholds: +w where the run begins and -w after it ends, in a histogram that is
    then summed up. The histograms are products with sparse matrices of one column per pair, kept
    when the budget allows and otherwise rebuilt, block by block, each round.
    """

    def __init__(self, pairs: _ListedPairs, rankers: ThresholdRankers) -> None:
        self._pairs, self._bins = pairs, rankers.bins
        n_features = rankers.bins.shape[1]
        sizes = np.diff(rankers.first) + 1
        self._starts = rankers.first[:-1] + np.arange(n_features)
        self._size = int(rankers.first[-1] + n_features)
        self._kept = np.delete(np.arange(self._size), self._starts + sizes - 1)
        bytes_per_pair = 24 * n_features
        self._parts = list(row_blocks(len(pairs.better), bytes_per_pair, _BLOCK_BYTES))
        fits = len(pairs.better) * bytes_per_pair <= _MEMORY_BYTES
        self._matrices = [self._build(part) for part in self._parts] if fits else None

    def _build(self, part: slice) -> tuple[sparse.csr_array, sparse.csr_array]:
        upper = self._bins[self._pairs.better[part]]
        lower = self._bins[self._pairs.worse[part]]
        return self._runs(lower, upper), self._runs(upper, lower)

    def _runs(self, low: NDArray[np.int32], high: NDArray[np.int32]) -> sparse.csr_array:
        pair, feature = np.nonzero(low < high)
        begins = low[pair, feature] + self._starts[feature]
        ends = high[pair, feature] + self._starts[feature]
        ones = np.ones(len(pair))
        entries = np.concatenate([ones, -ones])
        place = (np.concatenate([begins, ends]), np.concatenate([pair, pair]))
        return sparse.csr_array((entries, place), shape=(self._size, len(low)))

    def sums(self, weights: Array) -> tuple[Array, Array]:
        """Weight of the pairs that each weak ranker orders rightly, and wrongly."""
        right, wrong = np.zeros(self._size), np.zeros(self._size)
        for k, part in enumerate(self._parts):
            built = self._build(part) if self._matrices is None else self._matrices[k]
            right += built[0] @ weights[part]
            wrong += built[1] @ weights[part]
        sums = [np.maximum(np.cumsum(values)[self._kept], 0.0) for values in (right, wrong)]
        return sums[0], sums[1]
