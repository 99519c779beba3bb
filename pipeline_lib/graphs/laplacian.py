"""Laplacian of a directed neighbour graph."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from pipeline_lib.errors import InputError


def laplacian(S: Any) -> sp.csr_array:
    """Laplacian ``L_S = D_S - (S + S') / 2`` of a weighted graph, ``D_S`` its degrees.

    ``sum_ij s_ij ||f_i - f_j||^2 = 2 tr(F' L_S F)`` for any F of shape (n, m).

    Parameters
    ----------
    S : sparse or dense matrix of shape (n, n)
        Non-negative weights, not necessarily symmetric.

    Returns
    -------
    csr_array of shape (n, n)
        Symmetric positive semidefinite, rows sum to zero.

    Raises
    ------
    InputError
        If S is not square, not finite or has a negative weight.
    """
    weights = sp.csr_array(S, dtype=np.float64)
    if weights.ndim != 2 or weights.shape[0] != weights.shape[1]:
        raise InputError(f"graph has shape {weights.shape}", expected="(n, n)")
    if not np.isfinite(weights.data).all() or (weights.data < 0).any():
        raise InputError("graph has negative or non-finite weights", expected="weights >= 0")
    symmetric = (weights + weights.T) * 0.5
    degrees = np.asarray(symmetric.sum(axis=1)).ravel()
    return sp.csr_array(sp.diags_array(degrees) - symmetric)
