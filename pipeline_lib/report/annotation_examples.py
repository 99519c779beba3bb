"""Example annotations: the same few test images under several methods, with pictures where found."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib.image
import numpy as np
import polars as pl

from pipeline_lib.datasets.acquire import locate
from pipeline_lib.datasets.image_folder import SUFFIXES
from pipeline_lib.datasets.pictures import read_picture, resize
from pipeline_lib.errors import AffinityError
from pipeline_lib.report.sections import ProblemView, Section

_METHODS = 4  # columns beside the true tags
_WRAPPED = 'style="white-space: normal; vertical-align: top"'
_SIDE = 96  # pixels of a thumbnail's longer side
# Folders beside the raw files in which pictures are looked for.
_FOLDERS = ("", "images", "pictures")


def examples_section(view: ProblemView) -> list[Section]:
    """A table of test images with their true tags and what the best rows give them.

    Pictures appear where files named like the images (``00/25.jpg`` for ``00/25``) stand beside the
    dataset's raw files, or in a folder ``images`` or ``pictures`` there.
    """
    tables = _tables(view)
    if not tables:
        return []
    first = next(iter(tables.values()))
    pictures = [_thumbnail(view, str(name)) for name in first["id"]]
    seen = any(pictures)
    head = [*(["picture"] if seen else []), "image", "its tags", *tables]
    body = []
    for i, row in enumerate(first.iter_rows(named=True)):
        true = set(row["true"])
        cells = [pictures[i]] if seen else []
        cells += [html.escape(str(row["id"])), html.escape(", ".join(row["true"]))]
        cells += [_tags(table["given"][i].to_list(), true) for table in tables.values()]
        body.append(
            "<tr>" + "".join(f'<td class="text" {_WRAPPED}>{cell}</td>' for cell in cells) + "</tr>"
        )
    titles = "".join(f'<th class="text">{html.escape(title)}</th>' for title in head)
    table = (
        f'<div class="scroll"><table class="examples"><thead><tr>{titles}</tr></thead>'
        f"<tbody>{''.join(body)}</tbody></table></div>"
    )
    note = "Test images evenly spaced through the data; tags that the image has are bold."
    if not seen:
        note += " No pictures were found beside the dataset's files."
    return [Section("Example annotations", table, note)]


def _tables(view: ProblemView) -> dict[str, pl.DataFrame]:
    """What the best rows gave to the first test images, on the first split and repetition."""
    if not len(view.pictures):
        return {}
    first = view.pictures.filter(
        (pl.col("repetition") == 0) & (pl.col("split") == view.problem.splits[0])
    )
    ordered = view.results.sort("value", descending=True, nulls_last=True)["label"].to_list()
    tables = {label: first.filter(pl.col("label") == label) for label in ordered}
    return {label: part for label, part in list(tables.items())[:_METHODS] if len(part)}


def _tags(given: Sequence[str], true: set[str]) -> str:
    return ", ".join(
        f"<strong>{html.escape(tag)}</strong>" if tag in true else html.escape(tag) for tag in given
    )


def _thumbnail(view: ProblemView, name: str) -> str:
    """A picture as an element, or nothing."""
    for part in view.data:
        try:
            files = locate(view.problem.dataset, part.partition("/")[2])
        except AffinityError:
            continue
        for folder in dict.fromkeys(file.parent for file in files):
            path = _picture_file(folder, name)
            if path is not None:
                return _element(path)
    return ""


def _picture_file(folder: Path, name: str) -> Path | None:
    relative = Path(name)
    if relative.is_absolute() or ".." in relative.parts:
        return None
    for below in _FOLDERS:
        base = folder / below / relative
        for path in (base, *(base.with_name(base.name + suffix) for suffix in SUFFIXES)):
            if path.suffix.lower() in SUFFIXES and path.is_file():
                return path
    return None


def _element(path: Path) -> str:
    try:
        pixels = read_picture(path)
    except AffinityError:
        return ""
    scale = _SIDE / max(pixels.shape[:2])
    size = (max(1, round(pixels.shape[0] * scale)), max(1, round(pixels.shape[1] * scale)))
    small: Any = resize(pixels, size, path)
    if small.ndim == 2:
        small = np.repeat(small[:, :, None], 3, axis=2)
    buffer = io.BytesIO()
    top = 255 if small.dtype == np.uint8 else np.iinfo(small.dtype).max
    matplotlib.image.imsave(buffer, small / top, format="png")
    data = base64.b64encode(buffer.getvalue()).decode("ascii")
    return f'<img alt="" width="{size[1]}" height="{size[0]}" src="data:image/png;base64,{data}">'
