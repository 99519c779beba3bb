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
from pipeline_lib.metrics.resampling import bootstrap_interval, bootstrap_intervals
from pipeline_lib.metrics.significance import compare_many, holm, paired_values
from pipeline_lib.report.sections import p_value_text


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
        blocks.append(_joined(means, differences, level))
    return pl.concat(blocks)


def paired_table(
    frames: Mapping[str, pl.DataFrame],
    pairs: Mapping[str, str],
    metrics: Sequence[str],
    *,
    item: str | Sequence[str] | None = None,
    level: float = 0.95,
    n_resamples: int = 10_000,
    seed: int = 0,
) -> pl.DataFrame:
    """Set methods side by side, each tested against a counterpart of its own.

    Parameters
    ----------
    frames : mapping of str to polars.DataFrame
        Per-item values of each method.
    pairs : mapping of str to str
        Method to the one it is compared with; the two must hold the same items.
    metrics, item, level, n_resamples, seed
        As in `comparison_table`.

    Returns
    -------
    polars.DataFrame
        Columns as of `comparison_table`; Holm's correction is over the pairs of a metric. What is
        in no pair, or is only compared with, has null differences.
    """
    blocks = []
    for metric in metrics:
        tests = [
            compare_many(
                {method: frames[method], other: frames[other]},
                metric,
                other,
                item=item,
                level=level,
                n_resamples=n_resamples,
                seed=seed,
            )
            for method, other in pairs.items()
        ]
        differences = pl.concat(tests).with_columns(
            pl.Series(f"{name}_holm", holm([test[name][0] for test in tests]))
            for name in ("p_randomisation", "p_wilcoxon")
        )
        values = {name: frame[metric].drop_nulls().to_numpy() for name, frame in frames.items()}
        means = pl.DataFrame(
            {
                "metric": metric,
                "method": name,
                "n_items": len(own),
                "mean": own.mean(),
                "mean_low": interval[0],
                "mean_high": interval[1],
            }
            for name, own in values.items()
            for interval in [bootstrap_interval(own, level, seed, n_resamples)]
        )
        blocks.append(_joined(means, differences, level))
    return pl.concat(blocks)


def _joined(means: pl.DataFrame, differences: pl.DataFrame, level: float) -> pl.DataFrame:
    """Means of all methods, and beside them the tests of those that were tested."""
    shared = ["method"] if "baseline" in means.columns else ["method", "baseline"]
    tests = differences.select(
        *shared,
        difference="effect",
        difference_low="interval_low",
        difference_high="interval_high",
        **{name: name for name in _TESTS},
    )
    joined = means.join(tests, on="method", how="left", maintain_order="left")
    return joined.with_columns(level=level)


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

    header, rows = wide(table, alpha, show)
    lines = [
        *_markdown_rows(
            [escape(cell) for cell in header], [[escape(row[0]), *row[1:]] for row in rows]
        ),
        "",
        f"{caption(table, alpha)} ▲ better, ▼ worse.",
        "",
        *_markdown_rows(
            [
                "Metric",
                "Method",
                "Against",
                "Difference",
                "Cohen d",
                "Rank-biserial",
                "p randomisation",
                "Holm",
                "p Wilcoxon",
                "Holm",
            ],
            [
                [
                    *(escape(row[n]) for n in ("metric", "method", "baseline")),
                    *difference_cells(row),
                ]
                for row in table.iter_rows(named=True)
                if row["difference"] is not None
            ],
            names=3,
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

    header, rows = wide(table, alpha, show)
    lines = [
        f"% {caption(table, alpha)} + better, - worse.",
        f"\\begin{{tabular}}{{l{'r' * (len(header) - 1)}}}",
        "\\toprule",
        " & ".join(latex_escape(cell) for cell in header) + " \\\\",
        "\\midrule",
        *(" & ".join([latex_escape(row[0]), *row[1:]]) + " \\\\" for row in rows),
        "\\bottomrule",
        "\\end{tabular}",
    ]
    return "\n".join(lines) + "\n"


def wide(
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


def caption(table: pl.DataFrame, alpha: float) -> str:
    """What the means are over and what the marks mean."""
    sizes = table["n_items"].unique().sort().to_list()
    items = f"{sizes[0]}" if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}"
    against = table["baseline"].drop_nulls().unique().to_list()
    return (
        f"Means over {items} items with {table['level'][0]:.0%} intervals; marks: difference to "
        f"{against[0] if len(against) == 1 else 'the counterpart'}, paired randomisation test, "
        f"Holm-corrected p < {alpha:g}."
    )


def difference_cells(row: Mapping[str, Any]) -> Iterator[str]:
    """Difference with interval, effect sizes and p-values of a row of the table, as text."""
    yield f"{row['difference']:+.4f} [{row['difference_low']:+.4f}, {row['difference_high']:+.4f}]"
    yield f"{row['cohen_d']:+.2f}"
    yield f"{row['rank_biserial']:+.2f}"
    for test in ("p_randomisation", "p_randomisation_holm", "p_wilcoxon", "p_wilcoxon_holm"):
        yield p_value_text(row[test])


def _markdown_rows(
    header: Sequence[str], rows: Sequence[Sequence[str]], names: int = 1
) -> Iterator[str]:
    """A Markdown table whose first `names` columns are text and the others numbers."""
    yield f"| {' | '.join(header)} |"
    yield f"|{'---|' * names}{'---:|' * (len(header) - names)}"
    for row in rows:
        yield f"| {' | '.join(row)} |"


def latex_escape(text: str) -> str:
    """Write text so that LaTeX prints it."""
    specials = {
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        **{character: f"\\{character}" for character in "&%$#_{}"},
    }
    return "".join(specials.get(character, character) for character in text)
