import dataclasses
import math

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from pipeline_lib.errors import InputError
from pipeline_lib.metrics import resampling
from pipeline_lib.metrics.average_ranks import critical_difference
from pipeline_lib.metrics.resampling import bootstrap_interval, sign_flip_pvalues
from pipeline_lib.metrics.significance import compare, compare_many, holm


def frame(values, metric="map", item="qid"):
    return pl.DataFrame({item: np.arange(len(values)), metric: values})


def planted(n, shift, seed=0):
    rng = np.random.default_rng(seed)
    a = rng.random(n)
    return frame(a + shift + 0.1 * rng.normal(size=n)), frame(a)


def test_a_method_against_itself():
    a, _ = planted(40, 0.0)
    result = compare(a, a, "map")
    assert result.effect == result.interval_low == result.interval_high == 0.0
    assert result.p_randomisation == result.p_wilcoxon == 1.0
    assert result.cohen_d == result.rank_biserial == 0.0
    assert result.n_items == 40


@pytest.mark.parametrize("n", [2, 7, 12])
def test_exact_randomisation_agrees_with_scipy_on_all_sign_assignments(n):
    a, b = planted(n, 0.05, seed=n)
    d = (a["map"] - b["map"]).to_numpy()
    theirs = stats.permutation_test(
        (d,), np.mean, permutation_type="samples", n_resamples=np.inf, vectorized=True
    )
    assert compare(a, b, "map").p_randomisation == pytest.approx(theirs.pvalue, abs=1e-12)


def test_ties_between_sign_assignments_count_as_extreme():
    # Eight equal differences: only the two constant assignments reach |T|.
    p = sign_flip_pvalues(np.full((8, 1), 0.1), seed=0, n_resamples=10)
    assert p[0] == pytest.approx(2 / 2**8)


def test_random_sign_assignments_approach_the_enumeration(monkeypatch):
    d = np.random.default_rng(5).normal(0.3, 1.0, (14, 3))
    exact = sign_flip_pvalues(d, seed=0, n_resamples=1)
    monkeypatch.setattr(resampling, "_EXACT_ITEMS", 0)
    sampled = sign_flip_pvalues(d, seed=0, n_resamples=50_000)
    np.testing.assert_allclose(sampled, exact, atol=0.01)


def test_blocks_bound_memory_without_changing_results(monkeypatch):
    d = np.random.default_rng(5).normal(0.1, 1.0, (64, 2))
    whole = sign_flip_pvalues(d, 1, 999), bootstrap_interval(d[:, 0], seed=1, n_resamples=999)
    monkeypatch.setattr(resampling, "_BLOCK_CELLS", 640)
    parts = sign_flip_pvalues(d, 1, 999), bootstrap_interval(d[:, 0], seed=1, n_resamples=999)
    np.testing.assert_allclose(parts[0], whole[0], atol=0.05)
    np.testing.assert_allclose(parts[1], whole[1], atol=0.05)


def test_p_values_are_uniform_when_there_is_no_difference():
    d = np.random.default_rng(0).standard_t(4, (40, 400))
    p = sign_flip_pvalues(d, seed=1, n_resamples=999)
    assert stats.kstest(p, "uniform").pvalue > 0.01


def test_wilcoxon_agrees_with_scipy_and_effect_sizes_with_their_definitions():
    a, b = planted(60, 0.04, seed=3)
    d = (a["map"] - b["map"]).to_numpy()
    result = compare(a, b, "map")
    assert result.p_wilcoxon == pytest.approx(stats.wilcoxon(d).pvalue, abs=1e-15)
    assert result.effect == pytest.approx(d.mean())
    assert result.mean_a - result.mean_b == pytest.approx(d.mean())
    assert result.cohen_d == pytest.approx(stats.ttest_1samp(d, 0).statistic / math.sqrt(60))
    positive = stats.rankdata(np.abs(d))[d > 0].sum()
    assert result.rank_biserial == pytest.approx(2 * positive / (60 * 61 / 2) - 1)
    swapped = compare(b, a, "map")
    assert swapped.effect == -result.effect
    assert swapped.p_randomisation == result.p_randomisation
    assert swapped.rank_biserial == pytest.approx(-result.rank_biserial)


