"""Methods of tag completion, as the registry lists them."""

from __future__ import annotations

from pipeline_lib.registry import MethodSpec

_THESIS = "Feng, thesis chapter 4 (Feng, Feng, Jin, Jain 2014)"
_LRES = (
    "Zhu, Yan, Ma 2010, Image tag refinement towards low-rank, content-tag prior and error sparsity"
)


def _method(name: str, target: str, summary: str, source: str, **more: object) -> MethodSpec:
    return MethodSpec(
        name=name,
        kind="completion",
        target=f"pipeline_lib.completion.{target}",
        summary=summary,
        source=source,
        **more,  # type: ignore[arg-type]
    )


METHODS = (
    _method(
        "TCMR0",
        "tcmr:TCMR",
        "Noisy matrix recovery: multinomial likelihood with a trace norm, tags only.",
        _THESIS,
        test_grid={"lam": (1.0, 3.0)},
        defaults={"alpha": 0.0},
    ),
    _method(
        "TCMR",
        "tcmr:TCMR",
        "Noisy matrix recovery with a graph term over visually similar images.",
        _THESIS,
        test_grid={"lam": (1.0,), "alpha": (0.1,)},
        defaults={"alpha": 0.1},
    ),
    _method(
        "TCMR-lr",
        "tcmr_linear:TCMRLinear",
        "TCMR0 mixed with a vote of visual neighbours.",
        _THESIS,
        test_grid={"lam": (1.0,), "n_neighbors": (10,)},
    ),
    _method(
        "TCMR-simplex",
        "multinomial:MultinomialRecovery",
        "The problem of the theory: likelihood with a trace norm over rows on the simplex.",
        _THESIS,
        test_grid={"lam": (15.0,)},
    ),
    _method(
        "MaximumLikelihood",
        "multinomial:MaximumLikelihood",
        "The observed share of each tag, image by image: what is known without other images.",
        _THESIS,
    ),
    _method(
        "TCMR-regression",
        "tcmr_regression:TCMRRegression",
        "A mixture of TCMR0 with closed-form item regression.",
        "a variant of " + _THESIS,
        test_grid={"lam": (2.0,)},
    ),
    _method(
        "Frequency",
        "frequency:Frequency",
        "The most frequent tags for every image.",
        "baseline of " + _THESIS,
    ),
    _method(
        "LSA",
        "latent_semantic:LatentSemanticAnalysis",
        "Truncated singular value decomposition of the tags.",
        "Deerwester et al. 1990, Indexing by latent semantic analysis",
        test_grid={"n_components": (3,)},
    ),
    _method(
        "pLSA",
        "plsa:ProbabilisticLSA",
        "Multinomial mixture of topics by expectation maximisation.",
        "Hofmann 1999, Probabilistic latent semantic analysis",
        test_grid={"n_components": (3,)},
        stochastic=True,
    ),
    _method(
        "LDA",
        "latent_dirichlet:LatentDirichlet",
        "Topics with Dirichlet priors.",
        "Blei, Ng, Jordan 2003, Latent Dirichlet allocation",
        test_grid={"n_components": (3,)},
        stochastic=True,
    ),
    _method(
        "tKNN",
        "tag_neighbors:TagNeighbors",
        "Vote of the images with the most similar tags.",
        "baseline of " + _THESIS,
        test_grid={"n_neighbors": (10,)},
    ),
    _method(
        "LRES0",
        "lres:LRES0",
        "Low-rank part plus sparse error of the tag matrix, tags only.",
        _LRES,
        test_grid={"l1": (1.0,)},
    ),
    _method(
        "LRES",
        "lres:LRES",
        "Low-rank part plus sparse error of the tag matrix, with a graph of similar images.",
        _LRES,
        test_grid={"l1": (1.0,)},
    ),
    _method(
        "vKNN",
        "annotators:VisualNeighbors",
        "Vote of the visually nearest images.",
        "Makadia, Pavlovic, Kumar 2010, Baselines for image annotation",
        test_grid={"n_neighbors": (10,)},
    ),
    _method(
        "TagProp",
        "annotators:TagPropCompleter",
        "Vote of the visual neighbours with learned weights.",
        "Guillaumin, Mensink, Verbeek, Schmid 2009, TagProp",
        test_grid={"n_neighbors": (10,)},
    ),
    _method(
        "FastTag",
        "annotators:FastTagCompleter",
        "Two linear maps, from features and from tags to completed tags.",
        "Chen, Zheng, Weinberger 2013, Fast image tagging",
        test_grid={"gamma": (1.0,)},
    ),
    _method(
        "RKML",
        "annotators:RKMLCompleter",
        "Vote of the neighbours under a kernel metric learned from the tags.",
        "Feng, thesis chapter 3 (Feng, Jin, Jain 2013)",
        test_grid={"gamma": (0.5,), "rank": (10,), "n_components": (4,)},
        stochastic=True,
    ),
    _method(
        "CoOccurrence",
        "cooccurrence:CoOccurrence",
        "Sum over the observed tags of the probability of a tag given each.",
        "Sigurbjoernsson and van Zwol 2008, Flickr tag recommendation based on collective knowledge",
    ),
    _method(
        "ItemCosine",
        "cooccurrence:ItemCosine",
        "Sum over the observed tags of the cosine between tags.",
        "Sarwar, Karypis, Konstan, Riedl 2001, Item-based collaborative filtering",
    ),
    _method(
        "EASE",
        "ease:EASE",
        "Closed-form linear regression of each tag on the others.",
        "Steck 2019, Embarrassingly shallow autoencoders for sparse data",
        test_grid={"l2": (10.0,)},
    ),
    _method(
        "ALS",
        "als:ImplicitALS",
        "Implicit-feedback factorisation by alternating least squares.",
        "Hu, Koren, Volinsky 2008, Collaborative filtering for implicit feedback datasets",
        test_grid={"n_components": (3,)},
        stochastic=True,
    ),
)
