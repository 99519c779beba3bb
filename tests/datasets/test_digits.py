"""The embedded digits: the rules of their derivation hold."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_digits

from pipeline_lib.datasets.acquire import load
from pipeline_lib.datasets.digits import FEATURES, NAMES, TAGS, digits_table
from pipeline_lib.errors import InputError

TRUTH = load_digits().target


def rows_of(ids) -> np.ndarray:
    return np.array([int(name.removeprefix("digit-")) for name in ids])


def test_classes():
    data = load("digits")
    np.testing.assert_array_equal(data.X * 16, load_digits().data)
    np.testing.assert_array_equal(data.y, TRUTH)
    assert data.info["classes"] == list(NAMES)


def test_tags():
    data = load("digits", "tags/all")
    assert data.tags == TAGS and data.Y.shape == (1797, 21)
    per_image = data.Y.sum(axis=1)
    assert (per_image.min(), per_image.max()) == (3, 6)
    np.testing.assert_array_equal(data.Y[:, :10].argmax(axis=1), TRUTH)
    for group in (slice(0, 10), slice(10, 12), slice(12, 15)):
        np.testing.assert_array_equal(data.Y[:, group].sum(axis=1), 1)
    for opposite in (15, 17, 19):
        assert data.Y[:, opposite : opposite + 2].sum(axis=1).max() == 1
    # Loops are counted on the strokes, and agree with the digit for most images.
    expected = np.array([1, 0, 0, 0, 0, 0, 1, 0, 2, 1])[TRUTH]
    assert (data.Y[:, 12:15].argmax(axis=1) == expected).mean() > 0.7


@pytest.fixture(scope="module")
def ranking():
    return {split: load("digits", f"ltr/{split}") for split in ("train", "vali", "test")}


@pytest.mark.parametrize("split, queries", [("train", 60), ("vali", 20), ("test", 30)])
def test_ranking_grades(ranking, split, queries):
    data = ranking[split]
    assert data.X.shape == (queries * 40, len(FEATURES))
    table = digits_table(0, task="ranking", split=split)
    (rows,) = table.blocks
    source, document = TRUTH[rows_of(rows.qid)], TRUTH[rows_of(rows.ids)]
    assert (rows_of(rows.qid) != rows_of(rows.ids)).all()
    look_alike = table.findings["look_alikes"]
    alike = np.array([NAMES.index(look_alike[name]) for name in NAMES])[source]
    grades = data.y.reshape(queries, 40)
    np.testing.assert_array_equal((grades == 2).sum(axis=1), 4)
    np.testing.assert_array_equal((grades == 1).sum(axis=1), 7)
    assert (document[data.y == 2] == source[data.y == 2]).all()
    assert ((document == source) | (document == alike))[data.y == 1].all()
    assert (document[data.y == 0] != source[data.y == 0]).all()


def test_ranking_parts_share_no_image(ranking):
    used = []
    for split in ranking:
        (rows,) = digits_table(0, task="ranking", split=split).blocks
        used.append(set(rows.qid) | set(rows.ids))
    assert not (used[0] & used[1] or used[0] & used[2] or used[1] & used[2])


def test_features_are_scaled_within_queries_and_no_single_one_gives_the_grades(ranking):
    data = ranking["train"]
    by_query = data.X.reshape(60, 40, -1)
    assert by_query.min() == 0 and by_query.max() == 1
    spans = by_query.max(axis=1) - by_query.min(axis=1)
    assert np.isin(spans, (0.0, 1.0)).all()
    relevant = data.y.reshape(60, 40) == 2
    for feature in range(by_query.shape[2]):
        for sign in (1, -1):
            top = np.argsort(-sign * by_query[:, :, feature], axis=1, kind="stable")[:, :4]
            assert np.take_along_axis(relevant, top, axis=1).mean() < 0.85


def test_the_seed_decides(ranking):
    np.testing.assert_array_equal(load("digits", "ltr/vali").X, ranking["vali"].X)
    assert (load("digits", "ltr/vali", seed=1).X != ranking["vali"].X).any()


def test_unknown_tasks():
    with pytest.raises(InputError, match="task classes, tags or ranking"):
        digits_table(0, task="ranking", split="dev")
