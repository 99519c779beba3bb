"""TCMR with item regression: a variant of this project, for tags alone."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from pipeline_lib.completion.base import TagCompleter
from pipeline_lib.completion.ease import EASE
from pipeline_lib.completion.tcmr import TCMR
from pipeline_lib.completion.tcmr_linear import mix_scores
from pipeline_lib.errors import InputError

Array = NDArray[np.float64]


class TCMRRegression(TagCompleter):
    """Linear reconstruction of TCMR0 with a regression on the other tags: delta T + (1 - delta) R.

    T : result of `TCMR` without a graph term (TCMR0);
    R : scores of `EASE`.

    Both are normalised image by image, over the tags not observed on it, to mean 0 and standard
    deviation 1. The thesis mixes TCMR0 with a vote of visual neighbours in this way, "or any other"
    annotation; here the partner knows the tags only, but makes other errors. TCMR0 shares its
    statistics through few directions and counts a hidden tag as absent while fitting the image
    itself; the regression has no such bias (its diagonal is zero), sees single pairs of tags, and
    explains away what several tags say together.

    Parameters
    ----------
    lam : float
        Weight of the trace norm of TCMR0.
    l2 : float, default=5.0
        Penalty of the regression.
    delta : float, default=0.6
        Share of T, in [0, 1].
    eps, tol, max_iter
        Of `TCMR`.

    Attributes
    ----------
    scores_ : ndarray of shape (n, m)
        The mixture.
    completion_ : TCMR
        The fitted TCMR0.
    regression_ : EASE
        The fitted regression.
    rank_ : int
        Rank of the TCMR0 result.

    Raises
    ------
    InputError
        From ``fit``: bad input or a parameter out of range.

    References
    ----------
    Feng, thesis, (4.15), for the mixture; Steck, 2019, for the regression.
    """

    completion_: TCMR
    regression_: EASE
    rank_: int

    def __init__(
        self,
        lam: float,
        l2: float = 5.0,
        delta: float = 0.6,
        eps: float = 1e-3,
        tol: float = 1e-8,
        max_iter: int = 2000,
    ) -> None:
        self.lam = lam
        self.l2 = l2
        self.delta = delta
        self.eps = eps
        self.tol = tol
        self.max_iter = max_iter

    def _complete(
        self, D: sparse.csr_array, X: Array | None, laplacian: sparse.csr_array | None
    ) -> Array:
        if not 0.0 <= self.delta <= 1.0:
            raise InputError(f"delta={self.delta!r}", expected="a number in [0, 1]")
        self.regression_ = EASE(self.l2).fit(D)
        self.completion_ = TCMR(self.lam, eps=self.eps, tol=self.tol, max_iter=self.max_iter)
        self.completion_.fit(D)
        self.rank_ = self.completion_.rank_
        T, R = self.completion_.scores_.copy(), self.regression_.scores_.copy()
        return mix_scores(T, R, self.delta, D)
