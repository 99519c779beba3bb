"""A rerun verifies, or names the first stage that came out otherwise and what changed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

from flows.cli import app
from pipeline_lib import environment
from pipeline_lib.datasets import own
from pipeline_lib.datasets.acquire import locate
from pipeline_lib.errors import DataMissingError, InputError
from pipeline_lib.execution import thread_executor
from pipeline_lib.home import Home
from pipeline_lib.ltr.ranksvm import RankSVM
from pipeline_lib.reproduction.frozen import freeze, thawed
from pipeline_lib.reproduction.outcome import Outcome
from pipeline_lib.reproduction.rerun import rerun
from pipeline_lib.results import RESULT_COLUMNS, RunRecord, load_run
from pipeline_lib.runner import Run, run_suite
from pipeline_lib.suites import parse_suite, with_overrides
from pipeline_lib.summary import metric_columns

ROOT = Path(__file__).resolve().parents[2]

SUITE = """
version = 1
name = "small"
title = "Small"

[[problems]]
name = "search"
kind = "ltr"
dataset = "digits"
splits = ["ltr"]
headline = "map"

[problems.selection]
metric = "map"

[[problems.methods]]
name = "RankSVM"
grid = { C = [0.001, 0.1] }

[[problems.methods]]
name = "RankNystroem"
params = { n_components = 20, gamma = 0.1, C = 0.01 }
"""

OWN = """
version = 1
name = "mine"
title = "Mine"
[[problems]]
kind = "clustering"
dataset = "mine"
splits = ["all"]
headline = "nmi"
[[problems.methods]]
name = "KMeans"
"""


def execute(text: str, home: Home) -> RunRecord:
    environment.set_blas_threads(1)
    with thread_executor(2) as executor:
        return Run(parse_suite(text), home, executor, workers=2, track=False).execute()


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    return Home(tmp_path_factory.mktemp("home"))


@pytest.fixture(scope="module")
def record(home: Home) -> RunRecord:
    record = execute(SUITE, home)
    assert record.status == "finished"
    return load_run(home, record.id)


def only_cause(outcome: Outcome) -> tuple[str, str, str]:
    """Stage, kind and sentence of the one difference that there should be."""
    assert not outcome.verified
    (difference,) = outcome.differences
    (cause,) = difference.causes
    return difference.stage, cause.kind, cause.what


def test_the_manifest_says_what_it_takes(record: RunRecord) -> None:
    manifest = record.manifest
    assert manifest["version"] == 2
    assert [(p["label"], p["position"]) for p in manifest["paths"]] == [
        ("RankSVM", 0),
        ("RankNystroem", 0),
    ]
    for path in manifest["paths"]:
        stages = [step["stage"] for step in path["steps"]]
        assert stages[:3] == ["ingest"] * 3 and stages[-2:] == ["fit", "evaluate"]
        assert {step["artifact"] for step in path["steps"]} <= set(manifest["artifacts"])
        assert path["seeds"]["data"] != path["seeds"]["method"]
    assert {s for d in manifest["data"].values() for s in d["sources"].values()}
    code = manifest["environment"]["code"]
    assert "pipeline_lib.ltr.ranksvm" in code["modules"]
    (made_in,) = manifest["environments"]
    assert made_in["packages"]["numpy"] == np.__version__ and made_in["blas_threads"] == 1


def test_an_unchanged_run_verifies_and_leaves_nothing(record: RunRecord, home: Home) -> None:
    stored = sorted(home.store.rglob("*"))
    outcome = rerun(record, home)
    assert outcome.verified and outcome.largest == 0.0 and outcome.changes == ()
    metrics = metric_columns(record.results, RESULT_COLUMNS)
    assert len(outcome.values) == sum(record.results[name].count() for name in metrics) > 80
    assert sorted(home.store.rglob("*")) == stored
    assert not (home.root / "reruns").exists()


def test_a_changed_parameter_is_named(record: RunRecord, home: Home) -> None:
    changed = with_overrides(record.suite, settings={"gamma": 0.2})
    outcome = rerun(record, home, suite=changed)
    stage, kind, what = only_cause(outcome)
    assert (stage, kind) == ("features", "parameter")
    assert what == "gamma: 0.1 → 0.2"
    assert {value.label for value in outcome.wrong} == {"RankNystroem"}
    assert outcome.differences[0].rows == ("search RankNystroem",)


def test_a_changed_grid_is_named(record: RunRecord, home: Home) -> None:
    changed = parse_suite(SUITE.replace("[0.001, 0.1]", "[10.0, 100.0]"))
    (difference,) = rerun(record, home, suite=changed).differences
    assert difference.stage == "fit"
    assert [(c.kind, c.what) for c in difference.causes] == [
        ("parameter", "settings[0].C: 0.001 → 10.0"),
        ("parameter", "settings[1].C: 0.1 → 100.0"),
    ]


def _perturbed(monkeypatch: pytest.MonkeyPatch, amount: Callable[[], float]) -> None:
    """Let every trained linear ranker predict something else, as a library below it might."""
    honest = RankSVM.predict
    noise = np.random.default_rng(0).normal(size=100_000)

    def predict(self: Any, X: Any) -> Any:
        scores = honest(self, X)
        return scores + amount() * np.ptp(scores) * noise[: len(scores)]

    monkeypatch.setattr(RankSVM, "predict", predict)


def test_a_changed_package_is_named(
    record: RunRecord, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    _perturbed(monkeypatch, lambda: 0.5)
    packages = environment.computing_packages() | {"scipy": "9.9"}
    old = environment.computing_packages()["scipy"]
    monkeypatch.setattr(environment, "computing_packages", lambda: packages)
    outcome = rerun(record, home)
    assert not outcome.verified
    for difference in outcome.differences:
        assert difference.stage == "fit" and "validation" in difference.what
        assert [(c.kind, c.what) for c in difference.causes] == [("package", f"scipy {old} → 9.9")]


def test_changed_threads_are_named(
    record: RunRecord, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    _perturbed(monkeypatch, lambda: 0.5 if environment.blas_threads() == 2 else 0.0)
    assert rerun(record, home).verified
    outcome = rerun(record, home, blas_threads=2)
    for difference in outcome.differences:
        assert [(c.kind, c.what) for c in difference.causes] == [("threads", "BLAS threads 1 → 2")]
    assert environment.blas_threads() == 1


def test_what_does_not_repeat_itself_is_said_so(
    record: RunRecord, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    _perturbed(monkeypatch, lambda: 0.5)
    outcome = rerun(record, home)
    assert {c.kind for d in outcome.differences for c in d.causes} == {"chance"}


def test_a_difference_within_the_tolerance_verifies(
    record: RunRecord, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    _perturbed(monkeypatch, lambda: 1e-13)
    outcome = rerun(record, home)
    assert outcome.verified
    _perturbed(monkeypatch, lambda: 0.5)
    assert rerun(record, home, tolerance=1.0).verified


@pytest.fixture
def own_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three blobs in a table that can be edited."""
    monkeypatch.setenv("AFFINITY_DATA", str(tmp_path / "data"))
    table = tmp_path / "files" / "mine.csv"
    table.parent.mkdir()
    _blobs(table, spread=1.5)
    own.declare("mine", table, label="class", root=tmp_path / "data")
    return table


