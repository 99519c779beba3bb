"""The names, parameters and results that code outside the project relies on.

Each test writes a call as a user's script would: a renamed parameter, a moved class or a changed
shape fails here before it fails there.
"""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone

import pipeline_lib.annotation
import pipeline_lib.clustering
import pipeline_lib.completion
import pipeline_lib.kernels
import pipeline_lib.ltr
import pipeline_lib.metric_learning
import pipeline_lib.metrics
import pipeline_lib.retrieval
from pipeline_lib.datasets import load
from pipeline_lib.graphs import initial_graph, laplacian, project_simplex
from pipeline_lib.runner import run_suite

RNG = np.random.default_rng(0)
X = RNG.normal(size=(40, 6))
POSITIVE = RNG.random((40, 6))
Y = (RNG.random((40, 9)) < 0.35).astype(float)
Y[Y.sum(axis=1) == 0, 0] = 1
GRADES = RNG.integers(0, 3, size=40)
QID = np.repeat(np.arange(4), 10)

SIGNATURES: dict[Any, dict[str, Any]] = {
    pipeline_lib.kernels.Nystroem: {
        "kernel": "rbf", "rank": None, "cutoff": 1e-6, "landmarks": "uniform", "random_state": None,
    },
    pipeline_lib.kernels.FourierFeatures: {"kernel": "rbf", "random_state": None},
    pipeline_lib.ltr.RankSVM: {"C": 1.0, "loss": "squared_hinge", "feature_map": None},
    pipeline_lib.ltr.KernelRankSVM: {"kernel": "rbf"},
    pipeline_lib.annotation.RKML: {
        "n_samples": None, "kernel": "rbf", "weighting": "log-entropy", "smoothing": 0.0,
        "normalize": False, "vote": "similarity", "n_neighbors": 20, "random_state": None,
    },
    pipeline_lib.completion.TCMR: {"alpha": 0.0, "eps": 1e-3},
    pipeline_lib.clustering.GraphSCAN: {"alpha": None, "random_state": None},
}  # fmt: skip


@pytest.mark.parametrize("cls", SIGNATURES, ids=lambda cls: cls.__name__)
def test_the_promised_parameters_keep_their_defaults(cls: Any) -> None:
    parameters = inspect.signature(cls).parameters
    promised = SIGNATURES[cls]
    assert {name: parameters[name].default for name in promised} == promised


@pytest.mark.parametrize(
    "feature_map",
    [
        pipeline_lib.kernels.Nystroem(n_components=12, gamma=0.2, random_state=0),
        pipeline_lib.kernels.FourierFeatures(n_components=12, gamma=0.2, random_state=0),
    ],
    ids=lambda feature_map: type(feature_map).__name__,
)
def test_feature_maps(feature_map: Any) -> None:
    mapped = feature_map.fit(X).transform(X)
    assert len(mapped) == 40
    if isinstance(feature_map, pipeline_lib.kernels.Nystroem):
        assert mapped.shape[1] == feature_map.effective_rank_


@pytest.mark.parametrize(
    "ranker",
    [
        pipeline_lib.ltr.RankSVM(
            C=1.0, loss="squared_hinge", feature_map=None, tol=1e-4, max_iter=100
        ),
        pipeline_lib.ltr.RankSVM(
            C=1.0, feature_map=pipeline_lib.kernels.FourierFeatures(30, 0.1, random_state=0)
        ),
        pipeline_lib.ltr.RankNystroem(n_components=20, gamma=0.1, random_state=0),
        pipeline_lib.ltr.RankRandomFourier(n_components=20, gamma=0.1, random_state=0),
        pipeline_lib.ltr.KernelRankSVM(C=1.0, gamma=0.1, kernel="rbf"),
        pipeline_lib.ltr.RankSVMStruct(C=1.0),
    ],
    ids=lambda ranker: type(ranker).__name__,
)
def test_rankers(ranker: Any) -> None:
    fitted = clone(ranker).fit(X, GRADES, QID)
    assert fitted.predict(X).shape == (40,)
    assert fitted.coef_.ndim == 1
    assert len(fitted.history_["objective"]) >= 1
    assert np.isfinite(fitted.objective_)
    assert isinstance(fitted.converged_, bool | np.bool_)
    assert fitted.n_iter_ >= 1


@pytest.mark.parametrize(
    "ranking",
    [
        pipeline_lib.retrieval.RankingAdaptiveNeighbors(
            n_neighbors=5, lam=1.0, local=False, tol=1e-4, max_iter=50
        ),
        pipeline_lib.retrieval.RankingAdaptiveNeighbors(n_neighbors=5, lam=1.0, local=True),
        pipeline_lib.retrieval.SelfDiffusion(),
        pipeline_lib.retrieval.PersonalizedPageRank(),
        pipeline_lib.retrieval.ManifoldRanking(),
        pipeline_lib.retrieval.GraphTransduction(),
        pipeline_lib.retrieval.EuclideanRanking(),
    ],
    ids=lambda ranking: type(ranking).__name__,
)
def test_rankings_of_a_database(ranking: Any) -> None:
    fitted = clone(ranking).fit(X)
    scores = fitted.rank([3, [5, 8]])
    assert scores.shape == (2, 40)
    assert np.isfinite(scores).all()
    assert scores[0].argmax() == 3
    assert fitted.rank_vectors(X[:2] + 1e-3).shape == (2, 40)


