"""Annotation by the neighbours under a learned metric, or under none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone

from pipeline_lib.annotation.base import Annotator
from pipeline_lib.annotation.voting import (
    DISTANCES,
    VOTES,
    check_choice,
    check_neighbors,
    nearest_neighbors,
    propagate,
    vote_weights,
)
from pipeline_lib.metric_learning.base import MetricLearner
from pipeline_lib.metric_learning.constraints import from_tags
from pipeline_lib.metric_learning.learners import make_learner
from pipeline_lib.seeds import RandomState

Array = NDArray[np.float64]


class MetricAnnotator(Annotator):
    """Find the k nearest training images in a mapped space and let them vote.

    A metric learner is fitted on the images and their tags (which it turns into constraints), rows
    are mapped by its ``transform``, and tag w of a query scores the (weighted) number of its
    neighbours that have it. Without a metric this is plain neighbour voting on the rows given:
    Euclid, cosine, or embeddings of your own.

    Parameters
    ----------
    metric : str or estimator with ``fit(X, Y)`` and ``transform(X)``, optional
        A name of `pipeline_lib.metric_learning.learners.LEARNERS`, or an estimator, which is
        cloned and never changed.
    n_neighbors : int, default 20
    vote : {"majority", "similarity"}, default "majority"
        Similarity weighs neighbours as `pipeline_lib.annotation.voting.vote_weights` says.
    distance : {"euclidean", "cosine", "inner"}, default "euclidean"
        In the mapped space.
    metric_params : mapping, optional
        Constructor's arguments of a metric given by name.
    constraints : str, default "clusters"
        How similar and dissimilar images are found by their tags, for a metric learner of this
        project when ``fit`` gets no constraints: one of
        `pipeline_lib.metric_learning.constraints.METHODS`.
    n_clusters : int, default 50
        Groups made by the clustering methods.
    random_state : int, Generator, RandomState or None
        For a metric given by name, if it draws.

    Attributes
    ----------
    metric_ : fitted clone of ``metric``, or None
    embedding_ : ndarray of shape (n, k)
        Mapped training rows.
    tags_ : csr_array of shape (n, m)

    Examples
    --------
    Embeddings made elsewhere (a network's last layer, say) need no metric:

    >>> import numpy as np
    >>> from pipeline_lib.annotation import MetricAnnotator
    >>> embeddings = np.array([[1.0, 0.1], [0.9, 0.0], [0.0, 1.0]])
    >>> tags = np.array([[1, 0, 1], [1, 0, 0], [0, 1, 0]])
    >>> model = MetricAnnotator(n_neighbors=2, distance="cosine").fit(embeddings, tags)
    >>> model.predict([[2.0, 0.1]])
    array([[2., 0., 1.]])
    """

    _state_names = ("embedding_", "tags_")

    def __init__(
        self,
        metric: Any = None,
        n_neighbors: int = 20,
        vote: str = "majority",
        distance: str = "euclidean",
        metric_params: Mapping[str, Any] | None = None,
        constraints: str = "clusters",
        n_clusters: int = 50,
        random_state: RandomState = None,
    ) -> None:
        self.metric = metric
        self.n_neighbors = n_neighbors
        self.vote = vote
        self.distance = distance
        self.metric_params = metric_params
        self.constraints = constraints
        self.n_clusters = n_clusters
        self.random_state = random_state

    def fit(self, X: ArrayLike, Y: Any, constraints: Any = None) -> Self:
        """Fit the metric (on ``constraints`` when given, else on the tags) and keep the images."""
        check_choice(self.vote, VOTES, "vote")
        check_choice(self.distance, DISTANCES, "distance")
        check_neighbors(self.n_neighbors, 1)
        rows, tags = self._check_fit(X, Y)
        self.metric_ = self._unfitted()
        if isinstance(self.metric_, MetricLearner) and self.metric_.supervised:
            if constraints is None:
                constraints = from_tags(
                    tags,
                    self.constraints,
                    X=rows,
                    n_clusters=self.n_clusters,
                    random_state=self.metric_.random_state,
                )
            self.metric_.fit(rows, constraints=constraints)
        elif self.metric_ is not None:
            self.metric_.fit(rows, tags)
        self.embedding_ = self._map(rows)
        self.tags_ = tags
        return self

    def predict(self, X: ArrayLike) -> Array:
        """Votes (n, m) for every tag."""
        mapped = self._map(self._check_predict(X))
        neighbors = nearest_neighbors(mapped, self.embedding_, self.n_neighbors, self.distance)
        weights = vote_weights(neighbors, self.vote, self.distance)
        return propagate(neighbors.indices, weights, self.tags_)

    def _unfitted(self) -> Any:
        if isinstance(self.metric, str):
            return make_learner(self.metric, self.metric_params, self.random_state)
        return None if self.metric is None else clone(self.metric)

    def _map(self, rows: Array) -> Array:
        return rows.copy() if self.metric_ is None else self.metric_.transform(rows)

    def get_state(self) -> dict[str, NDArray[Any]]:
        """Everything ``predict`` needs; the metric's own arrays carry the prefix ``metric.``."""
        state = super().get_state()
        if self.metric_ is not None:
            state.update({f"metric.{k}": v for k, v in self.metric_.get_state().items()})
        return state

    @classmethod
    def from_state(cls, params: Any, state: Any) -> Self:
        """Restore a fitted model from ``get_params()`` and ``get_state()``."""
        model = super().from_state(params, state)
        model.metric_ = None
        learner = model._unfitted()
        if learner is not None:
            prefix = "metric."
            own = {k.removeprefix(prefix): v for k, v in state.items() if k.startswith(prefix)}
            model.metric_ = type(learner).from_state(learner.get_params(deep=False), own)
        return model
