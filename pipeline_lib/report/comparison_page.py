"""A comparison as one HTML file that stands by itself."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from pipeline_lib.report import against_published
from pipeline_lib.report.comparison import caption, difference_cells
from pipeline_lib.report.critical_difference import critical_difference_figure
from pipeline_lib.report.figures import to_svg
from pipeline_lib.report.page import template
from pipeline_lib.report.run_comparison import ProblemComparison
from pipeline_lib.report.sections import Column, Section, html_table
from pipeline_lib.results import RunRecord

_ALPHA = 0.05
_DIFFERENCE = ("difference", "d", "rank", "p_randomisation", "holm_r", "p_wilcoxon", "holm_w")


def comparison_page(
    records: Sequence[RunRecord],
    compared: Sequence[ProblemComparison],
    warnings: Sequence[str] = (),
) -> str:
    """Render a comparison of the rows of runs as HTML text.

    Parameters
    ----------
    records : sequence of RunRecord
        The runs compared, for their descriptions.
    compared : sequence of ProblemComparison
    warnings : sequence of str
        Sentences that the reader must know.
    """
    problems = [
        {
            "title": one.problem,
            "kind": "" if one.definition == "default" else f"{one.definition} definitions",
            "sections": _sections(one),
        }
        for one in compared
    ]
    several = len({record.id for record in records}) > 1
    lead = (
        "Each row against the same row of the first run, over the items that both have."
        if several
        else "The rows of one run against each other, over the items that all have."
    )
    return template("comparison.html.j2").render(
        title=f"Comparison: {', '.join(dict.fromkeys(r.suite.title for r in records))}",
        lead=lead,
        warnings=warnings,
        problems=problems,
        runs=_runs(records),
    )


def published_page(record: RunRecord, table: pl.DataFrame) -> str:
    """Render a run beside the published numbers as HTML text."""
    header, rows = against_published.text_rows(table)
    columns = [Column(name, name) for name in header]
    body = html_table([dict(zip(header, row)) for row in rows], columns)
    inside = table["inside"].drop_nulls()
    note = (
        f"{int(inside.sum())} of {len(inside)} published values lie inside our 95 % interval over "
        "items. The interval is of our test items: it says nothing of the paper's own spread."
    )
    return template("comparison.html.j2").render(
        title=f"{record.suite.title}: ours and published",
        lead="Numbers printed in percent are brought to our scale.",
        warnings=against_published.warnings(record, table),
        problems=[
            {"title": "Published numbers", "kind": "", "sections": [Section("", body, note)]}
        ],
        runs=_runs([record]),
    )


def _sections(one: ProblemComparison) -> list[Section]:
    sections = []
    for (metric,), part in one.table.group_by("metric", maintain_order=True):
        name = str(metric).replace("_", " ")
        means, differences = [], []
        for row in part.iter_rows(named=True):
            means.append(
                {
                    "method": row["method"],
                    "mean": row["mean"],
                    "interval": f"{row['mean_low']:.4f} – {row['mean_high']:.4f}",
                    "items": row["n_items"],
                    "mark": _mark(row),
                }
            )
            if row["difference"] is not None:
                cells = dict(zip(_DIFFERENCE, difference_cells(row)))
                differences.append({"method": row["method"], "against": row["baseline"], **cells})
        body = html_table(
            means,
            [
                Column("method", "method"),
                Column("mean", "mean", 4, best=True),
                Column("interval", "95 % interval"),
                Column("items", "items", 0),
                Column("mark", ""),
            ],
        )
        sections.append(
            Section(f"{name}: means", body, f"{caption(part, _ALPHA)} ▲ better, ▼ worse.")
        )
        titles = (
            "difference, 95 % interval",
            "Cohen's d",
            "rank-biserial",
            "p randomisation",
            "Holm",
            "p Wilcoxon",
            "Holm",
        )
        columns = [Column("method", "method"), Column("against", "against")]
        columns += [Column(key, title) for key, title in zip(_DIFFERENCE, titles)]
        sections.append(Section(f"{name}: paired tests", html_table(differences, columns)))
    if one.ranks is not None:
        note = (
            "Methods along their average rank over the items; a bar joins those that Nemenyi's test "
            "does not tell apart."
        )
        figure = f"<figure>{to_svg(critical_difference_figure(one.ranks))}</figure>"
        sections.append(Section("Average ranks", figure, note))
    return sections


def _mark(row: dict[str, object]) -> str:
    p, difference = row["p_randomisation_holm"], row["difference"]
    if not isinstance(p, float) or not isinstance(difference, float) or p >= _ALPHA:
        return ""
    return "▲" if difference > 0 else "▼"


def _runs(records: Sequence[RunRecord]) -> str:
    rows = []
    for record in {record.id: record for record in records}.values():
        environment = record.manifest["environment"]
        code = environment["code"]
        rows.append(
            {
                "run": record.id,
                "suite": record.suite.name,
                "started": record.manifest.get("started"),
                "status": record.status,
                "code": f"{str(code.get('commit') or code['version'])[:10]}"
                f"{' with local changes' if code.get('dirty') else ''}",
                "seed": record.suite.seed,
            }
        )
    columns = [Column(name, name) for name in ("run", "suite", "started", "status", "code", "seed")]
    return html_table(rows, columns)
