"""Each learner against its definition, written out plainly or checked for optimality."""

import numpy as np
import pytest
from scipy.special import expit
from sklearn.decomposition import KernelPCA as ReferenceKernelPCA

from pipeline_lib.metric_learning import (
    DCA,
    ITML,
    LDML,
    LFDA,
    LMNN,
    PRCA,
    RCA,
    Constraints,
    KernelPCA,
    from_labels,
)
from pipeline_lib.metric_learning import lmnn as lmnn_module
from pipeline_lib.metric_learning.base import pair_scatter, positive_part
from pipeline_lib.metric_learning.constraints import renumber, sample_pairs
from pipeline_lib.metric_learning.lmnn import _LargeMargin, _target_pairs


@pytest.fixture(scope="module")
def classes() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(11)
    y = np.repeat([0, 1, 2], [12, 9, 15])
    return rng.standard_normal((3, 4))[y] * 1.5 + rng.standard_normal((36, 4)), y


def same_span(A: np.ndarray, B: np.ndarray) -> None:
    np.testing.assert_allclose(A.T @ A, B.T @ B, rtol=1e-8, atol=1e-10)


def test_rca_is_the_inverse_of_the_within_covariance(classes: tuple) -> None:
    X, y = classes
    C = sum(
        np.outer(x - X[y == c].mean(axis=0), x - X[y == c].mean(axis=0))
        for x, c in zip(X, y, strict=True)
    ) / len(X)
    np.testing.assert_allclose(RCA(ridge=0.0).fit(X, y).metric_, np.linalg.inv(C), rtol=1e-8)
    leading = RCA(n_components=2, ridge=0.0).fit(X, y)
    w, V = np.linalg.eigh(C)
    same_span(leading.components_, (V[:, :2] / np.sqrt(w[:2])).T)


def test_prca_with_certain_memberships_is_rca(classes: tuple) -> None:
    X, y = classes
    certain = PRCA(ridge=0.0).fit(X, y)
    np.testing.assert_allclose(certain.metric_, RCA(ridge=0.0).fit(X, y).metric_, rtol=1e-8)
    assert certain.converged_


def test_prca_climbs_and_recovers_from_uncertain_memberships(classes: tuple) -> None:
    X, y = classes
    soft = 0.6 * np.eye(3)[y] + 0.4 / 3
    known = Constraints(36, groups=y.astype(np.int64), memberships=soft)
    model = PRCA(ridge=0.0, max_iter=500, tol=1e-8).fit(X, constraints=known)
    assert np.all(np.diff(model.history_["objective"]) <= 1e-9)
    # A fixed point of the two steps: the covariance is that of the responsibilities it implies.
    M = model.metric_
    D = np.array([[(x - c) @ M @ (x - c) for c in model.centers_] for x in X])
    p = soft * np.exp(-0.5 * D)
    p /= p.sum(axis=1, keepdims=True)
    centres = (p.T @ X) / p.sum(axis=0)[:, None]
    C = sum(
        p[i, k] * np.outer(X[i] - centres[k], X[i] - centres[k])
        for i in range(36)
        for k in range(3)
    )
    np.testing.assert_allclose(M, np.linalg.inv(C / 36), rtol=1e-3)


def test_dca_diagonalises_between_first_and_within_next(classes: tuple) -> None:
    X, y = classes
    means = np.array([X[y == c].mean(axis=0) for c in range(3)])
    Cb = sum(np.outer(a - b, a - b) for a in means for b in means) / 6
    Cw = sum(np.cov(X[y == c].T, bias=True) for c in range(3)) / 3
    L = DCA(ridge=0.0).fit(X, y).components_
    assert L.shape == (2, 4)
    np.testing.assert_allclose(L @ Cw @ L.T, np.eye(2), atol=1e-9)
    w, V = np.linalg.eigh(Cb)
    to_between = (V[:, -2:] / np.sqrt(w[-2:])).T
    inner = np.linalg.eigvalsh(to_between @ Cw @ to_between.T)
    # L is orthonormal rows times the whitened between-space, scaled by the inner variations.
    np.testing.assert_allclose(np.sort(1 / np.diag(L @ Cb @ L.T)), inner, rtol=1e-8)


