"""Relevant component analysis (RCA) and its probabilistic form (pRCA)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from pipeline_lib.base import IterativeEstimator
from pipeline_lib.errors import InputError
from pipeline_lib.metric_learning.base import (
    LinearMetricLearner,
    check_components,
    group_means,
    whitening,
)
from pipeline_lib.metric_learning.constraints import UNKNOWN

Array = NDArray[np.float64]


class RCA(LinearMetricLearner):
    """Whiten the variation within groups of similar rows.

    With chunklets H_1..H_g of p rows in all and their means m_j,

        C = 1/p sum_j sum_{x in H_j} (x - m_j)(x - m_j)',     M = C^{-1},  L = C^{-1/2}:

    directions along which similar rows vary (irrelevant ones) are shrunk. C^{-1} maximises the
    likelihood of Gaussian groups with one covariance.

    Parameters
    ----------
    n_components : int, optional
        Keep the directions of least variation within groups; all by default.
    ridge : float, default 1e-3
        Added to C as a share of its mean eigenvalue; 0 is the definition, with directions without
        any variation left out.

    Attributes
    ----------
    components_ : ndarray of shape (k, d)
        L, least variation first; without ``n_components`` Euclidean distance in the image is
        exactly the distance of ``metric_``.

    References
    ----------
    A. Bar-Hillel, T. Hertz, N. Shental, D. Weinshall, "Learning a Mahalanobis metric from
    equivalence constraints", JMLR 6, 2005.
    """

    def __init__(self, n_components: int | None = None, ridge: float = 1e-3) -> None:
        self.n_components = n_components
        self.ridge = ridge

    def _fit(self, X: Array, constraints: Any) -> None:
        _, _, centred = group_means(X, constraints.require_groups("RCA"))
        values, vectors = whitening(centred.T @ centred / len(centred), self.ridge)
        kept = check_components(self.n_components, len(values))
        self.components_ = (vectors[:, :kept] / np.sqrt(values[:kept])).T


class PRCA(IterativeEstimator, LinearMetricLearner):
    """Probabilistic RCA: learn from uncertain memberships of rows in groups.

    Row i belongs to group k with given probability q_ik (uncertain side information). Groups are
    Gaussian around unknown centres mu_k with one covariance M^{-1}; the metric maximises

        sum_i log sum_k q_ik N(x_i; mu_k, M^{-1})

    by expectation maximisation: p_ik proportional to q_ik exp(-d_M(x_i, mu_k)^2 / 2), then
    mu_k = sum_i p_ik x_i / sum_i p_ik and M^{-1} = sum_ik p_ik (x_i - mu_k)(x_i - mu_k)' / sum p.
    With certain memberships it ends after one step, at RCA.

    Parameters
    ----------
    ridge : float, default 1e-3
        Added to the covariance as a share of its mean eigenvalue.
    tol : float, default 1e-5
        Stop when the objective falls by at most this share.
    max_iter : int, default 100

    Attributes
    ----------
    components_ : ndarray of shape (k, d)
    centers_ : ndarray of shape (groups, d)
    objective_, history_, n_iter_, converged_
        Minus the mean log-likelihood; see `pipeline_lib.base.IterativeEstimator`.

    Notes
    -----
    Memberships come from `Constraints.memberships` (as the probabilistic clustering of tags makes
    them); groups without them are certain. The covariance is regularised in every step, so with
    ``ridge > 0`` the likelihood can in principle fall by the order of the ridge.

    References
    ----------
    L. Wu, S. Hoi, R. Jin, J. Zhu, N. Yu, "Distance metric learning from uncertain side information
    with application to automated photo tagging", ACM Multimedia 2009. The likelihood above is our
    reading: the model (uncertain chunklets with latent centres around one metric) is theirs.
    """

    def __init__(self, ridge: float = 1e-3, tol: float = 1e-5, max_iter: int = 100) -> None:
        self.ridge = ridge
        self.tol = tol
        self.max_iter = max_iter

    def _fit(self, X: Array, constraints: Any) -> None:
        prior, rows = _memberships(X, constraints)
        with np.errstate(divide="ignore"):
            log_prior = np.log(prior)
        responsibility = prior
        objective: list[float] = []
        converged = False
        for _ in range(self.max_iter):
            components = self._maximise(rows, responsibility)
            log_joint = log_prior + self._log_density(rows, components)
            likelihood = logsumexp(log_joint, axis=1, keepdims=True)
            responsibility = np.exp(log_joint - likelihood)
            objective.append(-float(likelihood.mean()))
            self.components_ = components
            converged = len(objective) > 1 and (
                objective[-2] - objective[-1] <= self.tol * abs(objective[-1])
            )
            if converged:
                break
        self._record_convergence(
            {"objective": objective}, converged=converged, n_iter=len(objective)
        )

    def _maximise(self, rows: Array, responsibility: Array) -> Array:
        mass = responsibility.sum(axis=0)
        present = mass > 1e-8
        self.centers_ = np.full((len(mass), rows.shape[1]), rows.mean(axis=0))
        self.centers_[present] = (responsibility[:, present].T @ rows) / mass[present, None]
        # sum p (x - mu)(x - mu)' = X'X - sum_k mass_k mu_k mu_k', as every row's p sums to 1
        # and mu_k are the weighted means; centring first keeps the difference accurate.
        centre = rows.mean(axis=0)
        shifted, centers = rows - centre, self.centers_ - centre
        within = shifted.T @ shifted - centers.T @ (mass[:, None] * centers)
        values, vectors = whitening(within / len(rows), self.ridge)
        return (vectors / np.sqrt(values)).T

    def _log_density(self, rows: Array, components: Array) -> Array:
        mapped, centers = rows @ components.T, self.centers_ @ components.T
        squares = (
            np.einsum("ij,ij->i", mapped, mapped)[:, None]
            - 2.0 * mapped @ centers.T
            + np.einsum("ij,ij->i", centers, centers)
        )
        # |M| through the singular values of L: L has orthogonal rows 1 / sqrt(eigenvalue).
        log_det = np.log(np.einsum("ij,ij->i", components, components)).sum()
        return 0.5 * (log_det - squares - components.shape[0] * np.log(2.0 * np.pi))


def _memberships(X: Array, constraints: Any) -> tuple[Array, Array]:
    """Memberships of the rows about which something is known, and those rows."""
    groups = constraints.require_groups("pRCA")
    known = groups != UNKNOWN
    if constraints.memberships is None:
        prior = np.zeros((len(groups), int(groups.max()) + 1))
        prior[np.flatnonzero(known), groups[known]] = 1.0
    else:
        prior = np.asarray(constraints.memberships, dtype=np.float64)
        if prior.shape[0] != len(groups) or prior.min() < 0 or not np.isfinite(prior).all():
            raise InputError("memberships are not probabilities", expected="values in [0, 1]")
        known = prior.sum(axis=1) > 0
    prior = prior[known]
    return prior / prior.sum(axis=1, keepdims=True), X[known]
