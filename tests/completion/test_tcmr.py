"""TCMR: known values, invariants, two roads to one minimum, degenerate input."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits

from pipeline_lib.completion.certificate import lower_bound
from pipeline_lib.completion.tcmr import TCMR
from pipeline_lib.errors import InputError
from pipeline_lib.graphs.laplacian import laplacian

KNOWN = json.loads(Path(__file__).with_name("known_values_tcmr.json").read_text())
LOSSES = ("likelihood", "absolute", "squares", "hinge", "logistic")


def low_rank_tags(n: int, m: int, topics: int, count: int, seed: int) -> np.ndarray:
    """``count`` different tags an image from mixtures of ``topics`` multinomials."""
    random = np.random.default_rng(seed)
    mixtures = random.dirichlet(np.full(topics, 0.3), n) @ random.dirichlet(np.full(m, 0.2), topics)
    D = np.zeros((n, m), dtype=np.uint8)
    for row, p in zip(D, mixtures, strict=True):
        row[random.choice(m, count, replace=False, p=(p + 1e-4) / (p + 1e-4).sum())] = 1
    return D


def plain_objective(
    Q: np.ndarray,
    D: np.ndarray,
    lam: float,
    eps: float,
    L: np.ndarray | None = None,
    alpha: float = 0.0,
) -> float:
    """The objective of (4.14), entry by entry."""

    def negative_log(x: float) -> float:
        return -np.log(x) if x >= eps else -np.log(eps) - (x - eps) / eps

    n, m = D.shape
    total = lam * np.linalg.svd(Q, compute_uv=False).sum()
    for i in range(n):
        observed = D[i].sum()
        for j in range(m):
            if D[i, j]:
                total += negative_log(Q[i, j]) / observed
            else:
                total += negative_log(1.0 - Q[i, j]) / (m - observed)
    return total if L is None else total + alpha / n * np.trace(Q.T @ L @ Q)


@pytest.mark.parametrize("case", KNOWN["cases"], ids=lambda c: f"lam={c['lam']},alpha={c['alpha']}")
@pytest.mark.parametrize("solver", ["splitting", "gradient"])
def test_known_values(case: dict, solver: str) -> None:
    D, L = np.array(KNOWN["D"]), np.array(KNOWN["laplacian"])
    model = TCMR(case["lam"], alpha=case["alpha"], eps=case["eps"], solver=solver)
    model.fit(D, laplacian=L if case["alpha"] else None)
    assert model.objective_ == pytest.approx(case["objective"], rel=1e-6)
    assert np.abs(model.scores_ - np.array(case["Q"])).max() < 1e-3
    assert model.rank_ == case["rank"]
    assert model.converged_


@pytest.mark.parametrize("loss", LOSSES)
def test_both_solvers_reach_one_minimum(loss: str) -> None:
    D = low_rank_tags(80, 30, 4, 3, seed=1)
    settings = {"lam": 0.8, "loss": loss, "tol": 1e-11, "max_iter": 20000, "eps": 1e-2}
    splitting = TCMR(**settings).fit(D)
    gradient = TCMR(**settings, solver="gradient").fit(D)
    assert splitting.objective_ == pytest.approx(gradient.objective_, rel=1e-6)
    assert np.abs(splitting.scores_ - gradient.scores_).max() < 2e-2
    for model in (splitting, gradient):
        assert np.all(np.diff(model.history_["objective"]) <= 0.0)
        assert len(model.history_["objective"]) == model.n_iter_


def test_objective_rank_and_log_are_those_of_the_scores() -> None:
    D = low_rank_tags(60, 25, 3, 3, seed=2)
    model = TCMR(1.0, tol=1e-10).fit(D)
    assert model.objective_ == pytest.approx(plain_objective(model.scores_, D, 1.0, 1e-3))
    assert np.linalg.matrix_rank(model.scores_, tol=1e-8) == model.rank_
    assert set(model.history_) == {"objective", "residual", "step", "rank"}
    assert {len(values) for values in model.history_.values()} == {model.n_iter_}
    assert model.history_["rank"][-1] == model.rank_
    assert model.history_["residual"][-1] < 1e-3


def test_no_direction_leads_down_from_the_minimum() -> None:
    D = low_rank_tags(30, 14, 3, 2, seed=3)
    L = laplacian(np.ones((30, 30)) - np.eye(30)).toarray()
    model = TCMR(0.7, alpha=0.5, tol=1e-13, max_iter=20000).fit(D, laplacian=L)
    random = np.random.default_rng(0)
    for size in (1e-3, 0.1):
        for _ in range(20):
            step = size * random.standard_normal(D.shape)
            moved = plain_objective(model.scores_ + step, D, 0.7, 1e-3, L, 0.5)
            assert moved >= model.objective_ - 1e-7


@pytest.mark.parametrize("regularizer", ["l1", "frobenius"])
@pytest.mark.parametrize("loss", LOSSES)
def test_dense_regularisers_meet_their_optimality_conditions(regularizer: str, loss: str) -> None:
    D = low_rank_tags(20, 9, 2, 2, seed=4)
    model = TCMR(0.05, loss=loss, regularizer=regularizer, eps=0.05, tol=1e-14, max_iter=20000).fit(
        D
    )
    Q = model.scores_
    gradient = np.zeros_like(Q)
    for i, row in enumerate(D):
        observed = row.sum()
        for j, tagged in enumerate(row):
            weight = 1.0 / observed if tagged else 1.0 / (len(row) - observed)
            sign = 1.0 if tagged else -1.0
            margin = sign * Q[i, j]
            if loss == "likelihood":
                inside = max(Q[i, j] if tagged else 1.0 - Q[i, j], 0.05)
                slope = -sign / inside
            elif loss == "absolute":
                slope = np.clip((Q[i, j] - tagged) / 0.05, -1.0, 1.0)
            elif loss == "squares":
                slope = 2.0 * (Q[i, j] - tagged)
            elif loss == "hinge":
                slope = -sign * np.clip((1.0 - margin + 0.05) / 0.1, 0.0, 1.0)
            else:
                slope = -sign / (1.0 + np.exp(margin))
            gradient[i, j] = weight * slope
    if regularizer == "l1":
        assert np.abs(gradient).max() <= 0.05 + 1e-4
        kept = np.abs(Q) > 1e-8
        assert np.allclose(gradient[kept], -0.05 * np.sign(Q[kept]), atol=1e-4)
    else:
        assert np.allclose(gradient, -0.05 * Q / np.linalg.norm(Q), atol=1e-4)


def test_the_graph_term_alone_pulls_neighbours_together() -> None:
    D = low_rank_tags(40, 20, 4, 3, seed=5)
    W = np.zeros((40, 40))
    for i in range(0, 40, 2):
        W[i, i + 1] = W[i + 1, i] = 1.0
    L = laplacian(W)
    gaps = []
    for alpha in (0.0, 2.0, 20.0, 200.0):
        Q = TCMR(1.0, alpha=alpha, eps=0.05, tol=1e-7).fit(D, laplacian=L).scores_
        gaps.append(np.linalg.norm(Q[::2] - Q[1::2]))
    assert gaps[0] > gaps[1] > gaps[2] > gaps[3]
    assert gaps[3] < 0.1 * gaps[0]


def test_features_build_the_graph() -> None:
    random = np.random.default_rng(6)
    D, X = low_rank_tags(30, 12, 3, 2, seed=6), random.random((30, 4))
    with_features = TCMR(1.0, alpha=1.0, n_neighbors=3).fit(D, X=X)
    without = TCMR(1.0).fit(D, X=X)
    assert np.abs(with_features.scores_ - without.scores_).max() > 1e-3
    with pytest.raises(InputError, match="graph"):
        TCMR(1.0, alpha=1.0).fit(D)


def test_probabilities_are_the_projected_rows() -> None:
    D = low_rank_tags(30, 12, 3, 2, seed=7)
    model = TCMR(1.0).fit(D)
    P = model.probabilities_
    assert np.all(P >= 0.0) and np.allclose(P.sum(axis=1), 1.0)
    # The projection subtracts one number from a row and cuts at zero.
    for p, q in zip(P, model.scores_, strict=True):
        shift = q[p > 0] - p[p > 0]
        assert np.allclose(shift, shift[0])
        assert np.all(q[p == 0] <= shift[0] + 1e-12)


def test_order_of_images_and_tags_and_form_of_input_do_not_matter() -> None:
    D = low_rank_tags(50, 20, 3, 3, seed=8)
    random = np.random.default_rng(0)
    rows, columns = random.permutation(50), random.permutation(20)
    Q = TCMR(1.0, tol=1e-11).fit(D).scores_
    moved = TCMR(1.0, tol=1e-11).fit(D[rows][:, columns]).scores_
    assert np.abs(moved - Q[rows][:, columns]).max() < 1e-3
    given = sparse.csc_matrix(D)
    from_sparse = TCMR(1.0, tol=1e-11).fit(given)
    assert np.array_equal(from_sparse.scores_, Q)
    assert (given != sparse.csc_matrix(D)).nnz == 0


def test_more_columns_than_rows() -> None:
    D = low_rank_tags(10, 40, 3, 3, seed=9)
    model = TCMR(0.5, tol=1e-11).fit(D)
    assert model.objective_ == pytest.approx(plain_objective(model.scores_, D, 0.5, 1e-3))
    gradient = TCMR(0.5, tol=1e-11, solver="gradient", max_iter=20000).fit(D)
    assert model.objective_ == pytest.approx(gradient.objective_, rel=1e-7)


def test_large_weight_gives_zero() -> None:
    D = low_rank_tags(20, 10, 3, 2, seed=10)
    model = TCMR(1e5).fit(D)
    assert model.rank_ == 0
    assert not model.scores_.any()
    assert np.allclose(model.probabilities_, 0.1)


@pytest.mark.parametrize(
    "D",
    [
        np.array([[1, 0, 0]]),
        np.array([[1], [1], [1]]),
        np.array([[1, 1], [1, 1]]),
        np.array([[0, 0, 0], [1, 1, 1], [0, 1, 0]]),
        np.tile([1, 0, 1, 0], (6, 1)),
    ],
    ids=["one row", "one tag", "all observed", "empty and full rows", "equal rows"],
)
def test_degenerate_tags(D: np.ndarray) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        model = TCMR(0.3, tol=1e-9).fit(D)
    assert np.isfinite(model.scores_).all()
    assert model.objective_ == pytest.approx(plain_objective(model.scores_, D, 0.3, 1e-3))


@pytest.mark.parametrize(
    "settings",
    [
        {"lam": 0.0},
        {"lam": float("nan")},
        {"lam": 1.0, "alpha": -1.0},
        {"lam": 1.0, "eps": 0.0},
        {"lam": 1.0, "eps": 0.5},
        {"lam": 1.0, "loss": "likelyhood"},
        {"lam": 1.0, "regularizer": "l2"},
        {"lam": 1.0, "solver": "magic"},
        {"lam": 1.0, "max_iter": 0},
        {"lam": 1.0, "tol": -1.0},
    ],
)
def test_parameters_out_of_range(settings: dict) -> None:
    with pytest.raises(InputError):
        TCMR(**settings).fit(np.eye(3))


def test_stopping_early_warns_and_keeps_the_best_point() -> None:
    D = low_rank_tags(60, 25, 3, 3, seed=11)
    for solver in ("splitting", "gradient"):
        with pytest.warns(ConvergenceWarning):
            model = TCMR(1.0, max_iter=4, solver=solver).fit(D)
        assert (model.n_iter_, model.converged_) == (4, False)
        assert model.objective_ == pytest.approx(plain_objective(model.scores_, D, 1.0, 1e-3))


def test_clone_and_refit() -> None:
    D = low_rank_tags(20, 10, 3, 2, seed=12)
    model = TCMR(1.0, eps=1e-2).fit(D)
    first = model.probabilities_
    again = clone(model)
    assert again.get_params() == model.get_params()
    assert np.array_equal(again.fit(D).scores_, model.scores_)
    model.fit(D[:10])
    assert model.probabilities_.shape == (10, 10) != first.shape


@pytest.mark.parametrize("alpha", [0.0, 1.0])
@pytest.mark.parametrize("solver", ["splitting", "gradient"])
def test_threads_give_the_same_result(
    alpha: float, solver: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Many small blocks, so that threads have something to share out.
    monkeypatch.setattr("pipeline_lib.completion.losses._BLOCK_ENTRIES", 5 * 25)
    monkeypatch.setattr("pipeline_lib.completion.row_blocks._GROUP_ENTRIES", 20 * 25)
    D = low_rank_tags(203, 25, 3, 3, seed=13)
    W = np.eye(203, k=1) + np.eye(203, k=-1)
    found = []
    for threads in (1, 2, 4):
        with threadpool_limits(threads, user_api="blas"):
            model = TCMR(1.0, alpha=alpha, eps=0.05, solver=solver, tol=1e-9, max_iter=5000)
            found.append(model.fit(D, laplacian=laplacian(W)))
    alone, *together = found
    for model in together:
        # Sums are taken in the same order; BLAS itself may round otherwise on more threads.
        assert model.objective_ == pytest.approx(alone.objective_, rel=1e-10)
        assert np.abs(model.scores_ - alone.scores_).max() < 1e-4
        assert (model.rank_, model.converged_) == (alone.rank_, True)


@pytest.mark.parametrize("lam", [0.5, 1.0, 3.0])
def test_the_minimum_is_certified_by_its_dual(lam: float) -> None:
    D = low_rank_tags(150, 40, 4, 3, seed=14)
    gaps = []
    for tol in (1e-4, 1e-8, 1e-12):
        model = TCMR(lam, tol=tol).fit(D)
        bound = lower_bound(model.scores_, D, lam, model.rank_)
        gaps.append((model.objective_ - bound) / abs(model.objective_))
    assert all(gap > -1e-12 for gap in gaps)
    assert gaps[1] < 1e-6 and gaps[2] < 1e-9


def test_the_bound_is_one_for_any_point() -> None:
    D = low_rank_tags(50, 20, 3, 3, seed=15)
    least = TCMR(1.0, tol=1e-12).fit(D).objective_
    random = np.random.default_rng(0)
    for rank in (0, 5, 20):
        for Q in (
            np.full(D.shape, 0.3),
            random.random(D.shape),
            4.0 * random.random(D.shape) - 2.0,
        ):
            assert lower_bound(Q, D, 1.0, rank) <= least + 1e-9
