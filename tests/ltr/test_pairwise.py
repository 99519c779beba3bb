"""Pair-free sums against the pairs written out."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline_lib.errors import InputError
from pipeline_lib.ltr.pairwise import PreferencePairs


def explicit(y, qid):
    n = len(y)
    return [(i, j) for i in range(n) for j in range(n) if qid[i] == qid[j] and y[i] > y[j]]


def check_against_pairs(y, qid, scores, values, margin=1.0):
    pairs = PreferencePairs(y, qid)
    everything = explicit(y, qid)
    assert pairs.n_pairs == len(everything)
    active = pairs.active(scores, margin)
    expected = [(i, j) for i, j in everything if scores[i] - scores[j] < margin]
    assert active.n_pairs == len(expected)
    n = len(y)
    square, linear = 0.0, 0.0
    gradient, hinge_gradient, image = np.zeros(n), np.zeros(n), np.zeros((n, 2))
    matrix = np.column_stack([values, values**2])
    for i, j in expected:
        violation = margin - scores[i] + scores[j]
        square += violation**2
        linear += violation
        gradient[i] -= violation
        gradient[j] += violation
        hinge_gradient[i] -= 1
        hinge_gradient[j] += 1
        image[i] += matrix[i] - matrix[j]
        image[j] += matrix[j] - matrix[i]
    tolerance = {"rtol": 1e-10, "atol": 1e-9 * (1 + np.abs(scores).max(initial=0)) ** 2}
    value, half_gradient = active.squared_hinge()
    np.testing.assert_allclose(value, square, **tolerance)
    np.testing.assert_allclose(half_gradient, gradient, **tolerance)
    np.testing.assert_allclose(active.hinge(), linear, **tolerance)
    np.testing.assert_allclose(active.hinge_gradient(), hinge_gradient, **tolerance)
    np.testing.assert_allclose(active.apply(values), image[:, 0], **tolerance)
    np.testing.assert_allclose(active.apply(matrix), image, **tolerance)
    slope, curvature = active.quadratic(values)
    np.testing.assert_allclose(slope, values @ gradient, rtol=1e-9, atol=1e-7)
    np.testing.assert_allclose(curvature, values @ image[:, 0], rtol=1e-9, atol=1e-7)


@pytest.mark.parametrize("n_levels", [1, 2, 3, 5, 8, 1000])
@pytest.mark.parametrize("n_queries", [1, 4, 25])
@pytest.mark.parametrize("margin", [1.0, 0.25, -0.5])
def test_sums_are_those_over_explicit_pairs(n_levels, n_queries, margin):
    rng = np.random.default_rng(n_levels + 7 * n_queries)
    y, qid = rng.integers(0, n_levels, 60), rng.integers(0, n_queries, 60)
    check_against_pairs(y, qid, rng.standard_normal(60), rng.standard_normal(60), margin)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_ties_and_scores_exactly_at_the_margin(data):
    n = data.draw(st.integers(1, 14))
    integers = st.integers(-3, 3)
    y = np.array(data.draw(st.lists(integers, min_size=n, max_size=n)))
    qid = np.array(data.draw(st.lists(st.integers(0, 3), min_size=n, max_size=n)))
    scores = np.array(data.draw(st.lists(integers, min_size=n, max_size=n)), dtype=float)
    values = np.array(data.draw(st.lists(integers, min_size=n, max_size=n)), dtype=float)
    check_against_pairs(y, qid, scores, values)


def test_real_labels_and_text_query_ids():
    rng = np.random.default_rng(0)
    y, qid = rng.random(30), np.array(["b", "a", "c"])[rng.integers(0, 3, 30)]
    check_against_pairs(y, qid, rng.standard_normal(30), rng.standard_normal(30))


def test_one_document_and_one_label_queries_have_no_pairs():
    pairs = PreferencePairs([2, 1, 1, 1, 0], [5, 6, 6, 6, 7])
    assert pairs.n_pairs == 0
    active = pairs.active(np.arange(5.0))
    assert active.squared_hinge()[0] == active.hinge() == active.n_pairs == 0.0
    assert not active.squared_hinge()[1].any() and not active.apply(np.ones(5)).any()
    assert PreferencePairs([], []).n_pairs == 0


def test_far_apart_scores_of_queries_do_not_cost_accuracy():
    # Within a query only differences matter, however large the scores of the query are.
    rng = np.random.default_rng(1)
    qid = np.repeat(np.arange(200), 20)
    y, u, v = rng.integers(0, 3, 4000), rng.standard_normal(4000), rng.standard_normal(4000)
    pairs = PreferencePairs(y, qid)
    offset = (2.0 ** rng.integers(0, 20, 200))[qid]
    near, far = pairs.active(u), pairs.active(u + offset)
    np.testing.assert_allclose(
        far.squared_hinge()[1], near.squared_hinge()[1], atol=1e-7, rtol=1e-7
    )
    np.testing.assert_allclose(far.apply(v + offset), near.apply(v), atol=1e-6)


def test_shuffled_rows_give_shuffled_results():
    rng = np.random.default_rng(2)
    y, qid, u = rng.integers(0, 4, 500), rng.integers(0, 30, 500), rng.standard_normal(500)
    order = rng.permutation(500)
    value, gradient = PreferencePairs(y, qid).active(u).squared_hinge()
    other, shuffled = PreferencePairs(y[order], qid[order]).active(u[order]).squared_hinge()
    assert other == pytest.approx(value, rel=1e-13)
    np.testing.assert_allclose(shuffled, gradient[order], atol=1e-11)


def test_memory_does_not_grow_with_the_number_of_pairs():
    import tracemalloc

    n = 20_000  # one query: two hundred million pairs
    rng = np.random.default_rng(0)
    y, u = rng.permutation(n), rng.standard_normal(n)
    tracemalloc.start()
    pairs = PreferencePairs(y, np.zeros(n))
    active = pairs.active(u)
    active.apply(u)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert pairs.n_pairs == n * (n - 1) // 2
    assert peak < 150 * 2**20


@pytest.mark.parametrize(
    ("y", "qid", "message"),
    [
        ([1.0, np.nan], [0, 0], "NaN"),
        ([1.0, 2.0], [0], "qid has shape"),
        ([[1.0], [2.0]], [0, 0], "y has shape"),
        (["a", "b"], [0, 0], "numbers"),
        ([1.0, 2.0], [0.0, np.nan], "qid contains"),
    ],
)
def test_wrong_labels_are_refused(y, qid, message):
    with pytest.raises(InputError, match=message):
        PreferencePairs(y, qid)
