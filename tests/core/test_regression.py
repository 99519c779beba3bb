"""The regression check: a planted drop alarms, an equal run does not, over 20 seeds."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from pipeline_lib import regression
from pipeline_lib.errors import InputError
from pipeline_lib.home import Home
from pipeline_lib.metrics.resampling import bootstrap_interval
from pipeline_lib.results import RunRecord
from pipeline_lib.suites import MethodEntry, Problem, Suite

SUITE = Suite(
    name="small",
    title="Small",
    problems=[
        Problem(
            name="rank",
            kind="ltr",
            dataset="digits",
            splits=["ltr"],
            headline="map",
            methods=[MethodEntry(name="ranksvm", label=label) for label in ("a", "b", "c")],
        )
    ],
)


def make_run(
    values: dict[str, np.ndarray], *, run: str = "small-1", folder: Path = Path("none")
) -> RunRecord:
    """A run whose rows have these values over items, two repetitions of each."""
    frames, rows = [], []
    for label, own in values.items():
        for repetition in (0, 1):
            shift = 0.01 if repetition else -0.01
            frames.append(
                pl.DataFrame(
                    {
                        "label": label,
                        "definition": "default",
                        "split": "ltr",
                        "repetition": repetition,
                        "qid": [str(i) for i in range(len(own))],
                        "map": own + shift,
                    }
                )
            )
        low, high = bootstrap_interval(own, n_resamples=500)
        rows.append(
            {
                "problem": "rank",
                "label": label,
                "definition": "default",
                "headline": "map",
                "value": float(own.mean()),
                "low": low,
                "high": high,
            }
        )
    record = RunRecord(run, folder, SUITE, "finished", results=pl.DataFrame(rows))
    record.per_item = {"rank": pl.concat(frames)}
    record.manifest = {"suite": SUITE.model_dump(mode="json"), "started": f"2026-01-01 {run}"}
    return record


def draw(rng: np.random.Generator, items: int = 200) -> dict[str, np.ndarray]:
    return {label: rng.beta(4, 3, items) for label in "abc"}


@pytest.mark.parametrize("seed", range(20))
def test_planted_drop_alarms_and_equal_run_does_not(seed: int) -> None:
    rng = np.random.default_rng(seed)
    good = draw(rng)
    noise = {k: v + rng.normal(0, 0.03, len(v)) for k, v in good.items()}
    equal = regression.judge(make_run(noise), make_run(good), seed=seed)
    assert equal.status == "pass", equal.reasons
    assert regression.judge(make_run(good), make_run(good)).status == "pass"

    dropped = dict(noise, b=noise["b"] - 0.013)
    verdict = regression.judge(make_run(dropped), make_run(good), seed=seed)
    assert verdict.alarm
    assert [row.label for row in verdict.rows if row.alarm] == ["b"]
    assert "rank, b: map fell from" in verdict.reasons[0]
    # The drop lies inside the interval of the mean: only pairing over items can see it.
    (row,) = [row for row in verdict.rows if row.alarm]
    assert row.after is not None and row.low is not None and row.after > row.low


def test_certain_but_negligible_drop_is_silent() -> None:
    good = draw(np.random.default_rng(1))
    slightly = {k: v - 0.002 for k, v in good.items()}
    assert regression.judge(make_run(slightly), make_run(good)).status == "pass"
    assert regression.judge(make_run(slightly), make_run(good), margin=0.001).alarm


def test_improvement_is_silent() -> None:
    good = draw(np.random.default_rng(2))
    better = {k: v + 0.2 for k, v in good.items()}
    assert regression.judge(make_run(better), make_run(good), margin=0.0).status == "pass"


def test_few_items_fall_back_to_the_interval() -> None:
    good = {"a": np.array([0.80, 0.81, 0.79, 0.80])}
    verdict = regression.judge(make_run({"a": good["a"] - 0.2}), make_run(good))
    assert verdict.alarm and "below the interval" in verdict.reasons[0]
    assert verdict.rows[0].p is None
    inside = regression.judge(make_run({"a": good["a"] - 0.006}), make_run(good))
    assert inside.status == "pass"


def test_other_items_fall_back_to_the_interval() -> None:
    rng = np.random.default_rng(3)
    good, fewer = draw(rng), draw(rng, items=150)
    assert regression.judge(make_run(fewer), make_run(good)).status == "pass"
    worse = {k: v - 0.3 for k, v in fewer.items()}
    assert len(regression.judge(make_run(worse), make_run(good)).reasons) == 3


def test_no_interval_and_no_items_leave_the_margin() -> None:
    good, after = (make_run({"a": np.full(30, v)}) for v in (0.8, 0.7))
    good.results = good.results.with_columns(low=pl.lit(None, pl.Float64))
    good.per_item = {}
    assert "no interval" in regression.judge(after, good).reasons[0]


def test_gone_row_and_gone_value_alarm() -> None:
    good = draw(np.random.default_rng(4))
    current = make_run({k: v for k, v in good.items() if k != "c"})
    current.results = current.results.with_columns(
        value=pl.when(pl.col("label") == "a").then(None).otherwise("value")
    )
    reasons = regression.judge(current, make_run(good)).reasons
    assert reasons == ("rank, a: the value is gone", "rank, c: the row is gone")


def test_failed_run_alarms_even_without_a_good_one() -> None:
    record = make_run(draw(np.random.default_rng(5)))
    record.status = "failed"
    record.trials = pl.DataFrame({"label": ["a", "b"], "error": [None, "singular matrix"]})
    verdict = regression.judge(record, None)
    assert verdict.reasons == ("the run failed: 1 trials failed, first b: singular matrix",)
    assert regression.judge(record, None, accept=True).status == "accepted"


def test_empty_results_are_all_gone() -> None:
    record = make_run(draw(np.random.default_rng(5)))
    record.results, record.per_item = pl.DataFrame(), {}
    assert len(regression.judge(record, make_run(draw(np.random.default_rng(5)))).reasons) == 3


@pytest.mark.parametrize("options", [{"margin": -1.0}, {"margin": np.nan}, {"level": 0.0}])
def test_bad_options_are_refused(options: dict[str, float]) -> None:
    record = make_run(draw(np.random.default_rng(6)))
    with pytest.raises(InputError):
        regression.judge(record, record, **options)


def stored(home: Home, run: str, *, suite: Suite = SUITE) -> RunRecord:
    record = make_run(draw(np.random.default_rng(7)), run=run, folder=home.runs / run)
    record.suite = suite
    record.manifest["suite"] = suite.model_dump(mode="json")
    record.save_tables()
    record.save_manifest()
    return record


def test_last_good_run(tmp_path: Path) -> None:
    home = Home(tmp_path)
    first = stored(home, "small-1")
    assert regression.last_good_run(home, first) is None
    verdict = regression.judge(first, None)
    assert verdict.status == "first"
    regression.save(first, verdict)

    by_hand = stored(home, "small-2")  # never checked: not a measure
    assert regression.last_good_run(home, by_hand).id == "small-1"

    alarmed = stored(home, "small-3")
    regression.save(alarmed, regression.Verdict("small", "small-3", "small-1", "alarm", ("why",)))
    other = stored(home, "small-4", suite=SUITE.model_copy(update={"seed": 5}))
    regression.save(other, regression.judge(other, None))
    assert regression.last_good_run(home, by_hand).id == "small-1"

    renamed = stored(home, "small-5", suite=SUITE.model_copy(update={"title": "New title"}))
    regression.save(renamed, regression.judge(renamed, first))
    found = regression.last_good_run(home, by_hand)
    assert found.id == "small-5"
    assert regression.judge(by_hand, found).status == "pass"
    assert json.loads((found.folder / regression.FILE).read_text())["status"] == "pass"


def test_damaged_verdict_is_passed_over(tmp_path: Path) -> None:
    home = Home(tmp_path)
    good, broken = stored(home, "small-1"), stored(home, "small-2")
    regression.save(good, regression.judge(good, None))
    (broken.folder / regression.FILE).write_text("{")
    assert regression.last_good_run(home, stored(home, "small-3")).id == "small-1"
