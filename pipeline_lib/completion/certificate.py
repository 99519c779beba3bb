"""A certificate for TCMR without a graph term: how far from the minimum can a Q be?"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from pipeline_lib.completion.base import check_tags
from pipeline_lib.completion.losses import Likelihood, WeightedLoss
from pipeline_lib.errors import InputError

Array = NDArray[np.float64]


def lower_bound(Q: Array, D: Any, lam: float, rank: int, eps: float = 1e-3) -> float:
    """Bound the minimum of TCMR0 from below, by Fenchel duality at a point near it.

    With f the weighted likelihood, the dual problem is

        max_Z  - f*(Z)   over matrices whose largest singular value is at most lam,

    f* being the convex conjugate, entry by entry. At the minimum Z is the gradient of f, with as many
    singular values equal to lam as Q has rank. So the gradient at Q is taken, its ``rank`` largest
    singular values are set to lam and the others cut there; the value of the dual at that point is a
    bound whatever Q is, and close when Q is close: to second order in its distance.

    Parameters
    ----------
    Q : ndarray of shape (n, m)
        ``scores_`` of a fitted `pipeline_lib.completion.tcmr.TCMR` with ``alpha=0``.
    D : array or sparse matrix of shape (n, m)
        Observed tags.
    lam, eps : float
        Of the model.
    rank : int
        Its ``rank_``.

    Returns
    -------
    float
        No objective is below it; minus infinity where the point is not feasible for the dual.

    Raises
    ------
    InputError
        If D is no tag matrix or Q has another shape.
    """
    tags = check_tags(D)
    if Q.shape != tags.shape:
        raise InputError(f"Q has shape {Q.shape}", expected=f"{tags.shape}, that of D")
    loss = WeightedLoss(tags, Likelihood(eps))
    Z = np.empty_like(Q)
    for start, stop in loss.blocks:
        loss(start, stop, np.array(Q[start:stop]), Z[start:stop])
    squares, V = linalg.eigh(Z.T @ Z)
    values = np.sqrt(np.maximum(squares, 0.0))
    wanted = np.minimum(values, lam)
    wanted[len(wanted) - rank :] = lam
    ratio = np.divide(wanted, values, out=np.zeros_like(values), where=values > 0.0)
    Z = Z @ (V * ratio) @ V.T
    observed = tags.toarray() > 0
    count = observed.sum(axis=1, keepdims=True)
    weights = np.where(
        observed, 1.0 / np.maximum(count, 1), 1.0 / np.maximum(Q.shape[1] - count, 1)
    )
    slopes = np.where(observed, -Z, Z)  # of -w log at q or at 1 - q, in (0, w / eps]
    if (slopes <= 0.0).any() or (slopes > weights / eps).any():
        return -np.inf
    conjugate = weights * (np.log(weights / slopes) - 1.0)
    return -float(conjugate.sum() + Z[~observed].sum())
