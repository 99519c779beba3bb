"""Projection onto the simplex: known values, optimality, ragged and masked rows."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline_lib.errors import InputError
from pipeline_lib.graphs.simplex import project_ragged, project_simplex


def test_known_values():
    V = [
        [3.5067682350327454, -0.22258438637503888, -1.3771298952686433, 0.2885141761216499],
        [-0.1078040509440859, 1.023072839835238, -0.8417140050977424, 0.8502974706638178],
        [1.0640041725835971, 0.5557656801603204, -0.3530665177871507, -1.0120509678734728],
        [0.25, 0.25, 0.25, 0.25],
        [2.0, 2.0, 2.0, 2.0],
    ]
    expected = [
        [1.0, 0.0, 0.0, 0.0],
        [0.0, 0.5863876845857101, 0.0, 0.4136123154142899],
        [0.7541192462116384, 0.2458807537883616, 0.0, 0.0],
        [0.25] * 4,
        [0.25] * 4,
    ]
    np.testing.assert_allclose(project_simplex(V), expected, atol=1e-14)
    np.testing.assert_allclose(project_simplex(V[2]), expected[2], atol=1e-14)


def test_projection_meets_the_optimality_conditions():
    rng = np.random.default_rng(0)
    V = rng.standard_normal((300, 9)) * rng.choice([1e-3, 1.0, 50.0], size=(300, 1))
    P = project_simplex(V)
    assert (P >= 0).all()
    np.testing.assert_allclose(P.sum(axis=1), 1.0, atol=1e-14)
    # v - p equals the threshold where p > 0 and is below it elsewhere.
    threshold = np.where(P > 0, V - P, -np.inf).max(axis=1, keepdims=True)
    scale = np.abs(V).max()
    assert np.abs(np.where(P > 0, V - P - threshold, 0.0)).max() <= 1e-14 * scale
    assert (np.where(P > 0, -np.inf, V) <= threshold + 1e-14 * scale).all()


def test_a_row_on_the_simplex_is_kept():
    P = np.random.default_rng(1).dirichlet(np.ones(6), size=50)
    np.testing.assert_allclose(project_simplex(P), P, atol=1e-15)


@pytest.mark.parametrize("scale", [1e-300, 1.0, 1e300, 1.7e308])
def test_extreme_values(scale):
    P = project_simplex(np.array([[1.0, -1.0, 1.0], [0.0, -1.0, 1.0]]) * scale)
    np.testing.assert_allclose(P.sum(axis=1), 1.0)
    if scale > 1:
        np.testing.assert_allclose(P, [[0.5, 0.0, 0.5], [0.0, 0.0, 1.0]])


def test_mask_equals_leaving_out():
    rng = np.random.default_rng(2)
    V = rng.standard_normal((40, 7)) * 0.3
    mask = rng.random((40, 7)) < 0.6
    mask[:, 0] |= ~mask.any(axis=1)
    P = project_simplex(V, mask)
    assert not P[~mask].any()
    for v, m, p in zip(V, mask, P):
        np.testing.assert_allclose(p[m], project_simplex(v[m]), atol=1e-15)


@pytest.mark.parametrize("guess", ["none", "exact", "below", "above", "wild"])
def test_ragged_equals_dense(guess):
    rng = np.random.default_rng(3)
    counts = rng.integers(1, 30, size=500)
    indptr = np.concatenate([[0], np.cumsum(counts)])
    values = rng.standard_normal(indptr[-1]) * np.repeat(rng.choice([0.01, 1, 30], 500), counts)
    values[rng.random(len(values)) < 0.2] = 0.25  # ties
    weights, eta = project_ragged(values, indptr)
    start = {
        "none": None,
        "exact": eta,
        "below": eta - 0.3,
        "above": eta + 0.3,
        "wild": rng.standard_normal(500) * 1e6,
    }[guess]
    weights, eta = project_ragged(values, indptr, start)
    for r in range(500):
        part = slice(indptr[r], indptr[r + 1])
        np.testing.assert_allclose(weights[part], project_simplex(values[part]), atol=1e-13)
        np.testing.assert_allclose(np.maximum(values[part] - eta[r], 0), weights[part], atol=1e-13)


def test_no_ragged_rows():
    weights, eta = project_ragged(np.zeros(0), np.zeros(1, dtype=int))
    assert len(weights) == len(eta) == 0


@pytest.mark.parametrize(
    ("V", "mask"),
    [
        ([[np.nan, 1.0]], None),
        ([[np.inf, 1.0]], None),
        (np.zeros((2, 0)), None),
        (np.zeros((1, 1, 1)), None),
        ([[1.0, 2.0]], [[False, False]]),
        ([[1.0, 2.0]], [[True]]),
    ],
)
def test_refuses(V, mask):
    with pytest.raises(InputError):
        project_simplex(V, mask)
