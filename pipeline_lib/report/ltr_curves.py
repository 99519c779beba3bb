"""Kernel approximations against their number of features m: quality, error of the kernel, time."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from pipeline_lib.report.figures import Panel, panels
from pipeline_lib.report.sections import Column, ProblemView, Section, html_table

METRICS = (
    ("ndcg_at_1", "NDCG@1"),
    ("ndcg_at_3", "NDCG@3"),
    ("mean_ndcg", "MeanNDCG"),
    ("map", "MAP"),
)
_FEWEST_POINTS = 4
_SIZE = "n_components"
_OF_M = re.compile(r"m = ([\d,]+)$")
# What may differ between the rows of one curve beside m.
_SOLVER = (_SIZE, "tol", "max_iter")


@dataclass(frozen=True)
class Curve:
    """Rows of one method and setting with different m, in the order of m."""

    method: str
    m: Sequence[int]
    rows: Sequence[dict[str, object]]

    def values(self, metric: str) -> list[float]:
        """A column of the results along m; NaN where it is empty."""
        return [
            float("nan") if row[metric] is None else float(str(row[metric])) for row in self.rows
        ]


def curves(view: ProblemView) -> list[Curve]:
    """The curves that the rows of a problem form: one setting, at least four numbers of features."""
    definition = str(view.results["definition"][0])
    groups: dict[str, dict[int, dict[str, object]]] = {}
    for row in view.definition(definition).iter_rows(named=True):
        try:
            params = json.loads(row["params"])
        except ValueError:
            continue
        if _SIZE not in params:
            continue
        rest = {name: value for name, value in params.items() if name not in _SOLVER}
        group = groups.setdefault(json.dumps([row["method"], rest], sort_keys=True), {})
        m = int(params[_SIZE])
        # Of two rows with one m the one with more draws is the better estimate.
        if m not in group or row["repetitions"] > group[m]["repetitions"]:
            group[m] = row
    found = []
    for group in groups.values():
        if len(group) >= _FEWEST_POINTS:
            sizes = sorted(group)
            found.append(Curve(str(group[sizes[0]]["method"]), sizes, [group[m] for m in sizes]))
    return found


def curves_section(view: ProblemView) -> list[Section]:
    """Figure 2 of the paper from the rows of a problem; empty unless they form curves."""
    drawn = curves(view)
    if not drawn:
        return []
    linear = _linear(view)
    shown = [_panel(view, drawn, linear, metric, title) for metric, title in METRICS]
    for column, title in (
        ("kernel_error", "relative error of the kernel"),
        ("fit_seconds", "seconds to fit"),
    ):
        series = {curve.method: (curve.m, curve.values(column)) for curve in drawn}
        shown.append(Panel(title, series, log_y=True))
    labels = [label for panel in shown for label in panel.series]
    svg = panels(
        shown,
        xlabel="m",
        log_x=True,
        lines_only=["RankSVM, linear"],
        dashed=[label for label in labels if "published" in label or label == "RankSVM, linear"],
    )
    body = f"<figure>{svg}</figure>" + _tables(view, drawn, linear)
    return [Section("Kernel approximations against the number of features m", body, _NOTE)]


_NOTE = (
    "One setting of C and gamma serves every m. Bands: one standard deviation over the draws of the map. "
    "Error of the kernel: Frobenius norm of the difference between the kernel matrix of 1,000 test documents "
    "and the inner products of their images, relative to that of the matrix."
)


def _panel(
    view: ProblemView,
    drawn: Sequence[Curve],
    linear: dict[str, object] | None,
    metric: str,
    title: str,
) -> Panel:
    series: dict[str, tuple[Sequence[float], Sequence[float]]] = {}
    bands: dict[str, Sequence[float]] = {}
    for curve in drawn:
        series[curve.method] = (curve.m, curve.values(metric))
        spread = [_spread(view, str(row["label"]), metric) for row in curve.rows]
        if any(spread):
            bands[curve.method] = spread
    if linear is not None:
        ends = [min(c.m[0] for c in drawn), max(c.m[-1] for c in drawn)]
        series["RankSVM, linear"] = (ends, [float(str(linear[metric]))] * 2)
    # Published curves of another dataset run at another height: they stand in the tables only.
    for curve in drawn:
        points = _published(view, curve.method, metric, own=True)
        if points:
            series[f"{curve.method}, published"] = (list(points), list(points.values()))
    return Panel(title, series, bands)


def _tables(view: ProblemView, drawn: Sequence[Curve], linear: dict[str, object] | None) -> str:
    made = []
    for metric, title in METRICS:
        rows: dict[int, dict[str, object]] = {}
        columns = [Column("m", "m", 0)]
        for i, curve in enumerate(drawn):
            columns.append(Column(f"ours{i}", curve.method.removeprefix("Rank"), 4))
            for m, value in zip(curve.m, curve.values(metric)):
                rows.setdefault(m, {"m": m})[f"ours{i}"] = value
        for i, curve in enumerate(drawn):
            points = _published(view, curve.method, metric, own=False)
            if points:
                columns.append(Column(f"paper{i}", f"published {i + 1}", 4))
            for m, value in points.items():
                if m in rows:
                    rows[m][f"paper{i}"] = value
        caption = title
        if linear is not None:
            caption += f"; linear RankSVM {float(str(linear[metric])):.4f}"
            level = _published_linear(view, metric)
            caption += "" if level is None else f", published {level:.4f}"
        made.append(html_table([rows[m] for m in sorted(rows)], columns, caption=caption))
    datasets = sorted(set(view.published["dataset"])) if len(view.published) else []
    where = (
        f'<p class="note">Published 1 and 2: the two methods in the paper, on {", ".join(datasets)}.</p>'
        if datasets
        else ""
    )
    return f'<div class="row">{"".join(made)}</div>{where}'


def _linear(view: ProblemView) -> dict[str, object] | None:
    definition = str(view.results["definition"][0])
    rows = view.definition(definition).filter(pl.col("method") == "RankSVM")
    return rows.row(0, named=True) if len(rows) else None


def _spread(view: ProblemView, label: str, metric: str) -> float:
    """Standard deviation of a metric over the draws of a row, each the mean over its queries."""
    definition = str(view.results["definition"][0])
    own = view.per_item.filter((pl.col("label") == label) & (pl.col("definition") == definition))
    draws = own.group_by("repetition").agg(pl.col(metric).mean())[metric].to_numpy()
    return float(np.std(draws, ddof=1)) if len(draws) > 1 else 0.0


def _published(view: ProblemView, method: str, metric: str, *, own: bool) -> dict[int, float]:
    """Published values of a method by m, of this dataset only when ``own``."""
    if not len(view.published):
        return {}
    part = view.published.filter((pl.col("method") == method) & (pl.col("metric") == metric))
    points = {}
    for row in part.iter_rows(named=True):
        named = _OF_M.search(row["protocol"])
        if named and not (own and row["dataset"] != view.problem.dataset):
            points[int(named[1].replace(",", ""))] = float(row["value"])
    return dict(sorted(points.items()))


def _published_linear(view: ProblemView, metric: str) -> float | None:
    if not len(view.published):
        return None
    part = view.published.filter((pl.col("method") == "RankSVM") & (pl.col("metric") == metric))
    return float(part["value"][0]) if len(part) else None
