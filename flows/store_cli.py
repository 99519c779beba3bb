"""``affinity store``: room on the disk, and trust in what is there."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

import typer

from flows.cli_common import HomeOption, JsonOption

store_app = typer.Typer(no_args_is_help=True, help="Clean and verify the artifact store.")


@store_app.command("gc")
def store_gc(
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be removed, and remove nothing.")
    ] = False,
    as_json: JsonOption = False,
    home: HomeOption = None,
) -> None:
    """Remove the artifacts that no run refers to, and nothing else."""
    from pipeline_lib.home import resolve_home
    from pipeline_lib.store_care import gc

    done = gc(resolve_home(home), dry_run=dry_run)
    if as_json:
        typer.echo(json.dumps({"dry_run": dry_run, **asdict(done)}, indent=2))
        return
    if dry_run:
        for name in done.removed:
            typer.echo(name)
    verb = "would be removed" if dry_run else "removed"
    typer.echo(f"{len(done.removed)} artifacts {verb} ({_bytes(done.bytes)}), {done.kept} kept")


@store_app.command("verify")
def store_verify(as_json: JsonOption = False, home: HomeOption = None) -> None:
    """Compare every file of the store with its checksum; status 1 when something is wrong."""
    from pipeline_lib.home import resolve_home
    from pipeline_lib.store_care import verify

    found = verify(resolve_home(home))
    if as_json:
        typer.echo(json.dumps({"sound": found.sound, **asdict(found)}, indent=2))
    else:
        for sentence in found.damaged:
            typer.echo(f"damaged  {sentence}")
        for sentence in found.missing:
            typer.echo(f"missing  {sentence}")
        wrong = len(found.damaged) + len(found.missing)
        ending = (
            f"{wrong} wrong; the next run that needs them makes them again"
            if wrong
            else "all sound"
        )
        typer.echo(f"{found.checked} artifacts ({_bytes(found.bytes)}), {ending}")
    raise typer.Exit(0 if found.sound else 1)


def _bytes(size: float) -> str:
    if size < 1000:
        return f"{size:.0f} B"
    units = iter(("kB", "MB", "GB", "TB"))
    unit = next(units)
    size /= 1000
    while size >= 1000 and unit != "TB":
        unit, size = next(units), size / 1000
    return f"{size:.1f} {unit}"
