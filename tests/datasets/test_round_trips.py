"""parse(write(x)) = x for the formats whose own test files do not say it.

Written here by others' libraries or byte by byte, so that reader and writer do not share a mistake.
"""

from __future__ import annotations

import csv
import io
import zipfile
from xml.sax.saxutils import quoteattr

import numpy as np
import polars as pl
import pytest
import scipy.io
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from pipeline_lib.datasets.arff import read_label_names
from pipeline_lib.datasets.canonical import read_canonical, write_canonical
from pipeline_lib.datasets.container import Dataset
from pipeline_lib.datasets.espgame import read_esp
from pipeline_lib.datasets.hdf5 import read_hdf5
from pipeline_lib.datasets.mirflickr import read_annotations
from pipeline_lib.datasets.mirflickr import read_tags as read_flickr_tags
from pipeline_lib.datasets.nuswide import read_concept_csv, read_ground_truth, read_tags
from pipeline_lib.datasets.pictures import read_picture
from pipeline_lib.datasets.readers import table_of
from pipeline_lib.datasets.reading import read_words
from pipeline_lib.datasets.splits import Splits, read_splits, write_splits
from pipeline_lib.datasets.tables import read_embeddings, read_table
from pipeline_lib.datasets.tag_csv import read_annotation_matrix

# Names as people write them: any printable text, NA, null and nan among it.
names = st.one_of(
    st.sampled_from(["NA", "null", "nan", "a b", "flügel", "1", "-", "'", "{", "%"]),
    st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]), min_size=1, max_size=6),
)
plain = names.filter(lambda name: not set(name) & set(';,"'))
finite = st.floats(-1e30, 1e30, width=64)
binary = st.integers(0, 1)


def matrix(values, rows=(1, 6), columns=(1, 4), dtype=np.float64):
    sizes = st.tuples(st.integers(*rows), st.integers(*columns))
    return hnp.arrays(dtype, sizes, elements=values)


@settings(max_examples=60)
@given(X=matrix(finite), data=st.data())
def test_canonical_parquet(X, data, tmp_path_factory):
    n, path = len(X), tmp_path_factory.mktemp("c") / "data.parquet"
    kind = data.draw(st.sampled_from(["matrix", "tags", "ltr"]))
    y = np.array(data.draw(st.lists(st.integers(0, 4), min_size=n, max_size=n)), dtype=np.int32)
    tags = tuple(data.draw(st.lists(names, min_size=1, max_size=3, unique=True)))
    ids = np.array(data.draw(st.lists(names, min_size=n, max_size=n, unique=True)), dtype=object)
    Y = np.arange(n * len(tags), dtype=np.uint8).reshape(n, -1) % 2
    made = {
        "matrix": Dataset("d", "p", X=X, y=y, ids=ids),
        "tags": Dataset("d", "p", X=X, Y=Y, tags=tags, ids=ids),
        "ltr": Dataset("d", "p", X=X, y=y, qid=np.sort(y).astype(np.int64), ids=ids),
    }[kind]
    write_canonical(path, table_of(made, kind), {"name": "d", "part": "p"})
    again = read_canonical(path)
    np.testing.assert_array_equal(again.X, X)
    assert again.ids.tolist() == ids.tolist()
    for field in ("y", "qid", "Y"):
        wanted, found = getattr(made, field), getattr(again, field)
        assert (wanted is None) == (found is None)
        if wanted is not None:
            np.testing.assert_array_equal(found, wanted)
    assert again.tags == made.tags


@given(X=matrix(finite), single=st.booleans())
def test_hdf5(X, single, tmp_path_factory):
    h5py = pytest.importorskip("h5py")
    path = tmp_path_factory.mktemp("h") / "a.h5"
    X = X.astype(np.float32) if single else X
    y = np.arange(len(X))
    with h5py.File(path, "w") as file:
        file["train/data"], file["train/target"] = X, y
    again, labels = read_hdf5(path, features="train/data", labels="train/target")
    np.testing.assert_array_equal(again, X)
    assert labels.tolist() == y.tolist()


@given(labels=st.lists(names, min_size=1, max_size=6, unique=True), attributes=st.booleans())
def test_mulan_label_list(labels, attributes, tmp_path_factory):
    path = tmp_path_factory.mktemp("x") / "labels.xml"
    space = ' xmlns="http://mulan.sourceforge.net/labels"' if attributes else ""
    body = "".join(f"<label name={quoteattr(label)}></label>\n" for label in labels)
    path.write_text(f'<?xml version="1.0" encoding="utf-8"?>\n<labels{space}>\n{body}</labels>\n')
    assert read_label_names(path) == tuple(labels)


