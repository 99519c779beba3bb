"""Conformance of every annotation model, and each against its definition on small data."""

import doctest
import warnings

import numpy as np
import pytest
from scipy import sparse
from scipy.spatial.distance import cdist
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.kernel_ridge import KernelRidge

from pipeline_lib.annotation import (
    JEC,
    RKML,
    RKMLH,
    RKMLO,
    RLML,
    FastTag,
    KernelRidgeAnnotator,
    KernelSVMAnnotator,
    LinearSVMAnnotator,
    MetricAnnotator,
    NystroemRidge,
    Popularity,
    TagProp,
    TagRelevance,
    TwoPassKNN,
    metric_annotator,
)
from pipeline_lib.annotation.base import as_tags
from pipeline_lib.annotation.distances import JointDistance
from pipeline_lib.annotation.fasttag import _with_constant
from pipeline_lib.annotation.tagprop import _DistanceWeights, _Likelihood, _RankWeights
from pipeline_lib.errors import InputError
from pipeline_lib.metric_learning import LMNN, RCA, KernelPCA, from_tags
from pipeline_lib.metrics.annotation import annotation_metrics

MODELS = {
    "RKML": RKML(0.2, 20, 5, n_samples=60, random_state=0),
    "RKML direct": RKML(0.2, 20, 5, vote="direct", random_state=0),
    "RLML": RLML(6, 5),
    "RKMLO": RKMLO(0.2, 20, 5, normalize=True),
    "RKMLH": RKMLH(0.2, 20, 10, n_clusters=8, random_state=0),
    "Euclid": MetricAnnotator(n_neighbors=10),
    "Cosine": MetricAnnotator(n_neighbors=10, distance="cosine", vote="similarity"),
    "RCA": MetricAnnotator(RCA(), n_neighbors=10, vote="similarity"),
    "KernelPCA": MetricAnnotator(KernelPCA(5), n_neighbors=10),
    "LDML by name": MetricAnnotator("ldml", 10, metric_params={"n_pairs": 200}, random_state=0),
    "TP-R": TagProp("rank", 30),
    "TP-D": TagProp("distance", 30, groups=(2, 4)),
    "TP-D plain": TagProp("distance", 30, sigmoid=False),
    "tRel": TagRelevance(15),
    "JEC": JEC(groups=(2, 4), distances=("euclidean", "l1")),
    "2PKNN": TwoPassKNN(4),
    "FastTag": FastTag(alpha=0.01),
    "SVML": LinearSVMAnnotator(random_state=0),
    "SVMK": KernelSVMAnnotator(0.2, random_state=0),
    "KernelRidge": KernelRidgeAnnotator(0.2, 0.1),
    "NystroemRidge": NystroemRidge(0.2, 50, 0.1, random_state=0),
    "Pop": Popularity(),
}


