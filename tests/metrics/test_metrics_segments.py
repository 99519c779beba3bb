import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline_lib.errors import InputError
from pipeline_lib.metrics.ordering import descending_order, top_k
from pipeline_lib.metrics.segments import Segments

scattered_ids = st.lists(st.integers(-3, 12), min_size=1, max_size=60)


@settings(deadline=None)
@given(scattered_ids)
def test_segments_partition_rows_in_order_of_first_appearance(ids):
    segments = Segments.from_ids(ids)
    assert segments.ids.tolist() == list(dict.fromkeys(ids))
    for id_, start, length in zip(segments.ids, segments.starts, segments.lengths):
        rows = segments.order[start : start + length].tolist()
        assert rows == [row for row, value in enumerate(ids) if value == id_]


@settings(deadline=None)
@given(scattered_ids, st.integers(1, 9))
def test_blocks_cover_each_row_once_and_waste_less_than_half(ids, max_cells):
    segments = Segments.from_ids(ids)
    seen = []
    for block in segments.blocks(max_cells):
        assert block.rows.size <= max(max_cells, segments.lengths.max())
        assert 2 * block.valid.sum() > block.rows.size
        for segment, rows, valid in zip(*block):
            assert not (np.diff(valid.astype(int)) > 0).any()
            assert {ids[row] for row in rows} == {segments.ids[segment]}
            seen.extend(rows[valid].tolist())
    assert sorted(seen) == list(range(len(ids)))


def test_string_ids_and_large_integers_stay_distinct():
    assert Segments.from_ids(["b", "a", "b"]).ids.tolist() == ["b", "a"]
    assert Segments.from_ids(np.array(["b", "a"], dtype=object)).ids.tolist() == ["b", "a"]
    assert len(Segments.from_ids(np.array([2**53, 2**53 + 1, 2**53]))) == 2


def test_sums_count_booleans():
    segments = Segments.from_ids([4, 7, 4, 4])
    assert segments.sum(np.array([True, True, True, False])).tolist() == [2, 1]
    assert segments.sum(np.array([1.0, 5.0, 2.0, 4.0])).tolist() == [7.0, 5.0]


@pytest.mark.parametrize("ids", [[], [[1, 2]], [1.5, 2.0], [None, "a"], [True, False]])
def test_segments_refuse_other_identifiers(ids):
    with pytest.raises(InputError, match="qid"):
        Segments.from_ids(ids)


@settings(deadline=None)
@given(
    st.integers(1, 6).flatmap(
        lambda width: st.lists(
            st.lists(st.integers(0, 3), min_size=width, max_size=width), min_size=1, max_size=8
        )
    ),
    st.integers(1, 6),
)
def test_top_k_is_the_stable_order_cut_short(rows, k):
    scores = np.array(rows, dtype=float)
    stable = np.argsort(-scores, axis=1, kind="stable")
    np.testing.assert_array_equal(descending_order(scores), stable)
    k = min(k, scores.shape[1])
    np.testing.assert_array_equal(top_k(scores, k), stable[:, :k])


def test_top_k_of_wide_rows_with_ties_across_the_cut():
    rng = np.random.default_rng(0)
    scores = np.concatenate([rng.integers(0, 8, (20, 200)), rng.normal(size=(20, 200))])
    stable = np.argsort(-scores, axis=1, kind="stable")
    for k in (1, 3, 50, 150, 200):
        np.testing.assert_array_equal(top_k(scores, k), stable[:, :k])
