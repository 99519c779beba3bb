from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from pipeline_lib.datasets import catalogue
from pipeline_lib.datasets.acquire import describe, load, source_digest
from pipeline_lib.datasets.own import declare
from pipeline_lib.datasets.pictures import write_pgm
from pipeline_lib.errors import InputError


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("AFFINITY_DATA", str(tmp_path / "root"))
    catalogue._read_declaration.cache_clear()
    yield tmp_path / "root"
    catalogue._read_declaration.cache_clear()


def test_csv_with_queries_in_parts(root, tmp_path):
    for part in ("train", "test"):
        (tmp_path / f"{part}.csv").write_text("q,doc,bm25,rel\n7,a,1.5,2\n7,b,0.5,0\n9,c,1,1\n")
    paths = {part: tmp_path / f"{part}.csv" for part in ("train", "test")}
    written = declare("shop", paths, label="rel", query="q", id="doc", root=root)
    assert written == root / "catalogue" / "shop.toml"
    assert "shop" in catalogue.names()
    data = load("shop", "test")
    assert data.X.tolist() == [[1.5], [0.5], [1]] and data.y.tolist() == [2, 0, 1]
    assert data.qid.tolist() == [7, 7, 9] and data.ids.tolist() == ["a", "b", "c"]
    with pytest.raises(InputError, match=r"unknown part of shop .vali."):
        load("shop", "vali")


def test_csv_with_a_tag_column_and_odd_names(root, tmp_path):
    path = tmp_path / 'my "odd" table.csv'
    path.write_text("image,x,tags\na,1,NA;null\nb,2,\nc,3,nan\n")
    declare("mine", path, id="image", tags="tags", root=root)
    data = load("mine")
    assert data.tags == ("NA", "nan", "null") and data.Y.sum(axis=1).tolist() == [2, 0, 1]
    assert describe("mine")["tags"] == 3


def test_embeddings(root, tmp_path):
    vectors = np.arange(8, dtype=np.float32).reshape(4, 2)
    np.save(tmp_path / "e.npy", vectors)
    (tmp_path / "labels.txt").write_text("cat\ndog\ncat\ndog\n")
    declare("labelled", tmp_path / "e.npy", labels_file=tmp_path / "labels.txt", root=root)
    data = load("labelled")
    assert data.X.dtype == np.float32 and data.y.tolist() == [0, 1, 0, 1]
    assert data.info["classes"] == ["cat", "dog"]
    np.savez(tmp_path / "e.npz", X=vectors, Y=np.eye(4, dtype=np.uint8), ids=list("wxyz"))
    declare("tagged", tmp_path / "e.npz", root=root)
    assert load("tagged").Y.tolist() == np.eye(4).tolist()
    (tmp_path / "tags.txt").write_text("a;b\n\nb\na\n")
    declare("tagged2", tmp_path / "e.npy", tags=tmp_path / "tags.txt", root=root)
    assert load("tagged2").tags == ("a", "b")


def test_picture_folders(root, tmp_path):
    rng = np.random.default_rng(0)
    for kind in ("cat", "dog"):
        (tmp_path / "p" / kind).mkdir(parents=True)
        for i in range(3):
            write_pgm(tmp_path / "p" / kind / f"{i}.pgm", rng.integers(0, 255, (6, 5)))
    (tmp_path / "p" / "cat" / "notes.txt").write_text("not a picture")
    (tmp_path / "p" / "cat" / ".hidden.pgm").write_bytes(b"")
    declare("pets", tmp_path / "p", root=root)
    data = load("pets")
    assert data.X.shape == (6, 30) and data.y.tolist() == [0, 0, 0, 1, 1, 1]
    assert data.info["findings"]["image"] == {"height": 6, "width": 5, "order": "C"}
    pytest.importorskip("skimage")
    (tmp_path / "p" / "tags.csv").write_text("image,tags\ncat/0,soft;NA\ndog/2.pgm,loud\n")
    declare("pets-tags", tmp_path / "p", tags="tags.csv", descriptor="lbp", root=root)
    data = load("pets-tags")
    assert data.X.shape == (6, 59) and data.tags == ("NA", "loud", "soft")
    assert data.ids[0] == "cat/0.pgm" and data.Y.sum() == 3
    assert len(data.info["findings"]["pictures without a row in the tag table"]) == 4
    before = source_digest("pets-tags")
    write_pgm(tmp_path / "p" / "cat" / "1.pgm", rng.integers(0, 255, (6, 7)))
    assert source_digest("pets-tags") != before  # pictures are part of what the data are


def test_letor_text(root, tmp_path):
    (tmp_path / "train.txt").write_text("2 qid:1 1:0.5 2:1\n0 qid:1 1:0.1 2:3\n")
    declare("ranking", tmp_path / "train.txt", root=root)
    assert load("ranking").X.tolist() == [[0.5, 1], [0.1, 3]]


def test_what_cannot_be_read_is_not_declared(root, tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("x,l\n1,0\nq,1\n")
    with pytest.raises(InputError, match="'q' in column 'x'"):
        declare("bad", path, label="l", root=root)
    assert "bad" not in catalogue.names() and not (root / "catalogue" / "bad.toml").exists()
    path.write_text("x,l\n1,0\n2,1\n")
    declare("good", path, label="l", root=root)
    with pytest.raises(InputError, match="exists already"):
        declare("good", path, label="l", root=root)
    path.write_text("x,l\n1,0\n2,oops\n2,1.5\n")
    declare("good", path, label="l", root=root, replace=True)
    assert load("good").info["classes"] == ["0", "1.5", "oops"]
    with pytest.raises(InputError, match="exists already"):
        declare("coil20", path, label="l", root=root)
    with pytest.raises(InputError, match="dataset name 'A b'"):
        declare("A b", path, root=root)
    with pytest.raises(InputError, match="no such file"):
        declare("gone", tmp_path / "gone.csv", root=root)
    frame = pl.DataFrame({"x": [1.0]})
    frame.write_parquet(tmp_path / "x.parquet")
    np.save(tmp_path / "x.npy", np.eye(2))
    with pytest.raises(InputError, match="different formats"):
        declare(
            "mixed", {"a": tmp_path / "x.parquet", "b": tmp_path / "x.npy"}, label="x", root=root
        )