def _blobs(table: Path, spread: float) -> None:
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(3), 40)
    X = rng.normal(size=(120, 2)) * spread + 4.0 * np.stack([np.cos(2 * y), np.sin(2 * y)], 1)
    pl.DataFrame({"class": y, "a": X[:, 0], "b": X[:, 1]}).write_csv(table)


def test_changed_data_are_named(own_data: Path, tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    record = execute(OWN, home)
    assert rerun(record, home).verified
    _blobs(own_data, spread=4.0)
    outcome = rerun(record, home)
    stage, kind, what = only_cause(outcome)
    assert (stage, kind) == ("ingest", "data")
    assert what.startswith("mine/all: ") and "mine.csv changed (sha256" in what


def test_data_that_are_refused_by_now_are_named(own_data: Path, tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    record = execute(OWN, home)
    own_data.write_text("class,a,b\n0,1,x\n")
    outcome = rerun(record, home)
    stage, kind, _ = only_cause(outcome)
    assert (stage, kind) == ("ingest", "data")
    assert str(own_data) in outcome.differences[0].what


def test_a_frozen_run_is_repeated_elsewhere_with_its_own_data(
    own_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = execute(OWN, Home(tmp_path / "home"))
    done = freeze(record, tmp_path / "mine.zip")
    assert done.left_out == () and done.artifacts == len(record.manifest["artifacts"])
    # Another machine: neither the data nor the declaration nor the home are there.
    shutil.rmtree(own_data.parent)
    shutil.rmtree(tmp_path / "data")
    shutil.rmtree(tmp_path / "home")
    monkeypatch.setenv("AFFINITY_DATA", str(tmp_path / "nowhere"))
    elsewhere = Home(tmp_path / "elsewhere")
    elsewhere.root.mkdir()
    with thawed(tmp_path / "mine.zip", elsewhere.root) as again:
        assert again.results.equals(record.results)
        assert rerun(again, elsewhere).verified
    assert os.environ["AFFINITY_DATA"] == str(tmp_path / "nowhere")


def test_own_data_that_are_gone_are_listed_as_left_out(own_data: Path, tmp_path: Path) -> None:
    record = execute(OWN, Home(tmp_path / "home"))
    own_data.unlink()
    done = freeze(record, tmp_path / "mine.zip")
    assert done.left_out == ("mine/all, whose files are gone",)
    with pytest.raises(DataMissingError, match=r"is gone; .*affinity data add mine PATH --replace"):
        locate("mine")


def test_what_is_too_large_to_freeze_is_compared_by_checksum(
    record: RunRecord, home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = freeze(record, tmp_path / "run.zip", small=0)
    assert done.artifacts == 0 and set(done.left_out) == set(record.manifest["artifacts"])
    with thawed(tmp_path / "run.zip", tmp_path) as again:
        assert rerun(again, home).verified
        _perturbed(monkeypatch, lambda: 0.5)
        outcome = rerun(again, home)
    assert {d.stage for d in outcome.differences} == {"fit"}
    assert "by its checksum" in outcome.differences[0].what


def test_other_files_are_no_frozen_runs(tmp_path: Path) -> None:
    text = tmp_path / "text.zip"
    text.write_text("no archive")
    with (
        pytest.raises(InputError, match="not a frozen run, or it is cut off"),
        thawed(text, tmp_path),
    ):
        pass
    with zipfile.ZipFile(tmp_path / "other.zip", "w") as archive:
        archive.writestr("a.txt", "a")
    (tmp_path / "o").mkdir()
    with (
        pytest.raises(InputError, match="not a frozen run"),
        thawed(tmp_path / "other.zip", tmp_path / "o"),
    ):
        pass


def test_a_run_of_an_earlier_version_is_verified_without_steps(
    record: RunRecord, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = ("suite", "environment", "data", "artifacts")
    old = RunRecord(record.id, record.folder, record.suite, record.status, record.results)
    old.manifest = {name: record.manifest[name] for name in kept} | {"version": 1}
    assert rerun(old, home).verified
    _perturbed(monkeypatch, lambda: 0.5)
    outcome = rerun(old, home)
    assert not outcome.verified and outcome.differences == ()


def test_a_run_without_results_cannot_be_verified(record: RunRecord, home: Home) -> None:
    empty = RunRecord(record.id, record.folder, record.suite, "interrupted")
    with pytest.raises(InputError, match="no results to verify"):
        rerun(empty, home)
    with pytest.raises(InputError, match="no results to repeat"):
        freeze(empty, home.root / "empty.zip")
    assert not list(home.root.glob("*empty.zip*"))


def test_changed_code_is_named(record: RunRecord, home: Home, tmp_path: Path) -> None:
    """In a copy of the project whose ranker is another one."""
    for name in ("flows", "pipeline_lib", "tasks", "data/catalogue", "data/published"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    module = tmp_path / "pipeline_lib/ltr/ranksvm.py"
    source = module.read_text(encoding="utf-8")
    other = "self.coef_ = self.coef_ * (self.coef_ > 0)\n        return self"
    module.write_text(source.replace("return self", other), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "flows.cli", "rerun", record.id, "--json", "--home", str(home.root)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        timeout=280,
    )
    assert done.returncode == 1, done.stderr
    body = json.loads(done.stdout)
    assert not body["verified"] and body["wrong"]
    assert {d["stage"] for d in body["differences"]} == {"fit"}
    for difference in body["differences"]:
        assert [c["kind"] for c in difference["causes"]] == ["code"]
        assert difference["causes"][0]["what"].startswith("pipeline_lib.ltr.ranksvm")
    assert json.loads((record.folder / "rerun.json").read_text()) == body


def test_freeze_and_rerun_by_the_command(record: RunRecord, home: Home, tmp_path: Path) -> None:
    runner = CliRunner()
    file = tmp_path / "run.zip"
    own_home = ["--home", str(home.root)]
    done = runner.invoke(app, ["freeze", record.id, "--out", str(file), *own_home])
    assert done.exit_code == 0 and file.is_file(), done.output
    other = tmp_path / "other"
    done = runner.invoke(app, ["rerun", str(file), "-q", "--home", str(other)])
    assert done.exit_code == 0, done.output
    assert done.output.startswith("verified: ") and "values of 2 rows within 1e-06" in done.output
    assert not list(other.glob("**/*.parquet"))
    done = runner.invoke(app, ["rerun", record.id, "-q", "--set", "C=100.0", *own_home])
    assert done.exit_code == 1
    assert "NOT verified: 2 of 2 rows" in done.output
    assert "first difference: fit " in done.output and "  parameter: settings" in done.output
    missing = runner.invoke(app, ["rerun", "nothing.zip", *own_home])
    assert isinstance(missing.exception, InputError) and "no such file" in str(missing.exception)


@pytest.mark.slow
def test_quickstart_verifies_with_a_cold_cache(tmp_path: Path) -> None:
    home = Home(tmp_path)
    run_suite("quickstart", home.root, track=False)
    record = load_run(home, "latest")
    outcome = rerun(record, home)
    assert outcome.verified, list(outcome.wrong)
    assert len(outcome.values) > 100 and outcome.changes == ()
