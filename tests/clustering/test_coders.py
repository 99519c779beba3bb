"""The estimators: objectives that never rise, codes that fit what they are stored with, edge cases."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.decomposition import sparse_encode
from sklearn.exceptions import ConvergenceWarning

from pipeline_lib.clustering import alternation
from pipeline_lib.clustering.alternation import reseed_unused_atoms
from pipeline_lib.clustering.code_solver import CodeProblem
from pipeline_lib.clustering.graph_sparse_coding import GraphSC
from pipeline_lib.clustering.graph_terms import AdaptiveGraph
from pipeline_lib.clustering.graphscan import GraphSCAN
from pipeline_lib.clustering.logsc import LogSC
from pipeline_lib.clustering.sparse_coding import SparseCoding
from pipeline_lib.errors import InputError
from pipeline_lib.graphs.adaptive import initial_graph
from pipeline_lib.graphs.laplacian import laplacian

Array = NDArray[np.float64]
CODERS = [SparseCoding, GraphSC, LogSC, GraphSCAN]


@pytest.fixture(autouse=True)
def _short_runs_may_stop_early() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        yield


def blobs(seed: int = 0, n: int = 48, d: int = 6, groups: int = 4) -> Array:
    rng = np.random.default_rng(seed)
    centres = rng.standard_normal((groups, d))
    X = centres[np.arange(n) % groups] + 0.2 * rng.standard_normal((n, d))
    return X / np.linalg.norm(X, axis=1, keepdims=True)


def small(cls: Any, **changes: Any) -> Any:
    settings: dict[str, Any] = {"n_atoms": 10, "beta": 0.05, "max_iter": 6, "random_state": 0}
    if cls in (GraphSC, GraphSCAN):
        settings["n_neighbors"] = 4
    if cls is not SparseCoding:
        settings["lam"] = 0.5
    return cls(**{**settings, **changes})


def objective(model: Any, X: Array, gammas: Array | None = None) -> float:
    """The objective of each method from its definition, densely; `gammas` of the graph's rows."""
    H, D, S = model.codes_, model.dictionary_, model.graph_.toarray()
    value = ((X - H @ D) ** 2).sum() + model.beta * np.abs(H).sum()
    W = (S + S.T) / 2
    lam = getattr(model, "lam", 0.0)
    pairs = ((H[:, None] - H[None]) ** 2).sum(axis=2)
    value += lam * 0.5 * (W * pairs).sum()
    if isinstance(model, GraphSCAN):
        alpha = lam if model.alpha is None else model.alpha
        distances = ((X[:, None] - X[None]) ** 2).sum(axis=2)
        gamma = model.gamma_ if gammas is None else gammas[:, None]
        value += alpha * (distances * S + gamma * S**2).sum()
    return float(value)


@pytest.mark.parametrize("cls", CODERS)
def test_fitted_model_is_consistent(cls: Any) -> None:
    X = blobs()
    model = small(cls).fit(X)
    n, atoms = len(X), 10
    assert model.codes_.shape == (n, atoms)
    assert model.dictionary_.shape == (atoms, X.shape[1])
    assert model.graph_.shape == (n, n)
    assert ((model.dictionary_**2).sum(axis=1) <= 1 + 1e-12).all()
    assert model.objective_ == pytest.approx(objective(model, X), rel=1e-10)
    assert model.objective_ == model.history_["objective"][-1]
    assert all(len(values) == model.n_iter_ for values in model.history_.values())
    # Codes are optimal for the dictionary and the graph beside them.
    lam = getattr(model, "lam", 0.0)
    D = model.dictionary_
    problem = CodeProblem(D @ D.T, X @ D.T, model.beta, lam * laplacian(model.graph_))
    assert problem.residual(model.codes_, problem.apply(model.codes_)) <= 1e-7
    assert model.history_["code_residual"][-1] <= model.code_tol


