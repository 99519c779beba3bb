"""Explicit maps of the chi-square kernels between histograms.

Additive chi-square, k(x, y) = sum_j 2 x_j y_j / (x_j + y_j): as a function of log x - log y each term
is sqrt(x y) sech((log x - log y)/2), the Fourier transform of sech(pi w). Sampling that density at 0, L,
2L, .., sL gives, for every coordinate x,

    [sqrt(x L), sqrt(2 x L sech(pi j L)) cos(j L log x), sqrt(2 x L sech(pi j L)) sin(j L log x)],  j = 1..s

Skewed chi-square, k(x, y) = prod_j 2 sqrt((x_j + c)(y_j + c)) / (x_j + y_j + 2c): the same transform, of
log(x + c), so random Fourier features with coordinates of density sech(pi w) approximate it.

References
----------
Vedaldi and Zisserman, Efficient additive kernels via explicit feature maps, 2012.
Li, Ionescu and Sminchisescu, Random Fourier approximations for skewed multiplicative histogram kernels,
2010.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from pipeline_lib.errors import InputError
from pipeline_lib.kernels.feature_map import FeatureMap
from pipeline_lib.kernels.functions import Array, as_rows, check_kernel, kernel_matrix
from pipeline_lib.seeds import RandomState, as_generator

# Sampling intervals that Vedaldi and Zisserman found to minimise the error for 1, 2, 3 steps.
_INTERVALS = {1: 0.8, 2: 0.5, 3: 0.4}


class AdditiveChi2Map(FeatureMap):
    """Deterministic map of the additive chi-square kernel (formulas at the top of the module).

    Parameters
    ----------
    n_steps : int, default 2
        Number s of positive frequencies; each coordinate becomes 2 s + 1 features.
    interval : float, optional
        Sampling interval L; by default .8, .5, .4 for one, two, three steps and .3 for more.

    Raises
    ------
    InputError
        For parameters out of range and for negative values.
    """

    _state_names: ClassVar[tuple[str, ...]] = ("interval_", "n_features_in_", "n_features_out_")

    interval_: float

    def __init__(self, n_steps: int = 2, interval: float | None = None) -> None:
        self.n_steps = n_steps
        self.interval = interval

    def fit(self, X: ArrayLike, y: object = None) -> Self:
        """Check the rows of ``X`` (n, d); nothing is learned from them."""
        if self.n_steps < 0:
            raise InputError(f"n_steps is {self.n_steps}", expected="at least 0")
        if self.interval is not None and not self.interval > 0:
            raise InputError(f"interval is {self.interval}", expected="a positive number")
        rows = as_rows(X)
        _require_above(rows, 0.0, inclusive=True)
        self.interval_ = float(
            _INTERVALS.get(self.n_steps, 0.3) if self.interval is None else self.interval
        )
        self.n_features_in_ = rows.shape[1]
        self.n_features_out_ = rows.shape[1] * (2 * self.n_steps + 1)
        return self

    def exact_kernel(self, X: ArrayLike) -> Array:
        """The kernel matrix (n, n) of rows ``X`` (n, d), which the map approximates."""
        return kernel_matrix(X, None, "additive_chi2")

    def _row_transformer(self) -> Callable[[Array], Array]:
        return self._transform_rows

    def _transform_rows(self, rows: Array) -> Array:
        _require_above(rows, 0.0, inclusive=True)
        d, L = rows.shape[1], self.interval_
        Z = np.empty((len(rows), self.n_features_out_))
        root = np.sqrt(rows * L)
        logs = np.log(rows, out=np.zeros_like(rows), where=rows > 0)  # root is 0 there
        Z[:, :d] = root
        for j in range(1, self.n_steps + 1):
            amplitude = root * np.sqrt(2.0 / np.cosh(np.pi * j * L))
            at = (2 * j - 1) * d
            Z[:, at : at + d] = amplitude * np.cos(j * L * logs)
            Z[:, at + d : at + 2 * d] = amplitude * np.sin(j * L * logs)
        return Z


class SkewedChi2Features(FeatureMap):
    """Random Fourier features of the skewed chi-square kernel (formulas at the top of the module).

    Parameters
    ----------
    n_components : int
        Number of features.
    skewness : float, default 1.0
        The constant c > 0; every value must exceed -c.
    random_state : int, Generator, RandomState or None

    Raises
    ------
    InputError
        For parameters out of range and for values at or below -c.
    """

    frequencies_: Array
    phases_: Array

    _state_names: ClassVar[tuple[str, ...]] = (
        "frequencies_",
        "phases_",
        "n_features_in_",
        "n_features_out_",
    )

    def __init__(
        self, n_components: int, skewness: float = 1.0, *, random_state: RandomState = None
    ) -> None:
        self.n_components = n_components
        self.skewness = skewness
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: object = None) -> Self:
        """Draw frequencies and phases for rows as wide as those of ``X`` (n, d)."""
        if self.n_components < 1:
            raise InputError(f"n_components is {self.n_components}", expected="at least 1")
        check_kernel("skewed_chi2", coef0=self.skewness)
        rows = as_rows(X)
        _require_above(rows, -self.skewness)
        d, m = rows.shape[1], self.n_components
        rng = as_generator(self.random_state)
        # Inverse of the distribution function (2/pi) arctan(exp(pi w)); the draw avoids 0 and 1.
        uniform = rng.uniform(np.finfo(float).eps, 1.0, size=(d, m))
        self.frequencies_ = np.log(np.tan(0.5 * np.pi * uniform)) / np.pi
        self.phases_ = rng.uniform(0.0, 2.0 * np.pi, size=m)
        self.n_features_in_ = d
        self.n_features_out_ = m
        return self

    def exact_kernel(self, X: ArrayLike) -> Array:
        """The kernel matrix (n, n) of rows ``X`` (n, d), which the map approximates."""
        return kernel_matrix(X, None, "skewed_chi2", coef0=self.skewness)

    def _row_transformer(self) -> Callable[[Array], Array]:
        return self._transform_rows

    def _transform_rows(self, rows: Array) -> Array:
        _require_above(rows, -self.skewness)
        Z = np.log(rows + self.skewness) @ self.frequencies_
        Z += self.phases_
        np.cos(Z, out=Z)
        Z *= np.sqrt(2.0 / len(self.phases_))
        return Z


def _require_above(rows: Array, bound: float, *, inclusive: bool = False) -> None:
    smallest = float(rows.min())
    if smallest < bound or (smallest == bound and not inclusive):
        raise InputError(
            f"X contains {smallest:g}",
            expected=f"values {'of at least' if inclusive else 'above'} {bound:g}",
        )
