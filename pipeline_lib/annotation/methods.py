"""Methods of image annotation, as the registry lists them."""

from __future__ import annotations

from pipeline_lib.registry import MethodSpec

_THESIS = "Feng, thesis chapter 3 (Feng, Jin, Jain 2013)"


def _method(name: str, target: str, summary: str, source: str, **more: object) -> MethodSpec:
    return MethodSpec(
        name=name,
        kind="annotation",
        target=f"pipeline_lib.annotation.{target}",
        summary=summary,
        source=source,
        **more,  # type: ignore[arg-type]
    )


def _metric(name: str, metric: str, summary: str, source: str, **more: object) -> MethodSpec:
    return _method(
        name,
        "metric_annotator:MetricAnnotator",
        summary,
        source,
        defaults={"metric": metric},
        test_grid={"n_neighbors": (5,)},
        **more,
    )


_KERNEL_GRID = {"gamma": (0.5,), "rank": (10,), "n_components": (4,)}

METHODS = (
    _method(
        "RKML",
        "rkml:RKML",
        "Kernel metric by regression of the tags' semantic similarity, kept to rank r.",
        _THESIS,
        test_grid={**_KERNEL_GRID, "n_samples": (30,)},
        stochastic=True,
    ),
    _method(
        "RKML-unit",
        "rkml:RKML",
        "RKML with embedded rows of unit length, so that similarity is a cosine.",
        "a variant of " + _THESIS,
        test_grid={**_KERNEL_GRID, "n_samples": (30,)},
        defaults={"normalize": True},
        stochastic=True,
    ),
    _method(
        "RKML-direct",
        "rkml:RKML",
        "Scores every tag from r landmarks, without neighbours (Algorithm 1).",
        _THESIS,
        test_grid=_KERNEL_GRID,
        defaults={"vote": "direct"},
        stochastic=True,
    ),
    _method(
        "RLML",
        "rkml:RLML",
        "RKML with the linear kernel.",
        _THESIS,
        test_grid={"rank": (10,), "n_components": (4,)},
    ),
    _method(
        "RKMLO",
        "rkml:RKMLO",
        "RKML on the kernel of all training images, without Nystroem approximation.",
        _THESIS,
        test_grid=_KERNEL_GRID,
    ),
    _method(
        "RKMLH",
        "rkml:RKMLH",
        "RKML on binary constraints, their spectrum clipped.",
        _THESIS,
        test_grid={**_KERNEL_GRID, "n_clusters": (5,)},
        stochastic=True,
    ),
    _method(
        "Euclid",
        "metric_annotator:MetricAnnotator",
        "Votes of the Euclidean nearest neighbours.",
        "baseline of " + _THESIS,
        test_grid={"n_neighbors": (5,)},
    ),
    _method(
        "Cosine",
        "metric_annotator:MetricAnnotator",
        "Similarity-weighted votes of the nearest neighbours by cosine.",
        "Salton, Wong, Yang 1975, A vector space model for automatic indexing",
        test_grid={"n_neighbors": (5,)},
        defaults={"distance": "cosine", "vote": "similarity"},
    ),
    _metric(
        "RCA",
        "rca",
        "Whitens the variation within groups of similar images.",
        "Bar-Hillel, Hertz, Shental, Weinshall 2005",
    ),
    _metric(
        "pRCA",
        "prca",
        "RCA from uncertain memberships of images in groups.",
        "Wu, Hoi, Jin, Zhu, Yu 2009",
    ),
    _metric(
        "DCA",
        "dca",
        "Spreads group means, shrinks the variation within groups.",
        "Hoi, Liu, Lyu, Ma 2006",
    ),
    _metric("LFDA", "lfda", "Fisher discriminants of local scatter.", "Sugiyama 2007"),
    _metric(
        "LMNN",
        "lmnn",
        "Pulls target neighbours, pushes impostors out of their margin.",
        "Weinberger and Saul 2009",
    ),
    _metric(
        "ITML",
        "itml",
        "Nearest metric in LogDet divergence that keeps pairs within bounds.",
        "Davis, Kulis, Jain, Sra, Dhillon 2007",
        stochastic=True,
    ),
    _metric(
        "LDML",
        "ldml",
        "Logistic regression of the same group on the learned distance.",
        "Guillaumin, Verbeek, Schmid 2009",
        stochastic=True,
    ),
    _metric(
        "NCA",
        "nca",
        "Maximises stochastic nearest-neighbour accuracy (scikit-learn).",
        "Goldberger, Roweis, Hinton, Salakhutdinov 2004",
        stochastic=True,
    ),
    _metric(
        "KPCA",
        "kernel-pca",
        "Distance in the leading principal components of the kernel space.",
        "Schoelkopf, Smola, Mueller 1998",
    ),
    _method(
        "TP-R",
        "tagprop:TagProp",
        "TagProp with learned weights by rank and a sigmoid for every tag.",
        "Guillaumin, Mensink, Verbeek, Schmid 2009",
        test_grid={"n_neighbors": (10,)},
        defaults={"weights": "rank"},
    ),
    _method(
        "TP-D",
        "tagprop:TagProp",
        "TagProp with learned weights by distance and a sigmoid for every tag.",
        "Guillaumin, Mensink, Verbeek, Schmid 2009",
        test_grid={"n_neighbors": (10,)},
        defaults={"weights": "distance"},
    ),
    _method(
        "tRel",
        "tag_relevance:TagRelevance",
        "Votes of visual neighbours minus their expectation.",
        "Li, Snoek, Worring 2009",
        test_grid={"n_neighbors": (10,)},
    ),
    _method(
        "JEC",
        "jec:JEC",
        "Label transfer from the nearest images under equally weighted features.",
        "Makadia, Pavlovic, Kumar 2008",
        test_grid={"n_neighbors": (5,)},
    ),
    _method(
        "2PKNN",
        "two_pass_knn:TwoPassKNN",
        "Nearest images of every tag first, then weights by distance.",
        "Verma and Jawahar 2012",
        test_grid={"n_neighbors": (3,)},
    ),
    _method(
        "FastTag",
        "fasttag:FastTag",
        "Linear maps from features and from blanked-out tags that meet.",
        "Chen, Zheng, Weinberger 2013",
        test_grid={"alpha": (0.01,)},
    ),
    _method(
        "SVML",
        "svm:LinearSVMAnnotator",
        "A linear support vector machine for every tag.",
        "baseline of " + _THESIS,
        test_grid={"C": (0.1,)},
        stochastic=True,
    ),
    _method(
        "SVMK",
        "svm:KernelSVMAnnotator",
        "A kernel support vector machine for every tag.",
        "baseline of " + _THESIS,
        test_grid={"gamma": (0.5,), "C": (1.0,)},
        stochastic=True,
    ),
    _method(
        "KernelRidge",
        "ridge:KernelRidgeAnnotator",
        "Least squares of the tags on a kernel.",
        "Saunders, Gammerman, Vovk 1998, Ridge regression learning algorithm in dual variables",
        test_grid={"gamma": (0.5,), "alpha": (1.0,)},
    ),
    _method(
        "Nystroem-Ridge",
        "ridge:NystroemRidge",
        "Least squares of the tags on Nystroem features.",
        "Williams and Seeger 2001, Using the Nystroem method to speed up kernel machines",
        test_grid={"gamma": (0.5,), "n_components": (30,)},
        stochastic=True,
    ),
    _method(
        "Pop",
        "popularity:Popularity",
        "The most frequent tags for every image.",
        "baseline of " + _THESIS,
    ),
)
