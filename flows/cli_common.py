"""What the command groups share: options, and tables on the terminal or for a machine."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from pipeline_lib.errors import InputError

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for a machine to read.")]
HomeOption = Annotated[
    Path | None,
    typer.Option("--home", help="Home folder (default: $AFFINITY_HOME, or .affinity here)."),
]


def print_rows(rows: list[dict[str, Any]], shown: tuple[str, ...], as_json: bool) -> None:
    """Print the columns `shown` of some rows, or all of them as JSON."""
    if as_json:
        typer.echo(json.dumps(rows, indent=2, ensure_ascii=False, default=str))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for key in shown:
        table.add_column(key, overflow="fold")
    for row in rows:
        table.add_row(*(_cell(row.get(key)) for key in shown))
    # A table in a file or a pipe is not cut to the width of a terminal that is not there.
    width = None if sys.stdout.isatty() else 160
    Console(soft_wrap=width is not None, width=width).print(table)


def note_errors(errors: Iterable[InputError]) -> None:
    """Say beside a table what is missing in it."""
    for error in errors:
        typer.echo(f"affinity: left out: {error}", err=True)


def _cell(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value[:3])) + (", ..." if len(value) > 3 else "")
    return "" if value is None else str(value)
