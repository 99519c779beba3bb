"""What a part of a dataset holds, in numbers and, for pictures, as a sheet of thumbnails."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline_lib.datasets.acquire import load, locate
from pipeline_lib.datasets.container import Dataset
from pipeline_lib.datasets.image_folder import SUFFIXES
from pipeline_lib.datasets.thumbnails import picture_sheet, thumbnail_sheet
from pipeline_lib.errors import InputError

_SHOWN = 5


def describe(
    name: str,
    part: str | None = None,
    *,
    allow_mismatch: bool = False,
    sheet: str | Path | None = None,
) -> dict[str, Any]:
    """What a part holds: counts, labels, queries, tags, ranges, and where it comes from.

    Parameters
    ----------
    name, part : str
        Catalogue name and part; the dataset's first part when ``part`` is None.
    allow_mismatch : bool, default=False
        Accept data that differ from their declaration; what differs is among the facts.
    sheet : path, optional
        Draw thumbnails into this picture (a suffix that matplotlib writes, such as ``.png``).

    Returns
    -------
    dict
        Facts by name, in the order in which they are to be read; many source files are only counted.

    Raises
    ------
    InputError
        As `acquire.load`; or a sheet was asked for data that are not pictures.
    """
    if sheet is not None and Path(sheet).suffix.lower() not in (".png", ".jpg", ".pdf", ".svg"):
        raise InputError(
            f"a sheet cannot be written as {Path(sheet).suffix!r}", path=sheet, expected=".png"
        )
    data = load(name, part, allow_mismatch=allow_mismatch)
    facts: dict[str, Any] = {"name": data.name, "part": data.part, "rows": len(data)}
    for add in (_features, _labels, _queries, _tags):
        facts |= add(data)
    kept = ("variant", "variant_note", "mismatch", "unconfirmed", "findings", "sources")
    facts |= {key: data.info[key] for key in kept if data.info.get(key)}
    if len(facts.get("sources", ())) > _SHOWN:
        facts["sources"] = f"{len(facts['sources']):,} files"
    if sheet is not None:
        facts["sheet"] = str(_draw(data, name, part, Path(sheet)))
    return facts


def _draw(data: Dataset, name: str, part: str | None, path: Path) -> Path:
    if not path.absolute().parent.is_dir():
        raise InputError("the folder of the sheet is not there", path=path)
    if data.info.get("findings", {}).get("image"):
        return thumbnail_sheet(data, path)
    pictures = [file for file in locate(name, part) if file.suffix.lower() in SUFFIXES]
    if not pictures:
        raise InputError(
            f"{data.name} {data.part} does not consist of pictures", remedy="leave --sheet away"
        )
    return picture_sheet(pictures, path)


def _features(data: Dataset) -> dict[str, Any]:
    if data.X is None:
        return {}
    constant = int((data.X.min(axis=0) == data.X.max(axis=0)).sum())
    return {
        "features": data.X.shape[1],
        "range": [float(data.X.min()), float(data.X.max())],
        "nonzero share": round(float(np.count_nonzero(data.X)) / data.X.size, 4),
        "constant features": constant,
    }


def _labels(data: Dataset) -> dict[str, Any]:
    if data.y is None:
        return {}
    counts, classes = data.info["counts"]["labels"], data.info["classes"]
    named = {
        classes[k] if classes else str(k): n
        for k, n in sorted((int(k), n) for k, n in counts.items())
    }
    if len(named) <= 4 * _SHOWN or data.qid is not None:
        return {"labels": named}
    return {"labels": len(named), "rows per label": _distribution(np.array(list(named.values())))}


def _queries(data: Dataset) -> dict[str, Any]:
    if data.qid is None or data.y is None:
        return {}
    begins = np.flatnonzero(np.diff(data.qid, prepend=data.qid[0] - 1))
    best = np.maximum.reduceat(data.y, begins)
    return {
        "queries": len(begins),
        "documents per query": _distribution(np.diff(begins, append=len(data))),
        "queries without a relevant document": int((best <= 0).sum()),
        "queries with one label": int((best == np.minimum.reduceat(data.y, begins)).sum()),
    }


def _tags(data: Dataset) -> dict[str, Any]:
    if data.Y is None:
        return {}
    per_image, per_tag = data.Y.sum(axis=1, dtype=np.int64), data.Y.sum(axis=0, dtype=np.int64)
    common = np.argsort(-per_tag, kind="stable")[:_SHOWN]
    return {
        "tags": len(data.tags),
        "tags per image": _distribution(per_image),
        "images without a tag": int((per_image == 0).sum()),
        "images per tag": _distribution(per_tag),
        "tags without an image": int((per_tag == 0).sum()),
        "given share": round(float(per_tag.sum()) / data.Y.size, 4),
        "most common tags": {data.tags[tag]: int(per_tag[tag]) for tag in common},
    }


def _distribution(values: NDArray[Any]) -> dict[str, float]:
    names = ("min", "lower quartile", "median", "upper quartile", "max")
    quartiles = np.percentile(values, [0, 25, 50, 75, 100]).tolist()
    named = dict(zip(names, map(float, quartiles), strict=True))
    return named | {"mean": round(float(values.mean()), 2)}
