"""Proximal operators against the optimality conditions that define them."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline_lib.optimize.proximal import prox_frobenius, prox_l1, prox_trace_norm
from pipeline_lib.optimize.singular_values import shrink_singular_values


def random_matrix(n: int, m: int, rank: int | None, seed: int) -> np.ndarray:
    random = np.random.default_rng(seed)
    if rank is None:
        return random.standard_normal((n, m))
    return random.standard_normal((n, rank)) @ random.standard_normal((rank, m))


@pytest.mark.parametrize("threshold", [0.0, 0.3, 1.0, 50.0])
def test_l1_subgradient(threshold: float) -> None:
    V = random_matrix(13, 7, None, 0)
    X = prox_l1(V, threshold)
    dual = V - X
    assert np.all(np.abs(dual) <= threshold + 1e-12)
    assert np.allclose(dual[X != 0], threshold * np.sign(X[X != 0]))


@pytest.mark.parametrize("threshold", [0.0, 0.3, 5.0, 50.0])
def test_frobenius_subgradient(threshold: float) -> None:
    V = random_matrix(13, 7, None, 1)
    X = prox_frobenius(V, threshold)
    dual = V - X
    assert np.linalg.norm(dual) <= threshold + 1e-12
    assert np.vdot(dual, X) == pytest.approx(threshold * np.linalg.norm(X), abs=1e-9)


@pytest.mark.parametrize("shape", [(40, 9), (9, 40), (12, 12), (1, 6), (6, 1)])
@pytest.mark.parametrize("rank", [None, 1])
@pytest.mark.parametrize("threshold", [0.0, 1e-9, 0.7, 3.0, 1e3])
def test_trace_norm_subgradient(shape: tuple[int, int], rank: int | None, threshold: float) -> None:
    V = random_matrix(*shape, rank, 2)
    X = prox_trace_norm(V, threshold)
    dual = V - X
    # V - X lies in threshold times the subdifferential of the trace norm at X.
    assert np.linalg.norm(dual, 2) <= threshold + 1e-9
    assert np.vdot(dual, X) == pytest.approx(threshold * np.linalg.norm(X, "nuc"), abs=1e-8)


@pytest.mark.parametrize("shape", [(60, 20), (20, 60)])
@pytest.mark.parametrize("threshold", [1e-8, 0.5, 6.0])
def test_shrunk_singular_values_are_those_of_the_decomposition(
    shape: tuple[int, int], threshold: float
) -> None:
    V = random_matrix(*shape, None, 3)
    U, s, Wt = np.linalg.svd(V, full_matrices=False)
    shrunk = shrink_singular_values(V, threshold)
    expected = np.maximum(s - threshold, 0.0)
    assert np.allclose(shrunk.singular_values, expected[expected > 0])
    assert np.allclose(shrunk.left @ shrunk.right.T, (U * expected) @ Wt, atol=1e-9)
    assert np.allclose(shrunk.right.T @ shrunk.right, np.eye(shrunk.right.shape[1]))
    assert shrunk.trace_norm == pytest.approx(expected.sum())
    assert shrunk.residual == pytest.approx(np.linalg.norm(s - expected), abs=1e-7)


@pytest.mark.parametrize("shape", [(5, 3), (3, 5)])
def test_everything_below_the_threshold_leaves_rank_zero(shape: tuple[int, int]) -> None:
    for V in (np.zeros(shape), np.ones(shape)):
        shrunk = shrink_singular_values(V, 10.0)
        assert shrunk.left.shape == (shape[0], 0)
        assert shrunk.right.shape == (shape[1], 0)
        assert shrunk.trace_norm == 0.0
