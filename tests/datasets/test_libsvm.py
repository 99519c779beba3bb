from __future__ import annotations

import bz2
import gzip

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from pipeline_lib.datasets.hdf5 import read_hdf5
from pipeline_lib.datasets.libsvm import read_libsvm, write_libsvm
from pipeline_lib.errors import InputError


def write(tmp_path, text, name="a.txt"):
    path = tmp_path / name
    path.write_bytes(text.encode())
    return path


@pytest.mark.parametrize(
    ("name", "pack"),
    [("a", bytes), ("a.bz2", bz2.compress), ("a.gz", gzip.compress)],
)
def test_plain_and_compressed(tmp_path, name, pack):
    path = tmp_path / name
    path.write_bytes(pack(b"2 1:-1 3:0.5\r\n\r\n10 2:1e-2 # comment\r\n1\r\n"))
    X, y = read_libsvm(path)
    assert X.tolist() == [[-1, 0, 0.5], [0, 0.01, 0], [0, 0, 0]] and y.tolist() == [2, 10, 1]
    assert read_libsvm(path, n_features=5)[0].shape == (3, 5)


@pytest.mark.parametrize("base", [0, 1])
@given(
    X=hnp.arrays(
        np.float64,
        hnp.array_shapes(min_dims=2, max_dims=2, max_side=5),
        elements=st.floats(allow_nan=False, allow_infinity=False),
    )
)
def test_what_is_written_is_read_again(base, X, tmp_path_factory):
    path = tmp_path_factory.mktemp("libsvm") / "a.txt"
    y = np.arange(len(X))
    write_libsvm(path, X, y, index_base=base)
    found, labels = read_libsvm(path, n_features=X.shape[1], index_base=base)
    np.testing.assert_array_equal(found, X)
    np.testing.assert_array_equal(labels, y)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("1 1:0.5 x", r":2:3: cannot read 'x'"),
        ("1 1:0.5 2:", r":2:3: cannot read '2:'"),
        ("1 1:nan", r":2:2: cannot read '1:nan'"),
        ("1 1:1e999", r":2:2: a value is too large"),
        ("1 2:1 1:1", r":2:3: index 1 after 2"),
        ("1 1:1 1:1", r":2:3: index 1 after 1"),
        ("1 0:1", r":2: index 0; expected 1 to 4"),
        ("1 5:1", r":2: index 5; expected 1 to 4"),
        ("1.5 1:1", r":2:1: label '1.5'"),
        ("x 1:1", r":2:1: cannot read 'x'"),
        ("1 qid:3 1:1", r":2:2: cannot read 'qid:3'"),
    ],
)
def test_bad_lines_name_line_and_column(tmp_path, line, message):
    path = write(tmp_path, f"1 1:2 4:3\n{line}\n")
    with pytest.raises(InputError, match=message):
        read_libsvm(path, n_features=4)


def test_cut_and_swelling_archives(tmp_path):
    path = tmp_path / "a.bz2"
    path.write_bytes(bz2.compress(b"1 1:1\n" * 1000)[:-8])
    with pytest.raises(InputError, match="damaged archive"):
        read_libsvm(path)
    path.write_bytes(bz2.compress(b" " * (80 * 2**20)))
    with pytest.raises(InputError, match="swells"):
        read_libsvm(path)
    with pytest.raises(InputError, match="too large"):
        read_libsvm(write(tmp_path, "1 999999999:1\n"))


def test_hdf5(tmp_path):
    h5py = pytest.importorskip("h5py")
    path = tmp_path / "usps.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("train/data", data=np.arange(12.0).reshape(4, 3), compression="gzip")
        file["train/target"] = np.array([0, 1, 1, 9], dtype=np.int32)
        file["link"] = h5py.ExternalLink("other.h5", "/x")
        file["soft"] = h5py.SoftLink("/train/data")
        file["bad"] = np.array([0.5, 1, 2, 3])
        file.create_dataset("hole", shape=(2**20, 2**10), chunks=(1, 2**10), dtype="f8")
    X, y = read_hdf5(path, features="train/data", labels="train/target")
    assert X.shape == (4, 3) and y.tolist() == [0, 1, 1, 9]
    for names, message in [
        (("test/data", "test/target"), "no dataset 'test/data'; expected one of"),
        (("link", "train/target"), "'link' is a link"),
        (("soft", "train/target"), "'soft' is a link"),
        (("train/data", "bad"), r"bad\[0\] is 0.5"),
        (("train", "bad"), "'train' is not a plain dataset"),
        (("hole", "train/target"), "swells"),
    ]:
        with pytest.raises(InputError, match=message):
            read_hdf5(path, features=names[0], labels=names[1])
    path.write_bytes(b"\x89HDF\r\n\x1a\nrubbish")
    with pytest.raises(InputError, match="damaged HDF5"):
        read_hdf5(path, features="a", labels="b")
