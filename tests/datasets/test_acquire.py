"""From names to data: search, checks against the declaration, import, and the real MQ2008 files."""

from __future__ import annotations

import hashlib
import os
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
import scipy.io

from pipeline_lib.datasets import acquire, catalogue, rawfiles
from pipeline_lib.datasets.canonical import canonical_info, read_canonical
from pipeline_lib.datasets.description import describe
from pipeline_lib.errors import DataMissingError, InputError

DECLARATION = """
name = "own"
title = "Own queries"
kind = "ltr"
licence = "none"
homepage = "https://example.org/own"
sources = [{ url = "https://example.org/own.zip" }]
citation = "c"
folders = ["letor/Own", "Own"]
[reader]
format = "letor"
options = { base = 1, width = 3 }
[aliases]
"vali.txt" = ["valid.txt"]
[[versions]]
name = "null"
title = "with NULL"
folders = ["letor/Own-null", "Own-null"]
[[parts]]
name = "fold1/train"
files = [{ name = "Fold1/train.txt" }]
expect = { rows = 3, queries = 2, features = 3, labels = { 0 = 2, 1 = 1 }, minimum = 0, maximum = 1 }
[[parts]]
name = "fold1/vali"
files = [{ name = "Fold1/vali.txt" }]
expect = { rows = 2, queries = 1, maximum = 1 }
[[parts.variants]]
name = "first-row"
note = "one row only"
expect = { rows = 1 }
"""
TRAIN = b"1 qid:1 1:1 2:0.5\n0 qid:1 3:0.25\n0 qid:2 1:0\n"
VALI = b"1 qid:3 1:1\n0 qid:3 1:0\n"


@pytest.fixture
def own(tmp_path, monkeypatch):
    """A catalogue with one dataset, an empty data root in $AFFINITY_DATA, and an empty raw root."""
    (tmp_path / "catalogue").mkdir()
    (tmp_path / "catalogue" / "own.toml").write_text(DECLARATION)
    monkeypatch.setattr(catalogue, "catalogue_dir", lambda: tmp_path / "catalogue")
    for module in (acquire, rawfiles):
        monkeypatch.setattr(module, "raw_root", lambda: tmp_path / "raw")
    root = tmp_path / "root"
    root.mkdir()
    monkeypatch.setenv("AFFINITY_DATA", f"{tmp_path / 'nowhere'}{os.pathsep}{root}")
    return root


def put(folder: Path, **files: bytes) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name.replace("_", ".")).write_bytes(content)


def test_missing_files_name_address_files_and_command(own, tmp_path):
    with pytest.raises(DataMissingError) as caught:
        acquire.locate("own", "fold1/train")
    sentence = str(caught.value)
    for piece in (
        "Fold1/train.txt not found",
        str(own),
        str(tmp_path / "raw"),
        "https://example.org/own.zip",
        "affinity data import own PATH",
    ):
        assert piece in sentence
    assert "\n" not in sentence


def test_search_order_case_aliases(own, tmp_path):
    put(own / "OWN" / "fold1", TRAIN_TXT=TRAIN, valid_txt=VALI)
    assert acquire.locate("own", "fold1/train") == [own / "OWN" / "fold1" / "TRAIN.TXT"]
    info = acquire.ingest("own", "fold1/vali", tmp_path / "out")
    assert info["findings"]["hints"] == ["Fold1/valid.txt was taken for Fold1/vali.txt"]
    # The first declared folder of a root is preferred, and exact names to others.
    put(own / "letor" / "Own" / "Fold1", train_txt=TRAIN, Train_txt=b"")
    assert acquire.locate("own")[0] == own / "letor" / "Own" / "Fold1" / "train.txt"


def test_ingest_checks_and_records(own, tmp_path):
    put(own / "Own" / "Fold1", train_txt=TRAIN, vali_txt=VALI)
    info = acquire.ingest("own", "fold1/train", tmp_path / "out")
    assert info == canonical_info(tmp_path / "out" / "data.parquet")
    assert (info["variant"], info["mismatch"]) == ("official", [])
    assert info["sources"] == {"Fold1/train.txt": hashlib.sha256(TRAIN).hexdigest()}
    assert info["sources"] == acquire.source_digest("own", "fold1/train")
    assert info["reader"] == {"format": "letor", "options": {"base": 1, "width": 3}}
    data = read_canonical(tmp_path / "out" / "data.parquet")
    np.testing.assert_array_equal(data.X, [[1, 0.5, 0], [0, 0, 0.25], [0, 0, 0]])
    loaded = acquire.load("own", "fold1/train")
    np.testing.assert_array_equal(loaded.X, data.X)
    assert loaded.info == info


