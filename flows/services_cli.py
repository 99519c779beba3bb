"""``affinity services``: Prefect server, worker and MLflow page on this machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from flows.cli_common import HomeOption, JsonOption

services_app = typer.Typer(
    no_args_is_help=True, help="Prefect server, worker and MLflow page on this machine."
)


@services_app.command("up")
def services_up(as_json: JsonOption = False, home: HomeOption = None) -> None:
    """Start what does not run yet; safe to repeat."""
    from flows import services
    from pipeline_lib.home import resolve_home

    place = resolve_home(home)
    services.up(place, report=lambda sentence: typer.echo(sentence, err=True))
    _show(place.root, services.status(place), as_json)


@services_app.command("down")
def services_down(as_json: JsonOption = False, home: HomeOption = None) -> None:
    """Stop what `up` started, and nothing else."""
    from flows import services
    from pipeline_lib.home import resolve_home

    ended = services.down(resolve_home(home))
    if as_json:
        typer.echo(json.dumps({"services": ended}))
        return
    for name, state in ended.items():
        typer.echo(f"{name:<9} {state}" + (" by a run, with which it ends" * (state == "in use")))
    if not ended:
        typer.echo("nothing was running")


@services_app.command("status")
def services_status(as_json: JsonOption = False, home: HomeOption = None) -> None:
    """Say what runs, and where."""
    from flows import services
    from pipeline_lib.home import resolve_home

    place = resolve_home(home)
    _show(place.root, services.status(place), as_json)


@services_app.command("deploy")
def services_deploy(
    file: Annotated[
        Path | None, typer.Option("--file", help="Default: the project's prefect.yaml.")
    ] = None,
    home: HomeOption = None,
) -> None:
    """Register the deployments of prefect.yaml: nightly, weekly, on demand."""
    from flows import services
    from pipeline_lib.home import resolve_home

    raise typer.Exit(1 if services.deploy(resolve_home(home), file) else 0)


def _show(root: Path, rows: list[dict[str, object]], as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps({"home": str(root), "services": rows}, indent=2, ensure_ascii=False))
        return
    typer.echo(f"home      {root}")
    for row in rows:
        url = row["url"] or ""
        if row["name"] == "mlflow" and url:
            # MLflow opens on its tools for language models unless told otherwise.
            url = f"{url}/#/experiments?workflowType=machine_learning"
        pid = "" if row["pid"] is None else f"  pid {row['pid']}"
        typer.echo(f"{row['name']!s:<9} {row['state']!s:<14} {url}{pid}")
    prefect = next((row for row in rows if row["name"] == "prefect" and row["url"]), None)
    if prefect is not None and prefect["state"] in ("running", "external"):
        typer.echo(f"for Prefect's own commands: export PREFECT_API_URL={prefect['url']}/api")
