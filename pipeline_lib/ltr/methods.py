"""Methods of learning to rank, as the registry lists them."""

from __future__ import annotations

from pipeline_lib.registry import MethodSpec

_PAPER = "Chen et al. 2017, Ranking Support Vector Machine with Kernel Approximation"
_NYSTROEM = ("gamma", "n_components", "kernel", "rank", "cutoff", "landmarks")
_FOURIER = ("gamma", "n_components", "kernel")

METHODS = (
    MethodSpec(
        name="RankSVM",
        kind="ltr",
        target="pipeline_lib.ltr.ranksvm:RankSVM",
        summary="Linear RankSVM in the primal: truncated Newton on the pairwise squared hinge.",
        source="Chapelle and Keerthi 2010, Efficient algorithms for ranking with SVMs; " + _PAPER,
        test_grid={"C": (0.01, 1.0)},
    ),
    MethodSpec(
        name="RankNystroem",
        kind="ltr",
        target="pipeline_lib.ltr.ranksvm:RankNystroem",
        summary="RankSVM on the Nystroem map of a kernel.",
        source=_PAPER,
        test_grid={"C": (0.01, 1.0), "gamma": (0.1,), "n_components": (20,)},
        feature_map="pipeline_lib.kernels.nystroem:Nystroem",
        map_parameters=_NYSTROEM,
        solver="pipeline_lib.ltr.ranksvm:RankSVM",
        stochastic=True,
    ),
    MethodSpec(
        name="RankRandomFourier",
        kind="ltr",
        target="pipeline_lib.ltr.ranksvm:RankRandomFourier",
        summary="RankSVM on random Fourier features of a shift-invariant kernel.",
        source=_PAPER,
        test_grid={"C": (0.01, 1.0), "gamma": (0.1,), "n_components": (50,)},
        feature_map="pipeline_lib.kernels.fourier:FourierFeatures",
        map_parameters=_FOURIER,
        solver="pipeline_lib.ltr.ranksvm:RankSVM",
        stochastic=True,
    ),
)
