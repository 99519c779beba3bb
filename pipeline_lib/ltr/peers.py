"""Gradient-boosted trees for ranking, through their own libraries (extra ``peers``).

LambdaMART boosts regression trees on lambda gradients: for a pair of documents with different labels,
the derivative of the pairwise logistic loss weighted by the change of NDCG that swapping the two would
make. BL-MART averages a bag of LambdaMART models, each trained on a random sample of the queries.

References
----------
Burges, From RankNet to LambdaRank to LambdaMART, 2010. Ganjisaffar, Caruana and Lopes, Bagging
gradient-boosted trees for high precision, low variance ranking models, 2011 (BL-MART).
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from types import ModuleType
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pipeline_lib.errors import InputError
from pipeline_lib.kernels.functions import as_rows
from pipeline_lib.ltr.base import Ranker
from pipeline_lib.ltr.queries import check_labels
from pipeline_lib.seeds import RandomState, as_generator

Array = NDArray[np.float64]
Index = NDArray[np.intp]

XGBOOST_OBJECTIVES = ("rank:ndcg", "rank:pairwise")


def _library(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise InputError(
            f"{name} is not installed",
            remedy="install the extra: pip install 'affinity-bench[peers]'",
        ) from error


class _TreeRanker(Ranker):
    """Checks shared by the adapters; the model is kept as the library's own text.

    Labels of the libraries are whole numbers of at least 0: each distinct label becomes its rank
    among the labels, so that 0, 1, 2 stay what they are.

    Attributes
    ----------
    model_ : ndarray of uint8
        The trees, in the library's own format.
    objective_, history_, n_iter_, converged_
        See `IterativeEstimator`; the objective is minus the library's NDCG at 10 on the training rows.
    """

    model_: NDArray[np.uint8]

    _state_names: ClassVar[tuple[str, ...]] = ("n_features_in_", "model_")

    def _grouped(self, X: ArrayLike, y: ArrayLike, qid: ArrayLike) -> tuple[Array, Index, Index]:
        """Rows, label ranks and query numbers, in an order that depends on the rows alone."""
        rows = as_rows(X)
        labels = check_labels(y, qid, len(rows))
        values, rank = np.unique(labels.y, return_inverse=True)
        if not (values >= 0).all() or not (values == np.round(values)).all() or values.max() > 30:
            level = rank.reshape(-1)
        else:
            level = labels.y.astype(np.intp)
        if level.max() > 30:
            raise InputError(
                f"{len(values)} distinct labels", expected="at most 31 for gradient-boosted trees"
            )
        # Queries in order of their ids, rows of a query in order of their values: the trees then
        # do not depend on the order in which rows came.
        order = np.lexsort((*rows.T, level, labels.query))
        self.n_features_in_ = rows.shape[1]
        return rows[order], level[order], labels.query[order]

    def _record_ndcg(self, values: Sequence[float]) -> Self:
        self._record_convergence(
            {"objective": [-value for value in values]}, converged=True, n_iter=len(values)
        )
        return self


class LightGBMRanker(_TreeRanker):
    """LightGBM's lambdarank.

    Parameters
    ----------
    n_estimators : int, default 200
    learning_rate : float, default 0.1
    num_leaves : int, default 7
    min_child_samples : int, default 50
    n_jobs : int, default 1
    random_state : int, Generator, RandomState or None

    Raises
    ------
    InputError
        In `fit`, without the library (extra ``peers``) and for data that cannot be used.
    """

    def __init__(
        self,
        n_estimators: int = 200,
        learning_rate: float = 0.1,
        num_leaves: int = 7,
        min_child_samples: int = 50,
        n_jobs: int = 1,
        random_state: RandomState = 0,
    ) -> None:
        self.n_estimators = n_estimators
        self.learning_rate = learning_rate
        self.num_leaves = num_leaves
        self.min_child_samples = min_child_samples
        self.n_jobs = n_jobs
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: ArrayLike, qid: ArrayLike) -> Self:
        """Fit on documents ``X`` (n, d) with labels ``y`` (n,) and query ids ``qid`` (n,)."""
        lightgbm = _library("lightgbm")
        rows, level, query = self._grouped(X, y, qid)
        data = lightgbm.Dataset(rows, label=level, group=np.bincount(query), params={"verbose": -1})
        parameters = {
            "objective": "lambdarank",
            "learning_rate": self.learning_rate,
            "num_leaves": self.num_leaves,
            "min_data_in_leaf": self.min_child_samples,
            "num_threads": self.n_jobs,
            "seed": int(as_generator(self.random_state).integers(2**31)),
            "deterministic": True,
            "force_row_wise": True,
            "metric": "ndcg",
            "eval_at": [10],
            "verbose": -1,
        }
        measured: dict[str, dict[str, list[float]]] = {}
        booster = lightgbm.train(
            parameters,
            data,
            num_boost_round=self.n_estimators,
            valid_sets=[data],
            valid_names=["train"],
            callbacks=[lightgbm.record_evaluation(measured)],
        )
        self.model_ = np.frombuffer(booster.model_to_string().encode(), dtype=np.uint8)
        return self._record_ndcg(measured["train"]["ndcg@10"])

    def _scores(self, rows: Array) -> Array:
        booster = _library("lightgbm").Booster(model_str=self.model_.tobytes().decode())
        return np.asarray(booster.predict(rows, num_threads=self.n_jobs), dtype=np.float64)


class XGBoostRanker(_TreeRanker):
    """XGBoost's rank:ndcg or rank:pairwise.

    Parameters
    ----------
    objective : {"rank:ndcg", "rank:pairwise"}, default "rank:ndcg"
    n_estimators : int, default 100
    learning_rate : float, default 0.05
    max_depth : int, default 3
    n_jobs : int, default 1
    random_state : int, Generator, RandomState or None

    Raises
    ------
    InputError
        In `fit`, without the library (extra ``peers``) and for data that cannot be used.
    """

    def __init__(
        self,
        objective: str = "rank:ndcg",
        n_estimators: int = 100,
        learning_rate: float = 0.05,
        max_depth: int = 3,
        n_jobs: int = 1,
        random_state: RandomState = 0,
    ) -> None:
        self.objective = objective
        self.n_estimators = n_estimators
        self.learning_rate = learning_rate
        self.max_depth = max_depth
        self.n_jobs = n_jobs
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: ArrayLike, qid: ArrayLike) -> Self:
        """Fit on documents ``X`` (n, d) with labels ``y`` (n,) and query ids ``qid`` (n,)."""
        xgboost = _library("xgboost")
        if self.objective not in XGBOOST_OBJECTIVES:
            raise InputError(
                f"unknown objective {self.objective!r}",
                expected="one of " + ", ".join(XGBOOST_OBJECTIVES),
            )
        rows, level, query = self._grouped(X, y, qid)
        parameters = {
            "objective": self.objective,
            "eta": self.learning_rate,
            "max_depth": self.max_depth,
            "tree_method": "hist",
            "nthread": self.n_jobs,
            "seed": int(as_generator(self.random_state).integers(2**31)),
            "eval_metric": "ndcg@10",
        }
        data = xgboost.DMatrix(rows, label=level, qid=query)
        measured: dict[str, dict[str, list[float]]] = {}
        booster = xgboost.train(
            parameters,
            data,
            num_boost_round=self.n_estimators,
            evals=[(data, "train")],
            evals_result=measured,
            verbose_eval=False,
        )
        self.model_ = np.frombuffer(bytes(booster.save_raw("json")), dtype=np.uint8)
        return self._record_ndcg(measured["train"]["ndcg@10"])

    def _scores(self, rows: Array) -> Array:
        xgboost = _library("xgboost")
        booster = xgboost.Booster({"nthread": self.n_jobs})
        booster.load_model(bytearray(self.model_.tobytes()))
        return np.asarray(booster.predict(xgboost.DMatrix(rows)), dtype=np.float64)


class BaggedLambdaMART(_TreeRanker):
    """BL-MART: the mean score of LambdaMART models trained on random samples of the queries.

    A pool of ``n_models`` is trained, of which a random ``n_kept`` are averaged. The published
    results used a pool of 10,000.

    Parameters
    ----------
    n_models : int, default 30
        Size of the pool.
    n_kept : int, optional
        Models averaged; all by default.
    query_share : float, default 0.67
        Share of the queries that each model sees, drawn without replacement.
    n_estimators, learning_rate, num_leaves, min_child_samples, n_jobs
        See `LightGBMRanker`.
    random_state : int, Generator, RandomState or None
        For the samples and the choice from the pool.

    Attributes
    ----------
    model_ : ndarray of uint8
        The kept models one after the other.
    model_sizes_ : ndarray of shape (n_kept,)
        Bytes of each.
    """

    model_sizes_: Index

    _state_names: ClassVar[tuple[str, ...]] = ("n_features_in_", "model_", "model_sizes_")

    def __init__(
        self,
        n_models: int = 30,
        n_kept: int | None = None,
        query_share: float = 0.67,
        n_estimators: int = 200,
        learning_rate: float = 0.1,
        num_leaves: int = 7,
        min_child_samples: int = 50,
        n_jobs: int = 1,
        random_state: RandomState = 0,
    ) -> None:
        self.n_models = n_models
        self.n_kept = n_kept
        self.query_share = query_share
        self.n_estimators = n_estimators
        self.learning_rate = learning_rate
        self.num_leaves = num_leaves
        self.min_child_samples = min_child_samples
        self.n_jobs = n_jobs
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: ArrayLike, qid: ArrayLike) -> Self:
        """Fit on documents ``X`` (n, d) with labels ``y`` (n,) and query ids ``qid`` (n,)."""
        kept = self.n_models if self.n_kept is None else self.n_kept
        if self.n_models < 1 or not 1 <= kept <= self.n_models:
            raise InputError(
                f"{kept} of {self.n_models} models", expected="1 <= n_kept <= n_models"
            )
        if not 0 < self.query_share <= 1:
            raise InputError(f"query_share is {self.query_share}", expected="a number in (0, 1]")
        rows, level, query = self._grouped(X, y, qid)
        rng = as_generator(self.random_state)
        n_queries = int(query.max()) + 1
        size = max(1, round(self.query_share * n_queries))
        samples = [rng.choice(n_queries, size, replace=False) for _ in range(self.n_models)]
        # Models that are not kept need not be trained: the choice does not look at them.
        chosen = np.sort(rng.choice(self.n_models, kept, replace=False))
        members = []
        for k in chosen:
            mine = np.isin(query, samples[k])
            members.append(self._member(int(k)).fit(rows[mine], level[mine], query[mine]))
        self.model_ = np.concatenate([member.model_ for member in members])
        self.model_sizes_ = np.array([len(member.model_) for member in members], dtype=np.intp)
        return self._record_ndcg([-member.objective_ for member in members])

    def _member(self, seed: int) -> LightGBMRanker:
        return LightGBMRanker(
            self.n_estimators,
            self.learning_rate,
            self.num_leaves,
            self.min_child_samples,
            self.n_jobs,
            seed,
        )

    def _scores(self, rows: Array) -> Array:
        total = np.zeros(len(rows))
        for model in np.split(self.model_, np.cumsum(self.model_sizes_)[:-1]):
            state: dict[str, Any] = {"n_features_in_": self.n_features_in_, "model_": model}
            member = LightGBMRanker.from_state({"n_jobs": self.n_jobs}, state)
            total += member.predict(rows)
        return total / len(self.model_sizes_)
