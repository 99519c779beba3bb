"""What a flow run shows on its page in Prefect: results tables, and links to MLflow and the report."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from prefect.artifacts import create_markdown_artifact, create_table_artifact

from flows.service_state import page
from pipeline_lib.home import Home
from pipeline_lib.regression import Verdict
from pipeline_lib.results import RESULT_COLUMNS, RunRecord, data_notes
from pipeline_lib.summary import metric_columns

_MOST_METRICS = 8


def publish_artifacts(record: RunRecord) -> None:
    """Show a run on the page of the flow run that it came from.

    One table a problem and metric definition, keys ``<suite>-<problem>-<definition>``, and one page of
    links, key ``<suite>-links``; equal keys make a history that Prefect can leaf through.

    Parameters
    ----------
    record : RunRecord
        A run that has ended.
    """
    suite = record.suite.name
    for problem, definition, rows in results_tables(record):
        create_table_artifact(
            table=rows,
            key=_key(suite, problem, definition),
            description=f"{problem}, {definition} definitions, of run {record.id}",
        )
    create_markdown_artifact(links(record), key=_key(suite, "links"), description=record.id)


def publish_verdict(verdict: Verdict) -> None:
    """Show what the regression check found; key ``<suite>-regression``."""
    create_markdown_artifact(
        verdict_page(verdict), key=_key(verdict.suite, "regression"), description=verdict.run
    )


def results_tables(record: RunRecord) -> list[tuple[str, str, list[dict[str, Any]]]]:
    """Results of a run as ``(problem, definition, rows)``: method, headline with interval, metrics."""
    if not len(record.results):
        return []
    tables = []
    parts = record.results.group_by("problem", "definition", maintain_order=True)
    for (problem, definition), part in parts:
        filled = part.select(c for c in part.columns if part[c].null_count() < len(part))
        headline = part["headline"][0]
        others = [n for n in metric_columns(filled, RESULT_COLUMNS) if n != headline]
        rows = [
            {
                "method": row["label"],
                headline: _rounded(row["value"]),
                "95 % interval": _interval(row["low"], row["high"]),
                **{name: _rounded(row[name]) for name in others[:_MOST_METRICS]},
                "fit seconds": _rounded(row["fit_seconds"], 2),
            }
            for row in part.iter_rows(named=True)
        ]
        tables.append((str(problem), str(definition), rows))
    return tables


def links(record: RunRecord) -> str:
    """Markdown with the places of a run: MLflow run, report, tables."""
    lines = [
        f"# {record.suite.title}",
        f"Run `{record.id}`: **{record.status}**.",
        "",
        *(f"- {line}" for line in _mlflow_links(record)),
        # A browser opens such a link only where the page itself is a file.
        f"- Report: [{record.report.name}](<{record.report.as_uri()}>), `{record.report}`",
        f"- Tables: `{record.folder}`",
        *(f"- Data: {note}" for note in data_notes(record.manifest.get("data", {}))),
    ]
    return "\n".join(lines) + "\n"


def verdict_page(verdict: Verdict) -> str:
    """Markdown with the outcome of the regression check."""
    measure = (
        f"run `{verdict.baseline}`" if verdict.baseline else "nothing: there is no good run yet"
    )
    lines = [
        f"# {verdict.suite}: {verdict.status}",
        f"Run `{verdict.run}`, held against {measure}.",
    ]
    lines += ["", *(f"- {reason}" for reason in verdict.reasons)] if verdict.reasons else []
    if verdict.rows:
        lines += [
            "",
            "| problem | method | metric | before | after | |",
            "|---|---|---|--:|--:|---|",
        ]
        lines += [
            f"| {row.problem} | {_cell(row.label)} | {row.metric} ({row.definition}) "
            f"| {_rounded(row.before)} | {_rounded(row.after)} | {'ALARM' if row.alarm else 'ok'} |"
            for row in verdict.rows
        ]
    return "\n".join(lines) + "\n"


def _mlflow_links(record: RunRecord) -> list[str]:
    tracked = record.manifest.get("mlflow")
    if tracked is None:
        return ["MLflow: not tracked"]
    uri = str(tracked["uri"])
    address = uri if uri.startswith("http") else page(Home(Path(record.manifest["home"])), "mlflow")
    if address is None:
        return [
            f"MLflow run `{tracked['run']}` in `{uri}` (its page is not up: `affinity services up`)"
        ]
    runs = f"{address.rstrip('/')}/#/experiments/{tracked.get('experiment', 0)}/runs"
    # MLflow opens on its tools for language models unless told otherwise.
    kind = "workflowType=machine_learning"
    own = f"{runs}/{tracked['run']}"
    return [
        f"[MLflow run]({own}?{kind}) `{tracked['run']}`",
        f"[All runs of this suite side by side]({runs}?{kind}&compareRunsMode=CHART)",
        f"[Report, as an artifact of the MLflow run]({own}/artifacts/report.html?{kind})",
    ]


def _key(*parts: str) -> str:
    """Name of an artifact: Prefect takes lower-case letters, digits and dashes."""
    return re.sub(r"[^a-z0-9]+", "-", "-".join(parts).lower()).strip("-")


def _rounded(value: float | None, digits: int = 4) -> float | str:
    return "" if value is None else round(float(value), digits)


def _interval(low: float | None, high: float | None) -> str:
    return "" if low is None or high is None else f"{low:.4f} – {high:.4f}"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
