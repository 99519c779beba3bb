"""The results table of a report: our rows with intervals, the published ones shaded below."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Sequence

import polars as pl

from pipeline_lib.report.sections import Column, ProblemView, Section, html_table

_MOST_NAMED = 8


def results_section(
    view: ProblemView,
    metrics: Sequence[tuple[str, str]],
    *,
    definition: str = "default",
    title: str = "Results",
    note: str = "",
    percent: bool = False,
    with_published: bool = True,
    with_settings: bool = True,
    time: tuple[str, str] = ("fit_seconds", "fit, s"),
    extra: Sequence[Column] = (),
) -> Section:
    """Make the section with the results table of one metric definition.

    Parameters
    ----------
    view : ProblemView
    metrics : sequence of (column, title)
        Metrics shown; those the results do not have are left out.
    definition : str
        Metric definition.
    title, note : str
    percent : bool
        Show metrics times 100 with two decimals (published numbers are percent already then).
    with_published : bool
        Whether published rows stand below ours.
    with_settings : bool
        Whether a second table names the parameters of each row.
    time : (column, title)
        Which time is shown.
    extra : sequence of Column
        Further columns of the results, shown as they are.

    Returns
    -------
    Section
    """
    factor, digits = (100.0, 2) if percent else (1.0, 4)
    results = view.definition(definition)
    shown = [(key, name) for key, name in metrics if key in results.columns]
    rows: list[dict[str, object]] = []
    for row in results.iter_rows(named=True):
        values = {key: factor * row[key] for key, _ in shown if row[key] is not None}
        if row["std"] is not None:
            values["std"] = factor * row["std"]
        interval = None
        if row["low"] is not None:
            interval = f"{factor * row['low']:.{digits}f} – {factor * row['high']:.{digits}f}"
        rows.append({**row, **values, "interval": interval, "chosen": parameters(row["params"])})
    columns = [
        Column("label", "method"),
        *(Column(key, name, digits, best=True) for key, name in shown),
        Column("interval", f"95 % of {view.problem.headline.replace('_', ' ')}"),
    ]
    if any(row["std"] is not None for row in rows):
        columns.append(Column("std", "std over draws", digits))
    chosen = "chosen settings" if view.problem.selection else "parameters"
    columns += [Column(*time, 2), *extra]
    settings = [{"label": row["label"], "chosen": row["chosen"]} for row in rows if row["chosen"]]
    classes = {}
    if with_published and len(view.published):
        for label, values in _published_rows(view.published):
            classes[len(rows)] = "published"
            rows.append({"label": label, **values})
        others = sorted(set(view.published["dataset"]) - {view.problem.dataset})
        if others:
            note += (
                f" Shaded rows are the published numbers on {', '.join(others)}: for "
                f"{view.problem.dataset} none are known to us, so they stand for orientation only."
            )
    settings += [
        {"label": row["label"], "chosen": row["origin"]} for row in rows if row.get("origin")
    ]
    body = html_table(rows, columns, classes=classes)
    if settings and with_settings:
        body += html_table(settings, [Column("label", "method"), Column("chosen", chosen)])
    return Section(title, body, note.strip())


def verdict_section(
    view: ProblemView,
    method: str,
    claim: str,
    *,
    rivals: Collection[str] | None = None,
    percent: bool = False,
) -> list[Section]:
    """Say plainly whether the paper's method is best here, as it claims, and among which.

    Parameters
    ----------
    view : ProblemView
    method : str
        Label of the paper's row; without it there is no verdict.
    claim : str
        The claim, as a sentence.
    rivals : collection of str, optional
        Methods that the claim is about; by default all rows. Those that did not run are named.
    percent : bool
        Show values times 100.
    """
    ordered = view.definition(str(view.results["definition"][0])).sort("value", descending=True)
    if rivals is not None:
        ordered = ordered.filter((pl.col("label") == method) | pl.col("method").is_in(list(rivals)))
    labels = ordered["label"].to_list()
    if method not in labels or len(labels) < 2:
        return []
    factor, digits = (100.0, 2) if percent else (1.0, 4)
    own = float(ordered.filter(pl.col("label") == method)["value"][0])
    better = [
        f"{row['label']} ({factor * row['value']:.{digits}f})"
        for row in ordered.iter_rows(named=True)
        if row["value"] > own
    ]
    name = view.problem.headline.replace("_", " ")
    others = [label for label in labels if label != method]
    company = ", ".join(others) if len(others) <= _MOST_NAMED else f"the {len(others)} others here"
    if better:
        text = f"{claim} Here, by {name}, it is not: above its {factor * own:.{digits}f} stand {', '.join(better)}."
    else:
        text = f"{claim} Here, by {name}, it is above {company}, with {factor * own:.{digits}f}."
    absent = sorted(set(rivals or ()) - {method} - set(ordered["method"]))
    if absent:
        text += f" Not in this run: {', '.join(absent)}."
    text += " Whether by more than chance is in the paired tests below."
    return [Section(f"Verdict on {method}", f"<p>{text}</p>")]


def parameters(text: object) -> str:
    """Parameters of a trial for people: powers of two as such."""
    try:
        values = json.loads(str(text))
    except ValueError:
        return str(text)
    return ", ".join(
        f"{name} = {power(v) if isinstance(v, float) else v}" for name, v in values.items()
    )


def power(value: float) -> str:
    """Write a number, powers of two as such."""
    if value > 0:
        exponent = math.log2(value)
        if abs(exponent - round(exponent)) < 1e-9 and abs(exponent) >= 2:
            return f"2^{round(exponent)}"
    return f"{value:g}"


def _published_rows(published: pl.DataFrame) -> list[tuple[str, dict[str, object]]]:
    rows = []
    for (method, dataset, protocol, source), part in published.group_by(
        "method", "dataset", "protocol", "source", maintain_order=True
    ):
        values: dict[str, object] = dict(zip(part["metric"], part["value"], strict=True))
        values["origin"] = f"{dataset}, {protocol} ({source})"
        rows.append((f"{method}, published", values))
    return rows
