from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline_lib.datasets.tag_csv import (
    TagTable,
    read_annotation_matrix,
    read_tag_csv,
    tag_matrix,
    write_tag_csv,
)
from pipeline_lib.errors import InputError


def write(tmp_path, text, name="a.csv"):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8", newline="")
    return path


def test_lists_of_tags_keep_odd_names_and_images_without_tags(tmp_path):
    path = write(tmp_path, 'image,tags\r\na.jpg,"null; NA"\r\nb.jpg,\r\n"c,d.jpg",nan;NA\r\n')
    table = read_tag_csv(path)
    assert table.ids == ("a.jpg", "b.jpg", "c,d.jpg")
    assert table.tags == ("NA", "nan", "null")
    assert table.Y.tolist() == [[1, 0, 1], [0, 0, 0], [1, 1, 0]]


def test_binary_columns(tmp_path):
    table = read_tag_csv(write(tmp_path, "image,null,NA,cat\na,0,1,0\nb,0,0,0\n"))
    assert table.tags == ("null", "NA", "cat")
    assert table.Y.tolist() == [[0, 1, 0], [0, 0, 0]]


def test_one_binary_column_is_one_tag(tmp_path):
    table = read_tag_csv(write(tmp_path, "image,cat\na,0\nb,1\n"))
    assert table.tags == ("cat",) and table.Y.tolist() == [[0], [1]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("image,tags\na,x;;y\n", ":2:2: an empty tag in 'x;;y'"),
        ("image,tags\na,x\na,y\n", ":3:1: image 'a' stands already on line 2"),
        ("image,tags\n,x\n", ":2:1: no image name"),
        ("image,tags\na,x,y\n", ":2: 3 fields; expected 2"),
        ("image,x,y\na,0,2\n", ":2:3: '2' for tag 'y'; expected 0 or 1"),
        ("image,x,x\na,0,1\n", ":1:3: column name 'x' stands twice"),
        ("image,,y\na,0,1\n", ":1:2: a column without a name"),
        ("image\na\n", "1 column"),
        ('image,tags\na,"x\n', "not valid CSV"),
        ("", "empty"),
        ("image,tags\na,\nb,\n", "no image has a tag"),
        ("image,tags\na,\0\n", ":2: a zero byte"),
    ],
)
def test_bad_tables_are_refused(tmp_path, text, message):
    with pytest.raises(InputError, match=message):
        read_tag_csv(write(tmp_path, text))


def test_wrong_encoding_names_the_line(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes("image,tags\na,x\nb,caf\xe9\n".encode("latin-1"))
    with pytest.raises(InputError, match=":3: byte 0xe9 is not UTF-8"):
        read_tag_csv(path)


words = st.text(
    st.characters(codec="utf-8", exclude_characters="\0\r;", exclude_categories=["Cc", "Zs"]),
    min_size=1,
    max_size=5,
).filter(lambda word: word == word.strip() and word not in "01")


@given(ids=st.lists(words, min_size=1, max_size=5, unique=True), data=st.data())
def test_what_is_written_is_read_again(ids, data, tmp_path_factory):
    tags = tuple(sorted(data.draw(st.lists(words, min_size=1, max_size=5, unique=True))))
    Y = np.array(
        [data.draw(st.lists(st.booleans(), min_size=len(tags), max_size=len(tags))) for _ in ids]
    ).astype(np.uint8)
    Y[0] = 1  # every tag on some image, else the lists cannot know of it
    path = tmp_path_factory.mktemp("tags") / "a.csv"
    write_tag_csv(path, TagTable(tuple(ids), Y, tags))
    found = read_tag_csv(path)
    assert (found.ids, found.tags) == (tuple(ids), tags)
    np.testing.assert_array_equal(found.Y, Y)


def test_tag_matrix_thresholds_and_given_vocabulary(tmp_path):
    lists = [["a", "b", "a"], ["b"], [], ["c"]]
    Y, tags = tag_matrix(lists, min_images=2, path=tmp_path)
    assert tags == ("b",) and Y[:, 0].tolist() == [1, 1, 0, 0]
    Y, tags = tag_matrix(lists, tags=["c", "a"], path=tmp_path)
    assert Y.tolist() == [[0, 1], [0, 0], [0, 0], [1, 0]]


def test_iapr_annotation_dictionary_and_list(tmp_path):
    annotation = write(tmp_path, "0,1,0\n1,1,0\n0,0,0\n")
    dictionary = write(tmp_path, "adult\nNA\nnull\n", "d.txt")
    images = write(tmp_path, "00/26\n00/35\n00/38\n", "l.txt")
    table = read_annotation_matrix(annotation, dictionary, images)
    assert table.tags == ("adult", "NA", "null") and table.ids[1] == "00/35"
    assert table.Y.tolist() == [[0, 1, 0], [1, 1, 0], [0, 0, 0]]
    with pytest.raises(InputError, match="3 columns; expected 2"):
        read_annotation_matrix(annotation, write(tmp_path, "a\nb\n", "e.txt"), images)
    with pytest.raises(InputError, match="3 lines; expected 2"):
        read_annotation_matrix(annotation, dictionary, write(tmp_path, "1\n2\n", "m.txt"))
    with pytest.raises(InputError, match=r":3:2: 2 \(1 such values in the table\)"):
        read_annotation_matrix(write(tmp_path, "0,1,0\n1,1,0\n0,2,0\n"), dictionary, images)
    with pytest.raises(InputError, match=":2: 2 values; expected 3"):
        read_annotation_matrix(write(tmp_path, "0,1,0\n1,1\n0,2,0\n"), dictionary, images)
    with pytest.raises(InputError, match=":2: word 'a' stands already on line 1"):
        read_annotation_matrix(annotation, write(tmp_path, "a\na\nb\n", "f.txt"), images)
