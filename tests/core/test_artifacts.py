"""The artifact store: atomic, verified before use, safe to share."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from scipy import sparse

from pipeline_lib.artifacts import ArtifactRef, ArtifactStore, ArtifactWriter
from pipeline_lib.errors import ArtifactError

NAME = "0123456789abcdef" * 2

_CAPTURED: dict[str, Any] = {"capture_output": True, "text": True, "check": True}

_BUILD = f"""
import json, sys
from pathlib import Path
import numpy as np, polars as pl
from pipeline_lib.artifacts import ArtifactStore

def example(out):
    out.table("rows", pl.DataFrame({{"a": [1, 2, 3], "b": ["x", None, "NA"]}}))
    out.array("matrix", np.arange(12.0).reshape(4, 3))
    out.record(answer=42)

ref = ArtifactStore(Path(sys.argv[1])).build("fit", "{NAME}", {{}}, example)
print(json.dumps([ref.cached, ref.notice]))
"""

_BUILD_SLOWLY = f"""
import sys, time
from pathlib import Path
from pipeline_lib.artifacts import ArtifactStore

def slow(out):
    out.record(answer=42)
    with open(sys.argv[2], "a") as handle:
        handle.write("made\\n")
    time.sleep(0.5)

ArtifactStore(Path(sys.argv[1])).build("fit", "{NAME}", {{}}, slow)
"""


def example(out: ArtifactWriter) -> None:
    out.table("rows", pl.DataFrame({"a": [1, 2, 3], "b": ["x", None, "NA"]}))
    out.array("matrix", np.arange(12.0).reshape(4, 3))
    out.record(answer=42)


def test_an_artifact_is_made_once_and_read_back(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path)
    first = store.build("fit", NAME, {"x": 1}, example)
    second = store.build("fit", NAME, {"x": 1}, lambda out: pytest.fail("made twice"))
    assert (first.cached, second.cached) == (False, True)
    artifact = store.open(second)
    assert artifact.table("rows")["b"].to_list() == ["x", None, "NA"]
    assert artifact.records["answer"] == 42
    assert artifact.sidecar["spec"] == {"x": 1}
    assert artifact.fingerprint == NAME


@pytest.mark.parametrize(
    "values",
    [
        np.arange(5),
        np.arange(6.0, dtype=np.float32).reshape(2, 3),
        np.arange(6.0).reshape(3, 2),
        np.arange(24.0).reshape(2, 3, 4),
        np.zeros((0, 4)),
        np.array(["a", "bc", "é"]),
        np.array([True, False]),
        np.array([[np.pi]]),
    ],
    ids=lambda v: f"{v.dtype}{v.shape}",
)
def test_arrays_keep_shape_type_and_every_bit(tmp_path: Path, values: np.ndarray) -> None:
    store = ArtifactStore(tmp_path)
    ref = store.build("fit", NAME, {}, lambda out: out.array("v", values))
    read = store.open(ref).array("v")
    assert read.dtype == values.dtype
    assert read.shape == values.shape
    np.testing.assert_array_equal(read, values)


def test_sparse_matrices_come_back(tmp_path: Path) -> None:
    matrix = sparse.random_array((7, 5), density=0.3, rng=np.random.default_rng(0))
    store = ArtifactStore(tmp_path)
    ref = store.build("fit", NAME, {}, lambda out: out.array("s", matrix))
    np.testing.assert_array_equal(store.open(ref).sparse_array("s").toarray(), matrix.toarray())


@pytest.mark.parametrize("file", ["rows.parquet", "matrix.parquet", "artifact.json"])
def test_one_flipped_byte_is_found_named_and_mended(tmp_path: Path, file: str) -> None:
    store = ArtifactStore(tmp_path)
    ref = store.build("fit", NAME, {}, example)
    path = store.folder("fit", NAME) / file
    rng = np.random.default_rng(0)
    for position in rng.integers(0, path.stat().st_size, 2):
        damaged = bytearray(path.read_bytes())
        damaged[position] ^= 0x10
        path.write_bytes(bytes(damaged))
        # A process that has not seen the artifact verifies it before use.
        rebuilt = _in_fresh_process(tmp_path)
        assert not rebuilt.cached
        assert rebuilt.notice is not None
        assert NAME in rebuilt.notice
        assert file in rebuilt.notice
        assert _in_fresh_process(tmp_path).cached
    assert store.open(ref).records["answer"] == 42


def _in_fresh_process(root: Path) -> ArtifactRef:
    done = subprocess.run([sys.executable, "-c", _BUILD, str(root)], **_CAPTURED)
    cached, notice = json.loads(done.stdout)
    return ArtifactRef("fit", NAME, cached=cached, notice=notice)


def test_a_missing_file_and_a_missing_artifact_are_told_apart(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path)
    with pytest.raises(ArtifactError, match="no such artifact"):
        store.open(ArtifactRef("fit", NAME))
    store.build("fit", NAME, {}, example)
    (store.folder("fit", NAME) / "rows.parquet").unlink()
    rebuilt = _in_fresh_process(tmp_path)
    assert "rows.parquet is missing" in str(rebuilt.notice)


def test_a_failure_leaves_nothing(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path)

    def fails(out: ArtifactWriter) -> None:
        example(out)
        raise RuntimeError("in the middle")

    with pytest.raises(RuntimeError):
        store.build("fit", NAME, {}, fails)
    assert not store.folder("fit", NAME).exists()
    assert list((tmp_path / "tmp").iterdir()) == []
    assert list((tmp_path / "locks").iterdir()) == []


def test_processes_that_race_make_it_once(tmp_path: Path) -> None:
    log = tmp_path / "log"
    command = [sys.executable, "-c", _BUILD_SLOWLY, str(tmp_path / "store"), str(log)]
    racers = [subprocess.Popen(command) for _ in range(4)]
    assert [racer.wait(60) for racer in racers] == [0] * 4
    assert log.read_text() == "made\n"


def test_a_killed_maker_leaves_no_half_artifact_and_no_lock(tmp_path: Path) -> None:
    log = tmp_path / "log"
    store = ArtifactStore(tmp_path / "store")
    victim = subprocess.Popen([sys.executable, "-c", _BUILD_SLOWLY, str(store.root), str(log)])
    while not log.exists():
        time.sleep(0.01)
    victim.kill()
    victim.wait()
    assert not store.folder("fit", NAME).exists()
    store.clean_temporary()
    assert list((store.root / "tmp").iterdir()) == []
    assert not store.build("fit", NAME, {}, example).cached


def test_the_sidecar_is_plain_json_with_checksums(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path)
    store.build("fit", NAME, {}, example)
    sealed = json.loads((store.folder("fit", NAME) / "artifact.json").read_text())
    assert sorted(sealed["sidecar"]["files"]) == ["matrix.parquet", "rows.parquet"]
    assert all(len(checksum) == 64 for checksum in sealed["sidecar"]["files"].values())
