"""Annotation models: images in, a relevance score for every tag out."""

from pipeline_lib.annotation.base import Annotator
from pipeline_lib.annotation.fasttag import FastTag
from pipeline_lib.annotation.jec import JEC
from pipeline_lib.annotation.metric_annotator import MetricAnnotator
from pipeline_lib.annotation.popularity import Popularity
from pipeline_lib.annotation.ridge import KernelRidgeAnnotator, NystroemRidge
from pipeline_lib.annotation.rkml import RKML, RKMLH, RKMLO, RLML
from pipeline_lib.annotation.semantic import semantic_embedding, semantic_similarity
from pipeline_lib.annotation.svm import KernelSVMAnnotator, LinearSVMAnnotator
from pipeline_lib.annotation.tag_relevance import TagRelevance
from pipeline_lib.annotation.tagprop import TagProp
from pipeline_lib.annotation.two_pass_knn import TwoPassKNN

__all__ = [
    "JEC",
    "RKML",
    "RKMLH",
    "RKMLO",
    "RLML",
    "Annotator",
    "FastTag",
    "KernelRidgeAnnotator",
    "KernelSVMAnnotator",
    "LinearSVMAnnotator",
    "MetricAnnotator",
    "NystroemRidge",
    "Popularity",
    "TagProp",
    "TagRelevance",
    "TwoPassKNN",
    "semantic_embedding",
    "semantic_similarity",
]
