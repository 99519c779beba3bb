"""Sums over preference pairs in O(n log n), without the pairs.

The pairs are P = {(i, j): same query, y_i > y_j}. A pair is active at scores u and margin c when
u_i - u_j < c. With the keys k_i = u_i - c of the better and k_j = u_j of the worse document, active means
k_i < k_j, and

    sum over active pairs of (c - u_i + u_j)^2 = sum (k_j - k_i)^2 = k'Lk,

where L is the Laplacian of the graph of active pairs; its gradient in u is 2 L k, its Hessian 2 L. So
loss, gradient and Hessian product are one operator L applied to a vector, and applying it needs, for each
document, how many active partners it has and the sum of their values.

Two ideas make that cheap.

*Levels by bits.* Rank the labels of each query 0, 1, 2, ... For a pair with ranks r_i > r_j let b be the
highest bit in which they differ: r_i has it, r_j has not, and the bits above agree. So the pairs fall
into groups (query, b, bits above b), and within a group every document of one side is preferred to
every document of the other. A document is in at most log2(levels) groups.

*Active by position.* Sort the documents of a group by their keys. The active pairs are those with
the better document before the worse one, so counts and sums of partners are prefix sums.

Before the prefix sums each side of a group is centred on its mean, which leaves L x unchanged once
accounted for, and keeps the running sums as small as one group's: there is no cancellation between
groups, however many there are.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from pipeline_lib.ltr.queries import check_labels

Array = NDArray[np.float64]
Index = NDArray[np.intp]


class PreferencePairs:
    """The preference pairs of labelled documents, held as groups (see the top of the module).

    Parameters
    ----------
    y : array of shape (n,)
        Relevance labels, integers or real numbers.
    qid : array of shape (n,)
        Query of each document, in any order.

    Attributes
    ----------
    n_documents : int
    n_pairs : int
        Size of P.
    better, worse : ndarrays
        Documents of the two sides, group after group: within a group each document of ``better`` is
        preferred to each document of ``worse``.
    n_better, n_worse, first_better, first_worse : ndarrays
        Per group, how many documents a side has and where they start.
    """

    def __init__(self, y: ArrayLike, qid: ArrayLike) -> None:
        labels = check_labels(y, qid, len(np.asarray(y)))
        self.n_documents = len(labels.y)
        rank = _rank_within_query(labels.y, labels.query)
        better: list[Index] = []
        worse: list[Index] = []
        n_better: list[Index] = []
        n_worse: list[Index] = []
        for bit in range(int(rank.max(initial=0)).bit_length()):
            above = rank >> (bit + 1)
            key = labels.query * (int(above.max(initial=0)) + 1) + above
            _, group = np.unique(key, return_inverse=True)
            upper = (rank >> bit) & 1 == 1
            size = int(group.max(initial=-1)) + 1
            counts = [np.bincount(group[side], minlength=size) for side in (upper, ~upper)]
            kept = (counts[0] > 0) & (counts[1] > 0)
            order = np.argsort(group, kind="stable")
            order = order[kept[group[order]]]
            better.append(order[upper[order]])
            worse.append(order[~upper[order]])
            n_better.append(counts[0][kept])
            n_worse.append(counts[1][kept])
        self.better, self.worse = _join(better), _join(worse)
        self.n_better, self.n_worse = _join(n_better), _join(n_worse)
        self.n_pairs = int(self.n_better @ self.n_worse)
        groups = np.arange(len(self.n_better))
        self._group = np.concatenate(
            [np.repeat(groups, self.n_worse), np.repeat(groups, self.n_better)]
        )
        self.first_better = np.cumsum(self.n_better) - self.n_better
        self.first_worse = np.cumsum(self.n_worse) - self.n_worse

    def active(self, scores: Array, margin: float = 1.0) -> ActivePairs:
        """The pairs with score difference below ``margin``."""
        return ActivePairs(self, np.asarray(scores, dtype=np.float64), margin)


class ActivePairs:
    """The active pairs at given scores: sums over them and their Laplacian L.

    Attributes
    ----------
    n_pairs : float
        Number of active pairs.
    """

    def __init__(self, pairs: PreferencePairs, scores: Array, margin: float) -> None:
        self._pairs = pairs
        keys_worse = scores[pairs.worse]
        keys_better = scores[pairs.better]
        keys_better -= margin
        # A pair exactly at the margin has no loss and is not active: its better document goes last.
        order = _sort_within_groups(
            np.concatenate([keys_worse, np.nextafter(keys_better, np.inf)]), pairs._group
        )
        n_worse = len(keys_worse)
        is_better = order >= n_worse
        in_worse = order[~is_better]
        in_better = order[is_better] - n_worse
        self._better = pairs.better[in_better]
        self._worse = pairs.worse[in_worse]
        self._keys = keys_better[in_better], keys_worse[in_worse]
        # Position of each document among those of the other side, counted over all groups.
        before = np.cumsum(is_better)
        self._better_before = before[~is_better]
        self._worse_before = np.flatnonzero(is_better) - before[is_better] + 1
        self._degree_worse: Index = self._better_before - np.repeat(
            pairs.first_better, pairs.n_worse
        )
        self._degree_better: Index = (
            np.repeat(pairs.first_worse + pairs.n_worse, pairs.n_better) - self._worse_before
        )

    @property
    def n_pairs(self) -> float:
        return float(self._degree_worse.sum())

    def hinge(self) -> float:
        """Sum over active pairs of margin - (u_i - u_j)."""
        better, worse = self._keys
        return float(self._degree_worse @ worse - self._degree_better @ better)

    def squared_hinge(self) -> tuple[float, Array]:
        """k'Lk, the sum of squared violations, and L k, half its gradient in the scores."""
        at_better, at_worse = self._laplacian(*self._keys)
        value = float(self._keys[0] @ at_better + self._keys[1] @ at_worse)
        return max(value, 0.0), self._collect(at_better, at_worse)

    def hinge_gradient(self) -> Array:
        """Gradient of `hinge` in the scores: +1 for the worse, -1 for the better of each pair."""
        return self._collect(
            -self._degree_better.astype(np.float64), self._degree_worse.astype(np.float64)
        )

    def apply(self, values: Array) -> Array:
        """L times a vector, or a matrix, with one row per document."""
        return self._collect(*self._laplacian(values[self._better], values[self._worse]))

    def quadratic(self, values: Array) -> tuple[float, float]:
        """v'Lk and v'Lv: slope and curvature, halved, of the squared hinge along v."""
        better, worse = values[self._better], values[self._worse]
        at_better, at_worse = self._laplacian(better, worse)
        slope = self._keys[0] @ at_better + self._keys[1] @ at_worse
        return float(slope), float(better @ at_better + worse @ at_worse)

    def _laplacian(self, better: Array, worse: Array) -> tuple[Array, Array]:
        """(L x) at the entries of both sides: degree times value minus the sum over partners."""
        pairs = self._pairs
        if len(better) == 0:
            return better, worse

        # Sizes as a column, to divide and scale vectors and matrices alike.
        def column(counts: Index) -> Index:
            return counts if better.ndim == 1 else counts[:, None]

        mean_better = np.add.reduceat(better, pairs.first_better) / column(pairs.n_better)
        mean_worse = np.add.reduceat(worse, pairs.first_worse) / column(pairs.n_worse)
        # A centred side sums to 0, so running sums start every group at 0.
        sums_better = _running_sums(better - np.repeat(mean_better, pairs.n_better, axis=0))
        sums_worse = _running_sums(worse - np.repeat(mean_worse, pairs.n_worse, axis=0))
        at_worse = worse - np.repeat(mean_better, pairs.n_worse, axis=0)
        at_worse *= column(self._degree_worse)
        at_worse -= sums_better[self._better_before]
        # The sum after a position is minus the sum before it.
        at_better = better - np.repeat(mean_worse, pairs.n_better, axis=0)
        at_better *= column(self._degree_better)
        at_better += sums_worse[self._worse_before]
        return at_better, at_worse

    def _collect(self, at_better: Array, at_worse: Array) -> Array:
        n = self._pairs.n_documents
        if at_better.ndim == 1:
            return np.asarray(
                np.bincount(self._better, weights=at_better, minlength=n)
                + np.bincount(self._worse, weights=at_worse, minlength=n),
                dtype=np.float64,
            )
        entries = np.concatenate([self._better, self._worse])
        members = sparse.csr_array(
            (np.ones(len(entries)), (entries, np.arange(len(entries)))), shape=(n, len(entries))
        )
        return np.asarray(members @ np.concatenate([at_better, at_worse]))


