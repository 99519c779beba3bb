"""Metrics against the libraries that compute the same numbers, and against per-query loops."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl
from scipy import stats
from sklearn.metrics import ndcg_score

from pipeline_lib.metrics.annotation import annotation_metrics
from pipeline_lib.metrics.ranking import RankingDefinition, ranking_metrics
from pipeline_lib.metrics.retrieval import retrieval_metrics
from pipeline_lib.metrics.significance import compare

try:
    from tests.performance._table import print_table
except ImportError:  # run as a script, with this folder on the path
    from _table import print_table


def side_by_side(
    what: str, ours: Callable[[], Any], peer: Callable[[], Any], note: str, rounds: int = 3
) -> dict[str, Any]:
    """Time both alternately and compare the medians."""
    seconds: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds):
        for call, record in zip((ours, peer), seconds):
            start = time.perf_counter()
            call()
            record.append(time.perf_counter() - start)
    ours_s, peer_s = (statistics.median(record) for record in seconds)
    return {
        "what": what,
        "ours_s": ours_s,
        "peer_s": peer_s,
        "ratio": peer_s / ours_s,
        "note": note,
    }


def letor_loop(scores: np.ndarray, labels: np.ndarray, starts: np.ndarray) -> list[float]:
    """MeanNDCG and AP query by query with numpy, the way evaluation scripts are usually written."""
    values = []
    for begin, end in pairwise(starts):
        ranked = labels[begin:end][np.argsort(-np.round(scores[begin:end], 6), kind="stable")]
        gains = 2.0**ranked - 1
        discount = 1 / np.log2(np.maximum(np.arange(1, len(gains) + 1), 2))
        dcg, ideal = np.cumsum(gains * discount), np.cumsum(np.sort(gains)[::-1] * discount)
        values.append(float(np.where(ideal > 0, dcg / np.where(ideal > 0, ideal, 1), 0).mean()))
        relevant = ranked > 0
        precisions = np.cumsum(relevant)[relevant] / (np.flatnonzero(relevant) + 1)
        values.append(float(precisions.mean()) if relevant.any() else 0.0)
    return values


def run() -> list[dict[str, Any]]:
    rng = np.random.default_rng(0)
    rows = []
    for n_queries, length in ((100_000, 10), (1_000, 1_000), (1, 1_000_000)):
        n = n_queries * length
        scores, labels = rng.normal(size=n), rng.integers(0, 3, n)
        qid, starts = np.repeat(np.arange(n_queries), length), np.arange(0, n + 1, length)
        rows.append(
            side_by_side(
                f"letor4, {n_queries:,} queries x {length:,}",
                lambda s=scores, y=labels, q=qid: ranking_metrics(s, y, q),
                lambda s=scores, y=labels, b=starts: letor_loop(s, y, b),
                "ours: all 23 metrics; peer: numpy loop, MeanNDCG and MAP only",
            )
        )

    n_queries, length = 2_000, 100
    scores = rng.permutation(n_queries * length) / 7.0
    labels = rng.integers(0, 3, n_queries * length)
    qid = np.repeat(np.arange(n_queries), length)
    linear = RankingDefinition(gain="linear")
    square = scores.reshape(n_queries, length), labels.reshape(n_queries, length)
    rows.append(
        side_by_side(
            "NDCG@10, 2,000 x 100",
            lambda: ranking_metrics(scores, labels, qid, linear),
            lambda: ndcg_score(square[1], square[0], k=10, ignore_ties=True),
            "peer: scikit-learn ndcg_score, one mean only",
        )
    )
    try:
        import pytrec_eval
    except ImportError:
        pass
    else:
        qrels = {f"{q}": {f"{d}": int(v) for d, v in enumerate(y)} for q, y in enumerate(square[1])}
        run_ = {
            f"{q}": {f"{d}": float(v) for d, v in enumerate(s)} for q, s in enumerate(square[0])
        }
        cuts = ",".join(map(str, range(1, 11)))
        evaluator = pytrec_eval.RelevanceEvaluator(qrels, {"map", f"P.{cuts}", f"ndcg_cut.{cuts}"})
        rows.append(
            side_by_side(
                "map, P, NDCG@1..10, 2,000 x 100",
                lambda: ranking_metrics(scores, labels, qid, linear),
                lambda: evaluator.evaluate(run_),
                "peer: pytrec_eval, its dictionaries made beforehand",
            )
        )

    database = rng.normal(size=(1_000, 9_298))
    classes = rng.integers(0, 10, 9_298)
    rows.append(
        side_by_side(
            "retrieval, 1,000 queries x 9,298",
            lambda: retrieval_metrics(database, classes, np.arange(1_000), [50]),
            lambda: np.argsort(-database, axis=1, kind="stable"),
            "peer: the stable sort alone",
        )
    )
    tag_scores = rng.normal(size=(50_000, 300))
    Y = rng.random((50_000, 300)) < 0.02
    rows.append(
        side_by_side(
            "annotation t = 1..10, 50,000 x 300",
            lambda: annotation_metrics(tag_scores, Y),
            lambda: np.argsort(-tag_scores, axis=1, kind="stable"),
            "peer: the stable sort alone",
        )
    )

    a = rng.random(1_692)
    frames = [pl.DataFrame({"qid": np.arange(len(v)), "map": v}) for v in (a, a + 0.01 * a**2)]
    d = (frames[0]["map"] - frames[1]["map"]).to_numpy()

    def scipy_way() -> None:
        stats.permutation_test((d,), np.mean, permutation_type="samples", n_resamples=9_999, rng=0)
        stats.bootstrap((d,), np.mean, n_resamples=9_999, rng=0)
        stats.wilcoxon(d)

    rows.append(
        side_by_side(
            "compare, 1,692 queries",
            lambda: compare(frames[0], frames[1], "map"),
            scipy_way,
            "peer: scipy: sign flips, BCa, Wilcoxon; 10,000 resamples each",
        )
    )
    return rows


if __name__ == "__main__":
    print_table("Metrics", run())
