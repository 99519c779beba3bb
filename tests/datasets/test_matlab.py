from __future__ import annotations

import numpy as np
import pytest
import scipy.io
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import sparse

from pipeline_lib.datasets.espgame import read_esp
from pipeline_lib.datasets.matlab import read_features_and_labels, read_mat
from pipeline_lib.errors import InputError

X = np.arange(12, dtype=np.uint8).reshape(4, 3)
LABELS = np.array([1, 1, 2, 2], dtype=np.uint8)


def save(tmp_path, content, **kwargs):
    path = tmp_path / "a.mat"
    scipy.io.savemat(path, content, **kwargs)
    return path


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize(("features", "labels"), [("fea", "gnd"), ("X", "Y")])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("column", [False, True])
def test_either_orientation_and_names(tmp_path, compressed, features, labels, transposed, column):
    path = save(
        tmp_path,
        {features: X.T if transposed else X, labels: LABELS[:, None] if column else LABELS},
        do_compression=compressed,
    )
    found, y = read_features_and_labels(path)
    np.testing.assert_array_equal(found, X)
    assert found.dtype == np.uint8 and y.tolist() == [1, 1, 2, 2] and y.dtype == np.int64


def test_square_matrices_need_an_orientation(tmp_path):
    square = np.arange(16.0).reshape(4, 4)
    path = save(tmp_path, {"fea": square, "gnd": LABELS})
    with pytest.raises(InputError, match="square"):
        read_features_and_labels(path)
    np.testing.assert_array_equal(read_features_and_labels(path, samples="columns")[0], square.T)


def test_version_7_3_is_refused_with_the_remedy(tmp_path):
    h5py = pytest.importorskip("h5py")
    path = tmp_path / "a.mat"
    with h5py.File(path, "w", userblock_size=512) as file:
        file["fea"] = X
    with path.open("rb+") as handle:
        handle.write(b"MATLAB 7.3 MAT-file, Platform: GLNXA64".ljust(124) + b"\x00\x02IM")
    with pytest.raises(InputError, match=r"7\.3 file \(HDF5\).*save\('file\.mat', '-v7'\)"):
        read_mat(path)


def test_other_content_is_refused(tmp_path):
    for content, message in [
        ({"fea": X}, "holds fea; expected fea/gnd"),
        ({"fea": X, "gnd": [1, 2]}, "4 x 3 and gnd has 2 values"),
        ({"fea": X, "gnd": [[1.5, 1, 2, 2]]}, "not whole"),
        ({"fea": X.astype(float) * np.nan, "gnd": LABELS}, r"fea\(1,1\) is nan"),
        ({"fea": X, "gnd": np.ones((2, 2))}, "a vector of labels"),
        ({"fea": X + 1j, "gnd": LABELS}, "not a matrix of real numbers"),
        ({"fea": "text", "gnd": LABELS}, "not a matrix of real numbers"),
    ]:
        with pytest.raises(InputError, match=message):
            read_features_and_labels(save(tmp_path, content))
    path = tmp_path / "b.mat"
    path.write_bytes(b"not MATLAB")
    with pytest.raises(InputError, match="not a MATLAB file"):
        read_mat(path)
    scipy.io.savemat(path, {"fea": X}, format="4")
    with pytest.raises(InputError, match="not a MATLAB file of version 5 to 7"):
        read_mat(path)


def test_objects_are_never_built(tmp_path):
    path = save(tmp_path, {"s": {"a": 1.0}})
    raw = bytearray(path.read_bytes())
    flags = raw.index(b"\x06\x00\x00\x00\x08\x00\x00\x00", 128) + 8
    assert raw[flags] == 2  # structure
    raw[flags] = 3  # object
    path.write_bytes(raw)
    with pytest.raises(InputError, match="holds a object"):
        read_mat(path)


def test_a_dimension_that_lies_is_found_before_anything_is_allocated(tmp_path):
    path = save(tmp_path, {"fea": X})
    raw = path.read_bytes()
    shape = np.array([4, 3], dtype="<i4").tobytes()
    path.write_bytes(raw.replace(shape, np.array([2**30, 3], dtype="<i4").tobytes(), 1))
    with pytest.raises(InputError, match=r"12 values at byte \d+; expected 3221225472"):
        read_mat(path)


def test_sparse_and_big_endian_and_nested(tmp_path):
    path = save(tmp_path, {"fea": sparse.csc_matrix(X), "gnd": LABELS})
    np.testing.assert_array_equal(read_features_and_labels(path)[0], X)
    deep: object = np.ones(1)
    for _ in range(30):
        cell = np.empty((1, 1), dtype=object)
        cell[0, 0] = deep
        deep = cell
    with pytest.raises(InputError, match="nested too deeply"):
        read_mat(save(tmp_path, {"c": deep}))


@given(
    values=hnp.arrays(
        st.sampled_from([np.float64, np.float32, np.uint8, np.int16]),
        hnp.array_shapes(min_dims=2, max_dims=2, max_side=5),
        elements=st.integers(0, 100),
    ),
    compressed=st.booleans(),
)
def test_what_is_written_is_read_again(values, compressed, tmp_path_factory):
    path = tmp_path_factory.mktemp("mat") / "a.mat"
    scipy.io.savemat(path, {"v": values, "text": "abc"}, do_compression=compressed)
    content = read_mat(path)
    np.testing.assert_array_equal(content["v"], values)
    assert content["v"].dtype == values.dtype


def test_a_label_among_the_features_is_a_leak(tmp_path):
    leaky = np.column_stack([np.arange(8.0), [1, 1, 1, 1, 2, 2, 2, 2]])
    with pytest.raises(InputError, match="feature column 2 equals label column 1"):
        read_features_and_labels(save(tmp_path, {"X": leaky, "Y": [1, 1, 1, 1, 2, 2, 2, 2]}))


def esp(tmp_path, words=("cat", "NA", "red"), keys=((1, 3), (), (2,)), train=(3, 1), test=(2,)):
    cell = np.array([[word] for word in words], dtype=object)
    data = np.zeros((1, len(keys)), dtype=[("keywords", "O"), ("file", "O")])
    for i, row in enumerate(keys):
        data[0, i] = (np.array([row], dtype=np.uint16), f"{i}.jpg")
    return save(
        tmp_path, {"dict": cell, "data": data, "train": [list(train)], "test": [list(test)]}
    )


def test_esp_game(tmp_path):
    found = read_esp(esp(tmp_path))
    assert found.tags == ("cat", "NA", "red")
    assert found.Y.tolist() == [[1, 0, 1], [0, 0, 0], [0, 1, 0]]  # an image without tags stays
    assert found.ids == ("0.jpg", "1.jpg", "2.jpg")
    assert found.train.tolist() == [0, 2] and found.test.tolist() == [1]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"keys": ((4,), (1,), (1,))}, "image 1 has a keyword outside"),
        ({"keys": ((0,), (1,), (1,))}, "image 1 has a keyword outside"),
        ({"train": (1, 4)}, "outside 1-3"),
        ({"train": (1, 1)}, "an image twice"),
        ({"train": (1, 2)}, "image 2 is in train and in test"),
        ({"words": ("a", "a", "b")}, "a word twice"),
    ],
)
def test_esp_game_refuses(tmp_path, change, message):
    with pytest.raises(InputError, match=message):
        read_esp(esp(tmp_path, **change))
