"""The command line, ``affinity``.

Heavy libraries are imported inside the commands, so that help and listings answer at once. Every
error a user can cause ends in one sentence on standard error and status 2.
"""

from __future__ import annotations

import tomllib
import traceback
from pathlib import Path
from typing import Annotated, Any

import typer

from flows.cli_common import HomeOption, JsonOption, note_errors, print_rows
from flows.data_cli import data_app
from flows.services_cli import services_app
from flows.store_cli import store_app
from pipeline_lib.errors import AffinityError, InputError

app = typer.Typer(
    name="affinity",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Reproducible benchmarks of methods that learn the affinity between items.",
)
list_app = typer.Typer(no_args_is_help=True, help="List methods, suites, datasets and runs.")
app.add_typer(list_app, name="list")
app.add_typer(data_app, name="data")
app.add_typer(services_app, name="services")
app.add_typer(store_app, name="store")

_debug = False


def _print_version(wanted: bool) -> None:
    if wanted:
        from pipeline_lib.environment import code_version

        code = code_version()
        commit = f" (commit {code['commit'][:10]})" if code["commit"] else ""
        typer.echo(f"affinity-bench {code['version']}{commit}")
        raise typer.Exit


@app.callback()
def common(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version.", is_eager=True, callback=_print_version
        ),
    ] = False,
) -> None:
    """Take options that every command has."""
    global _debug
    _debug = debug


@app.command()
def run(
    suite: Annotated[
        str | None,
        typer.Argument(
            help="Name of a suite, or a TOML file (default: quickstart; own with --dataset)."
        ),
    ] = None,
    dataset: Annotated[
        str | None,
        typer.Option(help="Dataset, or dataset/split, to use instead of the suite's own."),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(help="Problem, method or row to keep (repeat for several)."),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="NAME=VALUE: seed, repetitions, or a parameter."),
    ] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Paths at once (default: processors).")
    ] = None,
    engine: Annotated[
        str, typer.Option(help="threads, processes, dask, or plain (without Prefect).")
    ] = "threads",
    address: Annotated[
        str | None, typer.Option(help="Scheduler of a running Dask cluster (engine dask).")
    ] = None,
    allow_mismatch: Annotated[
        bool,
        typer.Option("--allow-mismatch", help="Accept data that differ from their declaration."),
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only the results.")] = False,
    as_json: JsonOption = False,
    home: HomeOption = None,
) -> None:
    """Run a suite: the results, a report, Parquet tables and an MLflow run."""
    from flows.run import RunCommand, run_command

    raise typer.Exit(
        run_command(
            RunCommand(
                suite=suite or ("own" if dataset else "quickstart"),
                dataset=dataset,
                only=tuple(only or ()),
                settings=parse_settings(settings or []),
                workers=workers,
                engine=engine,
                address=address,
                allow_mismatch=allow_mismatch,
                quiet=quiet,
                as_json=as_json,
                home=home,
            )
        )
    )


@app.command()
def report(
    reference: Annotated[
        str, typer.Argument(metavar="RUN", help="Run id or its beginning, suite, or latest.")
    ] = "latest",
    home: HomeOption = None,
) -> None:
    """Write the report of a finished run again and print its path."""
    from pipeline_lib.home import resolve_home
    from pipeline_lib.report.page import write_report
    from pipeline_lib.results import load_run

    typer.echo(write_report(load_run(resolve_home(home), reference)))


@app.command()
def compare(
    references: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN...",
            help="Run ids or their beginning, suites (their latest run), latest, MLflow ids.",
        ),
    ],
    metric: Annotated[
        list[str] | None, typer.Option(help="Metric to compare (default: the headline).")
    ] = None,
    baseline: Annotated[str | None, typer.Option(help="Row to compare the others with.")] = None,
    definition: Annotated[
        str | None, typer.Option(help="Metric definition, such as standard (default: the first).")
    ] = None,
    published: Annotated[
        bool, typer.Option("--published", help="Set one run beside the published numbers.")
    ] = False,
    output: Annotated[
        str, typer.Option("--format", help="terminal, markdown, latex, csv, json or html.")
    ] = "terminal",
    out: Annotated[Path | None, typer.Option(help="Write it to this file instead.")] = None,
    trec: Annotated[
        Path | None, typer.Option(help="Folder that gets the rankings as TREC run and qrels files.")
    ] = None,
    home: HomeOption = None,
) -> None:
    """Compare the rows of one or several runs, paired over the items they share."""
    from flows.compare import CompareCommand, compare_command

    compare_command(
        CompareCommand(
            references=tuple(references),
            metrics=tuple(metric or ()),
            baseline=baseline,
            definition=definition,
            published=published,
            output=output,
            out=out,
            trec=trec,
            home=home,
        )
    )


@app.command()
def rerun(
    reference: Annotated[
        str,
        typer.Argument(
            metavar="RUN", help="Run id or its beginning, suite, latest, or a frozen file."
        ),
    ] = "latest",
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="NAME=VALUE: change something, and see what it makes."),
    ] = None,
    tolerance: Annotated[
        float, typer.Option(help="Largest difference of a metric that counts as none.")
    ] = 1e-6,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Paths at once (default: processors).")
    ] = None,
    blas_threads: Annotated[
        int | None, typer.Option(min=1, help="Threads of BLAS (default: as in the run).")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only the outcome.")] = False,
    as_json: JsonOption = False,
    home: HomeOption = None,
) -> None:
    """Compute a run again without the cache and verify it; status 1 when it comes out otherwise."""
    from flows.rerun import RerunCommand, rerun_command

    raise typer.Exit(
        rerun_command(
            RerunCommand(
                reference=reference,
                settings=parse_settings(settings or []),
                tolerance=tolerance,
                workers=workers,
                blas_threads=blas_threads,
                quiet=quiet,
                as_json=as_json,
                home=home,
            )
        )
    )


