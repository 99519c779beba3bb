"""Methods of tag completion, as the registry lists them."""

from __future__ import annotations

from pipeline_lib.registry import MethodSpec

_THESIS = "Feng, thesis chapter 4 (Feng, Feng, Jin, Jain 2014)"


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
        "Zhu, Yan, Ma 2010, Image tag refinement towards low-rank, content-tag prior and error sparsity",
        test_grid={"l1": (1.0,)},
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
