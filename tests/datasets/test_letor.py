"""The LETOR reader and writer: grammar, errors with their place, streaming, round trip, mutations."""

from __future__ import annotations

import gzip
import re
import time
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from pipeline_lib.datasets.canonical import read_canonical, write_canonical
from pipeline_lib.datasets.letor import LetorShape, letor_shape, read_letor, write_letor
from pipeline_lib.datasets.readers import ReadRequest, reader_of
from pipeline_lib.errors import InputError

PLAIN = b"2 qid:10 1:0.5 2:-1e3 3:.25 #docid = A-1 inc = 1 prob = 0.5\n0 qid:10 1:1 2:2 3:3\n"


def save(folder: Path, content: bytes, name: str = "part.txt") -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


def load(path: Path, **options):
    """All rows of a file as arrays: X, y, qid texts, ids, comments, findings."""
    table = read_letor(path, **options)
    blocks = list(table.blocks)

    def text(name):
        return pl.concat([pl.Series(getattr(block, name)) for block in blocks]).to_list()

    X = np.concatenate([block.X for block in blocks])
    y = np.concatenate([block.y for block in blocks])
    return X, y, text("qid"), text("ids"), text("comment"), table.findings


def test_a_plain_file(tmp_path):
    X, y, qid, ids, comments, findings = load(save(tmp_path, PLAIN))
    np.testing.assert_array_equal(X, [[0.5, -1000, 0.25], [1, 2, 3]])
    np.testing.assert_array_equal(y, [2, 0])
    assert qid == ["10", "10"]
    assert ids == ["A-1", None]
    assert comments == ["docid = A-1 inc = 1 prob = 0.5", None]
    assert findings["null_values"] == 0


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace(b"\n", b"\r\n"),
        lambda text: b"\xef\xbb\xbf" + text,
        lambda text: b"\n  \n# a comment\n" + text.replace(b"\n", b"\n\n"),
        lambda text: text.replace(b" ", b" \t "),
        lambda text: text.rstrip(b"\n"),
        gzip.compress,
        lambda text: gzip.compress(text[:60]) + gzip.compress(text[60:]),
    ],
    ids=["crlf", "bom", "blank-lines", "blanks", "no-final-newline", "gzip", "gzip-members"],
)
def test_dress_does_not_matter(tmp_path, change):
    X, y, qid, ids, *_ = load(save(tmp_path, PLAIN))
    X2, y2, qid2, ids2, *_ = load(save(tmp_path, change(PLAIN), "changed"))
    np.testing.assert_array_equal(X, X2)
    np.testing.assert_array_equal(y, y2)
    assert (qid, ids) == (qid2, ids2)


def test_sparse_and_unsorted_rows(tmp_path):
    X, *_ = load(save(tmp_path, b"1 qid:1 5:5 2:2\n0 qid:1\n0 qid:2 1:1\n"))
    np.testing.assert_array_equal(X, [[0, 2, 0, 0, 5], [0] * 5, [1, 0, 0, 0, 0]])


def test_query_ids_stay_distinct_and_may_be_text(tmp_path):
    wide = f"0 qid:{2**53} 1:1\n0 qid:{2**53 + 1} 1:1\n".encode()
    path = tmp_path / "wide.parquet"
    write_canonical(path, read_letor(save(tmp_path, wide)))
    assert read_canonical(path).qid.tolist() == [2**53, 2**53 + 1]
    write_canonical(path, read_letor(save(tmp_path, b"0 qid:b 1:1\n0 qid:b 1:2\n0 qid:07 1:1\n")))
    assert read_canonical(path).qid.tolist() == [0, 0, 1]


def test_one_base_and_one_width_for_a_set(tmp_path):
    train = save(tmp_path, b"0 qid:1 1:1 4:1\n", "train")
    test = save(tmp_path, b"0 qid:2 1:1 2:1\n", "test")
    assert letor_shape([train, test]) == LetorShape(base=1, width=4)
    vali = save(tmp_path, b"0 qid:3 0:1 2:1\n", "vali")
    assert letor_shape([train, vali, test]) == LetorShape(base=0, width=5)
    X, *_ = load(test, base=0, width=5)
    np.testing.assert_array_equal(X, [[0, 1, 1, 0, 0]])


