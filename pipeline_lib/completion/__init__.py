"""Tag completion: from part of the tags of every image, rank the others."""

from pipeline_lib.completion.als import ImplicitALS
from pipeline_lib.completion.annotators import (
    FastTagCompleter,
    RKMLCompleter,
    TagPropCompleter,
    VisualNeighbors,
)
from pipeline_lib.completion.base import TagCompleter
from pipeline_lib.completion.cooccurrence import CoOccurrence, ItemCosine
from pipeline_lib.completion.ease import EASE
from pipeline_lib.completion.frequency import Frequency
from pipeline_lib.completion.latent_dirichlet import LatentDirichlet
from pipeline_lib.completion.latent_semantic import LatentSemanticAnalysis
from pipeline_lib.completion.lres import LRES, LRES0
from pipeline_lib.completion.multinomial import MaximumLikelihood, MultinomialRecovery
from pipeline_lib.completion.plsa import ProbabilisticLSA
from pipeline_lib.completion.tag_neighbors import TagNeighbors
from pipeline_lib.completion.tcmr import TCMR
from pipeline_lib.completion.tcmr_linear import TCMRLinear
from pipeline_lib.completion.tcmr_regression import TCMRRegression

__all__ = [
    "EASE",
    "LRES",
    "LRES0",
    "TCMR",
    "CoOccurrence",
    "FastTagCompleter",
    "Frequency",
    "ImplicitALS",
    "ItemCosine",
    "LatentDirichlet",
    "LatentSemanticAnalysis",
    "MaximumLikelihood",
    "MultinomialRecovery",
    "ProbabilisticLSA",
    "RKMLCompleter",
    "TCMRLinear",
    "TCMRRegression",
    "TagCompleter",
    "TagNeighbors",
    "TagPropCompleter",
    "VisualNeighbors",
]
