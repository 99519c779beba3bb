from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from pipeline_lib.datasets import catalogue, rawfiles
from pipeline_lib.datasets.acquire import load, source_digest
from pipeline_lib.datasets.description import describe
from pipeline_lib.datasets.own import declare
from pipeline_lib.datasets.pictures import write_pgm
from pipeline_lib.errors import InputError
from pipeline_lib.stages import run_ingest


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("AFFINITY_DATA", "")
    monkeypatch.setattr(rawfiles, "raw_root", lambda: tmp_path / "root")
    catalogue.forget_declarations()
    yield tmp_path / "root"
    catalogue.forget_declarations()


def test_csv_with_queries_in_parts(root, tmp_path):
    paths = {part: tmp_path / f"{part}.csv" for part in ("train", "vali", "test")}
    for path in paths.values():
        path.write_text("q,doc,bm25,rel\n7,a,1.5,2\n7,b,0.5,0\n9,c,1,1\n")
    written = declare("shop", paths, label="rel", query="q", id="doc", root=root)
    assert written == root / "catalogue" / "shop.toml"
    assert "shop" in catalogue.names()
    data = load("shop", "fold1/test")
    assert data.X.tolist() == [[1.5], [0.5], [1]] and data.y.tolist() == [2, 0, 1]
    assert data.qid.tolist() == [7, 7, 9] and data.ids.tolist() == ["a", "b", "c"]
    with pytest.raises(InputError, match=r"unknown part of shop .fold1/all."):
        load("shop", "fold1/all")
    del paths["vali"]
    with pytest.raises(
        InputError, match="fold1 of a ranking has no part vali; expected train, vali"
    ):
        declare("shop", paths, label="rel", query="q", id="doc", root=root, replace=True)
    assert load("shop", "fold1/test").ids.tolist() == ["a", "b", "c"]  # the earlier one stands


