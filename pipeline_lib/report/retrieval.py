"""Image retrieval in the report: table with published rows, paired tests, precision curve, time."""

from __future__ import annotations

import json

import polars as pl

from pipeline_lib.report.figures import bars, lines
from pipeline_lib.report.paired import paired_section
from pipeline_lib.report.sections import Column, ProblemView, Section, html_table

_PAPER_METHOD = "RAN"


def sections(view: ProblemView) -> list[Section]:
    """Make the sections of a retrieval problem."""
    made = [_table(view), *_verdict(view)]
    baseline = _PAPER_METHOD if _PAPER_METHOD in set(view.results["label"]) else None
    made += paired_section(view, baseline=baseline, items="queries")
    made += _curves(view)
    made.append(_time(view))
    return made


def _table(view: ProblemView) -> Section:
    options = view.problem.options
    cutoffs = options["cutoffs"]
    rows: list[dict[str, object]] = []
    for row in view.results.iter_rows(named=True):
        percent = {
            name: 100 * value
            for name, value in row.items()
            if isinstance(value, float)
            and (name.startswith(("p_at", "recall_at")) or name in ("map", "bulls_eye", "std"))
        }
        interval = (
            f"{100 * row['low']:.2f} – {100 * row['high']:.2f}" if row["low"] is not None else None
        )
        rows.append({**row, **percent, "interval": interval, "chosen": _params(str(row["params"]))})
    columns = [Column("label", "method")]
    for k in cutoffs:
        columns += [
            Column(f"p_at_{k}", f"P@{k}", 2, best=True),
            Column(f"recall_at_{k}", f"R@{k}", 2, best=True),
        ]
    columns += [
        Column("map", "MAP", 2, best=True),
        Column("interval", f"95 % of {view.problem.headline}"),
    ]
    if any(row["std"] is not None for row in rows):
        columns.append(Column("std", "std over draws", 2))
    columns += [
        Column("predict_seconds", "seconds", 2),
        Column(
            "chosen", "chosen on validation queries" if view.problem.selection else "parameters"
        ),
    ]
    classes = {}
    if len(view.published):
        for (method,), part in view.published.group_by("method", maintain_order=True):
            classes[len(rows)] = "published"
            values = dict(zip(part["metric"], part["value"], strict=True))
            rows.append(
                {"label": f"{method}, published", "chosen": str(part["note"][0] or ""), **values}
            )
    counted = "counted" if options.get("count_query", True) else "not counted"
    protocol = options.get("protocol", "fixed")
    note = f"Percent. The query itself is {counted} as retrieved and relevant. " + (
        "Parameters chosen on one half of the queries, reported on the other."
        if protocol == "tuned"
        else "Parameters fixed beforehand; every image is a query."
    )
    return Section("Results", html_table(rows, columns, classes=classes), note)


def _verdict(view: ProblemView) -> list[Section]:
    """Say plainly whether RAN is best, as the paper claims."""
    ordered = view.results.sort("value", descending=True)
    labels = ordered["label"].to_list()
    if _PAPER_METHOD not in labels or len(labels) < 2:
        return []
    own = ordered.filter(pl.col("label") == _PAPER_METHOD)["value"][0]
    better = [
        f"{row['label']} ({100 * row['value']:.2f})"
        for row in ordered.iter_rows(named=True)
        if row["value"] > own and row["label"] != _PAPER_METHOD
    ]
    claim = "The paper claims that RAN is best in every column."
    if better:
        text = f"{claim} Here it is not: above its {100 * own:.2f} stand {', '.join(better)}."
    else:
        text = f"{claim} Here it is, with {100 * own:.2f}; whether by more than chance is in the tests below."
    return [Section("Verdict", f"<p>{text}</p>")]


def _curves(view: ProblemView) -> list[Section]:
    cutoffs = [int(k) for k in view.problem.options["cutoffs"]]
    if len(cutoffs) < 3:
        return []
    series = {
        str(row["label"]): [100 * float(row[f"p_at_{k}"]) for k in cutoffs]
        for row in view.results.iter_rows(named=True)
    }
    drawn = lines(cutoffs, series, xlabel="K", ylabel="P@K, %")
    return [Section("Precision against K", f"<figure>{drawn}</figure>")]


def _time(view: ProblemView) -> Section:
    drawn = bars(
        view.results["label"].to_list(),
        view.results["predict_seconds"].to_list(),
        xlabel="seconds for all test queries, graph given",
        log=True,
    )
    return Section("Time to rank", f"<figure>{drawn}</figure>")


def _params(params: str) -> str:
    try:
        values = json.loads(params)
    except ValueError:
        return params
    return ", ".join(f"{name} = {value}" for name, value in values.items())
