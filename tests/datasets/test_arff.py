from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline_lib.datasets.arff import read_arff, read_label_names, read_mulan
from pipeline_lib.errors import InputError

HEADER = "@relation r\n@attribute f {0,1}\n@attribute g numeric\n@attribute l {1,0}\n@data\n"


def write(tmp_path, text, name="a.arff"):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8", newline="")
    return path


def test_dense_and_sparse_rows_and_the_first_declared_default(tmp_path):
    path = write(tmp_path, HEADER + "1,2.5,0\n{0 1, 1 -3}\n{2 0}\n{}\n")
    table = read_arff(path)
    assert table.relation == "r"
    assert [attribute.values for attribute in table.attributes] == [("0", "1"), (), ("1", "0")]
    # An omitted {1,0} is 1, an omitted {0,1} or number is 0.
    assert table.numbers(path).tolist() == [[1, 2.5, 0], [1, -3, 1], [0, 0, 0], [0, 0, 1]]


def test_comments_crlf_quotes_case_and_blank_lines(tmp_path):
    text = (
        "% top\r\n@RELATION 'a relation'\r\n\r\n@Attribute 'has, comma' REAL\r\n"
        "@ATTRIBUTE \"it's\" { 'x y', z }\r\n@DATA\r\n% inside\r\n 1 , 'x y' \r\n\r\n2,z\r\n"
    )
    table = read_arff(write(tmp_path, text))
    assert table.relation == "a relation"
    assert [attribute.name for attribute in table.attributes] == ["has, comma", "it's"]
    assert table.codes.toarray().tolist() == [[1, 0], [2, 1]]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("1,2", "2 values; expected 3"),
        ("1,2,0,0", "4 values; expected 3"),
        ("2,2,0", r":6:1: '2'; expected one of '0,1'"),
        ("1,x,0", r":6:2: 'x'; expected a finite number"),
        ("1,nan,0", r":6:2: 'nan'"),
        ("1,1e999,0", r":6:2: '1e999'"),
        ("1,1_0,0", r":6:2: '1_0'"),
        ("1,?,0", r":6:2: a missing value"),
        ("1,,0", r":6:2: '' is not one value"),
        ("{0 1", "does not end in }"),
        ("{3 1}", "index 3; expected 0 to 2"),
        ("{1 1, 0 1}", "index 0 after 1"),
        ("{1 1, 1 1}", "index 1 after 1"),
        ("{0}", "cannot read"),
        ("{0 1}, {5}", "cannot read"),
        ("{2 7}", r":6:3: '7'; expected one of '1,0'"),
    ],
)
def test_bad_rows_name_line_and_column(tmp_path, row, message):
    path = write(tmp_path, HEADER + row + "\n")
    with pytest.raises(InputError, match=message) as caught:
        read_arff(path)
    assert caught.value.line == 6


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("@relation r\n@attribute a string\n@data\n", "type 'string'"),
        ("@relation r\n@attribute a date\n@data\n", "type 'date'"),
        ("@relation r\n@attribute a numeric\n@attribute a real\n@data\n", "declared twice"),
        ("@relation r\n@attribute a {0,0}\n@data\n", "declares a value twice"),
        ("@relation r\n@attribute a numeric\n", "no @data line"),
        ("@data\n", "@data comes before"),
        ("hello\n", "cannot read 'hello'"),
        ("", "no @data line"),
    ],
)
def test_bad_headers_are_refused(tmp_path, text, message):
    with pytest.raises(InputError, match=message):
        read_arff(write(tmp_path, text))


names = st.text(st.characters(codec="utf-8", exclude_characters="\r\n\\"), min_size=1, max_size=6)


def quote(name):
    return "'" + name.replace("'", "\\'") + "'"


