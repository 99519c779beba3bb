"""Every listed annotation method can be made from its test grid and its defaults, and annotates."""

import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from pipeline_lib.annotation.methods import METHODS


@pytest.mark.parametrize("method", METHODS, ids=[method.name for method in METHODS])
def test_listed_methods_work(method) -> None:  # type: ignore[no-untyped-def]
    rng = np.random.default_rng(0)
    X = np.abs(rng.standard_normal((60, 6)))
    Y = (rng.random((60, 7)) < 0.35).astype(np.uint8)
    Y[:, 0] |= Y.sum(axis=1) == 0
    params = {**method.defaults, **{name: values[0] for name, values in method.test_grid.items()}}
    method.check(params)
    known = method.parameters()
    assert method.stochastic <= ("random_state" in known)
    if "random_state" in known:
        params["random_state"] = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        scores = method.load()(**params).fit(X, Y).predict(X[:5])
        again = method.load()(**params).fit(X, Y).predict(X[:5])
    assert scores.shape == (5, 7)
    assert np.isfinite(scores).all()
    np.testing.assert_array_equal(again, scores)


def test_names_are_unique() -> None:
    names = [method.name for method in METHODS]
    assert len(set(names)) == len(names)
