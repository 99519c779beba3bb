"""The papers' filters and draws, as named functions with parameters.

Functions from `Dataset` to `Dataset` keep the order of rows and tags and record themselves in
``info["transformations"]``; `apply` runs a list of them by name. `observe_tags` and `corrupt_tags`
make the observed tag table of the completion protocol from the true one.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pipeline_lib.datasets.container import Dataset
from pipeline_lib.errors import InputError
from pipeline_lib.seeds import RandomState, as_generator


def take_rows(dataset: Dataset, rows: ArrayLike) -> Dataset:
    """The dataset with the given rows (positions or a mask), every field cut alike."""
    rows = np.asarray(rows)

    def cut(values: NDArray[Any] | None) -> NDArray[Any] | None:
        return None if values is None else values[rows]

    return replace(
        dataset,
        X=cut(dataset.X),
        y=cut(dataset.y),
        qid=cut(dataset.qid),
        Y=cut(dataset.Y),
        ids=cut(dataset.ids),
    )


def take_tags(dataset: Dataset, columns: ArrayLike) -> Dataset:
    """The dataset with the given tags (positions or a mask)."""
    Y = _tags_of(dataset)
    columns = np.asarray(columns)
    kept = np.arange(Y.shape[1])[columns]
    return replace(dataset, Y=Y[:, kept], tags=tuple(dataset.tags[j] for j in kept))


def filter_tags(
    dataset: Dataset, *, min_tags_per_image: int = 0, min_images_per_tag: int = 0
) -> Dataset:
    """Keep images with enough tags and tags with enough images.

    Parameters
    ----------
    dataset : Dataset
        With ``Y``.
    min_tags_per_image, min_images_per_tag : int, default 0
        Dropping images makes tags rarer and the other way round, so both are repeated until both
        hold: the largest table in which they do, whatever comes first.

    Raises
    ------
    InputError
        Nothing is left.
    """
    Y = _tags_of(dataset)
    rows = np.ones(Y.shape[0], dtype=bool)
    columns = np.ones(Y.shape[1], dtype=bool)
    while True:
        images_per_tag = Y[rows].sum(axis=0, dtype=np.int64)
        keep_columns = columns & (images_per_tag >= min_images_per_tag)
        tags_per_image = Y @ keep_columns.astype(np.int64)
        keep_rows = rows & (tags_per_image >= min_tags_per_image)
        if (keep_rows == rows).all() and (keep_columns == columns).all():
            break
        rows, columns = keep_rows, keep_columns
    if not rows.any() or not columns.any():
        raise InputError(
            f"no image of {dataset.name} has {min_tags_per_image} tags that are each on "
            f"{min_images_per_tag} images",
            remedy="lower the minimum",
        )
    filtered = take_tags(take_rows(dataset, rows), columns)
    return _record(
        filtered,
        "filter_tags",
        min_tags_per_image=min_tags_per_image,
        min_images_per_tag=min_images_per_tag,
    )


def rows_per_class(dataset: Dataset, *, count: int, seed: int | None = None) -> Dataset:
    """Keep ``count`` rows of each class, for example 40 images a digit.

    Parameters
    ----------
    dataset : Dataset
        With ``y``.
    count : int
    seed : int, optional
        Rows are drawn at random with this seed; without one the first rows of a class are kept.

    Raises
    ------
    InputError
        A class has fewer rows.
    """
    y = _labels_of(dataset)
    rng = None if seed is None else as_generator(seed)
    kept = []
    for label in np.unique(y):
        members = np.flatnonzero(y == label)
        if len(members) < count:
            raise InputError(
                f"class {label} of {dataset.name} has {len(members)} rows", expected=f"{count}"
            )
        kept.append(
            members[:count] if rng is None else rng.choice(members, size=count, replace=False)
        )
    return _record(
        take_rows(dataset, np.sort(np.concatenate(kept))), "rows_per_class", count=count, seed=seed
    )


def class_subset(
    dataset: Dataset,
    *,
    classes: Sequence[int] | None = None,
    n_classes: int | None = None,
    seed: int | None = None,
) -> Dataset:
    """Keep some classes: the named ones, or ``n_classes`` drawn with ``seed``.

    Without a seed the first ``n_classes`` in order of label are kept. Labels are not renumbered.
    """
    y = _labels_of(dataset)
    known = np.unique(y)
    if (classes is None) == (n_classes is None):
        raise InputError("class_subset needs classes or n_classes", expected="one of the two")
    if classes is not None:
        missing = np.setdiff1d(classes, known)
        if missing.size:
            raise InputError(f"{dataset.name} has no class {missing[0]}")
        chosen = np.asarray(classes)
    else:
        assert n_classes is not None
        if not 1 <= n_classes <= known.size:
            raise InputError(f"n_classes is {n_classes}", expected=f"1 to {known.size}")
        chosen = (
            known[:n_classes]
            if seed is None
            else as_generator(seed).choice(known, size=n_classes, replace=False)
        )
    subset = take_rows(dataset, np.isin(y, chosen))
    return _record(
        subset, "class_subset", classes=sorted(int(label) for label in chosen), seed=seed
    )


def scale_features(dataset: Dataset, *, divide_by: float) -> Dataset:
    """Divide all features by one number, for example 255 to bring pixels into [0, 1]."""
    if dataset.X is None or not divide_by > 0:
        raise InputError(f"cannot divide the features of {dataset.name} by {divide_by}")
    scaled = replace(dataset, X=dataset.X / dataset.X.dtype.type(divide_by))
    return _record(scaled, "scale_features", divide_by=divide_by)


def observe_tags(Y: ArrayLike, n_observed: int, random_state: RandomState = None) -> NDArray[Any]:
    """Hide all but ``n_observed`` random tags of each image.

    Parameters
    ----------
    Y : array of shape (n, tags)
        True tags, 0 and 1.
    n_observed : int
        m* of the completion protocol. An image with that many tags or fewer keeps them all.
    random_state : int, Generator, RandomState or None

    Returns
    -------
    ndarray of shape (n, tags), uint8
        The observed tags; ``Y`` minus it are the hidden ones.
    """
    Y = _binary(Y)
    if n_observed < 1:
        raise InputError(f"n_observed is {n_observed}", expected="at least 1")
    # Random keys on true tags, nothing elsewhere: the n_observed largest keys are a uniform draw.
    keys = as_generator(random_state).random(Y.shape)
    keys[Y == 0] = -1.0
    observed = np.zeros_like(Y)
    top = np.argsort(-keys, axis=1, kind="stable")[:, :n_observed]
    np.put_along_axis(observed, top, 1, axis=1)
    return observed & Y


def corrupt_tags(
    observed: ArrayLike, Y: ArrayLike, share: float, random_state: RandomState = None
) -> NDArray[Any]:
    """Replace a share of the observed tags by wrong tags, uniform and distinct in each image.

    Parameters
    ----------
    observed : array of shape (n, tags)
        Observed tags, a part of ``Y``.
    Y : array of shape (n, tags)
        True tags; a wrong tag is one that is not among them.
    share : float in [0, 1]
        Share of all observed tags that is replaced (rounded to a whole number of tags).
    random_state : int, Generator, RandomState or None

    Returns
    -------
    ndarray of shape (n, tags), uint8
        As many tags per image as before.

    Raises
    ------
    InputError
        An image has fewer wrong tags than are to be put in.
    """
    observed, Y = _binary(observed), _binary(Y)
    if observed.shape != Y.shape or (observed > Y).any():
        raise InputError("observed tags are not a part of the true ones")
    if not 0.0 <= share <= 1.0:
        raise InputError(f"share is {share}", expected="0 to 1")
    rng = as_generator(random_state)
    rows, columns = np.nonzero(observed)
    chosen = rng.permutation(len(rows))[: round(share * len(rows))]
    corrupted = observed.copy()
    corrupted[rows[chosen], columns[chosen]] = 0
    replaced = np.bincount(rows[chosen], minlength=len(Y))
    room = Y.shape[1] - Y.sum(axis=1, dtype=np.int64)
    if (replaced > room).any():
        image = int(np.flatnonzero(replaced > room)[0])
        raise InputError(f"image {image} has only {room[image]} wrong tags to put in")
    for row in np.flatnonzero(replaced):
        wrong = np.flatnonzero(Y[row] == 0)
        corrupted[row, rng.choice(wrong, size=replaced[row], replace=False)] = 1
    return corrupted


#: Transformations that a suite or a user can name.
TRANSFORMATIONS: dict[str, Callable[..., Dataset]] = {
    function.__name__: function
    for function in (filter_tags, rows_per_class, class_subset, scale_features)
}


def apply(dataset: Dataset, steps: Sequence[Mapping[str, Any]]) -> Dataset:
    """Run transformations in order.

    Parameters
    ----------
    dataset : Dataset
    steps : sequence of mappings
        Each with ``name`` (a key of `TRANSFORMATIONS`) and its parameters, for example
        ``{"name": "rows_per_class", "count": 40, "seed": 0}``.

    Raises
    ------
    InputError
        An unknown name or parameter, or one that is missing.
    """
    for step in steps:
        parameters = dict(step)
        name = parameters.pop("name", None)
        if name not in TRANSFORMATIONS:
            raise InputError(
                f"unknown transformation {name!r}", expected="one of " + ", ".join(TRANSFORMATIONS)
            )
        function = TRANSFORMATIONS[name]
        try:
            inspect.signature(function).bind(dataset, **parameters)
        except TypeError as error:
            raise InputError(f"transformation {name}: {error}") from None
        dataset = function(dataset, **parameters)
    return dataset


def _record(dataset: Dataset, name: str, **parameters: Any) -> Dataset:
    done = [*dataset.info.get("transformations", ()), {"name": name, **parameters}]
    return replace(dataset, info={**dataset.info, "transformations": done})


def _tags_of(dataset: Dataset) -> NDArray[np.uint8]:
    if dataset.Y is None:
        raise InputError(f"{dataset.name} has no tags")
    return dataset.Y


def _labels_of(dataset: Dataset) -> NDArray[Any]:
    if dataset.y is None:
        raise InputError(f"{dataset.name} has no class labels")
    return dataset.y


def _binary(values: ArrayLike) -> NDArray[np.uint8]:
    array = np.asarray(values)
    if array.ndim != 2 or not ((array == 0) | (array == 1)).all():
        raise InputError("a tag table holds values other than 0 and 1, or is no matrix")
    return array.astype(np.uint8)
