"""The report of a run: one HTML file that stands by itself (no scripts, no outside files)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jinja2
import polars as pl

from pipeline_lib import registry
from pipeline_lib.artifacts import write_text_atomically
from pipeline_lib.report.published import published
from pipeline_lib.report.sections import Column, ProblemView, Section, html_table
from pipeline_lib.results import RunRecord, data_notes

_SECTIONS = {
    "ltr": "pipeline_lib.report.ltr:sections",
    "annotation": "pipeline_lib.report.annotation:sections",
    "clustering": "pipeline_lib.report.clustering:sections",
    "completion": "pipeline_lib.report.completion:sections",
    "retrieval": "pipeline_lib.report.retrieval:sections",
}
# What a problem kind says of several of its problems together.
_ACROSS = {"completion": "pipeline_lib.report.completion_sweep:across"}


def write_report(record: RunRecord) -> Path:
    """Write the report of a run beside its tables and return its path."""
    write_text_atomically(record.report, render(record))
    return record.report


def render(record: RunRecord) -> str:
    """Render the report of a run as HTML text."""
    problems = []
    views: dict[str, list[ProblemView]] = {}
    for problem in record.suite.problems:
        view = problem_view(record, problem.title)
        views.setdefault(problem.kind, []).append(view)
        make = registry.load_object(_SECTIONS[problem.kind])
        sections: list[Section] = make(view) if len(view.results) else []
        problems.append(
            {
                "title": problem.title,
                "kind": registry.kind(problem.kind).title,
                "sections": sections,
                "failures": _failures(view),
                "warnings": _warnings(view),
            }
        )
    across: list[Section] = []
    for kind, make_across in _ACROSS.items():
        if kind in views:
            across += registry.load_object(make_across)(views[kind])
    return template("report.html.j2").render(
        suite=record.suite,
        run=record.id,
        status=record.status,
        across=across,
        problems=problems,
        manifest=record.manifest,
        facts=_facts(record),
        data=_data_table(record),
    )


def problem_view(record: RunRecord, title: str) -> ProblemView:
    """Everything a run knows of one problem."""
    problem = next(p for p in record.suite.problems if p.title == title)
    numbers = published(problem.published) if problem.published else pl.DataFrame()
    data = {
        name: entry.get("info") or {}
        for name, entry in record.manifest.get("data", {}).items()
        if name.partition("/")[0] == problem.dataset
    }
    return ProblemView(
        problem=problem,
        results=_of(record.results, title),
        trials=_of(record.trials, title),
        history=_of(record.history, title),
        per_item=record.per_item.get(title, pl.DataFrame()),
        published=numbers,
        data=data,
        pictures=record.pictures.get(title, pl.DataFrame()),
    )


def _of(frame: pl.DataFrame, title: str) -> pl.DataFrame:
    return (
        frame.filter(pl.col("problem") == title)
        if "problem" in frame.columns and len(frame)
        else pl.DataFrame()
    )


def _failures(view: ProblemView) -> list[str]:
    if not len(view.trials):
        return []
    failed = view.trials.filter(pl.col("error").is_not_null())
    return [
        f"{row['label']}, {row['split']}, {row['params']}: {row['error']}"
        for row in failed.iter_rows(named=True)
    ]


def _warnings(view: ProblemView) -> list[str]:
    """What the reader must know of the data: mismatches that were allowed, variants that were read."""
    found = []
    if "converged" in view.trials.columns:
        open_trials = view.trials.filter(pl.col("selected") & ~pl.col("converged").fill_null(True))
        for (label,), part in open_trials.group_by("label", maintain_order=True):
            found.append(f"{label!s}, {_open_trials(part)}")
    return found + data_notes({name: {"info": info} for name, info in view.data.items()})


def _open_trials(part: pl.DataFrame) -> str:
    """Say of one row's chosen trials that they have not converged; many at once in one sentence."""
    if len(part) == 1:
        split, n_iter = part["split"][0], part["n_iter"][0]
        return (
            f"{split}: the chosen trial stopped at its iteration limit ({n_iter}) before meeting its "
            "stopping rule"
        )
    return (
        f"{len(part)} chosen trials stopped at their iteration limit "
        f"({max(part['n_iter'].to_list())}) before meeting their stopping rule"
    )


def _facts(record: RunRecord) -> list[tuple[str, str]]:
    environment = record.manifest["environment"]
    code = environment["code"]
    commit = f", commit {code['commit'][:10]}" if code.get("commit") else ""
    changed = " with local changes" if code.get("dirty") else ""
    packages = environment["packages"]
    shown = ("numpy", "scipy", "scikit-learn", "polars", "prefect", "mlflow")
    return [
        ("run", record.id),
        ("status", record.status),
        ("started", str(record.manifest.get("started"))),
        ("ended", str(record.manifest.get("ended"))),
        (
            "artifacts",
            f"{record.manifest.get('computed')} computed, {record.manifest.get('reused')} reused",
        ),
        ("code", f"affinity-bench {code['version']}{commit}{changed}"),
        ("python", f"{environment['python']} on {environment['platform']}"),
        ("packages", ", ".join(f"{n} {packages[n]}" for n in shown if n in packages)),
        (
            "threads",
            f"{record.manifest['workers']} workers, {environment['blas_threads']} BLAS thread each, {environment['cpus']} processors",
        ),
        ("seed", str(record.suite.seed)),
    ]


def _data_table(record: RunRecord) -> str:
    rows: list[dict[str, Any]] = []
    for name, entry in record.manifest.get("data", {}).items():
        counts = (entry.get("info") or {}).get("counts") or {}
        rows.append({"name": name, "digest": entry["digest"][:16], **counts})
    columns = [Column("name", "part"), Column("rows", "rows", 0)]
    for key, title in (("queries", "queries"), ("features", "features"), ("tags", "tags")):
        if any(row.get(key) for row in rows):
            columns.append(Column(key, title, 0))
    columns.append(Column("digest", "content digest"))
    return html_table(rows, columns) if rows else ""


def template(name: str) -> jinja2.Template:
    """Template of a page, by file name."""
    loader = jinja2.FileSystemLoader(Path(__file__).parent / "templates")
    environment = jinja2.Environment(
        loader=loader, autoescape=True, undefined=jinja2.StrictUndefined
    )
    return environment.get_template(name)
