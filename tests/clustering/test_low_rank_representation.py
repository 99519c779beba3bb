"""Low-rank representation: closed form on clean rows, optimality on corrupted ones, its graph."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from pipeline_lib.clustering.low_rank_representation import (
    low_rank_graph,
    low_rank_representation,
    shrink_rows,
)
from pipeline_lib.errors import InputError

Array = NDArray[np.float64]


def two_subspaces(seed: int = 0, outliers: int = 0) -> Array:
    rng = np.random.default_rng(seed)
    parts = [rng.standard_normal((15, 2)) @ rng.standard_normal((2, 12)) for _ in range(2)]
    X = np.vstack(parts)
    X[:outliers] += 2.0 * rng.standard_normal((outliers, 12))
    return X


def cost(R: Array, X: Array, lam: float) -> float:
    remainders = np.linalg.norm(X - R @ X, axis=1).sum()
    return float(np.linalg.svd(R, compute_uv=False).sum() + lam * remainders)


def test_clean_rows_have_the_closed_form() -> None:
    X = two_subspaces()
    result = low_rank_representation(X, 100.0, tol=1e-9)
    U = np.linalg.svd(X, full_matrices=False)[0][:, :4]
    np.testing.assert_allclose(result.left @ result.right.T, U @ U.T, atol=1e-5)
    assert result.objective == pytest.approx(4.0, abs=1e-5)


@pytest.mark.parametrize("lam", [0.05, 0.15, 0.5])
def test_no_other_representation_is_cheaper(lam: float) -> None:
    X = two_subspaces(1, outliers=4)
    result = low_rank_representation(X, lam, tol=1e-7, max_iter=20_000)
    R = result.left @ result.right.T
    assert result.converged and result.gap <= 1e-7
    least = cost(R, X, lam)
    assert result.objective == pytest.approx(least, rel=1e-9)
    rng = np.random.default_rng(0)
    U = result.right
    for size in (1e-3, 1e-2, 1e-1):
        for _ in range(60):
            inside = size * rng.standard_normal((len(X), U.shape[1])) @ U.T
            # The problem is convex: a better point anywhere would show next to R as well.
            assert cost(R + inside, X, lam) >= least * (1 - 1e-6)
    assert cost(np.zeros_like(R), X, lam) >= least and cost(U @ U.T, X, lam) >= least


def test_gap_shrinks_and_bounds_what_is_left() -> None:
    X = two_subspaces(2, outliers=5)
    exact = low_rank_representation(X, 0.15, tol=1e-8, max_iter=20_000)
    rough = low_rank_representation(X, 0.15, tol=1e-2)
    assert rough.n_iter < exact.n_iter
    assert rough.objective - exact.objective <= rough.gap * rough.objective
    objectives = exact.history["objective"]
    assert (np.diff(objectives) <= 0).all()
    assert not low_rank_representation(X, 0.15, tol=1e-12, max_iter=5).converged


def test_graph_keeps_independent_subspaces_apart() -> None:
    X = two_subspaces(3)
    graph = low_rank_graph(low_rank_representation(X, 100.0, tol=1e-9)).toarray()
    np.testing.assert_array_equal(graph, graph.T)
    assert (graph >= 0).all() and not graph.diagonal().any()
    assert graph[:15, 15:].max() <= 1e-4 * graph.max()


def test_graph_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    result = low_rank_representation(two_subspaces(4, outliers=3), 0.5)
    R = result.left @ result.right.T
    expected = np.maximum(R + R.T, 0.0)
    np.fill_diagonal(expected, 0.0)
    module = "pipeline_lib.clustering.low_rank_representation"
    monkeypatch.setattr(f"{module}._BLOCK_ENTRIES", 100)
    np.testing.assert_allclose(low_rank_graph(result).toarray(), expected, atol=1e-14)


def test_shrunk_rows() -> None:
    rows = np.array([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0]])
    np.testing.assert_allclose(shrink_rows(rows, 1.0), [[2.4, 3.2], [0.0, 0.0], [0.0, 0.0]])


def test_degenerate_and_unusable_input() -> None:
    nothing = low_rank_representation(np.zeros((4, 3)))
    assert nothing.objective == 0.0 and not low_rank_graph(nothing).nnz
    constant = low_rank_representation(np.ones((5, 3)), 2.0, tol=1e-8)
    R = constant.left @ constant.right.T
    np.testing.assert_allclose(R, np.full((5, 5), 0.2), atol=1e-6)
    with pytest.raises(InputError, match="lam"):
        low_rank_representation(np.ones((5, 3)), 0.0)
    with pytest.raises(InputError, match="NaN"):
        low_rank_representation(np.full((5, 3), np.nan))
