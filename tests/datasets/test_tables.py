from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline_lib.datasets.tables import read_embeddings, read_table
from pipeline_lib.errors import InputError

FRAME = pl.DataFrame(
    {
        "query": ["q1", "q1", "q2"],
        "doc": ["a", "b", "c"],
        "f1": [0.5, 1.5, 2.0],
        "f2": [1, 2, 4],
        "rel": [2, 0, 1],
    }
)


def save(tmp_path, frame, suffix):
    path = tmp_path / f"t{suffix}"
    frame.write_csv(path) if suffix == ".csv" else frame.write_parquet(path)
    return path


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_ranking_table(tmp_path, suffix):
    path = save(tmp_path, FRAME, suffix)
    table = read_table(path, label="rel", query="query", id="doc")
    assert table.features == ("f1", "f2")
    assert table.X.tolist() == [[0.5, 1], [1.5, 2], [2, 4]]
    assert table.y.tolist() == [2, 0, 1] and table.classes == ()
    assert table.qid == ("q1", "q1", "q2") and table.ids == ("a", "b", "c")
    chosen = read_table(path, features=["f2"], label="rel")
    assert chosen.X.tolist() == [[1], [2], [4]]


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_classes_and_tags(tmp_path, suffix):
    frame = pl.DataFrame(
        {
            "x": [1.0, 2, 3],
            "kind": ["NA", "b", "NA"],
            "tags": ["null; nan", "", "NA"],
            "t": [0, 1, 0],
        }
    )
    path = save(tmp_path, frame, suffix)
    table = read_table(path, features=["x"], label="kind", tags="tags")
    assert table.classes == ("NA", "b") and table.y.tolist() == [0, 1, 0]
    assert table.tags == ("NA", "nan", "null")
    assert table.Y.tolist() == [[0, 1, 1], [0, 0, 0], [1, 0, 0]]
    table = read_table(path, features=["x"], tags=["t"])
    assert table.tags == ("t",) and table.Y[:, 0].tolist() == [0, 1, 0]


def test_lists_of_tags_in_parquet(tmp_path):
    frame = pl.DataFrame({"x": [1.0, 2], "tags": [["b", "a"], []]})
    table = read_table(save(tmp_path, frame, ".parquet"), tags="tags")
    assert table.tags == ("a", "b") and table.Y.tolist() == [[1, 1], [0, 0]]


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("a,l\n1,0\n", {"label": "z"}, r":1: no column 'z'; expected one of 'a, l'"),
        ("a,l\n1,0\n,1\n", {"label": "l"}, r":3:1: a missing value in column 'a'"),
        ("a,l\n1,0\nx,1\n", {"label": "l"}, r":3:1: 'x' in column 'a'; expected a finite"),
        ('a,l\n"1",0\n\n"n\nx",1\n', {"label": "l"}, r":4:1: 'n\\nx' in column 'a'"),
        ("a,l\n1,0\nnan,1\n", {"label": "l"}, r":3:1: 'nan' in column 'a'"),
        ("a,l\n1,0\n1\n", {"label": "l"}, r":3: 1 fields; expected 2"),
        ("a,l\n1,0\n1,1,1\n", {"label": "l"}, r":3: 3 fields; expected 2"),
        ("a,a\n1,0\n", {}, r":1:2: column name 'a' stands twice"),
        ("a,l\n1,0.5\n", {"label": "l"}, r"column 'l'\[0\] is 0.5"),
        ("a,q\n1,x\n2,y\n3,x\n", {"query": "q"}, r":4:2: query 'x' comes back"),
        ("a,t\n1,2\n", {"tags": ["t"]}, r":2:2: 2 for tag 't'; expected 0 or 1"),
        ("a,i\n1,x\n2,x\n", {"id": "i"}, "repeats a name"),
        ('a,t\n1,"x\ny"\n2,x;;y\n', {"tags": "t"}, r":4:2: an empty tag in 'x;;y'"),
        ("a,l\n1,0\n", {"label": "l", "features": ["a", "l"]}, "'l' is a feature and something"),
        ("a,l\n1,0\n", {"label": "l", "id": "l"}, "column 'l' is named for two things"),
        ("a,l\n", {"label": "l"}, "no rows below"),
    ],
)
def test_bad_tables_name_the_place(tmp_path, text, options, message):
    path = tmp_path / "t.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        read_table(path, **options)


def test_a_feature_equal_to_the_label_is_a_leak(tmp_path):
    frame = pl.DataFrame({"a": range(8), "copy": [0, 1] * 4, "l": [0, 1] * 4})
    with pytest.raises(InputError, match="feature column 2 equals label column 1"):
        read_table(save(tmp_path, frame, ".csv"), label="l")
    rare = pl.DataFrame({"a": [1, 0, 0, 0], "l": [1, 0, 0, 0]})  # equal by chance, perhaps
    assert read_table(save(tmp_path, rare, ".csv"), label="l").X.shape == (4, 1)


@given(
    rows=st.lists(
        st.tuples(st.floats(allow_nan=False, allow_infinity=False), st.integers(-5, 5)),
        min_size=1,
        max_size=8,
    )
)
def test_what_is_written_is_read_again(rows, tmp_path_factory):
    folder = tmp_path_factory.mktemp("table")
    frame = pl.DataFrame(rows, schema={"x": pl.Float64, "l": pl.Int64}, orient="row")
    frame = frame.with_columns(pl.Series("z", range(len(rows)), dtype=pl.Float64) + 0.25)
    for suffix in (".csv", ".parquet"):
        table = read_table(save(folder, frame, suffix), label="l")
        np.testing.assert_array_equal(table.X, frame.select("x", "z").to_numpy())
        assert table.y.tolist() == frame["l"].to_list()


def test_embeddings_with_labels_or_tags(tmp_path):
    vectors = np.arange(12, dtype=np.float32).reshape(4, 3)
    npy = tmp_path / "e.npy"
    np.save(npy, vectors)
    labels = tmp_path / "labels.txt"
    labels.write_text("cat\ndog\nNA\ncat\n")
    table = read_embeddings(npy, labels=labels)
    assert table.X.dtype == np.float32 and table.classes == ("NA", "cat", "dog")
    assert table.y.tolist() == [1, 2, 0, 1]
    labels.write_text("3\n1\n1\n2\n")
    assert read_embeddings(npy, labels=labels).y.tolist() == [3, 1, 1, 2]
    tags = tmp_path / "tags.txt"
    tags.write_text("red;cat\n\nnull\nred\n")
    table = read_embeddings(npy, tags=tags)
    assert table.tags == ("cat", "null", "red") and table.Y.sum(axis=1).tolist() == [2, 0, 1, 1]
    csv = tmp_path / "tags.csv"
    csv.write_text("image,tags\na,x\nb,\nc,y\nd,x;y\n")
    table = read_embeddings(npy, tags=csv)
    assert table.ids == ("a", "b", "c", "d") and table.Y.tolist() == [
        [1, 0],
        [0, 0],
        [0, 1],
        [1, 1],
    ]
    npz = tmp_path / "e.npz"
    np.savez(npz, X=vectors, y=[0, 1, 1, 0])
    assert read_embeddings(npz).y.tolist() == [0, 1, 1, 0]
    labels.write_text("1\n2\n")
    with pytest.raises(InputError, match=r"labels\.txt: 2 labels; expected 4"):
        read_embeddings(npy, labels=labels)
    labels.write_text("1\n\n2\n3\n")
    with pytest.raises(InputError, match=":2: blank line"):
        read_embeddings(npy, labels=labels)
