import csv
import io
import json
import math

import numpy as np
import polars as pl
import pytest

from pipeline_lib.errors import InputError
from pipeline_lib.metrics.average_ranks import critical_difference
from pipeline_lib.metrics.resampling import bootstrap_interval
from pipeline_lib.metrics.significance import compare, holm
from pipeline_lib.report.comparison import (
    comparison_table,
    to_csv,
    to_json,
    to_latex,
    to_markdown,
)
from pipeline_lib.report.critical_difference import critical_difference_figure
from pipeline_lib.report.figures import to_svg

METRICS = ["map", "ndcg_at_10"]


def frames():
    rng = np.random.default_rng(0)
    base = rng.random(80)
    values = {
        "a|b_svm": base + 0.2 + 0.05 * rng.normal(size=80),
        "RankSVM": base,
        "R&D": base + 0.3 * rng.normal(size=80),
        "worse": base - 0.2 + 0.05 * rng.normal(size=80),
    }
    return {
        name: pl.DataFrame({"qid": np.arange(80), "map": v, "ndcg_at_10": v / 2})
        for name, v in values.items()
    }


@pytest.fixture(scope="module")
def table():
    return comparison_table(frames(), METRICS, "RankSVM")


def test_rows_are_the_library_s_own_comparisons(table):
    assert table.select("metric", "method").rows() == [(m, f) for m in METRICS for f in frames()]
    for metric in METRICS:
        rows = table.filter((pl.col("metric") == metric) & (pl.col("method") != "RankSVM"))
        singles = [
            compare(frames()[method], frames()["RankSVM"], metric) for method in rows["method"]
        ]
        for row, single in zip(rows.iter_rows(named=True), singles):
            assert row["difference"] == pytest.approx(single.effect)
            assert row["difference_low"] == pytest.approx(single.interval_low)
            assert row["difference_high"] == pytest.approx(single.interval_high)
            assert row["p_randomisation"] == single.p_randomisation
            assert row["p_wilcoxon"] == single.p_wilcoxon
            assert row["mean"] == pytest.approx(frames()[row["method"]][metric].mean())
            interval = bootstrap_interval(frames()[row["method"]][metric])
            assert (row["mean_low"], row["mean_high"]) == pytest.approx(interval)
        np.testing.assert_allclose(rows["p_wilcoxon_holm"], holm(rows["p_wilcoxon"]))
    baseline = table.filter(pl.col("method") == "RankSVM")
    assert baseline["difference"].is_null().all()
    assert baseline["p_wilcoxon_holm"].is_null().all()


def test_first_method_is_the_default_baseline():
    table = comparison_table(frames(), ["map"], n_resamples=100)
    assert table["baseline"].unique().to_list() == ["a|b_svm"]
    assert table["difference"].is_null().to_list() == [True, False, False, False]


def test_csv_reads_back(table):
    rows = list(csv.DictReader(io.StringIO(to_csv(table))))
    assert rows[0].keys() == set(table.columns)
    assert [float(row["mean"]) for row in rows] == table["mean"].to_list()
    assert [row["difference"] == "" for row in rows] == [f == "RankSVM" for f in table["method"]]


def test_json_reads_back_and_has_no_infinities(table):
    assert json.loads(to_json(table)) == table.to_dicts()
    constant = {
        n: pl.DataFrame({"qid": [1, 2], "map": [v, v]}) for n, v in (("a", 0.5), ("b", 1.5))
    }
    infinite = comparison_table(constant, ["map"], "a", n_resamples=10)
    assert infinite["cohen_d"][1] == math.inf
    assert json.loads(to_json(infinite))[1]["cohen_d"] is None


