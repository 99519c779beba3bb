"""Learning to rank: fits against the plain reference and tree ensembles, and growth with the data."""

from __future__ import annotations

import importlib.util
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.datasets import load_svmlight_file

from pipeline_lib.kernels.fourier import FourierFeatures
from pipeline_lib.ltr.kernel_ranksvm import KernelRankSVM
from pipeline_lib.ltr.pairwise import PreferencePairs
from pipeline_lib.ltr.primal import fit_path
from pipeline_lib.ltr.rank_nystroem import RankNystroem
from pipeline_lib.ltr.rank_random_fourier import RankRandomFourier
from pipeline_lib.ltr.ranksvm import RankSVM
from pipeline_lib.ltr.rows import map_rows
from pipeline_lib.metrics.ranking import ranking_metrics

try:
    from tests.performance._table import print_table
except ImportError:  # run as a script, with this folder on the path
    from _table import print_table

GAMMA = 2.0**-8
FOLD_OF_MQ2007 = 42_158  # training documents of fold 1
SIZES = (10_000, 100_000, 1_000_000)


def fold(part: str) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    root = os.environ.get("AFFINITY_DATA")
    path = Path(root or ".") / "letor" / "MQ2008" / "Fold1" / f"{part}.txt"
    if root is None or not path.exists():
        return None
    X, y, qid = load_svmlight_file(str(path), query_id=True)
    return X.toarray(), y, qid


