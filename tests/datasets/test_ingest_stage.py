"""The ingest stage: what names an artifact of generated data, and what of raw data."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline_lib import fingerprints
from pipeline_lib.artifacts import ArtifactStore
from pipeline_lib.datasets import catalogue, rawfiles
from pipeline_lib.datasets.generators import two_moons
from pipeline_lib.datasets.own import declare
from pipeline_lib.stages import content_digest, load_data, run_ingest


def test_generated_data_follow_the_seed(tmp_path):
    store = ArtifactStore(tmp_path)
    refs = [run_ingest(tmp_path, "two-moons", "all", False, seed) for seed in (0, 3, 3)]
    assert refs[0].fingerprint != refs[1].fingerprint == refs[2].fingerprint
    assert [ref.cached for ref in refs] == [False, False, True]
    for ref, seed in zip(refs, (0, 3)):
        np.testing.assert_array_equal(load_data(store, ref).X, two_moons(seed=seed).X)
    assert content_digest(store, refs[0]) != content_digest(store, refs[1])


@pytest.mark.parametrize(
    ("maker", "dataset", "part"),
    [
        ("pipeline_lib.datasets.generators", "three-rings", "all"),
        ("pipeline_lib.datasets.digits", "digits", "ltr/test"),
        ("pipeline_lib.seeds", "lowrank-tags", "all"),
    ],
)
def test_an_edited_maker_makes_its_artifact_stale(maker, dataset, part, tmp_path, monkeypatch):
    before = run_ingest(tmp_path, dataset, part, False)
    assert run_ingest(tmp_path, dataset, part, False).cached
    real = fingerprints._source_digest
    monkeypatch.setattr(
        fingerprints, "_source_digest", lambda name: "edited" if name == maker else real(name)
    )
    fingerprints.code_digest.cache_clear()
    after = run_ingest(tmp_path, dataset, part, False)
    fingerprints.code_digest.cache_clear()
    assert not after.cached and after.fingerprint != before.fingerprint
    # The same values from other code: nothing else has to be computed again.
    store = ArtifactStore(tmp_path)
    assert content_digest(store, after) == content_digest(store, before)


def test_what_is_read_from_files_does_not_depend_on_the_seed(tmp_path, monkeypatch):
    monkeypatch.setenv("AFFINITY_DATA", "")
    monkeypatch.setattr(rawfiles, "raw_root", lambda: tmp_path / "root")
    (tmp_path / "own.csv").write_text("x,kind\n1,a\n2,b\n")
    declare("own", tmp_path / "own.csv", label="kind", root=tmp_path / "root")
    first = run_ingest(tmp_path / "store", "own", "all", False, 1)
    assert run_ingest(tmp_path / "store", "own", "all", False, 2).fingerprint == first.fingerprint
    (tmp_path / "own.csv").write_text("x,kind\n1,a\n3,b\n")
    assert run_ingest(tmp_path / "store", "own", "all", False, 1).fingerprint != first.fingerprint
    catalogue.forget_declarations()