def test_constant_differences_have_an_infinite_standardised_effect():
    result = compare(frame([2.0, 3.0, 4.0]), frame([1.0, 2.0, 3.0]), "map")
    assert result.cohen_d == math.inf
    assert result.interval_low == result.interval_high == 1.0
    assert result.rank_biserial == 1.0
    assert result.p_randomisation == 0.25


@pytest.mark.parametrize("draw", ["normal", "exponential"])
def test_bca_interval_agrees_with_scipy(draw):
    values = getattr(np.random.default_rng(2), draw)(size=80)
    ours = bootstrap_interval(values, level=0.9, seed=4, n_resamples=40_000)
    theirs = stats.bootstrap(
        (values,), np.mean, confidence_level=0.9, n_resamples=40_000, rng=5
    ).confidence_interval
    np.testing.assert_allclose(ours, theirs, atol=0.006)


def test_bca_interval_covers_the_mean_about_as_often_as_it_says():
    rng = np.random.default_rng(9)
    samples = rng.exponential(size=(60, 500))
    low, high = resampling.bootstrap_intervals(samples, 0.9, 0, 2_000)
    assert 0.84 < ((low <= 1.0) & (high >= 1.0)).mean() < 0.94


def test_intervals_and_p_values_repeat_under_a_seed():
    a, b = planted(50, 0.02)
    assert compare(a, b, "map", seed=3) == compare(a, b, "map", seed=3)
    assert compare(a, b, "map", seed=3) != compare(a, b, "map", seed=4)


def test_planted_drops_are_found_and_equal_runs_are_not():
    alarms = [
        compare(*planted(150, -0.05, seed), "map").p_randomisation < 0.01 for seed in range(20)
    ]
    assert all(alarms)
    quiet = [compare(*planted(150, 0.0, seed), "map").p_randomisation for seed in range(20)]
    assert sum(p < 0.05 for p in quiet) <= 3


def test_rows_are_joined_by_item_in_any_order_and_common_nulls_dropped():
    a = pl.DataFrame({"qid": ["x", "y", "z"], "map": [0.1, None, 0.5]})
    b = pl.DataFrame({"qid": ["z", "y", "x"], "map": [0.4, None, 0.2]})
    result = compare(a, b, "map")
    assert result.n_items == 2
    assert result.effect == pytest.approx(0.0)
    both = pl.DataFrame({"fold": [1, 1, 2], "qid": [1, 2, 1], "map": [0.1, 0.2, 0.3]})
    assert compare(both, both, "map", item=["fold", "qid"]).n_items == 3


def test_refuses_what_cannot_be_paired():
    a = frame([0.1, 0.2, 0.3])
    with pytest.raises(InputError, match=r"1 only in the first, 0 only in the second, .* 2 of 'a'"):
        compare(a, a.head(2), "map")
    with pytest.raises(InputError, match="no column 'ndcg'"):
        compare(a, a, "ndcg")
    with pytest.raises(InputError, match="no column 'qid'"):
        compare(a, a.rename({"qid": "query"}), "map")
    with pytest.raises(InputError, match="item 0 occurs more than once for method 'b'"):
        compare(a, pl.concat([a, a.head(1)]), "map")
    with pytest.raises(InputError, match="missing for some methods only"):
        compare(a, frame([0.1, None, 0.3]), "map")
    with pytest.raises(InputError, match="at least two to compare"):
        compare(a.head(1), a.head(1), "map")
    with pytest.raises(InputError, match="confidence level"):
        compare(a, a, "map", level=95)
    with pytest.raises(InputError, match="n_resamples"):
        compare(a, a, "map", n_resamples=0)
    with pytest.raises(InputError, match="finite"):
        compare(a, frame([0.1, np.nan, 0.3]), "map")


def test_holm_by_hand():
    np.testing.assert_allclose(holm([0.01, 0.04, 0.03, 0.005]), [0.03, 0.06, 0.06, 0.02])
    np.testing.assert_allclose(holm([0.6, 0.7]), [1.0, 1.0])
    with pytest.raises(InputError, match="out of range"):
        holm([0.5, 1.5])


