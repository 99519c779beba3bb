"""Ranking a database by nearness to a query: adaptive neighbours and fixed-graph diffusion."""

from pipeline_lib.retrieval.adaptive_neighbors import RankingAdaptiveNeighbors
from pipeline_lib.retrieval.euclidean import EuclideanRanking
from pipeline_lib.retrieval.graph_transduction import GraphTransduction
from pipeline_lib.retrieval.locally_scaled import LocallyScaledAdaptiveNeighbors
from pipeline_lib.retrieval.manifold_ranking import ManifoldRanking
from pipeline_lib.retrieval.personalized_pagerank import PersonalizedPageRank
from pipeline_lib.retrieval.query_expansion import AverageQueryExpansion
from pipeline_lib.retrieval.reciprocal_reranking import KReciprocalReranking
from pipeline_lib.retrieval.self_diffusion import SelfDiffusion

__all__ = [
    "AverageQueryExpansion",
    "EuclideanRanking",
    "GraphTransduction",
    "KReciprocalReranking",
    "LocallyScaledAdaptiveNeighbors",
    "ManifoldRanking",
    "PersonalizedPageRank",
    "RankingAdaptiveNeighbors",
    "SelfDiffusion",
]
