"""A suite from end to end: results, cache, failures, damage, resumption."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from pipeline_lib.errors import InputError
from pipeline_lib.execution import thread_executor
from pipeline_lib.home import Home, resolve_home
from pipeline_lib.report.page import render, write_report
from pipeline_lib.results import RESULT_COLUMNS, TRIAL_COLUMNS, RunRecord, known_runs, load_run
from pipeline_lib.runner import Run, run_suite
from pipeline_lib.store_care import StoreBusyError, gc
from pipeline_lib.suites import Suite, parse_suite

SMALL = """
version = 1
name = "small"
title = "A small suite"
summary = "Two methods."

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
params = { n_components = 20 }
grid = { gamma = [0.1, 0.5], C = [0.001, 0.1] }

[[problems.methods]]
name = "RankNystroem"
label = "wider"
params = { n_components = 40 }
winners_of = "RankNystroem"
"""


class Notes:
    """A listener that keeps what it is told."""

    def __init__(self) -> None:
        self.notices: list[str] = []
        self.last: Any = None

    def stage(self, name: str) -> None:
        pass

    def counts(self, counts: Any) -> None:
        self.last = counts

    def notice(self, sentence: str) -> None:
        self.notices.append(sentence)


def execute(suite: Suite, home: Home, *, track: bool = False) -> tuple[RunRecord, Notes]:
    notes = Notes()
    with thread_executor(2) as executor:
        record = Run(suite, home, executor, workers=2, track=track, progress=notes).execute()
    return record, notes


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Home, RunRecord, Notes]:
    home = resolve_home(tmp_path_factory.mktemp("home"))
    record, notes = execute(parse_suite(SMALL), home)
    return home, record, notes


def test_the_results_table_is_as_documented(finished: tuple[Home, RunRecord, Notes]) -> None:
    _, record, notes = finished
    results = record.results
    assert tuple(results.columns[: len(RESULT_COLUMNS)]) == RESULT_COLUMNS
    assert results["label"].to_list() == [
        "RankSVM", "RankSVM", "RankNystroem", "RankNystroem", "wider", "wider",
    ]  # fmt: skip
    assert results["definition"].to_list() == ["letor4", "standard"] * 3
    assert (results["value"] == results["map"]).all()
    assert (results["low"] <= results["value"]).all()
    assert (results["value"] <= results["high"]).all()
    assert results["items"].to_list() == [30] * 6
    assert record.status == "finished"
    assert notes.notices == []
    assert notes.last.done == notes.last.total == 2 + 4 + 1 + 3


def test_every_trial_is_there_and_the_chosen_one_is_the_best_on_validation(
    finished: tuple[Home, RunRecord, Notes],
) -> None:
    _, record, _ = finished
    trials = record.trials
    assert tuple(trials.columns[: len(TRIAL_COLUMNS)]) == TRIAL_COLUMNS
    assert len(trials) == 7
    for (label,), part in trials.group_by("label"):
        chosen = part.filter(pl.col("selected"))
        assert len(chosen) == 1, label
        assert chosen["vali_map"][0] == part["vali_map"].max()
    winner = json.loads(trials.filter(pl.col("label") == "RankNystroem", "selected")["params"][0])
    taken = json.loads(trials.filter(pl.col("label") == "wider")["params"][0])
    assert taken == winner | {"n_components": 40}


def test_means_are_the_means_of_the_values_per_item(
    finished: tuple[Home, RunRecord, Notes],
) -> None:
    _, record, _ = finished
    per_item = record.per_item["search"]
    means = per_item.group_by("label", "definition").agg(pl.col("map").mean(), pl.len())
    assert means["len"].to_list() == [30] * 6
    joined = record.results.join(means, on=["label", "definition"], suffix="_again")
    assert (joined["map"] - joined["map_again"]).abs().max() < 1e-12  # type: ignore[operator]


def test_a_second_run_computes_nothing_and_says_the_same(
    finished: tuple[Home, RunRecord, Notes],
) -> None:
    home, first, _ = finished
    second, notes = execute(parse_suite(SMALL), home)
    assert second.manifest["computed"] == 0
    assert second.manifest["reused"] == first.manifest["computed"] > 0
    assert notes.last.cached == notes.last.total
    assert second.results.equals(first.results)


def test_run_suite_returns_the_results_frame(finished: tuple[Home, RunRecord, Notes]) -> None:
    home, first, _ = finished
    frame = run_suite(parse_suite(SMALL), home.root, track=False)
    assert frame.equals(first.results)


def test_a_run_is_read_back_by_id_prefix_and_latest(
    finished: tuple[Home, RunRecord, Notes],
) -> None:
    home, record, _ = finished
    execute(parse_suite(SMALL), home)
    again = load_run(home, record.id)
    assert again.results.equals(record.results)
    assert again.per_item["search"].equals(record.per_item["search"])
    assert again.suite == record.suite
    assert load_run(home, record.id[:-1]).id == record.id
    assert load_run(home, "latest").status == "finished"
    with pytest.raises(InputError, match="beginning of"):
        load_run(home, "small-")
    with pytest.raises(InputError, match="unknown run"):
        load_run(home, "smal-none")
    with pytest.raises(InputError, match="an empty name"):
        load_run(home, "")


def test_a_suite_and_latest_stand_for_the_last_run_that_left_results(tmp_path: Path) -> None:
    home = Home(tmp_path)
    suite = parse_suite(SMALL)
    for day, (name, status) in enumerate(
        [("small-c", "finished"), ("small-b", "failed"), ("small-a", "interrupted")], start=1
    ):
        record = RunRecord(name, home.runs / name, suite, status)
        record.manifest = {
            "suite": suite.model_dump(mode="json"),
            "started": f"2026-11-0{day}T00:00:00+00:00",
            "ended": f"2026-11-0{day}T00:01:00+00:00",
        }
        if status != "interrupted":
            record.save_tables()
        record.folder.mkdir(parents=True, exist_ok=True)
        record.save_manifest()
    assert load_run(home, "small").id == load_run(home, "latest").id == "small-b"
    runs = known_runs(home)
    assert [run.run for run in runs] == ["small-c", "small-b", "small-a"]
    assert [run.ended for run in runs] == [True, True, False]
    assert runs[0].seconds == 60.0
    assert known_runs(home, "small") == runs and known_runs(home, "smal") == []


def test_a_damaged_run_is_named(tmp_path: Path) -> None:
    home = Home(tmp_path)
    folder = home.runs / "small-a"
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_text("{}")
    with pytest.raises(InputError, match="manifest of the run cannot be read"):
        load_run(home, "small-a")
    assert known_runs(home) == []
    suite = parse_suite(SMALL).model_dump(mode="json")
    (folder / "manifest.json").write_text(json.dumps({"suite": suite, "status": "finished"}))
    (folder / "results.parquet").write_bytes(b"PAR1")
    with pytest.raises(InputError, match="a table of the run is damaged"):
        load_run(home, "small-a")


def test_nothing_is_collected_while_a_run_uses_the_store(tmp_path: Path) -> None:
    home = resolve_home(tmp_path)
    refused: list[bool] = []

    class Collector(Notes):
        def stage(self, name: str) -> None:
            with pytest.raises(StoreBusyError):
                gc(home)
            refused.append(True)

    with thread_executor(2) as executor:
        Run(parse_suite(SMALL), home, executor, track=False, progress=Collector()).execute()
    assert len(refused) >= 2
    assert gc(home).removed == ()


def test_no_run_yet(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no runs yet"):
        load_run(resolve_home(tmp_path), "latest")


def test_the_report_stands_by_itself(finished: tuple[Home, RunRecord, Notes]) -> None:
    home, record, _ = finished
    page = write_report(load_run(home, record.id)).read_text(encoding="utf-8")
    assert page == render(record)
    for text in ("A small suite", "RankNystroem", "wider", "Validation surface", "<svg", "letor4"):
        assert text in page
    assert "<script" not in page
    assert "src=" not in page
    assert 'rel="stylesheet"' not in page


def test_a_changed_parameter_computes_only_its_own_path(
    finished: tuple[Home, RunRecord, Notes],
) -> None:
    home, _, _ = finished
    changed, _ = execute(
        parse_suite(SMALL.replace("gamma = [0.1, 0.5]", "gamma = [0.1, 0.6]")), home
    )
    fits = [a for a in changed.manifest["artifacts"] if a.startswith("fit/")]
    assert len(fits) == 4
    # One feature map and one fit are new; the evaluation follows the winner.
    assert changed.manifest["computed"] <= 6


def test_a_failed_trial_is_recorded_and_the_rest_goes_on(tmp_path: Path) -> None:
    suite = parse_suite(SMALL.replace("C = [0.001, 0.1]", "C = [-1.0, 0.1]", 1))
    record, notes = execute(suite, resolve_home(tmp_path))
    assert record.status == "failed"
    assert set(record.results["label"]) == {"RankSVM", "RankNystroem", "wider"}
    failed = record.trials.filter(pl.col("error").is_not_null())
    assert failed.select("label", "setting").rows() == [("RankSVM", 0)]
    assert len(notes.notices) == 1
    assert "C=-1" in notes.notices[0]
    assert (record.folder / "errors.log").is_file()
    assert "1 trial failed" in render(record)


def test_a_headline_that_is_no_metric_is_refused_and_the_run_is_closed(tmp_path: Path) -> None:
    suite = parse_suite(SMALL.replace('headline = "map"', 'headline = "mapp"'))
    with pytest.raises(InputError, match='did you mean "map"'):
        execute(suite, resolve_home(tmp_path))
    (manifest,) = tmp_path.glob("runs/*/manifest.json")
    assert json.loads(manifest.read_text())["status"] == "failed"


@pytest.mark.parametrize(
    ("fault", "status"), [(ZeroDivisionError, "failed"), (KeyboardInterrupt, "interrupted")]
)
def test_a_run_whose_summary_breaks_off_does_not_stand_as_running(
    fault: type[BaseException], status: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> None:
        raise fault

    monkeypatch.setattr("pipeline_lib.runner.summarise", broken)
    with pytest.raises(fault):
        execute(parse_suite(SMALL), resolve_home(tmp_path))
    (path,) = tmp_path.glob("runs/*/manifest.json")
    manifest = json.loads(path.read_text())
    assert manifest["status"] == status and manifest["ended"] is not None


def test_a_flipped_byte_is_found_named_and_mended(tmp_path: Path) -> None:
    home = resolve_home(tmp_path)
    first, _ = execute(parse_suite(SMALL), home)
    victim = next((home.store / "fit").glob("*/validation.parquet"))
    damaged = bytearray(victim.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    victim.write_bytes(bytes(damaged))
    # A new process verifies what an earlier one wrote.
    done = _run_in_process(tmp_path)
    assert victim.parent.name in done["notices"][0]
    assert "validation.parquet" in done["notices"][0]
    assert done["computed"] == 1
    assert done["map"] == first.results["map"].to_list()


_SCRIPT = f"""
import json, sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from pipeline_lib.execution import thread_executor
from pipeline_lib.home import resolve_home
from pipeline_lib.runner import Run
from pipeline_lib.suites import parse_suite

