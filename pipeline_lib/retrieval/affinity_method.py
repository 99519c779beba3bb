"""Methods that rank by diffusion on a fixed affinity graph."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline_lib.errors import InputError
from pipeline_lib.graphs.affinity import GRAPHS, Graph, gaussian_affinity
from pipeline_lib.retrieval.base import Floats, Ints, RetrievalMethod, blocks


class AffinityMethod(RetrievalMethod):
    """A retrieval method on the affinity graph of `graphs.affinity.gaussian_affinity`.

    Subclasses take its parameters (`graph`, `n_neighbors`, `sigma`, `local_scale`,
    `scale_neighbors`) in their constructor and compute columns of scores from the graph.

    Attributes
    ----------
    affinity_ : csr_array, or ndarray for the full graph, of shape (n, n)
        W, symmetric with zero diagonal.
    degrees_ : ndarray of shape (n,)
        Row sums of W; 1 for an isolated point, whose row of ``D^-1 W`` is then 0.
    unreached_ : ndarray of int, shape (n_queries,)
        Points that got score 0 in the latest ranking.
    """

    graph: Graph
    n_neighbors: int
    sigma: float | None
    local_scale: float | None
    scale_neighbors: int
    affinity_: Any
    degrees_: Floats
    unreached_: NDArray[np.int64]

    def _needed_neighbors(self, n: int) -> int:
        if self.graph not in GRAPHS:
            raise InputError(f"graph is {self.graph!r}", expected="one of " + ", ".join(GRAPHS))
        needed = 0 if self.graph == "full" else self.n_neighbors
        if self.local_scale is not None:
            needed = max(needed, self.scale_neighbors)
        if needed and not 1 <= needed <= n - 1:
            raise InputError(
                f"{needed} neighbours are asked for {n} points", expected=f"1 to {n - 1}"
            )
        return needed

    def _prepare(self) -> None:
        self._check()
        self.affinity_ = gaussian_affinity(
            self.X_,
            self.neighbors_,
            graph=self.graph,
            n_neighbors=self.n_neighbors,
            sigma=self.sigma,
            local_scale=self.local_scale,
            scale_neighbors=self.scale_neighbors,
        )
        degrees = np.asarray(self.affinity_.sum(axis=1), dtype=np.float64).ravel()
        self.degrees_ = np.where(degrees > 0, degrees, 1.0)

    def _scores(self, queries: list[Ints]) -> Floats:
        n = len(self.X_)
        scores = np.zeros((len(queries), n))
        for block in blocks(len(queries), n):
            some = queries[block]
            points = np.concatenate(some)
            columns = np.repeat(np.arange(len(some)), [len(query) for query in some])
            scores[block] = self._columns(points, columns, len(some)).T
        self.unreached_ = np.count_nonzero(scores == 0.0, axis=1)
        return scores

    def _check(self) -> None:
        """Check the method's own parameters."""

    def _columns(self, points: Ints, columns: Ints, n_columns: int) -> Floats:
        """Scores of all points, one column a query; ``points[p]`` belongs to ``columns[p]``."""
        raise NotImplementedError

    def _walk(self) -> Any:
        """Transition matrix ``P = D^-1 W``, rows of isolated points zero."""
        if isinstance(self.affinity_, np.ndarray):
            return self.affinity_ / self.degrees_[:, None]
        walk = self.affinity_.copy()
        walk.data /= np.repeat(self.degrees_, np.diff(walk.indptr))
        return walk


def indicator(points: Ints, columns: Ints, shape: tuple[int, int]) -> Floats:
    """Query indicator y, one column a query."""
    y = np.zeros(shape)
    y[points, columns] = 1.0
    return y


def check_fraction(name: str, value: float) -> None:
    """Check a damping factor."""
    if not 0.0 < value < 1.0:
        raise InputError(f"{name} is {value}", expected="a number between 0 and 1")


def check_steps(value: int) -> None:
    """Check a number of diffusion steps."""
    if value < 1:
        raise InputError(f"n_steps is {value}", expected="at least 1")
