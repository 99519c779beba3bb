"""Dense SIFT on a regular grid, and bags of visual words over a seeded vocabulary."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import correlate1d
from sklearn.base import BaseEstimator
from sklearn.cluster import MiniBatchKMeans

from pipeline_lib.datasets.pictures import resize
from pipeline_lib.errors import InputError
from pipeline_lib.features.descriptors.pixels import to_float_grey, to_uint8
from pipeline_lib.seeds import RandomState, as_generator

_BINS, _CELLS = 8, 4
_CLIP = 0.2


def dense_sift(
    picture: NDArray[Any], *, step: int = 8, cell: int = 4, contrast: float = 0.005
) -> NDArray[np.float32]:
    """SIFT descriptors on a regular grid, upright and of one size.

    Parameters
    ----------
    picture : ndarray of shape (height, width) or (height, width, 3)
        Colour is turned grey.
    step : int, default 8
        Pixels between neighbouring descriptors.
    cell : int, default 4
        Pixels of a side of one of the 4 x 4 cells of a descriptor.
    contrast : float, default 0.005
        Descriptors whose mean gradient is below this (grey levels in [0, 1]) are 0.

    Returns
    -------
    ndarray of shape (n, 128), float32
        Rows of positions from the top; in a descriptor cells row by row, 8 directions each, starting
        to the right and turning towards the bottom. Unit length (or 0), values at most 0.2 before the
        last normalisation. A picture smaller than a descriptor has none.

    Notes
    -----
    Gradients are shared linearly between the two nearest directions, and by triangles of width
    ``2 * cell`` between cells, which one convolution per direction does for all positions at once.

    References
    ----------
    D. G. Lowe. Distinctive image features from scale-invariant keypoints. IJCV 60(2), 2004.
    """
    grey = to_float_grey(picture).astype(np.float32)
    side = _CELLS * cell
    if min(grey.shape) < side:
        return np.empty((0, _CELLS * _CELLS * _BINS), dtype=np.float32)
    down, right = np.gradient(grey, axis=0), np.gradient(grey, axis=1)
    magnitude = np.hypot(down, right)
    angle = np.arctan2(down, right) * (_BINS / (2 * np.pi)) % _BINS
    lower = np.floor(angle)
    upper_share = angle - lower
    first = lower.astype(np.intp) % _BINS
    maps = np.zeros((_BINS, *grey.shape), dtype=np.float32)
    i, j = np.ogrid[: grey.shape[0], : grey.shape[1]]
    maps[first, i, j] = magnitude * (1 - upper_share)
    maps[(first + 1) % _BINS, i, j] += magnitude * upper_share

    # Centres of cells lie between pixels when the cell is even: the triangle is sampled there.
    offsets = np.arange(2 * cell) - cell + 0.5 if cell % 2 == 0 else np.arange(1 - cell, cell)
    triangle = (1 - np.abs(offsets) / cell).astype(np.float32)
    shift = -1 if cell % 2 == 0 else 0
    for axis in (1, 2):
        maps = correlate1d(maps, triangle, axis=axis, mode="constant", origin=shift)

    tops = np.arange(0, grey.shape[0] - side + 1, step)
    lefts = np.arange(0, grey.shape[1] - side + 1, step)
    centres = np.arange(_CELLS) * cell + (cell - 1) // 2
    rows = (tops[:, None] + centres)[:, None, :, None]
    columns = (lefts[:, None] + centres)[None, :, None, :]
    found = maps[:, rows, columns]  # (8, tops, lefts, 4, 4)
    vectors = found.transpose(1, 2, 3, 4, 0).reshape(-1, _CELLS * _CELLS * _BINS)
    return _normalised(vectors, contrast * side * side)


def _normalised(vectors: NDArray[np.float32], least: float) -> NDArray[np.float32]:
    # The triangles of neighbouring cells sum to 1, so a descriptor sums to the gradients under it.
    seen = vectors.sum(axis=1, keepdims=True) >= least
    clipped = np.minimum(_unit(np.where(seen, vectors, np.float32(0))), np.float32(_CLIP))
    return _unit(clipped)


def _unit(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    length = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.divide(vectors, length, out=np.zeros_like(vectors), where=length > 0)


class BagOfVisualWords(BaseEstimator):
    """Histogram of dense SIFT descriptors over a vocabulary of k-means centres.

    Parameters
    ----------
    n_words : int, default 1000
    step, cell : int, default 8 and 4
        See `dense_sift`.
    max_side : int, default 300
        Larger pictures are resampled so that their longer side is this.
    n_samples : int, default 100,000
        Descriptors drawn, evenly from the pictures, to learn the vocabulary.
    random_state : int, Generator, RandomState or None

    Attributes
    ----------
    vocabulary_ : ndarray of shape (n_words, 128), float32

    References
    ----------
    G. Csurka, C. Dance, L. Fan, J. Willamowski and C. Bray. Visual categorization with bags of
    keypoints. ECCV workshop on statistical learning in computer vision, 2004.
    """

    vocabulary_: NDArray[np.float32]

    def __init__(
        self,
        n_words: int = 1000,
        *,
        step: int = 8,
        cell: int = 4,
        max_side: int = 300,
        n_samples: int = 100_000,
        random_state: RandomState = None,
    ) -> None:
        self.n_words = n_words
        self.step = step
        self.cell = cell
        self.max_side = max_side
        self.n_samples = n_samples
        self.random_state = random_state

    def descriptors(self, picture: NDArray[Any]) -> NDArray[np.float32]:
        """Dense SIFT of the picture at the size used here, without the contrastless ones."""
        height, width = picture.shape[:2]
        longer = max(height, width)
        if longer > self.max_side:
            scale = self.max_side / longer
            size = (max(1, round(height * scale)), max(1, round(width * scale)))
            picture = resize(to_uint8(picture), size)
        found = dense_sift(picture, step=self.step, cell=self.cell)
        return found[found.any(axis=1)]

    def sample(
        self, picture: NDArray[Any], n_pictures: int, rng: np.random.Generator
    ) -> NDArray[np.float32]:
        """A picture's share of the descriptors from which the vocabulary is learnt."""
        found = self.descriptors(picture)
        wanted = max(1, self.n_samples // n_pictures)
        if len(found) <= wanted:
            return found
        return found[rng.choice(len(found), size=wanted, replace=False)]

    def fit(self, X: Sequence[NDArray[Any]], y: None = None) -> BagOfVisualWords:
        """Learn the vocabulary from pictures."""
        rng = as_generator(self.random_state)
        return self.fit_descriptors([self.sample(picture, len(X), rng) for picture in X], rng)

    def fit_descriptors(
        self, samples: Sequence[NDArray[np.float32]], rng: np.random.Generator
    ) -> BagOfVisualWords:
        """Learn the vocabulary from descriptors already drawn (see `sample`)."""
        drawn = np.concatenate([np.empty((0, 128), np.float32), *samples])
        if len(drawn) < self.n_words:
            raise InputError(
                f"{len(drawn)} descriptors for a vocabulary of {self.n_words} words",
                remedy="use fewer words, a smaller step, or more and larger pictures",
            )
        kmeans = MiniBatchKMeans(
            n_clusters=self.n_words,
            batch_size=max(4096, 3 * self.n_words),
            n_init=1,
            random_state=int(rng.integers(2**31)),
        )
        self.vocabulary_ = np.asarray(kmeans.fit(drawn).cluster_centers_, dtype=np.float32)
        return self

    def histogram(self, picture: NDArray[Any]) -> NDArray[np.float64]:
        """Share of the picture's descriptors that is nearest to each word; 0 without descriptors."""
        found = self.descriptors(picture)
        if not len(found):
            return np.zeros(self.n_words)
        words = self.vocabulary_
        half_norms = 0.5 * np.einsum("ij,ij->i", words, words)
        nearest = (found @ words.T - half_norms).argmax(axis=1)
        return np.bincount(nearest, minlength=self.n_words) / len(found)

    def transform(self, X: Iterable[NDArray[Any]]) -> NDArray[np.float64]:
        """Histograms of pictures, one row each."""
        return np.stack([self.histogram(picture) for picture in X])
