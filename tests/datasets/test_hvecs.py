from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from pipeline_lib.datasets.hvecs import FEATURE_KINDS, read_vecs, write_vecs
from pipeline_lib.errors import InputError


def test_official_layouts_byte_for_byte(tmp_path):
    annotation = tmp_path / "a.hvecs"
    annotation.write_bytes(struct.pack("<HHHH", 3, 1, 0, 65535) + struct.pack("<HHHH", 3, 7, 8, 9))
    assert read_vecs(annotation).tolist() == [[1, 0, 65535], [7, 8, 9]]
    histogram = tmp_path / "a.hvecs32"
    histogram.write_bytes(struct.pack("<III", 2, 1, 4294967295))
    assert read_vecs(histogram).tolist() == [[1, 4294967295]]
    gist = tmp_path / "a.fvec"
    gist.write_bytes(struct.pack("<iff", 2, 0.5, -1.25) * 3)
    assert read_vecs(gist).tolist() == [[0.5, -1.25]] * 3
    assert read_vecs(gist).dtype == np.float32


@pytest.mark.parametrize("suffix", [".hvecs", ".hvecs32", ".fvec"])
@given(data=st.data())
def test_what_is_written_is_read_again(suffix, data, tmp_path_factory):
    kind = {".hvecs": np.uint16, ".hvecs32": np.uint32, ".fvec": np.float32}[suffix]
    elements = {"allow_nan": False, "allow_infinity": False} if kind is np.float32 else {}
    shape = hnp.array_shapes(min_dims=2, max_dims=2, max_side=6)
    values = data.draw(hnp.arrays(kind, shape, elements=elements or None))
    path = tmp_path_factory.mktemp("vecs") / f"a{suffix}"
    write_vecs(path, values)
    np.testing.assert_array_equal(read_vecs(path), values)


@pytest.mark.parametrize("cut", [1, 2, 5, 7])
def test_a_cut_last_record_is_an_error_with_its_place(cut, tmp_path):
    path = tmp_path / "a.hvecs"
    write_vecs(path, np.ones((3, 3)))
    path.write_bytes(path.read_bytes()[:-cut])
    with pytest.raises(InputError, match=r"a\.hvecs: record 3 at byte 16 is cut"):
        read_vecs(path)


def test_other_lengths_names_and_values_are_refused(tmp_path):
    path = tmp_path / "a.hvecs"
    path.write_bytes(struct.pack("<HHHHH", 1, 5, 2, 6, 7))
    with pytest.raises(InputError, match="record 2 at byte 4 has 2 values; expected 1"):
        read_vecs(path)
    path.write_bytes(struct.pack("<HH", 1, 5))
    with pytest.raises(InputError, match="has 1 values; expected 260"):
        read_vecs(path, n_columns=260)
    path.write_bytes(b"\0\0" * 4)
    with pytest.raises(InputError, match="0 values"):
        read_vecs(path)
    path.write_bytes(b"")
    with pytest.raises(InputError, match="empty"):
        read_vecs(path)
    with pytest.raises(InputError, match="no such file"):
        read_vecs(tmp_path / "b.hvecs")
    other = tmp_path / "a.vec"
    other.write_bytes(b"\1\0\1\0")
    with pytest.raises(InputError, match=r"suffix '\.vec'"):
        read_vecs(other)
    gist = tmp_path / "a.fvec"
    write_vecs(gist, np.array([[0.0, np.inf]]))
    with pytest.raises(InputError, match="inf as value 2"):
        read_vecs(gist)


def test_the_fifteen_kinds_are_declared():
    assert len(FEATURE_KINDS) == 15
    assert {suffix for suffix, _ in FEATURE_KINDS.values()} == {".hvecs", ".hvecs32", ".fvec"}
