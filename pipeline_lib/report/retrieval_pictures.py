"""Rankings of points in the plane as pictures: marker size by score, as the paper's Figures 1 and 2."""

from __future__ import annotations

import html
from typing import Any

import matplotlib
import numpy as np
import polars as pl
from numpy.typing import NDArray

from pipeline_lib.report.figures import PALETTE, STYLE, figure, to_svg
from pipeline_lib.report.sections import ProblemView, Section

Floats = NDArray[np.float64]

_COLUMNS = 3
_SMALLEST, _LARGEST = 3.0, 60.0  # areas of markers, points^2


def pictures(view: ProblemView) -> list[Section]:
    """Make the section of pictures, one panel for each row of the table and each query drawn."""
    if not len(view.pictures):
        return []
    frame = view.pictures.filter(pl.col("repetition") == 0)
    figures, said = [], []
    for (query,), of_query in frame.group_by("query", maintain_order=True):
        panels = [
            (str(label), part) for (label,), part in of_query.group_by("label", maintain_order=True)
        ]
        figures.append(f"<figure>{_panels(panels)}</figure>")
        misplaced = {label: _misplaced(part) for label, part in panels}
        clean = [label for label, count in misplaced.items() if not count]
        others = [f"{label} ({count})" for label, count in misplaced.items() if count]
        said.append(
            f"Query {query}: every point of its own shape comes before every other with "
            f"{', '.join(clean) or 'no method'}"
            + (f"; points of it behind another with {', '.join(others)}" if others else "")
            + "."
        )
    note = (
        "Star: the query. Area of a marker: the logarithm of the score between the method's least and "
        "greatest positive one, or the score itself where a method has negative ones (minus a "
        "distance). Rings without filling: points that were not reached. Colours: the shapes, which no "
        "method knows."
    )
    text = "".join(f"<p>{html.escape(sentence)}</p>" for sentence in said)
    return [Section("Scores from single queries", text + "".join(figures), note)]


def _misplaced(part: pl.DataFrame) -> int:
    """Points of the query's class that stand behind some point of another class."""
    ranked = part.sort("place")["class"].to_numpy()
    own = ranked == ranked[0]
    first_other = int(np.argmin(own)) if not own.all() else len(own)
    return int(own[first_other:].sum())


def _panels(panels: list[tuple[str, pl.DataFrame]]) -> str:
    across = min(_COLUMNS, len(panels))
    down = -(-len(panels) // across)
    with matplotlib.rc_context({**STYLE, "axes.grid": False}):
        drawn = figure(3.3 * across, 2.5 * down)
        grid = drawn.subplots(down, across, squeeze=False).ravel()
        for axes, (label, part) in zip(grid, panels, strict=False):
            _panel(axes, label, part)
        for axes in grid[len(panels) :]:
            axes.set_axis_off()
        return to_svg(drawn)


def _panel(axes: Any, label: str, part: pl.DataFrame) -> None:
    points = part.select("x0", "x1").to_numpy()
    scores = part["score"].to_numpy()
    classes = np.unique(part["class"].to_numpy(), return_inverse=True)[1]
    reached = scores != 0
    is_query = part["image"].to_numpy() == part["query"][0]
    areas = _areas(scores)
    for code in range(classes.max() + 1):
        colour = PALETTE[code % len(PALETTE)]
        for drawn, face in ((reached, colour), (~reached, "none")):
            of_class = (classes == code) & drawn & ~is_query
            axes.scatter(
                *points[of_class].T, s=areas[of_class], c=face, edgecolors=colour, linewidths=0.5
            )
    axes.scatter(*points[is_query].T, s=150, marker="*", c="black", zorder=3)
    positive = scores[(scores > 0) & ~is_query]
    span = (
        f"scores {positive.max():.1e} to {positive.min():.1e}"
        if len(positive)
        else "minus distance"
    )
    axes.set_title(f"{label}\n{span}", fontsize=9)
    axes.set_aspect("equal")
    axes.set(xticks=[], yticks=[])
    for side in axes.spines.values():
        side.set_visible(False)


def _areas(scores: Floats) -> Floats:
    if (scores < 0).any():
        values = scores
    else:
        positive = scores > 0
        values = np.log10(np.where(positive, scores, scores[positive].min()))
    span = np.ptp(values) or 1.0
    areas: Floats = _SMALLEST + (_LARGEST - _SMALLEST) * (values - values.min()) / span
    areas[scores == 0] = _SMALLEST if not (scores < 0).any() else areas[scores == 0]
    return areas
