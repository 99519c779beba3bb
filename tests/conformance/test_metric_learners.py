"""Conformance of every metric learner: one interface, better neighbours, determinism, refusals."""

import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.neighbors import KNeighborsClassifier

from pipeline_lib.errors import InputError
from pipeline_lib.metric_learning import (
    DCA,
    ITML,
    LDML,
    LFDA,
    LMNN,
    NCA,
    PRCA,
    RCA,
    Constraints,
    KernelPCA,
    from_labels,
)
from pipeline_lib.metric_learning.base import LinearMetricLearner

LEARNERS = {
    "RCA": RCA(),
    "PRCA": PRCA(),
    "DCA": DCA(),
    "LFDA": LFDA(),
    "LMNN": LMNN(),
    "ITML": ITML(n_pairs=150, random_state=0),
    "LDML": LDML(n_pairs=2000, random_state=0),
    "NCA": NCA(random_state=0),
    "KernelPCA": KernelPCA(2),
}
SUPERVISED = [name for name in LEARNERS if name != "KernelPCA"]
GROUPS_ONLY = ["RCA", "PRCA", "DCA", "LFDA", "NCA"]
PAIRS_TOO = ["LMNN", "ITML", "LDML"]


def noisy_classes(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Four classes at the corners of a square, hidden among five loud coordinates of noise."""
    rng = np.random.default_rng(seed)
    y = rng.integers(4, size=n)
    corners = np.array([[0, 0], [4, 0], [0, 4], [4, 4]])[y]
    return np.hstack([corners + 0.5 * rng.standard_normal((n, 2)), rng.normal(0, 6, (n, 5))]), y


def quiet_noise(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Two classes on one strong coordinate, with many weak coordinates of noise beside it."""
    rng = np.random.default_rng(seed)
    y = rng.integers(2, size=n)
    signal = 1.2 * y[:, None] + 0.3 * rng.standard_normal((n, 1))
    return np.hstack([signal, 0.45 * rng.standard_normal((n, 40))]), y


def fitted(name: str, X: np.ndarray, y: np.ndarray):  # type: ignore[no-untyped-def]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return clone(LEARNERS[name]).fit(X, y)


@pytest.mark.parametrize("name", LEARNERS)
def test_neighbours_are_better_than_euclidean(name: str) -> None:
    make = quiet_noise if name == "KernelPCA" else noisy_classes
    (X, y), (Xt, yt) = make(300, 0), make(300, 1)
    learner = fitted(name, X, y)

    def accuracy(train: np.ndarray, test: np.ndarray) -> float:
        return float(KNeighborsClassifier(5).fit(train, y).score(test, yt))

    euclidean = accuracy(X, Xt)
    assert accuracy(learner.transform(X), learner.transform(Xt)) > euclidean + 0.03


@pytest.mark.parametrize("name", SUPERVISED)
def test_metric_is_positive_semidefinite_and_is_the_distance_of_transform(name: str) -> None:
    X, y = noisy_classes(80, 0)
    learner = fitted(name, X, y)
    assert isinstance(learner, LinearMetricLearner)
    M = learner.metric_
    np.testing.assert_allclose(M, M.T, atol=1e-12)
    eigenvalues = np.linalg.eigvalsh(M)
    assert eigenvalues[0] >= -1e-10 * eigenvalues[-1]
    assert eigenvalues[-1] > 0
    mapped = learner.transform(X)
    difference = X[3] - X[5]
    assert np.sum((mapped[3] - mapped[5]) ** 2) == pytest.approx(difference @ M @ difference)


@pytest.mark.parametrize("name", LEARNERS)
def test_deterministic_and_restored_from_plain_arrays(name: str) -> None:
    X, y = noisy_classes(80, 0)
    learner, again = fitted(name, X, y), fitted(name, X, y)
    np.testing.assert_array_equal(learner.transform(X), again.transform(X))
    state = learner.get_state()
    assert all(isinstance(value, np.ndarray) for value in state.values())
    restored = type(learner).from_state(learner.get_params(), state)
    np.testing.assert_array_equal(restored.transform(X), learner.transform(X))


@pytest.mark.parametrize("name", ["RCA", "PRCA", "LFDA", "LMNN", "ITML", "LDML", "KernelPCA"])
def test_units_do_not_matter(name: str) -> None:
    """Distances on rescaled and shifted rows rank alike, so neighbours are the same."""
    X, y = noisy_classes(80, 2)
    first = fitted(name, X, y).transform(X)
    second = fitted(name, 100.0 * X + 7.0, y).transform(100.0 * X + 7.0)

    def distances(T: np.ndarray) -> np.ndarray:
        D = np.sqrt(((T[:, None] - T[None]) ** 2).sum(axis=2))
        return D / D.mean()

    np.testing.assert_allclose(distances(first), distances(second), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", LEARNERS)
def test_tags_are_accepted(name: str) -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 4))
    Y = (rng.random((60, 7)) < 0.3).astype(np.uint8)
    Y[:, 0] |= Y.sum(axis=1) == 0
    assert np.isfinite(fitted(name, X, Y).transform(X)).all()


