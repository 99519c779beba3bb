from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from pipeline_lib.datasets.container import Dataset
from pipeline_lib.datasets.splits import (
    fixed_split,
    random_splits,
    read_splits,
    stratified_folds,
    write_splits,
)
from pipeline_lib.datasets.transformations import (
    apply,
    class_subset,
    corrupt_tags,
    filter_tags,
    observe_tags,
    rows_per_class,
    scale_features,
    take_rows,
)
from pipeline_lib.errors import InputError

tables = hnp.arrays(
    np.uint8, hnp.array_shapes(min_dims=2, max_dims=2, max_side=8), elements=st.integers(0, 1)
)


def tagged(Y):
    n, m = Y.shape
    return Dataset(
        "t", "all", X=np.arange(n * 2.0).reshape(n, 2), Y=Y, tags=tuple(f"t{j}" for j in range(m)),
        ids=np.array([f"i{i}" for i in range(n)], dtype=object),
    )  # fmt: skip


def labelled(y):
    return Dataset("l", "all", X=np.arange(len(y) * 2.0).reshape(-1, 2), y=np.asarray(y))


def test_filters_repeat_until_both_hold():
    Y = np.array([[1, 1, 0, 0], [1, 1, 0, 0], [1, 0, 1, 0], [0, 0, 0, 1]], dtype=np.uint8)
    # Tag 2 is on one image; without it image 2 has one tag; without that tag 0 is on two images.
    found = filter_tags(tagged(Y), min_tags_per_image=2, min_images_per_tag=2)
    assert found.tags == ("t0", "t1") and found.ids.tolist() == ["i0", "i1"]
    assert found.Y.tolist() == [[1, 1], [1, 1]] and found.X.tolist() == [[0, 1], [2, 3]]
    assert found.info["transformations"] == [
        {"name": "filter_tags", "min_tags_per_image": 2, "min_images_per_tag": 2}
    ]
    with pytest.raises(InputError, match="no image of t has 4 tags"):
        filter_tags(tagged(Y), min_tags_per_image=4)


@given(Y=tables, per_image=st.integers(0, 3), per_tag=st.integers(0, 3))
def test_filters_leave_the_largest_table_in_which_both_hold(Y, per_image, per_tag):
    try:
        found = filter_tags(tagged(Y), min_tags_per_image=per_image, min_images_per_tag=per_tag)
    except InputError:
        return
    assert (found.Y.sum(axis=1) >= per_image).all() and (found.Y.sum(axis=0) >= per_tag).all()
    # Any larger closed table would survive one more round of filtering from the start.
    rows, columns = np.ones(len(Y), bool), np.ones(Y.shape[1], bool)
    for _ in range(Y.size + 1):
        rows &= Y[:, columns].sum(axis=1) >= per_image
        columns &= Y[rows].sum(axis=0) >= per_tag
    assert found.Y.shape == (rows.sum(), columns.sum())


def test_rows_per_class():
    data = labelled([3, 1, 3, 1, 3, 1, 1])
    first = rows_per_class(data, count=2)
    assert first.y.tolist() == [3, 1, 3, 1] and first.X[:, 0].tolist() == [0, 2, 4, 6]
    drawn = [rows_per_class(data, count=2, seed=s).X[:, 0].tolist() for s in range(8)]
    assert drawn[3] == rows_per_class(data, count=2, seed=3).X[:, 0].tolist()
    assert len({tuple(rows) for rows in drawn}) > 1
    with pytest.raises(InputError, match="class 3 of l has 3 rows; expected 4"):
        rows_per_class(data, count=4)


def test_class_subsets():
    data = labelled([5, 1, 9, 1, 5, 7])
    assert class_subset(data, classes=[9, 1]).y.tolist() == [1, 9, 1]
    assert class_subset(data, n_classes=2).y.tolist() == [5, 1, 1, 5]
    drawn = {tuple(sorted(set(class_subset(data, n_classes=2, seed=s).y))) for s in range(20)}
    assert len(drawn) > 2 and all(len(pair) == 2 for pair in drawn)
    with pytest.raises(InputError, match="no class 4"):
        class_subset(data, classes=[4])
    with pytest.raises(InputError, match="n_classes is 5"):
        class_subset(data, n_classes=5)


def test_scaling_keeps_the_type():
    data = Dataset("s", "all", X=np.full((2, 2), 51, dtype=np.float32))
    scaled = scale_features(data, divide_by=255)
    assert scaled.X.dtype == np.float32
    np.testing.assert_allclose(scaled.X, 0.2, rtol=1e-6)