def test_what_differs_stops_unless_allowed(own, tmp_path):
    put(own / "Own" / "Fold1", train_txt=TRAIN.replace(b"0.25", b"25") + b"0 qid:4 1:0\n")
    with pytest.raises(InputError) as caught:
        acquire.ingest("own", "fold1/train", tmp_path / "out")
    for piece in (
        "rows: 4 found, 3 declared",
        "queries: 3 found, 2 declared",
        "rows with label 0: 3 found, 2 declared",
        "largest feature value: 25 found, at most 1 declared",
        "--allow-mismatch",
    ):
        assert piece in str(caught.value)
    assert not list((tmp_path / "out").iterdir())
    info = acquire.ingest("own", "fold1/train", tmp_path / "out", allow_mismatch=True)
    assert len(info["mismatch"]) == 4
    assert (
        acquire.load("own", "fold1/train", allow_mismatch=True).info["mismatch"] == info["mismatch"]
    )


def test_variants_and_versions(own, tmp_path):
    put(own / "Own" / "Fold1", vali_txt=VALI[:12])
    info = acquire.ingest("own", "fold1/vali", tmp_path / "out")
    assert (info["variant"], info["variant_note"]) == ("first-row", "one row only")
    put(own / "Own-null" / "Fold1", train_txt=TRAIN.replace(b"2:0.5", b"2:NULL 3:-7"))
    info = acquire.ingest("own", "null/fold1/train", tmp_path / "out")
    assert info["findings"]["null_values"] == 1
    assert info["counts"]["minimum"] == -7


def test_a_changed_file_gets_a_new_digest(own):
    put(own / "Own" / "Fold1", train_txt=TRAIN)
    before = acquire.source_digest("own", "fold1/train")
    put(own / "Own" / "Fold1", train_txt=TRAIN + b"\n")
    assert acquire.source_digest("own", "fold1/train") != before


def test_status(own):
    put(own / "Own" / "Fold1", train_txt=TRAIN)
    rows = {row["part"]: row for row in acquire.status()}
    assert list(rows) == ["fold1/train", "fold1/vali", "null/fold1/train", "null/fold1/vali"]
    assert rows["fold1/train"]["state"] == "found"
    assert rows["fold1/train"]["bytes"] == len(TRAIN)
    assert rows["fold1/train"]["path"] == str(own / "Own")
    assert rows["fold1/vali"]["state"] == "missing"
    assert rows["fold1/vali"]["missing"] == ["Fold1/vali.txt"]


@pytest.mark.parametrize("inside", ["", "Own", "letor/Own", "anything", "download/deep/Own"])
def test_import_finds_the_release_wherever_it_is(own, tmp_path, inside):
    source = tmp_path / "downloads"
    put(source / inside / "Fold1", train_txt=TRAIN, valid_txt=VALI)
    given = source / inside if inside in ("anything", "download/deep/Own") else source
    lines = acquire.import_files("own", given)
    assert [line.split(":")[0] for line in lines] == ["own fold1/train", "own fold1/vali"]
    assert "2 rows (official; Fold1/valid.txt was taken for Fold1/vali.txt)" in lines[1]
    target = tmp_path / "raw" / "letor" / "Own" / "Fold1"
    assert (target / "train.txt").read_bytes() == TRAIN
    assert acquire.locate("own", "fold1/train") == [target / "train.txt"]
    assert len(acquire.import_files("own", tmp_path / "raw")) == 2  # onto itself: nothing to do


def test_import_of_a_version_by_its_folder(own, tmp_path):
    put(tmp_path / "Own-null" / "Fold1", train_txt=TRAIN.replace(b"0.5", b"50"))
    lines = acquire.import_files("own", tmp_path / "Own-null")
    assert lines == ["own null/fold1/train: 3 rows (official)"]
    assert (tmp_path / "raw" / "letor" / "Own-null" / "Fold1" / "train.txt").exists()


@pytest.mark.parametrize("kind", ["zip", "tar.gz"])
def test_import_of_an_archive(own, tmp_path, kind):
    put(tmp_path / "a" / "Own" / "Fold1", train_txt=TRAIN)
    archive = tmp_path / f"download.{kind}"
    if kind == "zip":
        with zipfile.ZipFile(archive, "w") as file:
            file.write(tmp_path / "a" / "Own" / "Fold1" / "train.txt", "Own/Fold1/train.txt")
    else:
        with tarfile.open(archive, "w:gz") as file:
            file.add(tmp_path / "a" / "Own", "Own")
    assert acquire.import_files("own", archive) == ["own fold1/train: 3 rows (official)"]
    assert sorted(path.name for path in (tmp_path / "raw").iterdir()) == ["letor"]