def test_queries_in_one_file_are_dealt_to_folds(root, tmp_path):
    path = tmp_path / "clicks.csv"
    rows = [f"q{i // 3},{i},{i % 3}\n" for i in range(30)]
    path.write_text("query,x,rel\n" + "".join(rows))
    declare("clicks", path, label="rel", query="query", root=root)
    names = catalogue.dataset_spec("clicks").part_names()
    assert names[:4] == ["all", "fold1/train", "fold1/vali", "fold1/test"] and len(names) == 16
    tested = []
    for fold in range(1, 6):
        parts = {role: load("clicks", f"fold{fold}/{role}") for role in ("train", "vali", "test")}
        rows_of = {role: set(data.X[:, 0].tolist()) for role, data in parts.items()}
        assert set.union(*rows_of.values()) == set(range(30))
        assert [len(rows_of[role]) for role in rows_of] == [18, 6, 6]
        for data in parts.values():  # whole queries, in the order of the file
            assert np.all(np.diff(data.X[:, 0]) > 0)
            assert data.y.tolist() == [0, 1, 2] * (len(data) // 3)
        tested += rows_of["test"]
    assert sorted(tested) == list(range(30))
    path.write_text("query,x,rel\n" + "".join(rows[:-1]))
    with pytest.raises(InputError, match=r"was drawn for 30 rows, the data have 29; add the data"):
        load("clicks", "fold1/train")
    path.write_text("query,x,rel\n" + "".join(rows[:6]))
    with pytest.raises(InputError, match="2 queries in 5 folds; expected at least three of both"):
        declare("two", path, label="rel", query="query", root=root)
    assert "two" not in catalogue.names() and len(list((root / "catalogue").iterdir())) == 2


def test_classes_and_tags_are_numbered_alike_in_all_parts(root, tmp_path):
    (tmp_path / "train.csv").write_text("x,kind,tags\n1,dog,a;c\n2,cat,a\n4,dog,\n")
    (tmp_path / "test.csv").write_text("x,kind,tags\n3,dog,b\n5,eel,c;b\n")
    paths = {part: tmp_path / f"{part}.csv" for part in ("train", "test")}
    declare("pets", paths, label="kind", features=["x"], root=root)
    assert load("pets", "train").y.tolist() == [1, 0, 1]
    assert load("pets", "test").y.tolist() == [1, 2]
    assert load("pets", "test").info["classes"] == ["cat", "dog", "eel"]
    declare("tagged", paths, tags="tags", features=["x"], root=root)
    assert load("tagged", "train").tags == load("tagged", "test").tags == ("a", "b", "c")
    assert load("tagged", "test").Y.tolist() == [[0, 1, 0], [0, 1, 1]]
    (tmp_path / "test.csv").write_text("x,kind,tags\n3,7,b\n5,8,c;b\n")
    with pytest.raises(InputError, match="labels are text in one part, numbers in the other"):
        declare("mixed", paths, label="kind", features=["x"], root=root)
    (tmp_path / "test.csv").write_text("z,kind\n3,cat\n")
    (tmp_path / "train.csv").write_text("x,kind\n3,cat\n")
    with pytest.raises(InputError, match="the parts differ in feature 'z'"):
        declare("mixed", paths, label="kind", root=root)


def test_sparse_text_has_one_width_in_all_parts(root, tmp_path):
    (tmp_path / "a.txt").write_text("1 1:0.5 3:2\n2 1:1\n")
    (tmp_path / "b.txt").write_text("1 2:1\n2 1:1\n")
    declare("sparse", {"a": tmp_path / "a.txt", "b": tmp_path / "b.txt"}, root=root)
    assert load("sparse", "b").X.tolist() == [[0, 1, 0], [1, 0, 0]]
    for role, width in (("train", 3), ("vali", 2), ("test", 1)):
        (tmp_path / f"{role}.txt").write_text(f"1 qid:1 1:2 {width}:1\n".replace("1:2 1:1", "1:1"))
    declare("rank", {r: tmp_path / f"{r}.txt" for r in ("train", "vali", "test")}, root=root)
    assert load("rank", "fold1/test").X.tolist() == [[1, 0, 0]]


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
    lines = [f"{i % 2} qid:{i // 2} 1:0.{i} 2:{i}\n" for i in range(6)]
    (tmp_path / "train.txt").write_text("".join(lines))
    declare("ranking", tmp_path / "train.txt", root=root)
    assert load("ranking").X[:3].tolist() == [[0, 0], [0.1, 1], [0.2, 2]]
    assert len(load("ranking", "fold3/train")) == 2
    with pytest.raises(InputError, match=r"label does not go with a \.txt file"):
        declare("other", tmp_path / "train.txt", label="x", root=root)


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
        declare("mixed", {"a": tmp_path / "x.parquet", "b": tmp_path / "x.npy"}, root=root)
    with pytest.raises(InputError, match="neither labels nor tags: there is nothing to score by"):
        declare("bare", tmp_path / "x.npy", root=root)
    with pytest.raises(InputError, match="part name 'A B'"):
        declare("named", {"A B": tmp_path / "x.npy"}, root=root)
    assert not [path for path in (root / "catalogue").iterdir() if path.name != "good.toml"]


def test_descriptors_are_kept_until_the_data_are_taken_in(root, tmp_path, monkeypatch):
    pytest.importorskip("skimage")
    from pipeline_lib.features import image_descriptors

    (tmp_path / "p").mkdir()
    for i in range(4):
        write_pgm(tmp_path / "p" / f"{i}.pgm", np.random.default_rng(i).integers(255, size=(9, 8)))
    (tmp_path / "p" / "tags.csv").write_text("picture,tags\n0,a\n1,b\n2,a\n3,b\n")
    described = []
    real = image_descriptors.DESCRIPTORS["lbp"]
    monkeypatch.setitem(
        image_descriptors.DESCRIPTORS, "lbp", lambda p: (described.append(1), real(p))[1]
    )
    store = tmp_path / "store"
    declare(
        "kept",
        tmp_path / "p",
        tags="tags.csv",
        descriptor="lbp",
        root=root,
        scratch=store / "pictures",
    )
    assert len(described) == 4
    run_ingest(store, "kept", "all", False)
    assert len(described) == 4 and not list((store / "pictures").iterdir())
    declare(
        "kept",
        tmp_path / "p",
        tags="tags.csv",
        descriptor="lbp",
        root=root,
        scratch=store / "pictures",
        replace=True,
    )
    write_pgm(tmp_path / "p" / "0.pgm", np.full((9, 9), 7))
    run_ingest(store, "kept", "all", False)  # blocks of other pictures are not used
    assert len(described) == 12


def test_a_descriptor_that_tells_no_picture_apart_is_refused(root, tmp_path):
    pytest.importorskip("skimage")
    (tmp_path / "p").mkdir()
    for i in range(3):
        write_pgm(tmp_path / "p" / f"{i}.pgm", np.full((9, 8), 10 + i))
    (tmp_path / "p" / "tags.csv").write_text("picture,tags\n0,a\n1,b\n2,a\n")
    with pytest.raises(InputError, match="colour-histogram of all 3 pictures is the same"):
        declare("flat", tmp_path / "p", tags="tags.csv", root=root)
