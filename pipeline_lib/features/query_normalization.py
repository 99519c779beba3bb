"""Query-level normalisation of learning-to-rank features, as in LETOR's distributed files.

For query q and feature j, with the minimum and maximum over the documents i of q,

    z_ij = (x_ij - min_q x_.j) / (max_q x_.j - min_q x_.j),      0 where the two are equal.

Documents of one query become comparable whatever the scale of the raw feature (OHSUMED's range from
-109 to 239), and a feature that is constant within a query, which cannot order it, vanishes there.

Source: T. Qin, T.-Y. Liu, J. Xu, H. Li. LETOR: A benchmark collection for research on learning to rank
for information retrieval. Information Retrieval 13 (2010), section on feature extraction.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pipeline_lib.errors import InputError


def query_minmax(
    X: ArrayLike, qid: ArrayLike, *, missing: Literal["refuse", "minimum"] = "refuse"
) -> NDArray[np.floating]:
    """Scale every feature to [0, 1] within each query.

    Parameters
    ----------
    X : array of shape (n, d)
        Features; infinite values are refused.
    qid : array of shape (n,)
        Query of each row; rows of a query need not be contiguous.
    missing : {"refuse", "minimum"}, default="refuse"
        NaN is an error, or counts as the query's minimum of that feature (so it becomes 0), which is
        LETOR's reading of NULL.

    Returns
    -------
    ndarray of shape (n, d)
        float32 for float32 input, else float64. Applying the function again changes nothing.

    Raises
    ------
    InputError
        Shapes do not fit, or a value is not finite.
    """
    X = np.asarray(X)
    dtype = np.float32 if X.dtype == np.float32 else np.float64
    qid = np.asarray(qid)
    if X.ndim != 2 or qid.shape != (len(X),):
        raise InputError(
            f"X has shape {X.shape} and qid {qid.shape}", expected="shapes (n, d) and (n,)"
        )
    X = X.astype(dtype)  # a copy, scaled in place
    if X.size == 0:
        return X
    absent = np.isnan(X)
    if np.isinf(X).any() or (missing == "refuse" and absent.any()):
        row, column = np.argwhere(~np.isfinite(X))[0].tolist()
        raise InputError(
            f"feature {column} of row {row} is {X[row, column]}", expected="finite values"
        )
    order = np.argsort(qid, kind="stable")
    contiguous = bool((order[:-1] < order[1:]).all())
    rows = X if contiguous else X[order]
    ordered = qid[order]
    begins = np.concatenate(([0], np.flatnonzero(ordered[1:] != ordered[:-1]) + 1))
    sizes = np.diff(begins, append=len(X))

    # fmin and fmax skip NaN; a query without any value of a feature keeps NaN, and ends as 0.
    low = np.fmin.reduceat(rows, begins, axis=0)
    high = np.fmax.reduceat(rows, begins, axis=0)
    # Halves keep the span finite for features that reach from one end of the doubles to the other.
    span = high / 2 - low / 2
    scale = np.where(span > 0, span, 1)
    rows /= 2
    rows -= np.repeat(low / 2, sizes, axis=0)
    rows /= np.repeat(scale, sizes, axis=0)
    if absent.any():
        rows[np.isnan(rows)] = 0
    if contiguous:
        return rows
    X[order] = rows
    return X
