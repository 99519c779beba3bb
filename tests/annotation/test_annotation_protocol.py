"""Annotation in the pipeline: divisions, selection on training images only, suites on official layouts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from pipeline_lib.annotation.protocol import divide_images
from pipeline_lib.datasets.container import Dataset
from pipeline_lib.datasets.hvecs import write_vecs
from pipeline_lib.datasets.npz import ArrayTable, write_npz
from pipeline_lib.datasets.pictures import write_pgm
from pipeline_lib.errors import DataMissingError, InputError
from pipeline_lib.home import resolve_home
from pipeline_lib.report.page import problem_view, render
from pipeline_lib.results import load_run
from pipeline_lib.runner import run_suite
from pipeline_lib.suites import Suite, load_suite, parse_suite, suite_names, with_overrides

SMALL = {"n_samples": 40, "n_components": 5, "rank": [5], "gamma": [1.0, 2.0]}


def images(n: int, n_tags: int = 12, d: int = 12, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Counts of visual words, and tags that follow them."""
    rng = np.random.default_rng(seed)
    topics = rng.integers(4, size=n)
    X = rng.poisson(0.4 + 4.0 * (np.arange(d) % 4 == topics[:, None]))
    Y = (rng.random((n, n_tags)) < 0.1 + 0.6 * (np.arange(n_tags) % 4 == topics[:, None])).astype(
        int
    )
    Y[:, 0] |= Y.sum(axis=1) == 0
    return X, Y


def run(suite: Suite) -> tuple[pl.DataFrame, str]:
    """Results and report of a suite on data smaller than declared."""
    results = run_suite(suite, workers=1, allow_mismatch=True, track=False)
    return results, render(load_run(resolve_home(None), "latest"))


