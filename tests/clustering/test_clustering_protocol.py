"""The protocol of clustering: subsets of classes, carried settings, what the report shows of them."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import polars as pl
import pytest

from pipeline_lib.clustering.protocol import Clustering, class_count, make_images
from pipeline_lib.datasets.acquire import load
from pipeline_lib.errors import InputError
from pipeline_lib.home import resolve_home
from pipeline_lib.report.page import render
from pipeline_lib.report.published import published
from pipeline_lib.results import load_run
from pipeline_lib.runner import run_suite
from pipeline_lib.suites import load_suite, parse_suite

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

_SUITE = """
version = 1
name = "groups"
title = "Groups of digits"

[[problems]]
name = "tuning"
kind = "clustering"
dataset = "digits"
splits = ["3 classes"]
headline = "nmi"
options = { components = 16, rows_per_class = 12, restarts = 3 }
selection = { metric = "nmi" }

[[problems.methods]]
name = "GraphSC"
params = { n_atoms = 12, max_iter = 2, beta = 0.05 }
grid = { lam = [0.1, 1.0, 10.0, 100.0] }

[[problems.methods]]
name = "PCA"

[[problems]]
name = "table"
kind = "clustering"
dataset = "digits"
splits = ["2 classes", "4 classes"]
repetitions = 3
headline = "nmi"
published = "graphscan-coil20"
options = { components = 16, rows_per_class = 12, restarts = 3 }

[[problems.methods]]
name = "GraphSC"
label = "GraphSC, carried"
winners_of = "tuning/GraphSC"

[[problems.methods]]
name = "GraphSCAN"
params = { n_atoms = 12, max_iter = 2 }

[[problems.methods]]
name = "KMeans"
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Any:
    home = tmp_path_factory.mktemp("home")
    run_suite(parse_suite(_SUITE), home, workers=1, track=False)
    return load_run(resolve_home(home), "latest")


def test_every_number_of_classes_has_its_own_subsets(run: Any) -> None:
    items = run.per_item["table"]
    assert len(items) == 3 * 2 * 3
    assert set(items["split"]) == {"2 classes", "4 classes"}
    row = run.results.filter(pl.col("label") == "KMeans")
    assert row["items"][0] == 6
    own = items.filter(pl.col("label") == "KMeans")
    assert row["nmi"][0] == pytest.approx(own["nmi"].mean())
    assert own["nmi"].n_unique() > 1


def test_all_methods_share_the_subsets(run: Any) -> None:
    trials = run.trials.filter(pl.col("problem") == "table")
    for label in ("GraphSC, carried", "GraphSCAN", "KMeans"):
        assert len(trials.filter(pl.col("label") == label)) == 6


def test_carried_settings_are_those_chosen_elsewhere(run: Any) -> None:
    tuned = run.results.filter((pl.col("problem") == "tuning") & (pl.col("label") == "GraphSC"))
    carried = run.results.filter(pl.col("label") == "GraphSC, carried")
    chosen = json.loads(tuned["params"][0])
    assert json.loads(carried["params"][0]) == chosen
    trials = run.trials.filter((pl.col("problem") == "tuning") & (pl.col("label") == "GraphSC"))
    best = trials.sort("vali_nmi", descending=True, maintain_order=True)
    assert json.loads(best["params"][0])["lam"] == chosen["lam"]


def test_report_shows_classes_sweep_and_who_saw_labels(run: Any) -> None:
    page = render(run)
    for title in ("ACC by number of classes", "NMI by number of classes", "NMI against lam"):
        assert title in page
    assert "as the papers do, so reach rather than a fair choice: GraphSC." in page
    assert "At settings chosen in another problem or row: GraphSC, carried (tuning)." in page
    assert "differ from the printed ones by more than 5 points" in page
    assert "At settings fixed beforehand: GraphSCAN." in page
    assert "88.07" in page and "96.39" in page  # the printed average and the row of two classes
    assert "3 chosen trials stopped" not in page and "6 chosen trials stopped" in page


def test_images_of_a_subset() -> None:
    data = {"all": load("digits", "all")}
    params = {"classes": 3, "rows_per_class": 10, "components": 8, "unit_norm": "after", "seed": 5}
    images = make_images(params, data, None)
    y = data["all"].y
    assert y is not None
    assert images["X"].shape == (30, 8)
    np.testing.assert_allclose(np.linalg.norm(images["X"], axis=1), 1.0)
    np.testing.assert_array_equal(y[images["rows"]], images["y"])
    assert (np.unique(images["y"], return_counts=True)[1] == 10).all()
    again = make_images(params, data, None)
    np.testing.assert_array_equal(again["rows"], images["rows"])
    other = make_images({**params, "seed": 6}, data, None)
    assert not np.array_equal(other["rows"], images["rows"])


def test_splits() -> None:
    assert class_count("12 classes") == 12
    assert class_count("all") is None and class_count("0 classes") is None
    protocol = Clustering()
    protocol.check_data("digits", ["all", "3 classes"])
    with pytest.raises(InputError, match="nothing to tell apart"):
        protocol.check_data("digits", ["1 classes"])
    with pytest.raises(InputError, match="part of digits"):
        protocol.check_data("digits", ["al"])
    with pytest.raises(InputError, match="no class labels"):
        protocol.check_data("corel5k", ["3 classes"])


@pytest.mark.parametrize("name", ["graphscan-coil20", "graphscan-pie"])
def test_printed_averages_are_those_of_the_printed_rows(name: str) -> None:
    table = published(name)
    for (_, _), part in table.group_by("method", "metric"):
        by_class = part.filter(pl.col("protocol") != "average over C")["value"]
        average = part.filter(pl.col("protocol") == "average over C")["value"][0]
        assert by_class.mean() == pytest.approx(average, abs=0.006)


@pytest.mark.parametrize("name", ["coil20", "pie"])
def test_tables_cover_what_the_paper_prints(name: str) -> None:
    suite = load_suite(f"clustering-{name}")
    table = next(problem for problem in suite.problems if problem.title == "table")
    assert table.published is not None
    printed = set(published(table.published)["protocol"]) - {"average over C"}
    assert set(table.splits) == printed
    assert set(published(table.published)["method"]) <= {entry.row for entry in table.methods}
    assert table.repetitions == 20
