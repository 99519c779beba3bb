"""Metrics of image annotation: tags ranked for each image, compared with the image's true tags."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pipeline_lib.errors import InputError
from pipeline_lib.metrics.checks import binary_matrix, finite_scores, valid_cutoffs
from pipeline_lib.metrics.ordering import top_k
from pipeline_lib.metrics.result import MetricResult, metric_result


def hits_at(
    scores: NDArray[np.float64], relevant: NDArray[np.bool_], depth: int
) -> NDArray[np.intp]:
    """Count the relevant columns among the first 1..depth of each row, ties by smaller index."""
    first = top_k(scores, depth)
    return np.cumsum(np.take_along_axis(relevant, first, axis=1), axis=1)


def annotation_metrics(
    scores: ArrayLike, Y: ArrayLike, cutoffs: int | Sequence[int] = tuple(range(1, 11))
) -> MetricResult:
    """Score the top t tags predicted for each image.

    With h_t true tags among the t tags of highest score and T_i true tags of image i:

    - AP@t: precision h_t / t, averaged over images;
    - AR@t: recall h_t / T_i, averaged over images;
    - F1@t: 2 P R / (P + R) of the image (0 when h_t = 0), averaged over images.

    The same numbers serve tag ranking and tag refinement, where no observed tag is left out.

    Parameters
    ----------
    scores : array-like of shape (n, tags)
        Larger is more likely; finite. Equal scores rank by tag index.
    Y : array-like of shape (n, tags)
        True tags, 0 or 1.
    cutoffs : int or sequence of int, default=1..10
        Values of t, at most the number of tags.

    Returns
    -------
    MetricResult
        One row per image: ``image`` (row number), ``ap_at_t``, ``ar_at_t``, ``f1_at_t``. An image
        without true tags is null in every column and left out of the means.

    Raises
    ------
    InputError
        If shapes differ, a score is not finite, Y is not binary, or a cut-off is out of range.

    References
    ----------
    Z. Feng, thesis on image annotation and tag completion, section 3.7.
    """
    matrix = finite_scores(scores, ndim=2)
    truth = binary_matrix(Y, matrix.shape, name="Y")
    ts = valid_cutoffs(cutoffs, matrix.shape[1])
    hits = hits_at(matrix, truth, ts[-1])
    n_true = truth.sum(axis=1)
    defined = np.where(n_true > 0, 1.0, np.nan)
    columns = {
        **{f"ap_at_{t}": hits[:, t - 1] / t * defined for t in ts},
        **{f"ar_at_{t}": hits[:, t - 1] / np.maximum(n_true, 1) * defined for t in ts},
        # 2PR / (P + R) with P = h/t and R = h/T is 2h / (t + T), defined also where h = 0.
        **{f"f1_at_{t}": 2.0 * hits[:, t - 1] / (t + n_true) * defined for t in ts},
    }
    return metric_result("image", np.arange(len(matrix)), columns)


def tag_metrics(
    scores: ArrayLike, Y: ArrayLike, n_tags: int = 5, tags: Sequence[str] | None = None
) -> MetricResult:
    """Score annotation tag by tag when every image receives its `n_tags` best tags.

    For a tag given to g images, c of them rightly, and true for r images: precision c / g (0 when
    g = 0), recall c / r. N+ is the number of tags with c > 0.

    Parameters
    ----------
    scores : array-like of shape (n, tags)
        Larger is more likely; finite. Equal scores rank by tag index.
    Y : array-like of shape (n, tags)
        True tags, 0 or 1.
    n_tags : int, default=5
        Tags given to each image.
    tags : sequence of str, optional
        Names of the columns; their indices when omitted.

    Returns
    -------
    MetricResult
        One row per tag: ``tag``, ``precision``, ``recall``, ``n_plus`` (1 when the tag is recalled at
        all). A tag that no image truly has is null and left out of the means, as in the usual
        P / R / N+ tables. ``means["n_plus"]`` is the number of recalled tags, not a mean.

    Raises
    ------
    InputError
        If shapes differ, a score is not finite, Y is not binary, or `n_tags` is out of range.
    """
    matrix = finite_scores(scores, ndim=2)
    truth = binary_matrix(Y, matrix.shape, name="Y")
    (depth,) = valid_cutoffs([n_tags], matrix.shape[1])
    if tags is not None and len(tags) != matrix.shape[1]:
        raise InputError(f"{len(tags)} tag names", expected=f"{matrix.shape[1]}, one per column")
    given = np.zeros(matrix.shape, dtype=bool)
    np.put_along_axis(given, top_k(matrix, depth), True, axis=1)
    n_given, n_true = given.sum(axis=0), truth.sum(axis=0)
    n_right = (given & truth).sum(axis=0)
    defined = np.where(n_true > 0, 1.0, np.nan)
    result = metric_result(
        "tag",
        np.arange(matrix.shape[1]) if tags is None else list(tags),
        {
            "precision": n_right / np.maximum(n_given, 1) * defined,
            "recall": n_right / np.maximum(n_true, 1) * defined,
            "n_plus": (n_right > 0) * defined,
        },
    )
    result.means["n_plus"] = float((n_right > 0).sum())
    return result
