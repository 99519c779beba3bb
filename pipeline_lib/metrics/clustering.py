"""Agreement of a clustering with known classes."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import linear_sum_assignment
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

from pipeline_lib.errors import InputError
from pipeline_lib.metrics.checks import labels_of_length

_NORMALIZATIONS = ("max", "min", "geometric", "arithmetic")


def clustering_accuracy(y: ArrayLike, labels: ArrayLike) -> float:
    """Share of items in the right class under the best one-to-one matching of clusters to classes.

    ACC = max_m (1/n) sum_i [m(labels_i) = y_i] over injections m, found by the Hungarian method.
    Clusters left without a class (there may be more clusters than classes) count as wrong.

    Parameters
    ----------
    y, labels : array-like of shape (n,)
        Classes and clusters, integers or strings; the names need not correspond.

    Raises
    ------
    InputError
        If the arrays are empty, differ in length, or hold missing or fractional values.
    """
    classes, clusters = _class_codes(y, labels)
    shape = classes.max() + 1, clusters.max() + 1
    counts = np.bincount(classes * shape[1] + clusters, minlength=shape[0] * shape[1]).reshape(
        shape
    )
    matched = linear_sum_assignment(counts, maximize=True)
    return float(counts[matched].sum() / len(classes))


def nmi(
    y: ArrayLike,
    labels: ArrayLike,
    normalization: Literal["max", "min", "geometric", "arithmetic"] = "max",
) -> float:
    """Mutual information of classes and clusters over a mean of their entropies.

    NMI = I(y, labels) / max(H(y), H(labels)) by default, the form of the graph-regularised coding
    papers; ``min``, ``geometric`` and ``arithmetic`` name the other means in use. Two partitions
    into a single group each agree perfectly: 1.

    Parameters
    ----------
    y, labels : array-like of shape (n,)
        Classes and clusters, integers or strings.
    normalization : {"max", "min", "geometric", "arithmetic"}, default="max"
        The mean of the two entropies to divide by.

    Raises
    ------
    InputError
        If the arrays are empty, differ in length, or hold missing or fractional values, or the
        normalisation is unknown.
    """
    if normalization not in _NORMALIZATIONS:
        raise InputError(
            f"unknown normalisation {normalization!r}",
            expected=f"one of {', '.join(_NORMALIZATIONS)}",
        )
    classes, clusters = _class_codes(y, labels)
    return float(normalized_mutual_info_score(classes, clusters, average_method=normalization))


def ari(y: ArrayLike, labels: ArrayLike) -> float:
    """Adjusted Rand index: agreement over pairs of items, 1 for equal partitions, 0 by chance.

    Parameters
    ----------
    y, labels : array-like of shape (n,)
        Classes and clusters, integers or strings.

    Raises
    ------
    InputError
        If the arrays are empty, differ in length, or hold missing or fractional values.
    """
    return float(adjusted_rand_score(*_class_codes(y, labels)))


def _class_codes(y: ArrayLike, labels: ArrayLike) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    classes = np.asarray(y)
    if classes.ndim != 1 or classes.size == 0:
        raise InputError(f"y has shape {classes.shape}", expected="one class per item")
    return (
        _codes(labels_of_length(classes, len(classes), name="y"), "y"),
        _codes(labels_of_length(labels, len(classes), name="labels"), "labels"),
    )


def _codes(values: NDArray[Any], name: str) -> NDArray[np.intp]:
    if values.dtype.kind == "f" and (values != np.floor(values)).any():
        raise InputError(f"{name} holds fractional values", expected="discrete labels")
    return np.unique(values, return_inverse=True)[1]