def test_import_of_one_file_by_its_name(tmp_path):
    named, target = tmp_path / "ORL_32x32.mat", tmp_path / "raw"
    images = np.random.default_rng(0).integers(0, 256, size=(4, 1024))
    scipy.io.savemat(named, {"fea": images.astype(np.uint8), "gnd": [[1], [1], [2], [2]]})
    (line,) = acquire.import_files("orl", named, target, allow_mismatch=True)
    assert line.startswith("orl all: 4 rows")
    (taken,) = target.rglob("*.mat")
    assert taken.read_bytes() == named.read_bytes() and not taken.is_symlink()
    with pytest.raises(InputError, match="is not an archive"):
        acquire.import_files("orl", named.rename(tmp_path / "other.mat"), target)


def test_a_bad_import_writes_nothing(own, tmp_path):
    put(tmp_path / "a" / "Fold1", train_txt=TRAIN, vali_txt=VALI + b"0 qid:9 1:1\n")
    with pytest.raises(InputError, match=r"fold1/vali differs .* rows: 3 found, 2 declared"):
        acquire.import_files("own", tmp_path / "a")
    put(tmp_path / "a" / "Fold1", vali_txt=VALI + b"broken\n")
    with pytest.raises(InputError, match=r"vali.txt:3:1: bad label 'broken'"):
        acquire.import_files("own", tmp_path / "a")
    assert not (tmp_path / "raw").exists()
    put(tmp_path / "a" / "Fold1", vali_txt=VALI + b"0 qid:9 1:1\n")
    lines = acquire.import_files("own", tmp_path / "a", allow_mismatch=True)
    assert "rows: 3 found, 2 declared" in lines[1]


def test_imports_that_hold_nothing(own, tmp_path):
    with pytest.raises(InputError, match=r"no part of own found; expected Fold1/train.txt"):
        acquire.import_files("own", own)
    with pytest.raises(InputError, match="no such file or folder"):
        acquire.import_files("own", tmp_path / "none")
    (tmp_path / "own.rar").write_bytes(b"Rar!")
    with pytest.raises(InputError, match="unpack it"):
        acquire.import_files("own", tmp_path / "own.rar")


def test_built_in_data_need_no_files():
    assert acquire.locate("digits") == []
    digests = acquire.source_digest("digits", "ltr/train")
    assert digests != acquire.source_digest("digits", "ltr/test")
    assert digests != acquire.source_digest("digits", "ltr/train", seed=1)
    facts = describe("digits", "ltr/test")
    assert facts["queries"] == 30
    assert facts["documents per query"]["median"] == 40
    assert facts["queries without a relevant document"] == 0
    facts = describe("digits", "tags/all")
    assert facts["tags per image"]["min"] == 3
    assert facts["most common tags"]["no loop"] > 900


# --- the real files, where they are

REAL = {
    "fold1/train": (9630, 471, "placeholder-ids"),
    "fold1/vali": (1000, 69, "first-1000"),
    "fold1/test": (2874, 156, "official"),
}


@pytest.mark.parametrize("part", REAL)
def test_mq2008(part):
    try:
        acquire.locate("mq2008", part)
    except DataMissingError as error:
        pytest.skip(f"raw files are not here: {error}")
    rows, queries, variant = REAL[part]
    data = acquire.load("mq2008", part)
    if data.info["variant"] != variant:
        pytest.skip(f"another copy of the files: {data.info['variant']}")
    assert data.X.shape == (rows, 46)
    assert len(np.unique(data.qid)) == queries == describe("mq2008", part)["queries"]
    assert set(data.y.tolist()) == {0, 1, 2}
    assert (data.X.min(), data.X.max()) == (0, 1)
    assert len(set(data.ids)) == rows or part != "fold1/train"
    if part == "fold1/train":
        np.testing.assert_array_equal(data.X[0, :5], [0.007477, 0, 1, 0, 0.00747])
        assert (data.y[0], data.qid[0], data.ids[0]) == (0, 10002, "train-00000")
    if part == "fold1/test":
        assert (data.qid[0], data.ids[0]) == (18219, "GX004-93-7097963")


def test_an_error_inside_an_archive_names_the_archive(own, tmp_path):
    path = tmp_path / "own.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for role in ("train", "vali", "test"):
            archive.writestr(f"Own/Fold1/{role}.txt", "1 qid:1 1:x\n")
    with pytest.raises(InputError) as caught:
        acquire.import_files("own", path)
    assert str(caught.value).startswith(f"{path}/")
    assert "Fold1/train.txt:1:" in str(caught.value) and "import" not in str(caught.value)