def test_markdown_marks_best_and_significant(table):
    text = to_markdown(table)
    lines = text.splitlines()
    assert lines[0] == "| Method | map | ndcg_at_10 |"
    best = table.filter(pl.col("method") == "a|b_svm").row(0, named=True)
    interval = f"[{best['mean_low']:.4f}, {best['mean_high']:.4f}]"
    assert lines[2].startswith(f"| a\\|b_svm | **{best['mean']:.4f}** ▲ {interval} |")
    assert "▲" not in lines[3] + lines[4]
    assert "▼" not in lines[3] + lines[4]
    assert lines[5].count("▼") == 2
    assert "80 items with 95% intervals" in text
    assert "difference to RankSVM" in text
    details = [line for line in lines[8:] if line.startswith(("| map", "| ndcg"))]
    assert len(details) == 6
    widths = {line.replace("\\|", "").count("|") for line in details}
    assert widths == {lines[9].count("|")}
    assert "< 0.0001" in details[0]


def test_latex_escapes_and_aligns(table):
    text = to_latex(table)
    assert "\\begin{tabular}{lrr}" in text
    assert "Method & map & ndcg\\_at\\_10 \\\\" in text
    assert "R\\&D & " in text
    assert text.count("\\textbf{") == 2
    assert text.count("$^{+}$") == 2
    assert text.count("$^{-}$") == 2
    body = text[text.index("\\toprule") :].splitlines()
    assert {line.replace("\\&", "").count("&") for line in body if line.endswith("\\\\")} == {2}
    odd = table.with_columns(method=pl.lit("a\\b~c^d{e}%$#"))
    assert r"a\textbackslash{}b\textasciitilde{}c\textasciicircum{}d\{e\}\%\$\#" in to_latex(odd)


def test_nothing_is_marked_between_equal_methods():
    same = frames()["RankSVM"]
    table = comparison_table({"x": same, "y": same}, ["map"], n_resamples=100)
    text = to_markdown(table)
    assert text.count("▲") == text.count("▼") == 1  # the legend only
    assert table["p_randomisation"][1] == 1.0
    assert text.count("**") == 4  # both are best


def test_refuses_no_metric_and_no_methods():
    with pytest.raises(InputError, match="no metric"):
        comparison_table(frames(), [])
    with pytest.raises(InputError, match="at least two"):
        comparison_table({}, ["map"])


def diagram(n_methods, n_items=30, spread=0.3):
    rng = np.random.default_rng(1)
    values = rng.normal(size=(n_items, n_methods)) - spread * np.arange(n_methods)
    columns = {f"method {j}": values[:, j] for j in range(n_methods)}
    result = critical_difference(pl.DataFrame({"qid": np.arange(n_items), **columns}))
    return result, critical_difference_figure(result, title="MAP")


@pytest.mark.parametrize(("n_methods", "n_items"), [(2, 100), (3, 30), (9, 30), (8, 3)])
def test_diagram_places_every_method_at_its_rank(n_methods, n_items):
    result, figure = diagram(n_methods, n_items)
    axes = figure.axes[0]
    stems = [line for line in axes.lines if len(line.get_xdata()) == 3]
    assert [line.get_xdata()[0] for line in stems] == list(result.average_ranks)
    labels = " ".join(text.get_text() for text in axes.texts)
    for method, rank in zip(result.methods, result.average_ranks):
        assert method in labels
        assert f"{rank:.2f}" in labels
    bars = [line for line in axes.lines if line.get_linewidth() == 4.0]
    assert len(bars) == len(result.groups)
    low, high = axes.get_xlim()
    assert all(low < x < high for line in axes.lines for x in line.get_xdata())
    assert "MAP" in to_svg(figure)


def test_diagram_s_group_bars_span_their_methods():
    result, figure = diagram(6)
    bars = [line for line in figure.axes[0].lines if line.get_linewidth() == 4.0]
    rank = dict(zip(result.methods, result.average_ranks))
    assert result.groups
    for bar, group in zip(bars, result.groups):
        start, end = bar.get_xdata()
        covered = [method for method in result.methods if start <= rank[method] <= end]
        assert covered == list(group)