@pytest.mark.parametrize("name", PAIRS_TOO)
def test_pairs_are_accepted(name: str) -> None:
    X, y = noisy_classes(60, 0)
    i, j = np.triu_indices(60, k=1)
    same = y[i] == y[j]
    pairs = np.column_stack([i, j])
    known = Constraints(60, similar=pairs[same], dissimilar=pairs[~same])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        learner = clone(LEARNERS[name]).fit(X, constraints=known)
        same_pairs = clone(LEARNERS[name]).fit(X, constraints=(pairs[same], pairs[~same]))
    np.testing.assert_array_equal(learner.components_, same_pairs.components_)
    loud = np.linalg.norm(learner.components_[:, 2:], axis=0).max()
    assert np.linalg.norm(learner.components_[:, :2], axis=0).min() > loud


@pytest.mark.parametrize("name", GROUPS_ONLY)
def test_pairs_are_refused_by_learners_of_groups(name: str) -> None:
    known = Constraints(4, similar=np.array([[0, 1]]), dissimilar=np.array([[2, 3]]))
    with pytest.raises(InputError, match="needs groups"):
        clone(LEARNERS[name]).fit(np.random.default_rng(0).standard_normal((4, 2)), None, known)


@pytest.mark.parametrize("name", SUPERVISED)
def test_one_class_is_a_clear_error(name: str) -> None:
    with pytest.raises(InputError, match="one class"):
        clone(LEARNERS[name]).fit(np.random.default_rng(0).standard_normal((6, 2)), np.ones(6))


@pytest.mark.parametrize("name", LEARNERS)
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_refuses_non_finite_rows(name: str, bad: float) -> None:
    X, y = noisy_classes(20, 0)
    X[3, 1] = bad
    with pytest.raises(InputError, match="NaN or infinite"):
        clone(LEARNERS[name]).fit(X, y)


@pytest.mark.parametrize("name", SUPERVISED)
def test_needs_exactly_one_kind_of_supervision(name: str) -> None:
    X, y = noisy_classes(20, 0)
    with pytest.raises(InputError, match="either Y or constraints"):
        clone(LEARNERS[name]).fit(X)
    with pytest.raises(InputError, match="either Y or constraints"):
        clone(LEARNERS[name]).fit(X, y, constraints=from_labels(y))
    with pytest.raises(InputError, match="20, the rows of X"):
        clone(LEARNERS[name]).fit(X, y[:-1])


@pytest.mark.parametrize("name", LEARNERS)
def test_duplicates_and_constant_columns(name: str) -> None:
    X, y = noisy_classes(30, 0)
    X = np.hstack([np.repeat(X, 2, axis=0), np.ones((60, 1))])
    learner = fitted(name, X, np.repeat(y, 2))
    assert np.isfinite(learner.transform(X)).all()


@pytest.mark.parametrize("name", LEARNERS)
def test_transform_checks_its_input(name: str) -> None:
    X, y = noisy_classes(30, 0)
    with pytest.raises(InputError, match="not fitted"):
        clone(LEARNERS[name]).transform(X)
    with pytest.raises(InputError, match="columns"):
        fitted(name, X, y).transform(X[:, :3])


@pytest.mark.parametrize("name", SUPERVISED)
def test_unknown_rows_are_ignored(name: str) -> None:
    X, y = noisy_classes(60, 0)
    far = np.vstack([X, np.full((5, X.shape[1]), 50.0)])
    learner = fitted(name, far, np.concatenate([y, np.full(5, -1)]))
    assert np.isfinite(learner.transform(far)).all()
