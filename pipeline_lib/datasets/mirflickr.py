"""MIRFlickr-25000: one tag file per image, one list of image numbers per annotated concept.

- ``meta/tags/tags<i>.txt``: a user tag a line, for image ``im<i>.jpg``;
- ``mirflickr25k_annotations_v080/<concept>.txt`` and ``<concept>_r1.txt``: image numbers, one a line.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pipeline_lib.datasets.reading import (
    PathLike,
    existing_folder,
    read_text,
    shorten,
    split_lines,
    text_lines,
)
from pipeline_lib.datasets.tag_csv import TagTable, tag_matrix
from pipeline_lib.errors import InputError

_TAG_FILE = re.compile(r"tags(\d{1,9})\.txt")


def read_tags(folder: PathLike, *, min_images: int = 20) -> TagTable:
    """Read ``tags1.txt``, ``tags2.txt``, ... of a folder.

    Parameters
    ----------
    folder : path
        ``meta/tags``.
    min_images : int, default 20
        Keep tags on at least this many images (the release's list of common tags counts the same).

    Returns
    -------
    TagTable
        Images ``im1``, ``im2``, ... in numerical order, those without tags included.

    Raises
    ------
    InputError
        The numbers of the files have a gap, or a file is not UTF-8.
    """
    folder = existing_folder(folder)
    files: dict[int, Path] = {}
    for path in folder.iterdir():
        if match := _TAG_FILE.fullmatch(path.name):
            files[int(match[1])] = path
    if not files:
        raise InputError("no tag file in the folder", path=folder, expected="tags1.txt, tags2.txt")
    missing = next((i for i in range(1, len(files) + 1) if i not in files), None)
    if missing is not None:
        raise InputError(f"tags{missing}.txt is missing beside {len(files)} others", path=folder)
    lists = [
        [line.strip() for line in split_lines(read_text(files[i])) if line.strip()]
        for i in range(1, len(files) + 1)
    ]
    Y, tags = tag_matrix(lists, min_images=min_images, path=folder)
    return TagTable(tuple(f"im{i}" for i in range(1, len(files) + 1)), Y, tags)


def read_annotations(
    folder: PathLike, n_images: int, *, relevant: bool = False
) -> tuple[NDArray[np.uint8], tuple[str, ...]]:
    """Read the manual annotations.

    Parameters
    ----------
    folder : path
    n_images : int
        Images numbered 1 to ``n_images``.
    relevant : bool, default False
        Take the stricter ``<concept>_r1.txt`` lists instead of ``<concept>.txt``.

    Returns
    -------
    Y : ndarray of shape (n_images, concepts), uint8
    concepts : tuple of str
        In alphabetical order, without ``_r1``.
    """
    folder = existing_folder(folder)
    names = sorted(
        path.stem
        for path in folder.glob("*.txt")
        if path.stem.endswith("_r1") == relevant and path.stem.lower() != "readme"
    )
    if not names:
        raise InputError("no annotation in the folder", path=folder, expected="<concept>.txt files")
    Y = np.zeros((n_images, len(names)), dtype=np.uint8)
    for j, name in enumerate(names):
        path = folder / f"{name}.txt"
        for line, text in text_lines(path):
            word = text.strip()
            if not (word.isascii() and word.isdigit() and 1 <= int(word[:12]) <= n_images):
                raise InputError(
                    shorten(word), path=path, line=line, expected=f"an image number, 1-{n_images}"
                )
            if Y[int(word) - 1, j]:
                raise InputError(f"image {word} stands twice", path=path, line=line)
            Y[int(word) - 1, j] = 1
    return Y, tuple(name.removesuffix("_r1") for name in names)
