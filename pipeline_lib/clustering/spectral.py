"""Spectral embedding of a neighbour graph: the modern company of the coding methods."""

from __future__ import annotations

from typing import Literal, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import ArpackNoConvergence, eigsh
from sklearn.base import BaseEstimator, TransformerMixin

from pipeline_lib.clustering.coder import check_number
from pipeline_lib.errors import InputError
from pipeline_lib.graphs.adaptive import initial_graph
from pipeline_lib.graphs.affinity import neighbor_pairs
from pipeline_lib.graphs.neighbors import as_points, nearest_neighbors

Array = NDArray[np.float64]
Graph = Literal["union", "adaptive"]
_GRAPHS = ("union", "adaptive")
_DENSE_BELOW = 500


class SpectralEmbedding(TransformerMixin, BaseEstimator):
    """Rows embedded by the smoothest functions on their neighbour graph.

        min_F  tr(F' (I - D^{-1/2} W D^{-1/2}) F)    subject to   F'F = I

    W : (n, n) symmetric weights of the graph, D : diag(W 1), F : (n, n_components). Rows of F are scaled to
    norm 1 (Ng, Jordan, Weiss 2002); k-means on them is spectral clustering.

    Parameters
    ----------
    n_components : int, default=10
        Usually the number of clusters; 1 to n.
    n_neighbors : int, default=5
    graph : {"union", "adaptive"}, default="union"
        Weight 1 where either row is among the other's nearest, or (S + S')/2 of the adaptive-neighbour
        weights of the rows.

    Attributes
    ----------
    embedding_ : ndarray of shape (n, n_components)
    eigenvalues_ : ndarray of shape (n_components,)
        Ascending eigenvalues of the normalised Laplacian, within [0, 2].
    n_connected_ : int
        Components of the graph: the multiplicity of the eigenvalue 0.
    graph_ : csr_array of shape (n, n)

    References
    ----------
    Ng, Jordan, Weiss, "On spectral clustering: analysis and an algorithm", NIPS 2002.
    """

    def __init__(
        self, n_components: int = 10, n_neighbors: int = 5, graph: Graph = "union"
    ) -> None:
        self.n_components = n_components
        self.n_neighbors = n_neighbors
        self.graph = graph

    def fit(self, X: ArrayLike, y: object = None) -> Self:
        """Build the graph of X, shape (n, d), and embed its rows."""
        rows = as_points(X)
        check_number("n_components", self.n_components, least=1, whole=True)
        if self.n_components > len(rows):
            raise InputError(
                f"n_components is {self.n_components} for {len(rows)} rows",
                expected=f"1 to {len(rows)}",
            )
        if self.graph not in _GRAPHS:
            raise InputError(
                f"unknown graph {self.graph!r}", expected=f"one of {', '.join(_GRAPHS)}"
            )
        self.graph_ = self._build(rows)
        self.n_connected_ = int(connected_components(self.graph_, directed=False)[0])
        self.eigenvalues_, vectors = smoothest_functions(self.graph_, self.n_components)
        norms = np.linalg.norm(vectors, axis=1, keepdims=True)
        self.embedding_ = np.divide(vectors, norms, out=np.zeros_like(vectors), where=norms > 0.0)
        self.n_features_in_ = rows.shape[1]
        return self

    def fit_transform(self, X: ArrayLike, y: object = None) -> Array:
        """Fit and return ``embedding_``; rows outside X have no embedding."""
        return self.fit(X).embedding_

    def _build(self, X: Array) -> sp.csr_array:
        if self.graph == "adaptive":
            weights, _ = initial_graph(X, self.n_neighbors)
            return sp.csr_array(0.5 * (weights + weights.T))
        pairs = neighbor_pairs(
            nearest_neighbors(X, self.n_neighbors), self.n_neighbors, graph="union"
        )
        pairs.data = np.ones_like(pairs.data)
        return pairs


def smoothest_functions(graph: sp.csr_array, n_functions: int) -> tuple[Array, Array]:
    """Lowest eigenpairs of I - D^{-1/2} W D^{-1/2}, ascending.

    Found as the largest of I + D^{-1/2} W D^{-1/2}: shift-and-invert at 0 is unreliable on graphs of
    several components, where 0 is a multiple eigenvalue. Small graphs are decomposed densely.
    """
    n = graph.shape[0]
    degrees = np.asarray(graph.sum(axis=1)).ravel()
    scale = np.divide(1.0, np.sqrt(degrees), out=np.zeros(n), where=degrees > 0.0)
    normalized = sp.diags_array(scale) @ graph @ sp.diags_array(scale)
    mirrored = sp.csr_array(sp.eye_array(n) + normalized)
    if n > _DENSE_BELOW and n_functions < n // 4:
        try:
            values, vectors = eigsh(
                mirrored, k=n_functions, which="LA", v0=np.sqrt(np.maximum(degrees, 0.0)) + 1.0
            )
        except ArpackNoConvergence:
            values, vectors = _dense(mirrored, n_functions)
    else:
        values, vectors = _dense(mirrored, n_functions)
    order = np.argsort(-values, kind="stable")
    return np.clip(2.0 - values[order], 0.0, 2.0), vectors[:, order]


def _dense(matrix: sp.csr_array, n_functions: int) -> tuple[Array, Array]:
    values, vectors = np.linalg.eigh(matrix.toarray())
    return values[-n_functions:], vectors[:, -n_functions:]