def test_rkml_and_its_similarity() -> None:
    model = pipeline_lib.annotation.RKML(gamma=0.3, rank=8, n_components=5, random_state=0)
    scores = model.fit(X, Y).predict(X)
    assert scores.shape == Y.shape
    assert len(model.transform(X)) == 40
    unit = pipeline_lib.annotation.RKML(gamma=0.3, rank=8, n_components=5, normalize=True)
    rows = unit.fit(X, Y).transform(X)
    assert np.allclose(np.linalg.norm(rows, axis=1), 1)


@pytest.mark.parametrize("name", ["RCA", "DCA", "LFDA", "ITML", "LDML", "PRCA", "KernelPCA"])
def test_metric_learners_take_tags_or_constraints(name: str) -> None:
    learner = getattr(pipeline_lib.metric_learning, name)()
    mapped = learner.fit(X, Y).transform(X)
    assert len(mapped) == 40
    constraints = pipeline_lib.metric_learning.from_tags(Y)
    assert len(clone(learner).fit(X, constraints=constraints).transform(X)) == 40


def test_tag_completion() -> None:
    graph = laplacian(initial_graph(X, 5)[0])
    model = pipeline_lib.completion.TCMR(lam=1.0, alpha=0.1, eps=1e-3, tol=1e-3, max_iter=300)
    model.fit(Y, X=None, laplacian=graph)
    assert model.scores_.shape == Y.shape
    assert np.allclose(model.probabilities_.sum(axis=1), 1)
    assert model.rank_ >= 1


@pytest.mark.parametrize("name", ["GraphSCAN", "SparseCoding", "GraphSC", "LogSC"])
def test_sparse_codes(name: str) -> None:
    parameters = {"n_atoms": 5, "beta": 0.05, "max_iter": 3, "random_state": 0, "tol": 0.5}
    if name != "SparseCoding":
        parameters["lam"] = 0.1
    model = getattr(pipeline_lib.clustering, name)(**parameters).fit(X)
    assert model.codes_.shape == (40, 5)
    assert model.dictionary_.shape == (5, 6)
    assert model.transform(X[:3]).shape == (3, 5)
    if name in ("GraphSCAN", "GraphSC"):
        assert sparse.issparse(model.graph_)
        assert model.graph_.shape == (40, 40)


def test_graphs() -> None:
    graph, gamma = initial_graph(X, 5)
    assert sparse.issparse(graph)
    assert np.allclose(graph.sum(axis=1), 1)
    assert np.all(np.asarray(gamma) > 0)
    assert np.allclose(np.asarray(laplacian(graph).sum(axis=1)), 0)
    assert np.allclose(project_simplex(X).sum(axis=1), 1)


def test_metrics() -> None:
    metrics = pipeline_lib.metrics
    for definition in ("letor4", "letor3", "standard"):
        result = metrics.ranking_metrics(X[:, 0], GRADES, QID, definition=definition)
        assert len(result.per_item) == 4
        assert {"ndcg_at_5", "p_at_10", "map", "mean_ndcg"} <= set(result.means)
    labels = np.arange(40) % 4
    scores = -((X[:5, None] - X[None]) ** 2).sum(axis=2)
    result = metrics.retrieval_metrics(
        scores, labels, np.arange(5), cutoffs=(5, 15), count_query=True
    )
    assert {"p_at_5", "recall_at_15"} <= set(result.means)
    assert len(metrics.annotation_metrics(X @ RNG.normal(size=(6, 9)), Y, (1, 5)).per_item) == 40
    observed = np.zeros_like(Y)
    observed[np.arange(40), Y.argmax(axis=1)] = 1
    truth = Y - observed
    kept = truth.sum(axis=1) > 0
    result = metrics.completion_metrics(
        RNG.random((int(kept.sum()), 9)), observed[kept], truth[kept], (1, 3)
    )
    assert {"ap_at_3", "ar_at_3", "c_at_3"} <= set(result.means)
    assert metrics.clustering_accuracy(labels, labels[::-1]) == 1
    assert metrics.nmi(labels, labels, normalization="max") == pytest.approx(1)
    assert metrics.ari(labels, labels) == pytest.approx(1)


def test_paired_comparison() -> None:
    metrics = pipeline_lib.metrics
    first = metrics.ranking_metrics(X[:, 0], GRADES, QID).per_item
    second = metrics.ranking_metrics(X[:, 1], GRADES, QID).per_item
    comparison = metrics.compare(first, second, "map")
    assert np.isfinite(comparison.effect)
    assert metrics.compare(first, first, "map").effect == 0


def test_datasets_and_suites(tmp_path: Any) -> None:
    digits = load("digits")
    assert digits.X.shape == (1797, 64)
    assert digits.y.shape == (1797,)
    suite = tmp_path / "tiny.toml"
    suite.write_text(
        """
version = 1
name = "tiny"
[[problems]]
name = "moons"
kind = "retrieval"
dataset = "two-moons"
splits = ["all"]
headline = "map"
options = { cutoffs = [5] }
[[problems.methods]]
name = "Euclidean"
"""
    )
    table = run_suite(suite, home=tmp_path / "home")
    assert table.height >= 1
