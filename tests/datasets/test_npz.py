from __future__ import annotations

import io
import zipfile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from pipeline_lib.datasets.npz import ArrayTable, read_array_table, read_npy, read_npz, write_npz
from pipeline_lib.errors import InputError

X = np.arange(6, dtype=np.float32).reshape(3, 2)


def save(tmp_path, **arrays):
    path = tmp_path / "a.npz"
    np.savez(path, **arrays)
    return path


@given(
    array=st.sampled_from(
        [np.float32, np.float64, np.uint8, np.int64, "<U3", ">f8", np.bool_]
    ).flatmap(
        lambda kind: hnp.arrays(
            kind,
            hnp.array_shapes(min_dims=1, max_dims=3, max_side=4),
        )
    ),
    fortran=st.booleans(),
)
def test_what_is_written_is_read_again(array, fortran, tmp_path_factory):
    path = tmp_path_factory.mktemp("npy") / "a.npy"
    np.save(path, np.asfortranarray(array) if fortran else array)
    found = read_npy(path)
    np.testing.assert_array_equal(found, array)
    assert found.dtype == array.dtype.newbyteorder("=") and found.shape == array.shape


def test_objects_are_never_unpickled(tmp_path):
    path = tmp_path / "a.npy"
    np.save(path, np.array([{"a": 1}, None], dtype=object), allow_pickle=True)
    with pytest.raises(InputError, match="Python objects, which are never unpickled"):
        read_npy(path)
    with pytest.raises(InputError, match="never unpickled"):
        read_npz(save(tmp_path, X=np.array([object()])))


def test_a_header_that_lies_is_found_before_anything_is_allocated(tmp_path):
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        buffer, {"descr": "<f8", "fortran_order": False, "shape": (10**12, 10**6)}
    )
    path = tmp_path / "a.npy"
    path.write_bytes(buffer.getvalue() + b"\0" * 64)
    with pytest.raises(InputError, match=r"64 bytes of data; expected 8\d+ for shape"):
        read_npy(path)


def test_a_dataset_dense_and_sparse(tmp_path):
    tags = np.array(["null", "NA"])
    ids = np.array(["p", "q", "r"])
    dense = read_array_table(save(tmp_path, X=X, Y=[[1, 0], [0, 0], [1, 1]], tags=tags, ids=ids))
    sparse = read_array_table(
        save(tmp_path, X=X, Y_indices=[0, 0, 1], Y_indptr=[0, 1, 1, 3], tags=tags, ids=ids)
    )
    for table in (dense, sparse):
        assert table.X.dtype == np.float32
        assert table.Y.tolist() == [[1, 0], [0, 0], [1, 1]] and table.Y.dtype == np.uint8
        assert table.tags == ("null", "NA") and table.ids == ("p", "q", "r") and table.y is None


@given(
    Y=hnp.arrays(
        np.uint8, hnp.array_shapes(min_dims=2, max_dims=2, max_side=5), elements=st.integers(0, 1)
    )
)
def test_a_written_dataset_is_read_again(Y, tmp_path_factory):
    path = tmp_path_factory.mktemp("npz") / "a.npz"
    features = np.arange(Y.shape[0] * 2.0).reshape(-1, 2) + 0.5
    tags = tuple(f"t{j}" for j in range(Y.shape[1]))
    ids = tuple(f"i{j}" for j in range(Y.shape[0]))
    write_npz(path, ArrayTable(features, Y, None, tags, ids))
    found = read_array_table(path)
    np.testing.assert_array_equal(found.X, features)
    np.testing.assert_array_equal(found.Y, Y)
    assert (found.tags, found.ids) == (tags, ids)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"Z": X}, "unknown array 'Z'"),
        ({"y": [1, 2]}, "neither X nor Y"),
        ({"X": X, "y": [1, 2]}, "different numbers of rows: X 3, y 2"),
        ({"X": X, "y": [1, 2, 2.5]}, r"y\[2\] is 2.5"),
        ({"X": X / np.array([1, np.inf]) + [0, np.inf]}, r"X\[0, 1\] is inf"),
        ({"X": X[:0], "y": X[:0, 0]}, "X has no rows"),
        ({"X": X[:, :0], "y": [1, 2, 3]}, "X has no columns"),
        ({"X": X[0]}, r"X has shape \(2,\)"),
        ({"X": X, "Y": [[2], [0], [1]]}, "Y has values other than 0 and 1"),
        ({"X": X, "Y": [[1], [0], [1]], "tags": ["a", "b"]}, "2 tag names; expected 1"),
        ({"X": X, "Y": [[1, 1], [0, 1], [1, 0]], "tags": ["a", "a"]}, "repeated name"),
        ({"X": X, "Y_indices": [0]}, "only one of"),
        ({"X": X, "Y_indices": [0], "Y_indptr": [0, 2, 1, 1]}, "does not rise"),
        ({"X": X, "Y_indices": [5], "Y_indptr": [0, 1, 1, 1], "tags": ["a"]}, "names tag 5"),
        ({"Y": [[1]], "Y_indices": [0], "Y_indptr": [0, 1]}, "both Y and"),
    ],
)
def test_bad_datasets_are_refused(tmp_path, arrays, message):
    with pytest.raises(InputError, match=message):
        read_array_table(save(tmp_path, **arrays))


def test_other_archives_are_refused(tmp_path):
    path = tmp_path / "a.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("evil.pkl", b"cos\nsystem\n")
    with pytest.raises(InputError, match=r"evil\.pkl"):
        read_npz(path)
    path.write_bytes(b"PK not a zip")
    with pytest.raises(InputError, match="damaged archive"):
        read_npz(path)


def test_a_label_among_the_features_is_a_leak(tmp_path):
    y = np.array([0, 1, 0, 1, 1, 0, 0, 1])
    features = np.column_stack([np.arange(8.0), y])
    with pytest.raises(InputError, match="feature column 2 equals label column 1"):
        read_array_table(save(tmp_path, X=features, y=y))
