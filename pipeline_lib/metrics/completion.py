"""Metrics of tag completion: do the tags that were hidden from the method come back first?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from pipeline_lib.errors import InputError
from pipeline_lib.metrics.annotation import hits_at
from pipeline_lib.metrics.checks import binary_matrix, finite_scores, valid_cutoffs
from pipeline_lib.metrics.result import MetricResult, metric_result


def completion_metrics(
    scores: ArrayLike,
    observed: ArrayLike,
    truth: ArrayLike,
    cutoffs: int | Sequence[int],
    recall_of: Literal["hidden", "all"] = "hidden",
) -> MetricResult:
    """Score the ranking of each image's tags that were not observed.

    The hidden tags of an image are its true tags that were not observed; observed tags, right or
    wrong, are taken out of the ranking. With h_N hidden tags among the N best of the rest:

    - AP@N = h_N / N, averaged over images;
    - AR@N = h_N / (hidden tags of the image), or by all its true tags with ``recall_of="all"``;
    - C@N (coverage) = share of images with h_N >= 1.

    Parameters
    ----------
    scores : array-like of shape (n, tags)
        Larger is more likely; finite. Equal scores rank by tag index.
    observed : array-like of shape (n, tags)
        The tags the method saw, 0 or 1.
    truth : array-like of shape (n, tags)
        All true tags, 0 or 1; observed noise is not among them.
    cutoffs : int or sequence of int
        Values of N, at most the number of tags. Where an image has fewer tags left to rank, the
        missing positions count as wrong.
    recall_of : {"hidden", "all"}, default="hidden"
        What AR@N divides by.

    Returns
    -------
    MetricResult
        One row per image: ``image`` (row number), ``ap_at_N``, ``ar_at_N``, ``c_at_N``. An image
        without hidden tags is null in every column and left out of the means.

    Raises
    ------
    InputError
        If shapes differ, a score is not finite, a matrix is not binary, a cut-off is out of range,
        or `recall_of` is unknown.

    References
    ----------
    Z. Feng, thesis on image annotation and tag completion, section 4.7.1.
    """
    if recall_of not in ("hidden", "all"):
        raise InputError(f"recall_of is {recall_of!r}", expected="'hidden' or 'all'")
    matrix = finite_scores(scores, ndim=2)
    seen = binary_matrix(observed, matrix.shape, name="observed")
    true = binary_matrix(truth, matrix.shape, name="truth")
    ns = valid_cutoffs(cutoffs, matrix.shape[1])
    hidden = true & ~seen
    hits = hits_at(np.where(seen, -np.inf, matrix), hidden, ns[-1])
    n_hidden = hidden.sum(axis=1)
    n_recall = n_hidden if recall_of == "hidden" else true.sum(axis=1)
    defined = np.where(n_hidden > 0, 1.0, np.nan)
    columns = {
        **{f"ap_at_{n}": hits[:, n - 1] / n * defined for n in ns},
        **{f"ar_at_{n}": hits[:, n - 1] / np.maximum(n_recall, 1) * defined for n in ns},
        **{f"c_at_{n}": (hits[:, n - 1] > 0) * defined for n in ns},
    }
    return metric_result("image", np.arange(len(matrix)), columns)
