"""What every registered retrieval method must do, whatever it computes."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from pipeline_lib import registry
from pipeline_lib.errors import InputError

SPECS = [
    pytest.param(spec, id=spec.name)
    for spec in registry.methods()
    if spec.kind == "retrieval" and spec.skip() is None
]
pytestmark = pytest.mark.parametrize("spec", SPECS)


def fitted(spec, X, **more):
    """The method at the first value of each parameter of its test grid."""
    params = {name: values[0] for name, values in spec.test_grid.items()}
    return spec.load()(**{**spec.defaults, **params, **more}).fit(X)


@pytest.fixture
def X():
    return np.random.default_rng(0).standard_normal((40, 3))


def test_scores_are_finite_and_of_the_promised_shape(spec, X):
    model = fitted(spec, X)
    for scores in (model.rank([0, 7, 39]), model.rank_vectors(X[:3] + 0.1)):
        assert scores.shape == (3, 40)
        assert np.isfinite(scores).all()


def test_equal_calls_give_equal_scores(spec, X):
    first, second = fitted(spec, X), fitted(spec, X)
    np.testing.assert_array_equal(first.rank([3, 8]), second.rank([3, 8]))
    np.testing.assert_array_equal(first.rank([3, 8]), first.rank([3, 8]))


def test_a_query_does_not_depend_on_those_beside_it(spec, X):
    model = fitted(spec, X)
    together = model.rank(range(40))
    for query in (0, 21):
        np.testing.assert_allclose(model.rank([query])[0], together[query], rtol=1e-7, atol=1e-9)


def test_order_is_a_permutation_with_the_query_first(spec, X):
    order = fitted(spec, X).order([5, [30, 2]])
    assert (np.sort(order, axis=1) == np.arange(40)).all()
    assert order[0, 0] == 5
    assert set(order[1, :2]) == {2, 30}


def test_order_follows_the_scores(spec, X):
    model = fitted(spec, X)
    scores, order = model.rank([5])[0], model.order([5])[0]
    assert (np.diff(scores[order[1:]]) <= 0).all()


def test_scores_move_with_their_points(spec, X):
    moved = np.random.default_rng(1).permutation(40)
    scores = fitted(spec, X).rank([int(moved[4])])[0]
    of_moved = fitted(spec, X[moved]).rank([4])[0]
    np.testing.assert_allclose(of_moved, scores[moved], rtol=1e-7, atol=1e-9)


def test_the_place_of_the_data_in_space_does_not_matter(spec, X):
    turn = np.linalg.qr(np.random.default_rng(2).standard_normal((3, 3)))[0]
    scores = fitted(spec, X).rank([4])
    np.testing.assert_allclose(fitted(spec, X @ turn + 5.0).rank([4]), scores, rtol=1e-6, atol=1e-8)


def test_duplicates(spec):
    X = np.repeat(np.random.default_rng(3).standard_normal((10, 2)), 4, axis=0)
    model = fitted(spec, X)
    scores, order = model.rank([0])[0], model.order([0])[0]
    assert np.isfinite(scores).all()
    assert order[0] == 0
    assert (np.sort(order) == np.arange(40)).all()


def test_points_that_all_coincide(spec):
    model = fitted(spec, np.ones((40, 2)))
    assert np.isfinite(model.rank([2])).all()
    assert model.order([2])[0, 0] == 2


def test_one_point_is_ranked_or_refused(spec):
    try:
        model = fitted(spec, [[1.0, 2.0]])
    except InputError as error:
        assert "1" in str(error)
        return
    assert model.order([0]).tolist() == [[0]]


def test_no_query(spec, X):
    model = fitted(spec, X)
    assert model.rank([]).shape == (0, 40)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_refuses_what_is_not_finite(spec, X, bad):
    broken = X.copy()
    broken[3, 1] = bad
    with pytest.raises(InputError, match="NaN or infinity"):
        fitted(spec, broken)
    with pytest.raises(InputError, match="NaN or infinity"):
        fitted(spec, X).rank_vectors(broken[3:4])


@pytest.mark.parametrize("queries", [[40], [-1], [[]], [1.5]])
def test_refuses_queries_that_are_not_there(spec, X, queries):
    with pytest.raises(InputError):
        fitted(spec, X).rank(queries)


def test_refuses_vectors_of_another_length(spec, X):
    with pytest.raises(InputError, match="features"):
        fitted(spec, X).rank_vectors(np.zeros((1, 2)))


def test_too_few_iterations_are_said(spec, X):
    if "max_iter" not in spec.parameters():
        pytest.skip("not iterative")
    with pytest.warns(ConvergenceWarning):
        fitted(spec, X, max_iter=1).rank([0])
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        model = fitted(spec, X, max_iter=500)
        model.rank([0])
    assert model.converged_
    assert model.objective_ == model.history_["objective"][-1]