def test_the_reader_takes_base_and_width_from_the_files_of_its_set(tmp_path):
    test = save(tmp_path, b"0 qid:2 1:1 2:1\n", "test")
    siblings = (save(tmp_path, b"0 qid:1 0:1 4:1\n", "train"), test)
    request = ReadRequest("own", "test", {"data": (test,), "set": siblings})
    table = reader_of("letor")(request)
    assert table.layout.features == ("0", "1", "2", "3", "4")
    (rows,) = table.blocks
    np.testing.assert_array_equal(rows.X, [[0, 1, 1, 0, 0]])


NULLS = (
    b"0 qid:1 1:NULL 2:5 3:NULL\n1 qid:1 1:-2 2:NULL 3:NULL\n0 qid:1 1:3 2:4 3:NULL\n"
    b"0 qid:2 1:NULL 2:NULL 3:1\n0 qid:2 1:7 2:9\n"
)


@pytest.mark.parametrize("block_bytes", [1, 40, 1 << 20])
def test_null_becomes_the_minimum_of_the_query(tmp_path, block_bytes):
    X, *_, findings = load(save(tmp_path, NULLS), block_bytes=block_bytes)
    np.testing.assert_array_equal(X, [[-2, 5, 0], [-2, 4, 0], [3, 4, 0], [7, 9, 1], [7, 9, 0]])
    assert findings["null_values"] == 7


def test_null_as_zero_or_refused(tmp_path):
    path = save(tmp_path, NULLS)
    X, *_ = load(path, null="zero")
    np.testing.assert_array_equal(X[:2], [[0, 5, 0], [-2, 0, 0]])
    with pytest.raises(InputError, match=r"part.txt:1:11: feature '1' is NULL.*no missing"):
        load(path, null="refuse")
    noted = save(tmp_path, PLAIN.replace(b"inc", b"NULL"))
    np.testing.assert_array_equal(load(noted, null="refuse")[0], load(noted)[0])


