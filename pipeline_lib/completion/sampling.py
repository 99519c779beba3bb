"""Protocol of tag completion: which images and tags stay, what is hidden, what is made wrong.

All draws are keyed: the random number of an image-tag pair depends on the seed and on that pair
alone. A subset of the images therefore sees the same draws, more observed tags include the fewer,
and more noise includes the lesser noise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from pipeline_lib.completion.base import TagCompleter
from pipeline_lib.errors import InputError
from pipeline_lib.metrics.completion import completion_metrics
from pipeline_lib.seeds import derive_seed

Tags = NDArray[np.uint8]

_BLOCK_ENTRIES = 4_000_000


def filter_tags(
    Y: ArrayLike, min_tags_per_image: int = 1, min_images_per_tag: int = 1
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Find the images with enough tags and the tags with enough images.

    Parameters
    ----------
    Y : array of shape (n, m)
        Binary tags.
    min_tags_per_image, min_images_per_tag : int
        Least counts, counted among what stays: both filters repeat until nothing changes.

    Returns
    -------
    images, tags : ndarrays of int64
        Indices to keep, ascending.

    Raises
    ------
    InputError
        If nothing stays.
    """
    tags_matrix = _binary(Y, "Y") > 0
    images = np.arange(tags_matrix.shape[0])
    tags = np.arange(tags_matrix.shape[1])
    while True:
        kept = tags_matrix[np.ix_(images, tags)]
        good_images = kept.sum(axis=1) >= min_tags_per_image
        good_tags = kept.sum(axis=0) >= min_images_per_tag
        if good_images.all() and good_tags.all():
            break
        images, tags = images[good_images], tags[good_tags]
    if not len(images) or not len(tags):
        raise InputError(
            f"no image has {min_tags_per_image} tags with {min_images_per_tag} images each",
            remedy="ask for less",
        )
    return images, tags


def hide_tags(Y: ArrayLike, n_observed: int, seed: int, ids: ArrayLike | None = None) -> Tags:
    """Keep a random part of every image's tags.

    Parameters
    ----------
    Y : array of shape (n, m)
        Binary tags.
    n_observed : int
        Tags an image keeps (m*); an image with fewer keeps all it has.
    seed : int
        With the image's id, decides which.
    ids : array of n integers, optional
        Ids of the images; by default their row numbers.

    Returns
    -------
    ndarray of uint8, shape (n, m)
        Observed tags D <= Y.
    """
    Y = _binary(Y, "Y")
    if n_observed < 1:
        raise InputError(f"n_observed={n_observed}", expected="at least 1")
    rows, columns = np.nonzero(Y)
    keys = _uniform(seed, "hide", _ids(ids, len(Y))[rows], columns)
    return _smallest_of_row(rows, columns, keys, np.full(len(Y), n_observed), Y.shape)


