"""The ``complete`` command: suggest further tags for images from the tags they have."""

from __future__ import annotations

from pathlib import Path

from pipeline_lib import registry
from pipeline_lib.completion.suggest import read_tags, suggest_tags
from pipeline_lib.completion.weight import choose_weight
from pipeline_lib.errors import InputError


def complete_tags(table: Path, out: Path | None, method: str, count: int) -> list[Path]:
    """Rank the tags each image lacks, and write them to Parquet and CSV.

    The weight of a trace norm is chosen by cross-validation on the tags of the file.

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
        If the method is unknown or needs more than tags, or the table cannot be read; nothing is
        written then.
    """
    spec = registry.method(method, "completion")
    required = {name for name, parameter in spec.parameters().items() if parameter.required}
    cls = spec.load()
    if (
        required - {"lam"}
        or cls(**spec.defaults, **dict.fromkeys(required, 1)).visual_input != "none"
    ):
        raise InputError(
            f"{method} needs visual features, a table of tags has none",
            remedy="choose a method for tags alone, such as TCMR-regression or CoOccurrence",
        )
    tags = read_tags(table)
    params = {**spec.defaults, **({"lam": choose_weight(tags.D)} if "lam" in required else {})}
    suggestions = suggest_tags(tags, cls(**params), count)
    stem = out.with_suffix("") if out is not None else table.with_name(f"{table.stem}-suggestions")
    if not stem.parent.is_dir():
        raise InputError("the folder for the suggestions does not exist", path=stem.parent)
    parquet, csv = stem.with_suffix(".parquet"), stem.with_suffix(".csv")
    for path, write in ((parquet, suggestions.write_parquet), (csv, suggestions.write_csv)):
        partial = path.with_name(f".{path.name}.partial")
        write(partial)
        partial.replace(path)
    return [parquet, csv]
