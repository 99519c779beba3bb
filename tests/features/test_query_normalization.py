"""Query-level min-max: closed form, idempotence, order of rows, degenerate input."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.preprocessing import minmax_scale

from pipeline_lib.errors import InputError
from pipeline_lib.features.query_normalization import query_minmax


def test_agrees_with_scaling_each_query_alone():
    rng = np.random.default_rng(0)
    X = rng.uniform(-109, 239, size=(200, 6))
    qid = np.sort(rng.integers(0, 23, size=200))
    expected = np.vstack([minmax_scale(X[qid == query]) for query in np.unique(qid)])
    np.testing.assert_allclose(query_minmax(X, qid), expected, atol=1e-12)


def test_constant_features_and_single_documents_become_zero():
    X = [[5.0, 1.0], [5.0, 3.0], [9.0, 9.0]]
    np.testing.assert_array_equal(query_minmax(X, [1, 1, 2]), [[0, 0], [0, 1], [0, 0]])


def test_rows_of_a_query_need_not_be_contiguous():
    rng = np.random.default_rng(1)
    X, qid = rng.normal(size=(60, 3)), np.repeat(["a", "b", "c"], 20)
    shuffle = rng.permutation(60)
    np.testing.assert_array_equal(
        query_minmax(X[shuffle], qid[shuffle]), query_minmax(X, qid)[shuffle]
    )


def test_missing_values():
    X = [[np.nan, np.nan], [2.0, np.nan], [4.0, np.nan]]
    with pytest.raises(InputError, match="feature 0 of row 0 is nan"):
        query_minmax(X, [1, 1, 1])
    np.testing.assert_array_equal(
        query_minmax(X, [1, 1, 1], missing="minimum"), [[0, 0], [0, 0], [1, 0]]
    )
    with pytest.raises(InputError, match="inf"):
        query_minmax([[np.inf]], [1], missing="minimum")


def test_input_is_left_alone_and_types_are_kept():
    X = np.array([[1.0], [3.0]], np.float32)
    assert query_minmax(X, [1, 1]).dtype == np.float32
    assert query_minmax([[1], [3]], [1, 1]).dtype == np.float64
    np.testing.assert_array_equal(X, [[1], [3]])
    assert query_minmax(np.empty((0, 3)), []).shape == (0, 3)
    with pytest.raises(InputError, match="shape"):
        query_minmax(X, [1])


@settings(deadline=None, max_examples=150)
@given(
    st.integers(1, 12).flatmap(
        lambda n: st.tuples(
            arrays(np.float64, (n, 3), elements=st.floats(allow_nan=False, allow_infinity=False)),
            arrays(np.int64, n, elements=st.integers(0, 3)),
        )
    )
)
def test_range_order_and_idempotence(table):
    X, qid = table
    Z = query_minmax(X, qid)
    assert ((Z >= 0) & (Z <= 1)).all()
    np.testing.assert_allclose(query_minmax(Z, qid), Z, rtol=1e-12)
    for query in np.unique(qid):
        rows, scaled = X[qid == query], Z[qid == query]
        order = np.argsort(rows, axis=0, kind="stable")
        assert (np.diff(np.take_along_axis(scaled, order, axis=0), axis=0) >= 0).all()