GOOD = b"0 qid:1 1:1\n"
ERRORS = {
    "label-float": (b"1.0 qid:1 1:1\n", 1, 1, "bad label '1.0'"),
    "label-negative": (b"-1 qid:1 1:1\n", 1, 1, "bad label"),
    "label-text": (GOOD + b"x qid:1 1:1\n", 2, 1, "bad label 'x'"),
    "label-huge": (b"2147483648 qid:1 1:1\n", 1, 1, "bad label"),
    "label-zeros": (b"00 qid:1 1:1\n", 1, 1, "bad label"),
    "no-qid": (GOOD + b"\n1 1:1 2:2\n", 3, 3, "missing qid"),
    "label-only": (b"1\n", 1, 2, "ends after the label"),
    "empty-qid": (b"1 qid: 1:1\n", 1, 7, "bad query id"),
    "qid-twice": (b"1 qid:1 qid:2 1:1\n", 1, 9, "bad feature index 'qid'"),
    "repeat": (b"1 qid:1 3:1 2:1 3:2\n", 1, 17, "'3' stands twice.*column 9"),
    "no-colon": (b"1 qid:1 1:1 2\n", 1, 13, "has no colon"),
    "two-colons": (b"1 qid:1 1:1:2\n", 1, 11, "bad value '1:2'"),
    "colon-moved": (b"1 qid:1 1 :2:3\n", 1, 9, "has no colon"),
    "empty-value": (b"1 qid:1 1: 2:1\n", 1, 11, "bad value ''"),
    "empty-index": (b"1 qid:1 :2\n", 1, 9, "bad feature index ''"),
    "index-sign": (b"1 qid:1 +1:2\n", 1, 9, "bad feature index"),
    "index-float": (b"1 qid:1 1.0:2\n", 1, 9, "bad feature index"),
    "index-power": (b"1 qid:1 1e1:2\n", 1, 9, "bad feature index"),
    "index-zeros": (b"1 qid:1 01:2\n", 1, 9, "bad feature index"),
    "index-huge": (b"1 qid:1 99999999999:2\n", 1, 9, "feature index"),
    "value-text": (b"1 qid:1 1:a\n", 1, 11, "bad value 'a'"),
    "value-hex": (b"1 qid:1 1:0x1p3\n", 1, 11, "bad value"),
    "value-nan": (b"1 qid:1 1:nan\n", 1, 11, "bad value 'nan'"),
    "value-inf": (b"1 qid:1 1:-inf\n", 1, 11, "bad value '-inf'"),
    "value-null-lower": (b"1 qid:1 1:null\n", 1, 11, "bad value"),
    "value-null-long": (b"1 qid:1 1:NULLS\n", 1, 11, "bad value"),
    "value-overflow": (b"1 qid:1 1:1e400\n", 1, 11, "overflows"),
    "value-comma": (b"1 qid:1 1:1,5\n", 1, 11, "bad value"),
    "value-quoted": (b'1 qid:1 1:"1"\n', 1, 11, "bad value"),
    "returns": (GOOD + b"0 qid:2 1:1\n\n" + GOOD, 4, 1, "query 1 comes back.*began at line 1"),
    "zero-byte": (GOOD + b"0 qid:2 1:1\0\n", 2, 12, "zero byte"),
    "zero-byte-in-comment": (b"0 qid:2 1:1 #a\0b\n", 1, 15, "zero byte"),
    "not-utf8": (b"0 qid:2 1:1 #\xff\n", 1, 14, "not UTF-8"),
    "lone-return": (b"0 qid:2 1:1\r2:2\n", 1, 12, "carriage return"),
    "utf16": ("0 qid:1 1:1\n".encode("utf-16"), 1, None, "zero byte"),
}


@pytest.mark.parametrize("case", ERRORS)
def test_errors_name_the_place(tmp_path, case):
    content, line, column, message = ERRORS[case]
    path = save(tmp_path, content)
    with pytest.raises(InputError, match=message) as caught:
        load(path, base=1, width=136)
    assert (caught.value.path, caught.value.line) == (str(path), line)
    assert column is None or caught.value.column == column
    assert caught.value.expected


@pytest.mark.parametrize("cells", [1, 7, 40])
def test_dense_pieces_do_not_matter(tmp_path, monkeypatch, cells):
    path = save(tmp_path, NULLS + b"1 qid:3 3:8 1:NULL\n2 qid:3 2:-1 1:6\n")
    whole = load(path)
    monkeypatch.setattr("pipeline_lib.datasets.letor.MAX_CELLS", cells)
    pieces = load(path)
    np.testing.assert_array_equal(pieces[0], whole[0])
    np.testing.assert_array_equal(pieces[1], whole[1])
    assert pieces[2:] == whole[2:]


def test_a_few_values_cannot_claim_a_huge_matrix(tmp_path):
    path = save(tmp_path, b"0 qid:1 65535:1\n" + b"0 qid:1\n" * 2000)
    with pytest.raises(InputError, match=r"feature matrix of 2,001 x 65,535 .* is too large"):
        load(path)


def test_null_in_a_query_longer_than_several_blocks(tmp_path):
    """The minimum comes from rows that have already left the reader."""
    lines = ["0 qid:1 1:-5 2:1"] + ["0 qid:1 1:2 2:2"] * 20 + ["0 qid:1 1:NULL 2:0"]
    path = save(tmp_path, ("\n".join([*lines, "0 qid:2 1:NULL 2:4"]) + "\n").encode())
    X, *_ = load(path, base=1, width=2, block_bytes=20)
    assert X[21].tolist() == [-5, 0]
    assert X[22].tolist() == [0, 4]


