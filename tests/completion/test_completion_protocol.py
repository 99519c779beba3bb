"""Completion problems in the pipeline: tasks, visual input, sweeps, and their report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from pipeline_lib.completion.observation import draw, observe
from pipeline_lib.datasets.container import Dataset
from pipeline_lib.errors import InputError
from pipeline_lib.execution import thread_executor
from pipeline_lib.home import resolve_home
from pipeline_lib.report.page import render
from pipeline_lib.results import RunRecord
from pipeline_lib.runner import Run
from pipeline_lib.suites import parse_suite

HEAD = """
version = 1
name = "small"
title = "Small"
"""

PROBLEM = """
[[problems]]
name = "{name}"
kind = "completion"
dataset = "lowrank-tags"
splits = ["all"]
headline = "{headline}"

[problems.options]
{options}

[problems.selection]
metric = "{metric}"
scope = "split"

{methods}
"""


def problem(name: str, options: str, methods: str, headline: str = "ap_at_1") -> str:
    metric = "log_likelihood" if headline == "overlap" else headline
    return PROBLEM.format(
        name=name, headline=headline, options=options, methods=methods, metric=metric
    )


def method(name: str, **more: str) -> str:
    lines = [f"{key} = {value}" for key, value in more.items()]
    return "\n".join(["[[problems.methods]]", f'name = "{name}"', *lines, ""])


def run(text: str, folder: Path) -> RunRecord:
    home = resolve_home(folder / "home")
    with thread_executor(2) as executor:
        return Run(parse_suite(HEAD + text), home, executor, workers=2, track=False).execute()


def values(record: RunRecord, name: str, label: str) -> np.ndarray:
    frame = record.per_item[name].filter(pl.col("label") == label).sort("image")
    return frame[next(c for c in ("ap_at_1", "overlap") if c in frame.columns)].to_numpy()


def test_visual_methods_get_features_or_the_graph(tmp_path: Path) -> None:
    settings = "lam = 2.0, tol = 1e-6, alpha = 20.0"
    methods = (
        method("TCMR", params=f"{{ {settings} }}")
        + method("TCMR", label='"own graph"', params=f"{{ {settings}, n_neighbors = 7 }}")
        + method("TCMR", label='"other graph"', params=f"{{ {settings}, n_neighbors = 20 }}")
        + method("TCMR0", params="{ lam = 2.0, tol = 1e-6 }")
        + method("TCMR-lr", params="{ lam = 2.0, tol = 1e-6 }", grid="{ delta = [0.3, 0.7] }")
        + method("vKNN", params="{ n_neighbors = 20 }")
        + method("Frequency")
    )
    options = "n_observed = 3\nmax_images = 200\ngraph_neighbors = 7\nvalidated_folds = 1"
    record = run(problem("visual", options, methods), tmp_path)
    assert record.status == "finished"
    assert len(values(record, "visual", "TCMR")) == 200
    # The problem's graph and one that a row asks for are the same where their neighbours are.
    assert np.array_equal(values(record, "visual", "TCMR"), values(record, "visual", "own graph"))
    for other in ("other graph", "TCMR0"):
        assert not np.array_equal(values(record, "visual", "TCMR"), values(record, "visual", other))
    page = render(record)
    assert "use the tags alone as well" in page and "TCMR with its graph term" in page


def test_methods_without_their_features_fail_alone(tmp_path: Path, real_data: Path) -> None:
    text = problem("plain", "n_observed = 2", method("vKNN") + method("Frequency"))
    record = run(text.replace("lowrank-tags", "corel5k"), tmp_path)
    assert record.status == "failed"
    errors = record.trials.filter(pl.col("error").is_not_null())
    assert errors["label"].to_list() == ["vKNN"]
    assert "features" in errors["error"][0]
    assert record.results["label"].to_list() == ["Frequency"]


def test_sweeps_and_recovery_are_drawn_together(tmp_path: Path) -> None:
    sweep = method("Frequency") + method("CoOccurrence")
    text = "".join(
        problem(f"noise-{x}", f'n_observed = 3\nnoise = {x}\nsweep = "noise"', sweep)
        for x in (0.0, 0.5)
    )
    low_rank = {4: "params = { lam = 40.0 }", 40: "grid = { lam = [10.0, 30.0] }"}
    text += "".join(
        problem(
            f"draws-{k}",
            f'task = "recovery"\nn_observed = {k}\nsweep = "rate"',
            method("TCMR-simplex") + low_rank[k] + "\n\n" + method("MaximumLikelihood"),
            headline="overlap",
        )
        for k in (4, 40)
    )
    record = run(text, tmp_path)
    assert record.status == "finished"
    clean, noisy = (values(record, f"noise-{x}", "CoOccurrence").mean() for x in (0.0, 0.5))
    assert noisy < clean
    rates = record.results.filter(pl.col("label") == "TCMR-simplex")["rate"].drop_nulls()
    assert rates.to_list() == pytest.approx([5 * np.log(560) / 4, 5 * np.log(560) / 40])
    for k in (4, 40):
        low, alone = (
            values(record, f"draws-{k}", label).mean()
            for label in ("TCMR-simplex", "MaximumLikelihood")
        )
        assert low > alone
    page = render(record)
    assert "The problems together" in page
    assert "AP@1 against share of wrong tags" in page
    assert "in 2 of 2 problems" in page


def test_recovery_refuses_methods_without_counts(tmp_path: Path) -> None:
    options = 'task = "recovery"\nn_observed = 30'
    record = run(problem("draws", options, method("EASE"), headline="overlap"), tmp_path)
    assert record.status == "failed"


TAGGED = Dataset(
    "collection",
    "tags",
    Y=np.array([[1, 1, 1, 0], [1, 1, 0, 1], [0, 1, 1, 1], [1, 0, 0, 0]], dtype=np.uint8),
    tags=("sky", "sea", "dog", "cat"),
    ids=np.array(["a", "b", "c", "d"]),
)
PARAMS: dict[str, Any] = {
    "task": "refinement",
    "n_observed": 2,
    "min_tags_per_image": 2,
    "min_images_per_tag": 1,
    "max_images": None,
    "noise": 0.0,
    "seed": 5,
}


def labelled(**changes: Any) -> Dataset:
    fields: dict[str, Any] = {
        "Y": np.array([[1, 0, 1], [0, 1, 0], [1, 1, 1], [1, 1, 1]], dtype=np.uint8),
        "tags": ("cat", "tree", "sky"),
        "ids": TAGGED.ids,
        **changes,
    }
    return Dataset("collection", "labels", **fields)


def test_refinement_looks_up_labels_by_name() -> None:
    seen = observe(PARAMS, {"all": TAGGED, "labels": labelled()}, None)
    assert seen["images"].tolist() == [0, 1, 2]
    # sky and cat are labels as well; sea and dog are not.
    assert seen["truth"].tolist() == [[1, 0, 0, 1], [0, 0, 0, 0], [1, 0, 0, 1]]
    assert (seen["observed"].sum(axis=1) == 2).all()


def test_ranking_keeps_the_tags_as_truth_and_spoils_every_image() -> None:
    params = {**PARAMS, "task": "ranking", "noise": 0.5}
    seen = observe(params, {"all": TAGGED}, None)
    assert np.array_equal(seen["truth"], TAGGED.tag_matrix()[:3])
    assert ((seen["observed"] > seen["truth"]).sum(axis=1) == 1).all()


@pytest.mark.parametrize(
    "labels",
    [
        labelled(ids=np.array(["a", "b", "d", "c"])),
        labelled(Y=np.ones((3, 3), dtype=np.uint8), ids=None),
        labelled(tags=("x", "y", "z")),
    ],
    ids=["other order", "fewer images", "no common name"],
)
def test_labels_of_other_images_are_refused(labels: Dataset) -> None:
    with pytest.raises(InputError):
        observe(PARAMS, {"all": TAGGED, "labels": labels}, None)


def test_a_bound_on_images_draws_a_part_of_them() -> None:
    params = {**PARAMS, "task": "completion", "max_images": 2}
    drawn = {
        tuple(observe({**params, "seed": s}, {"all": TAGGED}, None)["images"]) for s in range(9)
    }
    assert all(len(images) == 2 for images in drawn)
    assert len(drawn) > 1


def test_recovery_needs_known_probabilities() -> None:
    with pytest.raises(InputError, match="known probabilities"):
        draw({"n_observed": 3, "seed": 0}, {"all": TAGGED}, None)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ('task = "refinement"', "need each other"),
        ('labels = "all"', "need each other"),
        ('task = "recovery"\nnoise = 0.5', "recovery has no noise"),
        ('task = "reranking"', "task"),
        ("nois = 0.5", "noise"),
    ],
)
def test_options_are_checked(options: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_suite(HEAD + problem("x", options, method("Frequency")))
