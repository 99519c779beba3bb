"""What every registered clustering method must do, whatever it computes."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from pipeline_lib import registry
from pipeline_lib.clustering.labels import RepresentationClustering
from pipeline_lib.errors import InputError
from pipeline_lib.metrics.clustering import clustering_accuracy

Array = NDArray[np.float64]
SPECS = [
    pytest.param(spec, id=spec.name)
    for spec in registry.methods()
    if spec.kind == "clustering" and spec.skip() is None
]
pytestmark = pytest.mark.parametrize("spec", SPECS)


@pytest.fixture(autouse=True)
def _short_runs_may_stop_early() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        yield


def clusterer(spec: registry.MethodSpec, n_clusters: int, **more: Any) -> RepresentationClustering:
    """The method at the first value of each parameter of its test grid, with k-means behind it."""
    cls = spec.load()
    if issubclass(cls, RepresentationClustering):
        representation = None
    else:
        params = {name: values[0] for name, values in spec.test_grid.items()}
        if "random_state" in spec.parameters():
            params["random_state"] = 0
        if "n_components" in spec.parameters():
            params["n_components"] = n_clusters
        representation = cls(**{**spec.defaults, **params, **more})
    return RepresentationClustering(representation, n_clusters, n_init=10, random_state=0)


def groups(seed: int = 0, *, spread: float = 0.05) -> tuple[Array, NDArray[np.int64]]:
    """Three groups of 20 unit rows around orthogonal directions."""
    rng = np.random.default_rng(seed)
    y = np.arange(60) % 3
    X = np.eye(6)[y] + spread * rng.standard_normal((60, 6))
    return X / np.linalg.norm(X, axis=1, keepdims=True), y


def test_groups_far_apart_are_found(spec: registry.MethodSpec) -> None:
    X, y = groups()
    labels = clusterer(spec, 3).fit_predict(X)
    assert clustering_accuracy(y, labels) == 1.0


def test_labels_are_valid_and_come_with_their_embedding(spec: registry.MethodSpec) -> None:
    X, _ = groups(1, spread=0.4)
    model = clusterer(spec, 5).fit(X)
    assert model.labels_.shape == (60,) and model.labels_.dtype == np.int64
    assert set(model.labels_) <= set(range(5))
    assert len(model.embedding_) == 60 and np.isfinite(model.embedding_).all()


def test_equal_seeds_give_equal_labels_and_data_are_left_alone(spec: registry.MethodSpec) -> None:
    X, _ = groups(2, spread=0.4)
    kept = X.copy()
    first, second = (clusterer(spec, 4).fit(X) for _ in range(2))
    np.testing.assert_array_equal(first.labels_, second.labels_)
    np.testing.assert_array_equal(first.embedding_, second.embedding_)
    np.testing.assert_array_equal(X, kept)


def test_embedding_moves_with_its_rows(spec: registry.MethodSpec) -> None:
    X, _ = groups(3, spread=0.2)
    moved = np.random.default_rng(4).permutation(60)
    one, other = clusterer(spec, 3).fit(X).embedding_, clusterer(spec, 3).fit(X[moved]).embedding_
    # Eigenvectors have no sign of their own: their inner products have.
    np.testing.assert_allclose(other @ other.T, (one @ one.T)[np.ix_(moved, moved)], atol=1e-5)


def test_duplicates(spec: registry.MethodSpec) -> None:
    X = np.repeat(groups(5)[0][:30], 2, axis=0)
    model = clusterer(spec, 3).fit(X)
    assert np.isfinite(model.embedding_).all()
    assert clustering_accuracy(np.repeat(np.arange(30) % 3, 2), model.labels_) == 1.0


def test_rows_that_all_coincide(spec: registry.MethodSpec) -> None:
    model = clusterer(spec, 3).fit(np.ones((30, 4)))
    assert np.isfinite(model.embedding_).all()
    assert set(model.labels_) <= {0, 1, 2}


def test_one_cluster_and_as_many_as_rows(spec: registry.MethodSpec) -> None:
    X, _ = groups(6, spread=0.4)
    assert set(clusterer(spec, 1).fit_predict(X)) == {0}
    if spec.name in ("PCA", "KMeans"):  # a representation may put rows on one point
        assert len(set(clusterer(spec, 60).fit_predict(X))) == 60


def test_more_clusters_than_rows_are_refused(spec: registry.MethodSpec) -> None:
    X, _ = groups(7)
    with pytest.raises(InputError, match="61"):
        clusterer(spec, 61).fit(X)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_refuses_what_is_not_finite(spec: registry.MethodSpec, bad: float) -> None:
    X, _ = groups(8)
    X[3, 1] = bad
    with pytest.raises(InputError, match="NaN or infinity"):
        clusterer(spec, 3).fit(X)


@pytest.mark.parametrize("shape", [(0, 4), (5, 0), (5,)])
def test_refuses_what_is_no_table(spec: registry.MethodSpec, shape: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match="shape"):
        clusterer(spec, 1).fit(np.zeros(shape))


def test_too_few_iterations_are_said(spec: registry.MethodSpec) -> None:
    if "max_iter" not in spec.parameters():
        pytest.skip("not iterative")
    X, _ = groups(9, spread=0.4)
    with pytest.warns(ConvergenceWarning):
        clusterer(spec, 3, max_iter=1).fit(X)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        model = clusterer(spec, 3, max_iter=2_000, tol=1e-4).fit(X).representation_
    assert model is not None and model.converged_
    assert model.objective_ == model.history_["objective"][-1]
    assert (np.diff(model.history_["objective"]) <= 1e-9).all()
