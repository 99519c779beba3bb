"""Learning to rank: fits against the plain reference and tree ensembles, and growth with the data."""

from __future__ import annotations

import importlib.util
import json
import os
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_svmlight_file

from pipeline_lib.kernels.fourier import FourierFeatures
from pipeline_lib.ltr.primal import fit_path
from pipeline_lib.ltr.ranksvm import RankNystroem, RankRandomFourier, RankSVM
from pipeline_lib.ltr.rows import map_rows
from pipeline_lib.metrics.ranking import ranking_metrics

try:
    from tests.performance._table import print_table
except ImportError:  # run as a script, with this folder on the path
    from _table import print_table

GAMMA = 2.0**-8
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
    """Whole fits, feature map included, against tree ensembles at their usual settings."""
    train, test = fold("train"), fold("test")
    if train is None or test is None:
        return [{"what": "whole fits", "note": "skipped: needs MQ2008 Fold1 under AFFINITY_DATA"}]
    X, y, qid = train
    groups = np.unique(qid, return_counts=True)[1]
    models: dict[str, Any] = {}
    calls: dict[str, Callable[[], Any]] = {}
    ours: dict[str, Any] = {"RankSVM, C 0.5": RankSVM(C=0.5)}
    for m in (500, 2000):
        shared = {"gamma": GAMMA, "n_components": m, "random_state": 0}
        ours[f"RankNystroem m={m}"] = RankNystroem(C=0.5, **shared)
        ours[f"RankRandomFourier m={m}"] = RankRandomFourier(C=0.125, **shared)
    for name, model in ours.items():
        calls[name] = lambda model=model, name=name: models.update({name: model.fit(X, y, qid)})
    peers = []
    try:
        import lightgbm

        lambdarank = lightgbm.LGBMRanker(
            learning_rate=0.1,
            num_leaves=7,
            n_estimators=200,
            min_child_samples=50,
            verbose=-1,
            n_jobs=1,
        )
        peers.append("LightGBM lambdarank")
        calls[peers[-1]] = lambda: models.update(
            {"LightGBM lambdarank": lambdarank.fit(X, y, group=groups)}
        )
    except ImportError:
        pass
    try:
        import xgboost

        ndcg = xgboost.XGBRanker(
            objective="rank:ndcg", learning_rate=0.05, max_depth=3, n_estimators=100, n_jobs=1
        )
        peers.append("XGBoost rank:ndcg")
        calls[peers[-1]] = lambda: models.update({"XGBoost rank:ndcg": ndcg.fit(X, y, qid=qid)})
    except ImportError:
        pass
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        seconds = alternately(calls, rounds=3)
        scores = {name: np.asarray(model.predict(test[0])) for name, model in models.items()}
    quality = {
        name: ranking_metrics(s, test[1], test[2]).means["map"] for name, s in scores.items()
    }
    rows = []
    for name in ours:
        for peer in peers:
            rows.append(
                {
                    "what": f"{name} / {peer}",
                    "ours_s": seconds[name],
                    "peer_s": seconds[peer],
                    "ratio": seconds[peer] / seconds[name],
                    "note": f"test MAP {quality[name]:.4f} / {quality[peer]:.4f}",
                }
            )
    return rows


def one_size(n: int) -> dict[str, float]:
    """Seconds per Newton step and peak memory for ``n`` generated documents; run in its own process."""
    import resource

    rng = np.random.default_rng(0)
    X = np.empty((n, 136), dtype=np.float32)
    for start in range(0, n, 50_000):
        X[start : start + 50_000] = rng.random((min(50_000, n - start), 136), dtype=np.float32)
    qid = np.arange(n) // 100
    signal = X @ rng.standard_normal(136).astype(np.float32)
    y = np.clip(np.round(signal - np.median(signal) + rng.standard_normal(n)), 0, 4)
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
        command = [sys.executable, str(Path(__file__).resolve()), "--size", str(n)]
        root = str(Path(__file__).resolve().parents[2])
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
        }
        output = subprocess.run(
            command, check=True, capture_output=True, text=True, env=environment
        )
        measured = json.loads(output.stdout)
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


def run() -> list[dict[str, Any]]:
    return [*against_the_reference(), *against_trees(), *growth()]


if __name__ == "__main__":
    if sys.argv[1:2] == ["--size"]:
        print(json.dumps(one_size(int(sys.argv[2]))))
    else:
        print_table("learning to rank", run())
