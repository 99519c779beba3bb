"""The convex recovery problem behind TCMR, in the two forms the solver moves through.

    min_Q  sum_ij w_ij l_ij(Q_ij) + (alpha / n) tr(Q' L Q) + lam h(Q)

With the trace norm for h every iterate of proximal gradient is of low rank: `TraceNormRecovery`
keeps it in two factors and forms rows of Q only block by block. With the l1 or Frobenius norm Q is
an ordinary dense matrix: `dense_recovery`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from pipeline_lib.completion.losses import WeightedLoss
from pipeline_lib.completion.row_blocks import RowBlocks
from pipeline_lib.optimize.proximal import prox_frobenius, prox_l1
from pipeline_lib.optimize.proximal_gradient import ArrayProblem, ProximalStep
from pipeline_lib.optimize.singular_values import ShrunkMatrix, shrink_singular_values
from pipeline_lib.optimize.splitting import SplittingStep

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class LowRankPoint:
    """Q = left @ right.T.

    Attributes
    ----------
    left, right : ndarrays of shape (n, r) and (m, r)
    trace_norm : float
        NaN for a point between two iterates.
    square : float
        ||Q||_F^2.
    residual : float
        ||C - Q||_F where Q is the shrunk C, else NaN.
    """

    left: Array
    right: Array
    trace_norm: float
    square: float
    residual: float = np.nan

    @property
    def rank(self) -> int:
        """Number of columns of the factors."""
        return self.left.shape[1]


class TraceNormRecovery:
    """The recovery problem with the trace norm, over low-rank points.

    Parameters
    ----------
    loss : WeightedLoss
    lam : float
        Weight of the trace norm.
    laplacian : csr_array of shape (n, n) or None
        L; None leaves the graph term out.
    alpha : float
        Weight of the graph term.

    Notes
    -----
    It is a `CompositeProblem` (proximal gradient) and a `SplittingProblem` (splitting). Either way
    an iteration costs one or two passes of the loss over blocks of rows, n x m x rank products, and
    one Gram matrix. One n x m buffer is held; everything else is n x rank or some blocks of rows.
    """

    def __init__(
        self, loss: WeightedLoss, lam: float, laplacian: sparse.csr_array | None, alpha: float
    ) -> None:
        self.loss = loss
        self.lam = lam
        self.laplacian = laplacian if alpha > 0.0 else None
        self.graph_weight = alpha / loss.n
        self._buffer = np.empty((loss.n, loss.m))
        self._rows = RowBlocks(loss.blocks, loss.m)
        self._model: _Linearisation | None = None

    def start_splitting(self, value: float) -> None:
        """Set the governing variable of the splitting to the constant matrix ``value``."""
        self._model = None
        self._buffer.fill(value)

    @property
    def longest_step(self) -> float:
        """Bound on the step of the splitting by the curvature of the graph term."""
        if self.laplacian is None:
            return float("inf")
        # Gershgorin: no eigenvalue of L exceeds its largest absolute row sum.
        largest = float(abs(self.laplacian).sum(axis=1).max())
        return 0.8 / (2.0 * self.graph_weight * largest) if largest > 0.0 else float("inf")

    def constant(self, value: float) -> LowRankPoint:
        """Return the matrix with all entries equal to ``value`` > 0."""
        n, m = self.loss.n, self.loss.m
        left = np.full((n, 1), value * np.sqrt(m))
        right = np.full((m, 1), 1.0 / np.sqrt(m))
        return LowRankPoint(left, right, value * np.sqrt(n * m), value**2 * n * m)

    def objective(self, x: LowRankPoint) -> float:
        """Return the objective at an iterate."""
        return self._smooth(x) + self.lam * x.trace_norm

    def extrapolate(self, x: LowRankPoint, previous: LowRankPoint, weight: float) -> LowRankPoint:
        """Return x + weight (x - previous), its factors side by side."""
        left = np.hstack([(1.0 + weight) * x.left, -weight * previous.left])
        square = (1.0 + weight) ** 2 * x.square + weight**2 * previous.square
        square -= 2.0 * weight * (1.0 + weight) * _inner(x, previous)
        return LowRankPoint(left, np.hstack([x.right, previous.right]), np.nan, square)

    def proximal_step(self, z: LowRankPoint, step: float) -> ProximalStep[LowRankPoint]:
        """Return the proximal gradient step from z."""
        if self._model is None or self._model.point is not z:
            model = self._model = self._linearise(z, step)
        else:
            model = self._model = self._rescale(self._model, step)
        threshold = self.lam * step
        shrunk = shrink_singular_values(self._buffer, threshold)
        x = _as_point(shrunk)
        # With C = z - step * gradient in the buffer, <C, x> and ||x||^2 follow from the singular
        # values alone, and with them <gradient, x - z> + ||x - z||^2 / (2 step).
        values = shrunk.singular_values
        to_target = model.target_square - 2.0 * (values @ (values + threshold)) + x.square
        surrogate = model.value + (to_target - step**2 * model.gradient_square) / (2.0 * step)
        distance_square = max(x.square - 2.0 * _inner(x, z) + z.square, 0.0)
        return ProximalStep(
            point=x,
            smooth=self._smooth(x),
            regularizer=self.lam * x.trace_norm,
            model=float(surrogate) - distance_square / (2.0 * step),
            distance=float(np.sqrt(distance_square)),
            gradient_norm=float(np.sqrt(model.gradient_square)),
        )

    def shrink(self, step: float) -> LowRankPoint:
        """Return the proximal operator of the trace norm at the governing variable."""
        return _as_point(shrink_singular_values(self._buffer, self.lam * step))

    def reflect(self, x: LowRankPoint, step: float, relaxation: float) -> SplittingStep:
        """Apply the proximal operator of the loss to the reflection of x, move the buffer."""
        value, smoothed = 0.0, None
        if self.laplacian is not None:
            smoothed = self.laplacian @ x.left
            value = self._graph(x, smoothed)
            smoothed *= 2.0 * self.graph_weight * step

        def move(start: int, stop: int, q: Array, scratch: Array) -> tuple[float, float]:
            target = self._buffer[start:stop]
            mirror = np.subtract(q, target, out=scratch)
            mirror += q
            if smoothed is not None:
                mirror -= smoothed[start:stop] @ x.right.T
            pulled = self.loss.proximal(start, stop, mirror, step)
            pulled -= q
            gap_square = _square(pulled)
            pulled *= relaxation
            target += pulled
            return self.loss.value(start, stop, q), gap_square

        loss_value, gap_square = self._rows.total(x.left, x.right, move)
        return SplittingStep(
            objective=value + loss_value + self.lam * x.trace_norm,
            gap=float(np.sqrt(gap_square)),
            subgradient_norm=x.residual / step,
        )

    def stretch(self, x: LowRankPoint, ratio: float) -> None:
        """Stretch the buffer about x."""

        def move(start: int, stop: int, q: Array, scratch: Array) -> tuple[float, ...]:
            target = self._buffer[start:stop]
            target -= q
            target *= ratio
            target += q
            return ()

        self._rows.total(x.left, x.right, move)

    def distance(self, x: LowRankPoint, previous: LowRankPoint) -> float:
        """Return ||x - previous||."""
        square = x.square - 2.0 * _inner(x, previous) + previous.square
        return float(np.sqrt(max(square, 0.0)))

    def turning(self, z: LowRankPoint, x: LowRankPoint, previous: LowRankPoint) -> float:
        """Return <z - x, x - previous>."""
        return _inner(z, x) - _inner(z, previous) - x.square + _inner(x, previous)

    def write_out(self, x: LowRankPoint) -> Array:
        """Return Q as a dense matrix, in the buffer (the problem is done with)."""
        self._model = None
        return np.matmul(x.left, x.right.T, out=self._buffer)

    def _smooth(self, x: LowRankPoint) -> float:
        def evaluate(start: int, stop: int, q: Array, scratch: Array) -> tuple[float, ...]:
            return (self.loss.value(start, stop, q),)

        (value,) = self._rows.total(x.left, x.right, evaluate)
        if self.laplacian is not None:
            value += self._graph(x, self.laplacian @ x.left)
        return value

    def _graph(self, x: LowRankPoint, smoothed: Array) -> float:
        """(alpha / n) tr(Q' L Q) from L left."""
        return self.graph_weight * float(np.vdot(smoothed, x.left @ (x.right.T @ x.right)))

    def _linearise(self, z: LowRankPoint, step: float) -> _Linearisation:
        """Write z - step * gradient(z) to the buffer."""
        value, smoothed = 0.0, None
        if self.laplacian is not None:
            smoothed = self.laplacian @ z.left
            value = self._graph(z, smoothed)
            smoothed *= 2.0 * self.graph_weight

        def descend(start: int, stop: int, q: Array, slope: Array) -> tuple[float, ...]:
            loss_value = self.loss(start, stop, q, slope)
            if smoothed is not None:
                slope += smoothed[start:stop] @ z.right.T
            gradient_square = _square(slope)
            slope *= -step
            target = np.add(q, slope, out=self._buffer[start:stop])
            return loss_value, gradient_square, _square(target)

        loss_value, *squares = self._rows.total(z.left, z.right, descend)
        return _Linearisation(z, step, value + loss_value, *squares)

    def _rescale(self, model: _Linearisation, step: float) -> _Linearisation:
        """The same for another step, without evaluating the loss again."""
        z, share = model.point, step / model.step

        def descend(start: int, stop: int, q: Array, scratch: Array) -> tuple[float, ...]:
            target = self._buffer[start:stop]
            q *= 1.0 - share
            target *= share
            target += q
            return (_square(target),)

        (target_square,) = self._rows.total(z.left, z.right, descend)
        return _Linearisation(z, step, model.value, model.gradient_square, target_square)


@dataclass(frozen=True, eq=False)
class _Linearisation:
    """What is known at z while the buffer holds z - step * gradient(z)."""

    point: LowRankPoint
    step: float
    value: float
    gradient_square: float
    target_square: float


def _square(block: Array) -> float:
    """Squared norm without BLAS, whose own threads would be in the way of ours on small blocks."""
    return float(np.einsum("ij,ij->", block, block))


def _as_point(shrunk: ShrunkMatrix) -> LowRankPoint:
    values = shrunk.singular_values
    square = float(values @ values)
    return LowRankPoint(shrunk.left, shrunk.right, shrunk.trace_norm, square, shrunk.residual)


def _inner(a: LowRankPoint, b: LowRankPoint) -> float:
    """Return <A, B> of two low-rank matrices."""
    return float(np.vdot(a.left.T @ b.left, a.right.T @ b.right))


def dense_recovery(
    loss: WeightedLoss,
    lam: float,
    laplacian: sparse.csr_array | None,
    alpha: float,
    regularizer: str,
) -> ArrayProblem:
    """Return the recovery problem with an entrywise norm, over dense matrices.

    Parameters
    ----------
    loss, lam, laplacian, alpha
        As for `TraceNormRecovery`.
    regularizer : {"l1", "frobenius"}
        The norm h; Frobenius is not squared.

    Returns
    -------
    ArrayProblem
    """
    graph_weight = alpha / loss.n

    def smooth(Q: Array) -> tuple[float, Array]:
        gradient = np.empty_like(Q)
        value = sum(loss(a, b, Q[a:b], gradient[a:b]) for a, b in loss.blocks)
        if laplacian is not None and alpha > 0.0:
            smoothed = laplacian @ Q
            value += graph_weight * float(np.vdot(Q, smoothed))
            gradient += 2.0 * graph_weight * smoothed
        return value, gradient

    def norm(Q: Array) -> float:
        return lam * float(np.abs(Q).sum() if regularizer == "l1" else np.linalg.norm(Q))

    def proximal(V: Array, step: float) -> tuple[Array, float]:
        shrink = prox_l1 if regularizer == "l1" else prox_frobenius
        Q = shrink(V, lam * step)
        return Q, norm(Q)

    return ArrayProblem(smooth, proximal, norm)
