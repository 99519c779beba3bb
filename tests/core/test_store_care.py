"""The store's care: what runs refer to stays, the rest goes, damage is found."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl
import pytest

from pipeline_lib.artifacts import ArtifactStore
from pipeline_lib.errors import ArtifactError
from pipeline_lib.home import Home
from pipeline_lib.store_care import StoreBusyError, gc, using_store, verify


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "hö me")


def add_artifact(home: Home, name: str, *, age: float = 0.0) -> Path:
    stage, fingerprint = name.split("/")
    store = ArtifactStore(home.store)
    store.build(stage, fingerprint, {}, lambda out: out.table("t", pl.DataFrame({"x": [1, 2]})))
    folder = store.folder(stage, fingerprint)
    then = time.time() - age
    os.utime(folder / "artifact.json", (then, then))
    return folder


def add_run(
    home: Home,
    name: str,
    artifacts: list[str],
    *,
    status: str = "finished",
    pid: int = 1,
    age: float = 0.0,
) -> Path:
    folder = home.runs / name
    folder.mkdir(parents=True)
    started = datetime.now(UTC) - timedelta(seconds=age)
    body = {"artifacts": artifacts, "status": status, "pid": pid, "started": started.isoformat()}
    (folder / "manifest.json").write_text(json.dumps(body))
    return folder


def names(home: Home) -> set[str]:
    return {f"{p.parent.parent.name}/{p.parent.name}" for p in home.store.glob("*/*/artifact.json")}


def dead_pid() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_gc_removes_what_no_run_refers_to_and_nothing_else(home: Home) -> None:
    for name in ("ingest/aa", "fit/bb", "fit/cc", "evaluate/dd"):
        add_artifact(home, name)
    add_run(home, "one", ["ingest/aa", "fit/bb"])
    add_run(home, "two", ["ingest/aa", "evaluate/dd"], status="failed")
    strange = home.store / "fit" / "notes"
    strange.mkdir()
    (strange / "mine.txt").write_text("keep")
    beside = home.store / "README.txt"
    beside.write_text("keep")

    before = names(home)
    planned = gc(home, dry_run=True)
    assert planned.removed == ("fit/cc",) and planned.bytes > 0 and planned.kept == 3
    assert names(home) == before
    assert gc(home) == planned
    assert names(home) == before - {"fit/cc"}
    assert (strange / "mine.txt").exists() and beside.exists()
    assert not list((home.store / "tmp").glob("*"))
    assert gc(home).removed == ()


def test_gc_after_a_run_is_deleted(home: Home) -> None:
    add_artifact(home, "fit/aa")
    manifest = add_run(home, "one", ["fit/aa"]) / "manifest.json"
    assert gc(home).removed == ()
    manifest.unlink()
    assert gc(home).removed == ("fit/aa",)


def test_gc_waits_for_runs_in_progress(home: Home) -> None:
    add_artifact(home, "fit/aa")
    add_run(home, "long", [], status="running", pid=os.getpid())
    with using_store(home), using_store(home):
        with pytest.raises(StoreBusyError, match="in use by a run \\(long\\)"):
            gc(home)
        assert names(home) == {"fit/aa"}


def test_lock_of_a_killed_run_is_free(home: Home) -> None:
    add_artifact(home, "fit/aa")
    code = (
        "import sys, time; from pathlib import Path; from pipeline_lib.home import Home\n"
        "from pipeline_lib.store_care import using_store\n"
        "with using_store(Home(Path(sys.argv[1]))): print('held', flush=True); time.sleep(60)"
    )
    command = [sys.executable, "-c", code, str(home.root)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "held\n"
        with pytest.raises(StoreBusyError):
            gc(home)
        process.kill()
    assert gc(home).removed == ("fit/aa",)


def test_live_process_protects_what_is_younger_than_its_start(home: Home) -> None:
    add_artifact(home, "fit/young", age=10)
    add_artifact(home, "fit/elder", age=1000)
    add_run(home, "alive", [], status="running", pid=os.getpid(), age=100)
    assert gc(home).removed == ("fit/elder",)
    assert names(home) == {"fit/young"}


def test_dead_process_protects_nothing(home: Home) -> None:
    add_artifact(home, "fit/young", age=10)
    add_run(home, "killed", [], status="running", pid=dead_pid(), age=100)
    assert gc(home).removed == ("fit/young",)


def test_unreadable_manifest_stops_gc(home: Home) -> None:
    add_artifact(home, "fit/aa")
    (add_run(home, "one", ["fit/aa"]) / "manifest.json").write_text("{")
    with pytest.raises(ArtifactError, match="delete the run's folder"):
        gc(home)
    assert names(home) == {"fit/aa"}


def test_empty_home(home: Home) -> None:
    home.root.mkdir()
    assert gc(home).removed == ()
    assert verify(home).sound


def test_verify_finds_each_kind_of_damage(home: Home) -> None:
    folders = {n: add_artifact(home, f"fit/{n}") for n in ("a", "b", "c", "d", "e", "f")}
    add_run(home, "one", [f"fit/{n}" for n in folders] + ["fit/gone"])
    assert verify(home).damaged == ()

    data = folders["a"] / "t.parquet"
    data.write_bytes(data.read_bytes()[:-1] + b"?")
    (folders["b"] / "t.parquet").unlink()
    (folders["c"] / "artifact.json").write_text("{}")
    (folders["d"] / "extra.txt").write_text("?")
    folders["e"].rename(folders["e"].with_name("z"))
    found = verify(home)
    assert found.checked == 6 and not found.sound
    wrong = "\n".join(found.damaged)
    assert "fit/a: the file t.parquet does not match its checksum" in wrong
    assert "fit/b: the file t.parquet is missing" in wrong
    assert "fit/c: the file artifact.json does not match" in wrong
    assert "fit/d: extra.txt does not belong" in wrong
    assert "fit/z: the artifact in this place is fit/e" in wrong
    assert len(found.damaged) == 5
    assert found.missing == ("one: fit/e", "one: fit/gone")
