"""Proximal operators: prox_{t h}(V) = argmin_X h(X) + ||X - V||_F^2 / (2 t), for norms h.

Each function returns the minimiser; ``threshold`` is t times the weight of the norm.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pipeline_lib.optimize.singular_values import shrink_singular_values


def prox_l1(V: NDArray[np.float64], threshold: float) -> NDArray[np.float64]:
    """Shrink every entry towards zero: h = sum of absolute values.

    Parameters
    ----------
    V : ndarray of any shape
    threshold : float
        At least 0.

    Returns
    -------
    ndarray, shape of V
        sign(v) max(|v| - threshold, 0).
    """
    return np.sign(V) * np.maximum(np.abs(V) - threshold, 0.0)


def prox_frobenius(V: NDArray[np.float64], threshold: float) -> NDArray[np.float64]:
    """Shrink the whole matrix along its direction: h = Frobenius norm (not squared).

    Parameters
    ----------
    V : ndarray of any shape
    threshold : float
        At least 0.

    Returns
    -------
    ndarray, shape of V
        max(1 - threshold / ||V||_F, 0) V.
    """
    norm = float(np.linalg.norm(V))
    if norm <= threshold:
        return np.zeros_like(V)
    return (1.0 - threshold / norm) * V


def prox_trace_norm(V: NDArray[np.float64], threshold: float) -> NDArray[np.float64]:
    """Shrink every singular value towards zero: h = sum of singular values.

    Parameters
    ----------
    V : ndarray of shape (n, m)
    threshold : float
        At least 0.

    Returns
    -------
    ndarray of shape (n, m)
        U diag(max(s - threshold, 0)) W' for V = U diag(s) W'.
    """
    factors = shrink_singular_values(V, threshold)
    return factors.left @ factors.right.T
