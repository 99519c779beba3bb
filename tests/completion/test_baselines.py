"""The other completion methods: definitions, invariants, degenerate input, contract."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone

from pipeline_lib.completion.als import ImplicitALS
from pipeline_lib.completion.base import TagCompleter
from pipeline_lib.completion.cooccurrence import CoOccurrence, ItemCosine
from pipeline_lib.completion.ease import EASE
from pipeline_lib.completion.frequency import Frequency
from pipeline_lib.completion.latent_dirichlet import LatentDirichlet
from pipeline_lib.completion.latent_semantic import LatentSemanticAnalysis
from pipeline_lib.completion.lres import LRES, LRES0
from pipeline_lib.completion.plsa import ProbabilisticLSA
from pipeline_lib.completion.tag_neighbors import TagNeighbors
from pipeline_lib.completion.tcmr import TCMR
from pipeline_lib.completion.tcmr_linear import TCMRLinear
from pipeline_lib.completion.tcmr_regression import TCMRRegression
from pipeline_lib.errors import InputError

METHODS: list[TagCompleter] = [
    Frequency(),
    LatentSemanticAnalysis(3),
    TagNeighbors(5),
    LatentDirichlet(3, max_iter=3, random_state=0),
    ProbabilisticLSA(3, random_state=0),
    LRES0(0.3, max_iter=10),
    LRES(0.3, max_iter=10),
    CoOccurrence(),
    ItemCosine(),
    EASE(1.0),
    ImplicitALS(3, random_state=0),
    TCMR(1.0),
    TCMRLinear(1.0, n_neighbors=4),
    TCMRRegression(1.0),
]


def name_of(method: TagCompleter) -> str:
    return type(method).__name__


def random_tags(n: int, m: int, seed: int, share: float = 0.2) -> np.ndarray:
    D = (np.random.default_rng(seed).random((n, m)) < share).astype(np.uint8)
    D[0, 0] = 1
    return D


@pytest.fixture(scope="module")
def features() -> np.ndarray:
    return np.random.default_rng(9).random((40, 5))


@pytest.mark.parametrize("method", METHODS, ids=name_of)
def test_contract(method: TagCompleter, features: np.ndarray) -> None:
    D = random_tags(40, 12, 0)
    kept = D.copy()
    first = clone(method).fit(D, X=features)
    assert first.scores_.shape == D.shape
    assert first.scores_.dtype == np.float64
    assert np.isfinite(first.scores_).all()
    again = clone(method).fit(sparse.coo_matrix(D), X=features)
    assert np.array_equal(first.scores_, again.scores_)
    assert np.array_equal(D, kept)
    assert first.fit(D, X=features) is first


@pytest.mark.parametrize("method", METHODS, ids=name_of)
def test_images_may_come_in_any_order(method: TagCompleter, features: np.ndarray) -> None:
    if isinstance(method, (ProbabilisticLSA, LatentDirichlet)):
        pytest.skip("starts from random numbers drawn image by image")
    D = random_tags(40, 12, 1)
    order = np.random.default_rng(0).permutation(40)
    scores = clone(method).fit(D, X=features).scores_
    moved = clone(method).fit(D[order], X=features[order]).scores_
    assert np.abs(moved - scores[order]).max() < 2e-3


@pytest.mark.parametrize("method", METHODS, ids=name_of)
@pytest.mark.parametrize(
    "D",
    [
        np.array([[1, 0, 1]]),
        np.array([[1], [0], [1]]),
        np.array([[0, 0, 0, 0], [1, 1, 1, 1], [0, 1, 0, 0]]),
        np.tile([1, 0, 1, 0], (6, 1)),
        np.eye(5),
    ],
    ids=["one image", "one tag", "empty and full rows", "equal rows", "one tag each"],
)
def test_degenerate_tags(method: TagCompleter, D: np.ndarray) -> None:
    X = np.arange(len(D), dtype=float)[:, None]
    if len(D) == 1 and isinstance(method, LRES) and not isinstance(method, LRES0):
        with pytest.raises(InputError, match="one image"):
            clone(method).fit(D, X=X)
        return
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        scores = clone(method).fit(D, X=X).scores_
    assert np.isfinite(scores).all()


@pytest.mark.parametrize("method", METHODS, ids=name_of)
@pytest.mark.parametrize(
    ("D", "message"),
    [
        (np.zeros((3, 4)), "no observed tag"),
        (np.full((3, 4), 0.5), "only 0 and 1|whole numbers"),
        (np.full((3, 4), np.nan), "NaN"),
        (np.ones(4), "axes"),
        (np.ones((0, 4)), "shape"),
        (np.array([["a", "b"]]), "not numeric"),
    ],
)
def test_unusable_tags(method: TagCompleter, D: np.ndarray, message: str) -> None:
    with pytest.raises(InputError, match=message):
        clone(method).fit(D)


def test_features_and_laplacian_must_fit() -> None:
    D = random_tags(6, 4, 2)
    for X in (np.ones((5, 2)), np.full((6, 2), np.inf), np.ones(6)):
        with pytest.raises(InputError, match="features"):
            TCMRLinear(1.0).fit(D, X=X)
    asymmetric = np.triu(np.ones((6, 6)))
    for L in (np.eye(5), np.full((6, 6), np.nan), asymmetric):
        with pytest.raises(InputError, match="Laplacian"):
            LRES().fit(D, laplacian=L)
    for method in (LRES(), TCMRLinear(1.0)):
        with pytest.raises(InputError, match="features"):
            method.fit(D)


@pytest.mark.parametrize(
    "method",
    [
        LatentSemanticAnalysis(0),
        TagNeighbors(-1),
        LatentDirichlet(0),
        ProbabilisticLSA(2.5),
        LRES0(0.0),
        EASE(0.0),
        ImplicitALS(l2=0.0),
        TCMRLinear(1.0, delta=1.5),
        TCMRRegression(1.0, delta=-0.1),
    ],
    ids=name_of,
)
def test_parameters_out_of_range(method: TagCompleter) -> None:
    with pytest.raises(InputError):
        method.fit(random_tags(8, 5, 3), X=np.ones((8, 1)))


def test_frequency_is_the_share_of_images() -> None:
    D = random_tags(30, 6, 4)
    assert np.allclose(Frequency().fit(D).scores_, D.mean(axis=0))


def test_latent_semantic_analysis_is_the_truncated_decomposition() -> None:
    D = random_tags(30, 9, 5).astype(float)
    U, s, Vt = np.linalg.svd(D, full_matrices=False)
    expected = (U[:, :4] * s[:4]) @ Vt[:4]
    assert np.allclose(LatentSemanticAnalysis(4).fit(D).scores_, expected)
    assert np.allclose(LatentSemanticAnalysis(99).fit(D).scores_, D)


def test_cooccurrence_by_counting() -> None:
    D = random_tags(30, 7, 6)
    scores = CoOccurrence().fit(D).scores_
    for i in range(3):
        for t in range(7):
            share = [
                (D[:, o] & D[:, t]).sum() / D[:, o].sum()
                for o in np.flatnonzero(D[i])
                if o != t and D[:, o].any()
            ]
            assert scores[i, t] == pytest.approx(sum(share))


def test_item_cosine_by_counting() -> None:
    D = random_tags(30, 7, 7)
    norms = np.linalg.norm(D.astype(float), axis=0)
    scores = ItemCosine().fit(D).scores_
    for t in range(7):
        terms = [D[:, o] @ D[:, t] / (norms[o] * norms[t]) for o in np.flatnonzero(D[0]) if o != t]
        assert scores[0, t] == pytest.approx(sum(terms))


def test_ease_solves_one_ridge_regression_a_tag() -> None:
    D = random_tags(40, 6, 8).astype(float)
    model = EASE(2.0).fit(D)
    assert not model.coef_.diagonal().any()
    for t in range(6):
        others = [o for o in range(6) if o != t]
        A = D[:, others]
        ridge = np.linalg.solve(A.T @ A + 2.0 * np.eye(5), A.T @ D[:, t])
        assert np.allclose(model.coef_[others, t], ridge)
        assert np.allclose(model.scores_[:, t], A @ ridge)


def test_als_is_stationary_for_the_dense_objective() -> None:
    D = random_tags(25, 8, 9).astype(float)
    model = ImplicitALS(3, confidence=4.0, l2=0.5, tol=1e-12, max_iter=3000, random_state=1).fit(D)
    # For a factorisation the best split of the penalty is the trace norm: 2 l2 ||Q||_tr.
    Q = model.scores_
    weight = 1.0 + 4.0 * D
    s = np.linalg.svd(Q, compute_uv=False)
    value = (weight * (D - Q) ** 2).sum() + 2 * 0.5 * s.sum()
    assert model.objective_ == pytest.approx(value, rel=1e-5)
    U, s, Vt = np.linalg.svd(Q)
    slope = -2.0 * weight * (D - Q)
    assert np.allclose(U[:, :3].T @ slope @ Vt[:3].T, -np.eye(3), atol=1e-3)
    assert np.all(np.diff(model.history_["objective"]) <= 1e-9)


def test_plsa_climbs_the_likelihood_of_a_mixture() -> None:
    D = random_tags(40, 10, 10)
    D = D[D.any(axis=1)]
    model = ProbabilisticLSA(4, tol=1e-9, max_iter=3000, random_state=0).fit(D)
    assert np.allclose(model.scores_.sum(axis=1), 1.0)
    assert np.linalg.matrix_rank(model.scores_, tol=1e-6) <= 4
    assert np.all(np.diff(model.history_["objective"]) <= 1e-9)
    final = -np.log(model.scores_[D > 0]).sum()
    assert final <= model.objective_ + 1e-9
    assert final == pytest.approx(model.objective_, rel=1e-6)
    # One topic: the maximum likelihood is the overall tag distribution.
    single = ProbabilisticLSA(1, random_state=0).fit(D).scores_
    assert np.allclose(single, D.sum(axis=0) / D.sum())


def test_lda_scores_are_probabilities() -> None:
    scores = LatentDirichlet(3, max_iter=5, random_state=0).fit(random_tags(30, 8, 11)).scores_
    assert np.allclose(scores.sum(axis=1), 1.0) and (scores > 0).all()


@pytest.mark.parametrize("k", [1, 3, 10, 29, 100])
def test_tag_neighbours_against_random_tie_breaking(k: int) -> None:
    D = random_tags(30, 6, 12)
    got = TagNeighbors(k).fit(D).scores_
    norms = np.maximum(np.linalg.norm(D.astype(float), axis=1), 1.0)
    cosines = np.round((D @ D.T.astype(float)) / np.outer(norms, norms), 12)
    random = np.random.default_rng(0)
    draws = 400
    votes = np.zeros((30, 6))
    kk = min(k, 29)
    for i in range(30):
        others = np.delete(np.arange(30), i)
        for _ in range(draws):
            order = np.lexsort((random.random(29), -cosines[i, others]))
            votes[i] += D[others[order[:kk]]].mean(axis=0)
    # Standard error of a mean of numbers in [0, 1], times about four.
    assert np.abs(got - votes / draws).max() < 0.1
    assert np.abs((got - votes / draws).mean()) < 0.005


def test_lres_separates_sparse_errors_from_low_rank() -> None:
    blocks = np.kron(np.eye(3), np.ones((20, 8)))
    random = np.random.default_rng(0)
    wrong = (random.random(blocks.shape) < 0.03).astype(float)
    D = np.abs(blocks - wrong)
    model = LRES0(l1=0.2, l2=0.0, max_iter=120).fit(D)
    assert model.rank_ == 3
    assert np.abs(model.scores_ - blocks).max() < 0.3
    assert np.linalg.norm(D - model.scores_ - model.errors_) < 0.05 * np.linalg.norm(D)


def test_lres_graph_pulls_neighbours_together() -> None:
    D = random_tags(20, 8, 13)
    L = np.kron(np.eye(10), np.array([[1.0, -1.0], [-1.0, 1.0]]))
    free = LRES0(1.0, max_iter=60).fit(D).scores_
    tied = LRES(1.0, l2=30.0, max_iter=60).fit(D, laplacian=L).scores_
    gap = [np.linalg.norm(Q[::2] - Q[1::2]) / np.linalg.norm(Q) for Q in (free, tied)]
    assert gap[1] < 0.5 * gap[0]


@pytest.mark.parametrize("delta", [0.0, 1.0])
def test_mixtures_end_at_their_parts(delta: float, features: np.ndarray) -> None:
    D = random_tags(40, 12, 14)

    def order(scores: np.ndarray) -> np.ndarray:
        return np.argsort(np.where(D > 0, -np.inf, np.round(scores, 9)), axis=1, kind="stable")

    visual = TCMRLinear(1.0, delta=delta, n_neighbors=7).fit(D, X=features)
    regression = TCMRRegression(1.0, l2=2.0, delta=delta).fit(D)
    if delta == 1.0:
        for model in (visual, regression):
            assert np.array_equal(order(model.scores_), order(TCMR(1.0).fit(D).scores_))
        return
    assert np.array_equal(order(regression.scores_), order(EASE(2.0).fit(D).scores_))
    distance = np.linalg.norm(features[:, None] - features[None], axis=2)
    np.fill_diagonal(distance, np.inf)
    vote = np.array([D[np.argsort(row)[:7]].mean(axis=0) for row in distance])
    assert np.array_equal(order(visual.scores_), order(vote))
