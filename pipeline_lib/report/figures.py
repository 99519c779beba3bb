"""Figures of the reports: one look for all, as SVG inside the page."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import matplotlib
import matplotlib.ticker
import numpy as np
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

# Colours that stay apart for colour-blind readers (Okabe and Ito 2008), with markers beside them.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#555555", "#8C6D1F")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
_LABELLED = 12  # whole numbers on an axis, at most, that are all written
_DASHES = ("-", "--", ":")  # for more series than colours

STYLE: dict[Any, Any] = {
    "font.family": "sans-serif",
    "font.size": 9.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e4e4e4",
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "axes.edgecolor": "#777777",
    "legend.frameon": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "affinity-bench",
}


def figure(width: float = 7.0, height: float = 3.6) -> Figure:
    """Make an empty figure (inches) in the common style; no global state of matplotlib is touched."""
    with matplotlib.rc_context(STYLE):
        return Figure(figsize=(width, height), layout="constrained")


def to_svg(drawn: Figure) -> str:
    """Render a figure as an SVG element without XML declaration."""
    buffer = io.StringIO()
    with matplotlib.rc_context(STYLE):
        drawn.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    text = buffer.getvalue()
    return text[text.index("<svg") :]


class _PlainNumbers(matplotlib.ticker.LogFormatter):
    """Labels of a logarithmic axis as plain numbers: formulas take most of the time of a report."""

    def __call__(self, x: float, pos: int | None = None) -> str:
        return f"{x:g}" if super().__call__(x, pos) else ""


def _write_plainly(axis: Axis) -> None:
    axis.set_major_formatter(_PlainNumbers())
    axis.set_minor_formatter(_PlainNumbers(minor_thresholds=(1.0, 0.4)))


def lines(
    x: Sequence[float],
    series: Mapping[str, Sequence[float]],
    *,
    xlabel: str,
    ylabel: str,
    title: str = "",
    log_x: bool = False,
    log_y: bool = False,
    bands: dict[str, tuple[ArrayLike, ArrayLike]] | None = None,
) -> str:
    """Draw one curve per series over common points; a curve passes over values that are not finite."""
    with matplotlib.rc_context(STYLE):
        drawn = figure()
        axes = drawn.add_subplot()
        for i, (label, values) in enumerate(series.items()):
            colour = PALETTE[i % len(PALETTE)]
            marker = MARKERS[i % len(MARKERS)]
            dash = _DASHES[i // len(PALETTE) % len(_DASHES)]
            known = np.isfinite(np.asarray(values, dtype=float))
            axes.plot(
                np.asarray(x)[known],
                np.asarray(values)[known],
                dash,
                color=colour,
                marker=marker,
                markersize=4,
                lw=1.4,
                label=label,
            )
            if bands and label in bands:
                low, high = bands[label]
                axes.fill_between(
                    x, np.asarray(low), np.asarray(high), color=colour, alpha=0.12, lw=0
                )
        axes.set(xlabel=xlabel, ylabel=ylabel, title=title)
        if log_x:
            axes.set_xscale("log")
            _write_plainly(axes.xaxis)
        if log_y:
            axes.set_yscale("log")
            _write_plainly(axes.yaxis)
        if len(x) <= _LABELLED and all(float(value).is_integer() for value in x):
            axes.set_xticks(x, [f"{value:,.0f}" for value in x])
            axes.xaxis.set_minor_locator(matplotlib.ticker.NullLocator())
        axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
        return to_svg(drawn)


@dataclass(frozen=True)
class Panel:
    """One of several axes with a common legend.

    Attributes
    ----------
    title : str
    series : mapping of str to (x, y)
        Curves by label; equal labels look alike in all panels.
    bands : mapping of str to array
        Half width of a band around a curve.
    log_y : bool
    """

    title: str
    series: Mapping[str, tuple[Sequence[float], Sequence[float]]]
    bands: Mapping[str, Sequence[float]] = field(default_factory=dict)
    log_y: bool = False


def panels(
    shown: Sequence[Panel],
    *,
    xlabel: str,
    columns: int = 2,
    log_x: bool = False,
    lines_only: Sequence[str] = (),
    dashed: Sequence[str] = (),
) -> str:
    """Draw several panels in one figure; ``lines_only`` curves have no markers."""
    labels = list(dict.fromkeys(label for panel in shown for label in panel.series))
    rows = -(-len(shown) // columns)
    with matplotlib.rc_context(STYLE):
        drawn = figure(4.6 * columns, 2.7 * rows + 0.5)
        handles: dict[str, Any] = {}
        for k, panel in enumerate(shown):
            axes = drawn.add_subplot(rows, columns, k + 1)
            for label, (x, y) in panel.series.items():
                i = labels.index(label)
                colour = PALETTE[i % len(PALETTE)]
                (handles[label],) = axes.plot(
                    x,
                    y,
                    color=colour,
                    marker="" if label in lines_only else MARKERS[i % len(MARKERS)],
                    markersize=4,
                    lw=1.4,
                    linestyle="--" if label in dashed else "-",
                )
                if label in panel.bands:
                    middle, half = np.asarray(y), np.asarray(panel.bands[label])
                    axes.fill_between(
                        x, middle - half, middle + half, color=colour, alpha=0.15, lw=0
                    )
            axes.set_title(panel.title, fontsize=9)
            if k + columns >= len(shown):
                axes.set_xlabel(xlabel)
            if log_x:
                axes.set_xscale("log")
                _write_plainly(axes.xaxis)
            if panel.log_y:
                axes.set_yscale("log")
                _write_plainly(axes.yaxis)
        drawn.legend(
            [handles[label] for label in labels], labels, loc="outside lower center", ncols=3
        )
        return to_svg(drawn)


_WIDE = 50.0
"""Ratio of the largest to the smallest bar from which lengths show their logarithm."""


def bars(labels: Sequence[str], values: Sequence[float], *, xlabel: str) -> str:
    """Draw horizontal bars with their values written beside them.

    Lengths are proportional to the values, unless these range so widely that the short ones would
    vanish: then they show logarithms, and the axis says so.
    """
    least = min((value for value in values if value > 0), default=1.0)
    log = max(values, default=0.0) > _WIDE * least
    with matplotlib.rc_context(STYLE):
        drawn = figure(7.0, 0.5 + 0.3 * len(labels))
        axes = drawn.add_subplot()
        positions = np.arange(len(labels))[::-1]
        axes.barh(positions, values, color=PALETTE[0], height=0.62)
        for position, value in zip(positions, values, strict=True):
            axes.annotate(
                f"{value:.3g}",
                (value, position),
                xytext=(4, 0),
                textcoords="offset points",
                va="center",
            )
        axes.set_yticks(positions, labels)
        axes.set_xlabel(f"{xlabel} (logarithmic)" if log else xlabel)
        axes.grid(axis="y", visible=False)
        axes.margins(x=0.12)
        if log:
            axes.set_xscale("log")
            axes.set_xlim(left=least / 2)
            _write_plainly(axes.xaxis)
        return to_svg(drawn)


def surface(
    rows: Sequence[str],
    columns: Sequence[str],
    values: ArrayLike,
    *,
    xlabel: str,
    ylabel: str,
    title: str,
    chosen: tuple[int, int] | None = None,
) -> str:
    """Draw a grid of values as a heat map; ``chosen`` (row, column) is framed."""
    grid = np.asarray(values, dtype=float)
    with matplotlib.rc_context({**STYLE, "axes.grid": False}):
        drawn = figure(1.6 + 0.44 * len(columns), 1.3 + 0.26 * len(rows))
        axes = drawn.add_subplot()
        image = axes.imshow(grid, aspect="auto", cmap="viridis", origin="lower")
        axes.set_xticks(range(len(columns)), columns)
        axes.set_yticks(range(len(rows)), rows)
        axes.set(xlabel=xlabel, ylabel=ylabel)
        axes.set_title(title, fontsize=9)
        if chosen is not None:
            row, column = chosen
            frame = matplotlib.patches.Rectangle(
                (column - 0.5, row - 0.5), 1, 1, fill=False, edgecolor="#D55E00", lw=2.2
            )
            axes.add_patch(frame)
        bar = drawn.colorbar(image, ax=axes, pad=0.02)
        bar.outline.set_visible(False)
        return to_svg(drawn)
