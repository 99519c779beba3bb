"""What a suite leaves out of a ranker with a feature map."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline_lib import registry
from pipeline_lib.ltr.protocol import LearningToRank
from pipeline_lib.runner import run_suite
from pipeline_lib.specs import PathSpec
from pipeline_lib.suites import parse_suite

SUITE = """
version = 1
name = "left-out"
title = "Left out"

[[problems]]
name = "search"
kind = "ltr"
dataset = "digits"
splits = ["ltr"]
headline = "map"

[[problems.methods]]
name = "RankRandomFourier"
params = { gamma = 0.01 }

[[problems.methods]]
name = "ListNet-Nystroem"
params = { gamma = 0.01, n_components = 50 }

[[problems.methods]]
name = "RankSVM-AdditiveChi2"
"""


@pytest.mark.parametrize("name", ["RankNystroem", "RankRandomFourier"])
def test_map_parameters_default_to_the_estimator_s(name: str) -> None:
    spec = PathSpec(
        kind="ltr", dataset="digits", split="ltr", method=name, options={"normalize": "none"}
    )
    (step,) = LearningToRank().features(spec)
    declared = registry.method(name, "ltr").parameters()
    assert step.params["params"]["n_components"] == declared["n_components"].default == 500
    assert step.params["params"]["kernel"] == "rbf"


def test_rankers_with_maps_run_in_the_pipeline_and_report_the_kernel_s_error(
    tmp_path: Path,
) -> None:
    results = run_suite(parse_suite(SUITE), home=tmp_path, track=False)
    own = results.filter(results["definition"] == "letor4")
    assert own["value"].min() > 0.5  # type: ignore[operator]
    assert own["map_dimension"].to_list() == [500.0, 50.0, 5 * 40.0]
    assert (own["kernel_error"] > 0).all() and (own["kernel_error"] < 0.2).all()