def replace_with_noise(
    D: ArrayLike,
    Y: ArrayLike,
    share: float,
    seed: int,
    ids: ArrayLike | None = None,
    per_image: bool = False,
) -> Tags:
    """Replace a share of the observed tags by wrong ones.

    Parameters
    ----------
    D : array of shape (n, m)
        Observed tags.
    Y : array of shape (n, m)
        All true tags; a wrong tag of an image is one that is not among them, every such tag being
        as likely as another.
    share : float
        Of the observed tags, in [0, 1].
    seed : int
    ids : array of n integers, optional
        Ids of the images; by default their row numbers.
    per_image : bool, default=False
        Take the share (rounded) of every image's tags, as for tag ranking and refinement, instead
        of the share of all observed tags together, as for completion.

    Returns
    -------
    ndarray of uint8, shape (n, m)
        As many tags an image as before, where it has enough wrong ones.
    """
    D, Y = _binary(D, "D"), _binary(Y, "Y")
    if D.shape != Y.shape:
        raise InputError(f"D has shape {D.shape}", expected=f"that of Y, {Y.shape}")
    if not 0.0 <= share <= 1.0:
        raise InputError(f"share={share!r}", expected="a number in [0, 1]")
    names = _ids(ids, len(D))
    rows, columns = np.nonzero(D)
    keys = _uniform(seed, "drop", names[rows], columns)
    observed = D.sum(axis=1, dtype=np.int64)
    wrong = (Y == 0).sum(axis=1)
    if per_image:
        replaced = np.minimum(np.floor(share * observed + 0.5).astype(np.int64), wrong)
    else:
        chosen = np.argsort(keys, kind="stable")[: int(share * len(keys) + 0.5)]
        replaced = np.minimum(np.bincount(rows[chosen], minlength=len(D)), wrong)
    dropped = _smallest_of_row(rows, columns, keys, replaced, D.shape)
    noisy = D - dropped
    affected = np.flatnonzero(replaced)
    step = max(1, _BLOCK_ENTRIES // D.shape[1])
    for first in range(0, len(affected), step):
        block = affected[first : first + step]
        at, columns = np.nonzero(Y[block] == 0)
        keys = _uniform(seed, "noise", names[block][at], columns)
        noisy[block] |= _smallest_of_row(at, columns, keys, replaced[block], Y[block].shape)
    return noisy


def cross_validate(
    build: Callable[..., TagCompleter],
    grid: Iterable[Mapping[str, Any]],
    D: ArrayLike,
    X: ArrayLike | None = None,
    laplacian: Any = None,
    *,
    n_folds: int = 5,
    cutoff: int = 1,
    seed: int = 0,
) -> tuple[dict[str, Any], pl.DataFrame]:
    """Choose hyper-parameters by what they recover of the observed tags.

    The images with two or more observed tags are dealt into folds. For each fold, one observed tag
    of each of its images is hidden, the method is fitted on what is left of all images, and AP@N is
    measured on the hidden tags. No tag that is not observed plays a part.

    Parameters
    ----------
    build : callable
        ``build(**parameters)`` returns an unfitted method.
    grid : iterable of mappings
        Parameter settings.
    D : array of shape (n, m)
        Observed tags.
    X, laplacian : optional
        Handed to ``fit``.
    n_folds : int, default=5
    cutoff : int, default=1
        N.
    seed : int, default=0

    Returns
    -------
    best : dict
        The setting with the largest mean AP@N, the first of equals.
    table : polars.DataFrame
        Columns ``setting`` (index in the grid), ``fold``, ``ap``.

    Raises
    ------
    InputError
        If the grid is empty or fewer images than folds have two observed tags.
    """
    tags = _binary(D, "D")
    settings = [dict(parameters) for parameters in grid]
    if not settings:
        raise InputError("the grid of parameters is empty", expected="at least one setting")
    records: list[tuple[int, int, float]] = []
    for fold, (left, images) in enumerate(validation_folds(tags, n_folds, seed)):
        for setting, parameters in enumerate(settings):
            scores = build(**parameters).fit(left, X=X, laplacian=laplacian).scores_[images]
            measured = completion_metrics(scores, left[images], tags[images], cutoff)
            records.append((setting, fold, measured.means[f"ap_at_{cutoff}"]))
    table = pl.DataFrame(records, schema=["setting", "fold", "ap"], orient="row")
    means = table.group_by("setting").agg(pl.col("ap").mean()).sort("setting")["ap"].to_numpy()
    return settings[int(np.argmax(means))], table


def validation_folds(
    D: ArrayLike, n_folds: int, seed: int
) -> Iterator[tuple[Tags, NDArray[np.int64]]]:
    """Hide one observed tag of each image of a fold, fold after fold.

    The images with two or more observed tags are dealt into folds; which tag of an image is hidden does
    not depend on the fold.

    Parameters
    ----------
    D : array of shape (n, m)
        Observed tags.
    n_folds : int
    seed : int

    Yields
    ------
    left : ndarray of shape (n, m)
        What stays observed.
    images : ndarray of int
        The images of the fold.

    Raises
    ------
    InputError
        If fewer images than folds have two observed tags.
    """
    tags = _binary(D, "D")
    able = np.flatnonzero(tags.sum(axis=1) >= 2)
    if n_folds < 2 or len(able) < n_folds:
        raise InputError(
            f"{len(able)} images with two or more observed tags for {n_folds} folds",
            expected="two folds or more, and at least one such image a fold",
        )
    order = np.argsort(_uniform(seed, "deal", able, np.zeros_like(able)), kind="stable")
    rows, columns = np.nonzero(tags)
    keys = _uniform(seed, "validate", rows, columns)
    hidden = _smallest_of_row(rows, columns, keys, np.ones(len(tags), dtype=np.int64), tags.shape)
    for fold in range(n_folds):
        images = able[order[fold::n_folds]]
        left = tags.copy()
        left[images] -= hidden[images]
        yield left, images


def hold_out_draw(counts: ArrayLike, seed: int) -> NDArray[np.int64]:
    """Take one random draw of each image with two draws or more out of a table of counts.

    Parameters
    ----------
    counts : array of shape (n, m)
        How often each tag was drawn.
    seed : int

    Returns
    -------
    ndarray of int64, shape (n, m)
        What is left.
    """
    left = np.array(counts, dtype=np.int64)
    reached = left.cumsum(axis=1)
    drawn = reached[:, -1]
    able = np.flatnonzero(drawn >= 2)
    place = np.random.default_rng(seed).integers(drawn[able])
    # The draws of a row in the order of its tags: number `place` falls on the first tag beyond it.
    columns = (reached[able] <= place[:, None]).sum(axis=1)
    left[able, columns] -= 1
    return left


def _binary(matrix: ArrayLike, name: str) -> Tags:
    values = np.asarray(matrix)
    if values.ndim != 2 or not np.isin(values, (0, 1)).all():
        raise InputError(f"{name} is not a binary matrix", expected="images x tags of 0 and 1")
    return values.astype(np.uint8)


def _ids(ids: ArrayLike | None, n: int) -> NDArray[np.int64]:
    names = np.arange(n) if ids is None else np.asarray(ids, dtype=np.int64)
    if names.shape != (n,):
        raise InputError(f"ids have shape {names.shape}", expected=f"({n},)")
    return names


def _uniform(
    seed: int, purpose: str, rows: NDArray[np.int64], columns: NDArray[np.int64]
) -> NDArray[np.uint64]:
    """Random 64-bit keys that depend on seed, purpose, row and column only (SplitMix64)."""
    start = np.uint64(derive_seed(seed, purpose))
    key = _mix(_mix(rows.astype(np.uint64) + (start << np.uint64(32))) ^ columns.astype(np.uint64))
    return key


def _mix(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """One output of the SplitMix64 generator for every state (arithmetic modulo 2^64)."""
    values = values + np.uint64(0x9E3779B97F4A7C15)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def _smallest_of_row(
    rows: NDArray[np.int64],
    columns: NDArray[np.int64],
    keys: NDArray[np.uint64],
    counts: NDArray[np.int64],
    shape: tuple[int, ...],
) -> Tags:
    """Mark, in every row, the ``counts[row]`` entries with the smallest keys."""
    order = np.lexsort((keys, rows))
    rows, columns = rows[order], columns[order]
    place = np.arange(len(rows)) - np.searchsorted(rows, rows)
    chosen = place < counts[rows]
    marks = np.zeros(shape, dtype=np.uint8)
    marks[rows[chosen], columns[chosen]] = 1
    return marks