@given(
    attribute_names=st.lists(names, min_size=1, max_size=4, unique=True),
    rows=st.lists(st.lists(st.floats(-1e9, 1e9), min_size=4, max_size=4), max_size=4),
    data=st.data(),
)
def test_what_is_written_is_read_again_dense_and_sparse(
    attribute_names, rows, data, tmp_path_factory
):
    d = len(attribute_names)
    nominal = data.draw(st.lists(st.booleans(), min_size=d, max_size=d))
    declared = data.draw(st.lists(names, min_size=1, max_size=3, unique=True))
    codes = np.array([row[:d] for row in rows]).reshape(len(rows), d)
    for j in range(d):
        if nominal[j]:
            codes[:, j] = np.abs(codes[:, j]).astype(int) % len(declared)
    cells = [
        [quote(declared[int(v)]) if nominal[j] else repr(float(v)) for j, v in enumerate(row)]
        for row in codes
    ]
    header = "@relation r\n" + "".join(
        f"@attribute {quote(name)} "
        + ("{" + ",".join(map(quote, declared)) + "}\n" if nominal[j] else "numeric\n")
        for j, name in enumerate(attribute_names)
    )
    dense = "".join(",".join(row) + "\n" for row in cells)
    sparse = "".join(
        "{" + ", ".join(f"{j} {cell}" for j, cell in enumerate(row) if codes[i, j] != 0) + "}\n"
        for i, row in enumerate(cells)
    )
    folder = tmp_path_factory.mktemp("arff")
    for body in (dense, sparse):
        table = read_arff(write(folder, header + "@data\n" + body))
        assert [attribute.name for attribute in table.attributes] == attribute_names
        np.testing.assert_array_equal(table.codes.toarray(), codes)


XML = (
    '<?xml version="1.0" encoding="utf-8"?>\n'
    '<labels xmlns="http://mulan.sourceforge.net/labels">\n'
    '<label name="null"></label><label name="b"><label name="c"/></label></labels>'
)


def test_label_list(tmp_path):
    assert read_label_names(write(tmp_path, XML, "l.xml")) == ("null", "b", "c")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('<!DOCTYPE l [<!ENTITY a "aa">]><labels><label name="&a;"/></labels>', "document type"),
        ('<!DOCTYPE labels SYSTEM "file:///etc/passwd"><labels/>', "document type"),
        ("<labels></labels>", "no label"),
        ('<labels><label name="a"/><label name="a"/></labels>', "'a' stands twice"),
        ("<labels><label/></labels>", "label without a name"),
        ("<labels><tag/></labels>", "element 'tag'"),
        ("<labels>", "not well-formed"),
    ],
)
def test_bad_label_lists_are_refused(tmp_path, text, message):
    with pytest.raises(InputError, match=message):
        read_label_names(write(tmp_path, text, "l.xml"))


def test_mulan_splits_features_and_labels_in_xml_order(tmp_path):
    path = write(
        tmp_path,
        "@relation r\n@attribute x numeric\n@attribute b {0,1}\n@attribute a {1,0}\n@data\n"
        "0.5,1,0\n{0 2}\n",
    )
    xml = write(tmp_path, '<labels><label name="a"/><label name="b"/></labels>', "l.xml")
    X, Y, tags = read_mulan(path, xml)
    assert tags == ("a", "b") and X.tolist() == [[0.5], [2.0]] and Y.tolist() == [[0, 1], [1, 0]]
    other = write(tmp_path, '<labels><label name="zz"/></labels>', "m.xml")
    with pytest.raises(InputError, match=r"'zz' of .* is not an attribute"):
        read_mulan(path, other)


def test_labels_among_the_features_are_a_leak(tmp_path):
    rows = "".join(f"{i % 2},{i % 3},{i % 2}\n" for i in range(12))
    path = write(
        tmp_path,
        "@relation r\n@attribute x {0,1}\n@attribute y numeric\n@attribute a {0,1}\n@data\n" + rows,
    )
    xml = write(tmp_path, '<labels><label name="a"/></labels>', "l.xml")
    with pytest.raises(InputError, match="feature column 1 equals label column 1"):
        read_mulan(path, xml)