def _sort_within_groups(keys: Array, group: Index) -> Index:
    """Indices that sort by group, then key: two vectorised sorts, several times faster than lexsort.

    The second sorts the integers (group, position in the order of the keys), packed into one word.
    """
    by_key = np.argsort(keys)
    bits = max(1, len(keys) - 1).bit_length()
    packed = group[by_key].astype(np.int64)
    packed <<= bits
    packed |= np.arange(len(keys))
    packed.sort()
    packed &= (1 << bits) - 1
    return by_key[packed]


def _running_sums(values: Array) -> Array:
    sums = np.empty((len(values) + 1, *values.shape[1:]))
    sums[0] = 0.0
    np.cumsum(values, axis=0, out=sums[1:])
    return sums


def _rank_within_query(y: Array, query: Index) -> Index:
    """Dense rank 0, 1, 2, .. of each label among the distinct labels of its query."""
    order = np.lexsort((y, query))
    new_query = np.diff(query[order], prepend=-1) != 0
    new_level = np.diff(y[order], prepend=np.nan) != 0
    level = np.cumsum(new_level & ~new_query)
    first = level[new_query]
    rank = np.empty(len(y), dtype=np.intp)
    rank[order] = level - np.repeat(first, np.diff(np.append(np.flatnonzero(new_query), len(y))))
    return rank


def _join(parts: list[Index]) -> Index:
    return np.concatenate(parts) if parts else np.empty(0, dtype=np.intp)
