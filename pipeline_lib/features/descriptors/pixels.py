"""Pictures as numbers: grey or colour in [0, 1], whatever they are stored as."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def to_float_grey(picture: NDArray[Any]) -> NDArray[np.float64]:
    """Luminance (ITU-R BT.601) in [0, 1]; 8 and 16 bit pictures are scaled by their type."""
    scaled = picture / np.iinfo(picture.dtype).max
    return scaled if scaled.ndim == 2 else scaled @ np.array([0.299, 0.587, 0.114])


def to_float_rgb(picture: NDArray[Any]) -> NDArray[np.float64]:
    """Three channels in [0, 1]; a grey picture has three equal ones."""
    scaled = picture / np.iinfo(picture.dtype).max
    return scaled if scaled.ndim == 3 else np.repeat(scaled[..., None], 3, axis=2)


def to_uint8(picture: NDArray[Any]) -> NDArray[np.uint8]:
    """Eight bits per value."""
    if picture.dtype == np.uint8:
        return picture
    return np.round(picture / np.iinfo(picture.dtype).max * 255).astype(np.uint8)