@given(words=st.lists(names, min_size=1, max_size=8, unique=True), crlf=st.booleans())
def test_dictionary(words, crlf, tmp_path_factory):
    path = tmp_path_factory.mktemp("w") / "words.txt"
    path.write_bytes(("\r\n" if crlf else "\n").join([*words, ""]).encode())
    assert read_words(path) == tuple(words)


@given(Y=matrix(binary, dtype=np.uint8))
def test_annotation_matrix(Y, tmp_path_factory):
    folder = tmp_path_factory.mktemp("i")
    n, m = Y.shape
    (folder / "a.csv").write_text("".join(",".join(map(str, row)) + "\n" for row in Y.tolist()))
    (folder / "d.txt").write_text("".join(f"w{j}\n" for j in range(m)))
    (folder / "l.txt").write_text("".join(f"00/{i}\n" for i in range(n)))
    table = read_annotation_matrix(folder / "a.csv", folder / "d.txt", folder / "l.txt")
    np.testing.assert_array_equal(table.Y, Y)
    assert table.ids == tuple(f"00/{i}" for i in range(n))


@given(Y=matrix(binary, dtype=np.uint8), data=st.data())
def test_esp_game(Y, data, tmp_path_factory):
    path = tmp_path_factory.mktemp("e") / "esp.mat"
    n, m = Y.shape
    ascii_names = st.text("abcdefghij", min_size=1, max_size=6)
    words = data.draw(st.lists(ascii_names, min_size=m, max_size=m, unique=True))
    images = np.zeros((1, n), dtype=[("keywords", "O"), ("file", "O")])
    for i, row in enumerate(Y):
        images[0, i] = (np.flatnonzero(row)[None, :] + 1, f"{i}.jpg")
    order = data.draw(st.permutations(range(1, n + 1)))
    cut = data.draw(st.integers(0, n))
    cells = np.array([[word] for word in words], dtype=object)
    content = {"dict": cells, "data": images, "train": [order[:cut]], "test": [order[cut:]]}
    scipy.io.savemat(path, content)
    esp = read_esp(path)
    np.testing.assert_array_equal(esp.Y, Y)
    assert esp.tags == tuple(words) and esp.ids == tuple(f"{i}.jpg" for i in range(n))
    assert (esp.train + 1).tolist() == sorted(order[:cut])
    assert (esp.test + 1).tolist() == sorted(order[cut:])


@given(lists=st.lists(st.lists(plain, max_size=4, unique=True), min_size=1, max_size=5))
def test_mirflickr_tags(lists, tmp_path_factory):
    folder = tmp_path_factory.mktemp("m")
    for i, tags in enumerate([*lists, ["sky"]], start=1):
        (folder / f"tags{i}.txt").write_bytes("".join(f"{tag}\r\n" for tag in tags).encode())
    table = read_flickr_tags(folder, min_images=1)
    found = [{table.tags[j] for j in np.flatnonzero(row)} for row in table.Y]
    assert found == [set(tags) for tags in [*lists, ["sky"]]]


@given(Y=matrix(binary, rows=(1, 9), dtype=np.uint8))
def test_mirflickr_annotations(Y, tmp_path_factory):
    folder = tmp_path_factory.mktemp("m")
    for j, column in enumerate(Y.T):
        numbers = "".join(f"{i + 1}\n" for i in np.flatnonzero(column))
        (folder / f"c{j}.txt").write_text(numbers)
    again, concepts = read_annotations(folder, len(Y))
    np.testing.assert_array_equal(again, Y)
    assert concepts == tuple(f"c{j}" for j in range(Y.shape[1]))


@given(Y=matrix(binary, columns=(2, 4), dtype=np.uint8), zipped=st.booleans())
def test_nuswide_concept_table(Y, zipped, tmp_path_factory):
    folder = tmp_path_factory.mktemp("n")
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(["image", *(f"c{j}" for j in range(Y.shape[1]))])
    writer.writerows([f"a\\{i}.jpg", *row] for i, row in enumerate(Y.tolist()))
    path = folder / ("t.zip" if zipped else "t.csv")
    if zipped:
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("t.csv", text.getvalue())
    else:
        path.write_text(text.getvalue(), newline="")
    found = read_concept_csv(path)
    np.testing.assert_array_equal(found.table.Y, Y)
    assert found.table.ids == tuple(f"a\\{i}.jpg" for i in range(len(Y)))


