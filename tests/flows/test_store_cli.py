"""``affinity store``: output and exit status."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
from typer.testing import CliRunner

from flows.store_cli import store_app
from pipeline_lib.artifacts import ArtifactStore

runner = CliRunner()


def test_gc_and_verify(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path / "store")
    store.build("fit", "aa", {}, lambda out: out.table("t", pl.DataFrame({"x": [1]})))
    home = ["--home", str(tmp_path)]

    verified = runner.invoke(store_app, ["verify", *home])
    assert verified.exit_code == 0
    assert verified.output.startswith("1 artifacts (") and "all sound" in verified.output
    (store.folder("fit", "aa") / "t.parquet").write_bytes(b"")
    damaged = runner.invoke(store_app, ["verify", "--json", *home])
    assert damaged.exit_code == 1
    assert json.loads(damaged.output)["sound"] is False

    planned = runner.invoke(store_app, ["gc", "--dry-run", *home])
    assert planned.exit_code == 0
    assert planned.output.splitlines()[0] == "fit/aa"
    assert "1 artifacts would be removed" in planned.output
    done = json.loads(runner.invoke(store_app, ["gc", "--json", *home]).output)
    assert done["removed"] == ["fit/aa"] and done["kept"] == 0
    assert "0 artifacts removed" in runner.invoke(store_app, ["gc", *home]).output