@app.command()
def freeze(
    reference: Annotated[
        str, typer.Argument(metavar="RUN", help="Run id or its beginning, suite, or latest.")
    ] = "latest",
    out: Annotated[
        Path | None, typer.Option(help="The file (default: <run id>.frozen.zip here).")
    ] = None,
    small: Annotated[
        float, typer.Option(min=0, help="Largest artifact or own data file that goes in, MB.")
    ] = 8.0,
    as_json: JsonOption = False,
    home: HomeOption = None,
) -> None:
    """Pack a run into one file that `affinity rerun FILE` repeats on another machine."""
    from flows.rerun import freeze_command

    freeze_command(reference, out, small, as_json, home)


@app.command()
def score(
    truth: Annotated[
        str, typer.Argument(metavar="DATA", help="Dataset, or a file in LETOR's format.")
    ],
    predictions: Annotated[
        Path,
        typer.Argument(help="One row for each row of the data: text or .npy; larger ranks first."),
    ],
    part: Annotated[str | None, typer.Option(help="Part of the dataset.")] = None,
    definition: Annotated[
        str, typer.Option(help="Of ranking metrics: letor4, letor3, standard.")
    ] = "letor4",
    cutoff: Annotated[
        list[int] | None, typer.Option(min=1, help="Of annotation metrics (repeat for several).")
    ] = None,
    per_item: Annotated[
        Path | None, typer.Option(help="Write the values per query or image: .csv or .parquet.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Score predictions made elsewhere by the metrics of the benchmarks."""
    from flows.score import ScoreCommand, score_command

    score_command(
        ScoreCommand(
            truth=truth,
            predictions=predictions,
            part=part,
            definition=definition,
            cutoffs=tuple(cutoff or (1, 3, 5)),
            per_item=per_item,
            as_json=as_json,
        )
    )


@app.command()
def complete(
    table: Annotated[Path, typer.Argument(metavar="TAGS.csv", help="Rows of image, tag.")],
    out: Annotated[
        Path | None, typer.Option(help="Where the suggestions go (.parquet and .csv beside it).")
    ] = None,
    method: Annotated[str, typer.Option(help="A completion method.")] = "TCMR-regression",
    count: Annotated[int, typer.Option(min=1, help="Suggestions an image.")] = 10,
) -> None:
    """Suggest further tags for images from the tags they have."""
    from flows.complete import complete_tags

    for path in complete_tags(table, out, method, count):
        typer.echo(path)


@list_app.command("methods")
def list_methods(
    kind: Annotated[str | None, typer.Option(help="Keep one problem kind.")] = None,
    as_json: JsonOption = False,
) -> None:
    """List every registered method."""
    from pipeline_lib import registry

    if kind is not None:
        registry.kind(kind)
    rows = [
        {
            "name": spec.name,
            "kind": spec.kind,
            "summary": spec.summary,
            "source": spec.source,
            "unavailable": spec.skip(),
        }
        for spec in registry.methods()
        if kind in (None, spec.kind)
    ]
    print_rows(rows, ("kind", "name", "summary"), as_json)


@list_app.command("suites")
def list_suites(as_json: JsonOption = False) -> None:
    """List the suites that come with the project."""
    from pipeline_lib.suites import shipped_suites

    rows: list[dict[str, Any]] = [
        {
            "name": suite.name,
            "title": suite.title,
            "summary": suite.summary,
            "datasets": sorted({problem.dataset for problem in suite.problems}),
        }
        for suite in shipped_suites()
    ]
    print_rows(rows, ("name", "title"), as_json)


@list_app.command("runs")
def list_runs(
    suite: Annotated[str | None, typer.Argument(help="Keep the runs of one suite.")] = None,
    as_json: JsonOption = False,
    home: HomeOption = None,
) -> None:
    """List the runs of the home folder, the latest last."""
    from pipeline_lib.home import resolve_home
    from pipeline_lib.results import known_runs

    rows = [run._asdict() for run in known_runs(resolve_home(home), suite)]
    print_rows(rows, ("run", "suite", "status", "started", "seconds"), as_json)


@list_app.command("datasets")
def list_datasets(as_json: JsonOption = False) -> None:
    """List the datasets of the catalogue."""
    from pipeline_lib.datasets import catalogue

    specs, errors = catalogue.read_all()
    rows: list[dict[str, Any]] = [
        {
            "name": spec.name,
            "kind": spec.kind,
            "title": spec.title,
            "licence": spec.licence,
            "parts": spec.part_names(),
        }
        for spec in specs
    ]
    print_rows(rows, ("name", "kind", "title"), as_json)
    note_errors(errors)


def parse_settings(pairs: list[str]) -> dict[str, Any]:
    """Read ``NAME=VALUE`` pairs; values are TOML, and bare words are text.

    Raises
    ------
    InputError
        If a pair has no ``=``.
    """
    settings: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name.strip():
            raise InputError(f'--set "{pair}" cannot be read', expected="NAME=VALUE")
        try:
            read = tomllib.loads(f"value = {text}")
        except tomllib.TOMLDecodeError:
            read = {"value": text}
        if len(read) > 1:
            raise InputError(f"--set {pair!r} holds several lines", remedy="repeat --set for each")
        settings[name.strip()] = read["value"]
    return settings


def main() -> None:
    """Run the command line; errors that a user can cause become one sentence and status 2."""
    try:
        app()
    except AffinityError as error:
        if _debug:
            traceback.print_exc()
        else:
            typer.echo(f"affinity: {error}", err=True)
        raise SystemExit(error.exit_status) from None


if __name__ == "__main__":
    main()