@given(Y=tables, n_observed=st.integers(1, 5), seed=st.integers(0, 99))
def test_observed_tags_are_true_and_of_the_asked_number(Y, n_observed, seed):
    observed = observe_tags(Y, n_observed, seed)
    assert (observed <= Y).all()
    np.testing.assert_array_equal(observed.sum(axis=1), np.minimum(Y.sum(axis=1), n_observed))


def test_observed_tags_are_uniform():
    Y = np.tile(np.array([1, 1, 0, 1, 1], dtype=np.uint8), (8000, 1))
    shares = observe_tags(Y, 2, 0).mean(axis=0)
    np.testing.assert_allclose(shares, [0.5, 0.5, 0, 0.5, 0.5], atol=0.02)


def test_noise_replaces_the_asked_share_by_wrong_tags():
    rng = np.random.default_rng(0)
    Y = (rng.random((2000, 20)) < 0.4).astype(np.uint8)
    observed = observe_tags(Y, 4, 1)
    for share in (0.0, 0.3, 1.0):
        noisy = corrupt_tags(observed, Y, share, 2)
        np.testing.assert_array_equal(noisy.sum(axis=1), observed.sum(axis=1))
        wrong = int(noisy[Y == 0].sum())
        assert wrong == round(share * observed.sum())
    with pytest.raises(InputError, match="wrong tags to put in"):
        corrupt_tags([[1, 1]], [[1, 1]], 1.0, 0)
    with pytest.raises(InputError, match="not a part"):
        corrupt_tags([[1, 1]], [[1, 0]], 0.5, 0)


def test_steps_by_name():
    data = labelled([0, 0, 1, 1, 2, 2])
    steps = [
        {"name": "class_subset", "classes": [0, 2]},
        {"name": "rows_per_class", "count": 1},
        {"name": "scale_features", "divide_by": 2},
    ]
    found = apply(data, steps)
    assert found.y.tolist() == [0, 2] and found.X[:, 0].tolist() == [0, 4]
    assert [step["name"] for step in found.info["transformations"]] == [s["name"] for s in steps]
    with pytest.raises(InputError, match="unknown transformation 'rows'"):
        apply(data, [{"name": "rows"}])
    with pytest.raises(InputError, match="rows_per_class: missing a required"):
        apply(data, [{"name": "rows_per_class"}])
    with pytest.raises(InputError, match="unexpected keyword argument 'n'"):
        apply(data, [{"name": "rows_per_class", "count": 1, "n": 2}])


def test_take_rows_cuts_every_field():
    found = take_rows(tagged(np.eye(3, dtype=np.uint8)), [2, 0])
    assert found.ids.tolist() == ["i2", "i0"] and found.Y.tolist() == [[0, 0, 1], [1, 0, 0]]


def test_random_splits_partition_and_never_change_with_more_trials(tmp_path):
    splits = random_splits(101, {"train": 0.9, "test": 0.1}, n_trials=3, seed=1, dataset="d")
    for trial in splits:
        both = np.concatenate([trial["train"], trial["test"]])
        assert sorted(both.tolist()) == list(range(101)) and len(trial["test"]) == 10
    longer = random_splits(101, {"train": 0.9, "test": 0.1}, n_trials=5, seed=1, dataset="d")
    for k in range(3):
        np.testing.assert_array_equal(longer[k]["test"], splits[k]["test"])
    assert not np.array_equal(splits[0]["test"], splits[1]["test"])
    path = tmp_path / "s.parquet"
    write_splits(path, splits)
    again = read_splits(path, n=101)
    assert again.info == splits.info and len(again) == 3
    for one, other in zip(again, splits):
        assert list(one) == list(other)
        for part in one:
            np.testing.assert_array_equal(one[part], other[part])
    with pytest.raises(InputError, match="row 100; expected 0 to 49"):
        read_splits(path, n=50)
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(InputError, match="damaged Parquet"):
        read_splits(path)


def test_bad_shares_and_overlaps_are_refused(tmp_path):
    with pytest.raises(InputError, match="sum to 1"):
        random_splits(10, {"train": 0.9, "test": 0.2})
    with pytest.raises(InputError, match="empty"):
        random_splits(3, {"train": 0.9, "test": 0.1})
    path = tmp_path / "s.parquet"
    write_splits(path, fixed_split({"train": [0, 1], "test": [1, 2]}))
    with pytest.raises(InputError, match="a row is in a trial twice"):
        read_splits(path)


def test_folds_keep_class_shares():
    y = np.repeat([0, 1, 2], [50, 30, 7])
    folds = stratified_folds(y, 5, seed=0)
    tested = np.concatenate([trial["test"] for trial in folds])
    assert sorted(tested.tolist()) == list(range(87))
    for trial in folds:
        counts = np.bincount(y[trial["test"]], minlength=3)
        assert abs(counts - np.array([10, 6, 1.4])).max() <= 1
