"""The ``score`` command: predictions made elsewhere, under the metrics of the benchmarks."""

from __future__ import annotations

import json
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from pipeline_lib.datasets.acquire import load
from pipeline_lib.datasets.canonical import read_canonical, write_canonical
from pipeline_lib.datasets.container import Dataset
from pipeline_lib.datasets.letor import read_letor
from pipeline_lib.errors import InputError
from pipeline_lib.metrics.resampling import bootstrap_interval
from pipeline_lib.metrics.result import MetricResult
from pipeline_lib.scoring import read_predictions, score


@dataclass(frozen=True)
class ScoreCommand:
    """What the command line asks for.

    Attributes
    ----------
    truth : str
        Dataset by name, or a file in LETOR's format.
    predictions : Path
    part : str, optional
        Part of the dataset.
    definition : str
        Of ranking metrics.
    cutoffs : tuple of int
        Of annotation metrics.
    per_item : Path, optional
        Where the values per query or image go: ``.csv`` or ``.parquet``.
    as_json : bool
    """

    truth: str
    predictions: Path
    part: str | None = None
    definition: str = "letor4"
    cutoffs: tuple[int, ...] = (1, 3, 5)
    per_item: Path | None = None
    as_json: bool = False


def score_command(command: ScoreCommand) -> None:
    """Print the metrics, and write the values per item where asked.

    Raises
    ------
    InputError
        If data or predictions cannot be read or do not fit; nothing is written then.
    """
    target = command.per_item
    if target is not None and target.suffix not in (".csv", ".parquet"):
        raise InputError(
            f'unknown format "{target.suffix}"', path=target, expected=".csv, .parquet"
        )
    if target is not None and not target.parent.is_dir():
        raise InputError("no such folder", path=target.parent)
    predictions = read_predictions(command.predictions)
    result = score(
        _truth(command), predictions, definition=command.definition, cutoffs=command.cutoffs
    )
    rows = _rows(result)
    if target is not None:
        partial = target.with_name(f".{target.name}.partial")
        write = (
            result.per_item.write_csv if target.suffix == ".csv" else result.per_item.write_parquet
        )
        write(partial)
        partial.replace(target)
    if command.as_json:
        typer.echo(json.dumps(rows, indent=2))
        return
    width = max(len(row["metric"]) for row in rows)
    for row in rows:
        interval = "" if row["low"] is None else f"  {row['low']:.4f}–{row['high']:.4f}"
        typer.echo(f"{row['metric']:<{width}}  {row['mean']:.4f}{interval}")


def _truth(command: ScoreCommand) -> Dataset:
    path = Path(command.truth)
    if not path.is_file():
        return load(command.truth, command.part)
    if command.part is not None:
        raise InputError("a file has no parts", path=path, remedy="leave --part out")
    with tempfile.TemporaryDirectory(prefix="affinity-score-") as folder:
        target = Path(folder) / "data.parquet"
        write_canonical(target, read_letor(path))
        return read_canonical(target)


def _rows(result: MetricResult) -> list[dict[str, Any]]:
    """Mean and 95 % interval of each metric; no interval where there is a single item."""
    rows = []
    for metric, mean in result.means.items():
        values = result.per_item[metric].drop_nulls().to_numpy()
        low, high = bootstrap_interval(values) if len(values) > 1 else (None, None)
        rows.append({"metric": metric, "mean": mean, "low": low, "high": high})
    return rows
