"""Learning to rank in the report: table with published rows, NDCG curves, validation surface, time."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence

from pipeline_lib.report.figures import bars, lines, surface
from pipeline_lib.report.paired import paired_section
from pipeline_lib.report.sections import Column, ProblemView, Section, html_table

_TABLE_METRICS = (
    ("ndcg_at_1", "NDCG@1"),
    ("ndcg_at_3", "NDCG@3"),
    ("ndcg_at_5", "NDCG@5"),
    ("ndcg_at_10", "NDCG@10"),
    ("mean_ndcg", "MeanNDCG"),
    ("map", "MAP"),
)
_DEFINITIONS = {
    "letor4": "LETOR 4.0 definitions: gain 2^label − 1, discount 1, 1, 1/log2(rank); NDCG@k of a query with fewer than k documents counts 0.",
    "letor3": "LETOR 3.0 definitions: as LETOR 4.0, with P@k up to the list's length.",
    "standard": "Standard definitions: gain 2^label − 1, discount 1/log2(rank + 1), truncated ideal.",
}


def sections(view: ProblemView) -> list[Section]:
    """Make the sections of a learning-to-rank problem."""
    made = [_table(view, name) for name in view.results["definition"].unique(maintain_order=True)]
    made += paired_section(view, items="test queries")
    made.append(_curves(view))
    made += _surfaces(view)
    made.append(_time(view))
    return made


def _table(view: ProblemView, definition: str) -> Section:
    results = view.definition(definition)
    rows: list[dict[str, object]] = []
    for row in results.iter_rows(named=True):
        interval = f"{row['low']:.4f} – {row['high']:.4f}" if row["low"] is not None else None
        rows.append({**row, "interval": interval, "chosen": _chosen(str(row["params"]))})
    columns = [
        Column("label", "method"),
        *(
            Column(key, title, 4, best=True)
            for key, title in _TABLE_METRICS
            if key in results.columns
        ),
        Column("interval", f"95 % of {view.problem.headline.upper()}"),
        Column("fit_seconds", "fit, s", 2),
        Column("chosen", "chosen by validation" if view.problem.selection else "parameters"),
    ]
    classes = {}
    note = _DEFINITIONS.get(definition, "")
    if definition in ("letor3", "letor4") and len(view.published):
        for (method, dataset, protocol, source), part in view.published.group_by(
            "method", "dataset", "protocol", "source", maintain_order=True
        ):
            classes[len(rows)] = "published"
            values = dict(zip(part["metric"], part["value"], strict=True))
            rows.append(
                {
                    "label": f"{method}, published",
                    "chosen": f"{dataset}, {protocol} ({source})",
                    **values,
                }
            )
        if set(view.published["dataset"]) != {view.problem.dataset}:
            others = ", ".join(sorted(set(view.published["dataset"])))
            note += (
                f" Shaded rows are the published numbers on {others}: for {view.problem.dataset} "
                "none are known to us, so they stand for orientation only."
            )
    body = html_table(rows, columns, classes=classes)
    return Section(f"Test results, {definition} definitions", body, note)


def _curves(view: ProblemView) -> Section:
    figures = []
    for definition in view.results["definition"].unique(maintain_order=True):
        results = view.definition(definition)
        cutoffs = [k for k in range(1, 11) if f"ndcg_at_{k}" in results.columns]
        series = {
            str(row["label"]): [float(row[f"ndcg_at_{k}"]) for k in cutoffs]
            for row in results.iter_rows(named=True)
        }
        drawn = lines(
            cutoffs, series, xlabel="k", ylabel="NDCG@k", title=f"{definition} definitions"
        )
        figures.append(f"<figure>{drawn}</figure>")
    return Section("NDCG@k on the test queries", f'<div class="row">{"".join(figures)}</div>')


def _surfaces(view: ProblemView) -> list[Section]:
    """Validation values over C and gamma, one heat map a row that has such a grid."""
    if view.problem.selection is None:
        return []
    metric = f"vali_{view.problem.selection.metric}"
    figures = []
    for (label,), part in view.trials.group_by("label", maintain_order=True):
        if metric not in part.columns:
            continue
        params = [json.loads(text) for text in part["params"]]
        varied = [name for name in params[0] if len({json.dumps(p.get(name)) for p in params}) > 1]
        means: dict[tuple[float, ...], list[float]] = {}
        for p, value in zip(params, part[metric], strict=True):
            if value is not None and set(varied) <= set(p):
                means.setdefault(tuple(float(p[name]) for name in varied), []).append(value)
        figure = _one_surface(str(label), varied, means, view.problem.selection.metric)
        if figure:
            figures.append(f"<figure>{figure}</figure>")
    if not figures:
        return []
    note = "Framed: the chosen setting. Values are means over the validation queries of all splits."
    return [Section("Validation surface", f'<div class="row">{"".join(figures)}</div>', note)]


def _one_surface(
    label: str, varied: Sequence[str], means: dict[tuple[float, ...], list[float]], metric: str
) -> str:
    averaged = {key: sum(values) / len(values) for key, values in means.items()}
    if not averaged or len(varied) not in (1, 2) or len(averaged) < 2:
        return ""
    best = max(averaged, key=lambda key: averaged[key])
    if len(varied) == 1:
        keys = sorted(averaged)
        return lines(
            [key[0] for key in keys],
            {label: [averaged[key] for key in keys]},
            xlabel=varied[0],
            ylabel=f"validation {metric.upper()}",
            title=f"{label}: chosen {varied[0]} = {_power(best[0])}",
            log_x=all(key[0] > 0 for key in keys),
        )
    # gamma upwards, C to the right.
    across, upwards = (0, 1) if varied[0] == "C" else (1, 0)
    columns = sorted({key[across] for key in averaged})
    rows = sorted({key[upwards] for key in averaged})
    grid = [
        [averaged.get((c, r) if across == 0 else (r, c), math.nan) for c in columns] for r in rows
    ]
    return surface(
        [_power(r) for r in rows],
        [_power(c) for c in columns],
        grid,
        xlabel=varied[across],
        ylabel=varied[upwards],
        title=f"{label}: validation {metric.upper()}",
        chosen=(rows.index(best[upwards]), columns.index(best[across])),
    )


def _time(view: ProblemView) -> Section:
    results = view.definition(view.results["definition"][0])
    drawn = bars(
        results["label"].to_list(), results["fit_seconds"].to_list(), xlabel="seconds", log=True
    )
    note = (
        "Whole fit of the chosen setting: feature map, mapping the training documents, solver. Within "
        "a path the solver starts from the solution of the setting before."
    )
    return Section("Time to fit", f"<figure>{drawn}</figure>", note)


def _chosen(params: str) -> str:
    try:
        values = json.loads(params)
    except ValueError:
        return params
    return ", ".join(
        f"{name} = {_power(v) if isinstance(v, float) else v}" for name, v in values.items()
    )


def _power(value: float) -> str:
    """Write powers of two as such."""
    if value > 0:
        exponent = math.log2(value)
        if abs(exponent - round(exponent)) < 1e-9:
            return f"2^{round(exponent)}"
    return f"{value:g}"
