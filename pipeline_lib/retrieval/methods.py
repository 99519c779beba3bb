"""Methods of image retrieval, as the registry lists them."""

from __future__ import annotations

from pipeline_lib.registry import MethodSpec

_RAN = "Li, Li, Nie 2018, Ranking with Adaptive Neighbors"


def _method(name: str, target: str, summary: str, source: str, **more: object) -> MethodSpec:
    return MethodSpec(
        name=name,
        kind="retrieval",
        target=f"pipeline_lib.retrieval.{target}",
        summary=summary,
        source=source,
        **more,  # type: ignore[arg-type]
    )


METHODS = (
    _method(
        "RAN",
        "adaptive_neighbors:RankingAdaptiveNeighbors",
        "Learns the neighbour graph and the ranking scores together.",
        _RAN,
        test_grid={"n_neighbors": (5,), "lam": (1.0,)},
    ),
    _method(
        "RAN-local-scale",
        "locally_scaled:LocallyScaledAdaptiveNeighbors",
        "RAN with each point's own gamma and a weight on the fidelity term.",
        "a variant of " + _RAN,
    ),
    _method(
        "Euclidean",
        "euclidean:EuclideanRanking",
        "Orders by Euclidean distance to the query.",
        "baseline of " + _RAN,
    ),
    _method(
        "SelfDiffusion",
        "self_diffusion:SelfDiffusion",
        "Diffuses the affinities along the graph for a number of steps.",
        "Wang and Tu 2012, Affinity learning via self-diffusion",
        test_grid={"n_steps": (5,)},
    ),
    _method(
        "PersonalizedPageRank",
        "personalized_pagerank:PersonalizedPageRank",
        "Random walk with restarts at the query.",
        "Page, Brin, Motwani, Winograd 1999, The PageRank citation ranking",
        test_grid={"damping": (0.85,)},
    ),
    _method(
        "ManifoldRanking",
        "manifold_ranking:ManifoldRanking",
        "Diffusion on the symmetrically normalised affinity graph.",
        "Zhou, Weston, Gretton, Bousquet, Schoelkopf 2004, Ranking on data manifolds",
        test_grid={"damping": (0.85,)},
    ),
    _method(
        "GraphTransduction",
        "graph_transduction:GraphTransduction",
        "Propagates the query's clamped label along a locally scaled graph.",
        "Bai, Yang, Latecki, Liu, Tu 2010, Learning context-sensitive shape similarity by graph transduction",
        test_grid={"n_steps": (7,)},
    ),
    _method(
        "KReciprocal",
        "reciprocal_reranking:KReciprocalReranking",
        "Re-ranks by the Jaccard distance of k-reciprocal neighbour sets.",
        "Zhong, Zheng, Cao, Li 2017, Re-ranking person re-identification with k-reciprocal encoding",
        test_grid={"k1": (8,), "k2": (3,)},
    ),
    _method(
        "QueryExpansion",
        "query_expansion:AverageQueryExpansion",
        "Asks again with the mean of the query and its nearest neighbours.",
        "Chum, Philbin, Sivic, Isard, Zisserman 2007, Total recall",
        test_grid={"n_neighbors": (3,)},
    ),
)
