"""Random Fourier features of shift-invariant kernels.

A continuous positive definite k(x - y) with k(0) = 1 is the Fourier transform of a probability measure p
(Bochner). With frequencies w_1..w_m ~ p and phases b_j ~ U[0, 2 pi),

    psi(x) = sqrt(2/m) [cos(w_1'x + b_1), .., cos(w_m'x + b_m)]

has E psi(x)'psi(y) = k(x - y), with an error of order 1/sqrt(m) whatever the data.

========= ===================================== ==============================================
kernel    k(x, y)                               each coordinate of w
========= ===================================== ==============================================
rbf       exp(-gamma ||x - y||^2)               normal, variance 2 gamma
laplacian exp(-gamma ||x - y||_1)               Cauchy, scale gamma
cauchy    prod_j 1 / (1 + gamma (x_j - y_j)^2)  Laplace, scale sqrt(gamma)
========= ===================================== ==============================================

With ``orthogonal=True`` (RBF only) the frequencies come in blocks of d mutually orthogonal vectors with
the norms of normal ones: the estimate stays unbiased up to the shared phases and its variance
falls.

References
----------
Rahimi and Recht, Random features for large-scale kernel machines, NIPS 2007.
Yu et al., Orthogonal random features, NIPS 2016.
Chen, Li, Chen, Liao, Ranking support vector machine with kernel approximation, 2017, Algorithm 2.
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

FOURIER_KERNELS = ("rbf", "laplacian", "cauchy")


class FourierFeatures(FeatureMap):
    """Random Fourier features (formulas at the top of the module).

    Parameters
    ----------
    n_components : int
        Number m of features.
    gamma : float
        Parameter of the kernel.
    kernel : {"rbf", "laplacian", "cauchy"}, default "rbf"
    orthogonal : bool, default False
        Orthogonal frequencies; only for the RBF kernel.
    random_state : int, Generator, RandomState or None
        For frequencies and phases.

    Attributes
    ----------
    frequencies_ : ndarray of shape (d, m)
    phases_ : ndarray of shape (m,)

    Raises
    ------
    InputError
        In `fit`, for parameters or rows that cannot be used.
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
        self,
        n_components: int,
        gamma: float = 1.0,
        kernel: str = "rbf",
        *,
        orthogonal: bool = False,
        random_state: RandomState = None,
    ) -> None:
        self.n_components = n_components
        self.gamma = gamma
        self.kernel = kernel
        self.orthogonal = orthogonal
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: object = None) -> Self:
        """Draw frequencies and phases for rows as wide as those of ``X`` (n, d)."""
        if self.n_components < 1:
            raise InputError(f"n_components is {self.n_components}", expected="at least 1")
        if self.kernel not in FOURIER_KERNELS:
            raise InputError(
                f"no Fourier features for kernel {self.kernel!r}",
                expected="one of " + ", ".join(FOURIER_KERNELS),
            )
        if self.orthogonal and self.kernel != "rbf":
            raise InputError("orthogonal frequencies need the rbf kernel")
        check_kernel(self.kernel, self.gamma)
        d, m = as_rows(X).shape[1], self.n_components
        rng = as_generator(self.random_state)
        if self.kernel == "rbf":
            draw = _orthogonal_normal(d, m, rng) if self.orthogonal else rng.normal(size=(d, m))
            self.frequencies_ = np.sqrt(2.0 * self.gamma) * draw
        elif self.kernel == "laplacian":
            self.frequencies_ = self.gamma * rng.standard_cauchy(size=(d, m))
        else:
            self.frequencies_ = rng.laplace(scale=np.sqrt(self.gamma), size=(d, m))
        self.phases_ = rng.uniform(0.0, 2.0 * np.pi, size=m)
        self.n_features_in_ = d
        self.n_features_out_ = m
        return self

    def exact_kernel(self, X: ArrayLike) -> Array:
        """The kernel matrix (n, n) of rows ``X`` (n, d), which the map approximates."""
        return kernel_matrix(X, None, self.kernel, self.gamma)

    def _row_transformer(self) -> Callable[[Array], Array]:
        return self._transform_rows

    def _transform_rows(self, rows: Array) -> Array:
        Z = rows @ self.frequencies_
        Z += self.phases_
        np.cos(Z, out=Z)
        Z *= np.sqrt(2.0 / len(self.phases_))
        return Z


def _orthogonal_normal(d: int, m: int, rng: np.random.Generator) -> Array:
    """(d, m) columns, orthogonal within each run of d, each distributed as a normal vector."""
    blocks = []
    for _ in range(-(-m // d)):
        basis, upper = np.linalg.qr(rng.normal(size=(d, d)))
        # Fixing the signs of R's diagonal makes the basis uniform over the orthogonal group.
        basis *= np.where(np.diagonal(upper) < 0, -1.0, 1.0)
        blocks.append(basis * np.sqrt(rng.chisquare(d, size=d)))
    return np.hstack(blocks)[:, :m]
