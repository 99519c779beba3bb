"""TagProp: tags propagate from weighted neighbours; the weights maximise a likelihood."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import optimize, sparse
from scipy.special import expit

from pipeline_lib.annotation.base import Annotator, Tags
from pipeline_lib.annotation.distances import JointDistance, JointNeighbors
from pipeline_lib.annotation.voting import check_choice, check_neighbors, propagate
from pipeline_lib.base import IterativeEstimator
from pipeline_lib.errors import InputError
from pipeline_lib.graphs.simplex import project_simplex
from pipeline_lib.optimize.proximal_gradient import ArrayProblem, minimize_composite

Array = NDArray[np.float64]

WEIGHTS = ("rank", "distance")

# P(y_iw = 1 | neighbour j) is 1 - _EPSILON if j has the tag, else _EPSILON.
_EPSILON = 1e-5
_SIGMOID_STEPS = 50
_SIGMOID_RIDGE = 1e-10
_INNER_STEPS = 60


class TagProp(IterativeEstimator, Annotator):
    """Weighted nearest neighbours with weights learned from the training images themselves.

    With neighbours j of image i and weights pi_ij >= 0, sum_j pi_ij = 1,

        x_iw = sum_j pi_ij y_jw,      P(y_iw = 1) = eps + (1 - 2 eps) x_iw,
        max  sum_iw c_iw log P(y_iw),   c_iw = 1/n_+ if y_iw = 1 else 1/n_-,

    n_+ and n_- being the numbers of present and absent tags, each image's neighbours leaving it out.
    The weights are one number for each rank, pi_ij = gamma_rank(j) on the simplex (``"rank"``, TP-R), or
    pi_ij proportional to exp(-v' d_ij) with v >= 0 over the base distances d (``"distance"``, TP-D).
    With ``sigmoid`` each tag has its own P(y_iw = 1) = 1 / (1 + exp(-a_w x_iw - b_w)), which lifts
    the recall of rare tags; weights and sigmoids are fitted in turn.

    Parameters
    ----------
    weights : {"distance", "rank"}, default "distance"
    n_neighbors : int, default 200
    sigmoid : bool, default True
    distances : str or sequence of str, default "euclidean"
        As in `pipeline_lib.annotation.distances.JointDistance`.
    groups : sequence of int, optional
        Widths of the feature groups; each group has its own v.
    tol : float, default 1e-4
        Stop when a round of weights and sigmoids lowers the objective by less than this share.
    max_iter : int, default 20
        Rounds of weights and sigmoids.

    Attributes
    ----------
    weights_ : ndarray of shape (n_neighbors,) or (n_groups,)
        gamma, or v for distances in units of their mean over the training neighbours.
    slopes_, offsets_ : ndarrays of shape (m,)
        a and b (empty without ``sigmoid``).
    training_, scales_, tags_, units_
        What prediction reads.
    objective_, history_, n_iter_, converged_
        Minus the weighted log-likelihood after each round; see
        `pipeline_lib.base.IterativeEstimator`.

    Notes
    -----
    Without sigmoids the rank problem is convex and solved by accelerated projected gradient.
    Neighbours are the nearest by joint distance; the simplex and the positivity of v are kept by
    projection. Memory is O(n n_neighbors t) for t tags an image.

    References
    ----------
    M. Guillaumin, T. Mensink, J. Verbeek, C. Schmid, "TagProp: discriminative metric learning in
    nearest neighbor models for image auto-annotation", ICCV 2009.
    """

    _state_names = (
        "weights_",
        "slopes_",
        "offsets_",
        "training_",
        "scales_",
        "tags_",
        "units_",
    )

    def __init__(
        self,
        weights: str = "distance",
        n_neighbors: int = 200,
        sigmoid: bool = True,
        distances: str | Sequence[str] = "euclidean",
        groups: Sequence[int] | None = None,
        tol: float = 1e-4,
        max_iter: int = 20,
    ) -> None:
        self.weights = weights
        self.n_neighbors = n_neighbors
        self.sigmoid = sigmoid
        self.distances = distances
        self.groups = groups
        self.tol = tol
        self.max_iter = max_iter

    def fit(self, X: ArrayLike, Y: Any) -> Self:
        """Learn the weights by leaving each training image out of its own neighbours."""
        check_choice(self.weights, WEIGHTS, "weights")
        check_neighbors(self.n_neighbors, 1)
        rows, tags = self._check_fit(X, Y)
        if tags.nnz == tags.shape[0] * tags.shape[1]:
            raise InputError("every image has every tag", expected="tags that tell images apart")
        self.training_ = rows.copy()
        self.tags_ = tags
        joint = JointDistance(rows, self.distances, self.groups)
        self.scales_ = joint.scales
        neighbors = joint.neighbors(None, self.n_neighbors)
        means = neighbors.base.mean(axis=(1, 2))
        self.units_ = np.where(means > 0, means, 1.0)
        self._learn(neighbors, tags)
        return self

    def _learn(self, neighbors: JointNeighbors, tags: Tags) -> None:
        likelihood = _Likelihood(neighbors.indices, tags)
        base = neighbors.base / self.units_[:, None, None]
        mixing = _RankWeights(base) if self.weights == "rank" else _DistanceWeights(base)
        weights = mixing.optimise(mixing.start(), likelihood)
        objective = [likelihood.value(mixing.weights(weights))]
        converged = not self.sigmoid
        while self.sigmoid and len(objective) < self.max_iter and not converged:
            likelihood.fit_sigmoids(mixing.weights(weights))
            weights = mixing.optimise(weights, likelihood)
            objective.append(likelihood.value(mixing.weights(weights)))
            converged = objective[-2] - objective[-1] <= self.tol * abs(objective[-1])
        self.weights_ = weights
        self.slopes_, self.offsets_ = likelihood.slopes, likelihood.offsets
        self._record_convergence(
            {"objective": objective}, converged=converged, n_iter=len(objective)
        )

    def predict(self, X: ArrayLike) -> Array:
        """P(y = 1) (n, m) of every tag."""
        rows = self._check_predict(X)
        joint = JointDistance(self.training_, self.distances, self.groups, self.scales_)
        neighbors = joint.neighbors(rows, self.n_neighbors)
        if self.weights == "rank":
            used = self.weights_[: neighbors.indices.shape[1]]
            pi = np.tile(used / (used.sum() or 1.0), (len(rows), 1))
        else:
            pi = _softmax_weights(self.weights_, neighbors.base / self.units_[:, None, None])
        votes = propagate(neighbors.indices, pi, self.tags_)
        if not self.sigmoid:
            return _EPSILON + (1.0 - 2.0 * _EPSILON) * votes
        return expit(self.slopes_ * votes + self.offsets_)


class _Likelihood:
    """Balanced negative log-likelihood of the tags as a function of the neighbours' weights.

    Only cells (image, tag) where a neighbour or the image itself has the tag are told apart; all
    other cells of a tag are alike (no vote, tag absent) and are counted. Votes of the cells are a
    fixed sparse matrix times the weights, x = E pi.
    """

    def __init__(self, indices: NDArray[np.int64], tags: Tags) -> None:
        n, k = indices.shape
        m = tags.shape[1]
        found = sparse.coo_array(tags[indices.ravel()])
        slot, tag = found.coords
        voted = (slot // k) * np.int64(m) + tag
        own = sparse.coo_array(tags)
        present = own.coords[0] * np.int64(m) + own.coords[1]
        cells = np.union1d(voted, present)
        at = np.searchsorted(cells, voted)
        self.E = sparse.csr_array((found.data, (at, slot)), shape=(len(cells), n * k))
        self.tag = cells % m
        self.truth = np.zeros(len(cells))
        self.truth[np.searchsorted(cells, present)] = 1.0
        self.cost_present = 1.0 / len(present)
        self.cost_absent = 1.0 / (n * m - len(present))
        self.cost = np.where(self.truth > 0, self.cost_present, self.cost_absent)
        self.rest = self.cost_absent * (n - np.bincount(self.tag, minlength=m))
        self.slopes = np.empty(0)
        self.offsets = np.empty(0)

    def value(self, pi: Array) -> float:
        return self.value_and_gradient(pi)[0]

    def value_and_gradient(self, pi: Array) -> tuple[float, Array]:
        """Objective, and its derivative in every weight (n, k)."""
        votes = self.E @ pi.ravel()
        if len(self.slopes):
            slope = self.slopes[self.tag]
            score = slope * votes + self.offsets[self.tag]
            value = float(self.cost @ _softplus(np.where(self.truth > 0, -score, score)))
            value += float(self.rest @ _softplus(self.offsets))
            derivative = self.cost * (expit(score) - self.truth) * slope
        else:
            p = _EPSILON + (1.0 - 2.0 * _EPSILON) * np.clip(votes, 0.0, 1.0)
            right = np.where(self.truth > 0, p, 1.0 - p)
            value = -float(self.cost @ np.log(right)) - float(self.rest.sum() * np.log1p(-_EPSILON))
            derivative = self.cost * np.where(self.truth > 0, -1.0, 1.0) / right
            derivative *= 1.0 - 2.0 * _EPSILON
        return value, (self.E.T @ derivative).reshape(pi.shape)

    def fit_sigmoids(self, pi: Array) -> None:
        """Newton's method on (a_w, b_w), all tags at once, with a vanishing ridge.

        A tag that is nowhere (or everywhere) among the neighbours leaves its slope undetermined:
        the ridge keeps it, and the iterates of separable tags, finite.
        """
        votes = self.E @ pi.ravel()
        m = len(self.rest)
        a, b = (self.slopes, self.offsets) if len(self.slopes) else (np.ones(m), np.zeros(m))
        loss = self._per_tag(votes, a, b)
        for _ in range(_SIGMOID_STEPS):
            step_a, step_b = self._newton_step(votes, a, b)
            length = np.ones(m)
            while True:
                trial_a, trial_b = a - length * step_a, b - length * step_b
                trial = self._per_tag(votes, trial_a, trial_b)
                worse = (trial > loss * (1.0 + 1e-12)) & (length > 1e-4)
                if not worse.any():
                    break
                length[worse] *= 0.5
            better = trial < loss
            gain = float((loss - trial)[better].sum())
            a, b = np.where(better, trial_a, a), np.where(better, trial_b, b)
            loss = np.where(better, trial, loss)
            if gain <= 1e-6 * float(loss.sum()):
                break
        self.slopes, self.offsets = a, b

    def _newton_step(self, votes: Array, a: Array, b: Array) -> tuple[Array, Array]:
        p = expit(a[self.tag] * votes + b[self.tag])
        p_rest = expit(b)
        error = self.cost * (p - self.truth)
        curvature = self.cost * p * (1.0 - p)
        ga = self._sum(error * votes) + _SIGMOID_RIDGE * a
        gb = self._sum(error) + self.rest * p_rest + _SIGMOID_RIDGE * b
        haa = self._sum(curvature * votes**2) + _SIGMOID_RIDGE
        hab = self._sum(curvature * votes)
        hbb = self._sum(curvature) + self.rest * p_rest * (1.0 - p_rest) + _SIGMOID_RIDGE
        determinant = haa * hbb - hab**2
        return (hbb * ga - hab * gb) / determinant, (haa * gb - hab * ga) / determinant

    def _per_tag(self, votes: Array, a: Array, b: Array) -> Array:
        score = a[self.tag] * votes + b[self.tag]
        loss = self._sum(self.cost * _softplus(np.where(self.truth > 0, -score, score)))
        return loss + self.rest * _softplus(b) + 0.5 * _SIGMOID_RIDGE * (a**2 + b**2)

    def _sum(self, values: Array) -> Array:
        sums = np.bincount(self.tag, weights=values, minlength=len(self.rest))
        return sums.astype(np.float64, copy=False)


class _RankWeights:
    """One weight for each rank, on the simplex: pi_ij = gamma_rank(j)."""

    def __init__(self, base: Array) -> None:
        self.shape = base.shape[1:]

    def start(self) -> Array:
        return np.full(self.shape[1], 1.0 / self.shape[1])

    def weights(self, gamma: Array) -> Array:
        return np.broadcast_to(gamma, self.shape)

    def optimise(self, gamma: Array, likelihood: _Likelihood) -> Array:
        def smooth(point: Array) -> tuple[float, Array]:
            value, gradient = likelihood.value_and_gradient(self.weights(point))
            return value, gradient.sum(axis=0)

        def project(point: Array, step: float) -> tuple[Array, float]:
            return project_simplex(point), 0.0

        problem = ArrayProblem(smooth, project, lambda point: 0.0)
        result = minimize_composite(problem, gamma, step=1e-3, tol=1e-6, max_iter=_INNER_STEPS)
        return result.point


class _DistanceWeights:
    """pi_ij proportional to exp(-v' d_ij): one decay rate for each base distance."""

    def __init__(self, base: Array) -> None:
        self.base = base

    def start(self) -> Array:
        return np.ones(len(self.base))

    def weights(self, v: Array) -> Array:
        return _softmax_weights(v, self.base)

    def optimise(self, v: Array, likelihood: _Likelihood) -> Array:
        def objective(point: Array) -> tuple[float, Array]:
            pi = self.weights(point)
            value, slope = likelihood.value_and_gradient(pi)
            # d pi_ij / d v_b = pi_ij (mean_b - d_ijb), the mean taken under pi_i.
            pull = pi * slope
            total = pull.sum(axis=1)
            gradient = [
                float(total @ np.einsum("ik,ik->i", pi, d) - np.vdot(pull, d)) for d in self.base
            ]
            return value, np.array(gradient)

        result = optimize.minimize(
            objective,
            v,
            jac=True,
            method="L-BFGS-B",
            bounds=[(0.0, None)] * len(v),
            options={"maxiter": _INNER_STEPS},
        )
        return np.asarray(result.x) if result.fun <= objective(v)[0] else v


def _softmax_weights(v: Array, base: Array) -> Array:
    """exp(-v' d) normalised over the neighbours of each image."""
    energy = np.tensordot(v, base, axes=1)
    energy -= energy.min(axis=1, keepdims=True)
    weights = np.exp(-energy)
    return weights / weights.sum(axis=1, keepdims=True)


def _softplus(score: Array) -> Array:
    """log(1 + exp(score)); several times faster than ``np.logaddexp(0, score)``."""
    return np.maximum(score, 0.0) + np.log1p(np.exp(-np.abs(score)))
