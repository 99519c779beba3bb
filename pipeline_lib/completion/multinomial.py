"""The recovery problem of which Theorem 4.1 speaks, with its domain, and the estimate it is set against.

TCMR as it is used drops the domain and weighs the absence of tags; the theory is about the problem
before these changes: recover the multinomials from which tags were drawn, by likelihood alone.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, sparse

from pipeline_lib.base import IterativeEstimator
from pipeline_lib.completion.base import TagCompleter, check_count, check_positive
from pipeline_lib.optimize.singular_values import shrink_singular_values
from pipeline_lib.optimize.splitting import SplittingStep, minimize_by_splitting

Array = NDArray[np.float64]

_MAX_PASSES = 100  # of Newton's method, which needs about ten; rounding must not keep it going


class MultinomialRecovery(TagCompleter, IterativeEstimator):
    """Low-rank maximum likelihood of one multinomial for each image (TCMR on the simplex).

        min_Q  - sum_ij d_ij / m*_i log Q_ij + lam ||Q||_tr
        over Q >= 0 with rows that sum to one

    d_ij : how often tag j was drawn for image i; m*_i : draws of image i;
    ||Q||_tr : sum of the singular values of Q.

    Solved by three-operator splitting: one half is the likelihood with the domain (a proximal
    operator with one multiplier a row, found by Newton's method), the other is the trace norm.

    Parameters
    ----------
    lam : float
        Weight of the trace norm, above 0.
    tol : float, default=1e-7
        Stop when two iterations in a row change the objective by at most this share.
    max_iter : int, default=3000

    Attributes
    ----------
    scores_ : ndarray of shape (n, m)
        Q; rows are probabilities (uniform where no tag was drawn and no other image says more).
    rank_ : int
        Rank of the point at which the trace norm was last evaluated; Q tends to it.
    objective_, history_, n_iter_, converged_
        As in `IterativeEstimator`, of the best Q so far.

    References
    ----------
    Feng, thesis, (4.3) with the domain (4.2), Theorem 4.1.
    """

    takes_counts = True
    rank_: int

    def __init__(self, lam: float, tol: float = 1e-7, max_iter: int = 3000) -> None:
        self.lam = lam
        self.tol = tol
        self.max_iter = max_iter

    def _complete(
        self, D: sparse.csr_array, X: Array | None, laplacian: sparse.csr_array | None
    ) -> Array:
        check_positive("lam", self.lam)
        check_positive("tol", self.tol, zero=True)
        problem = _SimplexProblem(relative_counts(D), self.lam)
        # An observed entry has weight 1 / m* and ends near the size of a probability, 1 / m or more.
        result = minimize_by_splitting(
            problem,
            step=1.0 / D.shape[1],
            tol=self.tol,
            max_iter=check_count("max_iter", self.max_iter),
        )
        self.rank_ = problem.rank
        self._record_convergence(
            result.history,
            converged=result.converged,
            n_iter=result.n_iter,
            objective=result.objective,
        )
        return result.point


class MaximumLikelihood(TagCompleter):
    """Maximum likelihood of each image alone: the share of its draws that a tag has.

    It gives every tag that was not observed on an image the probability 0, and so completes nothing:
    it stands for what is known without the other images.

    Attributes
    ----------
    scores_ : ndarray of shape (n, m)
        Rows are probabilities (0 for an image without tags).

    References
    ----------
    Feng, thesis, (4.6) without bounds, section 4.4.1.
    """

    takes_counts = True

    def _complete(
        self, D: sparse.csr_array, X: Array | None, laplacian: sparse.csr_array | None
    ) -> Array:
        return relative_counts(D)


def relative_counts(D: sparse.csr_array) -> Array:
    """Return d_ij / m*_i; rows without a draw are 0."""
    counts = D.toarray()
    return counts / np.maximum(counts.sum(axis=1, keepdims=True), 1.0)


def prox_likelihood_on_simplex(V: Array, weights: Array) -> Array:
    """Proximal operator of minus a weighted log-likelihood of rows on the probability simplex.

        argmin_q  - sum_j w_j log q_j + 1/2 ||q - v||^2   over q >= 0 with sum_j q_j = 1,

    row by row. With the multiplier nu of the sum, q_j solves q_j^2 - (v_j - nu) q_j - w_j = 0; the
    sum falls in nu and is convex, so Newton's method from the left does not overshoot.

    Parameters
    ----------
    V : ndarray of shape (n, m)
    weights : ndarray of shape (n, m)
        Not negative; where all are 0 this is the projection onto the simplex.

    Returns
    -------
    ndarray of shape (n, m)
    """
    multiplier = V.max(axis=1, keepdims=True) - 1.0
    for _ in range(_MAX_PASSES):
        shifted = V - multiplier
        root = np.sqrt(shifted * shifted + 4.0 * weights)
        q = 0.5 * (shifted + root)
        excess = q.sum(axis=1, keepdims=True) - 1.0
        if np.abs(excess).max() <= 1e-13 * V.shape[1]:
            break
        slope = 0.5 * (1.0 + np.divide(shifted, root, out=np.zeros_like(root), where=root > 0.0))
        multiplier += excess / np.maximum(slope.sum(axis=1, keepdims=True), 1e-12)
    return q / q.sum(axis=1, keepdims=True)


class _SimplexProblem:
    """The two halves of the problem for the splitting; holds the governing variable."""

    def __init__(self, weights: Array, lam: float) -> None:
        self.weights = weights
        self.lam = lam
        self.rank = 0
        n, m = weights.shape
        self._b = np.full((n, m), 1.0 / m)

    def shrink(self, step: float) -> Array:
        """Return the proximal operator of the likelihood with its domain at b."""
        return prox_likelihood_on_simplex(self._b, step * self.weights)

    def reflect(self, x: Array, step: float, relaxation: float) -> SplittingStep:
        """Apply the proximal operator of the trace norm to the reflection of x, move b."""
        subgradient_norm = float(np.linalg.norm(self._b - x)) / step
        shrunk = shrink_singular_values(2.0 * x - self._b, self.lam * step)
        self.rank = len(shrunk.singular_values)
        y = shrunk.left @ shrunk.right.T
        y -= x
        self._b += relaxation * y
        drawn = self.weights > 0.0
        loss = -float(self.weights[drawn] @ np.log(x[drawn]))
        trace_norm = float(linalg.svdvals(x).sum())
        return SplittingStep(
            objective=loss + self.lam * trace_norm,
            gap=float(np.linalg.norm(y)),
            subgradient_norm=subgradient_norm,
        )

    def stretch(self, x: Array, ratio: float) -> None:
        """Stretch b about x."""
        self._b = x + ratio * (self._b - x)

    def distance(self, x: Array, previous: Array) -> float:
        """Return ||x - previous||."""
        return float(np.linalg.norm(x - previous))
