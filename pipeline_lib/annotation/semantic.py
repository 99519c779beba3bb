"""Semantic similarity of images from their tags: weighted tags, then latent semantic analysis.

For tags Y in {0, 1}^{n x m} (or counts tf) the weighted matrix is w_ij = l_ij g_j with

====== ======================== ======= =====================================================
local  l_ij                     global  g_j
====== ======================== ======= =====================================================
binary 1 if y_ij > 0 else 0     binary  1
tf     y_ij                     normal  1 / sqrt(sum_i y_ij^2)
log    log(y_ij + 1)            idf     log2(n / (1 + df_j)), df_j images having tag j
..     ..                       entropy 1 + sum_i p_ij log p_ij / log n, p_ij = y_ij / sum_i y_ij
====== ======================== ======= =====================================================

(Tables 3.9 and 3.10 of Feng's thesis.) Yhat holds the first m' left singular vectors of W, each row
scaled to unit length, and the semantic similarity of two training images is
S = Yhat Yhat' (equation 3.5 and after). ``weighting="cosine"`` is the plain cosine of tag vectors:
the rows of Y scaled to unit length, without singular vectors.

Only Yhat is needed to learn a metric (A = K^+ S K^+ = (K^+ Yhat)(K^+ Yhat)'); S itself, n x n, is for
looking at small examples.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, sparse
from scipy.special import xlogy

from pipeline_lib.errors import InputError

Array = NDArray[np.float64]

LOCAL_WEIGHTS = ("binary", "tf", "log")
GLOBAL_WEIGHTS = ("binary", "normal", "idf", "entropy")
WEIGHTINGS: tuple[str, ...] = (
    *(f"{local}-{across}" for local, across in product(LOCAL_WEIGHTS, GLOBAL_WEIGHTS)),
    "cosine",
)
"""Every ``local-global`` combination, and ``cosine``."""

# Singular values below this share of the largest have no determined singular vector.
_NULL = 1e-7


def check_weighting(weighting: str) -> None:
    """Raise `InputError` for a name that is not in `WEIGHTINGS`."""
    if weighting not in WEIGHTINGS:
        raise InputError(
            f"unknown weighting {weighting!r}", expected="one of " + ", ".join(WEIGHTINGS)
        )


def weight_tags(Y: Any, weighting: str = "log-entropy") -> sparse.csr_array:
    """Weight a tag matrix: w_ij = l_ij g_j (formulas at the top of the module).

    Parameters
    ----------
    Y : array or sparse matrix of shape (n, m)
        Tags or tag counts, all >= 0.
    weighting : str, default "log-entropy"
        One of `WEIGHTINGS`.

    Returns
    -------
    csr_array of shape (n, m), float64

    Raises
    ------
    InputError
        For an unknown weighting, or values that are negative, NaN or infinite.
    """
    check_weighting(weighting)
    counts = sparse.csr_array(Y, dtype=np.float64, copy=True)
    counts.sum_duplicates()
    counts.eliminate_zeros()
    if not (np.isfinite(counts.data).all() and (counts.data >= 0).all()):
        raise InputError("Y has negative, NaN or infinite values", expected="tags or tag counts")
    if weighting == "cosine":
        return _unit_rows_sparse(counts)
    local, across = weighting.split("-")
    column_weights = _global_weights(counts, across)
    if local == "binary":
        counts.data = np.ones_like(counts.data)
    elif local == "log":
        counts.data = np.log1p(counts.data)
    counts.data *= column_weights[counts.indices]
    return counts


def _global_weights(counts: sparse.csr_array, across: str) -> Array:
    n, m = counts.shape
    column = counts.indices

    def per_tag(values: NDArray[Any]) -> Array:
        return np.bincount(column, weights=values, minlength=m).astype(np.float64)

    if across == "normal":
        squares = per_tag(counts.data**2)
        return 1.0 / np.sqrt(np.where(squares > 0, squares, 1.0))
    if across == "idf":
        document_frequency = per_tag(np.ones_like(counts.data))
        return np.log2(n / (1.0 + document_frequency))
    if across == "entropy" and n > 1:
        p = counts.data / per_tag(counts.data)[column]
        return 1.0 + per_tag(xlogy(p, p)) / np.log(n)
    return np.ones(m)


def _unit_rows_sparse(matrix: sparse.csr_array) -> sparse.csr_array:
    lengths = np.sqrt(np.asarray(matrix.multiply(matrix).sum(axis=1)).ravel())
    scale = 1.0 / np.where(lengths > 0, lengths, 1.0)
    return sparse.csr_array(sparse.diags_array(scale) @ matrix)


def unit_rows(matrix: Array, out: Array | None = None) -> Array:
    """Scale every row to unit Euclidean length; rows of zeros stay zero. ``out`` may be ``matrix``."""
    lengths = np.sqrt(np.einsum("ij,ij->i", matrix, matrix))
    return np.divide(matrix, np.where(lengths > 0, lengths, 1.0)[:, None], out=out)


def left_singular_vectors(W: sparse.csr_array, n_components: int) -> Array:
    """The first left singular vectors of a sparse n x m matrix through its m x m Gram matrix.

    Directions whose singular value is numerically zero are left out, so fewer columns than asked
    may come back. Signs are fixed: the entry of largest modulus of each right vector is positive.
    """
    n, m = W.shape
    if n <= m:
        U, s, _ = linalg.svd(W.toarray(), full_matrices=False, check_finite=False)
        kept = min(n_components, int(np.count_nonzero(s > _NULL * max(s[0], 1e-300))))
        return U[:, :kept] * _signs(U[:, :kept])
    gram = (W.T @ W).toarray()
    wanted = min(n_components, m)
    squares, V = linalg.eigh(gram, subset_by_index=(m - wanted, m - 1), check_finite=False)
    squares, V = squares[::-1], V[:, ::-1]
    kept = int(np.count_nonzero(squares > _NULL**2 * max(squares[0], 1e-300)))
    V = V[:, :kept] * _signs(V[:, :kept])
    # sqrt goes to the small side: the n x k result is made once.
    return np.asarray(W @ (V / np.sqrt(squares[:kept])))


def _signs(vectors: Array) -> Array:
    at = np.abs(vectors).argmax(axis=0)
    return np.where(vectors[at, np.arange(vectors.shape[1])] < 0, -1.0, 1.0)


def semantic_embedding(Y: Any, n_components: int, weighting: str = "log-entropy") -> Array:
    """Rows Yhat whose inner products are the semantic similarity S = Yhat Yhat'.

    Parameters
    ----------
    Y : array or sparse matrix of shape (n, m)
        Tags or tag counts.
    n_components : int
        m', the number of left singular vectors (the thesis takes .38 m); cut to the rank of the
        weighted tags. Not used by ``weighting="cosine"``.
    weighting : str, default "log-entropy"
        One of `WEIGHTINGS`.

    Returns
    -------
    ndarray of shape (n, at most m')
        Unit rows; an image without tags has a row of zeros.

    Raises
    ------
    InputError
        For an unknown weighting, ``n_components < 1``, invalid or empty tags.
    """
    if n_components < 1:
        raise InputError(f"n_components is {n_components}", expected="at least 1")
    W = weight_tags(Y, weighting)
    if W.nnz == 0 or not np.any(W.data):
        raise InputError("the weighted tags are all zero", expected="tags that tell images apart")
    if weighting == "cosine":
        return W.toarray()
    vectors = left_singular_vectors(W, n_components)
    return unit_rows(vectors, out=vectors)


def semantic_similarity(Y: Any, n_components: int, weighting: str = "log-entropy") -> Array:
    """S = Yhat Yhat' (n x n), for looking at small examples; see `semantic_embedding`."""
    embedding = semantic_embedding(Y, n_components, weighting)
    return embedding @ embedding.T
