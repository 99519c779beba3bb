"""The comparison table of several methods, and its text in the formats people paste it into.

Every renderer is a pure function of the frame that `comparison_table` returns.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import polars as pl

from pipeline_lib.errors import InputError
from pipeline_lib.metrics.resampling import bootstrap_intervals
from pipeline_lib.metrics.significance import compare_many, paired_values


def comparison_table(
    frames: Mapping[str, pl.DataFrame],
    metrics: Sequence[str],
    baseline: str | None = None,
    *,
    item: str | Sequence[str] | None = None,
    level: float = 0.95,
    n_resamples: int = 10_000,
    seed: int = 0,
) -> pl.DataFrame:
    """Set methods side by side on several metrics, each tested against one baseline.

    Parameters
    ----------
    frames : mapping of str to polars.DataFrame
        Per-item values of each method (``MetricResult.per_item``), all over the same items.
    metrics : sequence of str
        Columns to compare; larger is better.
    baseline : str, optional
        The method the others are compared with; the first one when omitted.
    item : str or sequence of str, optional
        Identifying columns; the first column when omitted.
    level, n_resamples, seed
        Of intervals and tests, as in ``pipeline_lib.metrics.compare``.

    Returns
    -------
    polars.DataFrame
        One row per metric and method, in the given orders: ``metric``, ``method``, ``n_items``,
        ``mean`` with its BCa bootstrap interval ``mean_low``, ``mean_high``; ``baseline``, and of
        the paired difference to it ``difference``, ``difference_low``, ``difference_high``,
        ``cohen_d``, ``rank_biserial``, ``p_randomisation``, ``p_wilcoxon`` and both p-values after
        Holm's correction over the methods of the metric, ``p_randomisation_holm``,
        ``p_wilcoxon_holm``; ``level``. The differences of the baseline itself are null.

    Raises
    ------
    InputError
        As ``pipeline_lib.metrics.compare_many``, and if no metric is named.
    """
    if not metrics:
        raise InputError("no metric to compare", expected="at least one column name")
    names = list(frames)
    reference = names[0] if baseline is None and names else baseline
    blocks = []
    for metric in metrics:
        differences = compare_many(
            frames, metric, reference, item=item, level=level, n_resamples=n_resamples, seed=seed
        )
        values = paired_values(frames, metric, item)[1]
        low, high = bootstrap_intervals(values, level, seed, n_resamples)
        means = pl.DataFrame(
            {
                "metric": metric,
                "method": names,
                "n_items": len(values),
                "mean": values.mean(axis=0),
                "mean_low": low,
                "mean_high": high,
                "baseline": reference,
            }
        )
        tests = differences.select(
            "method",
            difference="effect",
            difference_low="interval_low",
            difference_high="interval_high",
            **{name: name for name in _TESTS},
        )
        blocks.append(
            means.join(tests, on="method", how="left", maintain_order="left").with_columns(
                level=level
            )
        )
    return pl.concat(blocks)


_TESTS = (
    "cohen_d",
    "rank_biserial",
    "p_randomisation",
    "p_wilcoxon",
    "p_randomisation_holm",
    "p_wilcoxon_holm",
)


def to_csv(table: pl.DataFrame) -> str:
    """All columns at full precision; differences of the baseline are empty."""
    return table.write_csv()


def to_json(table: pl.DataFrame) -> str:
    """An array of one object per row; null where a value is missing or not finite."""
    rows = [
        {
            name: None if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in row.items()
        }
        for row in table.iter_rows(named=True)
    ]
    return json.dumps(rows, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def to_markdown(table: pl.DataFrame, *, alpha: float = 0.05) -> str:
    """Two Markdown tables: means with intervals, and the differences with their tests.

    The best mean of each metric is bold. A triangle says that the method differs from the baseline
    by the randomisation test after Holm's correction at level `alpha`: up better, down worse.
    """

    def escape(text: str) -> str:
        return text.replace("|", "\\|")

    def show(row: dict[str, Any], best: bool, sign: int) -> str:
        mean = f"**{row['mean']:.4f}**" if best else f"{row['mean']:.4f}"
        return f"{mean}{('', ' ▲', ' ▼')[sign]} [{row['mean_low']:.4f}, {row['mean_high']:.4f}]"

    header, rows = _wide(table, alpha, show)
    lines = [
        *_markdown_rows(
            [escape(cell) for cell in header], [[escape(row[0]), *row[1:]] for row in rows]
        ),
        "",
        f"{_caption(table, alpha)} ▲ better, ▼ worse.",
        "",
        *_markdown_rows(
            [
                "Metric",
                "Method",
                "Difference",
                "Cohen d",
                "Rank-biserial",
                "p randomisation",
                "Holm",
                "p Wilcoxon",
                "Holm",
            ],
            [
                [escape(row["metric"]), escape(row["method"]), *_difference_cells(row)]
                for row in table.iter_rows(named=True)
                if row["difference"] is not None
            ],
            names=2,
        ),
    ]
    return "\n".join(lines) + "\n"


def to_latex(table: pl.DataFrame, *, alpha: float = 0.05) -> str:
    """A booktabs ``tabular`` of the means, significant differences marked with + and -.

    The best mean of each metric is bold; the caption stands above as a comment.
    """

    def show(row: dict[str, Any], best: bool, sign: int) -> str:
        mean = f"\\textbf{{{row['mean']:.4f}}}" if best else f"{row['mean']:.4f}"
        return mean + ("", "$^{+}$", "$^{-}$")[sign]

    header, rows = _wide(table, alpha, show)
    lines = [
        f"% {_caption(table, alpha)} + better, - worse.",
        f"\\begin{{tabular}}{{l{'r' * (len(header) - 1)}}}",
        "\\toprule",
        " & ".join(_latex_escape(cell) for cell in header) + " \\\\",
        "\\midrule",
        *(" & ".join([_latex_escape(row[0]), *row[1:]]) + " \\\\" for row in rows),
        "\\bottomrule",
        "\\end{tabular}",
    ]
    return "\n".join(lines) + "\n"


def _wide(
    table: pl.DataFrame, alpha: float, show: Callable[[dict[str, Any], bool, int], str]
) -> tuple[list[str], list[list[str]]]:
    """Methods down, metrics across; `show` makes a cell of a row, its bestness and its sign.

    The sign is 1 (better), -1 (worse) or 0 (the baseline, or no significant difference).
    """
    metrics = table["metric"].unique(maintain_order=True).to_list()
    methods = table["method"].unique(maintain_order=True).to_list()
    best = dict(table.group_by("metric").agg(pl.col("mean").max()).iter_rows())
    cells = {}
    for row in table.iter_rows(named=True):
        significant = row["difference"] is not None and row["p_randomisation_holm"] < alpha
        sign = int(math.copysign(1, row["difference"])) if significant else 0
        cells[row["method"], row["metric"]] = show(row, row["mean"] == best[row["metric"]], sign)
    rows = [[method, *(cells[method, metric] for metric in metrics)] for method in methods]
    return ["Method", *metrics], rows


def _caption(table: pl.DataFrame, alpha: float) -> str:
    sizes = table["n_items"].unique().sort().to_list()
    items = f"{sizes[0]}" if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}"
    return (
        f"Means over {items} items with {table['level'][0]:.0%} intervals; marks: difference to "
        f"{table['baseline'][0]}, paired randomisation test, Holm-corrected p < {alpha:g}."
    )


def _difference_cells(row: Mapping[str, Any]) -> Iterator[str]:
    yield f"{row['difference']:+.4f} [{row['difference_low']:+.4f}, {row['difference_high']:+.4f}]"
    yield f"{row['cohen_d']:+.2f}"
    yield f"{row['rank_biserial']:+.2f}"
    for test in ("p_randomisation", "p_randomisation_holm", "p_wilcoxon", "p_wilcoxon_holm"):
        yield "<0.0001" if row[test] < 0.0001 else f"{row[test]:.4f}"


def _markdown_rows(
    header: Sequence[str], rows: Sequence[Sequence[str]], names: int = 1
) -> Iterator[str]:
    """A Markdown table whose first `names` columns are text and the others numbers."""
    yield f"| {' | '.join(header)} |"
    yield f"|{'---|' * names}{'---:|' * (len(header) - names)}"
    for row in rows:
        yield f"| {' | '.join(row)} |"


def _latex_escape(text: str) -> str:
    specials = {
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        **{character: f"\\{character}" for character in "&%$#_{}"},
    }
    return "".join(specials.get(character, character) for character in text)
