"""What rankers keep of a fit, how those of one problem agree, and what is special to the baselines.

What every ranker must do stands in ``tests/conformance/test_rankers.py``.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone

from pipeline_lib.errors import InputError
from pipeline_lib.kernels.functions import kernel_matrix
from pipeline_lib.kernels.nystroem import Nystroem
from pipeline_lib.ltr.adarank import AdaRank
from pipeline_lib.ltr.frank import FRank, LinearFRank
from pipeline_lib.ltr.kernel_ranksvm import KernelRankSVM
from pipeline_lib.ltr.listnet import ListNet
from pipeline_lib.ltr.peers import BaggedLambdaMART, LightGBMRanker, XGBoostRanker
from pipeline_lib.ltr.rank_nystroem import RankNystroem
from pipeline_lib.ltr.rank_random_fourier import RankRandomFourier
from pipeline_lib.ltr.rankboost import RankBoost
from pipeline_lib.ltr.ranksvm import RankSVM
from pipeline_lib.ltr.ranksvm_struct import RankSVMStruct
from pipeline_lib.ltr.regression import RegressionRanker
from pipeline_lib.ltr.svm_map import SVMMAP, most_violated

MAP = Nystroem(25, 0.5, random_state=0)
SMALL_TREES = {"n_estimators": 60, "min_child_samples": 5, "num_leaves": 15}
RANKERS = {
    "RankSVM": RankSVM(C=10.0),
    "RankSVM-hinge": RankSVM(C=10.0, loss="hinge", tol=1e-5),
    "RankNystroem": RankNystroem(C=10.0, gamma=0.2, n_components=40, random_state=0),
    "RankRandomFourier": RankRandomFourier(C=10.0, gamma=0.2, n_components=200, random_state=0),
    "KernelRankSVM": KernelRankSVM(C=10.0, gamma=0.2),
    "RankSVMStruct": RankSVMStruct(C=1.0, tol=1e-5),
    "RegressionRanker": RegressionRanker(),
    "RegressionRanker-map": RegressionRanker(alpha=0.1, feature_map=MAP),
    "RankBoost": RankBoost(n_rounds=200),
    "FRank": FRank(n_rounds=200),
    "FRank-map": FRank(feature_map=MAP, C=10.0),
    "LinearFRank-map": LinearFRank(feature_map=MAP, C=10.0),
    "ListNet": ListNet(C=10.0),
    "ListNet-map": ListNet(C=10.0, feature_map=MAP),
    "AdaRank-map": AdaRank("map", tol=1e-6),
    "AdaRank-ndcg": AdaRank("ndcg", tol=1e-6),
    "SVMMAP": SVMMAP(C=100.0),
    "LightGBMRanker": LightGBMRanker(**SMALL_TREES),
    "XGBoostRanker-ndcg": XGBoostRanker(n_estimators=150, learning_rate=0.2),
    "XGBoostRanker-pairwise": XGBoostRanker("rank:pairwise", 150, 0.2),
    "BaggedLambdaMART": BaggedLambdaMART(3, **SMALL_TREES),
}
LIBRARY = {"LightGBM": "lightgbm", "XGBoost": "xgboost", "Bagged": "lightgbm"}


def make(name):
    for prefix, library in LIBRARY.items():
        if name.startswith(prefix) and importlib.util.find_spec(library) is None:
            pytest.skip(f"needs {library}")
    return clone(RANKERS[name])


def linear_data(n=360, d=4, n_queries=18, seed=0):
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


@pytest.mark.parametrize("name", RANKERS)
def test_state_is_plain_arrays_and_rebuilds_the_model(name):
    X, y, qid = linear_data(90, n_queries=9)
    model = make(name).fit(X, y, qid)
    state = model.get_state()
    assert all(isinstance(v, np.ndarray) and v.dtype.kind in "fiub" for v in state.values())
    again = type(model).from_state(model.get_params(deep=False), state)
    assert np.array_equal(again.predict(X), model.predict(X))


@pytest.mark.parametrize("name", RANKERS)
def test_history_ends_at_the_objective(name):
    X, y, qid = linear_data(90, n_queries=9)
    model = make(name).fit(X, y, qid)
    assert model.converged_ and model.n_iter_ >= 1
    assert len(model.history_["objective"]) >= 1
    if "Bagged" not in name:  # whose history has one value per member
        assert model.history_["objective"][-1] == pytest.approx(model.objective_, rel=1e-6)


# Agreement of methods that solve one problem


def noisy_data(n=240, seed=0):
    X, y, qid = linear_data(n, n_queries=12, seed=seed)
    rng = np.random.default_rng(seed + 100)
    return X, np.clip(y + rng.integers(-1, 2, n), 0, 2), qid


def test_exact_kernel_and_nystroem_with_every_row_and_explicit_pairs_agree():
    X, y, qid = noisy_data(96)
    C, gamma = 0.5, 1.0
    exact = KernelRankSVM(C=C, gamma=gamma).fit(X, y, qid)
    approximate = RankNystroem(
        C=C, gamma=gamma, n_components=len(X), cutoff=1e-13, random_state=0
    ).fit(X, y, qid)
    # Explicit pairs: Newton on the coefficients with dense matrices.
    K = kernel_matrix(X, gamma=gamma)
    i, j = np.array(
        [(a, b) for a in range(96) for b in range(96) if qid[a] == qid[b] and y[a] > y[b]]
    ).T
    D = K[i] - K[j]
    b = np.zeros(96)
    for _ in range(50):
        loss = np.maximum(1 - D @ b, 0)
        active = D[loss > 0]
        step = np.linalg.lstsq(
            K + 2 * C * active.T @ active, 2 * C * D.T @ loss - K @ b, rcond=1e-14
        )[0]
        b += step
    objective = 0.5 * b @ K @ b + C * (np.maximum(1 - D @ b, 0) ** 2).sum()
    assert exact.objective_ == pytest.approx(objective, rel=1e-8)
    np.testing.assert_allclose(exact.predict(X), K @ b, atol=1e-5)
    np.testing.assert_allclose(approximate.predict(X), exact.predict(X), atol=1e-4)
    assert exact.duality_gap_ < 1e-6 * exact.objective_


@pytest.mark.parametrize("kernel", ["linear", "rbf", "laplacian", "intersection"])
def test_kernel_products_in_memory_and_in_blocks_agree(kernel, monkeypatch):
    from pipeline_lib.ltr import kernel_ranksvm

    X, y, qid = noisy_data()
    held = KernelRankSVM(C=0.5, gamma=1.0, kernel=kernel).fit(X, y, qid)
    monkeypatch.setattr(kernel_ranksvm, "_BLOCK_BYTES", 8 * 240 * 7)
    with monkeypatch.context() as patch:
        patch.setattr(kernel_ranksvm, "kernel_matrix", lambda *a: pytest.fail("held whole"))
        patch.setattr(KernelRankSVM, "fit", _fit_without_memory(KernelRankSVM.fit, kernel_ranksvm))
        blocked = KernelRankSVM(C=0.5, gamma=1.0, kernel=kernel).fit(X, y, qid)
    np.testing.assert_allclose(blocked.predict(X), held.predict(X), atol=1e-6)
    if kernel == "linear":
        linear = RankSVM(C=0.5).fit(X, y, qid)
        assert held.objective_ == pytest.approx(linear.objective_, rel=1e-9)
        assert np.ptp(held.predict(X) - linear.predict(X)) < 1e-5


def _fit_without_memory(fit, module):
    def wrapped(self, X, y, qid):
        original = module._kernel_product
        module._kernel_product = lambda rows, kernel, gamma, _: original(rows, kernel, gamma, 0)
        try:
            return fit(self, X, y, qid)
        finally:
            module._kernel_product = original

    return wrapped


def test_the_exact_kernel_keeps_to_its_memory(monkeypatch):
    import tracemalloc

    from pipeline_lib.ltr import kernel_ranksvm

    monkeypatch.setattr(kernel_ranksvm, "_BLOCK_BYTES", 2**18)
    X, y, qid = linear_data(800, n_queries=40)
    model = KernelRankSVM(C=0.1, gamma=1.0, tol=1e-2, memory_mb=1)  # the whole matrix takes 5 MB
    tracemalloc.start()
    try:
        model.fit(X, y, qid).predict(X)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2e6
    held = KernelRankSVM(C=0.1, gamma=1.0, tol=1e-2).fit(X, y, qid)
    np.testing.assert_allclose(model.predict(X), held.predict(X), atol=1e-6)


@pytest.mark.parametrize("C", [0.01, 1.0, 10.0])
def test_cutting_plane_and_primal_reach_the_same_hinge_objective(C):
    X, y, qid = noisy_data()
    plane = RankSVMStruct(C=C, tol=1e-4).fit(X, y, qid)
    primal = RankSVM(C=C, loss="hinge", tol=1e-4).fit(X, y, qid)
    for model in (plane, primal):
        assert model.duality_gap_ <= 1e-4 * model.objective_
    assert plane.objective_ - plane.duality_gap_ <= primal.objective_
    assert primal.objective_ - primal.duality_gap_ <= plane.objective_


# The baselines' own properties


def test_most_violated_ranking_is_the_best_of_all_rankings():
    from itertools import combinations

    rng = np.random.default_rng(0)

    def value(order, s, u):
        r, n = len(s), len(u)
        relevant = np.array([kind == 0 for kind, _ in order])
        precision = np.cumsum(relevant) / np.arange(1, r + n + 1)
        psi = sum(
            (1 if order.index((0, i)) < order.index((1, j)) else -1) * (s[i] - u[j])
            for i in range(r)
            for j in range(n)
        ) / (r * n)
        best = sum(s[i] - u[j] for i in range(r) for j in range(n)) / (r * n)
        return 1 - precision[relevant].mean() + psi - best

    for _ in range(30):
        r, n = rng.integers(1, 4), rng.integers(1, 5)
        s, u = rng.standard_normal(r) * 0.3, rng.standard_normal(n) * 0.3
        si, ui = np.argsort(-s), np.argsort(-u)
        best = -np.inf
        for places in combinations(range(r + n), r):
            relevant, other = iter(si), iter(ui)
            order = [
                (0, int(next(relevant))) if k in places else (1, int(next(other)))
                for k in range(r + n)
            ]
            best = max(best, value(order, s, u))
        found, at_relevant, at_other = most_violated(s, u)
        assert found == pytest.approx(best, abs=1e-12)
        step = 1e-7
        nudged = s.copy()
        nudged[0] += step
        assert (most_violated(nudged, u)[0] - found) / step == pytest.approx(
            at_relevant[0], abs=1e-5
        )
        assert at_relevant.sum() == pytest.approx(-at_other.sum())


def test_rankboost_potentials_and_edges_are_those_of_explicit_pairs():
    from pipeline_lib.ltr.pairwise import PreferencePairs
    from pipeline_lib.ltr.rankboost import _potentials
    from pipeline_lib.ltr.thresholds import ThresholdRankers

    rng = np.random.default_rng(0)
    n = 50
    X, y, qid = np.round(rng.random((n, 3)), 1), rng.integers(0, 5, n), rng.integers(0, 4, n)
    scores = 3 * rng.standard_normal(n)
    pairs = [(i, j) for i in range(n) for j in range(n) if qid[i] == qid[j] and y[i] > y[j]]
    expected, total = np.zeros(n), 0.0
    for i, j in pairs:
        weight = np.exp(scores[j] - scores[i])
        total += weight
        expected[i] += weight
        expected[j] -= weight
    loss, potentials = _potentials(PreferencePairs(y, qid), scores)
    assert loss == pytest.approx(total)
    np.testing.assert_allclose(potentials, expected, rtol=1e-9, atol=1e-9 * total)
    rankers = ThresholdRankers(X, 64)
    sums = rankers.sums_above(potentials)
    for k, (feature, threshold) in enumerate(zip(rankers.features, rankers.thresholds)):
        above = X[:, feature] > threshold
        assert np.array_equal(above, rankers.values(k))
        assert sums[k] == pytest.approx(expected[above].sum(), abs=1e-9 * total)


@pytest.mark.parametrize("keep", [True, False])
def test_frank_sums_and_derivative_are_those_of_explicit_pairs(keep, monkeypatch):
    from pipeline_lib.ltr import frank
    from pipeline_lib.ltr.queries import check_labels
    from pipeline_lib.ltr.thresholds import ThresholdRankers

    monkeypatch.setattr(frank, "_MEMORY_BYTES", 2**40 if keep else 0)
    monkeypatch.setattr(frank, "_BLOCK_BYTES", 24 * 3 * 50)
    rng = np.random.default_rng(1)
    n = 40
    X, y, qid = np.round(rng.random((n, 3)), 1), rng.integers(0, 3, n), rng.integers(0, 4, n)
    pairs = frank._ListedPairs(check_labels(y, qid, n))
    listed = {(int(i), int(j)) for i, j in zip(pairs.better, pairs.worse)}
    expected = {(i, j) for i in range(n) for j in range(n) if qid[i] == qid[j] and y[i] > y[j]}
    assert listed == expected and len(pairs.better) == len(expected)
    scores = rng.standard_normal(n)
    weights = pairs.weights(scores)
    rankers = ThresholdRankers(X, 64)
    right, wrong = frank._Separations(pairs, rankers).sums(weights)
    for k in range(len(rankers.features)):
        h = rankers.values(k).astype(int)
        difference = h[pairs.better] - h[pairs.worse]
        assert right[k] == pytest.approx(weights[difference == 1].sum(), abs=1e-12)
        assert wrong[k] == pytest.approx(weights[difference == -1].sum(), abs=1e-12)
    direction, step = rng.standard_normal(n), 1e-6
    slope = (pairs.loss(scores + step * direction) - pairs.loss(scores - step * direction)) / (
        2 * step
    )
    assert slope == pytest.approx(-pairs.spread(weights) @ direction / pairs.n_queries, rel=1e-6)


@pytest.mark.parametrize("name", ["RankBoost", "FRank", "AdaRank-map", "AdaRank-ndcg"])
def test_boosting_reduces_its_objective_round_by_round(name):
    X, y, qid = noisy_data()
    history = make(name).fit(X, y, qid).history_["objective"]
    assert (np.diff(history) < 1e-12).all() and history[-1] < history[0]


def test_adarank_measures_are_those_of_explicit_lists():
    from pipeline_lib.ltr.adarank import _Measure

    y = np.array([2, 0, 1, 0, 0, 0, 1, 1, 0])
    query = np.array([0, 0, 0, 0, 1, 1, 2, 2, 2])
    scores = np.array([0.1, 0.9, 0.5, 0.1, 1.0, 2.0, 3.0, 1.0, 1.0])
    # Query 0: ranked labels 0 1 0 2 (the tie against us); query 1 has none; query 2: 1 0 1.
    ap = _Measure(y, query, "map")(scores)
    np.testing.assert_allclose(ap, [(1 / 2 + 2 / 4) / 2, (1 + 2 / 3) / 2])
    ndcg = _Measure(y, query, "ndcg")(scores)
    log = np.log2
    ideal = 3 + 1 / log(3)
    np.testing.assert_allclose(
        ndcg, [(1 / log(3) + 3 / log(5)) / ideal, (1 + 1 / log(4)) / (1 + 1 / log(3))]
    )


def test_listnet_gradient_is_that_of_its_definition():
    from pipeline_lib.ltr.listnet import _ListNetProblem
    from pipeline_lib.ltr.rows import ArrayRows

    X, y, qid = noisy_data(60)
    problem = _ListNetProblem(ArrayRows(X), y.astype(float), qid, 12, 3.0)

    def objective(w):
        total = 0.5 * w @ w
        for q in range(12):
            p, f = np.exp(y[qid == q]), np.exp(X[qid == q] @ w)
            total -= 3.0 * (p / p.sum()) @ np.log(f / f.sum())
        return total

    rng = np.random.default_rng(0)
    w, s = rng.standard_normal(4), rng.standard_normal(4)
    problem.start(w)
    value, gradient = problem.value_and_gradient()
    assert value == pytest.approx(objective(w))
    h = 1e-5
    slope = (objective(w + h * s) - objective(w - h * s)) / (2 * h)
    assert gradient @ s == pytest.approx(slope, rel=1e-6)
    curvature = (objective(w + h * s) - 2 * value + objective(w - h * s)) / h**2
    assert s @ problem.hessian_product(s) == pytest.approx(curvature, rel=1e-3)
    t_slope, t_curvature = problem.along(s)(0.0)
    assert t_slope == pytest.approx(gradient @ s)
    assert t_curvature == pytest.approx(s @ problem.hessian_product(s))


def test_regression_is_least_squares():
    X, y, qid = noisy_data()
    design = np.column_stack([X, np.ones(len(X))])
    expected = np.linalg.lstsq(design, y, rcond=None)[0][:-1]
    np.testing.assert_allclose(RegressionRanker().fit(X, y, qid).coef_, expected, atol=1e-10)
    duplicated = np.hstack([X, X])
    coef = RegressionRanker().fit(duplicated, y, qid).coef_
    np.testing.assert_allclose(coef[:4], coef[4:], atol=1e-10)


def test_a_missing_library_is_named(monkeypatch):
    X, y, qid = linear_data(90, n_queries=9)
    for model, library in ((LightGBMRanker(), "lightgbm"), (XGBoostRanker(), "xgboost")):
        monkeypatch.setitem(sys.modules, library, None)
        with pytest.raises(InputError, match=rf"{library} is not installed.*peers"):
            model.fit(X, y, qid)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (KernelRankSVM(C=-1.0), "C is"),
        (KernelRankSVM(kernel="nope"), "unknown kernel"),
        (KernelRankSVM(max_iter=0), "positive"),
        (RankSVMStruct(C=0.0), "C is"),
        (RankSVMStruct(tol=0.0), "positive"),
        (RegressionRanker(alpha=-1.0), "alpha"),
        (RankBoost(n_rounds=0), "n_rounds"),
        (FRank(n_thresholds=0), "n_thresholds"),
        (FRank(C=0.0), "C is"),
        (LinearFRank(C=0.0), "C is"),
        (LinearFRank(max_iter=0), "max_iter"),
        (ListNet(C=0.0), "C is"),
        (ListNet(tol=0.0), "positive"),
        (AdaRank("auc"), "unknown measure"),
        (AdaRank(n_rounds=0), "n_rounds"),
        (SVMMAP(C=0.0), "C is"),
        (SVMMAP(max_iter=0), "positive"),
        (BaggedLambdaMART(2, 3), "n_kept"),
        (BaggedLambdaMART(2, query_share=0.0), "query_share"),
    ],
)
def test_wrong_parameters_are_refused(model, message):
    X, y, qid = linear_data(90, n_queries=9)
    with pytest.raises(InputError, match=message):
        model.fit(X, y, qid)


def test_frank_refuses_more_pairs_than_it_can_list(monkeypatch):
    from pipeline_lib.ltr import frank

    monkeypatch.setattr(frank, "_PAIR_LIMIT", 100)
    X, y, qid = linear_data(90, n_queries=9)
    with pytest.raises(InputError, match="preference pairs"):
        FRank().fit(X, y, qid)


def test_xgboost_objective_and_tree_labels_are_checked():
    pytest.importorskip("xgboost")
    X, y, qid = linear_data(90, n_queries=9)
    with pytest.raises(InputError, match="unknown objective"):
        XGBoostRanker("rank:map").fit(X, y, qid)
    with pytest.raises(InputError, match="distinct labels"):
        XGBoostRanker().fit(X, np.arange(90), qid)
    shifted = XGBoostRanker(n_estimators=20).fit(X, y - 1.5, qid)
    assert np.array_equal(
        shifted.predict(X), XGBoostRanker(n_estimators=20).fit(X, y, qid).predict(X)
    )


def mq2008(part):
    root = os.environ.get("AFFINITY_DATA")
    path = Path(root or ".") / "letor" / "MQ2008" / "Fold1" / f"{part}.txt"
    if root is None or not path.exists():
        pytest.skip("needs MQ2008 Fold1 under AFFINITY_DATA")
    from sklearn.datasets import load_svmlight_file

    X, y, qid = load_svmlight_file(str(path), query_id=True)
    return X.toarray(), y, qid


def test_mq2008_fold1_map_of_the_baselines():
    from pipeline_lib.metrics.ranking import ranking_metrics

    X, y, qid = mq2008("train")
    X_test, y_test, qid_test = mq2008("test")

    def test_map(model):
        scores = model.fit(X, y, qid).predict(X_test)
        return ranking_metrics(scores, y_test, qid_test, definition="letor4").means["map"]

    n_queries = len(np.unique(qid))
    # SVM-rank at c = 100 and c = .1: .4527 and .4524.
    assert test_map(RankSVMStruct(C=100 / n_queries)) == pytest.approx(0.4527, abs=0.003)
    assert test_map(RankSVMStruct(C=0.1 / n_queries)) == pytest.approx(0.4524, abs=0.003)
    linear = test_map(RankSVM(C=1.0))
    for model in (RankBoost(), ListNet(), AdaRank("map"), AdaRank("ndcg"), SVMMAP(), FRank()):
        assert test_map(model) > linear - 0.02
