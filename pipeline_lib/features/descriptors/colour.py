"""Colour descriptors in CIE Lab: moments on a grid, and a joint histogram."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline_lib.features.descriptors.pixels import to_float_rgb

# The gamut of sRGB in Lab, so that the bins of the histogram cover what pictures can hold.
_LAB_LOW = np.array([0.0, -86.19, -107.87])
_LAB_HIGH = np.array([100.0, 98.24, 94.48])


def _lab(picture: NDArray[Any]) -> NDArray[np.float64]:
    from skimage.color import rgb2lab

    return np.asarray(rgb2lab(to_float_rgb(picture)))


def colour_moments(picture: NDArray[Any], *, grid: int = 5) -> NDArray[np.float64]:
    """Mean, standard deviation and cube root of the third moment of each Lab channel in each cell.

    Parameters
    ----------
    picture : ndarray of shape (height, width) or (height, width, 3)
    grid : int, default 5
        Cells per side; 5 gives NUS-WIDE's 225 values (its CM55).

    Returns
    -------
    ndarray of shape (grid * grid * 9,)
        Cell by cell, row by row; in a cell the three moments of L, then of a, then of b.

    References
    ----------
    M. Stricker and M. Orengo. Similarity of color images. SPIE, 1995.
    """
    lab = _lab(picture)
    values = []
    last = np.array([-1])
    for rows in np.array_split(np.arange(lab.shape[0]), grid):
        for columns in np.array_split(np.arange(lab.shape[1]), grid):
            # A picture smaller than the grid repeats its nearest pixel in the empty cells.
            cell = lab[np.ix_(*(side if side.size else last for side in (rows, columns)))]
            cell = cell.reshape(-1, 3)
            mean = cell.mean(axis=0)
            centred = cell - mean
            deviation = np.sqrt((centred**2).mean(axis=0))
            skewness = np.cbrt((centred**3).mean(axis=0))
            values.append(np.stack([mean, deviation, skewness], axis=1).ravel())
    return np.concatenate(values)


def colour_histogram(picture: NDArray[Any], *, bins: int = 4) -> NDArray[np.float64]:
    """Joint histogram of Lab, ``bins`` per channel, summing to 1 (NUS-WIDE's CH has 4, so 64)."""
    lab = _lab(picture).reshape(-1, 3)
    scaled = (lab - _LAB_LOW) / (_LAB_HIGH - _LAB_LOW) * bins
    codes = np.clip(scaled.astype(np.intp), 0, bins - 1)
    flat = (codes[:, 0] * bins + codes[:, 1]) * bins + codes[:, 2]
    return np.bincount(flat, minlength=bins**3) / len(lab)
