"""A run's rows beside the numbers printed for the same method in the published table."""

from __future__ import annotations

import json
from collections.abc import Sequence

import polars as pl

from pipeline_lib.errors import InputError
from pipeline_lib.metrics.resampling import bootstrap_interval
from pipeline_lib.report.comparison import latex_escape
from pipeline_lib.report.page import problem_view
from pipeline_lib.report.paired import item_means
from pipeline_lib.report.sections import ProblemView
from pipeline_lib.results import RunRecord

SCHEMA = {
    "problem": pl.String,
    "method": pl.String,
    "metric": pl.String,
    "ours": pl.Float64,
    "low": pl.Float64,
    "high": pl.Float64,
    "published": pl.Float64,
    "deviation": pl.Float64,
    "difference": pl.Float64,
    "inside": pl.Boolean,
    "dataset": pl.String,
    "protocol": pl.String,
    "source": pl.String,
}

_COLUMNS = (
    ("problem", "problem", None),
    ("method", "method", None),
    ("metric", "metric", None),
    ("ours", "ours", 4),
    ("interval", "95 % interval", None),
    ("published", "published", 4),
    ("deviation", "±", 4),
    ("difference", "difference", 4),
    ("verdict", "published value", None),
    ("origin", "printed for", None),
)
_PERCENT_ABOVE = 1.5


def published_table(record: RunRecord) -> pl.DataFrame:
    """Set each published number beside ours.

    A published method stands beside the rows of its name: the label if a row has it, else every row of
    the registered method. Numbers printed in percent are brought to our scale.

    Parameters
    ----------
    record : RunRecord

    Returns
    -------
    polars.DataFrame
        Columns of `SCHEMA`: our mean with its bootstrap interval over items (95 %; null where values
        are not kept per item), the published value with its printed deviation, ours minus published,
        and whether the published value lies ``inside`` our interval. The interval is that of our test
        items only: it says nothing of the paper's own.

    Raises
    ------
    InputError
        If no problem of the run names a published table, or none of its numbers has a counterpart.
    """
    rows: list[dict[str, object]] = []
    named = False
    for problem in record.suite.problems:
        view = problem_view(record, problem.title)
        if not len(view.published) or not len(view.results):
            continue
        named = True
        rows += _rows(view)
    if not rows:
        what = (
            "none of the published numbers has a row here"
            if named
            else (f"the suite {record.suite.name} names no published table")
        )
        raise InputError(what, remedy="see the key `published` of the suites that come along")
    return pl.DataFrame(rows, schema=SCHEMA)


def text_rows(table: pl.DataFrame) -> tuple[list[str], list[list[str]]]:
    """Header and cells of the table for people."""
    shown = []
    for row in table.iter_rows(named=True):
        low, high, inside = row["low"], row["high"], row["inside"]
        cells = {
            **row,
            "interval": "" if low is None else f"{low:.4f} – {high:.4f}",
            "verdict": "" if inside is None else "inside" if inside else "outside",
            "origin": f"{row['dataset']}, {row['protocol']} ({row['source']})",
        }
        shown.append([_cell(cells[key], digits) for key, _, digits in _COLUMNS])
    return [title for _, title, _ in _COLUMNS], shown


def to_markdown(table: pl.DataFrame) -> str:
    """A Markdown table."""
    header, rows = text_rows(table)
    lines = [header, ["---"] * len(header), *([c.replace("|", "\\|") for c in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def to_latex(table: pl.DataFrame) -> str:
    """A booktabs ``tabular``."""
    header, rows = text_rows(table)
    body = [" & ".join(latex_escape(cell) for cell in row) + " \\\\" for row in (header, *rows)]
    return "\n".join(
        [
            "\\begin{tabular}{lllrlrrrll}",
            "\\toprule",
            body[0],
            "\\midrule",
            *body[1:],
            "\\bottomrule",
            "\\end{tabular}\n",
        ]
    )


def to_json(table: pl.DataFrame) -> str:
    """An array of one object a row."""
    return json.dumps(table.to_dicts(), indent=2, ensure_ascii=False) + "\n"


def _rows(view: ProblemView) -> list[dict[str, object]]:
    definition = str(view.results["definition"][0])
    results = view.definition(definition)
    values = view.published["value"]
    factor = 100.0 if values.max() > _PERCENT_ABOVE else 1.0  # type: ignore[operator]
    intervals: dict[tuple[str, str], tuple[float | None, float | None]] = {}
    rows: list[dict[str, object]] = []
    for printed in view.published.iter_rows(named=True):
        metric, method = printed["metric"], printed["method"]
        if metric not in results.columns:
            continue
        by_label = results.filter(pl.col("label") == method)
        for ours in (
            by_label if len(by_label) else results.filter(pl.col("method") == method)
        ).iter_rows(named=True):
            if ours[metric] is None:
                continue
            key = (ours["label"], metric)
            if key not in intervals:
                intervals[key] = _interval(view, definition, *key)
            low, high = intervals[key]
            value = printed["value"] / factor
            deviation = printed["deviation"]
            rows.append(
                {
                    "problem": view.problem.title,
                    "method": ours["label"],
                    "metric": metric,
                    "ours": ours[metric],
                    "low": low,
                    "high": high,
                    "published": value,
                    "deviation": None if deviation is None else deviation / factor,
                    "difference": ours[metric] - value,
                    "inside": None if low is None or high is None else low <= value <= high,
                    **{name: printed[name] for name in ("dataset", "protocol", "source")},
                }
            )
    return rows


def _interval(
    view: ProblemView, definition: str, label: str, metric: str
) -> tuple[float | None, float | None]:
    if metric not in view.per_item.columns:
        return None, None
    own = item_means(view, metric, definition)[label][metric].drop_nulls().to_numpy()
    return bootstrap_interval(own) if len(own) > 1 else (None, None)


def _cell(value: object, digits: int | None) -> str:
    if value is None:
        return ""
    return f"{float(str(value)):.{digits}f}" if digits is not None else str(value)


def warnings(record: RunRecord, table: pl.DataFrame) -> Sequence[str]:
    """What a reader must know: numbers that were printed for other data than ours."""
    ours = {problem.title: problem.dataset for problem in record.suite.problems}
    other = sorted(
        {
            f"{problem}: the numbers were printed for {dataset}, ours are of {ours[problem]}"
            for problem, dataset in table.select("problem", "dataset").iter_rows()
            if dataset != ours[problem]
        }
    )
    return other
