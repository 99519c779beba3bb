"""Validation shared by the metrics: what cannot be scored is refused with one clear sentence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pipeline_lib.errors import InputError


def finite_scores(scores: ArrayLike, *, ndim: int) -> NDArray[np.float64]:
    """Return scores as a float64 array of `ndim` dimensions, refusing NaN, infinity and emptiness."""
    try:
        array = np.asarray(scores, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError("scores are not numbers", expected="an array of real numbers") from error
    if array.ndim != ndim:
        raise InputError(f"scores have {array.ndim} dimensions", expected=f"{ndim}")
    if array.size == 0:
        raise InputError(f"scores of shape {array.shape} are empty", expected="at least one score")
    finite = np.isfinite(array)
    if not finite.all():
        place = tuple(int(index) for index in np.argwhere(~finite)[0])
        raise InputError(
            f"score {array[place]} at position {place if ndim > 1 else place[0]}",
            expected="finite scores only",
        )
    return array


def binary_matrix(values: ArrayLike, shape: tuple[int, int], *, name: str) -> NDArray[np.bool_]:
    """Return a tag matrix as booleans, refusing another shape and entries other than 0 and 1."""
    array = np.asarray(values)
    if array.shape != shape:
        raise InputError(f"{name} has shape {array.shape}", expected=f"{shape}, as the scores")
    if array.dtype == np.bool_:
        return array
    binary: NDArray[np.bool_] = array == 1
    stray = ~(binary | (array == 0))
    if stray.any():
        row, column = (int(index) for index in np.argwhere(stray)[0])
        raise InputError(
            f"{name}[{row}, {column}] is {array[row, column]}", expected="only the values 0 and 1"
        )
    return binary


def labels_of_length(labels: ArrayLike, length: int, *, name: str) -> NDArray[Any]:
    """Return a one-dimensional label array of the given length without missing values."""
    array = np.asarray(labels)
    if array.ndim != 1 or len(array) != length:
        raise InputError(f"{name} has shape {array.shape}", expected=f"({length},)")
    if np.issubdtype(array.dtype, np.floating) and np.isnan(array).any():
        raise InputError(
            f"{name}[{int(np.flatnonzero(np.isnan(array))[0])}] is NaN",
            expected="no missing labels",
        )
    return array


def valid_cutoffs(cutoffs: int | Sequence[int] | NDArray[np.integer[Any]], limit: int) -> list[int]:
    """Return distinct ascending cut-offs, each between 1 and the number of ranked items."""
    values = np.atleast_1d(np.asarray(cutoffs))
    if values.ndim != 1 or values.size == 0 or not np.issubdtype(values.dtype, np.integer):
        raise InputError(f"cutoffs {cutoffs!r}", expected="one or more integers")
    outside = values[(values < 1) | (values > limit)]
    if outside.size:
        raise InputError(
            f"cut-off {int(outside[0])} is out of range", expected=f"1 to {limit}, the items ranked"
        )
    return [int(value) for value in np.unique(values)]
