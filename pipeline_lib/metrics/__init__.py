"""Metrics: values per query, image, tag or subset first, aggregates second; and their comparison."""

from pipeline_lib.metrics.annotation import annotation_metrics, tag_metrics
from pipeline_lib.metrics.average_ranks import CriticalDifference, critical_difference
from pipeline_lib.metrics.clustering import ari, clustering_accuracy, nmi
from pipeline_lib.metrics.completion import completion_metrics
from pipeline_lib.metrics.ranking import RankingDefinition, ranking_metrics
from pipeline_lib.metrics.recovery import held_out_likelihood, recovery_metrics
from pipeline_lib.metrics.resampling import bootstrap_interval
from pipeline_lib.metrics.result import MetricResult
from pipeline_lib.metrics.retrieval import retrieval_metrics
from pipeline_lib.metrics.significance import Comparison, compare, compare_many, holm
from pipeline_lib.metrics.trec import write_qrels, write_trec_run

__all__ = [
    "Comparison",
    "CriticalDifference",
    "MetricResult",
    "RankingDefinition",
    "annotation_metrics",
    "ari",
    "bootstrap_interval",
    "clustering_accuracy",
    "compare",
    "compare_many",
    "completion_metrics",
    "critical_difference",
    "held_out_likelihood",
    "holm",
    "nmi",
    "ranking_metrics",
    "recovery_metrics",
    "retrieval_metrics",
    "tag_metrics",
    "write_qrels",
    "write_trec_run",
]
