from __future__ import annotations

import numpy as np
import pytest

from pipeline_lib.datasets.reading import (
    number_table,
    read_number_table,
    read_text,
    read_words,
    refuse_label_leak,
    require_dense_size,
)
from pipeline_lib.errors import DataMissingError, InputError


@pytest.mark.parametrize("n", [10, 5000])
@pytest.mark.parametrize("at", [0, 4])
def test_a_copied_label_is_found_wherever_it_stands(n, at):
    rng = np.random.default_rng(0)
    Y = rng.integers(0, 2, (n, 3)).astype(np.uint8)
    X = rng.integers(0, 2, (n, 5)).astype(np.float32)
    refuse_label_leak(X, Y, "a")
    X[:, at] = -0.0 * (1 - Y[:, 2]) + Y[:, 2]  # negative zeros are zeros
    with pytest.raises(InputError, match=f"feature column {at + 1} equals label column 3"):
        refuse_label_leak(X, Y, "a")
    X[n // 2, at] += 0.5  # one row that differs makes another column
    refuse_label_leak(X, Y, "a")


def test_rare_and_constant_columns_are_equal_by_chance():
    rare = np.zeros((50, 1))
    rare[[3, 8]] = 1
    for labels in (rare, rare[:, 0], np.zeros(50), np.ones((50, 2))):
        refuse_label_leak(np.hstack([rare, np.zeros((50, 1)), np.ones((50, 1))]), labels, "a")
    rare[20] = 1
    with pytest.raises(InputError, match="leak"):
        refuse_label_leak(rare, rare, "a")


def test_tables_of_numbers():
    assert number_table("1 2\n3 4\n\n", "a").tolist() == [[1, 2], [3, 4]]
    assert number_table("1,2,\r\n3,4,\r\n", "a", delimiter=",").tolist() == [[1, 2], [3, 4]]
    assert number_table("7\n", "a", dtype=np.int64).dtype == np.int64
    for text, message in [
        ("", "empty"),
        ("1 2\n3\n", "a:2: 1 values; expected 2"),
        ("1 2\n\n3 4\n", "a:2: 0 values"),
        ("1 2\n3 inf\n", "a:2:2: 'inf' is not a finite number"),
        ("1 2\n3 0x4\n", "a:2:2: '0x4'"),
        ("1 2\n3 1_0\n", "a:2:2: '1_0'"),
    ]:
        with pytest.raises(InputError, match=message):
            number_table(text, "a")
    with pytest.raises(InputError, match=r"a:1:1: 1\.5 is not a whole number"):
        number_table("1.5\n", "a", dtype=np.int64)
    with pytest.raises(InputError, match=r"a:2:1: 1e\+300 is not a whole number"):
        number_table("1\n1e300\n", "a", dtype=np.int64)


def test_text_files(tmp_path):
    path = tmp_path / "w.txt"
    path.write_bytes("\ufeffsky\r\nnull\r\n\r\n".encode())
    assert read_words(path) == ("sky", "null")
    path.write_bytes(b"sky\n\nsun\n")
    with pytest.raises(InputError, match=":2: blank line"):
        read_words(path)
    path.write_bytes(b"sky\nsk\xff\n")
    with pytest.raises(InputError, match=r":2: byte 0xff is not UTF-8.*iconv"):
        read_text(path)
    with pytest.raises(DataMissingError, match="no such file"):
        read_text(tmp_path / "x")
    with pytest.raises(InputError, match="is a folder"):
        read_text(tmp_path)


def test_a_few_bytes_do_not_become_gigabytes():
    require_dense_size(10**6, 1000, 7_500_000, "a", "Y")
    with pytest.raises(InputError, match="too large"):
        require_dense_size(10**6, 10**6, 100, "a", "Y")
    with pytest.raises(InputError, match="too large"):
        require_dense_size(10**5, 10**4, 100, "a", "Y")


def test_large_tables_are_read_by_blocks_with_the_right_lines(tmp_path, monkeypatch):
    monkeypatch.setattr("pipeline_lib.datasets.reading._TEXT_BLOCK", 64)
    path = tmp_path / "t.dat"
    values = np.random.default_rng(0).normal(size=(200, 3))
    lines = [" ".join(map(repr, row)) + " " for row in values.tolist()]
    for end in ("", "\n", "\n\n"):
        path.write_text("\n".join(lines) + end)
        np.testing.assert_array_equal(read_number_table(path), values)
    for broken, message in [
        ("1 2 x", ":151:3: 'x' is not"),
        ("1 2", ":151: 2 values; expected 3"),
        ("", ":151: (blank line|0 values)"),
    ]:
        path.write_text("\n".join([*lines[:150], broken, *lines[151:]]))
        with pytest.raises(InputError, match=message):
            read_number_table(path)
    path.write_bytes("\n".join([*lines[:150], "\xff"]).encode("latin-1"))
    with pytest.raises(InputError, match=":151: byte 0xff"):
        read_number_table(path)
