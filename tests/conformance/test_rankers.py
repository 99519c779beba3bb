"""What every ranker must do, whatever its method: over the whole registry, and its other forms."""

from __future__ import annotations

import importlib.util
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.exceptions import NotFittedError

from pipeline_lib import registry
from pipeline_lib.errors import InputError
from pipeline_lib.kernels.nystroem import Nystroem
from pipeline_lib.ltr.frank import FRank
from pipeline_lib.ltr.listnet import ListNet
from pipeline_lib.ltr.ranksvm import RankSVM
from pipeline_lib.ltr.regression import RegressionRanker

Array = NDArray[Any]

MAP = Nystroem(25, 0.5, random_state=0)
FORMS: dict[str, Callable[[], Any]] = {
    "RankSVM, hinge": lambda: RankSVM(C=10.0, loss="hinge", tol=1e-5),
    "RankSVM with a map inside": lambda: RankSVM(C=10.0, feature_map=MAP),
    "Regression with a map inside": lambda: RegressionRanker(alpha=0.1, feature_map=MAP),
    "ListNet with a map inside": lambda: ListNet(C=10.0, feature_map=MAP),
    "FRank with a map inside": lambda: FRank(feature_map=MAP, C=10.0),
}
# Methods that stop at a duality gap, or minimise what is not convex, agree to that gap only.
LOOSE = ("hinge", "RankSVMStruct", "SVM-MAP", "FRank")


def settings(spec: registry.MethodSpec) -> Iterator[Callable[[], Any]]:
    """The estimator at each setting of the method's test grid, a map inside where it takes one."""
    for values in itertools.product(*spec.test_grid.values()):
        params = {**spec.defaults, **dict(zip(spec.test_grid, values))}

        def make(params: dict[str, Any] = params) -> Any:
            cls = spec.load()
            own = {n: v for n, v in params.items() if n in cls().get_params(deep=False)}
            of_map = {n: v for n, v in params.items() if n not in own}
            if spec.feature_map is not None and "feature_map" in cls().get_params(deep=False):
                map_class = spec.load_feature_map()
                seeded = "random_state" in map_class(**of_map).get_params(deep=False)
                own["feature_map"] = map_class(**of_map, **({"random_state": 0} if seeded else {}))
            if "random_state" in cls().get_params(deep=False):
                own["random_state"] = 0
            return cls(**own)

        yield make


CASES = [
    pytest.param(tuple(settings(spec)), spec.name, id=spec.name)
    for spec in registry.methods()
    if spec.kind == "ltr" and all(importlib.util.find_spec(name) for name in spec.requires)
] + [pytest.param((make,), name, id=name) for name, make in FORMS.items()]
every_ranker = pytest.mark.parametrize(("makes", "name"), CASES)


def linear_data(
    n: int = 360, d: int = 4, n_queries: int = 18, seed: int = 0
) -> tuple[Array, Array, Array]:
    """Labels 0, 1, 2 are thirds of an exactly linear utility within each query."""
    rng = np.random.default_rng(seed)
    X = rng.random((n, d))
    qid = np.repeat(np.arange(n_queries), n // n_queries)
    utility = X @ np.array([1.0, 0.6, 0.3, -0.5])
    y = np.zeros(n, dtype=int)
    for q in range(n_queries):
        mine = qid == q
        y[mine] = 3 * np.argsort(np.argsort(utility[mine])) // mine.sum()
    return X, y, qid


def pair_accuracy(scores: Array, y: Array, qid: Array) -> float:
    right = total = 0
    for q in np.unique(qid):
        s, labels = scores[qid == q], y[qid == q]
        i, j = np.nonzero(labels[:, None] > labels[None, :])
        right += int((s[i] > s[j]).sum())
        total += len(i)
    return right / total


@every_ranker
def test_learns_a_noiseless_linear_ranking(makes: tuple[Callable[[], Any]], name: str) -> None:
    X, y, qid = linear_data()
    X_new, y_new, qid_new = linear_data(seed=1)
    reached = []
    for make in makes:
        scores = make().fit(X, y, qid).predict(X_new)
        assert scores.shape == y_new.shape and scores.dtype == np.float64
        reached.append(pair_accuracy(scores, y_new, qid_new))
    assert max(reached) > 0.93


@every_ranker
def test_is_deterministic_and_indifferent_to_row_order(
    makes: tuple[Callable[[], Any]], name: str
) -> None:
    X, y, qid = linear_data(180, n_queries=9)
    X = np.round(X, 2)  # some ties
    scores = makes[0]().fit(X, y, qid).predict(X)
    assert np.array_equal(makes[0]().fit(X, y, qid).predict(X), scores)
    order = np.random.default_rng(0).permutation(len(X))
    shuffled = makes[0]().fit(X[order], y[order], qid[order]).predict(X)
    tolerance = 0.02 if any(loose in name for loose in LOOSE) else 1e-5
    np.testing.assert_allclose(shuffled, scores, atol=tolerance * np.abs(scores).max())


@every_ranker
def test_survives_queries_of_one_label_or_one_document(
    makes: tuple[Callable[[], Any]], name: str
) -> None:
    X, y, qid = linear_data(180, n_queries=9)
    y[qid == 2], y[qid == 3] = 0, 2
    qid[0] = 77
    model = makes[-1]().fit(X, y, qid)
    assert np.isfinite(model.predict(X)).all()
    assert pair_accuracy(model.predict(X), y, qid) > 0.85
    nothing = makes[-1]().fit(X, np.ones(len(X)), qid)
    assert np.isfinite(nothing.predict(X)).all()


@every_ranker
def test_refuses_what_is_not_finite_or_does_not_match(
    makes: tuple[Callable[[], Any]], name: str
) -> None:
    make = makes[0]
    X, y, qid = linear_data(90, n_queries=9)
    bad = X.copy()
    bad[4, 1] = np.nan
    with pytest.raises(InputError, match="NaN"):
        make().fit(bad, y, qid)
    with pytest.raises(InputError):
        make().fit(X, np.where(y == 0, np.nan, y), qid)
    with pytest.raises(InputError):
        make().fit(X, y[:-1], qid)
    with pytest.raises(NotFittedError):
        make().predict(X)
    model = make().fit(X, y, qid)
    with pytest.raises(InputError):
        model.predict(bad)
    with pytest.raises(InputError):
        model.predict(X[:, :2])
