"""Retrieval through the pipeline: draws, halves, approximate search, pictures, and what the report says."""

from __future__ import annotations

import json

import numpy as np
import polars as pl
import pytest

from pipeline_lib.errors import InputError
from pipeline_lib.home import resolve_home
from pipeline_lib.report import retrieval as report
from pipeline_lib.report.page import problem_view, render
from pipeline_lib.results import load_run
from pipeline_lib.runner import run_suite
from pipeline_lib.suites import Suite, load_suite, parse_suite, with_overrides

DRAWS = """
version = 1
name = "draws"
title = "Draws of digits"

[[problems]]
name = "tuned"
kind = "retrieval"
dataset = "digits"
splits = ["all"]
repetitions = 3
headline = "map"

[problems.options]
protocol = "tuned"
cutoffs = [5, 10, 20]
rows_per_class = 12
neighbors = 30

[problems.selection]
metric = "map"
scope = "split"

[[problems.methods]]
name = "RAN"
params = { local = true }
grid = { n_neighbors = [3, 5, 8], lam = [1.0] }

[[problems.methods]]
name = "Euclidean"

[[problems.methods]]
name = "ManifoldRanking"
params = { damping = 0.9, graph = "mutual" }
grid = { n_neighbors = [2, 4, 8] }
"""


def run(text_or_suite, home):
    suite = text_or_suite if isinstance(text_or_suite, Suite) else parse_suite(text_or_suite)
    run_suite(suite, home, workers=1, track=False)
    return load_run(resolve_home(home), "latest")


@pytest.fixture(scope="module")
def draws(tmp_path_factory):
    return run(DRAWS, tmp_path_factory.mktemp("draws"))


def test_images_are_named_by_their_place_in_the_dataset(draws):
    own = draws.per_item["tuned"].filter(pl.col("label") == "Euclidean")
    queries = {
        repetition: {int(name.removeprefix(f"{repetition}/")) for name in part["query"]}
        for (repetition,), part in own.group_by("repetition")
    }
    assert {len(images) for images in queries.values()} == {60}
    everything = set().union(*queries.values())
    assert max(everything) > 1000 and max(everything) < 1797
    assert queries[0] != queries[1]


def test_time_to_fit_holds_the_search_for_neighbours(draws):
    steps = sorted(draws.folder.parent.parent.glob("store/features/*/artifact.json"))
    seconds = [json.loads(path.read_text())["sidecar"]["seconds"] for path in steps]
    assert len(seconds) == 6  # points and neighbours of three draws
    assert draws.results["fit_seconds"].min() >= sum(seconds) / 3


def test_intervals_hold_the_means_of_all_draws(draws):
    for row in draws.results.iter_rows(named=True):
        own = draws.per_item["tuned"].filter(pl.col("label") == row["label"])
        assert own["map"].mean() == pytest.approx(row["value"])
        assert row["low"] < row["value"] < row["high"]


def test_every_method_has_the_same_test_queries(draws):
    halves = {
        label: part.select("repetition", "query").sort("repetition", "query")
        for (label,), part in draws.per_item["tuned"].group_by("label")
    }
    assert halves["RAN"].equals(halves["Euclidean"])
    assert halves["RAN"].equals(halves["ManifoldRanking"])


def test_each_draw_chooses_by_its_own_validation_half(draws):
    trials = draws.trials.filter(pl.col("label") == "ManifoldRanking")
    for _, part in trials.group_by("repetition"):
        chosen = part.filter("selected")
        assert len(chosen) == 1
        assert chosen["vali_map"][0] == part["vali_map"].max()


def test_unreached_points_are_counted_a_query(draws):
    own = draws.per_item["tuned"]
    assert own.filter(pl.col("label") == "ManifoldRanking")["unreached"].max() > 0
    assert own.filter(pl.col("label") == "Euclidean")["unreached"].is_null().all()
    page = render(draws)
    assert "<h3>Unreached points</h3>" in page
    assert "3 draws are too few for this test" in page
    assert "<h3>Number of neighbours</h3>" in page


