"""Curves over the problems of a suite that differ in one thing: noise, observed tags, or draws."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from pipeline_lib.report.figures import lines
from pipeline_lib.report.sections import Column, ProblemView, Section, html_table

_AXES = {
    "n_observed": "observed tags an image",
    "noise": "share of wrong tags among the observed",
    "rate": "r n log(n + m) / N",
}
# With q_j = 1/m and p_j = q_j +- d, sum (p - q)^2 / q is (m d)^2 where |p - q|_1 is m d.
_RATE_NOTE = (
    "Theorem 4.1 has the error of the low-rank estimate fall in proportion to the abscissa (slope 1 on "
    "logarithms). Its proof takes sum (p - q)^2 / q >= |p - q|_1 (Lemma 4.4), which by the inequality of "
    "Cauchy and Schwarz holds for the square of the right side: slope 1/2 is what remains. Slopes "
    "fitted here: "
)


def across(views: Sequence[ProblemView]) -> list[Section]:
    """Make one section for each family of problems that names what it sweeps."""
    families: dict[tuple[str, str, str], list[ProblemView]] = {}
    for view in views:
        options = view.problem.options
        if options.get("sweep") and len(view.results):
            task = str(options.get("task", "completion"))
            key = (view.problem.dataset, task, str(options["sweep"]))
            families.setdefault(key, []).append(view)
    return [
        _recovery(members) if sweep == "rate" else _curves(members, dataset, task, sweep)
        for (dataset, task, sweep), members in families.items()
        if len(members) > 1
    ]


def _curves(views: Sequence[ProblemView], dataset: str, task: str, sweep: str) -> Section:
    ordered = sorted(views, key=lambda view: float(view.problem.options[sweep]))
    x = [float(view.problem.options[sweep]) for view in ordered]
    series = {
        label: [100.0 * value for value in values]
        for label, values in _values(ordered, "value").items()
    }
    headline = ordered[0].problem.headline.replace("_at_", "@").upper()
    drawn = lines(x, series, xlabel=_AXES[sweep], ylabel=f"{headline}, percent")
    return Section(
        f"{dataset}, {task}: {headline} against {_AXES[sweep]}",
        f"<figure>{drawn}</figure>{_table(x, series, 2)}",
        _reading(series, x, sweep),
    )


def _recovery(views: Sequence[ProblemView]) -> Section:
    rates = [float(view.results["rate"][0]) for view in views]
    ordered = [views[i] for i in np.argsort(rates, kind="stable")]
    x = sorted(rates)
    series = {
        label: [2.0 * (1.0 - value) for value in values]
        for label, values in _values(ordered, "value").items()
    }
    drawn = lines(x, series, xlabel=_AXES["rate"], ylabel="|Q - P|_1 / n", log_x=True, log_y=True)
    slopes = {
        label: float(np.polyfit(np.log(x), np.log(values), 1)[0])
        for label, values in series.items()
        if np.isfinite(values).all() and min(values) > 0.0
    }
    note = _RATE_NOTE + ", ".join(f"{label} {slope:.2f}" for label, slope in slopes.items()) + "."
    low, alone = series.get("TCMR-simplex"), series.get("MaximumLikelihood")
    if low and alone:
        won = sum(a < b for a, b in zip(low, alone, strict=True))
        note += (
            f" Low rank is nearer to the truth than maximum likelihood image by image in {won} of "
            f"{len(x)} problems."
        )
    body = f"<figure>{drawn}</figure>{_table(x, series, 3)}"
    return Section("Recovery error against the rate of Theorem 4.1", body, note)


def _values(views: Sequence[ProblemView], column: str) -> dict[str, list[float]]:
    """Value of each row in each problem, NaN where it has none."""
    found: dict[str, list[float]] = {}
    for position, view in enumerate(views):
        for label, value in zip(view.results["label"], view.results[column], strict=True):
            found.setdefault(label, [math.nan] * len(views))[position] = float(value)
    return found


def _table(x: Sequence[float], series: Mapping[str, Sequence[float]], digits: int) -> str:
    rows = [
        {"label": label} | {str(i): v for i, v in enumerate(values) if math.isfinite(v)}
        for label, values in series.items()
    ]
    columns = [Column("label", "method")]
    columns += [Column(str(i), f"{value:.3g}", digits) for i, value in enumerate(x)]
    return html_table(rows, columns)


def _reading(series: Mapping[str, Sequence[float]], x: Sequence[float], sweep: str) -> str:
    """Name the best row at each end."""
    ends = []
    for position in (0, len(x) - 1):
        best = max(series, key=lambda label: np.nan_to_num(series[label][position], nan=-1.0))
        ends.append(f"at {x[position]:g} {best} ({series[best][position]:.2f})")
    return f"Best row by {_AXES[sweep]}: {', '.join(ends)}."