def test_lfda_matches_sums_over_pairs(classes: tuple) -> None:
    X, y = classes
    n = len(X)
    scale = np.zeros(n)
    for i in range(n):
        own = np.sort(np.linalg.norm(X[y == y[i]] - X[i], axis=1))
        scale[i] = own[3]
    Sw, Sb = np.zeros((4, 4)), np.zeros((4, 4))
    for i in range(n):
        for j in range(n):
            outer = np.outer(X[i] - X[j], X[i] - X[j])
            if y[i] == y[j]:
                size = (y == y[i]).sum()
                A = np.exp(-((X[i] - X[j]) ** 2).sum() / (scale[i] * scale[j]))
                Sw += 0.5 * A / size * outer
                Sb += 0.5 * A * (1 / n - 1 / size) * outer
            else:
                Sb += 0.5 / n * outer
    L = LFDA(n_neighbors=3, ridge=0.0).fit(X, y).components_
    for row in L:
        value = (row @ Sb @ row) / (row @ Sw @ row)
        np.testing.assert_allclose(Sb @ row, value * (Sw @ row), atol=1e-8)
        assert row @ Sw @ row == pytest.approx(value)  # rows are scaled by sqrt(eigenvalue)


def test_pair_scatter_is_the_plain_sum() -> None:
    rng = np.random.default_rng(0)
    X, w = rng.standard_normal((9, 3)), rng.standard_normal(20)
    rows, cols = rng.integers(0, 9, 20), rng.integers(0, 9, 20)
    plain = sum(
        w[p] * np.outer(X[rows[p]] - X[cols[p]], X[rows[p]] - X[cols[p]]) for p in range(20)
    )
    np.testing.assert_allclose(pair_scatter(X, rows, cols, w), plain, atol=1e-12)


def lmnn_objective(M: np.ndarray, X: np.ndarray, y: np.ndarray, k: int, push: float) -> float:
    def squared(i: int, j: int) -> float:
        return float((X[i] - X[j]) @ M @ (X[i] - X[j]))

    pulled = pushed = 0.0
    for i in range(len(X)):
        own = [j for j in np.flatnonzero(y == y[i]) if j != i]
        own.sort(key=lambda j: float(((X[i] - X[j]) ** 2).sum()))
        for j in own[:k]:
            pulled += squared(i, j)
            for l in np.flatnonzero(y != y[i]):
                pushed += max(0.0, 1.0 + squared(i, j) - squared(i, l))
    return (1 - push) * pulled + push * pushed


