"""Losses of an entry: their derivatives, continuations and proximal operators."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from pipeline_lib.completion.losses import LOSSES, Likelihood, SteepLoss, WeightedLoss

POINTS = np.concatenate([np.linspace(-3, 3, 301), [1e-3, 1 - 1e-3, 0.0, 1.0, -1.0]])


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("side", ["observed", "unobserved"])
@pytest.mark.parametrize("eps", [0.2, 1e-3])
def test_slope_is_the_derivative_and_rises(name: str, side: str, eps: float) -> None:
    function = getattr(LOSSES[name](eps), side)
    q = np.sort(POINTS)
    value, slope = function(q)
    h = 1e-7
    numeric = (function(q + h)[0] - function(q - h)[0]) / (2 * h)
    assert np.allclose(slope, numeric, rtol=1e-3, atol=1e-3 + h / eps**2)
    assert np.all(np.diff(slope) >= -1e-12), "not convex"
    assert np.isfinite(value).all()


def test_likelihood_is_the_logarithm_inside_and_linear_outside() -> None:
    loss = Likelihood(1e-2)
    inside = np.linspace(0.01, 0.99, 50)
    assert np.allclose(loss.observed(inside)[0], -np.log(inside))
    assert np.allclose(loss.unobserved(inside)[0], -np.log1p(-inside))
    below = np.array([0.01, 0.0, -1.0, -2.0])
    assert np.allclose(loss.observed(below)[0], -np.log(0.01) + (0.01 - below) / 0.01)
    assert np.allclose(loss.unobserved(1.0 - below)[0], loss.observed(below)[0])
    # Each side is continued on its own side only.
    assert np.allclose(loss.observed(np.array([5.0]))[0], -np.log(5.0))
    assert np.allclose(loss.unobserved(np.array([-4.0]))[0], -np.log(5.0))


@pytest.mark.parametrize("name", [n for n in LOSSES if issubclass(LOSSES[n], SteepLoss)])
@pytest.mark.parametrize("weight", [1e-3, 0.3, 20.0])
@pytest.mark.parametrize("eps", [0.2, 1e-3])
def test_proximal_operators_meet_their_optimality_condition(
    name: str, weight: float, eps: float
) -> None:
    loss = LOSSES[name](eps)
    assert isinstance(loss, SteepLoss)
    v = np.linspace(-4, 4, 801)
    for side in ("observed", "unobserved"):
        q = getattr(loss, f"prox_{side}")(v.copy(), np.full(v.shape, weight))
        slope = getattr(loss, side)(q)[1]
        assert np.allclose(weight * slope, v - q, rtol=1e-6, atol=1e-6 * weight / eps)


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("m", [1, 2, 7, 8, 29])
def test_blocks_add_up_to_the_entries(name: str, m: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline_lib.completion.losses._BLOCK_ENTRIES", 3 * m)
    random = np.random.default_rng(m)
    D = (random.random((11, m)) < 0.3).astype(float)
    Q = random.normal(0.3, 0.8, (11, m))
    kept = Q.copy()
    entry = LOSSES[name](1e-2)
    loss = WeightedLoss(sparse.csr_array(D), entry)
    gradient = np.empty_like(Q)
    total = sum(loss(a, b, Q[a:b], gradient[a:b]) for a, b in loss.blocks)
    count = D.sum(axis=1, keepdims=True)
    weight = np.where(D > 0, 1 / np.maximum(count, 1), 1 / np.maximum(m - count, 1))
    (value, slope), (value0, slope0) = entry.observed(Q), entry.unobserved(Q)
    assert len(loss.blocks) == 4
    assert np.array_equal(Q, kept)
    assert sum(loss.value(a, b, kept[a:b]) for a, b in loss.blocks) == pytest.approx(total)
    assert total == pytest.approx((weight * np.where(D > 0, value, value0)).sum())
    assert np.allclose(gradient, weight * np.where(D > 0, slope, slope0))
