"""Regression-based kernel metric learning (RKML) and its variants.

RKML learns a positive semidefinite A that makes kernel similarities of images agree with the
semantic similarity S of their tags,

    min_{A >= 0}  1/2 || S - K A K ||_F^2,     s(x_a, x_b) = phi(x_a)' A phi(x_b),
    phi(x) = [k(x, x_1), .., k(x, x_n)]',

and solves it by A = K_r^+ S K_r^+ with K_r the best rank-r approximation of the n x n kernel matrix
K: r, not a penalty, guards against overfitting. S = Yhat Yhat' comes from weighted tags
(`pipeline_lib.annotation.semantic`), so A = B B' with B = K_r^+ Yhat, and similarities are inner
products of the m'-dimensional rows phi(x)' B. Annotating an image is a nearest-neighbour search in
that space and a vote, or the direct scoring of Algorithm 1.

Source: Z. Feng, R. Jin, A. Jain, "Large-scale image annotation by efficient and robust kernel metric
learning", ICCV 2013; chapter 3 of Feng's thesis (equations 3.2 to 3.7, Algorithm 1).
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pipeline_lib.annotation.base import Annotator, Tags
from pipeline_lib.annotation.kernel_regression import (
    PRECISIONS,
    KernelRectangle,
    evaluate,
    full_coefficients,
    linear_coefficients,
)
from pipeline_lib.annotation.semantic import check_weighting, semantic_embedding, unit_rows
from pipeline_lib.annotation.voting import (
    check_choice,
    check_neighbors,
    nearest_neighbors,
    propagate,
    vote_weights,
)
from pipeline_lib.errors import InputError
from pipeline_lib.kernels.functions import check_kernel
from pipeline_lib.metric_learning.constraints import Constraints, constraint_embedding, from_tags
from pipeline_lib.seeds import RandomState, as_generator

Array = NDArray[np.float64]

RKML_VOTES = ("majority", "similarity", "direct")


class RKML(Annotator):
    """Annotate images with a learned kernel metric (problem at the top of the module).

    Parameters
    ----------
    gamma : float
        Width of the kernel (ignored by kernels without one).
    rank : int
        r, the number of leading kernel directions kept.
    n_components : int
        m', the number of left singular vectors of the weighted tags (the thesis takes .38 m).
    n_samples : int, optional
        n_s, landmarks drawn uniformly from the training rows (the thesis takes 5,000). With it no
        n x n matrix is formed; without it every training row is one (RKMLO).
    kernel : str, default "rbf"
        One of `pipeline_lib.kernels.functions.KERNELS`; the thesis uses rbf, and linear for RLML.
    weighting : str, default "log-entropy"
        One of `pipeline_lib.annotation.semantic.WEIGHTINGS`.
    smoothing : float, default 0
        mu of the smoothed inverse 1 / (sigma^2 + mu) in Algorithm 1, in units of squared kernel
        singular values.
    normalize : bool, default False
        Scale embedded rows to unit length, so that the similarity is a cosine. Not in the thesis:
        long embeddings otherwise become everybody's neighbour.
    vote : {"similarity", "majority", "direct"}, default "similarity"
        Similarity weighs the ``n_neighbors`` nearest training images by their similarity (equation
        3.7), majority weighs them alike. Direct is Algorithm 1: ``T_q = K_q A (K_g' T)(T' T)`` on r
        landmarks, with neither neighbours nor Yhat, r kernel evaluations a query (``n_samples``
        when given).
    n_neighbors : int, default 20
    random_state : int, Generator, RandomState or None
        Draws the landmarks.
    precision : {"double", "single"}, default "double"
        With ``n_samples``: single evaluates kernels and multiplies row blocks in float32 (sums over
        blocks and eigenpairs stay float64), which is about twice as fast; similarities agree to
        about 1e-5. Directions that float32 cannot tell from rounding are left out.

    Attributes
    ----------
    landmarks_ : ndarray of shape (p, d)
        Rows the kernel is evaluated against: all, or the sample (empty for the linear kernel
        without ``n_samples``, which embeds by one matrix).
    coef_ : ndarray of shape (p or d, m')
        B: a row's embedding is its kernel evaluations times ``coef_``.
    embedding_ : ndarray of shape (n, m')
        Embedded training rows.
    tags_ : csr_array of shape (n, m)
        Training tags.
    direct_ : ndarray of shape (p or d, m)
        A (K_g' T)(T' T) when ``vote="direct"``, else empty.

    Raises
    ------
    InputError
        For values out of range, unknown names, NaN or infinity, or tags that are all absent or all
        alike.
    """

    _state_names = ("landmarks_", "coef_", "embedding_", "tags_", "direct_")

    def __init__(
        self,
        gamma: float,
        rank: int,
        n_components: int,
        n_samples: int | None = None,
        kernel: str = "rbf",
        weighting: str = "log-entropy",
        smoothing: float = 0.0,
        normalize: bool = False,
        vote: str = "similarity",
        n_neighbors: int = 20,
        random_state: RandomState = None,
        precision: str = "double",
    ) -> None:
        self.precision = precision
        self.gamma = gamma
        self.rank = rank
        self.n_components = n_components
        self.n_samples = n_samples
        self.kernel = kernel
        self.weighting = weighting
        self.smoothing = smoothing
        self.normalize = normalize
        self.vote = vote
        self.n_neighbors = n_neighbors
        self.random_state = random_state

    def fit(self, X: ArrayLike, Y: Any) -> Self:
        """Learn the metric from rows ``X`` (n, d) and binary tags ``Y`` (n, m)."""
        rows, tags = self._check_fit(X, Y)
        self._check_parameters()
        return self._fit_targets(rows, tags, self._targets(rows, tags))

    def _targets(self, rows: Array, tags: Tags) -> Array:
        """Yhat (n, m'), whose inner products are the semantic similarity."""
        check_weighting(self.weighting)
        return semantic_embedding(tags, self.n_components, self.weighting)

    def _fit_targets(self, rows: Array, tags: Tags, targets: Array) -> Self:
        self.tags_ = tags
        self.landmarks_, sampled = self._choose_landmarks(rows)
        wanted = [targets, tags] if self.vote == "direct" else [targets]
        if sampled:
            rectangle = KernelRectangle(
                rows,
                self.landmarks_,
                kernel=self.kernel,
                gamma=self.gamma,
                precision=self._precision(),
            )
            found = rectangle.coefficients(*wanted, rank=self.rank, smoothing=self.smoothing)
            del targets, wanted  # as large as the embedding that follows
            self.embedding_ = self._scaled(rectangle.apply(found[0]))
        else:
            found = tuple(self._regress(rows, target) for target in wanted)
            self.embedding_ = self._scaled(self._apply(rows, found[0]))
        self.coef_ = found[0]
        self.direct_ = np.empty((0, tags.shape[1]))
        if self.vote == "direct":
            self.direct_ = found[1] @ (tags.T @ tags).toarray()
        return self

    def transform(self, X: ArrayLike) -> Array:
        """Embed rows: inner products of the results are the learned similarity.

        Parameters
        ----------
        X : array of shape (n, d)

        Returns
        -------
        ndarray of shape (n, m')
            Unit rows with ``normalize=True`` (a row the metric does not see stays zero).
        """
        return self._scaled(self._apply(self._check_predict(X), self.coef_))

    def _scaled(self, embedded: Array) -> Array:
        return unit_rows(embedded, out=embedded) if self.normalize else embedded

    def predict(self, X: ArrayLike) -> Array:
        """Relevance (n, m) of every tag for the rows of ``X``; see ``vote``."""
        if self.vote == "direct":
            return self._apply(self._check_predict(X), self.direct_)
        embedded = self.transform(X)
        neighbors = nearest_neighbors(embedded, self.embedding_, self.n_neighbors, "inner")
        return propagate(neighbors.indices, vote_weights(neighbors, self.vote, "inner"), self.tags_)

    def _choose_landmarks(self, rows: Array) -> tuple[Array, bool]:
        """Landmark rows (none for the linear form), and whether they are a sample."""
        size = self.n_samples
        if size is None and self.vote == "direct":
            size = self.rank
        if size is None:
            return (rows[:0] if self.kernel == "linear" else rows.copy()), False
        drawn = as_generator(self.random_state).choice(
            len(rows), size=min(size, len(rows)), replace=False
        )
        return rows[np.sort(drawn)], True

    def _regress(self, rows: Array, targets: Any) -> Array:
        """Coefficients on all rows: of the rows themselves when the kernel is linear."""
        if len(self.landmarks_) == 0:
            return linear_coefficients(rows, targets, self.rank, smoothing=self.smoothing)
        return full_coefficients(
            rows,
            targets,
            self.rank,
            kernel=self.kernel,
            gamma=self.gamma,
            smoothing=self.smoothing,
        )

    def _apply(self, rows: Array, coefficients: Array) -> Array:
        if len(self.landmarks_) == 0:
            return rows @ coefficients
        return evaluate(
            rows,
            self.landmarks_,
            coefficients,
            kernel=self.kernel,
            gamma=self.gamma,
            precision=self._precision(),
        )

    def _precision(self) -> str:
        return "double" if self.n_samples is None else self.precision

    def _check_parameters(self) -> None:
        check_kernel(self.kernel, self.gamma)
        check_choice(self.vote, RKML_VOTES, "vote")
        check_choice(self.precision, PRECISIONS, "precision")
        check_neighbors(self.n_neighbors, 1)
        for name in ("rank", "n_components", "n_samples"):
            value = getattr(self, name)
            if not (name == "n_samples" and value is None) and (value < 1 or int(value) != value):
                raise InputError(f"{name} is {value!r}", expected="a whole number >= 1")
        if not (np.isfinite(self.smoothing) and self.smoothing >= 0):
            raise InputError(f"smoothing is {self.smoothing!r}", expected="a number >= 0")


class RLML(RKML):
    """RKML with the linear kernel: a linear metric, learned without any kernel matrix.

    Parameters
    ----------
    rank, n_components, n_samples, weighting, smoothing, normalize, vote, n_neighbors, random_state
        As in `RKML`.
    """

    kernel = "linear"
    gamma = 1.0
    precision = "double"

    def __init__(
        self,
        rank: int,
        n_components: int,
        n_samples: int | None = None,
        weighting: str = "log-entropy",
        smoothing: float = 0.0,
        normalize: bool = False,
        vote: str = "similarity",
        n_neighbors: int = 20,
        random_state: RandomState = None,
    ) -> None:
        self.rank = rank
        self.n_components = n_components
        self.n_samples = n_samples
        self.weighting = weighting
        self.smoothing = smoothing
        self.normalize = normalize
        self.vote = vote
        self.n_neighbors = n_neighbors
        self.random_state = random_state


class RKMLO(RKML):
    """The original RKML without Nystroem approximation: the kernel of all training rows (n x n).

    Parameters
    ----------
    gamma, rank, n_components, kernel, weighting, smoothing, normalize, vote, n_neighbors
        As in `RKML`; ``vote`` is "similarity" or "majority", as direct scoring has landmarks.
    """

    n_samples = None
    random_state = None
    precision = "double"

    def __init__(
        self,
        gamma: float,
        rank: int,
        n_components: int,
        kernel: str = "rbf",
        weighting: str = "log-entropy",
        smoothing: float = 0.0,
        normalize: bool = False,
        vote: str = "similarity",
        n_neighbors: int = 20,
    ) -> None:
        self.gamma = gamma
        self.rank = rank
        self.n_components = n_components
        self.kernel = kernel
        self.weighting = weighting
        self.smoothing = smoothing
        self.normalize = normalize
        self.vote = vote
        self.n_neighbors = n_neighbors

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_choice(self.vote, ("similarity", "majority"), "vote")


class RKMLH(RKML):
    """RKML on binary constraints: S has 1 for similar, -1 for dissimilar, 0 for unknown pairs.

    Such an S is usually indefinite, and A = K_r^+ S K_r^+ then too. Its spectrum is clipped: S is
    replaced by the nearest positive semidefinite matrix, kept to its ``n_components`` largest
    eigenvalues, S ~ U diag(l) U' and Yhat = U diag(l)^(1/2).

    Parameters
    ----------
    gamma, rank, n_components, n_samples, kernel, smoothing, normalize, vote, n_neighbors, random_state
        As in `RKML`; ``random_state`` also seeds the clustering of tags.
    constraints : str, default "clusters"
        How constraints are made from tags when ``fit`` gets none; one of
        `pipeline_lib.metric_learning.constraints.METHODS`.
    n_clusters : int, default 50
        Groups made by the clustering methods.
    """

    weighting = "log-entropy"
    precision = "double"

    def __init__(
        self,
        gamma: float,
        rank: int,
        n_components: int,
        n_samples: int | None = None,
        kernel: str = "rbf",
        smoothing: float = 0.0,
        normalize: bool = False,
        vote: str = "similarity",
        n_neighbors: int = 20,
        constraints: str = "clusters",
        n_clusters: int = 50,
        random_state: RandomState = None,
    ) -> None:
        self.gamma = gamma
        self.rank = rank
        self.n_components = n_components
        self.n_samples = n_samples
        self.kernel = kernel
        self.smoothing = smoothing
        self.normalize = normalize
        self.vote = vote
        self.n_neighbors = n_neighbors
        self.constraints = constraints
        self.n_clusters = n_clusters
        self.random_state = random_state

    def fit(self, X: ArrayLike, Y: Any, constraints: Constraints | None = None) -> Self:
        """Learn from rows, tags (for the vote) and constraints (made from the tags when absent)."""
        rows, tags = self._check_fit(X, Y)
        self._check_parameters()
        if constraints is None:
            constraints = from_tags(
                tags,
                method=self.constraints,
                X=rows,
                n_clusters=self.n_clusters,
                random_state=self.random_state,
            )
        constraints.check_rows(len(rows))
        return self._fit_targets(rows, tags, constraint_embedding(constraints, self.n_components))
