"""Binary constraints for metric learners, and the five ways of making them from tags.

Metric learners know pairs of images that should be close (similar, must-link) and pairs that should
be apart (dissimilar, cannot-link). They come as a partition into groups (chunklets: same group means
similar, different groups mean dissimilar), as soft groups, or as explicit pairs.

Table 3.8 of Feng's thesis makes them from tags in five ways:

============== ===========================================================================
method         rule
============== ===========================================================================
clusters       (1) probabilistic clustering of images by their tags: the topics of latent
               Dirichlet allocation; an image belongs to its most probable topic
classes        (2) class labels as given: an integer per image
hierarchical   (3) hierarchical clustering (Ward) of the tag vectors, of unit length
joint          (4) k-means of tag vectors and visual features together, each block scaled
               to unit mean squared length
shared-tags    (5) images sharing more than 4 tags are similar, images sharing none are
               dissimilar, all other pairs are unknown
============== ===========================================================================

The last gives pairs, not groups: learners built on groups (RCA, DCA, LFDA, pRCA, NCA) refuse it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import linalg, sparse
from scipy.sparse.linalg import LinearOperator, eigsh
from sklearn.cluster import AgglomerativeClustering, KMeans
from sklearn.decomposition import LatentDirichletAllocation

from pipeline_lib.errors import InputError
from pipeline_lib.seeds import RandomState, as_generator

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

METHODS = ("clusters", "classes", "hierarchical", "joint", "shared-tags")
"""Ways of making constraints, in the order of Table 3.8."""

UNKNOWN = -1
"""Group of a row about which nothing is known."""


@dataclass(frozen=True)
class Constraints:
    """What is known about pairs of rows: groups, or pairs.

    Attributes
    ----------
    n_rows : int
        Number of training rows the indices refer to.
    groups : ndarray of shape (n_rows,) of int, or None
        Group of every row, `UNKNOWN` for rows without one.
    memberships : ndarray of shape (n_rows, n_groups), or None
        Probabilities that a row belongs to each group; rows sum to 1 (or 0 for unknown rows).
    similar, dissimilar : ndarrays of shape (p, 2) and (q, 2) of int
        Pairs of row indices, when there are no groups.
    """

    n_rows: int
    groups: Ints | None = None
    memberships: Array | None = None
    similar: Ints | None = None
    dissimilar: Ints | None = None

    def __post_init__(self) -> None:
        if self.groups is None and self.similar is None and self.dissimilar is None:
            raise InputError("constraints are empty", expected="groups or pairs")
        if self.groups is not None:
            if self.groups.shape != (self.n_rows,):
                raise InputError(
                    f"groups have shape {self.groups.shape}", expected=f"({self.n_rows},)"
                )
            if len(np.unique(self.groups[self.groups != UNKNOWN])) < 2:
                raise InputError(
                    "all rows are of one class, so no pair is dissimilar",
                    expected="at least two classes",
                )
        for name in ("similar", "dissimilar"):
            pairs = getattr(self, name)
            if pairs is None:
                continue
            if pairs.ndim != 2 or pairs.shape[1] != 2:
                raise InputError(f"{name} has shape {pairs.shape}", expected="(pairs, 2)")
            if pairs.size and (pairs.min() < 0 or pairs.max() >= self.n_rows):
                raise InputError(
                    f"{name} holds row {pairs.min() if pairs.min() < 0 else pairs.max()}",
                    expected=f"rows 0 to {self.n_rows - 1}",
                )
        if self.groups is None and not (self._count("similar") and self._count("dissimilar")):
            raise InputError(
                "only one kind of pair is given", expected="both similar and dissimilar pairs"
            )

    def _count(self, name: str) -> int:
        pairs = getattr(self, name)
        return 0 if pairs is None else len(pairs)

    def check_rows(self, n_rows: int) -> None:
        """Raise `InputError` when the constraints were made for another number of rows."""
        if self.n_rows != n_rows:
            raise InputError(
                f"constraints are for {self.n_rows} rows", expected=f"{n_rows}, the rows of X"
            )

    def require_groups(self, learner: str) -> Ints:
        """Groups renumbered 0..g-1 (`UNKNOWN` kept), or `InputError` when there are only pairs."""
        if self.groups is None:
            raise InputError(
                f"{learner} needs groups of similar rows, not pairs",
                remedy="give class labels or constraints with groups",
            )
        return renumber(self.groups)

    def signs(self) -> sparse.csr_array:
        """Known pairs as a symmetric sparse matrix: 1 similar, -1 dissimilar (pair form only)."""
        assert self.similar is not None and self.dissimilar is not None
        pairs = np.concatenate([self.similar, self.dissimilar])
        value = np.repeat([1.0, -1.0], [len(self.similar), len(self.dissimilar)])
        value[pairs[:, 0] == pairs[:, 1]] = 0.0
        S = sparse.coo_array((value, (pairs[:, 0], pairs[:, 1])), shape=(self.n_rows,) * 2)
        return sparse.csr_array((S + S.T).sign())


def renumber(labels: ArrayLike) -> Ints:
    """Labels as 0..g-1 in sorted order, negative ones (`UNKNOWN`) kept as `UNKNOWN`."""
    values = np.asarray(labels)
    known = values != UNKNOWN
    result = np.full(len(values), UNKNOWN, dtype=np.int64)
    result[known] = np.unique(values[known], return_inverse=True)[1]
    return result


def from_labels(y: ArrayLike) -> Constraints:
    """Constraints from class labels (method 2): same class similar, other classes dissimilar.

    Parameters
    ----------
    y : array of shape (n,)
        Any comparable labels; -1 marks rows without a label.

    Raises
    ------
    InputError
        When fewer than two classes are present or a label is NaN.
    """
    labels = np.asarray(y)
    if labels.ndim != 1 or len(labels) == 0:
        raise InputError(f"labels have shape {labels.shape}", expected="one label a row")
    if labels.dtype.kind == "f" and not np.isfinite(labels).all():
        raise InputError("labels contain NaN or infinite values", expected="class labels")
    return Constraints(len(labels), groups=renumber(labels))


def from_tags(
    Y: Any,
    method: str = "clusters",
    *,
    X: ArrayLike | None = None,
    labels: ArrayLike | None = None,
    n_clusters: int = 50,
    random_state: RandomState = None,
) -> Constraints:
    """Make constraints from a binary tag matrix in one of the ways of Table 3.8.

    Parameters
    ----------
    Y : array or sparse matrix of shape (n, m)
    method : str, default "clusters"
        One of `METHODS` (table at the top of the module).
    X : array of shape (n, d), optional
        Visual features, needed by "joint".
    labels : array of shape (n,), optional
        Class labels, needed by "classes".
    n_clusters : int, default 50
        Groups the clustering methods make (at most one a row).
    random_state : int, Generator, RandomState or None
        Seeds the clustering.

    Raises
    ------
    InputError
        For an unknown method, or when what it needs is missing or yields one group.
    """
    if method not in METHODS:
        raise InputError(f"unknown method {method!r}", expected="one of " + ", ".join(METHODS))
    tags = sparse.csr_array(Y, dtype=np.float64)
    if method == "classes":
        if labels is None:
            raise InputError("method 'classes' needs class labels", remedy="pass labels")
        return from_labels(labels)
    if method == "shared-tags":
        return _shared_tags(tags)
    if n_clusters < 2:
        raise InputError(f"n_clusters is {n_clusters}", expected="at least 2")
    size = min(n_clusters, tags.shape[0])
    seed = int(as_generator(random_state).integers(2**31))
    if method == "clusters":
        return _topics(tags, size, seed)
    if method == "hierarchical":
        model = AgglomerativeClustering(n_clusters=size, linkage="ward")
        return Constraints(tags.shape[0], groups=renumber(model.fit_predict(_unit(tags))))
    if X is None:
        raise InputError("method 'joint' needs visual features", remedy="pass X")
    both = np.hstack([_unit_mean(tags.toarray()), _unit_mean(np.asarray(X, dtype=np.float64))])
    clusters = KMeans(size, n_init=3, random_state=seed).fit_predict(both)
    return Constraints(tags.shape[0], groups=renumber(clusters))


def _topics(tags: sparse.csr_array, n_topics: int, seed: int) -> Constraints:
    model = LatentDirichletAllocation(
        n_topics, learning_method="online", batch_size=512, random_state=seed
    )
    memberships = model.fit_transform(tags)
    tagged = np.diff(tags.indptr) > 0
    memberships = memberships * tagged[:, None]
    groups = np.where(tagged, memberships.argmax(axis=1), UNKNOWN)
    return Constraints(tags.shape[0], groups=renumber(groups), memberships=memberships)


def _shared_tags(tags: sparse.csr_array, more_than: int = 4, per_row: int = 10) -> Constraints:
    """Pairs of method 5; of the many dissimilar pairs, ``per_row`` evenly spread ones a row."""
    n = tags.shape[0]
    shared = sparse.coo_array(sparse.triu(tags @ tags.T, k=1))
    keep = shared.data > more_than
    similar = np.column_stack([shared.coords[0][keep], shared.coords[1][keep]])
    if len(similar) == 0:
        raise InputError(
            f"no two images share more than {more_than} tags",
            remedy="use another method of making constraints",
        )
    overlap = sparse.csr_array(tags @ tags.T)
    involved = np.unique(similar)
    rows: list[Ints] = []
    for i in involved:
        touching = overlap.indices[overlap.indptr[i] : overlap.indptr[i + 1]]
        apart = np.setdiff1d(np.arange(n), touching, assume_unique=True)
        if len(apart):
            chosen = apart[np.linspace(0, len(apart) - 1, min(per_row, len(apart))).astype(int)]
            rows.append(np.column_stack([np.full(len(chosen), i), chosen]))
    dissimilar = np.concatenate(rows) if rows else np.empty((0, 2), dtype=np.int64)
    return Constraints(n, similar=similar.astype(np.int64), dissimilar=dissimilar.astype(np.int64))


def _unit(tags: sparse.csr_array) -> Array:
    dense = tags.toarray()
    lengths = np.linalg.norm(dense, axis=1, keepdims=True)
    return dense / np.where(lengths > 0, lengths, 1.0)


def _unit_mean(block: Array) -> Array:
    centred = block - block.mean(axis=0)
    scale = np.sqrt(np.mean(np.einsum("ij,ij->i", centred, centred)))
    return centred / (scale if scale > 0 else 1.0)


def sample_pairs(
    constraints: Constraints, n_pairs: int, rng: np.random.Generator
) -> tuple[Ints, Ints]:
    """Similar and dissimilar pairs, at most ``n_pairs`` of each.

    Explicit pairs are returned as they are (a random subset when there are more). From groups,
    pairs are drawn uniformly: similar ones among all pairs within groups, dissimilar ones among all
    pairs across groups; repeated draws and mirror images are removed.
    """
    if constraints.groups is None:
        assert constraints.similar is not None and constraints.dissimilar is not None
        return (
            _subset(constraints.similar, n_pairs, rng),
            _subset(constraints.dissimilar, n_pairs, rng),
        )
    groups = renumber(constraints.groups)
    known = np.flatnonzero(groups != UNKNOWN)
    order = known[np.argsort(groups[known], kind="stable")]
    sizes = np.bincount(groups[known])
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    weight = sizes * (sizes - 1.0)
    if weight.sum() == 0:
        raise InputError("every row is alone in its class", expected="classes of several rows")
    which = rng.choice(len(sizes), size=n_pairs, p=weight / weight.sum())
    first = rng.integers(sizes[which])
    second = (first + 1 + rng.integers(sizes[which] - 1)) % sizes[which]
    similar = np.column_stack([order[starts[which] + first], order[starts[which] + second]])
    a, b = rng.choice(known, size=(2, 4 * n_pairs))
    across = groups[a] != groups[b]
    dissimilar = np.column_stack([a[across], b[across]])[:n_pairs]
    return _distinct(similar), _distinct(dissimilar)


def _subset(pairs: Ints, size: int, rng: np.random.Generator) -> Ints:
    pairs = _distinct(pairs)
    if len(pairs) <= size:
        return pairs
    return pairs[np.sort(rng.choice(len(pairs), size=size, replace=False))]


def _distinct(pairs: Ints) -> Ints:
    ordered = np.sort(pairs, axis=1)
    return np.unique(ordered[ordered[:, 0] != ordered[:, 1]], axis=0)


def constraint_embedding(constraints: Constraints, n_components: int) -> Array:
    """Rows whose inner products are the clipped constraint matrix, kept to its leading part.

    S has 1 for similar pairs (and on the diagonal), -1 for dissimilar and 0 for unknown ones. Its
    nearest positive semidefinite matrix of rank ``n_components`` is U diag(l) U' over the largest
    positive eigenvalues; U diag(l)^(1/2) is returned.
    """
    if n_components < 1:
        raise InputError(f"n_components is {n_components}", expected="at least 1")
    n = constraints.n_rows
    if constraints.groups is not None:
        values, vectors = _group_spectrum(renumber(constraints.groups))
    else:
        S = constraints.signs() + sparse.eye_array(n, format="csr")
        wanted = min(n_components, n - 1)
        if n <= 200 or wanted > n // 3:
            values, vectors = linalg.eigh(S.toarray())
        else:
            start = np.random.default_rng(0).standard_normal(n)
            operator = LinearOperator((n, n), matvec=lambda v: S @ v, dtype=np.float64)
            values, vectors = eigsh(operator, k=wanted, which="LA", v0=start)
    order = np.argsort(-values)[:n_components]
    order = order[values[order] > 1e-10 * values[order[0]]]
    return vectors[:, order] * np.sqrt(values[order])


def _group_spectrum(groups: Ints) -> tuple[Array, Array]:
    """Spectrum of S = 2 Z Z' - 1 1' over the known rows (Z one-hot), through a g x g matrix."""
    sizes = np.bincount(groups[groups != UNKNOWN]).astype(np.float64)
    small = np.diag(2.0 * sizes) - np.sqrt(np.outer(sizes, sizes))
    values, vectors = linalg.eigh(small)
    rows = np.zeros((len(groups), len(sizes)))
    known = groups != UNKNOWN
    rows[known] = (vectors / np.sqrt(sizes)[:, None])[groups[known]]
    return values, rows
