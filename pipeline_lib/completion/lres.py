"""LRES: tag refinement towards low rank, content-tag prior and error sparsity."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, sparse

from pipeline_lib.base import IterativeEstimator
from pipeline_lib.completion.base import TagCompleter, VisualInput, check_count, check_positive
from pipeline_lib.completion.cooccurrence import tag_counts
from pipeline_lib.completion.visual_graph import visual_laplacian
from pipeline_lib.errors import InputError
from pipeline_lib.graphs.laplacian import laplacian as graph_laplacian
from pipeline_lib.optimize.proximal import prox_l1
from pipeline_lib.optimize.singular_values import shrink_singular_values

Array = NDArray[np.float64]


class LRES(TagCompleter, IterativeEstimator):
    """Split the observed tags into a low-rank part and sparse errors.

        min_{A, E}  ||A||_tr + l1 ||E||_1 + l2 [tr(A' L_img A) + tr(A L_tag A')]
                    + ||D - A - E||_F^2 / (2 mu)

    A : n x m, the refined tags and the scores;
    E : n x m, the errors of the observed tags;
    L_img : Laplacian of the visual graph; without it the method is LRES0 (see `LRES0`);
    L_tag : Laplacian of the tags, weighted by the cosine of their co-occurrence.

    Parameters
    ----------
    l1 : float, default=1.0
        Weight of the errors.
    l2 : float, default=2**-10
        Weight of the two graph terms.
    max_iter : int, default=50
        Number of iterations: mu falls from its start mu_0 = ||D||_2 by the factor .9 in each (not
        below 1e-9 mu_0), so this also says how closely A + E fits D. The method stops there by
        definition; it does not look for a fixed point.
    visual : bool, default=True
        Use the visual graph, from ``laplacian`` or built from X.
    n_neighbors, metric
        Of the visual graph built from X (see `visual_laplacian`).

    Attributes
    ----------
    scores_ : ndarray of shape (n, m)
        A.
    errors_ : ndarray of shape (n, m)
        E.
    rank_ : int
        Rank of A.
    objective_, history_, n_iter_, converged_
        As in `IterativeEstimator`; each value belongs to the mu of its iteration, so that the
        sequence need not fall.

    References
    ----------
    Zhu, Yan and Ma, Image tag refinement towards low-rank, content-tag prior and error sparsity,
    2010; its published settings are the defaults.
    """

    errors_: Array
    rank_: int

    def __init__(
        self,
        l1: float = 1.0,
        l2: float = 2.0**-10,
        max_iter: int = 50,
        visual: bool = True,
        n_neighbors: int | None = None,
        metric: str = "euclidean",
    ) -> None:
        self.l1 = l1
        self.l2 = l2
        self.max_iter = max_iter
        self.visual = visual
        self.n_neighbors = n_neighbors
        self.metric = metric

    @property
    def visual_input(self) -> VisualInput:
        """The visual graph, unless it is left out."""
        return "graph" if self.visual else "none"

    def _complete(
        self, D: sparse.csr_array, X: Array | None, laplacian: sparse.csr_array | None
    ) -> Array:
        check_positive("l1", self.l1)
        check_positive("l2", self.l2, zero=True)
        check_count("max_iter", self.max_iter)
        if self.visual and laplacian is None:
            if X is None:
                raise InputError(
                    "LRES needs a graph over the images",
                    expected="features X or a laplacian",
                    remedy="use visual=False (LRES0) for tags alone",
                )
            laplacian = visual_laplacian(X, self.n_neighbors, self.metric)
        return self._split(D.toarray(), laplacian if self.visual else None, _tag_laplacian(D))

    def _split(
        self, D: Array, image_graph: sparse.csr_array | None, tag_graph: sparse.csr_array
    ) -> Array:
        A = before_A = np.zeros_like(D)
        E = before_E = np.zeros_like(D)
        mu = first_mu = float(np.sqrt(linalg.eigvalsh(_small_gram(D))[-1]))
        curvature = _largest(tag_graph) + (0.0 if image_graph is None else _largest(image_graph))
        momentum = 1.0
        history: list[float] = []

        def graph_gradient(M: Array) -> Array:
            smoothed = M @ tag_graph
            return smoothed if image_graph is None else smoothed + image_graph @ M

        for _ in range(self.max_iter):
            ahead = (1.0 + np.sqrt(1.0 + 4.0 * momentum**2)) / 2.0
            weight, momentum = (momentum - 1.0) / ahead, ahead
            ZA, ZE = A + weight * (A - before_A), E + weight * (E - before_E)
            # The objective times mu: (A, E) -> ||D - A - E||^2 / 2 has Lipschitz constant 2.
            step = 1.0 / (2.0 + 2.0 * mu * self.l2 * curvature)
            misfit = ZA + ZE - D
            gradient = misfit + 2.0 * mu * self.l2 * graph_gradient(ZA)
            shrunk = shrink_singular_values(ZA - step * gradient, mu * step)
            before_A, before_E = A, E
            A = shrunk.left @ shrunk.right.T
            E = prox_l1(ZE - step * misfit, mu * self.l1 * step)
            history.append(
                shrunk.trace_norm
                + self.l1 * float(np.abs(E).sum())
                + self.l2 * float(np.vdot(A, graph_gradient(A)))
                + float(np.square(D - A - E).sum()) / (2.0 * mu)
            )
            mu = max(0.9 * mu, 1e-9 * first_mu)
        self.errors_ = E
        self.rank_ = len(shrunk.singular_values)
        self._record_convergence({"objective": history}, converged=True, n_iter=len(history))
        return A


class LRES0(LRES):
    """`LRES` without the visual graph: the tags alone.

    Parameters
    ----------
    l1, l2, max_iter
        As in `LRES`.

    References
    ----------
    Feng, thesis, section 4.7.3.1.
    """

    def __init__(self, l1: float = 1.0, l2: float = 2.0**-10, max_iter: int = 50) -> None:
        super().__init__(l1=l1, l2=l2, max_iter=max_iter, visual=False)


def _tag_laplacian(D: sparse.csr_array) -> sparse.csr_array:
    counts, frequency = tag_counts(D)
    length = np.sqrt(np.maximum(frequency, 1.0))
    return graph_laplacian(counts / np.outer(length, length))


def _largest(graph: sparse.csr_array) -> float:
    """Bound of the largest eigenvalue (Gershgorin)."""
    return float(abs(graph).sum(axis=1).max())


def _small_gram(D: Array) -> Array:
    return D.T @ D if D.shape[0] >= D.shape[1] else D @ D.T