def make_images(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Two to three of eight tags an image (unevenly frequent); features are their noisy sum."""
    rng = np.random.default_rng(seed)
    centres = 2.0 * np.random.default_rng(99).standard_normal((8, 6))
    chance = np.array([0.6, 0.5, 0.4, 0.3, 0.2, 0.2, 0.15, 0.1])
    Y = (rng.random((n, 8)) < chance).astype(np.uint8)
    Y[:, 0] |= Y.sum(axis=1) == 0
    return Y @ centres + 0.5 * rng.standard_normal((n, 6)), Y


@pytest.fixture(scope="module")
def data() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    return *make_images(150, 0), *make_images(60, 1)


def fitted(name: str, X: np.ndarray, Y):  # type: ignore[no-untyped-def]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return clone(MODELS[name]).fit(X, Y)


@pytest.mark.parametrize("name", MODELS)
def test_annotates_better_than_popularity(name: str, data: tuple) -> None:
    X, Y, Xt, Yt = data
    scores = fitted(name, X, Y).predict(Xt)
    assert scores.shape == (60, 8)
    assert np.isfinite(scores).all()
    ap = annotation_metrics(scores, Yt, 2).means["ap_at_2"]
    popular = annotation_metrics(Popularity().fit(X, Y).predict(Xt), Yt, 2).means["ap_at_2"]
    assert ap >= popular + (0.0 if name == "Pop" else 0.05)


@pytest.mark.parametrize("name", MODELS)
def test_deterministic_sparse_tags_and_restored_from_plain_arrays(name: str, data: tuple) -> None:
    X, Y, Xt, _ = data
    model = fitted(name, X, Y)
    scores = model.predict(Xt)
    np.testing.assert_array_equal(fitted(name, X, sparse.csr_array(Y)).predict(Xt), scores)
    state = model.get_state()
    assert all(isinstance(v, np.ndarray) and v.dtype != object for v in state.values())
    restored = type(model).from_state(model.get_params(deep=False), state)
    np.testing.assert_array_equal(restored.predict(Xt), scores)


@pytest.mark.parametrize("name", MODELS)
def test_refuses_bad_input(name: str, data: tuple) -> None:
    X, Y, Xt, _ = data
    bad = X.copy()
    bad[3, 2] = np.nan
    with pytest.raises(InputError, match="NaN or infinite"):
        clone(MODELS[name]).fit(bad, Y)
    with pytest.raises(InputError, match="rows"):
        clone(MODELS[name]).fit(X, Y[:-1])
    with pytest.raises(InputError, match="other than 0 and 1"):
        clone(MODELS[name]).fit(X, 2 * Y)
    with pytest.raises(InputError, match="no tag"):
        clone(MODELS[name]).fit(X, np.zeros_like(Y))
    with pytest.raises(InputError, match="not fitted"):
        clone(MODELS[name]).predict(Xt)
    model = fitted(name, X, Y)
    with pytest.raises(InputError, match="columns"):
        model.predict(Xt[:, :4])
    with pytest.raises(InputError, match="NaN or infinite"):
        model.predict(bad)


@pytest.mark.parametrize("name", MODELS)
def test_untagged_images_duplicates_and_absent_tags(name: str, data: tuple) -> None:
    X, Y, Xt, _ = data
    X = np.vstack([X[:40], X[:40], np.ones((1, 6))])
    Y = np.vstack([Y[:40], Y[:40], np.zeros((1, 8), np.uint8)])
    Y = np.hstack([Y, np.zeros((81, 1), np.uint8), np.ones((81, 1), np.uint8)])
    scores = fitted(name, X, Y).predict(Xt)
    assert scores.shape == (60, 10)
    assert np.isfinite(scores).all()


def test_state_names_what_is_missing(data: tuple) -> None:
    X, Y, *_ = data
    model = fitted("tRel", X, Y)
    state = model.get_state()
    del state["training_"]
    with pytest.raises(InputError, match="training_"):
        TagRelevance.from_state(model.get_params(), state)


def test_tags_are_checked() -> None:
    np.testing.assert_array_equal(as_tags([[True, False]]).toarray(), [[1.0, 0.0]])
    with pytest.raises(InputError, match="shape"):
        as_tags([0, 1])
    with pytest.raises(InputError, match="read as numbers"):
        as_tags([["sky", "sea"]])


def test_popularity_is_frequency(data: tuple) -> None:
    X, Y, Xt, _ = data
    np.testing.assert_allclose(Popularity().fit(X, Y).predict(Xt)[5], Y.mean(axis=0))


def test_tag_relevance_is_votes_minus_prior(data: tuple) -> None:
    X, Y, Xt, _ = data
    scores = TagRelevance(15).fit(X, Y).predict(Xt)
    for i in range(5):
        nearest = np.argsort(((X - Xt[i]) ** 2).sum(axis=1))[:15]
        np.testing.assert_allclose(scores[i], Y[nearest].sum(axis=0) - 15 * Y.mean(axis=0))


def test_metric_annotator_passes_constraints_and_leaves_its_metric_alone(data: tuple) -> None:
    X, Y, Xt, _ = data
    metric = LMNN(max_iter=5)
    labels = Y[:, 1].astype(int)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = MetricAnnotator(metric, n_neighbors=5).fit(X, Y, constraints=labels)
        expected = LMNN(max_iter=5).fit(X, labels)
    assert not hasattr(metric, "components_")
    np.testing.assert_array_equal(model.metric_.transform(Xt), expected.transform(Xt))


@pytest.mark.parametrize("way", ["clusters", "hierarchical", "joint"])
def test_metric_annotator_makes_constraints_from_tags(way: str, data: tuple) -> None:
    X, Y, Xt, _ = data
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        named = MetricAnnotator("itml", constraints=way, n_clusters=4, random_state=0).fit(X, Y)
        known = from_tags(Y, way, X=X, n_clusters=4, random_state=0)
        given = MetricAnnotator("itml", random_state=0).fit(X, Y, constraints=known)
    np.testing.assert_array_equal(named.predict(Xt), given.predict(Xt))


def test_metric_annotator_refuses_unknown_ways(data: tuple) -> None:
    X, Y, _, _ = data
    with pytest.raises(InputError, match="unknown method 'topics'"):
        MetricAnnotator("lmnn", constraints="topics").fit(X, Y)


def test_documented_example() -> None:
    assert doctest.testmod(metric_annotator).failed == 0


def test_jec_by_hand() -> None:
    X = np.array([[0.0], [1.0], [2.0], [9.0]])
    #     sky sea boat car  sun
    Y = [[1, 1, 0, 0, 0], [1, 0, 1, 0, 0], [0, 1, 1, 1, 0], [1, 0, 0, 0, 1]]
    scores = JEC(n_neighbors=3).fit(X, Y).predict([[-0.1]])[0]
    # sky and sea come from the nearest image (sky is more frequent); boat met both transferred tags
    # twice and is twice among the followers, car once; sun is nowhere near.
    assert list(np.argsort(-scores)) == [0, 1, 2, 3, 4]


def test_joint_distance_scales_every_group() -> None:
    rng = np.random.default_rng(0)
    X, Q = rng.random((20, 5)), rng.random((4, 5))
    joint = JointDistance(X, ("euclidean", "l1"), (2, 3))
    first = cdist(X[:, :2], X[:, :2]).max()
    second = cdist(X[:, 2:], X[:, 2:], "cityblock").max()
    np.testing.assert_allclose(joint.scales, [first, second])
    plain = 0.5 * (
        cdist(Q[:, :2], X[:, :2]) / first + cdist(Q[:, 2:], X[:, 2:], "cityblock") / second
    )
    found = joint.neighbors(Q, 6)
    np.testing.assert_array_equal(found.indices, np.argsort(plain, axis=1)[:, :6])
    np.testing.assert_allclose(found.joint, np.sort(plain, axis=1)[:, :6])
    own = joint.neighbors(None, 19)
    assert not (own.indices == np.arange(20)[:, None]).any()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("manhattan",), "distance"),
        (("l1", (2, 2)), "widths"),
        ((("l1", "l1"), (1, 1, 3)), "2 distances for 3"),
    ],
)
def test_joint_distance_refuses(arguments: tuple, message: str) -> None:
    with pytest.raises(InputError, match=message):
        JointDistance(np.ones((3, 5)), *arguments)


def test_two_passes_of_2pknn(data: tuple) -> None:
    X, Y, Xt, _ = data
    model = TwoPassKNN(3, bandwidth=4.0).fit(X, Y)
    D = cdist(Xt, X) / cdist(X, X).max()
    for i in range(5):
        chosen = set()
        for tag in range(8):
            members = np.flatnonzero(Y[:, tag])
            chosen |= set(members[np.argsort(D[i, members])[:3]])
        expected = sum(np.exp(-4.0 * D[i, j]) * Y[j] for j in chosen)
        np.testing.assert_allclose(model.predict(Xt)[i], expected)


def test_fasttag_reaches_a_stationary_point_of_its_objective(data: tuple) -> None:
    X, Y, *_ = data
    model = FastTag(alpha=0.05, gamma=0.7, blankout=0.4, tol=1e-12, max_iter=5000).fit(X, Y)
    assert np.all(np.diff(model.history_["objective"]) <= 1e-12)
    A, n = _with_constant(X), len(X)

    def objective(W: np.ndarray, B: np.ndarray) -> float:
        S = Y.T.astype(float) @ Y / n
        q = 0.6
        E = q * q * S + np.diag((q - q * q) * np.diag(S))
        completed = np.trace(S) - 2 * q * np.vdot(B, S) + np.vdot(B @ E, B)
        gap = Y @ B.T - A @ W.T
        return float((gap**2).sum() / n + 0.05 * (W**2).sum() + 0.7 * completed)

    W, B = model.coef_.T, model.completion_
    assert objective(W, B) == pytest.approx(model.objective_)
    rng = np.random.default_rng(0)
    for _ in range(10):
        dW, dB = rng.standard_normal(W.shape), rng.standard_normal(B.shape)
        slope = (
            objective(W + 1e-5 * dW, B + 1e-5 * dB) - objective(W - 1e-5 * dW, B - 1e-5 * dB)
        ) / 2e-5
        assert abs(slope) < 1e-4


def test_blankout_expectation_is_what_blanking_out_gives() -> None:
    rng = np.random.default_rng(0)
    y = np.array([1.0, 1.0, 0.0, 1.0])
    B = rng.standard_normal((4, 4))
    keep = rng.random((200_000, 4)) < 0.7
    sampled = ((y - (keep * y) @ B.T) ** 2).sum(axis=1).mean()
    S = np.outer(y, y)
    E = 0.49 * S + np.diag((0.7 - 0.49) * np.diag(S))
    exact = np.trace(S) - 2 * 0.7 * np.vdot(B, S) + np.vdot(B @ E, B)
    assert sampled == pytest.approx(exact, rel=0.01)


@pytest.mark.parametrize("kind", [_RankWeights, _DistanceWeights])
@pytest.mark.parametrize("sigmoid", [False, True])
def test_tagprop_gradient(kind: type, sigmoid: bool, data: tuple) -> None:
    X, Y, *_ = data
    neighbors = JointDistance(X, "euclidean", (2, 4)).neighbors(None, 12)
    likelihood = _Likelihood(neighbors.indices, as_tags(Y))
    mixing = kind(neighbors.base)
    point = mixing.start() * np.linspace(0.7, 1.2, len(mixing.start()))
    if sigmoid:
        likelihood.fit_sigmoids(mixing.weights(point))
    captured = {}

    def capture(theta: np.ndarray) -> float:
        return likelihood.value(mixing.weights(theta))

    pi = mixing.weights(point)
    _, slope = likelihood.value_and_gradient(pi)
    direction = np.random.default_rng(0).standard_normal(len(point))
    step = 1e-6
    plus, minus = mixing.weights(point + step * direction), mixing.weights(point - step * direction)
    captured["chain"] = float(np.vdot(slope, (plus - minus) / (2 * step)))
    numeric = (capture(point + step * direction) - capture(point - step * direction)) / (2 * step)
    assert captured["chain"] == pytest.approx(numeric, rel=1e-4, abs=1e-9)


def test_tagprop_likelihood_is_the_plain_sum(data: tuple) -> None:
    X, Y, *_ = data
    neighbors = JointDistance(X, "euclidean").neighbors(None, 12)
    likelihood = _Likelihood(neighbors.indices, as_tags(Y))
    pi = np.random.default_rng(0).dirichlet(np.ones(12), size=150)
    votes = np.einsum("ik,ikw->iw", pi, Y[neighbors.indices].astype(float))
    cost = np.where(Y > 0, 1 / Y.sum(), 1 / (Y.size - Y.sum()))
    p = 1e-5 + (1 - 2e-5) * votes
    assert likelihood.value(pi) == pytest.approx(-(cost * np.log(np.where(Y > 0, p, 1 - p))).sum())
    likelihood.slopes, likelihood.offsets = np.linspace(1, 3, 8), np.linspace(-2, 0, 8)
    score = likelihood.slopes * votes + likelihood.offsets
    expected = (cost * np.log1p(np.exp(np.where(Y > 0, -score, score)))).sum()
    assert likelihood.value(pi) == pytest.approx(expected)


def test_tagprop_sigmoids_are_optimal(data: tuple) -> None:
    X, Y, *_ = data
    neighbors = JointDistance(X, "euclidean").neighbors(None, 12)
    likelihood = _Likelihood(neighbors.indices, as_tags(Y))
    pi = np.full((150, 12), 1 / 12)
    likelihood.fit_sigmoids(pi)
    best = likelihood.value(pi)
    a, b = likelihood.slopes, likelihood.offsets
    rng = np.random.default_rng(0)
    for _ in range(20):
        likelihood.slopes = a + 0.1 * rng.standard_normal(8)
        likelihood.offsets = b + 0.1 * rng.standard_normal(8)
        assert likelihood.value(pi) > best


def test_tagprop_weights(data: tuple) -> None:
    X, Y, Xt, Yt = data
    rank = TagProp("rank", 20, sigmoid=False).fit(X, Y)
    assert rank.weights_.min() >= 0
    assert rank.weights_.sum() == pytest.approx(1.0)
    uniform = JointDistance(X, "euclidean").neighbors(None, 20)
    likelihood = _Likelihood(uniform.indices, as_tags(Y))
    assert rank.objective_ < likelihood.value(np.full((150, 20), 0.05))
    for weights in ("rank", "distance"):
        model = TagProp(weights, 20).fit(X, Y)
        # The first value is the likelihood without sigmoids; from then on rounds only improve.
        assert np.all(np.diff(model.history_["objective"][1:]) <= 1e-12)
        voting = MetricAnnotator(n_neighbors=20).fit(X, Y).predict(Xt)
        ours = annotation_metrics(model.predict(Xt), Yt, 2).means["ap_at_2"]
        assert ours >= annotation_metrics(voting, Yt, 2).means["ap_at_2"] - 0.01


def test_tagprop_learns_which_features_matter() -> None:
    rng = np.random.default_rng(3)
    X, Y = make_images(200, 5)
    noisy = np.hstack([X, 3.0 * rng.standard_normal((200, 6))])
    model = TagProp("distance", 40, groups=(6, 6)).fit(noisy, Y)
    assert model.weights_[0] > 3 * model.weights_[1]


def test_kernel_ridge_against_scikit_learn(data: tuple) -> None:
    X, Y, Xt, _ = data
    ours = KernelRidgeAnnotator(0.2, 0.5).fit(X, Y).predict(Xt)
    theirs = KernelRidge(alpha=0.5, kernel="rbf", gamma=0.2).fit(X, Y - Y.mean(axis=0)).predict(Xt)
    np.testing.assert_allclose(ours, theirs + Y.mean(axis=0), atol=1e-8)


def test_every_row_a_landmark_makes_nystroem_ridge_exact(data: tuple) -> None:
    X, Y, Xt, _ = data
    exact = KernelRidgeAnnotator(0.2, 0.5).fit(X, Y).predict(Xt)
    sampled = NystroemRidge(0.2, 150, 0.5).fit(X, Y).predict(Xt)
    np.testing.assert_allclose(sampled, exact, atol=1e-5)


@pytest.mark.parametrize("name", ["SVML", "SVMK"])
def test_svm_scores_are_probabilities(name: str, data: tuple) -> None:
    X, Y, Xt, Yt = data
    p = fitted(name, X, Y).predict(Xt)
    assert p.min() >= 0 and p.max() <= 1
    # Calibrated: the mean probability of a tag is near its frequency.
    np.testing.assert_allclose(p.mean(axis=0), Yt.mean(axis=0), atol=0.15)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (TagProp("ranks"), "weights"),
        (TagProp(n_neighbors=0), "n_neighbors"),
        (FastTag(alpha=0.0), "alpha"),
        (FastTag(blankout=1.0), "blankout"),
        (TwoPassKNN(bandwidth=-1.0), "bandwidth"),
        (KernelRidgeAnnotator(0.1, 0.0), "alpha"),
        (NystroemRidge(0.1, 0), "n_components"),
        (LinearSVMAnnotator(C=0.0), "C is"),
        (KernelSVMAnnotator(0.1, n_folds=1), "n_folds"),
        (MetricAnnotator(vote="all"), "vote"),
        (MetricAnnotator(distance="l3"), "distance"),
        (MetricAnnotator("lmn"), "lmnn"),
        (MetricAnnotator("rca", metric_params={"C": 1}), "no parameter 'C'"),
        (JEC(distances="chi2"), "chi2"),
    ],
)
def test_refuses_parameters(model, message: str, data: tuple) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(InputError, match=message):
        model.fit(data[0], data[1])
