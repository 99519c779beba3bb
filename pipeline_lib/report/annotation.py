"""Image annotation in the report: table, verdicts, paired tests, curves, example annotations, time."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence

import polars as pl

from pipeline_lib.report.annotation_examples import examples_section
from pipeline_lib.report.figures import PALETTE, bars, lines
from pipeline_lib.report.paired import paired_section
from pipeline_lib.report.results_table import results_section, verdict_section
from pipeline_lib.report.sections import Column, ProblemView, Section

_CLAIMS = {
    "RKML": "The thesis claims that RKML is better than the distance metrics and annotation models it compares.",
    "RKML-unit": "Embedded rows of unit length, our variant, are meant to make RKML the best.",
}
_TRIED = (
    "By inner products, as the thesis defines the similarity, long embeddings become everybody's "
    "neighbours. Tried against that: unit rows (RKML-unit), direct scoring, votes, kernels and "
    "weightings (suite annotation-ablations), rank, components and landmarks (annotation-sweeps)."
)
_VOTING = ("Euclid", "Cosine")
_POPULATION = "population_error_at_"


def sections(view: ProblemView) -> list[Section]:
    """Make the sections of an annotation problem."""
    cutoffs = [int(t) for t in view.problem.options.get("cutoffs", [1, 2, 3, 4, 5])]
    swept = view.problem.options.get("sweep")
    made = [_table(view, cutoffs)]
    if swept:
        made += _sweep(view, str(swept), cutoffs)
    else:
        labels = set(view.results["label"])
        for method in (name for name in _CLAIMS if name in labels):
            made += [
                Section(part.title, part.body, _TRIED if method == "RKML" else "")
                for part in verdict_section(view, method, _CLAIMS[method], percent=True)
            ]
        made += _tagprop(view)
        baselines: list[str | None] = [name for name in _CLAIMS if name in labels]
        for baseline in baselines or [None]:
            made += paired_section(view, baseline=baseline, items="images")
        made += _precision_curve(view, cutoffs)
    made += _population(view)
    made += examples_section(view)
    made.append(_time(view))
    return made


def _table(view: ProblemView, cutoffs: Sequence[int]) -> Section:
    last = cutoffs[-1]
    metrics = [
        *((f"ap_at_{t}", f"AP@{t}") for t in cutoffs),
        (f"ar_at_{last}", f"AR@{last}"),
        (f"f1_at_{last}", f"F1@{last}"),
        ("tag_precision", "P per tag"),
        ("tag_recall", "R per tag"),
    ]
    given = view.problem.options.get("tags_per_image", 5)
    note = (
        f"Percent, over test images with at least one tag; P and R per tag are means over tags, N+ "
        f"counts the tags recalled at all, when every image gets {given} tags. {_selection(view)}"
    )
    return results_section(
        view,
        metrics,
        note=note.strip(),
        percent=True,
        time=("fit_seconds", "learning, s"),
        extra=[
            Column("predict_seconds", "annotating, s", 2),
            *([Column("tag_n_plus", "N+", 0)] if "tag_n_plus" in view.results.columns else []),
        ],
    )


def _selection(view: ProblemView) -> str:
    if view.problem.selection is None:
        return ""
    folds = view.problem.options.get("folds", 0)
    how = f"{folds}-fold cross-validation on" if folds else "a held-out share of"
    return f"Parameters by {how} the training images."


def _tagprop(view: ProblemView) -> list[Section]:
    """Whether learned weights are worth it: TagProp beside plain votes of the same kind of neighbours."""
    best_of = view.results.drop_nulls("value").group_by("method").agg(pl.col("value").max())
    values: dict[str, float] = dict(best_of.iter_rows())
    voting = {name: values[name] for name in _VOTING if name in values}
    learned = {name: values[name] for name in ("TP-R", "TP-D") if name in values}
    if not voting or not learned:
        return []
    best = max(voting, key=lambda name: voting[name])
    said = [
        f"{name} ({100 * value:.2f}) is "
        + ("at least as good as" if value >= voting[best] else "worse than")
        + f" plain votes ({best}, {100 * voting[best]:.2f})"
        for name, value in learned.items()
    ]
    headline = view.problem.headline.replace("_", " ")
    return [Section("TagProp and plain voting", f"<p>By {headline}, {'; '.join(said)}.</p>")]


def _precision_curve(view: ProblemView, cutoffs: Sequence[int]) -> list[Section]:
    """AP@t over t, of as many rows as there are colours."""
    if len(cutoffs) < 3:
        return []
    best = view.results.sort("value", descending=True, nulls_last=True).head(len(PALETTE))
    series = {
        str(row["label"]): [100 * float(row[f"ap_at_{t}"]) for t in cutoffs]
        for row in best.iter_rows(named=True)
    }
    drawn = lines(cutoffs, series, xlabel="t", ylabel="AP@t, %")
    note = f"The {len(best)} best rows." if len(best) < len(view.results) else ""
    title = "Precision against the number of tags"
    return [Section(title, f"<figure>{drawn}</figure>", note)]


def _sweep(view: ProblemView, parameter: str, cutoffs: Sequence[int]) -> list[Section]:
    """Curves over the parameter by which the rows differ."""
    rows = view.results.with_columns(
        pl.Series(
            "at",
            [json.loads(text).get(parameter) for text in view.results["params"]],
            dtype=pl.Float64,
        )
    )
    rows = rows.filter(pl.col("at").is_not_null()).sort("at", maintain_order=True)
    points = rows["at"].unique().sort().to_list()
    if len(points) < 2:
        return []
    first = f"ap_at_{cutoffs[0]}"
    curves = [
        (first, "test", 100.0),
        (f"train_{first}", "training", 100.0),
    ]
    figures = [
        lines(
            points,
            _curves(rows, points, curves),
            xlabel=parameter,
            ylabel=f"AP@{cutoffs[0]}, %",
            log_x=points[0] > 0,
        )
    ]
    errors = _curves(rows, points, [("landmark_error", "", 1.0)])
    if errors:
        figures.append(
            lines(
                points,
                errors,
                xlabel=parameter,
                ylabel="relative error of the similarity",
                log_x=points[0] > 0,
            )
        )
    body = "".join(f"<figure>{figure}</figure>" for figure in figures)
    note = (
        "Every point is fitted on all training images and nothing is chosen by this curve. "
        "On training images a model is asked for tags it has seen."
    )
    return [Section(f"Against {parameter}", f'<div class="row">{body}</div>', note)]


def _curves(
    rows: pl.DataFrame, points: Sequence[float], columns: Sequence[tuple[str, str, float]]
) -> dict[str, list[float]]:
    """One curve for each method and column; a method without a point has a gap there."""
    series: dict[str, list[float]] = {}
    for (method,), part in rows.group_by("method", maintain_order=True):
        for column, suffix, factor in columns:
            if column not in part.columns or part[column].null_count() == len(part):
                continue
            known = dict(zip(part["at"], part[column], strict=True))
            values = [known.get(point) for point in points]
            name = f"{method}, {suffix}" if suffix else str(method)
            series[name] = [math.nan if v is None else factor * float(v) for v in values]
    return series


def _population(view: ProblemView) -> list[Section]:
    """Error of the learned similarity against the number of training images."""
    columns = sorted(
        (name for name in view.results.columns if name.startswith(_POPULATION)),
        key=lambda name: int(name.removeprefix(_POPULATION)),
    )
    rows = view.results.drop_nulls(columns) if columns else view.results.head(0)
    if len(rows) == 0 or len(columns) < 2:
        return []
    sizes = [int(name.removeprefix(_POPULATION)) for name in columns]
    series = {
        f"{row['label']} (gap {row['eigengap']:.1e})": [float(row[name]) for name in columns]
        for row in rows.iter_rows(named=True)
    }
    start = max(values[0] for values in series.values())
    series["falling as 1/√n"] = [start * math.sqrt(sizes[0] / size) for size in sizes]
    drawn = lines(
        sizes,
        series,
        xlabel="training images n",
        ylabel="relative error of the similarity",
        log_x=True,
        log_y=True,
    )
    note = (
        "Distance of the similarity learned from n images from the one learned from half of the "
        "training images, which stand for the population (Theorem 3.1: it falls as 1/√n, and is "
        "larger the smaller the gap between the kernel's eigenvalues at the rank). That stand-in has "
        "an error of its own, which flattens the curves to the right."
    )
    return [Section("Distance from the population's metric", f"<figure>{drawn}</figure>", note)]


def _time(view: ProblemView) -> Section:
    labels = view.results["label"].to_list()
    figures = [
        bars(labels, [max(float(s), 1e-3) for s in view.results[column]], xlabel=title)
        for column, title in (
            ("fit_seconds", "seconds to learn"),
            ("predict_seconds", "seconds to annotate the test images"),
        )
    ]
    body = "".join(f"<figure>{figure}</figure>" for figure in figures)
    return Section("Time", f'<div class="row">{body}</div>')