def test_objective_never_rises_in_200_random_problems() -> None:
    rng = np.random.default_rng(0)
    for trial in range(200):
        cls = CODERS[trial % 4]
        n, d = int(rng.integers(6, 25)), int(rng.integers(1, 8))
        X = rng.standard_normal((n, d)) * 10.0 ** rng.integers(-1, 2)
        if trial % 3 == 0:
            X[n // 2 :] = X[: n - n // 2]  # every row twice
        settings: dict[str, Any] = {
            "n_atoms": int(rng.integers(1, 12)),
            "beta": float(rng.choice([0.0, 0.01, 0.3, 3.0])),
            "max_iter": 5,
            "tol": 0.0,
            "random_state": trial,
            "initial_dictionary": str(rng.choice(["random", "samples"])),
        }
        if cls is not SparseCoding:
            settings["lam"] = float(rng.choice([0.0, 0.1, 10.0]))
        if cls in (GraphSC, GraphSCAN):
            settings["n_neighbors"] = int(rng.integers(1, 5))
        if cls is GraphSC:
            settings["weights"] = str(rng.choice(["binary", "heat"]))
        if cls is GraphSCAN:
            settings["local_scale"] = trial % 8 == 7
        model = cls(**settings).fit(X)
        values = np.array(model.history_["objective"])
        slack = 1e-11 * max(1.0, float((X**2).sum()))
        assert np.isfinite(values).all(), (trial, settings)
        assert (np.diff(values) <= slack).all(), (trial, settings, values)


@pytest.mark.parametrize("cls", [GraphSC, LogSC, GraphSCAN])
def test_no_smoothness_is_sparse_coding(cls: Any) -> None:
    X = blobs(1)
    plain, model = small(SparseCoding).fit(X), small(cls, lam=0.0).fit(X)
    np.testing.assert_array_equal(model.codes_, plain.codes_)
    np.testing.assert_array_equal(model.dictionary_, plain.dictionary_)
    assert model.objective_ == plain.objective_
    np.testing.assert_array_equal(model.transform(X[:3]), plain.transform(X[:3]))


def test_graph_terms_without_smoothness_are_a_constant() -> None:
    X = blobs(1)
    plain, model = small(SparseCoding).fit(X), small(GraphSCAN, lam=0.0, alpha=2.0).fit(X)
    np.testing.assert_allclose(model.codes_, plain.codes_, atol=1e-12)
    assert model.objective_ == pytest.approx(objective(model, X))
    assert model.objective_ > plain.objective_


def test_codes_of_new_rows_are_those_of_the_lasso() -> None:
    X = blobs(2)
    model = small(SparseCoding).fit(X)
    new = blobs(3, n=7)
    lasso = sparse_encode(
        new, model.dictionary_, algorithm="lasso_cd", alpha=model.beta / 2, max_iter=100_000
    )
    np.testing.assert_allclose(model.transform(new), lasso, atol=1e-3)
    np.testing.assert_allclose(model.transform(X), model.codes_, atol=1e-5)


@pytest.mark.parametrize("cls", [GraphSC, GraphSCAN])
def test_new_rows_are_pulled_towards_their_neighbours(cls: Any) -> None:
    X = blobs(4)
    model = small(cls, lam=5.0).fit(X)
    model.lam = 1e6  # now the pull is all that counts
    new = X[:5] + 1e-3
    weights = model._attach(new).toarray()
    mean = (weights @ model.codes_) / weights.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(model.transform(new), mean, atol=1e-5)


@pytest.mark.parametrize("cls", [GraphSC, GraphSCAN])
def test_new_rows_minimise_what_transform_promises(cls: Any) -> None:
    X = blobs(5)
    model = small(cls).fit(X)
    new = blobs(6, n=5)
    codes, weights = model.transform(new), model._attach(new).toarray()

    def cost(row: int, h: Array) -> float:
        pull = (weights[row] * ((h - model.codes_) ** 2).sum(axis=1)).sum()
        fit = ((new[row] - h @ model.dictionary_) ** 2).sum()
        return float(fit + model.beta * np.abs(h).sum() + model.lam * pull)

    rng = np.random.default_rng(0)
    for row, h in enumerate(codes):
        for _ in range(50):
            other = h + 0.01 * rng.standard_normal(h.shape) * (rng.random(h.shape) < 0.3)
            assert cost(row, other) >= cost(row, h) - 1e-12


def test_adaptive_graph_is_the_projection_of_the_paper() -> None:
    X = blobs(7)
    model = small(GraphSCAN, max_iter=1, tol=0.0, alpha=0.2, solver="batch").fit(X)
    S = model.graph_.toarray()
    np.testing.assert_allclose(S.sum(axis=1), 1.0)
    assert (S >= 0).all() and not S.diagonal().any()
    # The S-step saw the codes before the last E-step: with lam tiny these do not matter.
    faint = small(GraphSCAN, max_iter=1, lam=1e-9, alpha=1.0).fit(X)
    distances = ((X[:, None] - X[None]) ** 2).sum(axis=2)
    for i in range(len(X)):
        others = np.delete(np.arange(len(X)), i)
        target = -distances[i, others] / (2 * faint.gamma_)
        ordered = np.sort(target)[::-1]
        thresholds = (np.cumsum(ordered) - 1) / np.arange(1, len(ordered) + 1)
        eta = thresholds[np.flatnonzero(ordered > thresholds)[-1]]
        expected = np.maximum(target - eta, 0)
        np.testing.assert_allclose(faint.graph_.toarray()[i, others], expected, atol=1e-6)


def test_on_its_own_scale_the_graph_of_rows_alone_is_the_initial_one() -> None:
    X = blobs(7)
    faint = small(GraphSCAN, max_iter=2, lam=1e-9, alpha=1.0, local_scale=True).fit(X)
    initial, gamma = initial_graph(X, 4)
    np.testing.assert_allclose(faint.graph_.toarray(), initial.toarray(), atol=1e-6)
    assert faint.gamma_ == pytest.approx(gamma)


def test_rows_of_the_own_scale_graph_minimise_their_objective() -> None:
    X = blobs(8)
    model = small(GraphSCAN, max_iter=3, tol=0.0, lam=2.0, alpha=0.5, local_scale=True).fit(X)
    term = AdaptiveGraph(X, 4, 2.0, 0.5, local_scale=True)
    term.update(model.codes_)
    distances = ((X[:, None] - X[None]) ** 2).sum(axis=2)
    between = ((model.codes_[:, None] - model.codes_[None]) ** 2).sum(axis=2)
    nearest = np.sort(distances, axis=1)[:, 1:6]
    gammas = 0.5 * (4 * nearest[:, 4] - nearest[:, :4].sum(axis=1))
    np.testing.assert_allclose(term.gamma, gammas)
    slope = distances + 0.5 * (2.0 / 0.5) * between + 2 * gammas[:, None] * term.graph.toarray()
    for i in range(
        len(X)
    ):  # optimality: equal slopes where there is weight, none smaller elsewhere
        others = np.delete(np.arange(len(X)), i)
        used = term.graph.toarray()[i, others] > 0
        level = slope[i, others][used]
        np.testing.assert_allclose(level, level[0], rtol=1e-9)
        assert (slope[i, others][~used] >= level[0] - 1e-9).all()
    assert model.objective_ == pytest.approx(objective(model, X, gammas), rel=1e-10)


@pytest.mark.parametrize("weights", ["binary", "heat"])
def test_fixed_graph_joins_either_ones_neighbours(weights: Any) -> None:
    X = blobs(8, n=20)
    model = small(GraphSC, weights=weights, n_neighbors=3, max_iter=1).fit(X)
    distances = np.sqrt(((X[:, None] - X[None]) ** 2).sum(axis=2))
    W = np.zeros((20, 20))
    for i in range(20):
        for j in [j for j in np.argsort(distances[i], kind="stable") if j != i][:3]:
            W[i, j] = W[j, i] = 1.0
    if weights == "heat":
        W *= np.exp(-(distances**2) / (2 * distances.mean() ** 2))
        assert model.heat_width_ == pytest.approx(distances.mean())
    np.testing.assert_allclose(model.graph_.toarray(), W, atol=1e-12)


@pytest.mark.parametrize("cls", [SparseCoding, GraphSCAN])
def test_paper_solver_gives_the_same_fit(cls: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alternation, "_REDUCTION", 0.0)  # exact E-steps take one path
    X = blobs(9, n=20)
    batch, paper = (
        small(cls, n_atoms=5, max_iter=3, solver=solver).fit(X)
        for solver in ("batch", "feature-sign")
    )
    np.testing.assert_allclose(batch.codes_, paper.codes_, atol=1e-5)
    np.testing.assert_allclose(batch.dictionary_, paper.dictionary_, atol=1e-5)


def test_unused_atoms_become_the_worst_coded_rows() -> None:
    rng = np.random.default_rng(0)
    X, D = rng.standard_normal((9, 4)), rng.standard_normal((5, 4))
    codes = rng.standard_normal((9, 5))
    codes[:, [1, 3]] = 0.0
    remainder = X - codes @ D
    order = np.argsort(-np.linalg.norm(remainder, axis=1))
    new, count = reseed_unused_atoms(X, codes, D)
    assert count == 2
    np.testing.assert_array_equal(new[[0, 2, 4]], D[[0, 2, 4]])
    for atom, row in zip((1, 3), order):
        np.testing.assert_allclose(new[atom], remainder[row] / np.linalg.norm(remainder[row]))
    np.testing.assert_array_equal(codes @ new, codes @ D)  # so the objective is unchanged
    assert reseed_unused_atoms(codes @ D, codes, D)[1] == 0  # nothing is missing


def test_reseeding_brings_dead_atoms_back() -> None:
    X = blobs(10)
    dead = np.zeros((10, X.shape[1]))
    dead[0] = X[0]
    model = small(SparseCoding, initial_dictionary=dead, max_iter=3).fit(X)
    assert model.history_["reseeded"][0] == 9
    assert model.codes_.any(axis=0).sum() > 5


@pytest.mark.parametrize("cls", CODERS)
def test_same_seed_same_result_and_input_is_left_alone(cls: Any) -> None:
    X = blobs(11)
    kept = X.copy()
    first, second = small(cls).fit(X), clone(small(cls)).fit(X)
    np.testing.assert_array_equal(first.codes_, second.codes_)
    np.testing.assert_array_equal(X, kept)
    np.testing.assert_array_equal(small(cls).fit_transform(X), first.codes_)


@pytest.mark.parametrize("cls", CODERS)
def test_state_is_plain_arrays_and_restores_transform(cls: Any) -> None:
    X = blobs(12)
    model = small(cls).fit(X)
    state = model.get_state()
    assert all(isinstance(value, np.ndarray) and value.dtype != object for value in state.values())
    restored = cls.from_state(model.get_params(), state)
    np.testing.assert_array_equal(restored.transform(X[:5]), model.transform(X[:5]))
    assert (restored.graph_ != model.graph_).nnz == 0
    state.pop("codes_")
    with pytest.raises(InputError, match="codes_"):
        cls.from_state(model.get_params(), state)


def test_stopping_rule() -> None:
    X = blobs(13)
    with pytest.warns(ConvergenceWarning):
        cut = small(SparseCoding, max_iter=2, tol=0.0).fit(X)
    assert cut.n_iter_ == 2 and not cut.converged_
    done = small(SparseCoding, max_iter=500, tol=1e-3).fit(X)
    assert done.converged_ and done.n_iter_ < 500


@pytest.mark.parametrize("cls", CODERS)
@pytest.mark.parametrize("rows", ["constant", "zero", "one zero row", "one column"])
def test_degenerate_rows(cls: Any, rows: str) -> None:
    X = blobs(14, n=12)
    if rows == "constant":
        X[:] = X[0]
    elif rows == "zero":
        X[:] = 0.0
    elif rows == "one zero row":
        X[3] = 0.0
    else:
        X = X[:, :1]
    model = small(cls, beta=0.01).fit(X)
    assert np.isfinite(model.codes_).all() and np.isfinite(model.objective_)
    assert np.isfinite(model.transform(X)).all()


def test_one_row() -> None:
    X = blobs(15)[:1]
    model = small(SparseCoding).fit(X)
    assert model.codes_.shape == (1, 10)
    assert model.objective_ <= 1.0
    with pytest.raises(InputError):
        small(GraphSC).fit(X)
    with pytest.raises(InputError):
        small(GraphSCAN).fit(X)


@pytest.mark.parametrize(
    ("cls", "changes", "word"),
    [
        (SparseCoding, {"n_atoms": 0}, "n_atoms"),
        (SparseCoding, {"n_atoms": 2.5}, "n_atoms"),
        (SparseCoding, {"beta": -1.0}, "beta"),
        (SparseCoding, {"beta": np.nan}, "beta"),
        (SparseCoding, {"max_iter": 0}, "max_iter"),
        (SparseCoding, {"solver": "magic"}, "solver"),
        (SparseCoding, {"initial_dictionary": "best"}, "initial_dictionary"),
        (SparseCoding, {"initial_dictionary": np.zeros((2, 2))}, "initial_dictionary"),
        (GraphSC, {"weights": "cosine"}, "weights"),
        (GraphSC, {"heat_width": 0.0}, "heat_width"),
        (GraphSC, {"lam": -1.0}, "lam"),
        (GraphSCAN, {"alpha": 0.0}, "alpha"),
        (GraphSCAN, {"n_neighbors": 47}, "n_neighbors"),
        (LogSC, {"representation_weight": 0.0}, "representation_weight"),
    ],
)
def test_parameters_out_of_range_are_named(cls: Any, changes: dict[str, Any], word: str) -> None:
    with pytest.raises(InputError, match=word):
        small(cls, **changes).fit(blobs())


@pytest.mark.parametrize("cls", CODERS)
def test_unusable_input_is_refused(cls: Any) -> None:
    X = blobs()
    X[3, 2] = np.nan
    with pytest.raises(InputError, match="NaN"):
        small(cls).fit(X)
    with pytest.raises(InputError, match="shape"):
        small(cls).fit(np.zeros(5))
    with pytest.raises(InputError, match="not fitted"):
        small(cls).transform(X)
    with pytest.raises(InputError, match="features"):
        small(cls).fit(blobs()).transform(np.zeros((2, 3)))
