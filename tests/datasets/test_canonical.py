"""Canonical Parquet: round trips, the layout's promises, whole files or none."""

from __future__ import annotations

import json
from itertools import pairwise

import numpy as np
import polars as pl
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline_lib.datasets.canonical import (
    METADATA_KEY,
    CanonicalWriter,
    Layout,
    RawTable,
    Rows,
    canonical_info,
    iter_canonical,
    query_codes,
    read_canonical,
    write_canonical,
)
from pipeline_lib.errors import InputError

LTR = Layout("ltr", ("1", "2"), has_y=True, has_id=True)


def ltr_rows(start: int, stop: int) -> Rows:
    at = np.arange(start, stop)
    return Rows(
        X=np.column_stack([at * 0.5, -at.astype(float)]),
        y=(at % 3).astype(np.int32),
        qid=[str(value // 4) for value in at],
        ids=[None if value % 2 else f"d{value}" for value in at],
    )


def write_blocks(path, layout, blocks, **provenance):
    return write_canonical(path, RawTable(layout, blocks), provenance)


def test_blocks_become_one_table_in_order(tmp_path):
    path = tmp_path / "folder" / "part.parquet"
    blocks = [ltr_rows(0, 7), ltr_rows(7, 7), ltr_rows(7, 20)]
    info = write_blocks(path, LTR, blocks, name="own", part="train")
    data = read_canonical(path)
    np.testing.assert_array_equal(data.X, ltr_rows(0, 20).X)
    np.testing.assert_array_equal(data.y, np.arange(20) % 3)
    np.testing.assert_array_equal(data.qid, np.arange(20) // 4)
    assert data.ids.tolist() == ltr_rows(0, 20).ids
    assert (data.name, data.part, len(data)) == ("own", "train", 20)
    assert info["counts"] == {
        "rows": 20,
        "features": 2,
        "minimum": -19.0,
        "maximum": 9.5,
        "density": 0.95,
        "queries": 5,  # one of them spans two blocks
        "labels": {"0": 7, "1": 7, "2": 6},
    }
    assert data.info == info == canonical_info(path)


def test_blocks_read_one_by_one_agree_with_the_whole(tmp_path, monkeypatch):
    monkeypatch.setattr("pipeline_lib.datasets.canonical.CELLS_PER_ROW_GROUP", 1)  # 1,024 rows
    path = tmp_path / "part.parquet"
    write_blocks(path, LTR, [ltr_rows(0, 700), ltr_rows(700, 2500)])
    whole, blocks = read_canonical(path), list(iter_canonical(path))
    assert [len(block) for block in blocks] == [1024, 1024, 452]
    for name in ("X", "y", "qid", "ids"):
        joined = np.concatenate([getattr(block, name) for block in blocks])
        np.testing.assert_array_equal(joined, getattr(whole, name))


def test_the_file_does_not_depend_on_the_blocks(tmp_path, monkeypatch):
    monkeypatch.setattr("pipeline_lib.datasets.canonical.CELLS_PER_ROW_GROUP", 1)
    files = []
    for step in (100, 1024, 5000):
        path = tmp_path / f"{step}.parquet"
        bounds = [*range(0, 5000, step), 5000]
        blocks = [ltr_rows(start, stop) for start, stop in pairwise(bounds)]
        write_blocks(path, LTR, blocks)
        files.append(path.read_bytes())
    assert files[0] == files[1] == files[2]


def test_schema_is_what_the_readme_says(tmp_path):
    path = tmp_path / "part.parquet"
    write_blocks(path, LTR, [ltr_rows(0, 3)])
    frame = pl.read_parquet(path)
    assert frame.schema == {
        "id": pl.String,
        "qid": pl.String,
        "y": pl.Int32,
        "x:1": pl.Float64,
        "x:2": pl.Float64,
    }
    tags = Layout("tags", ("a",), "float32", tags=("null", "sky"), has_id=True)
    rows = Rows(X=np.ones((2, 1)), ids=["i", "j"], Y=np.eye(2, dtype=np.uint8))
    write_blocks(path, tags, [rows])
    frame = pl.read_parquet(path)
    assert frame.columns == ["id", "x:a", "tag:null", "tag:sky"]
    assert frame.dtypes == [pl.String, pl.Float32, pl.UInt8, pl.UInt8]


def test_tags_without_features_and_images_without_tags(tmp_path):
    path = tmp_path / "part.parquet"
    layout = Layout("tags", tags=("NA", "null", "nan"), has_id=True)
    Y = np.array([[1, 0, 1], [0, 0, 0]], np.uint8)
    write_blocks(path, layout, [Rows(ids=["a", "b"], Y=Y)])
    data = read_canonical(path)
    assert data.X is None and data.y is None and data.qid is None
    assert data.tags == ("NA", "null", "nan")
    np.testing.assert_array_equal(data.Y, Y)
    assert data.Y.dtype == np.uint8


def test_float32_and_class_names(tmp_path):
    path = tmp_path / "part.parquet"
    layout = Layout("matrix", ("p",), "float32", has_y=True, classes=("cat", "dog"))
    X = np.random.default_rng(0).random((5, 1)).astype(np.float32)
    write_blocks(path, layout, [Rows(X=X, y=np.array([0, 1, 1, 0, 1]))])
    data = read_canonical(path)
    assert data.X.dtype == np.float32
    np.testing.assert_array_equal(data.X, X)
    assert data.info["classes"] == ["cat", "dog"]
    assert data.ids is None


def test_a_failure_leaves_nothing_behind(tmp_path):
    path = tmp_path / "part.parquet"
    write_blocks(path, LTR, [ltr_rows(0, 3)])
    before = path.read_bytes()

    def failing():
        yield ltr_rows(0, 5)
        raise InputError("bad line")

    with pytest.raises(InputError, match="bad line"):
        write_blocks(path, LTR, failing())
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]
    with CanonicalWriter(tmp_path / "other.parquet", LTR) as writer:
        writer.write(ltr_rows(0, 3))
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    "rows, message",
    [
        (Rows(X=np.array([[1, np.nan]]), y=[0], qid=["1"], ids=["a"]), "row 1, feature '2' is nan"),
        (Rows(X=np.array([[np.inf, 1]]), y=[0], qid=["1"], ids=["a"]), "feature '1' is inf"),
        (Rows(X=np.ones((1, 3)), y=[0], qid=["1"], ids=["a"]), r"shape \(1, 3\)"),
        (Rows(X=np.ones((1, 2)), y=[0], ids=["a"]), "no column 'qid'"),
        (Rows(X=np.ones((1, 2)), y=np.array([2**40]), qid=["1"], ids=["a"]), "column 'y'"),
        (Rows(X=np.ones((1, 2)), y=np.array([0.5]), qid=["1"], ids=["a"]), "column 'y'"),
        (Rows(X=np.ones((1, 2)), y=[0, 1], qid=["1"], ids=["a"]), "column 'y' has 2"),
    ],
)
def test_rows_that_do_not_fit(tmp_path, rows, message):
    with pytest.raises(InputError, match=message):
        write_blocks(tmp_path / "part.parquet", LTR, [rows])
    assert not list(tmp_path.iterdir())


def test_tags_must_be_binary(tmp_path):
    layout = Layout("tags", tags=("a",), has_id=True)
    with pytest.raises(InputError, match="value 2"):
        write_blocks(tmp_path / "t", layout, [Rows(ids=["i"], Y=np.array([[2]], np.uint8))])


@pytest.mark.parametrize(
    "fields, message",
    [
        ({"kind": "ltr", "features": ("a",)}, "needs labels"),
        ({"kind": "matrix"}, "needs features"),
        ({"kind": "tags", "tags": ("a",)}, "row identifiers"),
        ({"kind": "matrix", "features": ("a",), "tags": ("b",)}, "no tags"),
        ({"kind": "matrix", "features": ("a", "b", "a")}, "'a' stands 2 times"),
        ({"kind": "tags", "tags": ("a", "a"), "has_id": True}, "'a' stands 2 times"),
    ],
)
def test_layouts_that_contradict_themselves(fields, message):
    with pytest.raises(InputError, match=message):
        Layout(**fields)


def test_other_files_are_refused(tmp_path):
    path = tmp_path / "part.parquet"
    path.write_bytes(b"PAR1 no")
    with pytest.raises(InputError, match="cannot be read as Parquet"):
        read_canonical(path)
    pl.DataFrame({"a": [1]}).write_parquet(path)
    with pytest.raises(InputError, match="no canonical metadata"):
        read_canonical(path)
    table = pq.read_table(path)
    table = table.replace_schema_metadata({METADATA_KEY: json.dumps({"version": 2})})
    pq.write_table(table, path)
    with pytest.raises(InputError, match=r"layout version 2.*expected version 1"):
        read_canonical(path)


def test_query_codes():
    assert query_codes(["12", "12", "3"]).tolist() == [12, 12, 3]
    wide = [str(2**53), str(2**53 + 1), str(2**63 - 1)]
    assert query_codes(wide).tolist() == [int(text) for text in wide]
    for odd in ("007", "+7", "x", str(2**63), "7.0", ""):
        assert query_codes(["7", odd, "7", "b"]).tolist() == [0, 1, 0, 2]


@settings(deadline=None, max_examples=100)
@given(
    st.lists(st.integers(-(2**70), 2**70).map(str) | st.text(max_size=3), min_size=1, max_size=20)
)
def test_query_codes_are_equal_exactly_where_texts_are(texts):
    codes = query_codes(texts)
    assert codes.dtype == np.int64
    equal = codes[:, None] == codes
    assert (equal == (np.array(texts, object)[:, None] == np.array(texts, object))).all()