@settings(deadline=None)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=20))
def test_holm_lies_between_raw_and_bonferroni_and_keeps_order(pvalues):
    raw, adjusted = np.array(pvalues), holm(pvalues)
    assert (adjusted >= raw).all()
    assert (adjusted <= np.minimum(raw * len(raw), 1.0) + 1e-15).all()
    order = np.argsort(raw, kind="stable")
    assert (np.diff(adjusted[order]) >= 0).all()


def test_compare_many_is_compare_for_every_pair():
    rng = np.random.default_rng(0)
    base = rng.random(30)
    frames = {name: frame(base + rng.normal(0, 0.1, 30)) for name in ("svm", "ran", "knn")}
    pairs = compare_many(frames, "map")
    assert list(zip(pairs["method"], pairs["baseline"])) == [
        ("svm", "ran"),
        ("svm", "knn"),
        ("ran", "knn"),
    ]
    for row in pairs.iter_rows(named=True):
        single = compare(frames[row["method"]], frames[row["baseline"]], "map")
        for name, value in dataclasses.asdict(single).items():
            assert row[name] == (value if isinstance(value, str) else pytest.approx(value)), name
    np.testing.assert_allclose(pairs["p_wilcoxon_holm"], holm(pairs["p_wilcoxon"]))
    against = compare_many(frames, "map", baseline="knn")
    assert against["method"].to_list() == ["svm", "ran"]
    assert set(against["baseline"]) == {"knn"}
    with pytest.raises(InputError, match="unknown baseline 'lmnn'"):
        compare_many(frames, "map", baseline="lmnn")
    with pytest.raises(InputError, match="at least two"):
        compare_many({"svm": frames["svm"]}, "map")


def ranks_table(values, methods):
    return pl.DataFrame(
        {"item": np.arange(len(values)), **dict(zip(methods, np.transpose(values)))}
    )


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6))
def test_friedman_agrees_with_scipy_with_ties(seed):
    rng = np.random.default_rng(seed)
    values = rng.integers(0, 5, (12, 4)).astype(float)
    result = critical_difference(ranks_table(values, "abcd"))
    theirs = stats.friedmanchisquare(*values.T)
    assert result.friedman_statistic == pytest.approx(theirs.statistic)
    assert result.friedman_p == pytest.approx(theirs.pvalue)


def test_nemenyi_by_the_published_constants():
    # Demsar (2006), table 5: q_.05 is 2.569 for four and 1.960 for two classifiers.
    values = np.tile([4.0, 3.0, 2.0, 1.0], (14, 1))
    result = critical_difference(ranks_table(values, "wxyz"))
    assert result.critical_difference == pytest.approx(2.569 * math.sqrt(20 / 84), abs=1e-3)
    assert result.methods == ("w", "x", "y", "z")
    assert result.average_ranks == (1.0, 2.0, 3.0, 4.0)
    assert result.groups == (("w", "x"), ("x", "y"), ("y", "z"))
    two = critical_difference(ranks_table(values[:, :2], "wx"), higher_is_better=False)
    assert two.methods == ("x", "w")
    assert two.critical_difference == pytest.approx(1.960 * math.sqrt(1 / 14), abs=1e-3)
    assert two.groups == ()


def test_average_ranks_of_methods_that_nothing_separates():
    table = ranks_table(np.ones((5, 3)), "abc")
    result = critical_difference(table)
    assert (result.friedman_statistic, result.friedman_p) == (0.0, 1.0)
    assert result.groups == (("a", "b", "c"),)
    none = table.with_columns(pl.lit(None, pl.Float64).alias(name) for name in "abc").head(1)
    assert critical_difference(pl.concat([table, none])).n_items == 5


def test_critical_difference_refuses_bad_tables():
    table = ranks_table(np.ones((5, 3)), "abc")
    with pytest.raises(InputError, match="1 methods"):
        critical_difference(table.select("item", "a"))
    with pytest.raises(InputError, match="1 items"):
        critical_difference(table.head(1))
    with pytest.raises(InputError, match="alpha"):
        critical_difference(table, alpha=5)
    with pytest.raises(InputError, match="finite"):
        critical_difference(table.with_columns(a=pl.Series([1.0, None, 1.0, 1.0, 1.0])))
