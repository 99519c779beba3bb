"""What the sparse coding estimators share: fitting, coding new rows, plain-array state."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, Literal, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from sklearn.base import TransformerMixin
from sklearn.exceptions import ConvergenceWarning

from pipeline_lib.base import IterativeEstimator
from pipeline_lib.clustering.alternation import alternate, random_dictionary
from pipeline_lib.clustering.code_solver import CodeProblem, solve_codes
from pipeline_lib.clustering.feature_sign import solve_codes_by_feature_sign
from pipeline_lib.clustering.graph_terms import GraphTerm
from pipeline_lib.errors import InputError
from pipeline_lib.graphs.neighbors import as_points
from pipeline_lib.seeds import RandomState, as_generator

Array = NDArray[np.float64]
Solver = Literal["batch", "feature-sign"]
_SOLVERS = {"batch": solve_codes, "feature-sign": solve_codes_by_feature_sign}
_INITIAL_DICTIONARIES = ("random", "samples")


class SparseCoder(TransformerMixin, IterativeEstimator):
    """Base of the sparse coding estimators: `fit`, `transform`, state.

    Subclasses store the parameters named below and define `_make_graph`.
    """

    n_atoms: int
    beta: float
    tol: float
    max_iter: int
    solver: Solver
    code_tol: float
    initial_dictionary: Any
    random_state: RandomState

    def fit(self, X: ArrayLike, y: object = None) -> Self:
        """Learn dictionary, codes and (where the method does) the graph.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Rows as they shall be coded: nothing is centred or scaled here, and what `beta` means
            depends on their scale.
        y : ignored

        Returns
        -------
        self

        Raises
        ------
        InputError
            If X is not a finite matrix or a parameter is out of range.
        """
        rows = as_points(X)
        self._check_parameters()
        dictionary = self._start(rows, as_generator(self.random_state))
        graph = self._make_graph(rows)
        result = alternate(
            rows,
            dictionary,
            graph,
            beta=self.beta,
            lam=self._smoothness(),
            tol=self.tol,
            max_iter=self.max_iter,
            code_tol=self.code_tol,
            solver=_SOLVERS[self.solver],
        )
        self.n_features_in_ = rows.shape[1]
        self.dictionary_ = result.dictionary
        self.codes_ = result.codes
        n = len(rows)
        self.graph_ = sp.csr_array((n, n)) if graph is None else graph.graph
        self._keep(rows, graph)
        if not result.codes_converged:
            warnings.warn(
                f"the codes of {type(self).__name__} stopped at a residual of "
                f"{result.history['code_residual'][-1]:.1g}; loosen code_tol or raise beta",
                ConvergenceWarning,
                stacklevel=2,
            )
        self._record_convergence(result.history, converged=result.converged, n_iter=result.n_iter)
        return self

    def fit_transform(self, X: ArrayLike, y: object = None) -> Array:
        """Fit and return ``codes_``, shape (n, n_atoms)."""
        return self.fit(X).codes_

    def transform(self, X: ArrayLike) -> Array:
        """Code new rows with the learned dictionary.

        Solves, for every row x on its own, with the training codes held::

            min_h  ||x - h D||^2 + beta ||h||_1 + lam sum_j p_j ||h - h_j||^2

        where p_j are the weights by which x would be attached to the training rows; methods without a
        graph have none, and their codes are those of the lasso.

        Parameters
        ----------
        X : array-like of shape (m, d)

        Returns
        -------
        ndarray of shape (m, n_atoms)
        """
        if not hasattr(self, "dictionary_"):
            raise InputError(f"this {type(self).__name__} is not fitted", remedy="call fit first")
        rows = as_points(X)
        if rows.shape[1] != self.n_features_in_:
            raise InputError(
                f"X has {rows.shape[1]} features", expected=f"{self.n_features_in_} as in fit"
            )
        target, coupling = rows @ self.dictionary_.T, None
        lam = self._smoothness()
        weights = self._attach(rows) if lam > 0.0 else None
        if weights is not None:
            target += lam * (weights @ self.codes_)
            coupling = sp.diags_array(lam * np.asarray(weights.sum(axis=1)).ravel(), format="csr")
        gram = self.dictionary_ @ self.dictionary_.T
        problem = CodeProblem(gram, target, self.beta, coupling)
        return _SOLVERS[self.solver](problem, None, tol=self.code_tol).codes

    def get_state(self) -> dict[str, NDArray[Any]]:
        """Everything `transform` needs, as plain arrays."""
        if not hasattr(self, "dictionary_"):
            raise InputError(f"this {type(self).__name__} is not fitted", remedy="call fit first")
        graph = sp.csr_array(self.graph_)
        state = {name: np.asarray(getattr(self, name)) for name in self._state_names()}
        for part in ("data", "indices", "indptr"):
            state[f"graph_.{part}"] = np.asarray(getattr(graph, part))
        return state

    @classmethod
    def from_state(cls, params: Mapping[str, Any], state: Mapping[str, NDArray[Any]]) -> Self:
        """Restore a fitted model from ``get_params()`` and ``get_state()``.

        Raises
        ------
        InputError
            When an array the model needs is missing.
        """
        model = cls(**params)
        names = (*cls._state_names(), "graph_.data", "graph_.indices", "graph_.indptr")
        missing = [name for name in names if name not in state]
        if missing:
            raise InputError(f"the state of a {cls.__name__} lacks {', '.join(missing)}")
        for name in cls._state_names():
            value = np.asarray(state[name])
            setattr(model, name, value.item() if value.ndim == 0 else value)
        data, indices, indptr = (state[f"graph_.{part}"] for part in ("data", "indices", "indptr"))
        n = len(indptr) - 1
        model.graph_ = sp.csr_array((data, indices, indptr), shape=(n, n))
        return model

    @abstractmethod
    def _make_graph(self, X: Array) -> GraphTerm | None:
        """The graph term of the objective; None without a graph."""

    def _smoothness(self) -> float:
        """lam, the weight of tr(H' L_S H)."""
        return 0.0

    def _keep(self, X: Array, graph: GraphTerm | None) -> None:
        """Fitted attributes beyond dictionary, codes and graph."""

    def _attach(self, X: Array) -> sp.csr_array | None:
        """Weights p of new rows (m) to the training rows (n), shape (m, n), or None."""
        return None

    @classmethod
    def _state_names(cls) -> tuple[str, ...]:
        return ("n_features_in_", "dictionary_", "codes_")

    def _check_parameters(self) -> None:
        """Refuse parameters out of range, naming them."""
        check_number("n_atoms", self.n_atoms, least=1, whole=True)
        check_number("beta", self.beta, least=0.0)
        check_number("tol", self.tol, least=0.0)
        check_number("max_iter", self.max_iter, least=1, whole=True)
        check_number("code_tol", self.code_tol, least=0.0)
        if self.solver not in _SOLVERS:
            raise InputError(
                f"unknown solver {self.solver!r}", expected=f"one of {', '.join(_SOLVERS)}"
            )

    def _start(self, X: Array, rng: np.random.Generator) -> Array:
        n_features = X.shape[1]
        if isinstance(self.initial_dictionary, str):
            if self.initial_dictionary == "random":
                return random_dictionary(self.n_atoms, n_features, rng)
            if self.initial_dictionary == "samples":
                return sample_dictionary(X, self.n_atoms, rng)
            raise InputError(
                f"unknown initial_dictionary {self.initial_dictionary!r}",
                expected=f"an array or one of {', '.join(_INITIAL_DICTIONARIES)}",
            )
        atoms = np.array(as_points(self.initial_dictionary, what="initial_dictionary"))
        if atoms.shape != (self.n_atoms, n_features):
            raise InputError(
                f"initial_dictionary has shape {atoms.shape}",
                expected=f"({self.n_atoms}, {n_features})",
            )
        return atoms / np.maximum(np.linalg.norm(atoms, axis=1, keepdims=True), 1.0)


def sample_dictionary(X: Array, n_atoms: int, rng: np.random.Generator) -> Array:
    """Rows drawn without replacement (repeated once all are used) and scaled to norm 1.

    Rows of zeros are never drawn; where there are no others, atoms are random.
    """
    norms = np.linalg.norm(X, axis=1)
    usable = np.flatnonzero(norms > 0.0)
    if not len(usable):
        return random_dictionary(n_atoms, X.shape[1], rng)
    rounds = -(-n_atoms // len(usable))
    drawn = np.concatenate([rng.permutation(usable) for _ in range(rounds)])[:n_atoms]
    return X[drawn] / norms[drawn, None]


def check_number(name: str, value: Any, *, least: float, whole: bool = False) -> None:
    """Refuse a parameter that is not a finite number of at least `least`."""
    kinds = (int, np.integer) if whole else (int, float, np.integer, np.floating)
    good = isinstance(value, kinds) and not isinstance(value, bool)
    if not good or not np.isfinite(value) or value < least:
        kind = "an integer" if whole else "a number"
        raise InputError(f"{name} is {value!r}", expected=f"{kind} of at least {least:g}")
