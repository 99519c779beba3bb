import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline_lib.errors import InputError
from pipeline_lib.metrics import retrieval
from pipeline_lib.metrics.retrieval import retrieval_metrics


def naive(scores, labels, query, cutoffs, count_query):
    """One query from the definitions, in plain loops."""
    own = set(np.atleast_1d(query).tolist())
    rest = sorted((i for i in range(len(labels)) if i not in own), key=lambda i: -scores[i])
    ranked = [*sorted(own), *rest] if count_query else rest
    relevant = [labels[i] == labels[min(own)] for i in ranked]
    total = sum(relevant)
    names = [*(f"p_at_{k}" for k in cutoffs), *(f"recall_at_{k}" for k in cutoffs)]
    if total == 0:
        return dict.fromkeys([*names, "map", "bulls_eye"])
    out = {f"p_at_{k}": sum(relevant[:k]) / k for k in cutoffs}
    out |= {f"recall_at_{k}": sum(relevant[:k]) / total for k in cutoffs}
    precisions = [sum(relevant[:r]) / r for r in range(1, len(ranked) + 1) if relevant[r - 1]]
    out["map"] = sum(precisions) / total
    out["bulls_eye"] = sum(relevant[: 2 * total]) / total
    return out


def test_hand_written_case():
    labels = np.array(["a", "b", "a", "b", "a"])
    scores = np.array([[0.1, 0.9, 0.8, 0.7, 0.0]])
    counted = retrieval_metrics(scores, labels, [0], [1, 3])
    # The query (item 0) first, then items 1, 2, 3, 4: relevant at ranks 1, 3, 5.
    assert counted.per_item.row(0, named=True) == {
        "query": 0,
        "p_at_1": 1.0,
        "p_at_3": pytest.approx(2 / 3),
        "recall_at_1": pytest.approx(1 / 3),
        "recall_at_3": pytest.approx(2 / 3),
        "map": pytest.approx((1 + 2 / 3 + 3 / 5) / 3),
        "bulls_eye": 1.0,
    }
    # Without it: relevant at ranks 2 and 4 of 1, 2, 3, 4.
    apart = retrieval_metrics(scores, labels, [0], 3, count_query=False)
    assert apart.means == pytest.approx(
        {"p_at_3": 1 / 3, "recall_at_3": 0.5, "map": 0.5, "bulls_eye": 1.0}
    )


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.booleans(), st.booleans())
def test_agrees_with_plain_loops(seed, count_query, several_points):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 4, 24)
    scores = rng.integers(0, 6, (9, 24)).astype(float)
    if several_points:
        queries = [rng.choice(np.flatnonzero(labels == labels[i]), 2) for i in range(9)]
    else:
        queries = rng.integers(0, 24, 9)
    result = retrieval_metrics(scores, labels, queries, [1, 5, 20], count_query)
    for row, query, values in zip(result.per_item.iter_rows(named=True), queries, scores):
        row.pop("query")
        expected = naive(values, labels, query, [1, 5, 20], count_query)
        for name, value in expected.items():
            assert row[name] == (None if value is None else pytest.approx(value)), name


def test_published_rows_satisfy_recall_equals_precision_times_k_over_class_size():
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(8), 10)
    means = retrieval_metrics(rng.random((80, 80)), labels, np.arange(80), [15]).means
    assert means["recall_at_15"] == pytest.approx(means["p_at_15"] * 15 / 10)


def test_query_is_first_even_when_its_score_is_not():
    labels = np.array([0, 1, 1, 1])
    scores = np.array([[-5.0, 3.0, 2.0, 1.0]])
    assert retrieval_metrics(scores, labels, [0], [1]).means["p_at_1"] == 1.0
    assert scores[0, 0] == -5.0  # the caller's array is left alone


def test_query_with_nothing_to_find_is_null_and_not_averaged():
    labels = np.array([0, 1, 1])
    scores = np.eye(3)
    result = retrieval_metrics(scores, labels, [0, 1, 2], [1], count_query=False)
    assert result.per_item["map"].is_null().to_list() == [True, False, False]
    assert result.per_item["p_at_1"].is_null().to_list() == [True, False, False]
    assert result.means["recall_at_1"] == result.per_item["recall_at_1"].mean()


def test_row_blocks_give_the_same(monkeypatch):
    rng = np.random.default_rng(3)
    labels = rng.integers(0, 3, 40)
    scores = rng.integers(0, 9, (40, 40)).astype(float)
    whole = retrieval_metrics(scores, labels, np.arange(40), [5])
    monkeypatch.setattr(retrieval, "_MAX_CELLS", 120)
    assert retrieval_metrics(scores, labels, np.arange(40), [5]).per_item.equals(whole.per_item)


def test_queries_of_several_points_are_named_by_their_indices():
    labels = np.array([0, 0, 1])
    result = retrieval_metrics(np.zeros((2, 3)), labels, [[1, 0], 2], [2])
    assert result.per_item["query"].to_list() == ["0+1", "2"]
    assert result.per_item["p_at_2"].to_list() == [1.0, 0.5]


@pytest.mark.parametrize(
    ("queries", "cutoffs", "message"),
    [
        ([0], [1], "1 queries"),
        ([0, 3], [1], "query 1 is 3"),
        ([0, -1], [1], "query 1 is -1"),
        ([0, []], [1], "query 1"),
        ([0, 0.5], [1], "query 1"),
        ([0, [1, 2]], [1], "different labels"),
        ([0, 1], [0], "cut-off 0"),
        ([0, 1], [4], "cut-off 4"),
        ([0, 1], [], "cutoffs"),
        ([0, 1], [1.5], "cutoffs"),
    ],
)
def test_refuses_bad_queries_and_cutoffs(queries, cutoffs, message):
    with pytest.raises(InputError, match=message):
        retrieval_metrics(np.zeros((2, 3)), [0, 0, 1], queries, cutoffs)


def test_cutoff_limit_excludes_the_query_when_it_is_not_counted():
    with pytest.raises(InputError, match="cut-off 3"):
        retrieval_metrics(np.zeros((1, 3)), [0, 0, 1], [0], [3], count_query=False)


def test_refuses_bad_scores_and_labels():
    with pytest.raises(InputError, match=r"nan at position \(0, 1\)"):
        retrieval_metrics([[0.0, np.nan]], [0, 1], [0], [1])
    with pytest.raises(InputError, match="labels has shape"):
        retrieval_metrics([[0.0, 1.0]], [0, 1, 2], [0], [1])
    with pytest.raises(InputError, match="1 dimensions"):
        retrieval_metrics([0.0, 1.0], [0, 1], [0], [1])
