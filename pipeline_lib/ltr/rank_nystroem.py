"""RankSVM on the Nystroem approximation of a kernel.

The problem is that of `ranksvm`; the map is fitted on the training rows and lives inside the model.

References
----------
Chen, Li, Chen, Liao, Ranking support vector machine with kernel approximation, 2017, Algorithms 1 and 3.
"""

from __future__ import annotations

from pipeline_lib.kernels.feature_map import FeatureMap
from pipeline_lib.kernels.nystroem import Nystroem
from pipeline_lib.ltr.ranksvm import PrimalRanker
from pipeline_lib.seeds import RandomState


class RankNystroem(PrimalRanker):
    """RankSVM on a Nystroem map of a kernel, fitted on the training rows.

    Parameters
    ----------
    C : float, default 1.0
    gamma : float, default 1.0
        Parameter of the kernel, for the RBF kernel exp(-gamma ||x - y||^2).
    n_components : int, default 500
        Number of landmarks.
    kernel, rank, cutoff, landmarks
        See `Nystroem`.
    loss, tol, max_iter, memory_mb
        See `RankSVM`.
    random_state : int, Generator, RandomState or None
        For the landmarks.

    Attributes
    ----------
    feature_map_ : Nystroem
    coef_, duality_gap_, objective_, history_, n_iter_, converged_
        See `RankSVM`.
    """

    def __init__(
        self,
        C: float = 1.0,
        gamma: float = 1.0,
        n_components: int = 500,
        kernel: str = "rbf",
        rank: int | None = None,
        cutoff: float = 1e-6,
        landmarks: str = "uniform",
        loss: str = "squared_hinge",
        tol: float | None = None,
        max_iter: int = 100,
        memory_mb: int = 4096,
        random_state: RandomState = None,
    ) -> None:
        self.C = C
        self.gamma = gamma
        self.n_components = n_components
        self.kernel = kernel
        self.rank = rank
        self.cutoff = cutoff
        self.landmarks = landmarks
        self.loss = loss
        self.tol = tol
        self.max_iter = max_iter
        self.memory_mb = memory_mb
        self.random_state = random_state

    def _unfitted_map(self) -> FeatureMap:
        return Nystroem(
            self.n_components,
            self.gamma,
            self.kernel,
            self.rank,
            self.cutoff,
            self.landmarks,
            random_state=self.random_state,
        )
