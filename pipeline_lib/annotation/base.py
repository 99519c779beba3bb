"""What every annotation model shares: checked input, and fitted state as plain arrays.

An annotation model learns from rows x_1..x_n in R^d and their tags Y in {0, 1}^{n x m}, and gives
every tag of a new image a relevance score; the tags with the largest scores annotate the image.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Self, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.base import BaseEstimator

from pipeline_lib.errors import InputError
from pipeline_lib.kernels.functions import as_rows

Array = NDArray[np.float64]
Tags: TypeAlias = sparse.csr_array

_SPARSE_PARTS = ("data", "indices", "indptr", "shape")


def as_tags(Y: Any, n_rows: int | None = None, name: str = "Y") -> Tags:
    """Check a binary tag matrix and return it as a sparse float64 matrix of ones.

    Parameters
    ----------
    Y : array or sparse matrix of shape (n, m)
        1 where the image has the tag, 0 elsewhere.
    n_rows : int, optional
        Number of images ``Y`` must have.
    name : str
        How errors call it.

    Raises
    ------
    InputError
        When ``Y`` is not two-dimensional, not binary, of the wrong length, or holds no tag at all.
    """
    matrix: Any = Y if sparse.issparse(Y) else np.asarray(Y)
    if matrix.ndim != 2 or 0 in matrix.shape:
        raise InputError(
            f"{name} has shape {matrix.shape}", expected="a 2-d tag matrix, images by tags"
        )
    if n_rows is not None and matrix.shape[0] != n_rows:
        raise InputError(
            f"{name} has {matrix.shape[0]} rows", expected=f"{n_rows}, one for each row of X"
        )
    try:
        tags = sparse.csr_array(matrix, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} cannot be read as numbers", expected="0 and 1") from error
    tags.sum_duplicates()
    tags.eliminate_zeros()
    if not (tags.data == 1.0).all():
        raise InputError(f"{name} holds values other than 0 and 1", expected="a binary tag matrix")
    if tags.nnz == 0:
        raise InputError(f"{name} holds no tag", expected="at least one image with a tag")
    return tags


class Annotator(BaseEstimator, ABC):
    """Base of the annotation models: ``fit(X, Y)``, ``predict(X)``, and state as plain arrays.

    Attributes
    ----------
    n_features_in_ : int
        Columns of the training rows.
    n_tags_ : int
        Columns of the training tags.
    """

    n_features_in_: int
    n_tags_: int

    # Fitted attributes (arrays, sparse matrices or numbers) that ``predict`` reads.
    _state_names: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def fit(self, X: ArrayLike, Y: ArrayLike) -> Self:
        """Learn from images ``X`` (n, d) and their binary tags ``Y`` (n, m)."""

    @abstractmethod
    def predict(self, X: ArrayLike) -> Array:
        """Relevance scores (n, m) of every tag for every row; larger is more relevant."""

    def _check_fit(self, X: ArrayLike, Y: Any) -> tuple[Array, Tags]:
        rows = as_rows(X)
        tags = as_tags(Y, len(rows))
        self.n_features_in_ = rows.shape[1]
        self.n_tags_ = tags.shape[1]
        return rows, tags

    def _check_predict(self, X: ArrayLike) -> Array:
        if not hasattr(self, "n_features_in_"):
            raise InputError(f"this {type(self).__name__} is not fitted", remedy="call fit first")
        return as_rows(X, n_features=self.n_features_in_)

    def get_state(self) -> dict[str, NDArray[Any]]:
        """Everything ``predict`` needs, as plain arrays; sparse matrices become their parts.

        Together with ``get_params()`` it restores the fitted model (`from_state`) without pickles.
        """
        self._check_predict(np.zeros((1, getattr(self, "n_features_in_", 1))))
        state: dict[str, NDArray[Any]] = {}
        for name in ("n_features_in_", "n_tags_", *self._state_names):
            value = getattr(self, name)
            if sparse.issparse(value):
                for part in _SPARSE_PARTS:
                    state[f"{name}.{part}"] = np.asarray(getattr(value, part))
            else:
                state[name] = np.asarray(value)
        return state

    @classmethod
    def from_state(cls, params: Mapping[str, Any], state: Mapping[str, NDArray[Any]]) -> Self:
        """Restore a fitted model from ``get_params()`` and ``get_state()``.

        Raises
        ------
        InputError
            When an array the model needs is missing.
        """
        own = cls._get_param_names()
        model = cls(**{name: value for name, value in params.items() if name in own})
        for name in ("n_features_in_", "n_tags_", *cls._state_names):
            if name in state:
                value = np.asarray(state[name])
                setattr(model, name, value.item() if value.ndim == 0 else value)
            elif f"{name}.data" in state:
                data, indices, indptr, shape = (state[f"{name}.{part}"] for part in _SPARSE_PARTS)
                setattr(
                    model,
                    name,
                    sparse.csr_array((data, indices, indptr), shape=tuple(shape.tolist())),
                )
            else:
                raise InputError(f"the state of {cls.__name__} lacks {name!r}")
        return model