def test_lmnn_objective_and_gradient(classes: tuple, monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = classes
    monkeypatch.setattr(lmnn_module, "_BLOCK_ENTRIES", 200)
    known = from_labels(y)
    rng = np.random.default_rng(1)
    L = rng.standard_normal((4, 4)) * 0.3
    problem = _LargeMargin(X, known, _target_pairs(X, known, 3), 0.4)
    value, gradient = problem.evaluate(L, full=True)
    assert value == pytest.approx(lmnn_objective(L.T @ L, X, y, 3, 0.4))
    direction = rng.standard_normal((4, 4))
    direction += direction.T
    step = 1e-6
    slope = (
        lmnn_objective(L.T @ L + step * direction, X, y, 3, 0.4)
        - lmnn_objective(L.T @ L - step * direction, X, y, 3, 0.4)
    ) / (2 * step)
    assert np.vdot(gradient, direction) == pytest.approx(slope, rel=1e-5)


def test_lmnn_active_set_agrees_with_the_full_search(classes: tuple) -> None:
    X, y = classes
    known = from_labels(y)
    problem = _LargeMargin(X, known, _target_pairs(X, known, 3), 0.5)
    L = 3.0 * np.eye(4)
    full = problem.evaluate(L, full=True)
    i, j = np.nonzero(y[:, None] != y)
    problem.active = lmnn_module._Pairs(i, j)
    listed = problem.evaluate(L, full=False)
    assert listed[0] == pytest.approx(full[0])
    np.testing.assert_allclose(listed[1], full[1], atol=1e-8)


def test_lmnn_reaches_the_convex_optimum(classes: tuple) -> None:
    """No projected step of any length from the result lowers the objective materially."""
    X, y = classes
    model = LMNN(tol=1e-6, max_iter=3000).fit(X, y)
    assert np.all(np.diff(model.history_["objective"]) <= 0)
    best = lmnn_objective(model.metric_, X, y, 3, 0.5)
    assert best == pytest.approx(model.objective_, rel=1e-6)
    rng = np.random.default_rng(0)
    for _ in range(30):
        change = rng.standard_normal((4, 4))
        trial = positive_part(
            model.metric_ + 0.05 * np.abs(model.metric_).max() * (change + change.T)
        )
        assert lmnn_objective(trial[0], X, y, 3, 0.5) >= best * (1 - 1e-3)


def test_itml_blocks_are_the_sequential_projections() -> None:
    rng = np.random.default_rng(0)
    V = rng.standard_normal((150, 6))
    sign = np.where(rng.random(150) < 0.5, 1.0, -1.0)
    xi0 = np.where(sign > 0, 3.0, 9.0)
    blocked, _, _ = ITML(gamma=2.0, max_iter=3, tol=0.0)._project(V, sign, xi0)
    M, dual, xi = np.eye(6), np.zeros(150), xi0.copy()
    for _ in range(3):
        for c, (v, delta) in enumerate(zip(V, sign, strict=True)):
            p = v @ M @ v
            alpha = min(dual[c], delta * 2.0 / 3.0 * (1 / p - 1 / xi[c]))
            beta = delta * alpha / (1 - delta * alpha * p)
            xi[c] = 2.0 * xi[c] / (2.0 + delta * alpha * xi[c])
            dual[c] -= alpha
            M = M + beta * np.outer(M @ v, M @ v)
    np.testing.assert_allclose(blocked, M, atol=1e-10)


def test_itml_meets_its_bounds_and_descends(classes: tuple) -> None:
    X, y = classes
    model = ITML(gamma=1e3, n_pairs=6, percentiles=(50, 50), tol=1e-10, random_state=0).fit(X, y)
    assert np.all(np.diff(model.history_["objective"]) <= 1e-8)
    similar, dissimilar = sample_pairs(from_labels(y), 6, np.random.default_rng(0))
    pairs = np.concatenate([similar, dissimilar])
    unit = ((X[pairs[:, 0]] - X[pairs[:, 1]]) ** 2).sum(axis=1).mean()
    mapped = model.transform(X)
    squares = unit * ((mapped[pairs[:, 0]] - mapped[pairs[:, 1]]) ** 2).sum(axis=1)
    slack = 0.02 * model.bounds_.max()
    assert np.all(squares[: len(similar)] <= model.bounds_[0] + slack)
    assert np.all(squares[len(similar) :] >= model.bounds_[1] - slack)


def test_ldml_is_stationary(classes: tuple) -> None:
    """At the optimum the gradient in b is 0, and in M it is >= 0 and orthogonal to M (KKT)."""
    X, y = classes
    model = LDML(n_pairs=400, tol=1e-12, max_iter=5000, random_state=0).fit(X, y)
    similar, dissimilar = sample_pairs(from_labels(y), 400, np.random.default_rng(0))
    pairs = np.concatenate([similar, dissimilar])
    same = np.repeat([1.0, 0.0], [len(similar), len(dissimilar)])
    V = X[pairs[:, 0]] - X[pairs[:, 1]]
    squares = np.einsum("pd,de,pe->p", V, model.metric_, V)
    residual = (same - expit(model.bias_ - squares)) / len(same)
    assert abs(residual.sum()) < 1e-5
    gradient = V.T @ (residual[:, None] * V)
    size = np.abs(V.T @ (np.abs(residual)[:, None] * V)).max()
    assert abs(np.vdot(gradient, model.metric_)) < 1e-4 * size * np.trace(model.metric_)
    assert np.linalg.eigvalsh(gradient)[0] > -1e-3 * size
    assert np.all(np.diff(model.history_["objective"]) <= 0)


def test_targets_are_the_nearest_of_the_class(classes: tuple) -> None:
    X, y = classes
    pulls = _target_pairs(X, from_labels(y), 2)
    assert np.all(np.diff(pulls.rows) >= 0)
    np.testing.assert_array_equal(renumber(y)[pulls.rows], renumber(y)[pulls.cols])
    own = [j for j in np.flatnonzero(y == y[5]) if j != 5]
    own.sort(key=lambda j: float(((X[5] - X[j]) ** 2).sum()))
    np.testing.assert_array_equal(pulls.cols[pulls.rows == 5], own[:2])


def test_kernel_pca_against_scikit_learn(classes: tuple) -> None:
    X, _ = classes
    rng = np.random.default_rng(3)
    queries = rng.standard_normal((7, 4))
    ours = KernelPCA(5, gamma=0.2).fit(X)
    theirs = ReferenceKernelPCA(5, kernel="rbf", gamma=0.2).fit(X)
    for rows in (X, queries):
        np.testing.assert_allclose(
            np.abs(ours.transform(rows)), np.abs(theirs.transform(rows)), atol=1e-10
        )