@pytest.fixture
def raw(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("AFFINITY_DATA", str(tmp_path))
    return tmp_path


def guillaumin(folder: Path, stem: str) -> None:
    """Annotations, dictionary, lists and dense-SIFT words as in Guillaumin's releases."""
    folder.mkdir()
    X, Y = images(150)
    for part, rows in (("train", slice(0, 120)), ("test", slice(120, 150))):
        write_vecs(folder / f"{stem}_{part}_annot.hvecs", Y[rows])
        write_vecs(folder / f"{stem}_{part}_DenseSift.hvecs", X[rows])
        names = [f"{i // 100:02d}/{i}" for i in range(150)][rows]
        (folder / f"{stem}_{part}_list.txt").write_text("\n".join(names) + "\n")
    (folder / f"{stem}_dictionary.txt").write_text("".join(f"word{j}\n" for j in range(12)))


@pytest.mark.parametrize(
    ("name", "folder", "stem"),
    [
        ("annotation-iaprtc12", "iaprtc12", "iaprtc12"),
        ("annotation-espgame", "espgame", "espgame"),
    ],
)
def test_suites_of_guillaumins_releases(name: str, folder: str, stem: str, raw: Path) -> None:
    guillaumin(raw / folder, stem)
    suite = with_overrides(
        load_suite(name), only=["RKML", "Euclid", "Pop"], settings={**SMALL, "repetitions": 2}
    )
    results, report = run(suite)
    best = dict(zip(results["label"], results["value"], strict=True))
    assert best["RKML"] > best["Pop"]
    assert results["repetitions"].to_list() == [2, 2, 2] and results["std"].null_count() == 0
    assert (results["fit_seconds"] > 0).all()
    for text in ("RKML, published", "90/10", "Verdict on RKML", "Example annotations", "word"):
        assert text in report


def test_the_official_division_and_pictures(raw: Path) -> None:
    guillaumin(raw / "iaprtc12", "iaprtc12")
    (raw / "iaprtc12" / "images" / "01").mkdir(parents=True)
    write_pgm(raw / "iaprtc12" / "images" / "01" / "120.pgm", np.full((9, 12), 77, dtype=np.uint8))
    body = load_suite("annotation-iaprtc12").model_dump()
    body["problems"][0] |= {"splits": ["official/densesift"], "repetitions": 1}
    suite = with_overrides(
        Suite.model_validate(body), only=["RKML", "Pop"], settings=SMALL | {"repetitions": 1}
    )
    results, report = run(suite)
    assert results["items"].to_list() == [30, 30]
    assert report.count("data:image/png;base64,") == 1
    assert "01/120" in report


def test_the_suite_of_flickr1m(raw: Path) -> None:
    folder = raw / "flickr1m"
    folder.mkdir()
    X, Y = images(300)
    table = ArrayTable(
        X=X.astype(np.float32),
        Y=Y.astype(np.uint8),
        y=None,
        tags=tuple(f"tag{j}" for j in range(12)),
        ids=None,
    )
    write_npz(folder / "flickr1m.npz", table)
    suite = with_overrides(
        load_suite("annotation-flickr1m"),
        only=["RKML", "RKMLH", "Pop"],
        settings={"n_samples": 40, "n_components": 5, "rank": 5, "test_share": 0.2},
    )
    results, report = run(suite)
    assert results["items"].to_list() == [60] * 3
    assert "LMNN, shared-tags, published" in report


@pytest.mark.parametrize("name", [n for n in suite_names() if n.startswith("annotation-")])
def test_suites_without_data_say_how_to_import_them(name: str, raw: Path) -> None:
    suite = load_suite(name)
    if suite.problems[0].dataset == "lowrank-tags":
        return  # generated
    with pytest.raises(DataMissingError, match="affinity data import"):
        run_suite(suite, track=False)


def test_tags_without_features_are_refused_with_the_split_to_name() -> None:
    text = SWEEP.replace("lowrank-tags", "iaprtc12").replace('"all"', '"official"')
    with pytest.raises(InputError, match=r"no features to learn from.*official/densehue"):
        parse_suite(text)


def test_folds_cover_the_training_images_once_and_scaling_is_by_row() -> None:
    X, Y = images(103)
    data = {"all": Dataset("d", "all", X=X.astype(float), Y=Y.astype(np.uint8))}
    params = {"scale": "unit", "folds": 5, "validation_share": 0.2, "test_share": 0.1, "seed": 3}
    made = divide_images(params, data, None)
    assert len(made["X_test"]) == 10 and len(made["X_train"]) == 93
    assert np.bincount(made["fold"]).tolist() == [19, 19, 19, 18, 18]
    np.testing.assert_allclose(np.linalg.norm(made["X_test"], axis=1), 1.0)
    np.testing.assert_array_equal(made["Y_test"], Y[made["test_rows"]])
    again = divide_images({**params, "seed": 4}, data, None)
    assert not np.array_equal(again["test_rows"], made["test_rows"])
    one = divide_images({**params, "folds": 0}, data, None)["fold"]
    assert (one == 0).sum() == 19 and (one == -1).sum() == 74


SWEEP = """
version = 1
name = "sweep"
title = "Sweep"

[[problems]]
kind = "annotation"
dataset = "lowrank-tags"
splits = ["all"]
headline = "ap_at_1"

[problems.options]
cutoffs = [1, 3]
folds = 3
test_share = 0.4
sweep = "rank"
measure = ["training", "landmarks", "population"]
sizes = [30, 120]

[[problems.methods]]
name = "RKML"
label = "r = 2"
params = { gamma = 0.1, n_components = 10, n_samples = 60, rank = 2, n_neighbors = 5 }

[[problems.methods]]
name = "RKML"
label = "r = 40"
params = { gamma = 0.1, n_components = 10, n_samples = 60, rank = 40, n_neighbors = 5 }
"""


def test_sweep_with_errors_of_the_similarity() -> None:
    results, report = run(parse_suite(SWEEP))
    small, large = results.iter_rows(named=True)
    # Rank trades bias for variance: training precision rises with it.
    assert large["train_ap_at_1"] > small["train_ap_at_1"]
    assert 0 < small["landmark_error"] < large["landmark_error"]
    for row in (small, large):
        assert row["population_error_at_120"] < row["population_error_at_30"]
    assert small["eigengap"] > large["eigengap"]
    for text in ("Against rank", "RKML, training", "Distance from the population"):
        assert text in report


def test_the_choice_does_not_see_the_test_images(raw: Path) -> None:
    choices = []
    for shuffled in (False, True):
        folder = raw / ("b" if shuffled else "a") / "iaprtc12"
        folder.parent.mkdir()
        guillaumin(folder, "iaprtc12")
        if shuffled:
            _, Y = images(30, seed=9)
            write_vecs(folder / "iaprtc12_test_annot.hvecs", Y)
        text = SWEEP.replace("lowrank-tags", "iaprtc12").replace('"all"', '"official/densesift"')
        text = text.partition("test_share")[0] + "\n[problems.selection]\nmetric = 'ap_at_1'\n"
        text += "[[problems.methods]]\nname = 'Euclid'\ngrid = { n_neighbors = [1, 5, 20, 80] }\n"
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("AFFINITY_DATA", str(folder.parent))
            results, _ = run(parse_suite(text))
        record = load_run(resolve_home(None), "latest")
        view = problem_view(record, "iaprtc12")
        choices.append((results["params"][0], view.trials["vali_ap_at_1"].to_list()))
    assert choices[0] == choices[1]
    assert len(set(choices[0][1])) > 1
