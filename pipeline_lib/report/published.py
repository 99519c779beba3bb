"""Numbers printed in the papers, as data, to set beside ours.

``data/published/<name>.csv`` has the columns ``dataset``, ``method``, ``metric``, ``value``, ``deviation``
(empty when none is printed), ``protocol``, ``source`` (``paper``, ``figure`` when read off one, or
``code`` for numbers in the authors' public code) and ``note``.
"""

from __future__ import annotations

from pathlib import Path

import polars as pl

from pipeline_lib.errors import InputError
from pipeline_lib.suggest import unknown_name

SCHEMA = {
    "dataset": pl.String,
    "method": pl.String,
    "metric": pl.String,
    "value": pl.Float64,
    "deviation": pl.Float64,
    "protocol": pl.String,
    "source": pl.String,
    "note": pl.String,
}


def published_folder() -> Path:
    """Folder of the published numbers: beside the checkout, else inside the installed package."""
    package = Path(__file__).resolve().parent.parent
    for folder in (package.parent / "data" / "published", package / "_data" / "published"):
        if folder.is_dir():
            return folder
    raise InputError(
        "the published numbers are missing", path=package, remedy="reinstall affinity-bench"
    )


def published_names() -> list[str]:
    """Names of all published tables."""
    return sorted(path.stem for path in published_folder().glob("*.csv"))


def published(name: str) -> pl.DataFrame:
    """Read one published table.

    Raises
    ------
    InputError
        If there is none of that name.
    """
    if name not in published_names():
        raise unknown_name("published table", name, published_names())
    return pl.read_csv(published_folder() / f"{name}.csv", schema=SCHEMA)
