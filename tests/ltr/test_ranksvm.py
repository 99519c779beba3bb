"""RankSVM, RankNystroem and RankRandomFourier."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError

from pipeline_lib.errors import InputError
from pipeline_lib.kernels.fourier import FourierFeatures
from pipeline_lib.kernels.nystroem import Nystroem
from pipeline_lib.ltr.pairwise import PreferencePairs
from pipeline_lib.ltr.primal import RankingProblem, fit_path
from pipeline_lib.ltr.rank_nystroem import RankNystroem
from pipeline_lib.ltr.rank_random_fourier import RankRandomFourier
from pipeline_lib.ltr.ranksvm import RankSVM
from pipeline_lib.ltr.rows import ArrayRows, MappedRows, map_rows

KNOWN = json.loads((Path(__file__).parent / "known_values_ranksvm.json").read_text())


def generated(n=400, d=8, n_queries=25, seed=0, noise=0.5):
    rng = np.random.default_rng(seed)
    X = rng.random((n, d))
    qid = rng.integers(0, n_queries, n)
    utility = X @ rng.standard_normal(d) + 0.8 * np.sin(5 * X[:, 0])
    y = np.digitize(utility + noise * rng.standard_normal(n), [0.0, 0.7])
    return X, y, qid


def explicit_differences(Z, y, qid):
    pairs = [
        (i, j)
        for q in np.unique(qid)
        for i in np.flatnonzero(qid == q)
        for j in np.flatnonzero(qid == q)
        if y[i] > y[j]
    ]
    i, j = np.array(pairs).T
    return Z[i] - Z[j]


@pytest.mark.parametrize("case", KNOWN["cases"], ids=lambda case: f"C={case['C']}")
def test_known_minimisers(case):
    X, y, qid = (np.array(KNOWN[key]) for key in ("X", "y", "qid"))
    model = RankSVM(C=case["C"]).fit(X, y, qid)
    w = np.array(case["w"])
    assert np.abs(model.coef_ - w).max() < 1e-7 * np.abs(w).max()
    assert model.objective_ == pytest.approx(case["objective"], rel=1e-10)
    assert model.converged_ and model.history_["objective"][-1] == model.objective_
    assert model.duality_gap_ < 1e-9 * model.objective_


def test_gradient_and_hessian_product_are_those_of_explicit_pairs():
    X, y, qid = generated(120, 5, 9)
    y[qid == 3] = 1  # a query of one label
    qid[0] = 99  # a query of one document
    X[5] = X[6]  # tied documents
    differences = explicit_differences(X, y, qid)
    rng = np.random.default_rng(1)
    for C in (0.1, 10.0):
        problem = RankingProblem(ArrayRows(X), PreferencePairs(y, qid), [(1.0, C)])
        for scale in (0.0, 0.1, 3.0):
            w, s = scale * rng.standard_normal(5), rng.standard_normal(5)
            problem.start(w)
            value, gradient = problem.value_and_gradient()
            loss = np.maximum(1 - differences @ w, 0)
            active = differences[loss > 0]
            assert value == pytest.approx(0.5 * w @ w + C * loss @ loss, rel=1e-12)
            np.testing.assert_allclose(
                gradient, w - 2 * C * differences.T @ loss, rtol=1e-9, atol=1e-9
            )
            np.testing.assert_allclose(
                problem.hessian_product(s),
                s + 2 * C * active.T @ (active @ s),
                rtol=1e-9,
                atol=1e-9,
            )
            slope, curvature = problem.along(s)(0.0)
            assert slope == pytest.approx(gradient @ s, rel=1e-9, abs=1e-9)
            assert curvature == pytest.approx(s @ problem.hessian_product(s), rel=1e-9)


@pytest.mark.parametrize(
    "model",
    [
        RankSVM(C=2.0),
        RankSVM(C=0.1, loss="hinge", tol=1e-4),
        RankNystroem(C=1.0, gamma=0.5, n_components=60, random_state=0),
        RankNystroem(C=1.0, gamma=0.5, n_components=20, landmarks="kmeans", random_state=0),
        RankRandomFourier(C=1.0, gamma=0.5, n_components=80, random_state=0),
    ],
    ids=lambda model: f"{type(model).__name__}-{model.loss}",
)
def test_row_order_does_not_matter(model):
    X, y, qid = generated()
    order = np.random.default_rng(5).permutation(len(X))
    scores = clone(model).fit(X, y, qid).predict(X)
    shuffled = clone(model).fit(X[order], y[order], qid[order]).predict(X)
    tolerance = 1e-6 if model.loss == "squared_hinge" else 0.02
    np.testing.assert_allclose(shuffled, scores, atol=tolerance * np.abs(scores).max())
    again = clone(model).fit(X, y, qid).predict(X)
    assert np.array_equal(scores, again)


def test_a_map_inside_and_the_map_outside_agree():
    X, y, qid = generated()
    mapping = Nystroem(50, 0.5, random_state=3)
    Z = clone(mapping).fit(X).transform(X)
    inside = RankSVM(C=1.0, feature_map=mapping).fit(X, y, qid)
    outside = RankSVM(C=1.0).fit(Z, y, qid)
    named = RankNystroem(C=1.0, gamma=0.5, n_components=50, random_state=3).fit(X, y, qid)
    np.testing.assert_allclose(inside.coef_, outside.coef_, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(named.coef_, inside.coef_, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(inside.predict(X), Z @ inside.coef_, atol=1e-8)
    assert not hasattr(mapping, "landmarks_")


@pytest.mark.parametrize("loss", ["squared_hinge", "hinge"])
def test_duality_gap_bounds_the_distance_from_the_minimum(loss):
    X, y, qid = generated(200, 5, 10)
    best = RankSVM(C=1.0, loss=loss, tol=1e-9 if loss == "squared_hinge" else 2e-5).fit(X, y, qid)
    rough = RankSVM(C=1.0, loss=loss, tol=0.05).fit(X, y, qid)
    assert rough.duality_gap_ >= rough.objective_ - best.objective_ - best.duality_gap_
    assert best.duality_gap_ <= (1e-8 if loss == "squared_hinge" else 2e-5) * best.objective_


def test_hinge_minimum_is_that_of_a_general_solver():
    from scipy.optimize import minimize

    X, y, qid = generated(60, 3, 5)
    differences = explicit_differences(X, y, qid)
    n_pairs = len(differences)
    C = 0.5
    model = RankSVM(C=C, loss="hinge", tol=1e-5, max_iter=500).fit(X, y, qid)

    def dual(a):
        w = differences.T @ a
        return 0.5 * w @ w - a.sum(), differences @ w - 1

    solved = minimize(
        dual,
        np.full(n_pairs, C / 2),
        jac=True,
        bounds=[(0, C)] * n_pairs,
        method="L-BFGS-B",
        options={"maxiter": 5000, "maxfun": 10**6, "ftol": 1e-15, "gtol": 1e-9},
    )
    hinge = np.maximum(1 - differences @ model.coef_, 0).sum()
    assert model.objective_ == pytest.approx(0.5 * model.coef_ @ model.coef_ + C * hinge, rel=1e-10)
    assert model.objective_ == pytest.approx(-solved.fun, rel=3e-5)


def test_a_path_is_its_single_fits_and_warm_starts_save_work():
    X, y, qid = generated()
    mapping = FourierFeatures(40, 0.5, random_state=0).fit(X)
    rows = map_rows(mapping, X)
    grid = [0.01, 0.1, 1.0, 10.0]
    path = list(fit_path(rows, y, qid, grid))
    for C, fit in zip(grid, path):
        params = {"C": C, "gamma": 0.5, "n_components": 40, "random_state": 0}
        alone = RankRandomFourier(**params).fit(X, y, qid)
        assert fit.objective == pytest.approx(alone.objective_, rel=1e-9)
        model = RankRandomFourier.from_fit(params, mapping, fit)
        np.testing.assert_allclose(model.predict(X), alone.predict(X), atol=1e-4)
    warm = RankSVM(C=10.0).fit(X, y, qid)
    again = RankSVM(C=10.0).fit(X, y, qid, coef_init=warm.coef_)
    assert again.n_iter_ <= 1 < warm.n_iter_
    assert again.objective_ <= warm.objective_ * (1 + 1e-12)


def test_single_precision_storage_and_recomputed_rows_hold_results():
    X, y, qid = generated(600, 10, 30)
    mapping = FourierFeatures(120, 0.3, random_state=0).fit(X)
    Z = mapping.transform(X)
    fits = {
        name: next(fit_path(rows, y, qid, [2.0]))
        for name, rows in {
            "double": ArrayRows(Z),
            "single": ArrayRows(Z.astype(np.float32)),
            "mapped": MappedRows(mapping, X),
        }.items()
    }
    exact = fits["double"]
    scale = np.abs(exact.coef).max()
    np.testing.assert_allclose(fits["mapped"].coef, exact.coef, atol=1e-6 * scale)
    np.testing.assert_allclose(fits["single"].coef, exact.coef, atol=1e-5 * scale)
    assert fits["single"].objective == pytest.approx(exact.objective, rel=1e-7)
    assert fits["mapped"].objective == pytest.approx(exact.objective, rel=1e-12)


def test_the_memory_budget_decides_how_rows_are_held():
    X, _, _ = generated(100, 4)
    mapping = FourierFeatures(50, 1.0, random_state=0).fit(X)
    size = 8 * 100 * 50
    double, single, mapped = (map_rows(mapping, X, memory_bytes=b) for b in (2 * size, size, 99))
    assert double.take(np.arange(3)).dtype == np.float64
    assert isinstance(single, ArrayRows) and isinstance(mapped, MappedRows)
    r, w = np.random.default_rng(0).standard_normal(100), np.ones(50)
    for rows, tolerance in ((single, 1e-5), (mapped, 1e-12)):
        for name, argument in (("dot", w), ("transpose_dot", r)):
            expected = getattr(double, name)(argument)
            np.testing.assert_allclose(getattr(rows, name)(argument), expected, atol=tolerance)
            fast = getattr(rows, "fast_" + name)(argument)
            np.testing.assert_allclose(fast, expected, atol=10 * tolerance)


def test_float32_features_need_no_copy_and_agree():
    X, y, qid = generated()
    single = X.astype(np.float32)
    one = RankSVM(C=1.0).fit(single, y, qid)
    other = RankSVM(C=1.0).fit(single.astype(np.float64), y, qid)
    np.testing.assert_allclose(one.coef_, other.coef_, rtol=1e-6)
    np.testing.assert_allclose(one.predict(single), other.predict(single), atol=1e-6)


@pytest.mark.parametrize(
    "model",
    [
        RankSVM(C=1.0),
        RankSVM(C=1.0, feature_map=Nystroem(20, 0.5, random_state=0)),
        RankNystroem(C=1.0, gamma=0.5, n_components=20, random_state=0),
        RankRandomFourier(C=1.0, gamma=0.5, n_components=20, random_state=0),
    ],
)
def test_state_rebuilds_the_model(model):
    X, y, qid = generated()
    model = clone(model).fit(X, y, qid)
    state = model.get_state()
    assert all(value.dtype != object for value in state.values())
    again = type(model).from_state(model.get_params(deep=False), state)
    assert np.array_equal(again.predict(X), model.predict(X))
    with pytest.raises(InputError, match="lacks"):
        type(model).from_state(model.get_params(deep=False), {})


def test_data_without_any_pair_gives_zero_weights():
    model = RankSVM().fit(np.random.default_rng(0).random((6, 3)), np.ones(6), [1, 1, 1, 2, 2, 3])
    assert not model.coef_.any() and model.converged_ and model.objective_ == 0.0
    hinge = RankSVM(loss="hinge").fit(np.eye(3), np.ones(3), [1, 1, 1])
    assert not hinge.coef_.any() and hinge.converged_


def test_constant_rows_and_duplicates():
    X = np.ones((10, 4))
    model = RankSVM(C=5.0).fit(X, np.arange(10) % 3, np.zeros(10))
    assert np.abs(model.coef_).max() < 1e-12
    assert model.objective_ == pytest.approx(5.0 * 33)


def test_stopping_early_warns():
    X, y, qid = generated()
    with pytest.warns(ConvergenceWarning, match="RankSVM stopped after 1 "):
        model = RankSVM(C=100.0, max_iter=1).fit(X, y, qid)
    assert not model.converged_ and model.n_iter_ == 1


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (RankSVM(C=0.0), "C is"),
        (RankSVM(C=float("inf")), "C is"),
        (RankSVM(loss="logistic"), "unknown loss"),
        (RankSVM(tol=0.0), "tol"),
        (RankSVM(max_iter=0), "max_iter"),
        (RankSVM(memory_mb=0), "memory_mb"),
        (RankNystroem(gamma=-1.0), "gamma"),
        (RankRandomFourier(n_components=0), "n_components"),
    ],
)
def test_wrong_parameters_are_refused(model, message):
    X, y, qid = generated(40)
    with pytest.raises(InputError, match=message):
        model.fit(X, y, qid)


def test_wrong_data_is_refused():
    X, y, qid = generated(40)
    bad = X.copy()
    bad[3, 1] = np.nan
    for args, message in [
        ((bad, y, qid), "NaN"),
        ((X, y[:-1], qid[:-1]), "labels"),
        ((X, np.where(y > 0, np.nan, 0), qid), "y contains"),
        ((X[:, 0], y, qid), "shape"),
    ]:
        with pytest.raises(InputError, match=message):
            RankSVM().fit(*args)
    with pytest.raises(InputError, match="coef_init"):
        RankSVM().fit(X, y, qid, coef_init=np.zeros(3))
    model = RankSVM().fit(X, y, qid)
    with pytest.raises(InputError, match="columns"):
        model.predict(X[:, :2])
    with pytest.raises(InputError, match="NaN"):
        model.predict(bad)
    with pytest.raises(NotFittedError):
        RankSVM().predict(X)


def load_fold(part):
    root = os.environ.get("AFFINITY_DATA")
    path = Path(root or ".") / "letor" / "MQ2008" / "Fold1" / f"{part}.txt"
    if root is None or not path.exists():
        pytest.skip("needs MQ2008 Fold1 under AFFINITY_DATA")
    from sklearn.datasets import load_svmlight_file

    X, y, qid = load_svmlight_file(str(path), query_id=True)
    return X.toarray(), y, qid


def test_mq2008_fold1_reaches_the_published_solvers():
    from pipeline_lib.metrics.ranking import ranking_metrics

    X, y, qid = load_fold("train")
    X_test, y_test, qid_test = load_fold("test")
    model = RankSVM(C=1.0).fit(X, y, qid)
    means = ranking_metrics(model.predict(X_test), y_test, qid_test, definition="letor4").means
    # LIBLINEAR's ranksvm at the same C: .4531.
    assert means["map"] == pytest.approx(0.4531, abs=0.003)
    # The authors' own code, m = 500, gamma 2^-8, code C 1: .4517.
    model = RankNystroem(C=0.5, gamma=2**-8, n_components=500, random_state=0).fit(X, y, qid)
    means = ranking_metrics(model.predict(X_test), y_test, qid_test, definition="letor4").means
    assert means["map"] == pytest.approx(0.4517, abs=0.01)
