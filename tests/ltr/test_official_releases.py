"""The suites of the paper's tables and figures on generated files laid out like the official releases."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from pipeline_lib.datasets.generators import letor_like
from pipeline_lib.errors import InputError
from pipeline_lib.features.query_normalization import query_minmax
from pipeline_lib.home import resolve_home
from pipeline_lib.report.page import render
from pipeline_lib.results import load_run
from pipeline_lib.runner import run_suite
from pipeline_lib.suites import Suite, load_suite

LETOR3 = ("trainingset.txt", "validationset.txt", "testset.txt")
LETOR4 = ("train.txt", "vali.txt", "test.txt")
# Folder, file names, features, and shares of the labels of each release.
RELEASES: dict[str, tuple[str, tuple[str, ...], int, tuple[float, ...]]] = {
    "ohsumed": ("OHSUMED/QueryLevelNorm", LETOR3, 45, (0.7, 0.17, 0.13)),
    "td2004": ("TD2004/QueryLevelNorm", LETOR3, 44, (0.9, 0.1)),
    "mq2007": ("MQ2007", LETOR4, 46, (0.75, 0.2, 0.05)),
}
SUITES = {
    "letor-ohsumed": "ohsumed",
    "letor-td2004": "td2004",
    "letor-mq2007": "mq2007",
    "letor-mq2007-table2": "mq2007",
    "letor-mq2007-figure2": "mq2007",
}


def write_release(root: Path, dataset: str) -> None:
    """Five folds of a few queries each; OHSUMED with its raw files beside the normalised ones."""
    folder, names, width, shares = RELEASES[dataset]
    data = letor_like(15, (8, 14), width, seed=1, label_shares=shares)
    assert data.X is not None and data.y is not None and data.qid is not None
    raw = as_extracted(data.X, data.qid)
    normalised = query_minmax(np.round(raw, 6), data.qid)
    write_folds(root / folder, normalised, data.y, data.qid, names)
    if dataset == "ohsumed":
        write_folds(root / "OHSUMED" / "Feature-min", raw, data.y, data.qid, names)


def as_extracted(X: Any, qid: Any) -> Any:
    """Features as before normalisation: each has its own range, which moves from query to query."""
    rng = np.random.default_rng(2)
    low = rng.uniform(-109.0, 50.0, X.shape[1])
    high = rng.uniform(low + 1.0, 239.0)
    low[0], high[1] = -109.0, 239.0
    shift = rng.uniform(0.0, 0.4, (int(qid.max()) + 1, 2, X.shape[1]))
    shift[0] = 0.0  # the whole range is reached
    start = low + shift[qid, 0] * (high - low)
    end = high - shift[qid, 1] * (high - low)
    return start + X * (end - start)


def write_folds(folder: Path, X: Any, y: Any, qid: Any, names: tuple[str, ...]) -> None:
    parts = np.array_split(np.unique(qid), 5)
    for fold in range(5):
        target = folder / f"Fold{fold + 1}"
        target.mkdir(parents=True)
        turned = [parts[(fold + k) % 5] for k in range(5)]
        for name, queries in zip(names, (np.concatenate(turned[:3]), turned[3], turned[4])):
            lines = []
            for i in np.flatnonzero(np.isin(qid, queries)):
                features = " ".join(f"{j}:{value:.6f}" for j, value in enumerate(X[i], start=1))
                lines.append(f"{y[i]} qid:{qid[i] + 1} {features} #docid = {244_000 + i}\r\n")
            (target / name).write_text("".join(lines), newline="")


def reduced(suite: Suite, **changes: Any) -> Suite:
    """The suite with two values of each grid, small maps and few trees: the same rows in seconds."""
    small = {"n_models": 2, "n_rounds": 5}
    body = suite.model_dump()
    for problem in body["problems"]:
        problem |= changes
        for entry in problem["methods"]:
            entry["grid"] = {
                name: [5, 10] if name in ("n_estimators", "n_rounds") else values[4:6] or values[:2]
                for name, values in entry["grid"].items()
            }
            entry["params"] |= {n: v for n, v in small.items() if n in entry["params"]}
            entry["repetitions"] = min(2, entry["repetitions"] or 1)
    return Suite.model_validate(body)


@pytest.mark.parametrize("name", SUITES)
def test_missing_data_are_named_at_once_with_the_import_command(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AFFINITY_DATA", str(tmp_path))
    with pytest.raises(InputError, match=f"affinity data import {SUITES[name]}") as caught:
        run_suite(name, home=tmp_path / "home")
    assert caught.value.exit_status == 2
    assert not (tmp_path / "home" / "runs").exists()


@pytest.mark.slow
@pytest.mark.parametrize("name", SUITES)
def test_every_row_of_a_table_or_figure_is_completed(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AFFINITY_DATA", str(tmp_path))
    write_release(tmp_path, SUITES[name])
    suite = reduced(load_suite(name))
    # The generated release has fewer queries than MQ2007's declaration counts.
    results = run_suite(suite, home=tmp_path / "home", workers=2, track=False, allow_mismatch=True)
    (problem,) = suite.problems
    assert set(results["label"]) == {entry.row for entry in problem.methods}
    assert results["value"].is_not_null().all()
    assert set(results["splits"]) == {len(problem.splits)}
    page = render(load_run(resolve_home(tmp_path / "home"), "latest"))
    if problem.published is not None:
        assert "published" in page
    if name.endswith("figure2"):
        assert "Kernel approximations against the number of features m" in page
        assert results["kernel_error"].is_not_null().sum() == 2 * 20
    if name == "letor-mq2007-table2":
        assert "take less time than the exact kernel" in page
    if name in ("letor-ohsumed", "letor-td2004", "letor-mq2007"):
        assert "10,000" in page and "best value of three or more of six metrics" in page


def test_raw_ohsumed_normalised_per_query_is_the_normalised_release(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AFFINITY_DATA", str(tmp_path))
    write_release(tmp_path, "ohsumed")
    suite = reduced(load_suite("letor-ohsumed"), splits=["fold4"])
    body = suite.model_dump()
    (problem,) = body["problems"]
    problem["methods"] = [
        entry
        for entry in problem["methods"]
        if entry["name"] in ("RankSVM", "RankNystroem", "ListNet", "RankBoost")
        and "authors" not in entry["label"]
    ]
    normalised = run_suite(Suite.model_validate(body), home=tmp_path / "home", track=False)
    problem["splits"] = ["min/fold4"]
    problem["options"]["normalize"] = "query-minmax"
    raw = run_suite(Suite.model_validate(body), home=tmp_path / "home", track=False)
    means = ["ndcg_at_1", "ndcg_at_10", "mean_ndcg", "map"]
    labels = ["RankSVM", "ListNet", "RankBoost"]  # draws of landmarks differ with the split's name
    chosen = pl.col("label").is_in(labels)
    np.testing.assert_allclose(
        raw.filter(chosen).select(means).to_numpy(),
        normalised.filter(chosen).select(means).to_numpy(),
        atol=1e-9,
    )
    assert raw["value"].is_not_null().all()
    # Raw values are refused where normalised ones are declared, and not normalised without being asked.
    problem["options"]["normalize"] = "none"
    plain = run_suite(Suite.model_validate(body), home=tmp_path / "home", track=False)
    assert plain.filter(chosen)["map"].to_list() != raw.filter(chosen)["map"].to_list()


def test_raw_values_are_refused_as_normalised_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AFFINITY_DATA", str(tmp_path))
    write_release(tmp_path, "ohsumed")
    folder = tmp_path / "OHSUMED"
    (folder / "QueryLevelNorm").rename(folder / "aside")
    (folder / "Feature-min").rename(folder / "QueryLevelNorm")
    with pytest.raises(InputError, match=r"largest feature value: .* at most 1 declared"):
        run_suite(reduced(load_suite("letor-ohsumed")), home=tmp_path / "home", track=False)
