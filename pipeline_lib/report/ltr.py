"""Learning to rank in the report: table with published rows, NDCG curves, validation surface, time."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence

import polars as pl

from pipeline_lib import registry
from pipeline_lib.report.figures import bars, lines, surface
from pipeline_lib.report.ltr_claims import claims_section
from pipeline_lib.report.ltr_curves import curves, curves_section
from pipeline_lib.report.paired import paired_section
from pipeline_lib.report.results_table import power, results_section
from pipeline_lib.report.sections import Column, ProblemView, Section, html_table

_TABLE_METRICS = (
    ("ndcg_at_1", "NDCG@1"),
    ("ndcg_at_3", "NDCG@3"),
    ("ndcg_at_5", "NDCG@5"),
    ("ndcg_at_10", "NDCG@10"),
    ("mean_ndcg", "MeanNDCG"),
    ("map", "MAP"),
)
_FIT_METRICS = (
    ("mean_ndcg", "MeanNDCG"),
    ("pairwise_accuracy", "pairs"),
    ("ndcg_at_1", "NDCG@1"),
    ("map", "MAP"),
)
_MOST_CURVES = 8
_POOL = 10_000  # LambdaMART models of which the paper's bag kept a random part
_DEFINITIONS = {
    "letor4": "LETOR 4.0 definitions: gain 2^label − 1, discount 1, 1, 1/log2(rank); NDCG@k of a query with fewer than k documents counts 0.",
    "letor3": "LETOR 3.0 definitions: as LETOR 4.0, with P@k up to the list's length.",
    "standard": "Standard definitions: gain 2^label − 1, discount 1/log2(rank + 1), truncated ideal.",
}


def sections(view: ProblemView) -> list[Section]:
    """Make the sections of a learning-to-rank problem."""
    tables = [_table(view, name) for name in view.results["definition"].unique(maintain_order=True)]
    figure = curves_section(view)
    # Where the rows form curves these are what the reader came for.
    made = [*figure, *claims_section(view), *tables] if figure else [*tables, *claims_section(view)]
    made += paired_section(view, items="test queries")
    made += _maps(view)
    made.append(_curves(view))
    made += _surfaces(view)
    made.append(_time(view))
    return made


def _table(view: ProblemView, definition: str) -> Section:
    # Table 2 of the paper compares fits by MeanNDCG and pairs, the others rankers by NDCG and MAP.
    of_fits = view.problem.headline in ("mean_ndcg", "pairwise_accuracy")
    pairs = " Pairs: share of the preference pairs in the right order." if of_fits else ""
    return results_section(
        view,
        _FIT_METRICS if of_fits else _TABLE_METRICS,
        definition=definition,
        title=f"Test results, {definition} definitions",
        note=f"{_DEFINITIONS.get(definition, '')}{pairs} {_bag(view)}",
        # Published curves have a section of their own.
        with_published=definition != "standard" and not curves(view),
        with_settings=definition == str(view.results["definition"][0]),
    )


def _bag(view: ProblemView) -> str:
    """How large the bags of trees are, beside the paper's."""
    spec = registry.method("BL-MART", "ltr")
    sizes = [
        json.loads(params).get("n_models", spec.parameters()["n_models"].default)
        for params in view.results.filter(pl.col("method") == spec.name)["params"].unique()
        if params.startswith("{")
    ]
    if not sizes:
        return ""
    return (
        f"BL-MART draws from a pool of {', '.join(f'{size:,}' for size in sorted(sizes))} models here; "
        f"the paper's pool had {_POOL:,}."
    )


def _maps(view: ProblemView) -> list[Section]:
    """Dimension of each feature map and the error of its kernel."""
    if "kernel_error" not in view.results.columns:
        return []
    results = view.definition(str(view.results["definition"][0]))
    rows = [
        {**row, "size": json.loads(row["params"]).get("n_components")}
        for row in results.filter(pl.col("kernel_error").is_not_null()).iter_rows(named=True)
        if row["params"].startswith("{")
    ]
    columns = [
        Column("label", "method"),
        Column("size", "m", 0),
        Column("map_dimension", "dimensions kept", 0),
        Column("kernel_error", "relative error of the kernel", 5),
    ]
    note = (
        "Dimensions kept: of the Nystroem method, eigenvalues above the cut-off. Error: Frobenius norm of "
        "the difference between the kernel matrix of 1,000 test documents and the inner products of their "
        "images, relative to that of the matrix; means over folds and draws."
    )
    return [Section("Feature maps", html_table(rows, columns), note)] if rows else []


def _curves(view: ProblemView) -> Section:
    figures = []
    for definition in view.results["definition"].unique(maintain_order=True):
        results = view.definition(definition)
        if len(results) > _MOST_CURVES:
            best = results.sort("value", descending=True)["label"].head(_MOST_CURVES - 1)
            first = results["label"].head(1)
            results = results.filter(pl.col("label").is_in([*first, *best]))
        cutoffs = [k for k in range(1, 11) if f"ndcg_at_{k}" in results.columns]
        series = {
            str(row["label"]): [float(row[f"ndcg_at_{k}"]) for k in cutoffs]
            for row in results.iter_rows(named=True)
        }
        drawn = lines(
            cutoffs, series, xlabel="k", ylabel="NDCG@k", title=f"{definition} definitions"
        )
        figures.append(f"<figure>{drawn}</figure>")
    note = ""
    if len(view.definition(definition)) > _MOST_CURVES:
        headline = view.problem.headline.replace("_", " ")
        note = f"The first row and the {_MOST_CURVES - 1} best by {headline}."
    return Section("NDCG@k on the test queries", f'<div class="row">{"".join(figures)}</div>', note)


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
            title=f"{label}: chosen {varied[0]} = {power(best[0])}",
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
        [power(r) for r in rows],
        [power(c) for c in columns],
        grid,
        xlabel=varied[across],
        ylabel=varied[upwards],
        title=f"{label}: validation {metric.upper()}",
        chosen=(rows.index(best[upwards]), columns.index(best[across])),
    )


def _time(view: ProblemView) -> Section:
    results = view.definition(view.results["definition"][0])
    drawn = bars(results["label"].to_list(), results["fit_seconds"].to_list(), xlabel="seconds")
    note = (
        "Whole fit of the chosen setting: feature map, mapping the training documents, solver. Within "
        "a path the solver starts from the solution of the setting before."
    )
    return Section("Time to fit", f"<figure>{drawn}</figure>", note)
