"""Metrics of ranked lists with graded relevance, in the definitions that published tables use.

Three definitions of the same names give different numbers, so each is a frozen value that states
its gain, its discount, its comparison of scores, and what becomes of short lists:

========  ==========  =================================  ==========  ==============  ==============
name      gain        discount at rank r                 scores      NDCG@k, k > n   P@k, k > n
========  ==========  =================================  ==========  ==============  ==============
letor4    2^l - 1     1 for r <= 2, then 1 / log2(r)     6 decimals  0               padded
letor3    2^l - 1     1 for r <= 2, then 1 / log2(r)     6 decimals  padded          0
standard  2^l - 1     1 / log2(r + 1)                    as given    padded          padded
========  ==========  =================================  ==========  ==============  ==============

*n* is the number of documents of the query; *padded* means that missing positions hold irrelevant
documents (P@k still divides by k). The LETOR 3.0 tool adds a query to P@k only up to the query's
length but divides by all queries, which is the 0 above.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pipeline_lib.errors import InputError
from pipeline_lib.metrics.checks import finite_scores, labels_of_length
from pipeline_lib.metrics.ordering import descending_order
from pipeline_lib.metrics.result import MetricResult, metric_result
from pipeline_lib.metrics.segments import PaddedBlock, Segments

N_POSITIONS = 10
_MAX_LABEL = 52  # 2^l - 1 is exact in float64 up to here


@dataclass(frozen=True)
class RankingDefinition:
    """One way to define NDCG and P@k; see the table of the module.

    Attributes
    ----------
    gain : {"exponential", "linear"}
        2^l - 1, or the label itself.
    discount : {"letor", "log2"}
        1, 1, 1/log2(3), 1/log2(4), .. or 1/log2(r + 1).
    decimals : int or None
        Scores that agree to so many decimals are tied; None compares them as they are.
    short_ndcg, short_precision : {"pad", "zero"}
        Value at a position beyond the end of the list: as if irrelevant documents followed, or 0.
    """

    gain: Literal["exponential", "linear"] = "exponential"
    discount: Literal["letor", "log2"] = "log2"
    decimals: int | None = None
    short_ndcg: Literal["pad", "zero"] = "pad"
    short_precision: Literal["pad", "zero"] = "pad"

    def gains(self, labels: NDArray[np.int64]) -> NDArray[np.float64]:
        """Gain of each label."""
        return np.exp2(labels) - 1.0 if self.gain == "exponential" else labels.astype(np.float64)

    def discounts(self, n: int) -> NDArray[np.float64]:
        """Weights of ranks 1..n."""
        ranks = np.arange(1, n + 1, dtype=np.float64)
        return 1.0 / np.log2(ranks + 1.0 if self.discount == "log2" else np.maximum(ranks, 2.0))


DEFINITIONS: dict[str, RankingDefinition] = {
    "letor4": RankingDefinition(discount="letor", decimals=6, short_ndcg="zero"),
    "letor3": RankingDefinition(discount="letor", decimals=6, short_precision="zero"),
    "standard": RankingDefinition(),
}


def ranking_metrics(
    scores: ArrayLike,
    y: ArrayLike,
    qid: ArrayLike,
    definition: str | RankingDefinition = "letor4",
) -> MetricResult:
    """Score the ranked lists of many queries.

    With the documents of a query sorted by descending score (ties keep file order), label l_r and
    gain g_r at rank r, discount c_r, and rel_r = [l_r >= 1]:

    - DCG@k = sum_{r<=k} g_r c_r; NDCG@k = DCG@k / (DCG@k of the best order), 0 when that is 0;
    - MeanNDCG = mean of NDCG@1 .. NDCG@n over the n documents;
    - P@k = sum_{r<=k} rel_r / k;
    - AP = mean of P@r over the ranks r of the relevant documents, 0 when there are none;
    - pairwise accuracy = share of the pairs l_i > l_j with s_i > s_j, a tied pair counting half.

    Parameters
    ----------
    scores : array-like of shape (n,)
        Predicted scores, larger is better; finite.
    y : array-like of shape (n,)
        Relevance labels 0, 1, 2, ...
    qid : array-like of shape (n,)
        Query of each row, integers or strings. The rows of a query need not be contiguous.
    definition : {"letor4", "letor3", "standard"} or RankingDefinition, default="letor4"
        How gain, discount, ties of nearly equal scores, and lists shorter than k are treated; the
        table at the top of this module sets them side by side.

    Returns
    -------
    MetricResult
        One row per query in the order of first appearance: ``qid``, ``n_documents``,
        ``n_relevant``, ``ndcg_at_1`` .. ``ndcg_at_10``, ``mean_ndcg``, ``p_at_1`` .. ``p_at_10``,
        ``map`` (the query's AP), ``pairwise_accuracy``. Under every definition a query without
        relevant documents has 0 in all but the last and stays in the means. Pairwise accuracy is
        null for a query without a preference pair; its mean is over the other queries.

    Raises
    ------
    InputError
        If lengths differ, a score is not finite, a label is not a whole number from 0 to 52, or
        the definition is unknown.

    References
    ----------
    Qin, Liu, Xu, Li (2010). LETOR: a benchmark collection for research on learning to rank for
    information retrieval. Information Retrieval 13, and the evaluation tools of LETOR 3.0 and 4.0.
    Järvelin, Kekäläinen (2002). Cumulated gain-based evaluation of IR techniques. ACM TOIS 20.
    """
    rules = _definition(definition)
    values = _comparable(finite_scores(scores, ndim=1), rules.decimals)
    labels = _relevance_labels(y, len(values))
    segments = Segments.from_ids(labels_of_length(qid, len(values), name="qid"))

    columns = {name: np.empty(len(segments)) for name in _METRICS}
    for block in segments.blocks():
        for name, column in _block_metrics(values, labels, block, rules).items():
            columns[name][block.segments] = column
    counts = {"n_documents": segments.lengths, "n_relevant": segments.sum(labels > 0)}
    return metric_result("qid", segments.ids, columns, counts)


_METRICS = (
    *(f"ndcg_at_{k}" for k in range(1, N_POSITIONS + 1)),
    "mean_ndcg",
    *(f"p_at_{k}" for k in range(1, N_POSITIONS + 1)),
    "map",
    "pairwise_accuracy",
)


def _block_metrics(
    scores: NDArray[np.float64],
    labels: NDArray[np.int64],
    block: PaddedBlock,
    rules: RankingDefinition,
) -> dict[str, NDArray[np.float64]]:
    """Compute every metric for the queries of one padded rectangle (queries, positions)."""
    valid = block.valid
    keys = np.where(valid, scores[block.rows], -np.inf)  # padding sorts last
    order = descending_order(keys)
    keys = np.take_along_axis(keys, order, axis=1)
    ranked = np.take_along_axis(np.where(valid, labels[block.rows], 0), order, axis=1)
    lengths = valid.sum(axis=1)
    ranks = np.arange(1, valid.shape[1] + 1)

    gains = rules.gains(ranked)
    discounts = rules.discounts(len(ranks))
    ideal = np.cumsum(np.sort(gains, axis=1)[:, ::-1] * discounts, axis=1)
    ideal[ideal == 0.0] = 1.0  # the DCG is 0 there, and so shall be the NDCG
    ndcg = np.cumsum(gains * discounts, axis=1) / ideal

    relevant = ranked > 0
    hits = np.cumsum(relevant, axis=1, dtype=np.int32)
    precision_sum = (hits / ranks * relevant).sum(axis=1)

    columns: dict[str, NDArray[np.float64]] = {}
    for k in range(1, N_POSITIONS + 1):
        last = min(k, len(ranks)) - 1
        inside = lengths >= k
        at_k, precision = ndcg[:, last], hits[:, last] / k
        columns[f"ndcg_at_{k}"] = at_k * inside if rules.short_ndcg == "zero" else at_k
        columns[f"p_at_{k}"] = precision * inside if rules.short_precision == "zero" else precision
    columns["mean_ndcg"] = (ndcg * valid).sum(axis=1) / lengths
    columns["map"] = precision_sum / np.maximum(hits[:, -1], 1)
    columns["pairwise_accuracy"] = _pairwise_accuracy(keys, ranked, valid)
    return columns


def _pairwise_accuracy(
    keys: NDArray[np.float64], ranked: NDArray[np.int64], valid: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """Count ordered preference pairs from prefix counts, one pass per label level.

    A document of level v is rightly placed above each lower document that comes after the end of
    its group of tied scores, and shares half a point with each one inside the group.
    """
    n_queries, width = keys.shape
    columns = np.arange(width)
    differs = keys[:, 1:] != keys[:, :-1]
    tied = np.flatnonzero(~(differs | ~valid[:, 1:]).all(axis=1))
    boundary = np.ones((len(tied), width + 1), dtype=bool)
    boundary[:, 1:-1] = differs[tied]
    group_start = np.maximum.accumulate(np.where(boundary[:, :-1], columns, 0), axis=1)
    backwards = np.where(boundary[:, 1:], columns + 1, width)[:, ::-1]
    group_end = np.minimum.accumulate(backwards, axis=1)[:, ::-1]

    doubled = np.zeros(n_queries, dtype=np.int64)
    pairs = np.zeros(n_queries, dtype=np.int64)
    lower_before = np.zeros((n_queries, width + 1), dtype=np.int32)
    for level in np.flatnonzero(np.bincount(ranked[valid]))[1:]:
        members = ranked == level
        np.cumsum(valid & (ranked < level), axis=1, dtype=np.int32, out=lower_before[:, 1:])
        wrong = lower_before[:, 1:] + lower_before[:, :-1]
        wrong[tied] = np.take_along_axis(lower_before[tied], group_start, axis=1)
        wrong[tied] += np.take_along_axis(lower_before[tied], group_end, axis=1)
        level_pairs = members.sum(axis=1) * lower_before[:, -1].astype(np.int64)
        doubled += 2 * level_pairs - (wrong * members).sum(axis=1, dtype=np.int64)
        pairs += level_pairs
    accuracy = np.full(n_queries, np.nan)
    np.divide(doubled, 2.0 * pairs, out=accuracy, where=pairs > 0)
    return accuracy


def _definition(definition: str | RankingDefinition) -> RankingDefinition:
    if isinstance(definition, RankingDefinition):
        return definition
    if definition not in DEFINITIONS:
        raise InputError(
            f"unknown ranking definition {definition!r}",
            expected=f"one of {', '.join(DEFINITIONS)}",
        )
    return DEFINITIONS[definition]


def _comparable(scores: NDArray[np.float64], decimals: int | None) -> NDArray[np.float64]:
    """Round as a score file would; beyond 2^33 a float64 has no sixth decimal, and none to lose."""
    if decimals is None:
        return scores
    return np.where(
        np.abs(scores) < 2.0**33, np.round(np.clip(scores, -(2.0**33), 2.0**33), decimals), scores
    )


def _relevance_labels(y: ArrayLike, length: int) -> NDArray[np.int64]:
    labels: NDArray[Any] = labels_of_length(y, length, name="y")
    if labels.dtype.kind not in "biuf":
        raise InputError(f"y has type {labels.dtype}", expected="relevance labels 0, 1, 2, ...")
    wrong = (labels < 0) | (labels > _MAX_LABEL) | (labels != np.floor(labels))
    if wrong.any():
        place = int(np.flatnonzero(wrong)[0])
        raise InputError(
            f"y[{place}] is {labels[place]}", expected=f"a whole number from 0 to {_MAX_LABEL}"
        )
    return labels.astype(np.int64)
