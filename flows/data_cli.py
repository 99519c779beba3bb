"""``affinity data``: which datasets are here, datasets of the user's own, import, download, description."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from flows.cli_common import HomeOption, JsonOption, note_errors, print_rows

data_app = typer.Typer(no_args_is_help=True, help="See, import and describe datasets.")


@data_app.command("status")
def data_status(
    name: Annotated[str | None, typer.Argument(help="One dataset.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Say which datasets are here, and where; of one dataset, which parts."""
    from pipeline_lib.datasets import acquire, catalogue

    if name is not None:
        catalogue.dataset_spec(name)
    rows = [dict(row) for row in acquire.status() if name in (None, row["name"])]
    if as_json or name is not None:
        print_rows(rows, ("part", "state", "path", "missing"), as_json)
        return
    from flows.own_data import status_by_dataset

    print_rows(status_by_dataset(rows), ("name", "state", "parts here", "path"), as_json)
    note_errors(catalogue.read_all()[1])


@data_app.command("add")
def data_add(
    name: Annotated[str, typer.Argument(help="Name for your dataset.")],
    paths: Annotated[
        list[str],
        typer.Argument(
            metavar="PATH...",
            help="File or folder; several as PART=PATH, for example train=a.csv test=b.csv.",
        ),
    ],
    label: Annotated[
        str | None, typer.Option(help="Column (tables) or variable (.mat, .h5) of the label.")
    ] = None,
    query: Annotated[str | None, typer.Option(help="Column of the query (tables).")] = None,
    id_: Annotated[
        str | None, typer.Option("--id", help="Column that names the rows (tables).")
    ] = None,
    tags: Annotated[
        list[str] | None,
        typer.Option(
            help="Tag column, or 0/1 columns (repeat), of a table; tag file of embeddings or pictures."
        ),
    ] = None,
    features: Annotated[
        list[str] | None,
        typer.Option(
            "--feature", help="Feature column (repeat; default: all others), or variable."
        ),
    ] = None,
    labels: Annotated[
        Path | None, typer.Option(help="File with one label a line, or .npy (embeddings).")
    ] = None,
    separator: Annotated[str, typer.Option(help="Between the tags of a row.")] = ";",
    size: Annotated[
        str | None,
        typer.Option(help="HEIGHTxWIDTH: to resample pictures to, or of a .mat or .h5 row."),
    ] = None,
    descriptor: Annotated[
        str,
        typer.Option(
            help="Of tagged pictures: colour-histogram, colour-moments, lbp, edge-directions, hog or "
            "sift-words."
        ),
    ] = "colour-histogram",
    folds: Annotated[int, typer.Option(min=3, help="Folds of a ranking given as one path.")] = 5,
    replace: Annotated[
        bool, typer.Option("--replace", help="Overwrite your dataset of this name.")
    ] = False,
    home: HomeOption = None,
) -> None:
    """Give a dataset of your own a name; the files are checked and stay where they are."""
    from flows.own_data import add_dataset

    add_dataset(
        name,
        paths,
        home=home,
        size=size,
        label=label,
        query=query,
        id=id_,
        tags=tags,
        features=features,
        labels_file=labels,
        separator=separator,
        descriptor=descriptor,
        folds=folds,
        replace=replace,
        report=typer.echo,
    )


@data_app.command("import")
def data_import(
    name: Annotated[str, typer.Argument(help="Dataset.")],
    path: Annotated[Path, typer.Argument(help="Folder, file or archive that holds its files.")],
    allow_mismatch: Annotated[
        bool,
        typer.Option("--allow-mismatch", help="Accept data that differ from their declaration."),
    ] = False,
) -> None:
    """Check the files of a dataset and take them into data/raw."""
    from pipeline_lib.datasets import acquire

    for line in acquire.import_files(name, path, allow_mismatch=allow_mismatch):
        typer.echo(line)


@data_app.command("fetch")
def data_fetch(
    name: Annotated[str, typer.Argument(help="Dataset.")],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would be downloaded.")
    ] = False,
) -> None:
    """Download a dataset where that is allowed; otherwise say where to get it by hand."""
    from pipeline_lib.datasets import fetch

    fetch.fetch(name, dry_run=dry_run, report=typer.echo)


@data_app.command("describe")
def data_describe(
    name: Annotated[str, typer.Argument(help="Dataset.")],
    part: Annotated[str | None, typer.Argument(help="Part, such as fold1/train.")] = None,
    sheet: Annotated[
        Path | None, typer.Option(help="Also draw thumbnails into this picture (image sets).")
    ] = None,
    allow_mismatch: Annotated[
        bool,
        typer.Option("--allow-mismatch", help="Accept data that differ from their declaration."),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Describe a part of a dataset: counts, labels, tags, queries, ranges; a sheet of thumbnails."""
    from pipeline_lib.datasets.description import describe

    facts = describe(name, part, allow_mismatch=allow_mismatch, sheet=sheet)
    if as_json:
        typer.echo(json.dumps(facts, indent=2, ensure_ascii=False, default=str))
        return
    width = max(len(key) for key in facts)
    for key, value in facts.items():
        typer.echo(f"{key.ljust(width)}  {_fact(value)}")


def _fact(value: Any) -> str:
    """A fact of `data describe` in words."""
    if isinstance(value, dict):
        return ", ".join(f"{key}: {_fact(inner)}" for key, inner in value.items())
    if isinstance(value, list | tuple):
        return " to ".join(map(_fact, value)) if len(value) == 2 else ", ".join(map(_fact, value))
    if isinstance(value, float):
        return f"{value:,.10g}"
    return f"{value:,}" if isinstance(value, int) else str(value)
