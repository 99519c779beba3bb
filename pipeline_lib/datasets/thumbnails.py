"""A sheet of thumbnails of an image set, every picture upright, for a look before a run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline_lib.datasets.container import Dataset
from pipeline_lib.datasets.pictures import read_picture, resize
from pipeline_lib.errors import InputError
from pipeline_lib.features.descriptors.pixels import to_float_rgb


def pictures_of(dataset: Dataset, rows: Sequence[int]) -> list[NDArray[np.float64]]:
    """Rows of pixels as upright pictures in [0, 1].

    Parameters
    ----------
    dataset : Dataset
        Whose ``info["findings"]["image"]`` says height, width and order: ``"F"`` when pixels stand
        column by column, as in MATLAB files, ``"C"`` when row by row.
    rows : sequence of int
    """
    image = dataset.info.get("findings", dataset.info).get("image")
    if dataset.X is None or image is None:
        raise InputError(f"{dataset.name} {dataset.part} does not consist of pictures")
    low, high = float(dataset.X.min()), float(dataset.X.max())
    scale = high - low if high > low else 1.0
    shape = (image["height"], image["width"])
    return [
        (np.asarray(dataset.X[i], dtype=np.float64).reshape(shape, order=image["order"]) - low)
        / scale
        for i in rows
    ]


def thumbnail_sheet(
    dataset: Dataset, path: str | Path, *, per_class: int = 8, max_classes: int = 20
) -> Path:
    """Draw the first pictures of each class, one class a row; without labels the first pictures.

    Parameters
    ----------
    dataset : Dataset
        An image set (see `pictures_of`).
    path : path
        The picture to write, for example ``sheet.png``.
    per_class, max_classes : int
        Columns, and rows, at most.

    Returns
    -------
    Path
    """
    title = f"{dataset.name} {dataset.part}"
    if dataset.y is None:
        first = pictures_of(dataset, range(min(len(dataset), per_class * max_classes)))
        lines = [first[start : start + per_class] for start in range(0, len(first), per_class)]
        return _draw(lines, [""] * len(lines), title, path)
    every = np.unique(dataset.y)
    labels = every[:max_classes]
    if len(every) > len(labels):
        title += f": {len(labels)} of {len(every)} classes"
    rows = [np.flatnonzero(dataset.y == label)[:per_class] for label in labels]
    cells = [pictures_of(dataset, members.tolist()) for members in rows]
    classes = dataset.info.get("classes") or ()
    return _draw(cells, [classes[k] if classes else str(k) for k in labels], title, path)


def picture_sheet(
    files: Sequence[Path], path: str | Path, *, columns: int = 10, max_pictures: int = 100
) -> Path:
    """Draw picture files (the first ``max_pictures``), fitted into squares."""
    if not files:
        raise InputError("no pictures to draw")
    cells = [_fitted(to_float_rgb(read_picture(file)), file) for file in files[:max_pictures]]
    rows = [cells[start : start + columns] for start in range(0, len(cells), columns)]
    return _draw(rows, [""] * len(rows), f"{len(files):,} pictures", path)


def _fitted(picture: NDArray[Any], file: Path, side: int = 64) -> NDArray[Any]:
    scale = side / max(picture.shape[:2])
    size = (max(1, round(picture.shape[0] * scale)), max(1, round(picture.shape[1] * scale)))
    small = resize((picture * 255).astype(np.uint8), size, file) / 255
    square = np.ones((side, side, 3))
    top, left = (side - size[0]) // 2, (side - size[1]) // 2
    square[top : top + size[0], left : left + size[1]] = small
    return square


def _draw(
    rows: Sequence[Sequence[NDArray[Any]]], labels: Sequence[str], title: str, path: str | Path
) -> Path:
    from matplotlib.figure import Figure

    columns = max(len(row) for row in rows)
    figure = Figure(figsize=(0.8 * columns + 0.8, 0.8 * len(rows) + 0.5), layout="constrained")
    axes = figure.subplots(len(rows), columns, squeeze=False)
    for axis in axes.flat:
        axis.set_axis_off()
    for cells, label, row_axes in zip(rows, labels, axes):
        for picture, axis in zip(cells, row_axes):
            axis.imshow(picture, cmap="gray", vmin=0, vmax=1, interpolation="nearest")
        row_axes[0].text(
            -0.15, 0.5, label, transform=row_axes[0].transAxes, ha="right", va="center"
        )
    figure.suptitle(title)
    path = Path(path)
    figure.savefig(path, dpi=100)
    return path