class Notes:
    notices = []
    def stage(self, name): pass
    def counts(self, counts): pass
    def notice(self, sentence): self.notices.append(sentence)

home = resolve_home(sys.argv[1])
with thread_executor(2) as executor:
    record = Run(parse_suite({SMALL!r}), home, executor, track=len(sys.argv) > 2, progress=Notes()).execute()
print(json.dumps({{"computed": record.manifest["computed"], "notices": Notes.notices,
                   "map": record.results["map"].to_list(), "id": record.id}}))
"""


def _run_in_process(home: Path) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT, str(home)], capture_output=True, text=True, check=True
    )
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def test_two_runs_at_once_on_an_empty_home_are_both_right(tmp_path: Path) -> None:
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", _SCRIPT, str(tmp_path), "track"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    outputs = [racer.communicate(timeout=300) for racer in racers]
    assert [racer.returncode for racer in racers] == [0, 0], outputs
    one, two = (json.loads(out) for out, _ in outputs)
    assert one["map"] == two["map"]
    assert one["id"] != two["id"]


@pytest.mark.slow
def test_twenty_kills_and_resumptions_give_the_undisturbed_table(tmp_path: Path) -> None:
    undisturbed = _run_in_process(tmp_path / "calm")
    begun = time.monotonic()
    _run_in_process(tmp_path / "timing")
    whole = time.monotonic() - begun
    import random

    draw = random.Random(0)
    home = tmp_path / "stormy"
    for _ in range(20):
        victim = subprocess.Popen(
            [sys.executable, "-c", _SCRIPT, str(home)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        time.sleep(draw.uniform(0.4, 1.0) * whole)
        if victim.poll() is None:
            os.kill(victim.pid, signal.SIGKILL)
        victim.wait()
    resumed = _run_in_process(home)
    assert resumed["map"] == undisturbed["map"]
    assert list((home / "store" / "tmp").iterdir()) == []
