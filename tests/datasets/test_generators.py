from __future__ import annotations

import numpy as np
import pytest

from pipeline_lib.datasets.generators import (
    draw_tags,
    letor_like,
    low_rank_probabilities,
    low_rank_tags,
    three_rings,
    two_moons,
)
from pipeline_lib.errors import InputError


@pytest.mark.parametrize("make", [two_moons, three_rings, low_rank_tags, letor_like])
def test_equal_seeds_give_equal_data_and_other_seeds_other_data(make):
    first, again, other = make(seed=3), make(seed=3), make(seed=4)
    np.testing.assert_array_equal(first.X, again.X)
    assert not np.array_equal(first.X, other.X)
    for field in ("y", "Y", "qid"):
        if getattr(first, field) is not None:
            np.testing.assert_array_equal(getattr(first, field), getattr(again, field))


def test_moons_without_noise_lie_on_their_half_circles():
    data = two_moons(101, noise=0.0, seed=1)
    assert np.bincount(data.y).tolist() == [51, 50]
    upper, lower = data.X[data.y == 0], data.X[data.y == 1]
    np.testing.assert_allclose(np.linalg.norm(upper, axis=1), 1.0)
    np.testing.assert_allclose(np.linalg.norm(lower - [1.0, 0.5], axis=1), 1.0)
    assert (upper[:, 1] >= 0).all() and (lower[:, 1] <= 0.5).all()
    assert (np.diff(upper[:, 0]) > 0).all() and (np.diff(lower[:, 0]) > 0).all()


@pytest.mark.parametrize("make", [two_moons, three_rings])
@pytest.mark.parametrize("seed", range(5))
def test_neighbours_along_a_curve_are_nearer_than_the_other_curve(make, seed):
    # What makes the figures of the paper: a walk between near points never changes the curve.
    data = make(seed=seed, noise=0.03)
    distance = np.linalg.norm(data.X[:, None] - data.X[None], axis=2)
    same = data.y[:, None] == data.y[None]
    np.fill_diagonal(distance, np.inf)
    assert np.where(same, distance, np.inf).min(axis=1).max() < distance[~same].min()


def test_rings_share_points_by_length():
    data = three_rings(600, noise=0.0, seed=0)
    assert np.bincount(data.y).tolist() == [100, 200, 300]
    np.testing.assert_allclose(np.linalg.norm(data.X, axis=1), data.y + 1.0)


def test_low_rank_probabilities_are_a_low_rank_stochastic_matrix_above_its_floor():
    P, weights = low_rank_probabilities(80, 30, 4, floor=0.2, seed=2)
    np.testing.assert_allclose(P.sum(axis=1), 1.0)
    np.testing.assert_allclose(weights.sum(axis=1), 1.0)
    assert P.min() >= 0.2 / 30 - 1e-15
    assert np.linalg.matrix_rank(P) == 4


def test_draws_follow_the_probabilities():
    P = np.tile([0.5, 0.3, 0.15, 0.05], (20_000, 1))
    counts = draw_tags(P, 3, replace=True, seed=0)
    assert (counts.sum(axis=1) == 3).all()
    np.testing.assert_allclose(counts.mean(axis=0) / 3, P[0], atol=0.01)
    distinct = draw_tags(P, 1, seed=0)
    np.testing.assert_allclose(distinct.mean(axis=0), P[0], atol=0.015)
    # Two successive draws without replacement: P(tag) = p + sum_o p_o p / (1 - p_o).
    p = P[0]
    expected = p + np.array(
        [sum(p[o] * p[j] / (1 - p[o]) for o in range(4) if o != j) for j in range(4)]
    )
    np.testing.assert_allclose(draw_tags(P, 2, seed=1).mean(axis=0), expected, atol=0.015)


def test_low_rank_tags_have_the_asked_number_of_distinct_tags_and_the_documented_truth():
    data = low_rank_tags(60, 20, 3, n_observed=5, n_features=7, seed=9)
    assert data.X.shape == (60, 7) and data.Y.shape == (60, 20) and data.Y.dtype == np.uint8
    assert (data.Y.sum(axis=1) == 5).all()
    assert len(set(data.tags)) == 20
    P, _ = low_rank_probabilities(60, 20, 3, seed=9)
    assert P[data.Y == 1].mean() > 2 * P[data.Y == 0].mean()


def test_letor_like_has_letors_shape():
    data = letor_like(40, (5, 30), 12, seed=5, label_shares=(0.7, 0.2, 0.1))
    lengths = np.bincount(data.qid)
    assert lengths.size == 40 and lengths.min() >= 5 and lengths.max() <= 30
    assert (np.diff(data.qid) >= 0).all()
    assert data.X.min() == 0.0 and data.X.max() == 1.0
    np.testing.assert_allclose(np.bincount(data.y) / len(data), [0.7, 0.2, 0.1], atol=0.01)
    for query in range(40):
        rows = data.X[data.qid == query]
        assert (rows.min(axis=0) == 0).all() and (rows.max(axis=0) == 1).all()
    with pytest.raises(InputError, match="label_shares"):
        letor_like(label_shares=(0.5, 0.4))


def test_letor_like_can_be_learnt_by_a_line_and_better_by_a_curve():
    from sklearn.linear_model import Ridge
    from sklearn.svm import SVR

    data = letor_like(60, 40, 20, seed=0)
    train = data.qid < 30
    target = data.y[~train]

    def correlation(model):
        return np.corrcoef(model.fit(data.X[train], data.y[train]).predict(data.X[~train]), target)[
            0, 1
        ]

    linear = correlation(Ridge(1.0))
    assert linear > 0.4
    assert correlation(SVR(gamma=0.2)) > linear + 0.03


def test_one_document_queries_and_one_feature_are_fine():
    data = letor_like(3, 1, 1, seed=0)
    assert data.X.tolist() == [[0.0], [0.0], [0.0]]


@pytest.mark.parametrize(
    "call",
    [
        lambda: two_moons(1),
        lambda: two_moons(10, noise=-1),
        lambda: three_rings(3),
        lambda: low_rank_tags(10, 5, 6),
        lambda: low_rank_tags(10, 5, 2, n_observed=6),
        lambda: letor_like(0),
        lambda: letor_like(3, (5, 2)),
    ],
)
def test_impossible_sizes_are_refused(call):
    with pytest.raises(InputError, match="expected"):
        call()
