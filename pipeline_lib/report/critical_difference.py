"""The critical-difference diagram: average ranks, and which of them do not differ."""

from __future__ import annotations

import math

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pipeline_lib.metrics.average_ranks import CriticalDifference
from pipeline_lib.report.figures import PALETTE, figure
from pipeline_lib.report.sections import p_value_text

_INK = "#222222"
_STEP = 0.42
"""Vertical distance of two labels, in data units; the axis line is at 0."""


def critical_difference_figure(result: CriticalDifference, *, title: str | None = None) -> Figure:
    """Draw methods along their average rank, the best at the left.

    Each method hangs from its rank on the axis, the better half labelled at the left, the others at
    the right. A thick bar joins methods that Nemenyi's test does not tell apart; the bar at the top
    is the critical difference itself.

    Parameters
    ----------
    result : CriticalDifference
        What ``pipeline_lib.metrics.critical_difference`` returns.
    title : str, optional
        Heading above the diagram.

    Returns
    -------
    matplotlib.figure.Figure
        Not attached to pyplot: ``figure.savefig(path)`` writes it.
    """
    ranks = result.average_ranks
    left = math.floor(ranks[0])
    right = max(math.ceil(ranks[-1]), math.ceil(left + result.critical_difference), left + 1)
    n_left = (len(ranks) + 1) // 2
    first_label = -_STEP * (1.0 + 0.5 * len(result.groups))
    bottom = first_label - _STEP * (n_left - 1)
    top = 1.9 * _STEP

    height = 1.0 + 0.75 * (top - bottom)
    drawn = figure(8.0, height)
    axes = drawn.add_subplot()
    span = right - left
    axes.set_xlim(left - 0.42 * span, right + 0.42 * span)
    axes.set_ylim(bottom - 0.5 * _STEP, top + 0.9 * _STEP)
    axes.axis("off")

    _draw_axis(axes, left, right)
    _draw_bar(axes, left, left + result.critical_difference, 1.9 * _STEP, result)
    for place, (method, rank) in enumerate(zip(result.methods, ranks)):
        on_left = place < n_left
        # The outermost rank gets the highest label on either side, so that no two lines cross.
        y = first_label - _STEP * (place if on_left else len(ranks) - 1 - place)
        end = left - 0.04 * span if on_left else right + 0.04 * span
        axes.plot([rank, rank, end], [0, y, y], color=_INK, linewidth=1.0, solid_joinstyle="miter")
        axes.annotate(
            f"{method}  {rank:.2f}" if on_left else f"{rank:.2f}  {method}",
            (end, y),
            xytext=(-4 if on_left else 4, 0),
            textcoords="offset points",
            ha="right" if on_left else "left",
            va="center",
            color=_INK,
        )
    by_method = dict(zip(result.methods, ranks))
    for row, group in enumerate(result.groups):
        y = -_STEP * 0.5 * (row + 1)
        ends = [by_method[group[0]] - 0.008 * span, by_method[group[-1]] + 0.008 * span]
        axes.plot(ends, [y, y], color=PALETTE[1], linewidth=4.0, solid_capstyle="round", zorder=3)
    if title:
        drawn.suptitle(title, color=_INK, fontsize="large")
    return drawn


def _draw_axis(axes: Axes, left: int, right: int) -> None:
    axes.plot([left, right], [0, 0], color=_INK, linewidth=1.4)
    axes.annotate(
        "average rank (1 is best)",
        (right, 0),
        xytext=(8, 0),
        textcoords="offset points",
        va="center",
        color=_INK,
        fontsize="small",
    )
    for half in range(2 * (right - left) + 1):
        rank, whole = left + half / 2, half % 2 == 0
        axes.plot([rank, rank], [0, 0.12 if whole else 0.07], color=_INK, linewidth=1.0)
        if whole:
            axes.text(rank, 0.18, f"{rank:.0f}", ha="center", va="bottom", color=_INK)


def _draw_bar(axes: Axes, start: float, end: float, y: float, result: CriticalDifference) -> None:
    axes.plot([start, end], [y, y], color=_INK, linewidth=1.4)
    for x in (start, end):
        axes.plot([x, x], [y - 0.06, y + 0.06], color=_INK, linewidth=1.4)
    label = (
        f"CD {result.critical_difference:.2f} (Nemenyi, alpha {result.alpha:g}, "
        f"{result.n_items} items); Friedman p {p_value_text(result.friedman_p)}"
    )
    axes.text(start, y + 0.12, label, ha="left", va="bottom", color=_INK, fontsize="small")
