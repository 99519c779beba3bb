"""Losses between an entry of the recovered tag matrix and the observed tag matrix.

Every loss is a sum over entries of  w_i+ l+(Q_ij)  where tag j of image i is observed and of
w_i- l-(Q_ij)  where it is not, with  w_i+ = 1 / m*_i,  w_i- = 1 / (m - m*_i)  and  m*_i  the number
of observed tags of image i: both kinds weigh the same in every image. The five losses compared in
the thesis (Tables 4.4 and 4.5) differ in l+ and l- only:

    likelihood  -log q               -log(1 - q)
    absolute    |1 - q|              |q|
    squares     (1 - q)^2            q^2
    hinge       max(0, 1 - q)        max(0, 1 + q)
    logistic    log(1 + exp(-q))     log(1 + exp(q))

The logarithms of the likelihood are continued linearly (value and slope) below ``eps``, each on its
own side only: the loss stays convex, finite and, with a norm added, bounded below. The kinks of the
absolute and the hinge loss are rounded to a parabola of half-width ``eps`` (Huber), so that one
solver for smooth losses serves all five. These three are steep (curvature up to 1 / eps^2 or
1 / eps) and therefore also offer their proximal operators, in closed form.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import expit

Array = NDArray[np.float64]


class EntryLoss(ABC):
    """The pair l+ (observed) and l- (not observed), each with its derivative."""

    def __init__(self, eps: float) -> None:
        self.eps = eps

    @abstractmethod
    def observed(self, q: Array) -> tuple[Array, Array]:
        """Return l+(q) and its derivative."""

    @abstractmethod
    def unobserved(self, q: Array) -> tuple[Array, Array]:
        """Return l-(q) and its derivative."""

    def unobserved_rows(self, q: Array, slope: Array) -> Array:
        """Return the row sums of l-(q) and write its derivative to ``slope``."""
        value, slope[...] = self.unobserved(q)
        return value.sum(axis=1)

    def unobserved_sums(self, q: Array) -> Array:
        """Return the row sums of l-(q); q may be overwritten."""
        return self.unobserved(q)[0].sum(axis=1)


class SteepLoss(EntryLoss):
    """A loss with the proximal operators argmin_q weight l(q) + (q - v)^2 / 2."""

    @abstractmethod
    def prox_observed(self, v: Array, weight: Array) -> Array:
        """Return the proximal operator of l+."""

    @abstractmethod
    def prox_unobserved(self, v: Array, weight: Array) -> Array:
        """Return the proximal operator of l-; v may be overwritten."""


class Likelihood(SteepLoss):
    """Negative log-likelihood with its one-sided linear continuation below eps."""

    def observed(self, q: Array) -> tuple[Array, Array]:
        """Return -log q, continued below eps, and its derivative."""
        inside = np.maximum(q, self.eps)
        return (inside - q) / self.eps - np.log(inside), -1.0 / inside

    def unobserved(self, q: Array) -> tuple[Array, Array]:
        """Return -log(1 - q), continued above 1 - eps, and its derivative."""
        value, slope = self.observed(1.0 - q)
        return value, -slope

    def unobserved_rows(self, q: Array, slope: Array) -> Array:
        """Return the row sums of l-(q) and write its derivative to ``slope``."""
        slope[...] = q
        sums = self.unobserved_sums(slope)
        np.divide(1.0, slope, out=slope)
        return sums

    def unobserved_sums(self, q: Array) -> Array:
        """Return the row sums of l-(q); q becomes max(1 - q, eps)."""
        # Nearly all entries of a tag matrix pass here: in place, few passes, few logarithms.
        rest = np.subtract(1.0, q, out=q)
        beyond = 0.0
        if rest.min() < self.eps:
            beyond = np.maximum(self.eps - rest, 0.0).sum(axis=1) / self.eps
            np.maximum(rest, self.eps, out=rest)
        return beyond - _row_sums_of_logs(rest)

    def prox_observed(self, v: Array, weight: Array) -> Array:
        """Root of q^2 - v q - weight = 0, or a linear step where it falls below eps."""
        root = v * v
        root += 4.0 * weight
        np.sqrt(root, out=root)
        root += v
        root *= 0.5
        if root.size and root.min() < self.eps:
            root = np.where(root < self.eps, v + weight / self.eps, root)
        return root

    def prox_unobserved(self, v: Array, weight: Array) -> Array:
        """The same for 1 - q."""
        root = self.prox_observed(np.subtract(1.0, v, out=v), weight)
        return np.subtract(1.0, root, out=root)


class Absolute(SteepLoss):
    """Absolute loss, rounded within eps of the kink."""

    def observed(self, q: Array) -> tuple[Array, Array]:
        """Return |1 - q| and its derivative."""
        return self.unobserved(q - 1.0)

    def unobserved(self, q: Array) -> tuple[Array, Array]:
        """Return |q| and its derivative."""
        size = np.abs(q)
        near = np.minimum(size, self.eps)
        return near * (size - 0.5 * near) / self.eps, np.clip(q / self.eps, -1.0, 1.0)

    def prox_observed(self, v: Array, weight: Array) -> Array:
        """Move towards 1 by the weight, less within reach of the kink."""
        return 1.0 + self.prox_unobserved(v - 1.0, weight)

    def prox_unobserved(self, v: Array, weight: Array) -> Array:
        """Move towards 0 by the weight, less within reach of the kink."""
        return v - weight * np.clip(v / (self.eps + weight), -1.0, 1.0)


class Squares(EntryLoss):
    """Squared loss."""

    def observed(self, q: Array) -> tuple[Array, Array]:
        """Return (1 - q)^2 and its derivative."""
        return self.unobserved(q - 1.0)

    def unobserved(self, q: Array) -> tuple[Array, Array]:
        """Return q^2 and its derivative."""
        return q * q, 2.0 * q


class Hinge(SteepLoss):
    """Hinge loss on labels +1 and -1, rounded within eps of the kink."""

    def observed(self, q: Array) -> tuple[Array, Array]:
        """Return max(0, 1 - q) and its derivative."""
        value, slope = self.unobserved(-q)
        return value, -slope

    def unobserved(self, q: Array) -> tuple[Array, Array]:
        """Return max(0, 1 + q) and its derivative."""
        # Quadratic for margins between -eps and eps, the hinge itself outside.
        inside = np.clip(1.0 + q, -self.eps, self.eps) + self.eps
        value = inside * inside / (4.0 * self.eps) + np.maximum(1.0 + q - self.eps, 0.0)
        return value, inside / (2.0 * self.eps)

    def prox_observed(self, v: Array, weight: Array) -> Array:
        """Move up by the weight while the margin is short."""
        return -self.prox_unobserved(-v, weight)

    def prox_unobserved(self, v: Array, weight: Array) -> Array:
        """Move down by the weight while the margin is short."""
        reach = (1.0 + v + self.eps) / (2.0 * self.eps + weight)
        return v - weight * np.clip(reach, 0.0, 1.0)


class Logistic(EntryLoss):
    """Logistic loss on labels +1 and -1."""

    def observed(self, q: Array) -> tuple[Array, Array]:
        """Return log(1 + exp(-q)) and its derivative."""
        return np.logaddexp(0.0, -q), -expit(-q)

    def unobserved(self, q: Array) -> tuple[Array, Array]:
        """Return log(1 + exp(q)) and its derivative."""
        return np.logaddexp(0.0, q), expit(q)


LOSSES: dict[str, type[EntryLoss]] = {
    "likelihood": Likelihood,
    "absolute": Absolute,
    "squares": Squares,
    "hinge": Hinge,
    "logistic": Logistic,
}

# Rows of a block are chosen so that the few arrays in use stay in the second-level cache.
_BLOCK_ENTRIES = 49152


class WeightedLoss:
    """The weighted loss of a whole matrix Q, evaluated block of rows by block of rows.

    Parameters
    ----------
    D : csr_array of shape (n, m)
        Observed tags.
    entry : EntryLoss
        l+ and l-.
    """

    def __init__(self, D: sparse.csr_array, entry: EntryLoss) -> None:
        self.entry = entry
        self.n, self.m = D.shape
        counts = np.diff(D.indptr).astype(np.float64)
        self.mean_observed = max(float(counts.mean()), 1.0)
        self._weight_observed = 1.0 / np.maximum(counts, 1.0)
        self._weight_unobserved = 1.0 / np.maximum(self.m - counts, 1.0)
        # An observed entry is set to zero while its row is summed as if unobserved; this is what
        # the sum then holds for it.
        self._at_zero = counts * float(entry.unobserved(np.zeros(1))[0][0])
        rows = max(1, _BLOCK_ENTRIES // self.m)
        self.blocks = [(a, min(a + rows, self.n)) for a in range(0, self.n, rows)]
        self.block_rows = min(rows, self.n)
        self._observed = {
            start: self._observed_entries(D, start, stop) for start, stop in self.blocks
        }

    def _observed_entries(
        self, D: sparse.csr_array, start: int, stop: int
    ) -> tuple[NDArray[np.int64], Array]:
        """Flat positions of the observed entries of a block, and their weights."""
        rows = np.repeat(np.arange(stop - start), np.diff(D.indptr[start : stop + 1]))
        columns = D.indices[D.indptr[start] : D.indptr[stop]]
        return rows * self.m + columns, self._weight_observed[start:stop][rows]

    def __call__(self, start: int, stop: int, q: Array, slope: Array) -> float:
        """Value of rows ``start`` to ``stop``; their gradient is written to ``slope``.

        Parameters
        ----------
        start, stop : int
            The rows of one of ``blocks``.
        q : ndarray of shape (stop - start, m), C-contiguous
            The rows of Q; left as they are.
        slope : ndarray of shape (stop - start, m), C-contiguous
            Overwritten.

        Returns
        -------
        float
        """
        flat, weight = self._observed[start]
        q_flat, slope_flat = q.reshape(-1), slope.reshape(-1)
        q_observed = q_flat[flat]
        q_flat[flat] = 0.0
        sums = self.entry.unobserved_rows(q, slope) - self._at_zero[start:stop]
        q_flat[flat] = q_observed
        unobserved = self._weight_unobserved[start:stop]
        slope *= unobserved[:, None]
        value, gradient = self.entry.observed(q_observed)
        slope_flat[flat] = weight * gradient
        return float(sums @ unobserved + value @ weight)

    def value(self, start: int, stop: int, q: Array) -> float:
        """Value of rows ``start`` to ``stop`` of Q alone; q is overwritten."""
        flat, weight = self._observed[start]
        q_observed = q.reshape(-1)[flat]
        q.reshape(-1)[flat] = 0.0
        sums = self.entry.unobserved_sums(q) - self._at_zero[start:stop]
        value = self.entry.observed(q_observed)[0]
        return float(sums @ self._weight_unobserved[start:stop] + value @ weight)

    def proximal(self, start: int, stop: int, v: Array, step: float) -> Array:
        """Proximal operator of ``step`` times the loss of rows ``start`` to ``stop``.

        Parameters
        ----------
        start, stop : int
            The rows of one of ``blocks``.
        v : ndarray of shape (stop - start, m), C-contiguous
            Overwritten.
        step : float

        Returns
        -------
        ndarray, shape of v

        Raises
        ------
        TypeError
            If the loss is not a `SteepLoss`.
        """
        if not isinstance(self.entry, SteepLoss):
            raise TypeError(f"{type(self.entry).__name__} has no proximal operator")
        flat, weight = self._observed[start]
        v_observed = v.reshape(-1)[flat]
        q = self.entry.prox_unobserved(v, step * self._weight_unobserved[start:stop, None])
        q.reshape(-1)[flat] = self.entry.prox_observed(v_observed, step * weight)
        return q


def _row_sums_of_logs(positive: Array) -> Array:
    """Row sums of log(p): products of eight entries first, then one logarithm.

    Entries lie between eps >= 1e-12 and sizes far below 1e38, so products of eight stay in range.
    """
    total = np.zeros(positive.shape[0])
    for _ in range(3):
        half = positive.shape[1] // 2
        if half == 0:
            break
        if positive.shape[1] % 2:
            total += np.log(positive[:, -1])
        positive = positive[:, :half] * positive[:, half : 2 * half]
    return total + np.log(positive).sum(axis=1)
