"""What every registered completion method must do, whatever it is."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

from pipeline_lib import registry
from pipeline_lib.base import IterativeEstimator
from pipeline_lib.completion.base import TagCompleter
from pipeline_lib.completion.sampling import hide_tags
from pipeline_lib.datasets.generators import low_rank_tags
from pipeline_lib.errors import InputError
from pipeline_lib.metrics.completion import completion_metrics

SPECS = [
    pytest.param(spec, id=spec.name)
    for spec in registry.methods()
    if spec.kind == "completion" and spec.skip() is None
]

_data = low_rank_tags(
    150, 30, 3, n_observed=6, n_features=8, concentration=0.15, floor=0.02, seed=3
)
assert _data.X is not None and _data.Y is not None
X, Y = _data.X, _data.Y
D = hide_tags(Y, 3, seed=1)


def build(spec: registry.MethodSpec) -> TagCompleter:
    params: dict[str, Any] = {name: values[0] for name, values in spec.test_grid.items()}
    if "random_state" in spec.parameters():
        params["random_state"] = 5
    model: TagCompleter = spec.load()(**{**spec.defaults, **params})
    return model


def fitted(spec: registry.MethodSpec, tags: Any, features: Any) -> TagCompleter:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return build(spec).fit(tags, X=features)


@pytest.mark.parametrize("spec", SPECS)
def test_scores_are_finite_repeatable_and_the_input_is_left_alone(
    spec: registry.MethodSpec,
) -> None:
    given_D, given_X = D.copy(), X.copy()
    model = build(spec)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        assert model.fit(given_D, X=given_X) is model
    assert model.scores_.shape == D.shape
    assert model.scores_.dtype == np.float64
    assert np.isfinite(model.scores_).all()
    assert np.array_equal(given_D, D) and np.array_equal(given_X, X)
    assert np.array_equal(fitted(spec, D, X).scores_, model.scores_)
    assert np.array_equal(fitted(spec, sparse.coo_matrix(D), X).scores_, model.scores_)
    if isinstance(model, IterativeEstimator):
        assert model.n_iter_ == len(model.history_["objective"])
        assert np.isfinite(model.history_["objective"]).all()


@pytest.mark.parametrize("spec", SPECS)
def test_hidden_tags_come_back_more_often_than_by_chance(spec: registry.MethodSpec) -> None:
    found = completion_metrics(fitted(spec, D, X).scores_, D, Y, [3]).means["ap_at_3"]
    chance = (Y & ~D.astype(bool)).sum() / (D == 0).sum()
    if spec.name == "MaximumLikelihood":
        # By definition it gives no other tag any probability: the ranking is the order of tags.
        assert found < 1.5 * chance
    else:
        assert found > 1.5 * chance


@pytest.mark.parametrize("spec", SPECS)
def test_the_order_of_images_does_not_matter(spec: registry.MethodSpec) -> None:
    if spec.stochastic:
        pytest.skip("starts from random numbers drawn image by image")
    order = np.random.default_rng(0).permutation(len(D))
    scores = fitted(spec, D, X).scores_
    moved = fitted(spec, D[order], X[order]).scores_
    assert np.abs(moved - scores[order]).max() < 2e-3 * np.abs(scores).max()


@pytest.mark.parametrize("spec", SPECS)
def test_visual_input_is_declared(spec: registry.MethodSpec) -> None:
    model = build(spec)
    if model.visual_input == "none":
        assert np.array_equal(fitted(spec, D, None).scores_, fitted(spec, D, X).scores_)
        return
    with pytest.raises(InputError, match="features"):
        model.fit(D)
    other = np.random.default_rng(0).permutation(X)
    assert not np.allclose(fitted(spec, D, other).scores_, fitted(spec, D, X).scores_)


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("value", [np.nan, -1.0, 0.5, np.inf])
def test_what_is_no_tag_matrix_is_refused(spec: registry.MethodSpec, value: float) -> None:
    wrong = D.astype(float)
    wrong[4, 7] = value
    for tags in (wrong, sparse.csr_array(wrong), np.zeros_like(D), D[0], np.empty((0, 3))):
        with pytest.raises(InputError):
            build(spec).fit(tags, X=X)


@pytest.mark.parametrize("spec", SPECS)
def test_counts_are_taken_or_refused(spec: registry.MethodSpec) -> None:
    counts = D.astype(np.int64)
    counts[counts > 0] = np.random.default_rng(1).integers(1, 4, int(D.sum()))
    if not build(spec).takes_counts:
        with pytest.raises(InputError, match="only 0 and 1"):
            build(spec).fit(counts, X=X)
    else:
        assert not np.allclose(fitted(spec, counts, X).scores_, fitted(spec, D, X).scores_)


@pytest.mark.parametrize("spec", SPECS)
def test_features_that_do_not_fit_are_refused(spec: registry.MethodSpec) -> None:
    for features in (X[:-1], X[:, 0], np.where(X[0, 0] == X, np.nan, X)):
        with pytest.raises(InputError):
            build(spec).fit(D, X=features)
