"""The ``complete`` command: suggest further tags for images from the tags they have."""

from __future__ import annotations

from pathlib import Path

from pipeline_lib import registry
from pipeline_lib.completion.suggest import suggest_tags
from pipeline_lib.errors import InputError

_LAMBDA = 3.0


def complete_tags(table: Path, out: Path | None, method: str, count: int) -> list[Path]:
    """Rank the tags each image lacks, and write them to Parquet and CSV.

    Parameters
    ----------
    table : Path
        CSV with the columns ``image`` and ``tag``.
    out : Path, optional
        Stem of the two files; by default ``<table>-suggestions`` beside the table.
    method : str
        A registered completion method.
    count : int
        Suggestions an image.

    Returns
    -------
    list of Path
        The files written.

    Raises
    ------
    InputError
        If the method is unknown or the table cannot be read; nothing is written then.
    """
    spec = registry.method(method, "completion")
    required = [name for name, p in spec.parameters().items() if p.required]
    params = {**spec.defaults, **{name: _LAMBDA for name in required if name == "lam"}}
    suggestions = suggest_tags(table, spec.load()(**params), count)
    stem = out.with_suffix("") if out is not None else table.with_name(f"{table.stem}-suggestions")
    if not stem.parent.is_dir():
        raise InputError("the folder for the suggestions does not exist", path=stem.parent)
    parquet, csv = stem.with_suffix(".parquet"), stem.with_suffix(".csv")
    for path, write in ((parquet, suggestions.write_parquet), (csv, suggestions.write_csv)):
        partial = path.with_name(f".{path.name}.partial")
        write(partial)
        partial.replace(path)
    return [parquet, csv]
