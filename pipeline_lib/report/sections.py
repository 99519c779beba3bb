"""The parts of which a report is made, and what a problem kind gets to make them from."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import polars as pl

from pipeline_lib.suites import Problem


@dataclass(frozen=True)
class Section:
    """One titled part of a page; ``body`` is safe HTML, ``note`` plain text."""

    title: str
    body: str
    note: str = ""


@dataclass(frozen=True)
class ProblemView:
    """Everything a run knows of one problem.

    Attributes
    ----------
    problem : Problem
    results, trials, history, per_item : DataFrame
        The rows of the run's tables that belong to it.
    published : DataFrame
        Published numbers, empty when there are none.
    data : mapping
        What was found in each part of the dataset.
    pictures : DataFrame
        What the evaluations kept to be drawn, empty when nothing.
    """

    problem: Problem
    results: pl.DataFrame
    trials: pl.DataFrame
    history: pl.DataFrame
    per_item: pl.DataFrame
    published: pl.DataFrame
    data: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    pictures: pl.DataFrame = field(default_factory=pl.DataFrame)

    def definition(self, name: str) -> pl.DataFrame:
        """Results under one metric definition."""
        return self.results.filter(pl.col("definition") == name)


def p_value_text(p: float) -> str:
    """Write a p-value with four decimals; none is ever exactly 0."""
    return "< 0.0001" if p < 0.0001 else f"{p:.4f}"


@dataclass(frozen=True)
class Column:
    """A column of an HTML table.

    Attributes
    ----------
    key, title : str
    digits : int, optional
        Decimals; None shows text.
    best : bool
        Whether the largest value is set bold.
    """

    key: str
    title: str
    digits: int | None = None
    best: bool = False


def html_table(
    rows: Sequence[Mapping[str, object]],
    columns: Sequence[Column],
    *,
    caption: str = "",
    classes: Mapping[int, str] | None = None,
) -> str:
    """Render a table.

    Parameters
    ----------
    rows : sequence of mappings
        Missing and null cells show a dash.
    columns : sequence of Column
    caption : str
    classes : mapping of int to str, optional
        CSS class of single rows; rows with the class ``published`` take no part in "best".
    """
    marks = dict(classes or {})
    best = {
        column.key: max(
            (
                round(float(str(row[column.key])), column.digits or 0)
                for i, row in enumerate(rows)
                if row.get(column.key) is not None and marks.get(i) != "published"
            ),
            default=None,
        )
        for column in columns
        if column.best
    }
    head = "".join(
        f'<th class="{"text" if c.digits is None else "number"}">{html.escape(c.title)}</th>'
        for c in columns
    )
    body = []
    for i, row in enumerate(rows):
        cells = "".join(
            _cell(row.get(c.key), c, best.get(c.key), marks.get(i, "")) for c in columns
        )
        mark = f' class="{marks[i]}"' if i in marks else ""
        body.append(f"<tr{mark}>{cells}</tr>")
    title = f"<caption>{html.escape(caption)}</caption>" if caption else ""
    return (
        f'<div class="scroll"><table>{title}<thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(body)}</tbody></table></div>"
    )


def _cell(value: object, column: Column, best: float | None, mark: str) -> str:
    if value is None:
        return '<td class="none">–</td>'
    if column.digits is None:
        return f'<td class="text">{html.escape(str(value))}</td>'
    number = float(str(value))
    text = f"{number:.{column.digits}f}"
    if best is not None and mark != "published" and round(number, column.digits) == best:
        text = f"<strong>{text}</strong>"
    return f'<td class="number">{text}</td>'
