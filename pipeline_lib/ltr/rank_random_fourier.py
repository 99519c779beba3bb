"""RankSVM on random Fourier features of a shift-invariant kernel.

The problem is that of `ranksvm`; the map is fitted on the training rows and lives inside the model.

References
----------
Chen, Li, Chen, Liao, Ranking support vector machine with kernel approximation, 2017, Algorithms 2 and 3.
"""

from __future__ import annotations

from pipeline_lib.kernels.feature_map import FeatureMap
from pipeline_lib.kernels.fourier import FourierFeatures
from pipeline_lib.ltr.ranksvm import PrimalRanker
from pipeline_lib.seeds import RandomState


class RankRandomFourier(PrimalRanker):
    """RankSVM on random Fourier features of a shift-invariant kernel.

    Parameters
    ----------
    C : float, default 1.0
    gamma : float, default 1.0
        Parameter of the kernel, for the RBF kernel exp(-gamma ||x - y||^2).
    n_components : int, default 500
        Number of features.
    kernel, orthogonal
        See `FourierFeatures`.
    loss, tol, max_iter, memory_mb
        See `RankSVM`.
    random_state : int, Generator, RandomState or None
        For frequencies and phases.

    Attributes
    ----------
    feature_map_ : FourierFeatures
    coef_, duality_gap_, objective_, history_, n_iter_, converged_
        See `RankSVM`.
    """

    def __init__(
        self,
        C: float = 1.0,
        gamma: float = 1.0,
        n_components: int = 500,
        kernel: str = "rbf",
        orthogonal: bool = False,
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
        self.orthogonal = orthogonal
        self.loss = loss
        self.tol = tol
        self.max_iter = max_iter
        self.memory_mb = memory_mb
        self.random_state = random_state

    def _unfitted_map(self) -> FeatureMap:
        return FourierFeatures(
            self.n_components,
            self.gamma,
            self.kernel,
            orthogonal=self.orthogonal,
            random_state=self.random_state,
        )
