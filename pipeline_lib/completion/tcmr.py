"""TCMR: tag completion by noisy matrix recovery."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from pipeline_lib.base import IterativeEstimator
from pipeline_lib.completion.base import TagCompleter, VisualInput, check_count, check_positive
from pipeline_lib.completion.losses import LOSSES, SteepLoss, WeightedLoss
from pipeline_lib.completion.matrix_recovery import (
    LowRankPoint,
    TraceNormRecovery,
    dense_recovery,
)
from pipeline_lib.completion.visual_graph import visual_laplacian
from pipeline_lib.errors import InputError
from pipeline_lib.graphs.simplex import project_simplex
from pipeline_lib.optimize.proximal_gradient import CompositeResult, minimize_composite
from pipeline_lib.optimize.splitting import minimize_by_splitting

Array = NDArray[np.float64]
REGULARIZERS = ("trace", "l1", "frobenius")
SOLVERS = ("splitting", "gradient")

# First step of the splitting for each observed tag of an image (an observed entry weighs 1 / m*);
# residual balancing moves it where it is off.
_STEP_PER_TAG = 5.0
# Under a strong graph term both solvers are bound to its curvature, and the splitting has lost its
# advantage.
_SHORTEST_SPLITTING_STEP = 0.5


class TCMR(TagCompleter, IterativeEstimator):
    """Tag Completion by noisy Matrix Recovery.

    Minimises over real n x m matrices Q the convex

        - sum_ij [ d_ij / m*_i log Q_ij + (1 - d_ij) / (m - m*_i) log(1 - Q_ij) ]
        + (alpha / n) tr(Q' L Q) + lam ||Q||_tr

    d_ij : 1 where tag j of image i is observed, else 0;
    m*_i : number of observed tags of image i, m the size of the vocabulary;
    L : Laplacian of a graph that joins visually similar images;
    ||Q||_tr : sum of the singular values of Q, which draws Q to low rank.

    Row i of Q stands for the multinomial from which the tags of image i are drawn. The simplex it
    lives on is left aside while iterating, and Q is projected onto it at the end; the logarithms
    are continued linearly below ``eps``, each on its own side only.

    Parameters
    ----------
    lam : float
        Weight of the trace norm, above 0.
    alpha : float, default=0.0
        Weight of the graph term. 0 is TCMR0, which looks at the tags alone.
    eps : float, default=1e-3
        Where the linear continuation of the logarithm starts (half-width of the rounded kink for
        the absolute and the hinge loss), in [1e-12, 0.5).
    tol : float, default=1e-8
        Stop when two iterations in a row lower the objective by at most this share. The thesis
        names 1e-5.
    max_iter : int, default=2000
        Largest number of iterations.
    loss : {"likelihood", "absolute", "squares", "hinge", "logistic"}, default="likelihood"
        Loss of an entry, with the same weights (Table 4.4; formulas in `completion.losses`).
    regularizer : {"trace", "l1", "frobenius"}, default="trace"
        Norm of Q (Table 4.3).
    n_neighbors : int or None, default=None
        Neighbours of the visual graph built from X; None is .001 n (see `visual_laplacian`).
    metric : {"euclidean", "chi2"}, default="euclidean"
        Distance of the visual graph; chi-square for histograms.
    solver : {"splitting", "gradient"}, default="splitting"
        "gradient" is accelerated proximal gradient from Q = 0.5 throughout, as in the thesis. Its
        steps are bounded by the steepest logarithm met on the way, which costs thousands of them on
        real tags. "splitting" first goes by three-operator splitting, to which steepness does not
        matter, and finishes by proximal gradient. The minimum is the same. Losses without steep
        parts and dense regularisers always go by proximal gradient.

    Attributes
    ----------
    scores_ : ndarray of shape (n, m)
        Q before the projection; rank tags by it.
    probabilities_ : ndarray of shape (n, m)
        Rows of Q projected onto the probability simplex (computed when first asked for).
    rank_ : int
        Rank of Q (for a dense regulariser its numerical rank).
    objective_, history_, n_iter_, converged_
        As in `IterativeEstimator`; ``history_`` also holds ``rank``, the ``step`` length and
        ``residual``, the norm of the gradient mapping over the norm of the gradient (0 at an
        optimum). The objective is that of the best point so far and never rises.

    Raises
    ------
    InputError
        From ``fit``: bad input, a parameter out of range, or alpha > 0 without a graph.

    References
    ----------
    Feng, Image annotation and tag completion via kernel metric learning and noisy matrix recovery,
    thesis, chapter 4: (4.4), (4.14), Algorithm 2; Ji and Ye, An accelerated gradient method for
    trace norm minimization, 2009.
    """

    rank_: int
    _probabilities: Array | None

    def __init__(
        self,
        lam: float,
        alpha: float = 0.0,
        eps: float = 1e-3,
        tol: float = 1e-8,
        max_iter: int = 2000,
        loss: str = "likelihood",
        regularizer: str = "trace",
        n_neighbors: int | None = None,
        metric: str = "euclidean",
        solver: str = "splitting",
    ) -> None:
        self.lam = lam
        self.alpha = alpha
        self.eps = eps
        self.tol = tol
        self.max_iter = max_iter
        self.loss = loss
        self.regularizer = regularizer
        self.n_neighbors = n_neighbors
        self.metric = metric
        self.solver = solver

    @property
    def visual_input(self) -> VisualInput:
        """A graph where there is a graph term."""
        return "graph" if self.alpha > 0.0 else "none"

    @property
    def probabilities_(self) -> Array:
        """Rows of Q projected onto the probability simplex."""
        if not hasattr(self, "scores_"):
            raise AttributeError("probabilities_ exists after fit")
        if self._probabilities is None:
            self._probabilities = project_simplex(self.scores_)
        return self._probabilities

    def _complete(
        self, D: sparse.csr_array, X: Array | None, laplacian: sparse.csr_array | None
    ) -> Array:
        self._check_parameters()
        self._probabilities = None
        if self.alpha > 0.0 and laplacian is None:
            if X is None:
                raise InputError(
                    f"alpha={self.alpha} asks for a graph over the images",
                    expected="features X or a laplacian",
                    remedy="use alpha=0 for tags alone",
                )
            laplacian = visual_laplacian(X, self.n_neighbors, self.metric)
        loss = WeightedLoss(D, LOSSES[self.loss](self.eps))
        if self.regularizer == "trace":
            return self._recover_low_rank(loss, laplacian)
        return self._recover_dense(loss, laplacian)

    def _check_parameters(self) -> None:
        check_positive("lam", self.lam)
        check_positive("alpha", self.alpha, zero=True)
        check_positive("tol", self.tol, zero=True)
        check_count("max_iter", self.max_iter)
        if not 1e-12 <= self.eps < 0.5:
            raise InputError(f"eps={self.eps!r}", expected="a number in [1e-12, 0.5)")
        if self.loss not in LOSSES:
            raise InputError(f"loss={self.loss!r}", expected=f"one of {', '.join(LOSSES)}")
        for name, allowed in (("regularizer", REGULARIZERS), ("solver", SOLVERS)):
            if getattr(self, name) not in allowed:
                expected = f"one of {', '.join(allowed)}"
                raise InputError(f"{name}={getattr(self, name)!r}", expected=expected)

    def _recover_low_rank(self, loss: WeightedLoss, laplacian: sparse.csr_array | None) -> Array:
        problem = TraceNormRecovery(loss, self.lam, laplacian, self.alpha)
        ranks: list[float] = []

        def note_rank(x: LowRankPoint) -> None:
            ranks.append(x.rank)

        start, first = problem.constant(0.5), None
        if (
            self.solver == "splitting"
            and isinstance(loss.entry, SteepLoss)
            and problem.longest_step >= _SHORTEST_SPLITTING_STEP
        ):
            problem.start_splitting(0.5)
            first = minimize_by_splitting(
                problem,
                step=_STEP_PER_TAG * loss.mean_observed,
                longest_step=problem.longest_step,
                tol=self.tol,
                max_iter=self.max_iter,
                monitor=note_rank,
            )
            start = first.point
        # Proximal gradient confirms the end of the splitting, and improves it if need be.
        result = minimize_composite(
            problem,
            start,
            tol=self.tol,
            max_iter=self.max_iter - (0 if first is None else first.n_iter),
            monitor=note_rank,
        )
        if first is not None:
            result = result.after(first)
        self.rank_ = result.point.rank
        self._record(result, rank=ranks)
        return problem.write_out(result.point)

    def _recover_dense(self, loss: WeightedLoss, laplacian: sparse.csr_array | None) -> Array:
        problem = dense_recovery(loss, self.lam, laplacian, self.alpha, self.regularizer)
        start = np.full((loss.n, loss.m), 0.5)
        result = minimize_composite(problem, start, tol=self.tol, max_iter=self.max_iter)
        self.rank_ = int(np.linalg.matrix_rank(result.point))
        self._record(result)
        return result.point

    def _record(self, result: CompositeResult[Any], **log: list[float]) -> None:
        self._record_convergence(
            {**result.history, **log},
            converged=result.converged,
            n_iter=result.n_iter,
            objective=result.objective,
        )