@pytest.mark.parametrize("index, base, width", [(0, 1, 5), (6, 1, 5), (5, 0, 5)])
def test_an_index_outside_the_declared_set(tmp_path, index, base, width):
    path = save(tmp_path, f"1 qid:1 2:1 {index}:1\n".encode())
    with pytest.raises(InputError, match=f"feature index '{index}'.*from {base} to"):
        load(path, base=base, width=width)


def test_place_counts_across_blocks(tmp_path):
    rows = b"".join(b"0 qid:%d 1:0.5\n" % (row // 10) for row in range(1000))
    path = save(tmp_path, rows + b"0 qid:5000 1:x\n")
    with pytest.raises(InputError) as caught:
        load(path, base=1, width=1, block_bytes=100)
    assert (caught.value.line, caught.value.column) == (1001, 14)
    path = save(tmp_path, rows + b"0 qid:3 1:1\n")
    with pytest.raises(InputError, match="began at line 31") as caught:
        load(path, base=1, width=1, block_bytes=100)
    assert caught.value.line == 1001


@pytest.mark.parametrize("content", [b"", b"\n\n", b"# only a comment\n", b"\xef\xbb\xbf"])
def test_an_empty_file_is_refused(tmp_path, content):
    with pytest.raises(InputError, match=r"no rows|no line has a feature"):
        load(save(tmp_path, content), base=1, width=1)


def test_missing_file_and_folder(tmp_path):
    with pytest.raises(InputError, match="cannot be opened"):
        load(tmp_path / "none.txt")
    with pytest.raises(InputError, match="cannot be opened"):
        load(tmp_path)


def test_a_cut_gzip_is_refused(tmp_path):
    whole = gzip.compress(b"".join(b"0 qid:1 1:%d\n" % row for row in range(5000)))
    for size in (5, 100, len(whole) // 2, len(whole) - 1):
        with pytest.raises(InputError, match="damaged or cut"):
            load(save(tmp_path, whole[:size]), base=1, width=1)


def test_a_line_without_end_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("pipeline_lib.datasets.letor.MAX_LINE_BYTES", 1000)
    path = save(tmp_path, GOOD + b"0 qid:2 " + b" " * 5000 + b"\n")
    with pytest.raises(InputError, match="a line of more than") as caught:
        load(path, base=1, width=1, block_bytes=64)
    assert caught.value.line == 2


def test_bad_options(tmp_path):
    path = save(tmp_path, PLAIN)
    for options in ({"base": 2}, {"width": 0}, {"width": 10**6}, {"null": "nearest"}):
        with pytest.raises(InputError, match="expected"):
            load(path, **{"base": 1, "width": 3, **options})


def test_block_size_does_not_matter(tmp_path):
    rng = np.random.default_rng(0)
    lines = []
    for row in range(400):
        chosen = rng.permutation(12)[: rng.integers(0, 13)] + 1
        values = ["NULL" if rng.random() < 0.2 else repr(rng.normal()) for _ in chosen]
        pairs = " ".join(f"{index}:{value}" for index, value in zip(chosen, values, strict=True))
        comment = f" #docid = D{row}" if rng.random() < 0.5 else ""
        lines.append(f"{rng.integers(3)} qid:q{row // 7} {pairs}{comment}\n")
    path = save(tmp_path, "".join(lines).encode())
    whole = load(path, base=1, width=12)
    for block_bytes in (37, 1000, 9999):
        parts = load(path, base=1, width=12, block_bytes=block_bytes)
        np.testing.assert_array_equal(parts[0], whole[0])
        np.testing.assert_array_equal(parts[1], whole[1])
        assert parts[2:] == whole[2:]


def test_canonical_keeps_everything(tmp_path):
    path = tmp_path / "part.parquet"
    info = write_canonical(path, read_letor(save(tmp_path, PLAIN)), {"name": "own", "part": "all"})
    data = read_canonical(path)
    np.testing.assert_array_equal(data.X, [[0.5, -1000, 0.25], [1, 2, 3]])
    assert data.ids.tolist() == ["A-1", None]
    assert info["findings"]["index_base"] == 1
    assert pl.read_parquet(path)["comment"][0] == "docid = A-1 inc = 1 prob = 0.5"


finite = st.floats(allow_nan=False, allow_infinity=False)
comment_text = st.text(st.characters(blacklist_characters="\r\n\0", blacklist_categories=["Cs"]))

query_text = st.text(
    st.characters(blacklist_characters=" \t\r\n:#\0", blacklist_categories=["Cs"]),
    min_size=1,
    max_size=9,
)


@st.composite
def letor_tables(draw):
    n, width = draw(st.integers(1, 8)), draw(st.integers(1, 5))
    X = draw(arrays(np.float64, (n, width), elements=finite))
    y = draw(arrays(np.int32, n, elements=st.integers(0, 2**31 - 1)))
    sizes = np.sort(draw(arrays(np.int64, n, elements=st.integers(0, n))))
    names = draw(st.lists(query_text, min_size=n + 1, max_size=n + 1, unique=True))
    comments = draw(st.lists(st.none() | comment_text, min_size=n, max_size=n))
    return X, y, [names[size] for size in sizes], comments, draw(st.sampled_from([0, 1]))


@settings(
    max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(letor_tables(), st.sampled_from(["t.txt", "t.txt.gz"]))
def test_reading_what_was_written(tmp_path, table, name):
    X, y, qid, comments, base = table
    path = tmp_path / name
    write_letor(path, X, y, qid, comments, base=base)
    X2, y2, qid2, _, comments2, _ = load(path, base=base, width=X.shape[1])
    assert X2.tobytes() == X.tobytes()  # to the last bit, signed zeros included
    np.testing.assert_array_equal(y2, y)
    assert qid2 == qid
    assert comments2 == comments


def test_float32_round_trip(tmp_path):
    X = np.random.default_rng(1).normal(size=(50, 4)).astype(np.float32)
    path = tmp_path / "single.txt"
    write_letor(path, X, np.zeros(50, int), np.arange(50))
    X2, *_ = load(path, base=1, width=4)
    np.testing.assert_array_equal(X2.astype(np.float32), X)


def test_the_writer_refuses_what_it_could_not_read(tmp_path):
    path = tmp_path / "t.txt"
    cases = [
        ([[np.nan]], [0], ["1"], None),
        ([[1.0]], [0], ["1"], ["two\nlines"]),
        ([[1.0]], [0], ["a b"], None),
        ([[1.0]], [0], ["a:b"], None),
        ([[1.0]], [-1], ["1"], None),
        ([[1.0]], [0.5], ["1"], None),
        ([[1.0], [1.0]], [0], ["1"], None),
        ([[1.0]] * 3, [0] * 3, ["1", "2", "1"], None),
    ]
    for X, y, qid, comments in cases:
        with pytest.raises(InputError):
            write_letor(path, X, y, qid, comments)
        assert not list(tmp_path.iterdir())


# --- mutations: success or an InputError that names the place, and the same verdict as a plain parser

LINE = re.compile(r"(0|[1-9]\d{0,9})[ \t]+qid:([^ \t:]{1,256})((?:[ \t]+[^ \t]+)*)[ \t]*\Z")
FEATURE = re.compile(r"(0|[1-9]\d{0,8}):(NULL|[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\Z")


def plain_parse(content: bytes, base: int, width: int):
    """A line-by-line parser written from the grammar; None where it refuses."""
    content = content.removeprefix(b"\xef\xbb\xbf")
    if b"\0" in content or not content.isascii():
        return None
    rows, finished, last = [], set(), None
    for line in content.decode().split("\n"):
        line = line.removesuffix("\r")
        if "\r" in line:
            return None
        line = line.partition("#")[0].strip(" \t")
        if not line:
            continue
        match = LINE.match(line)
        if not match or int(match[1]) > 2**31 - 1:
            return None
        values = [0.0] * width
        seen = set()
        for token in re.split("[ \t]+", match[3].strip(" \t")) if match[3] else ():
            feature = FEATURE.match(token)
            if not feature or not base <= int(feature[1]) < base + width or feature[1] in seen:
                return None
            seen.add(feature[1])
            value = 0.0 if feature[2] == "NULL" else float(feature[2])
            if not np.isfinite(value):
                return None
            values[int(feature[1]) - base] = value
        if match[2] != last and match[2] in finished:
            return None
        last = match[2]
        finished.add(last)
        rows.append((int(match[1]), last, values))
    return rows or None


SEED = (
    b"\xef\xbb\xbf2 qid:10 1:0.5 2:-1e3 3:.25 #docid = A-1 inc = 1\r\n0 qid:10 1:1 2:NULL 3:3\n\n"
    b"1 qid:11 3:7 1:1e-7 # x\n# note\n0 qid:q-12\n0 qid:13 \t2:+4. \n1 qid:13 1:12345678901234567890\n"
)
PIECES = [
    b" ",
    b"\t",
    b":",
    b"#",
    b"\n",
    b"\r",
    b"\r\n",
    b"\0",
    b"NULL",
    b"nan",
    b"1e999",
    b"qid:",
    b"-",
]
PIECES += [
    b"\xff",
    b"+",
    b".",
    b"0",
    b"9",
    b"1:",
    b"1:1",
    b"e",
    b"qid:10",
    b"\x0b",
    b"\x1f\x8b",
    b"_",
    b'"',
]


def mutate(rng: np.random.Generator) -> bytes:
    content = bytearray(SEED)
    for _ in range(rng.integers(1, 4)):
        at = int(rng.integers(len(content) + 1))
        until = at + int(rng.integers(0, 4))
        kind = rng.integers(5)
        if kind == 0:
            content[at:until] = PIECES[rng.integers(len(PIECES))]
        elif kind == 1:
            content[at:until] = b""
        elif kind == 2:
            content[at:at] = content[at : at + int(rng.integers(1, 40))]
        elif kind == 3:
            content[at : at + 1] = bytes([rng.integers(256)])
        else:
            del content[at + int(rng.integers(200)) :]
    return bytes(content)


def test_mutated_files_end_in_success_or_a_placed_error(tmp_path):
    rng = np.random.default_rng(20)
    path = tmp_path / "mutant.txt"
    verdicts = {True: 0, False: 0}
    started = time.perf_counter()
    for _ in range(2400):
        content = mutate(rng)
        path.write_bytes(content)
        expected = plain_parse(content, base=1, width=3)
        try:
            X, y, qid, *_ = load(path, base=1, width=3, null="zero")
        except InputError as error:
            placed = error.line is not None or "no rows" in str(error) or "gzip" in str(error)
            assert placed and error.path == str(path), content
            assert expected is None or not content.isascii(), (content, str(error))
            verdicts[False] += 1
        else:
            if content.removeprefix(b"\xef\xbb\xbf").isascii():
                assert expected is not None, content
                assert [row[0] for row in expected] == y.tolist()
                assert [row[1] for row in expected] == qid
                np.testing.assert_array_equal(X, [row[2] for row in expected], err_msg=str(content))
            verdicts[True] += 1
    assert min(verdicts.values()) > 200
    assert time.perf_counter() - started < 300  # bounded, whatever the load of the machine


def test_mutated_gzip_files(tmp_path):
    rng = np.random.default_rng(21)
    path = tmp_path / "mutant.gz"
    whole = gzip.compress(SEED)
    for _ in range(300):
        content = bytearray(whole)
        content[rng.integers(len(whole))] = rng.integers(256)
        path.write_bytes(content[: len(whole) - int(rng.integers(3))])
        try:
            load(path, base=1, width=3)
        except InputError as error:
            assert error.path == str(path)
