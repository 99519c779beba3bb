import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline_lib.errors import InputError
from pipeline_lib.metrics.annotation import annotation_metrics, tag_metrics
from pipeline_lib.metrics.completion import completion_metrics


def top(scores, n, allowed=None):
    columns = range(len(scores)) if allowed is None else np.flatnonzero(allowed)
    return sorted(columns, key=lambda j: -scores[j])[:n]


def test_annotation_by_hand():
    scores = [[0.9, 0.8, 0.1, 0.7], [0.1, 0.2, 0.3, 0.4]]
    Y = [[1, 0, 0, 1], [1, 0, 0, 0]]
    result = annotation_metrics(scores, Y, [1, 3])
    first, second = result.per_item.iter_rows(named=True)
    assert first == pytest.approx(
        {
            "image": 0,
            "ap_at_1": 1,
            "ap_at_3": 2 / 3,
            "ar_at_1": 0.5,
            "ar_at_3": 1,
            "f1_at_1": 2 / 3,
            "f1_at_3": 0.8,
        }
    )
    assert set(second.values()) == {1, 0.0}
    assert result.means["ap_at_3"] == pytest.approx(1 / 3)
    assert result.means["f1_at_3"] == pytest.approx(0.4)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6))
def test_annotation_and_completion_agree_with_plain_loops(seed):
    rng = np.random.default_rng(seed)
    shape = (12, 9)
    scores = rng.integers(0, 5, shape).astype(float)
    truth = rng.random(shape) < 0.3
    observed = rng.random(shape) < 0.25
    annotated = annotation_metrics(scores, truth, [1, 4, 9]).per_item
    completed = completion_metrics(scores, observed, truth, [1, 4, 9]).per_item
    of_all = completion_metrics(scores, observed, truth, [1, 4, 9], recall_of="all").per_item
    for i in range(len(scores)):
        n_true, hidden = truth[i].sum(), truth[i] & ~observed[i]
        for t in (1, 4, 9):
            hits = sum(truth[i, j] for j in top(scores[i], t))
            row = annotated.row(i, named=True)
            if n_true:
                p, r = hits / t, hits / n_true
                assert row[f"ap_at_{t}"] == pytest.approx(p)
                assert row[f"ar_at_{t}"] == pytest.approx(r)
                assert row[f"f1_at_{t}"] == pytest.approx(2 * p * r / (p + r) if hits else 0)
            else:
                assert row[f"ap_at_{t}"] is row[f"ar_at_{t}"] is row[f"f1_at_{t}"] is None
            row = completed.row(i, named=True)
            hits = sum(hidden[j] for j in top(scores[i], t, ~observed[i]))
            if hidden.any():
                assert row[f"ap_at_{t}"] == pytest.approx(hits / t)
                assert row[f"ar_at_{t}"] == pytest.approx(hits / hidden.sum())
                assert row[f"c_at_{t}"] == float(hits > 0)
                assert of_all[f"ar_at_{t}"][i] == pytest.approx(hits / n_true)
            else:
                assert row[f"ap_at_{t}"] is row[f"ar_at_{t}"] is row[f"c_at_{t}"] is None


def test_default_cutoffs_are_one_to_ten():
    rng = np.random.default_rng(0)
    means = annotation_metrics(rng.random((3, 12)), np.eye(3, 12)).means
    assert [name for name in means if name.startswith("ap")] == [f"ap_at_{t}" for t in range(1, 11)]


def test_the_true_tags_as_scores_are_perfect():
    rng = np.random.default_rng(0)
    Y = rng.random((50, 20)) < 0.4
    Y[:, 0] = True
    means = annotation_metrics(Y.astype(float), Y, [1, 20]).means
    assert means["ap_at_1"] == 1.0
    assert means["ar_at_20"] == 1.0
    observed = Y & (rng.random(Y.shape) < 0.5)
    means = completion_metrics(Y.astype(float), observed, Y, [1, 20]).means
    assert (means["ap_at_1"], means["ar_at_20"], means["c_at_1"]) == (1.0, 1.0, 1.0)


def test_images_without_hidden_tags_are_left_out():
    truth = np.array([[1, 1, 0], [1, 0, 1]])
    observed = np.array([[1, 1, 0], [1, 0, 0]])
    result = completion_metrics(np.zeros((2, 3)), observed, truth, 1)
    assert result.per_item["ap_at_1"].to_list() == [None, 0.0]
    assert result.means["ap_at_1"] == 0.0
    nothing = completion_metrics(np.zeros((2, 3)), truth, truth, 1)
    assert math.isnan(nothing.means["c_at_1"])


def test_observed_tags_are_never_retrieved_even_when_few_others_remain():
    truth = np.array([[1, 1, 1, 0]])
    observed = np.array([[1, 1, 0, 0]])
    means = completion_metrics([[9.0, 8.0, 1.0, 2.0]], observed, truth, [1, 3]).means
    assert means["ap_at_1"] == 0.0
    assert means["ap_at_3"] == pytest.approx(1 / 3)
    assert means["ar_at_3"] == 1.0


def test_tag_metrics_by_hand():
    scores = np.array([[3, 2, 1, 0], [3, 1, 2, 0], [0, 3, 2, 1]], dtype=float)
    Y = np.array([[1, 1, 0, 0], [0, 0, 0, 0], [1, 1, 0, 1]])
    result = tag_metrics(scores, Y, n_tags=2, tags=["sky", "sea", "sun", "tree"])
    # Given: image 0 sky sea; image 1 sky sun; image 2 sea sun.
    assert result.per_item.rows() == [
        ("sky", 0.5, 0.5, 1.0),
        ("sea", 1.0, 1.0, 1.0),
        ("sun", None, None, None),
        ("tree", 0.0, 0.0, 0.0),
    ]
    assert result.means == {"precision": 0.5, "recall": 0.5, "n_plus": 2.0}


@pytest.mark.parametrize("metric", [annotation_metrics, tag_metrics])
def test_annotation_refuses_bad_input(metric):
    scores = np.zeros((2, 3))
    with pytest.raises(InputError, match=r"Y\[1, 2\] is 2"):
        metric(scores, [[0, 1, 0], [0, 1, 2]], 1)
    with pytest.raises(InputError, match="Y has shape"):
        metric(scores, np.zeros((3, 2)), 1)
    with pytest.raises(InputError, match="cut-off 4"):
        metric(scores, np.zeros((2, 3)), 4)
    with pytest.raises(InputError, match="score nan"):
        metric([[np.nan, 0, 0]], [[0, 1, 0]], 1)
    with pytest.raises(InputError, match=r"Y\[0, 0\] is nan"):
        metric([[0.0, 0, 0]], [[np.nan, 1, 0]], 1)


def test_completion_and_tag_names_refuse_bad_input():
    zeros = np.zeros((2, 3))
    with pytest.raises(InputError, match="observed has shape"):
        completion_metrics(zeros, zeros[:1], zeros, 1)
    with pytest.raises(InputError, match=r"truth\[0, 0\] is 0.5"):
        completion_metrics(zeros, zeros, zeros + 0.5, 1)
    with pytest.raises(InputError, match="recall_of is 'some'"):
        completion_metrics(zeros, zeros, zeros, 1, recall_of="some")
    with pytest.raises(InputError, match="2 tag names"):
        tag_metrics(zeros, zeros, 1, tags=["a", "b"])
