"""Methods of image clustering, as the registry lists them."""

from __future__ import annotations

from pipeline_lib.registry import MethodSpec

_PAPER = "Yu, Lu, Li 2023, Sparse coding with adaptive graph regularisation"
_SMALL = {"n_atoms": (8,), "max_iter": (3,)}


def _method(name: str, target: str, summary: str, source: str, **more: object) -> MethodSpec:
    return MethodSpec(
        name=name,
        kind="clustering",
        target=f"pipeline_lib.clustering.{target}",
        summary=summary,
        source=source,
        **more,  # type: ignore[arg-type]
    )


METHODS = (
    _method(
        "GraphSCAN",
        "graphscan:GraphSCAN",
        "Sparse coding with a neighbour graph learned together with the codes.",
        _PAPER,
        test_grid={**_SMALL, "beta": (0.01,), "lam": (1.0,)},
        stochastic=True,
    ),
    _method(
        "GraphSCAN-local-scale",
        "graphscan:GraphSCAN",
        "GraphSCAN whose graph keeps about k neighbours in dense and in sparse regions.",
        "this project, after " + _PAPER,
        defaults={"local_scale": True},
        test_grid={**_SMALL, "beta": (0.01,), "lam": (1.0,)},
        stochastic=True,
    ),
    _method(
        "GraphSC",
        "graph_sparse_coding:GraphSC",
        "Sparse coding regularised by a fixed neighbour graph.",
        "Zheng et al. 2011, Graph regularized sparse coding for image representation",
        test_grid={**_SMALL, "beta": (0.01,), "lam": (1.0,)},
        stochastic=True,
    ),
    _method(
        "LogSC",
        "logsc:LogSC",
        "Sparse coding regularised by the graph of a low-rank representation.",
        "baseline of " + _PAPER + "; Liu, Lin, Yu 2010 for the representation",
        test_grid={**_SMALL, "beta": (0.01,)},
        stochastic=True,
    ),
    _method(
        "SparseCoding",
        "sparse_coding:SparseCoding",
        "Dictionary learning with an l1 penalty.",
        "Lee, Battle, Raina, Ng 2006, Efficient sparse coding algorithms",
        test_grid={**_SMALL, "beta": (0.01,)},
        stochastic=True,
    ),
    _method(
        "PCA",
        "labels:RepresentationClustering",
        "k-means on principal components.",
        "baseline of " + _PAPER,
    ),
    _method(
        "KMeans",
        "labels:RepresentationClustering",
        "k-means on the images as they are.",
        "baseline of " + _PAPER,
    ),
    _method(
        "Spectral",
        "spectral:SpectralEmbedding",
        "k-means on the leading eigenvectors of the normalised neighbour graph.",
        "Ng, Jordan, Weiss 2001, On spectral clustering",
        test_grid={"n_neighbors": (5,)},
    ),
)