@given(Y=matrix(binary, dtype=np.uint8))
def test_nuswide_official_labels_and_tags(Y, tmp_path_factory):
    folder = tmp_path_factory.mktemp("n")
    (folder / "concepts.txt").write_text("".join(f"c{j}\n" for j in range(Y.shape[1])))
    for j, column in enumerate(Y.T):
        (folder / f"Labels_c{j}_Train.txt").write_text("".join(f"{v}\n" for v in column))
    (folder / "tags.dat").write_text("".join(" ".join(map(str, r)) + " \n" for r in Y.tolist()))
    labels = read_ground_truth(folder, folder / "concepts.txt", "Train")
    tags = read_tags(folder / "tags.dat", folder / "concepts.txt")
    np.testing.assert_array_equal(labels.Y, Y)
    np.testing.assert_array_equal(tags.Y, Y)


@given(n=st.integers(2, 12), data=st.data())
def test_splits(n, data, tmp_path_factory):
    path = tmp_path_factory.mktemp("s") / "s.parquet"
    trials = []
    for _ in range(data.draw(st.integers(1, 4))):
        cut = data.draw(st.integers(1, n - 1))
        rows = np.array(data.draw(st.permutations(range(n))))
        trials.append({"train": np.sort(rows[:cut]), "test": np.sort(rows[cut:])})
    write_splits(path, Splits(tuple(trials), {"kind": "test", "n": n}))
    again = read_splits(path, n=n)
    assert again.info == {"kind": "test", "n": n} and len(again) == len(trials)
    for found, wanted in zip(again, trials):
        assert list(found) == list(wanted)
        assert all(found[part].tolist() == wanted[part].tolist() for part in wanted)


@given(
    lists=st.lists(st.lists(plain, max_size=3, unique=True), min_size=1, max_size=6),
    labels=st.data(),
)
def test_own_tables_with_text_labels_and_tags(lists, labels, tmp_path_factory):
    folder = tmp_path_factory.mktemp("o")
    n = len(lists)
    classes = labels.draw(st.lists(plain.map(lambda t: "k" + t), min_size=n, max_size=n))
    frame = pl.DataFrame(
        {
            "x": np.arange(n) / 3,
            "kind": classes,
            "tags": [";".join(tags) for tags in lists[:-1]] + [";".join([*lists[-1], "seen"])],
        }
    )
    wanted = [set(tags) for tags in lists[:-1]] + [{*lists[-1], "seen"}]
    frame.write_csv(folder / "t.csv", quote_style="always")
    frame.write_csv(folder / "t.tsv", separator="\t", quote_style="always")
    frame.write_parquet(folder / "t.parquet")
    for suffix in ("csv", "tsv", "parquet"):
        table = read_table(folder / f"t.{suffix}", label="kind", tags="tags")
        assert [table.classes[k] for k in table.y] == classes
        found = [{table.tags[j] for j in np.flatnonzero(row)} for row in table.Y]
        assert found == wanted
        np.testing.assert_array_equal(table.X[:, 0], np.arange(n) / 3)


@given(X=matrix(finite), data=st.data())
def test_own_embeddings_with_labels_beside(X, data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("v")
    labels = data.draw(st.lists(plain, min_size=len(X), max_size=len(X)))
    np.save(folder / "v.npy", X)
    (folder / "labels.txt").write_bytes("".join(f"{label}\n" for label in labels).encode())
    table = read_embeddings(folder / "v.npy", labels=folder / "labels.txt")
    np.testing.assert_array_equal(table.X, X)
    if table.classes:
        assert [table.classes[k] for k in table.y] == labels
    else:
        assert table.y.tolist() == [float(label) for label in labels]


@given(
    pixels=hnp.arrays(np.uint8, st.tuples(st.integers(1, 7), st.integers(1, 7), st.just(3))),
    grey=st.booleans(),
    form=st.sampled_from(["png", "bmp", "tiff"]),
)
def test_pictures_without_loss(pixels, grey, form, tmp_path_factory):
    image = pytest.importorskip("PIL.Image")
    path = tmp_path_factory.mktemp("p") / f"a.{form}"
    pixels = pixels[..., 0] if grey else pixels
    image.fromarray(pixels).save(path, form)
    np.testing.assert_array_equal(read_picture(path), pixels)
