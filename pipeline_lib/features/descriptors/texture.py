"""Texture and shape: local binary patterns, edge directions, histograms of oriented gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline_lib.datasets.pictures import resize, to_grey
from pipeline_lib.features.descriptors.pixels import to_float_grey, to_uint8


def local_binary_patterns(picture: NDArray[Any], *, grid: int = 1) -> NDArray[np.float64]:
    """Histogram of the uniform patterns of 8 neighbours at distance 1, in each cell of a grid.

    Returns
    -------
    ndarray of shape (grid * grid * 59,)
        58 uniform patterns and one bin for all others; each cell sums to 1.

    References
    ----------
    T. Ojala, M. Pietikainen and T. Maenpaa. Multiresolution gray-scale and rotation invariant texture
    classification with local binary patterns. IEEE TPAMI 24(7), 2002.
    """
    from skimage.feature import local_binary_pattern

    grey = to_uint8(to_grey(picture))
    codes = local_binary_pattern(grey, P=8, R=1, method="nri_uniform").astype(np.intp)
    values = []
    for rows in np.array_split(np.arange(codes.shape[0]), grid):
        for columns in np.array_split(np.arange(codes.shape[1]), grid):
            counts = np.bincount(codes[np.ix_(rows, columns)].ravel(), minlength=59)
            values.append(counts / max(1, counts.sum()))
    return np.concatenate(values)


def edge_directions(
    picture: NDArray[Any], *, bins: int = 72, sigma: float = 1.0
) -> NDArray[np.float64]:
    """Directions of the gradient on Canny edges, and the share of pixels that are no edge.

    Returns
    -------
    ndarray of shape (bins + 1,)
        The directions sum to 1 (0 when there is no edge); the last value is the share without edge.
        72 bins of 5 degrees give NUS-WIDE's 73 values (its EDH).
    """
    from skimage.feature import canny

    grey = to_float_grey(picture)
    edges = canny(grey, sigma=sigma)
    down, right = np.gradient(grey) if min(grey.shape) > 1 else (np.zeros_like(grey),) * 2
    # Edges lie where the smoothed picture changes; a pixel that is itself flat has no direction.
    flat = (down == 0) & (right == 0)
    angle = np.arctan2(down, right)[edges & ~flat]
    codes = np.floor((angle + np.pi) / (2 * np.pi) * bins).astype(np.intp) % bins
    counts = np.bincount(codes, minlength=bins)
    return np.append(counts / max(1, counts.sum()), 1.0 - edges.mean())


def oriented_gradients(
    picture: NDArray[Any], *, size: int = 64, cell: int = 8, orientations: int = 9
) -> NDArray[np.float64]:
    """HOG of the picture resampled to ``size`` x ``size``: blocks of 2 x 2 cells, L2-Hys.

    References
    ----------
    N. Dalal and B. Triggs. Histograms of oriented gradients for human detection. CVPR, 2005.
    """
    from skimage.feature import hog

    scaled = resize(to_uint8(picture), (size, size))
    return np.asarray(
        hog(
            scaled,
            orientations=orientations,
            pixels_per_cell=(cell, cell),
            cells_per_block=(2, 2),
            block_norm="L2-Hys",
            channel_axis=2 if scaled.ndim == 3 else None,
        )
    )
