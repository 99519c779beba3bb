"""The ESP Game's ``esp_data.mat``: tags and file names of 21,846 images, and two lists of ids.

Variables: ``dict`` (269 words in a cell), ``data`` (structure array with ``keywords``, positions in
the dictionary counted from 1, and ``file``), ``train`` and ``test`` (image numbers counted from 1).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline_lib.datasets.matlab import numeric_matrix, read_mat
from pipeline_lib.datasets.reading import PathLike
from pipeline_lib.errors import InputError


@dataclass(frozen=True)
class EspGame:
    """Tags ``Y`` (n, words) uint8, ``tags``, file names ``ids``, and row numbers of the two parts."""

    Y: NDArray[np.uint8]
    tags: tuple[str, ...]
    ids: tuple[str, ...]
    train: NDArray[np.int64]
    test: NDArray[np.int64]


def read_esp(path: PathLike) -> EspGame:
    """Read ``esp_data.mat``.

    Raises
    ------
    InputError
        Naming the image (from 1) whose file name or keywords cannot be used, or the id that is out of
        range or in both parts.
    """
    content = read_mat(path)
    for name in ("dict", "data", "train", "test"):
        if name not in content:
            raise InputError(
                f"no variable {name!r}", path=path, expected="dict, data, train and test"
            )
    words, data = content["dict"], content["data"]
    if not isinstance(words, np.ndarray) or words.dtype != object:
        raise InputError("dict is not a cell of words", path=path)
    tags = tuple(_text(cell, f"word {k}", path) for k, cell in enumerate(words.ravel(), 1))
    if len(set(tags)) != len(tags):
        raise InputError("dict has a word twice", path=path, expected="distinct words")
    fields = set(getattr(getattr(data, "dtype", None), "names", None) or ())
    if not {"keywords", "file"} <= fields:
        raise InputError(
            "data is not a structure array", path=path, expected="fields keywords and file"
        )
    data = data.ravel()
    Y = np.zeros((data.size, len(tags)), dtype=np.uint8)
    ids = []
    for i, (keywords, file) in enumerate(zip(data["keywords"], data["file"])):
        what = f"image {i + 1}"
        # The file name is text in a cell in some copies, plain text in others.
        ids.append(_text(file, f"the file name of {what}", path))
        codes = np.asarray(keywords).ravel()
        if codes.dtype.kind not in "uif":
            raise InputError(f"{what} has no numeric keywords", path=path)
        if codes.size and not ((codes >= 1) & (codes <= len(tags)) & (codes % 1 == 0)).all():
            raise InputError(
                f"{what} has a keyword outside the dictionary", path=path, expected=f"1-{len(tags)}"
            )
        Y[i, codes.astype(np.intp) - 1] = 1
    if len(set(ids)) != len(ids):
        raise InputError("a file name stands twice in data", path=path, expected="distinct names")
    parts = {}
    for name in ("train", "test"):
        numbers = numeric_matrix(content, name, path).ravel().astype(np.int64)
        if numbers.size and not (numbers.min() >= 1 and numbers.max() <= len(data)):
            raise InputError(f"{name} names an image outside 1-{len(data)}", path=path)
        if np.unique(numbers).size != numbers.size:
            raise InputError(f"{name} names an image twice", path=path)
        parts[name] = np.sort(numbers) - 1
    both = np.intersect1d(parts["train"], parts["test"])
    if both.size:
        raise InputError(f"image {both[0] + 1} is in train and in test", path=path)
    return EspGame(Y, tags, tuple(ids), parts["train"], parts["test"])


def _text(value: Any, what: str, path: PathLike) -> str:
    while isinstance(value, np.ndarray) and value.size == 1:
        value = value.ravel()[0]
    if not isinstance(value, str) or not value.strip():
        raise InputError(f"{what} is not text", path=path)
    return value.strip()