def alternately(calls: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """Median seconds of each call, all called in turn in every round."""
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            seconds[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in seconds.items()}


def against_the_reference() -> list[dict[str, Any]]:
    """Linear fits against explicit pairs and a dense Newton method, on more and more queries."""
    root = os.environ.get("AFFINITY_REFERENCE")
    path = Path(root or ".") / "ranksvm_plain.py"
    data = fold("train")
    if root is None or not path.exists() or data is None:
        return [{"what": "linear fit", "note": "skipped: needs AFFINITY_REFERENCE, AFFINITY_DATA"}]
    spec = importlib.util.spec_from_file_location("ranksvm_plain", path)
    assert spec is not None and spec.loader is not None
    plain = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(plain)
    rows = []
    for n in (1_000, len(data[0])):
        X, y, qid = (values[:n] for values in data)
        found: dict[str, Any] = {}
        seconds = alternately(
            {
                "ours": lambda: found.update(ours=RankSVM(C=0.5).fit(X, y, qid)),  # noqa: B023
                "peer": lambda: found.update(peer=plain.solve(X, y, qid, 0.5)),  # noqa: B023
            },
            rounds=1 if n > 5_000 else 3,
        )
        best = plain.objective(found["peer"], X, y, qid, 0.5)
        rows.append(
            {
                "what": f"linear fit, {n} documents",
                "ours_s": seconds["ours"],
                "peer_s": seconds["peer"],
                "ratio": seconds["peer"] / seconds["ours"],
                "note": f"explicit pairs; objectives differ by {found['ours'].objective_ / best - 1:.1e}",
            }
        )
    return rows


def against_trees() -> list[dict[str, Any]]:
    """Whole fits, feature map included, against tree ensembles at equal validation MAP.

    Every method walks its grid. The mark is the lowest of the methods' best validation MAPs, so each can
    reach it; timed is, for each method, the setting that reaches it in the least time.
    """
    parts = [fold(part) for part in ("train", "vali", "test")]
    if any(part is None for part in parts):
        return [{"what": "whole fits", "note": "skipped: needs MQ2008 Fold1 under AFFINITY_DATA"}]
    (X, y, qid), vali, test = (part for part in parts if part is not None)

    def measured(model: Any, part: tuple[np.ndarray, np.ndarray, np.ndarray]) -> float:
        return ranking_metrics(model.predict(part[0]), part[1], part[2]).means["map"]

    cheapest: dict[str, list[tuple[float, float, Any, str]]] = {}
    for name, candidates in _families().items():
        for model in candidates:
            start = time.perf_counter()
            _fit(model, X, y, qid)
            seconds = time.perf_counter() - start
            found = (seconds, measured(model, vali), model, _setting(model))
            cheapest.setdefault(name, []).append(found)
    mark = min(max(value for _, value, _, _ in tried) for tried in cheapest.values())
    chosen = {
        name: min((t for t in tried if t[1] >= mark), key=lambda t: t[0])
        for name, tried in cheapest.items()
    }
    calls = {name: partial(_fit, model, X, y, qid) for name, (_, _, model, _) in chosen.items()}
    seconds_of = alternately(calls, rounds=5)
    rows = []
    for name, (_, value, model, setting) in chosen.items():
        if name in PEERS:
            continue
        for peer, (_, peer_value, peer_model, peer_setting) in chosen.items():
            if peer not in PEERS:
                continue
            rows.append(
                {
                    "what": f"{name} / {peer}, validation MAP >= {mark:.4f}",
                    "ours_s": seconds_of[name],
                    "peer_s": seconds_of[peer],
                    "ratio": seconds_of[peer] / seconds_of[name],
                    "note": f"reached {value:.4f} ({setting}) / {peer_value:.4f} ({peer_setting}); "
                    f"test MAP {measured(model, test):.4f} / {measured(peer_model, test):.4f}",
                }
            )
    return rows


PEERS = ("LightGBM", "XGBoost")


def _families() -> dict[str, list[Any]]:
    """Settings to try, method by method; RankSVM stops as the authors' solver does."""
    families: dict[str, list[Any]] = {
        "RankSVM": [RankSVM(C=2.0**k, tol=1e-4) for k in range(-13, 6, 2)]
    }
    for name, method in (("RankNystroem", RankNystroem), ("RankRandomFourier", RankRandomFourier)):
        families[name] = [
            method(C=C, gamma=gamma, n_components=m, tol=1e-4, random_state=0)
            for m in (50, 100, 200, 500)
            for gamma in (2.0**-10, 2.0**-8, 2.0**-6, 2.0**-4, 2.0**-2)
            for C in (2.0**-7, 2.0**-3, 2.0)
        ]
    # The libraries' own estimators: our wrappers also record the training NDCG of every round.
    effort = [(rounds, rate) for rounds in (10, 25, 50, 100, 200, 400) for rate in (0.05, 0.1)]
    if importlib.util.find_spec("lightgbm") is not None:
        import lightgbm

        families["LightGBM"] = [
            lightgbm.LGBMRanker(
                n_estimators=rounds,
                learning_rate=rate,
                num_leaves=7,
                min_child_samples=50,
                verbose=-1,
                n_jobs=1,
            )
            for rounds, rate in effort
        ]
    if importlib.util.find_spec("xgboost") is not None:
        import xgboost

        families["XGBoost"] = [
            xgboost.XGBRanker(
                objective="rank:ndcg",
                n_estimators=rounds,
                learning_rate=rate,
                max_depth=3,
                n_jobs=1,
            )
            for rounds, rate in effort
        ]
    return families


def _fit(model: Any, X: np.ndarray, y: np.ndarray, qid: np.ndarray) -> None:
    if type(model).__module__.startswith("lightgbm"):
        model.fit(
            X, y, group=np.unique(qid, return_counts=True)[1]
        )  # LETOR files are in this order
    elif type(model).__module__.startswith("xgboost"):
        model.fit(X, y, qid=qid)
    else:
        model.fit(X, y, qid)


def _setting(model: Any) -> str:
    params = model.get_params()
    shown = ("n_components", "gamma", "C", "n_estimators", "learning_rate")
    return " ".join(f"{name} {params[name]:g}" for name in shown if params.get(name) is not None)


def generated(n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """``n`` documents of 136 features, 100 to a query, with labels 0 to 4."""
    X = np.empty((n, 136), dtype=np.float32)
    for start in range(0, n, 50_000):
        X[start : start + 50_000] = rng.random((min(50_000, n - start), 136), dtype=np.float32)
    signal = X @ rng.standard_normal(136).astype(np.float32)
    y = np.clip(np.round(signal - np.median(signal) + rng.standard_normal(n)), 0, 4)
    return X, y, np.arange(n) // 100


def in_own_process(*arguments: str) -> dict[str, float]:
    """Run this module with ``arguments``, so that peak memory is that of one measurement."""
    root = str(Path(__file__).resolve().parents[2])
    paths = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
    output = subprocess.run(
        [sys.executable, str(Path(__file__).resolve()), *arguments],
        check=True,
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": paths},
    )
    measured: dict[str, float] = json.loads(output.stdout)
    return measured


def one_size(n: int) -> dict[str, float]:
    """Seconds per Newton step and peak memory for ``n`` generated documents; run in its own process."""
    import resource

    X, y, qid = generated(n, np.random.default_rng(0))
    mapping = FourierFeatures(1000, 0.05, random_state=0).fit(X)
    # Processor time: the sizes are measured one after the other, on a machine with other work.
    start_map = time.process_time()
    rows = map_rows(mapping, X)
    start_fit = time.process_time()
    fit = next(fit_path(rows, y, qid, [1e-3], max_iter=3))
    done = time.process_time()
    return {
        "map_s": start_fit - start_map,
        "step_s": (done - start_fit) / fit.n_iter,
        "products": sum(fit.history["cg_iterations"]) / fit.n_iter,
        "peak_gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
    }


def growth() -> list[dict[str, Any]]:
    """One Newton step on random Fourier features (m = 1,000) from 10,000 to 1,000,000 documents."""
    rows = []
    first: dict[str, float] | None = None
    for n in SIZES:
        measured = in_own_process("--size", str(n))
        first = first or measured
        factor = (measured["step_s"] / first["step_s"]) / (n / SIZES[0])
        rows.append(
            {
                "what": f"Newton step, {n} x 136, Fourier 1000",
                "ours_s": measured["step_s"],
                "ratio": factor,
                "note": f"ratio: growth of time over growth of n (target <= 1.3); "
                f"{measured['products']:.0f} products a step; map {measured['map_s']:.1f} s; "
                f"peak {measured['peak_gib']:.2f} GiB (target < 6)",
            }
        )
    return rows


def kernel_growth() -> list[dict[str, Any]]:
    """Exact kernel against its approximations on more and more queries, with growth exponents."""
    data = fold("train")
    if data is None:
        return [{"what": "kernel growth", "note": "skipped: needs MQ2008 Fold1, AFFINITY_DATA"}]
    X, y, qid = data
    ends = np.append(np.flatnonzero(np.diff(qid)) + 1, len(qid))
    sizes = [int(ends[np.searchsorted(ends, n)]) for n in (1_000, 2_000, 4_000)] + [len(qid)]
    shared = {"gamma": GAMMA, "n_components": 500, "tol": 1e-4, "random_state": 0}
    exact = "KernelRankSVM"
    models = {
        exact: KernelRankSVM(C=1.0, gamma=GAMMA, tol=1e-4),
        "RankNystroem m=500": RankNystroem(C=1.0, **shared),
        "RankRandomFourier m=500": RankRandomFourier(C=1.0, **shared),
    }
    models[exact].fit(X[: sizes[0]], y[: sizes[0]], qid[: sizes[0]])  # imports and first touches
    seconds: dict[str, list[float]] = {name: [] for name in models}
    for n in sizes:
        for name, model in models.items():
            spent = []
            for _ in range(1 if name == exact else 3):
                start = time.process_time()
                model.fit(X[:n], y[:n], qid[:n])
                spent.append(time.process_time() - start)
            seconds[name].append(statistics.median(spent))
    # log seconds = intercept + exponent * log n, and what it says about MQ2007's training folds.
    lines = {name: np.polyfit(np.log(sizes), np.log(spent), 1) for name, spent in seconds.items()}
    predicted = {
        name: float(np.exp(np.polyval(line, np.log(FOLD_OF_MQ2007))))
        for name, line in lines.items()
    }
    rows = []
    for name in models:
        if name == exact:
            continue
        # Work that grows with m alone still weighs at these sizes; in the end an approximation is linear in n.
        linear = seconds[name][-1] * FOLD_OF_MQ2007 / sizes[-1]
        rows.append(
            {
                "what": f"{name} / {exact}, {sizes[-1]} documents",
                "ours_s": seconds[name][-1],
                "peer_s": seconds[exact][-1],
                "ratio": seconds[exact][-1] / seconds[name][-1],
                "note": f"time grows as n^{lines[name][0]:.2f} against n^{lines[exact][0]:.2f}; at "
                f"{FOLD_OF_MQ2007} documents (an MQ2007 fold) that predicts a ratio of "
                f"{predicted[exact] / predicted[name]:.0f}, and {predicted[exact] / linear:.0f} if the "
                "approximation grew linearly from here",
            }
        )
    return rows


def pair_products() -> list[dict[str, Any]]:
    """One Hessian product over 10^7 pairs against the same product with a sparse pair matrix."""
    rng = np.random.default_rng(0)
    qid = np.arange(102_000) // 300
    y = rng.integers(0, 3, len(qid))
    pairs = PreferencePairs(y, qid)
    scores, values = 0.3 * rng.standard_normal((2, len(qid)))
    active = pairs.active(scores)
    i, j = [], []
    for q in range(int(qid[-1]) + 1):
        mine = np.flatnonzero(qid == q)
        better, worse = np.nonzero(y[mine][:, None] > y[mine][None, :])
        i.append(mine[better])
        j.append(mine[worse])
    better, worse = np.concatenate(i), np.concatenate(j)
    kept = scores[better] - scores[worse] < 1
    better, worse = better[kept], worse[kept]
    ones, line = np.ones(len(better)), np.arange(len(better))
    A = sparse.csr_array(
        (np.concatenate([ones, -ones]), (np.tile(line, 2), np.concatenate([better, worse]))),
        shape=(len(better), len(qid)),
    )
    At = A.T.tocsr()
    seconds = alternately(
        {"ours": lambda: active.apply(values), "peer": lambda: At @ (A @ values)}, rounds=5
    )
    difference = np.abs(active.apply(values) - At @ (A @ values)).max()
    return [
        {
            "what": f"Hessian product, {pairs.n_pairs:.2g} pairs",
            "ours_s": seconds["ours"],
            "peer_s": seconds["peer"],
            "ratio": seconds["peer"] / seconds["ours"],
            "note": f"sparse matrix of {A.nnz * 12 / 2**20:.0f} MiB, twice; differ by {difference:.0e}",
        }
    ]


def large_fit(n: int = 3_700_000) -> dict[str, float]:
    """A whole linear fit on documents of MSLR's number and width; run in its own process."""
    import resource

    rng = np.random.default_rng(0)
    X, y, qid = generated(n, rng)
    start = time.perf_counter()
    model = RankSVM(C=1e-4).fit(X, y, qid)
    return {
        "fit_s": time.perf_counter() - start,
        "n_iter": model.n_iter_,
        "gap": model.duality_gap_ / model.objective_,
        "peak_gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
    }


def whole_large_fit() -> list[dict[str, Any]]:
    measured = in_own_process("--large")
    return [
        {
            "what": "linear fit, 3,700,000 x 136",
            "ours_s": measured["fit_s"],
            "note": f"{measured['n_iter']:.0f} Newton steps to a relative gap of at most {max(measured['gap'], 1e-15):.0e}; "
            f"peak {measured['peak_gib']:.2f} GiB (target < 8)",
        }
    ]


def run() -> list[dict[str, Any]]:
    return [
        *against_the_reference(),
        *against_trees(),
        *pair_products(),
        *kernel_growth(),
        *growth(),
        *whole_large_fit(),
    ]


if __name__ == "__main__":
    if sys.argv[1:2] == ["--size"]:
        print(json.dumps(one_size(int(sys.argv[2]))))
    elif sys.argv[1:2] == ["--large"]:
        print(json.dumps(large_fit()))
    else:
        print_table("learning to rank", run())
