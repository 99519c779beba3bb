"""Folders of pictures: one folder (or file name prefix) per class, or a folder with a tag CSV."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from pipeline_lib.datasets.pictures import read_picture, resize, to_grey
from pipeline_lib.datasets.reading import MAX_CELLS, PathLike, existing_folder
from pipeline_lib.datasets.tag_csv import TagTable, read_tag_csv
from pipeline_lib.errors import DataMissingError, InputError

#: Suffixes under which pictures are looked for.
SUFFIXES = (".pgm", ".png", ".jpg", ".jpeg", ".gif", ".bmp", ".tif", ".tiff", ".webp")


@dataclass(frozen=True)
class ImageClasses:
    """Pictures as rows of pixels.

    Attributes
    ----------
    X : ndarray of shape (n, height * width), uint8 or uint16
        Grey pixels, row by row.
    y : ndarray of shape (n,), int64
        Position of the picture's class in ``classes``.
    classes, ids : tuple of str
        Class names in natural order; pictures relative to the folder.
    shape : (int, int)
        Height and width.
    """

    X: NDArray[Any]
    y: NDArray[np.int64]
    classes: tuple[str, ...]
    ids: tuple[str, ...]
    shape: tuple[int, int]


def natural_key(text: str) -> list[tuple[int, int, str]]:
    """Sorting key that puts ``s2`` before ``s10``."""
    return [
        (0, int(piece), "") if piece.isdigit() and piece.isascii() else (1, 0, piece)
        for piece in re.split(r"([0-9]+)", text)
        if piece
    ]


def find_pictures(folder: PathLike) -> list[Path]:
    """Every picture below a folder (hidden ones excepted), in natural order of relative path."""
    folder = existing_folder(folder)
    found = [
        path
        for path in folder.rglob("*")
        if path.suffix.lower() in SUFFIXES
        and path.is_file()
        and not any(part.startswith(".") for part in path.relative_to(folder).parts)
    ]
    if not found:
        raise DataMissingError(
            "no picture below the folder", path=folder, expected=", ".join(SUFFIXES)
        )
    return sorted(found, key=lambda path: natural_key(path.relative_to(folder).as_posix()))


def read_pictures(files: Sequence[Path]) -> list[NDArray[Any]]:
    """Read several pictures; when some are damaged, one error names them."""
    pictures, damaged = [], []
    for path in files:
        try:
            pictures.append(read_picture(path))
        except DataMissingError:
            raise
        except InputError as error:
            damaged.append(error)
    raise_damaged(damaged, files)
    return pictures


def raise_damaged(damaged: Sequence[InputError], files: Sequence[Path]) -> None:
    """Raise one error that names the damaged pictures (ten of them when there are more)."""
    if damaged:
        names = "; ".join(str(error) for error in damaged[:10])
        more = f"; and {len(damaged) - 10} more" if len(damaged) > 10 else ""
        raise InputError(
            f"{len(damaged)} of {len(files)} pictures cannot be used: {names}{more}",
            path=os.path.commonpath([path.parent for path in files]),
            remedy="replace or remove these files",
        )


def read_image_classes(
    folder: PathLike,
    *,
    files: Sequence[Path] | None = None,
    classes: Literal["folder", "prefix"] = "folder",
    separator: str = ".",
    size: tuple[int, int] | None = None,
) -> ImageClasses:
    """Read a folder of grey pictures by class (ORL's ``s1/1.pgm``, Yale's ``subject01.happy``).

    Parameters
    ----------
    folder : path
    files : sequence of Path, optional
        The pictures; by default all below ``folder`` (see `find_pictures`).
    classes : {"folder", "prefix"}, default "folder"
        The class of a picture: the name of its folder, or its file name up to ``separator``.
    separator : str, default "."
        For example ``"__"`` for COIL20's ``obj1__0.png``.
    size : (int, int), optional
        Height and width to resample to; without it all pictures must have one size.

    Returns
    -------
    ImageClasses
        Colour pictures are turned grey.
    """
    folder = existing_folder(folder)
    if classes not in ("folder", "prefix"):
        raise InputError(f"classes is {classes!r}", expected='"folder" or "prefix"')
    if files is None:
        files = find_pictures(folder)
    else:
        files = sorted(files, key=lambda path: natural_key(path.relative_to(folder).as_posix()))
    if size is not None and len(files) * size[0] * size[1] > MAX_CELLS:
        raise InputError(
            f"{len(files):,} pictures of {size[0]} x {size[1]} pixels are too many",
            path=folder,
            expected=f"at most {MAX_CELLS:,} pixels in all",
        )
    pictures = [to_grey(picture) for picture in read_pictures(files)]
    if size is not None:
        pictures = [resize(picture, size, path) for picture, path in zip(pictures, files)]
    shape = pictures[0].shape
    for picture, path in zip(pictures, files):
        if picture.shape != shape:
            raise InputError(
                f"is {picture.shape[0]} x {picture.shape[1]} pixels",
                path=path,
                expected=f"{shape[0]} x {shape[1]} as {files[0].name}",
                remedy="give a size to resample to",
            )
    names = [
        path.parent.relative_to(folder).as_posix()
        if classes == "folder"
        else path.name.partition(separator)[0]
        for path in files
    ]
    order = tuple(sorted(set(names), key=natural_key))
    position = {name: code for code, name in enumerate(order)}
    return ImageClasses(
        X=np.stack(pictures).reshape(len(pictures), -1),
        y=np.array([position[name] for name in names], dtype=np.int64),
        classes=order,
        ids=tuple(path.relative_to(folder).as_posix() for path in files),
        shape=(shape[0], shape[1]),
    )


def match_tags(
    folder: PathLike, tags: PathLike, *, separator: str = ";"
) -> tuple[list[Path], TagTable, list[str]]:
    """Join a folder of pictures with a tag CSV (see `tag_csv.read_tag_csv`).

    Parameters
    ----------
    folder : path
    tags : path
        Its first column names pictures relative to the folder, with or without suffix.

    Returns
    -------
    files : list of Path
        The pictures, in natural order.
    table : TagTable
        One row per picture, in the same order; ``ids`` are relative paths.
    without_row : list of str
        Pictures that the CSV does not name: they stay, without tags.
    """
    folder = existing_folder(folder)
    files = find_pictures(folder)
    table = read_tag_csv(tags, separator=separator)
    by_name: dict[str, list[int]] = {}
    for i, path in enumerate(files):
        relative = path.relative_to(folder)
        for name in {relative.as_posix(), relative.with_suffix("").as_posix()}:
            by_name.setdefault(name, []).append(i)
    Y = np.zeros((len(files), len(table.tags)), dtype=np.uint8)
    row_of: dict[int, str] = {}
    for image, row in zip(table.ids, table.Y):
        found = by_name.get(image.replace("\\", "/"), [])
        if len(found) != 1:
            raise InputError(
                f"image {image!r} is {'no' if not found else 'more than one'} picture in {folder}",
                path=tags,
                expected="pictures named relative to the folder",
            )
        if found[0] in row_of:
            raise InputError(f"{row_of[found[0]]!r} and {image!r} are one picture", path=tags)
        row_of[found[0]] = image
        Y[found[0]] = row
    ids = tuple(path.relative_to(folder).as_posix() for path in files)
    without = [name for i, name in enumerate(ids) if i not in row_of]
    return files, TagTable(ids, Y, table.tags), without
