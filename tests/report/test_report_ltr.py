"""The learning-to-rank report: curves against m, and verdicts on the paper's claims."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl
import pytest

from pipeline_lib.report.ltr import sections
from pipeline_lib.report.ltr_claims import claims_section
from pipeline_lib.report.ltr_curves import curves, curves_section
from pipeline_lib.report.published import published
from pipeline_lib.report.sections import ProblemView
from pipeline_lib.suites import MethodEntry, Problem

METRICS = ("ndcg_at_1", "ndcg_at_3", "ndcg_at_5", "ndcg_at_10", "mean_ndcg", "map")
SIZES = (10, 20, 50, 100)


def view(
    values: Mapping[str, tuple[str, dict[str, Any], float]],
    *,
    dataset: str = "mq2007",
    headline: str = "map",
    seconds: Mapping[str, float] | None = None,
    errors: Mapping[str, float] | None = None,
) -> ProblemView:
    """A problem whose rows have one value in every metric: label -> (method, params, value)."""
    rows, items = [], []
    for label, (method, params, value) in values.items():
        rows.append(
            {
                "problem": dataset,
                "method": method,
                "label": label,
                "definition": "letor4",
                "splits": 1,
                "repetitions": 2,
                "params": json.dumps(params),
                "fit_seconds": (seconds or {}).get(label, 1.0),
                "predict_seconds": 0.1,
                "headline": headline,
                "value": value,
                "low": value - 0.01,
                "high": value + 0.01,
                "std": None,
                **dict.fromkeys(METRICS, value),
                "pairwise_accuracy": value,
                "kernel_error": (errors or {}).get(label),
                "map_dimension": float(params.get("n_components", 0)) or None,
            }
        )
        for repetition in (0, 1):
            shift = np.random.default_rng(repetition).normal(0, 0.01, 20)
            items += [
                {"label": label, "definition": "letor4", "split": "fold1", "repetition": repetition}
                | {"qid": str(q), **dict.fromkeys(METRICS, value + shift[q])}
                for q in range(20)
            ]
    problem = Problem(
        kind="ltr",
        dataset=dataset,
        splits=["fold1"],
        headline=headline,
        published="letor-mq2007-figure2",
        methods=[MethodEntry(name=m, label=label) for label, (m, _, _) in values.items()],
    )
    return ProblemView(
        problem=problem,
        results=pl.DataFrame(rows),
        trials=pl.DataFrame({"label": [], "params": []}),
        history=pl.DataFrame(),
        per_item=pl.DataFrame(items),
        published=published("letor-mq2007-figure2"),
    )


def against_m(at_small: float, at_large: float, **changes: Any) -> ProblemView:
    """Both approximations rising from one value to another, linear RankSVM at .45."""
    rows: dict[str, tuple[str, dict[str, Any], float]] = {"RankSVM": ("RankSVM", {"C": 1.0}, 0.45)}
    errors = {}
    for method, ahead in (("RankNystroem", 0.001), ("RankRandomFourier", 0.0)):
        for i, m in enumerate(SIZES):
            label = f"{method}, m = {m}"
            value = at_small + (at_large - at_small) * i / 3 + ahead * (3 - i)
            rows[label] = (method, {"C": 0.1, "gamma": 0.5, "n_components": m}, value)
            errors[label] = m**-0.5 if method == "RankRandomFourier" else 0.1 * m**-2.0
    return view(rows, errors=errors, **changes)


def test_rows_of_one_setting_form_a_curve_in_the_order_of_m() -> None:
    shown = against_m(0.40, 0.47)
    nystroem, fourier = curves(shown)
    assert (nystroem.method, fourier.method) == ("RankNystroem", "RankRandomFourier")
    assert tuple(nystroem.m) == SIZES
    assert nystroem.values("map") == pytest.approx(
        [0.403, 0.402 + 0.07 / 3, 0.401 + 0.14 / 3, 0.47]
    )


def test_few_or_different_settings_form_none() -> None:
    rows = {f"N{m}": ("RankNystroem", {"gamma": 1.0 / m, "n_components": m}, 0.4) for m in SIZES}
    assert curves(view(rows)) == []
    assert curves_section(view(rows)) == []


def test_published_curves_are_drawn_for_their_dataset_only_and_always_tabled() -> None:
    (own,) = curves_section(against_m(0.40, 0.47))
    (other,) = curves_section(against_m(0.40, 0.47, dataset="mq2008"))
    assert "RankNystroem, published" in own.body
    assert "RankNystroem, published" not in other.body
    for section in (own, other):
        assert "0.4785" in section.body  # MeanNDCG of the Nystroem method at m = 10
        assert "linear RankSVM 0.4500, published 0.4655" in section.body


@pytest.mark.parametrize(
    ("small", "large", "verdict"), [(0.40, 0.47, "Here as well"), (0.40, 0.44, "Not here")]
)
def test_the_verdict_on_growing_m_follows_the_numbers(
    small: float, large: float, verdict: str
) -> None:
    (section,) = claims_section(against_m(small, large))
    about_linear, about_each_other, about_error, about_rate = section.body.split("</p>")[:4]
    assert verdict in about_linear and "linear 0.4500" in about_linear
    assert "Here as well" in about_each_other
    assert "4 of 4 values of m" in about_error
    assert "m^-0.50" in about_rate and "m^-2.00" in about_rate and "Here as well" in about_rate


@pytest.mark.parametrize("exact", [0.44, 0.48])
def test_the_verdict_on_the_exact_kernel_follows_the_numbers(exact: float) -> None:
    rows = {
        "RankSVM": ("RankSVM", {"C": 1.0}, 0.43),
        "RankSVM, hinge": ("RankSVM", {"C": 1.0, "loss": "hinge"}, 0.42),
        "N": ("RankNystroem", {"n_components": 500}, 0.46),
        "F": ("RankRandomFourier", {"n_components": 500}, 0.47),
        "KernelRankSVM": ("KernelRankSVM", {}, exact),
    }
    shown = view(rows, headline="mean_ndcg", seconds={"KernelRankSVM": 30.0})
    (section,) = claims_section(shown)
    linear, approximations, fourier, squared = section.body.split("</p>")[:4]
    assert "Here as well" in linear and "in 30 s" in linear
    assert ("Here as well" if exact < 0.46 else "Not here") in approximations
    assert "Here as well" in fourier and "Here as well" in squared


def test_the_bag_s_size_stands_beside_the_paper_s() -> None:
    rows = {
        "RankSVM": ("RankSVM", {"C": 1.0}, 0.43),
        "BL-MART": ("BL-MART", {"n_models": 30}, 0.44),
    }
    made = {section.title: section for section in sections(view(rows))}
    note = made["Test results, letor4 definitions"].note
    assert "30 models here" in note and "10,000" in note
