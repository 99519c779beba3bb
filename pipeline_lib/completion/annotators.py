"""Annotation models as completion methods: learn from the observed tags, annotate the same images.

The thesis compares with methods of image annotation in this way: the model is trained on the visual
features and the observed tags of the whole gallery and then applied to the gallery (section 4.7.2).
An image is thus among its own neighbours; completion does not rank the tags it brings itself.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from pipeline_lib.annotation.base import Annotator
from pipeline_lib.annotation.fasttag import FastTag
from pipeline_lib.annotation.metric_annotator import MetricAnnotator
from pipeline_lib.annotation.rkml import RKML
from pipeline_lib.annotation.tagprop import TagProp
from pipeline_lib.completion.base import TagCompleter, VisualInput, check_count
from pipeline_lib.errors import InputError
from pipeline_lib.seeds import RandomState

Array = NDArray[np.float64]


class AnnotatorCompleter(TagCompleter):
    """The adapter: ``fit(D, X)`` trains an annotation model and keeps its scores of the same images.

    Attributes
    ----------
    scores_ : ndarray of shape (n, m)
    annotator_ : Annotator
        The fitted model.
    """

    annotator_: Annotator

    @property
    def visual_input(self) -> VisualInput:
        """The features."""
        return "features"

    @abstractmethod
    def _annotator(self) -> Annotator:
        """Return the unfitted annotation model."""

    def _complete(
        self, D: sparse.csr_array, X: Array | None, laplacian: sparse.csr_array | None
    ) -> Array:
        if X is None:
            raise InputError(f"{type(self).__name__} annotates images", expected="features X")
        tags: Any = D
        self.annotator_ = self._annotator().fit(X, tags)
        return self.annotator_.predict(X)


class VisualNeighbors(AnnotatorCompleter):
    """Majority vote of the visually nearest images (vKNN), and of the image itself.

    Parameters
    ----------
    n_neighbors : int, default=50
        Neighbours beside the image itself.

    References
    ----------
    Makadia, Pavlovic and Kumar, Baselines for image annotation, 2010; Feng, thesis, section 4.7.2.
    """

    def __init__(self, n_neighbors: int = 50) -> None:
        self.n_neighbors = n_neighbors

    def _annotator(self) -> Annotator:
        return MetricAnnotator(n_neighbors=check_count("n_neighbors", self.n_neighbors) + 1)


class RKMLCompleter(AnnotatorCompleter):
    """Vote of the neighbours under a kernel metric learned from the observed tags.

    Parameters
    ----------
    gamma, rank, n_components, n_samples, kernel, normalize, vote, n_neighbors, random_state
        As in `pipeline_lib.annotation.rkml.RKML`, whose problem this solves.

    References
    ----------
    Feng, Jin and Jain, Large-scale image annotation by efficient and robust kernel metric learning,
    2013.
    """

    def __init__(
        self,
        gamma: float,
        rank: int,
        n_components: int,
        n_samples: int | None = None,
        kernel: str = "rbf",
        normalize: bool = False,
        vote: str = "similarity",
        n_neighbors: int = 20,
        random_state: RandomState = None,
    ) -> None:
        self.gamma = gamma
        self.rank = rank
        self.n_components = n_components
        self.n_samples = n_samples
        self.kernel = kernel
        self.normalize = normalize
        self.vote = vote
        self.n_neighbors = n_neighbors
        self.random_state = random_state

    def _annotator(self) -> Annotator:
        return RKML(**self.get_params(deep=False))


class TagPropCompleter(AnnotatorCompleter):
    """Weighted vote of the visual neighbours, the weights learned from the observed tags.

    Parameters
    ----------
    weights, n_neighbors, sigmoid, tol, max_iter
        As in `pipeline_lib.annotation.tagprop.TagProp`, whose problem this solves.

    References
    ----------
    Guillaumin, Mensink, Verbeek and Schmid, TagProp, 2009.
    """

    def __init__(
        self,
        weights: str = "distance",
        n_neighbors: int = 200,
        sigmoid: bool = True,
        tol: float = 1e-4,
        max_iter: int = 20,
    ) -> None:
        self.weights = weights
        self.n_neighbors = n_neighbors
        self.sigmoid = sigmoid
        self.tol = tol
        self.max_iter = max_iter

    def _annotator(self) -> Annotator:
        return TagProp(**self.get_params(deep=False))


class FastTagCompleter(AnnotatorCompleter):
    """Two linear maps, from features to completed tags and from tags to tags, that are made to agree.

    Parameters
    ----------
    alpha, gamma, blankout, tol, max_iter
        As in `pipeline_lib.annotation.fasttag.FastTag`, whose problem this solves.

    References
    ----------
    Chen, Zheng and Weinberger, Fast image tagging, 2013.
    """

    def __init__(
        self,
        alpha: float = 0.1,
        gamma: float = 1.0,
        blankout: float = 0.5,
        tol: float = 1e-5,
        max_iter: int = 200,
    ) -> None:
        self.alpha = alpha
        self.gamma = gamma
        self.blankout = blankout
        self.tol = tol
        self.max_iter = max_iter

    def _annotator(self) -> Annotator:
        return FastTag(**self.get_params(deep=False))
