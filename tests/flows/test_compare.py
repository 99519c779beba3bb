"""The compare command on runs whose values are known, beside what scipy says of the same values."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from scipy import stats
from typer.testing import CliRunner, Result

from flows.cli import app
from pipeline_lib.errors import InputError
from pipeline_lib.home import Home
from pipeline_lib.results import RunRecord
from pipeline_lib.suites import Suite

ITEMS = 14  # few enough for both tests to be exact


def suite(name: str = "known", published: str | None = None) -> Suite:
    problem = {
        "name": "rank",
        "kind": "ltr",
        "dataset": "digits",
        "splits": ["ltr"],
        "headline": "map",
        "published": published,
        "methods": [{"name": "RankSVM", "label": label} for label in ("a|b", "c", "d")],
    }
    return Suite.model_validate({"name": name, "title": f"Suite {name}", "problems": [problem]})


def values(seed: int, items: int = ITEMS) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    base = rng.random(items)
    return {
        "a|b": base,
        "c": base + 0.3 + 0.2 * rng.normal(size=items),
        "d": base + 0.3 * rng.normal(size=items),
    }


def save(home: Home, run: str, own: dict[str, np.ndarray], of: Suite | None = None) -> RunRecord:
    """Write a run with these values as the runner does."""
    of = of or suite()
    record = RunRecord(run, home.runs / run, of, "finished")
    frames, rows = [], []
    for label, numbers in own.items():
        frames.append(
            pl.DataFrame(
                {
                    "label": label,
                    "definition": "letor4",
                    "split": "ltr",
                    "repetition": 0,
                    "qid": [str(i) for i in range(len(numbers))],
                    "map": numbers,
                }
            )
        )
        rows.append(
            {
                "problem": "rank",
                "kind": "ltr",
                "dataset": "digits",
                "method": "RankSVM",
                "label": label,
                "definition": "letor4",
                "headline": "map",
                "value": float(numbers.mean()),
                "map": float(numbers.mean()),
            }
        )
    record.results = pl.DataFrame(rows)
    record.per_item = {"rank": pl.concat(frames)}
    record.manifest = {
        "suite": of.model_dump(mode="json"),
        "started": f"2026-01-01T00:00:0{len(list(home.runs.glob('*')))}",
        "environment": {"code": {"version": "1", "commit": None, "dirty": None}},
        "data": {"digits/ltr/test": {"digest": "0" * 32}},
        "artifacts": {},
    }
    record.save_tables()
    record.save_manifest()
    return record


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


def affinity(home: Home, *arguments: str) -> Result:
    return CliRunner().invoke(app, ["compare", *arguments, "--home", str(home.root)])


def rows(home: Home, *arguments: str) -> list[dict[str, Any]]:
    done = affinity(home, *arguments, "--format", "json")
    assert done.exit_code == 0, done.output or done.exception
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def test_agrees_with_scipy(home: Home) -> None:
    own = values(0)
    save(home, "known-1", own)
    baseline, *others = rows(home, "known-1")
    assert baseline["method"] == "a|b" and baseline["difference"] is None
    expected = []
    for row in others:
        difference = own[row["method"]] - own["a|b"]
        signs = stats.permutation_test(
            (difference,), np.mean, permutation_type="samples", n_resamples=np.inf, vectorized=True,
            axis=0,
        )  # fmt: skip
        assert row["p_randomisation"] == pytest.approx(signs.pvalue)
        assert row["p_wilcoxon"] == pytest.approx(stats.wilcoxon(difference).pvalue)
        assert row["difference"] == pytest.approx(difference.mean())
        assert row["cohen_d"] == pytest.approx(difference.mean() / difference.std(ddof=1))
        interval = stats.bootstrap(
            (difference,), np.mean, method="BCa", n_resamples=20_000, rng=np.random.default_rng(0)
        ).confidence_interval
        assert row["difference_low"] == pytest.approx(interval.low, abs=0.02)
        assert row["difference_high"] == pytest.approx(interval.high, abs=0.02)
        assert row["mean"] == pytest.approx(own[row["method"]].mean())
        expected.append(signs.pvalue)
    small, large = sorted(expected)
    corrected = {small: min(1.0, 2 * small), large: max(2 * small, large)}
    for row, p in zip(others, expected):
        assert row["p_randomisation_holm"] == pytest.approx(corrected[p])


def test_a_run_against_itself_shows_no_difference(home: Home) -> None:
    save(home, "known-1", values(1))
    for row in rows(home, "known-1", "known-1"):
        if row["difference"] is not None:
            assert row["difference"] == row["difference_low"] == row["difference_high"] == 0.0
            assert row["p_randomisation_holm"] == row["p_wilcoxon_holm"] == 1.0


def test_rows_of_two_runs_are_compared_with_their_own_counterparts(home: Home) -> None:
    first, second = values(1), values(1)
    second["c"] = second["c"] - 0.4
    save(home, "known-1", first)
    save(home, "known-2", second)
    tested = {r["method"]: r for r in rows(home, "known-1", "known") if r["difference"] is not None}
    assert set(tested) == {f"{label} [known-2]" for label in first}
    for label in first:
        assert tested[f"{label} [known-2]"]["baseline"] == f"{label} [known-1]"
    assert tested["c [known-2]"]["difference"] == pytest.approx(-0.4)
    assert tested["c [known-2]"]["p_randomisation_holm"] < 0.05
    assert tested["d [known-2]"]["p_randomisation_holm"] == 1.0
    with_baseline = rows(home, "known-1", "known-2", "--baseline", "c")
    assert {r["baseline"] for r in with_baseline} == {"c [known-1]"}
    shown = affinity(home, "known-1", "known-2").stdout
    assert "c [known-2]" in shown and "the counterpart" in shown


def test_a_suite_stands_for_its_latest_run(home: Home) -> None:
    save(home, "known-2", values(2))
    save(home, "known-1", values(1))
    assert rows(home, "known") == rows(home, "known-1") != rows(home, "known-2")


def test_every_format(home: Home, tmp_path: Path) -> None:
    save(home, "known-1", values(3))
    assert "| a\\|b |" in affinity(home, "known", "--format", "markdown").stdout
    assert "\\begin{tabular}" in affinity(home, "known", "--format", "latex").stdout
    table = list(csv.DictReader(io.StringIO(affinity(home, "known", "--format", "csv").stdout)))
    assert [row["method"] for row in table] == ["a|b", "c", "d"]
    assert {row["problem"] for row in table} == {"rank"}
    shown = affinity(home, "known").stdout
    assert "rank, letor4" in shown and "average ranks: " in shown and "rank-biserial" in shown
    page = tmp_path / "pages" / "c.html"
    done = affinity(home, "known", "--format", "html", "--out", str(page))
    assert done.stdout.strip() == str(page)
    text = page.read_text(encoding="utf-8")
    assert "<svg" in text and "Nemenyi" in text and "known-1" in text
    assert "<script" not in text and "src=" not in text


def test_what_cannot_be_compared(home: Home) -> None:
    save(home, "known-1", values(0))
    save(home, "known-2", values(0, items=9))
    save(home, "other-1", {"a|b": values(0)["a|b"]})
    for arguments, says in (
        (("none",), "unknown run"),
        (("known-1", "--metric", "mpa"), 'unknown metric of rank "mpa"; did you mean "map"'),
        (("known-1", "--baseline", "zz"), "unknown row"),
        (("known-1", "--definition", "letor3"), "unknown metric definition"),
        (("known-1", "--format", "htm"), 'unknown format "htm"; did you mean "html"?'),
        (("known-1", "known-2"), "scored on different items"),
        (("other-1",), "nothing to compare"),
        (("known-1", "--published"), "names no published table"),
        (("known-1", "known-2", "--published"), "goes with one run"),
        (("0" * 32,), "no MLflow run"),
    ):
        done = affinity(home, *arguments)
        assert isinstance(done.exception, InputError), (arguments, done.output)
        assert says in str(done.exception)


def test_published_numbers_stand_beside_ours(home: Home) -> None:
    """The table of retrieval on ORL is in percent."""
    own = {"Euclidean": np.array([0.3156, 0.5156] * 10), "SelfDiffusion": np.linspace(0.0, 1.0, 20)}
    record = save(home, "orl-1", own, suite("orl", published="ran-orl"))
    renamed = pl.col("label").alias("method"), pl.col("map").alias("p_at_15")
    record.results = record.results.with_columns(*renamed)
    record.per_item = {"rank": record.per_item["rank"].rename({"map": "p_at_15"})}
    record.save_tables()
    found = {row["method"]: row for row in rows(home, "orl-1", "--published")}
    assert found["Euclidean"]["published"] == pytest.approx(0.4156)
    assert found["Euclidean"]["difference"] == pytest.approx(0.0)
    assert found["Euclidean"]["inside"]
    low, high = found["SelfDiffusion"]["low"], found["SelfDiffusion"]["high"]
    assert low < 0.5 < high and found["SelfDiffusion"]["inside"] == (
        low <= found["SelfDiffusion"]["published"] <= high
    )
    for output in ("terminal", "markdown", "latex", "csv", "html"):
        done = affinity(home, "orl-1", "--published", "--format", output)
        assert done.exit_code == 0 and "0.4156" in done.stdout
    assert "printed for orl, ours are of digits" in affinity(home, "orl-1", "--published").stdout
