"""How far a learned similarity is from the one it approximates: what theory says of RKML, measured.

A metric learned from n images makes an operator with kernel s_n(x, x') = phi_n(x)' A_n phi_n(x').
Theorem 3.1 of Feng's thesis bounds its distance from the population's operator by a multiple of
1 / sqrt(n) that grows as the eigengap of the kernel at rank r shrinks. In the Hilbert-Schmidt norm
that distance is the root mean square of s_n(x, x') - s(x, x') over independent x and x', so pairs of
test images measure it; the metric of many images set apart stands for the population's. The same
distance, between landmarks and all training images, is the error of the Nystroem approximation.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from pipeline_lib.annotation.rkml import RKML
from pipeline_lib.errors import InputError
from pipeline_lib.kernels.block_lanczos import leading_eigenpairs
from pipeline_lib.kernels.functions import kernel_matrix

Array = NDArray[np.float64]

_TEST_IMAGES = 1_000  # their pairs, half a million, estimate the norm closely
_DRAWS = 5  # samples of each size that are averaged, fewer where the images do not suffice


def similarity_error(model: RKML, reference: RKML, X: Array) -> float:
    """Relative distance of two learned similarities: ||S - S_ref||_F / ||S_ref||_F on rows of X."""
    rows = X[:_TEST_IMAGES]
    E, R = model.transform(rows), reference.transform(rows)
    target = R @ R.T
    scale = float(np.linalg.norm(target))
    if scale == 0.0:
        raise InputError("the reference similarity is zero on every test image")
    return float(np.linalg.norm(E @ E.T - target)) / scale


def landmark_error(model: Any, X: Array, Y: NDArray[Any], X_test: Array) -> float:
    """Relative error of the similarity by sampling landmarks instead of taking every image.

    Parameters
    ----------
    model : RKML
        Fitted on ``X`` and ``Y``.
    X, Y, X_test : arrays
        Training images, their tags, and images whose pairs are compared.

    Raises
    ------
    InputError
        If the model is not an RKML.
    """
    return similarity_error(model, _on_all_images(model).fit(X, Y), X_test)


def population_errors(
    model: Any,
    X: Array,
    Y: NDArray[Any],
    X_test: Array,
    sizes: list[int],
    *,
    random_state: int = 0,
) -> dict[str, float]:
    """Relative error of the similarity learned from samples of several sizes.

    Half of the images stand for the population. Samples are drawn from the other half, disjoint
    ones of each size as far as the images go.

    Parameters
    ----------
    model : RKML
        Its parameters are used, not what it has learned.
    X, Y, X_test : arrays
        Training images, their tags, and images whose pairs are compared.
    sizes : list of int
        Images of a sample.
    random_state : int
        Draws the halves and samples.

    Returns
    -------
    dict of str to float
        ``population_error_at_<size>``, the mean over samples, and ``eigengap``, the difference of the
        r-th and the next eigenvalue of the kernel over the number of images.

    Raises
    ------
    InputError
        If the model is not an RKML, or half of the images are fewer than a sample needs.
    """
    order = np.random.default_rng(random_state).permutation(len(X))
    apart, rest = order[: len(X) // 2], order[len(X) // 2 :]
    if max(sizes) > len(rest) or min(sizes) < 2:
        raise InputError(
            f"samples of {min(sizes)} to {max(sizes)} images",
            expected=f"2 to {len(rest)}, half of the training images",
        )
    unfitted = _on_all_images(model)
    reference = clone(unfitted).fit(X[apart], Y[apart])
    found = {"eigengap": _eigengap(unfitted, X[apart])}
    for size in sizes:
        draws = [rest[k * size : (k + 1) * size] for k in range(min(_DRAWS, len(rest) // size))]
        errors = [
            similarity_error(clone(unfitted).fit(X[rows], Y[rows]), reference, X_test)
            for rows in draws
        ]
        found[f"population_error_at_{size}"] = float(np.mean(errors))
    return found


def _on_all_images(model: Any) -> RKML:
    """The same method without sampled landmarks, unfitted."""
    if not isinstance(model, RKML):
        raise InputError(
            f"{type(model).__name__} learns no kernel metric", expected="RKML or a variant"
        )
    changes = {"n_samples": None, "vote": "similarity"}
    known = model.get_params()
    return clone(model).set_params(**{k: v for k, v in changes.items() if k in known})


def _eigengap(model: RKML, X: Array) -> float:
    K = kernel_matrix(X, None, model.kernel, model.gamma)
    values, _ = leading_eigenpairs(K, model.rank + 1)
    if len(values) <= model.rank:
        return float(values[-1]) / len(X) if len(values) == model.rank else 0.0
    return float(values[model.rank - 1] - values[model.rank]) / len(X)