def test_draws_are_the_items_of_the_paired_tests(draws):
    view = problem_view(draws, "tuned")
    tests = report.paired_table(view, baseline="RAN", per_draw=True)
    assert tests["n_items"].to_list() == [3, 3]
    by_draw = (
        draws.per_item["tuned"]
        .group_by("label", "repetition")
        .agg(pl.col("map").mean())
        .group_by("label")
        .agg(pl.col("map").mean())
    )
    means = dict(by_draw.iter_rows())
    euclid = tests.filter(pl.col("method") == "Euclidean")
    assert euclid["effect"][0] == pytest.approx(means["Euclidean"] - means["RAN"])


def test_synthetic_suite_keeps_pictures_and_judges_them(tmp_path):
    suite = with_overrides(load_suite("retrieval-synthetic"), only=["Euclidean", "ManifoldRanking"])
    record = run(suite, tmp_path)
    moons = record.pictures["two-moons"]
    assert len(moons) == 2 * 2 * 200  # methods, queries, points
    one = moons.filter((pl.col("label") == "ManifoldRanking") & (pl.col("query") == 150))
    assert one.sort("place")["image"][0] == 150
    ranked = one.filter(pl.col("place") > 0).sort("place")["score"].to_numpy()
    assert (np.diff(ranked) <= 0).all()
    page = render(record)
    assert "every point of its own shape comes before every other with ManifoldRanking" in page
    assert "behind another with Euclidean (" in page
    assert page.count("<h3>Scores from single queries</h3>") == 2


def test_pictures_need_the_plane(tmp_path):
    text = DRAWS.replace("neighbors = 30", "pictures = [0]")
    record = run(with_overrides(parse_suite(text), only=["Euclidean"]), tmp_path)
    assert record.status == "failed"
    errors = (record.folder / "errors.log").read_text()
    assert "64 features; expected 2 for a picture" in errors


def approximate(draws_text=DRAWS):
    return draws_text.replace("neighbors = 30", 'neighbors = 30\nsearch = "approximate"')


def test_approximate_search_reports_its_recall(tmp_path):
    pytest.importorskip("faiss", reason="needs the extra ann")
    record = run(approximate(), tmp_path)
    assert record.status == "finished"
    recall = record.results["neighbor_recall"]
    assert recall.is_not_null().all() and 0.9 < recall.min() <= 1.0
    assert "approximate search, which finds" in render(record)


def test_methods_that_need_exact_neighbours_say_so(tmp_path):
    pytest.importorskip("faiss", reason="needs the extra ann")
    text = approximate().replace("params = { local = true }", "")
    record = run(text, tmp_path)
    failed = record.trials.filter(pl.col("error").is_not_null())
    assert set(failed["label"]) == {"RAN"}
    assert "approximate" in failed["error"][0]


def test_without_the_extra_the_rows_fail_with_the_remedy(tmp_path, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "faiss", None)
    record = run(approximate(), tmp_path)
    assert record.status == "failed"
    assert "extra 'ann'" in (record.folder / "errors.log").read_text()


def comparisons(rows):
    return pl.DataFrame(
        rows, schema=["method", "mean_a", "effect", "p_randomisation_holm"], orient="row"
    )


@pytest.mark.parametrize(
    ("rows", "word"),
    [
        ([("A", 0.4, -0.1, 0.01), ("B", 0.3, -0.2, 0.001)], "<strong>holds</strong>"),
        ([("A", 0.4, -0.1, 0.2), ("B", 0.3, -0.2, 0.001)], "though it comes first"),
        ([("A", 0.6, 0.1, 0.2), ("B", 0.3, -0.2, 0.001)], "<strong>not confirmed</strong>"),
        ([("A", 0.6, 0.1, 0.01), ("B", 0.3, -0.2, 0.001)], "<strong>not hold</strong>"),
    ],
)
def test_judgement(rows, word):
    assert word in report._judgement(comparisons(rows))


def test_placed_names_every_row_once():
    rows = [("A", 0.6, 0.1, 0.01), ("B", 0.5, 0.0, 1.0), ("C", 0.3, -0.2, 0.001)]
    text = report._placed(comparisons(rows))
    assert text == "better: A (60.00); not to be told apart: B (50.00); worse: C (30.00)"


@pytest.mark.parametrize("option", ['search = "fast"', "pictures = [-1]", "queries = 1"])
def test_options_are_checked(option):
    with pytest.raises(InputError):
        parse_suite(DRAWS.replace("neighbors = 30", option))
