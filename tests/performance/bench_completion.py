"""Tag completion: TCMR against the plain reference, its growth with the data, and its memory."""

from __future__ import annotations

import importlib.util
import json
import os
import resource
import statistics
import subprocess
import sys
import time
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

from pipeline_lib.completion.certificate import lower_bound
from pipeline_lib.completion.tcmr import TCMR

try:
    from tests.performance._table import print_table
except ImportError:  # run as a script, with this folder on the path
    from _table import print_table

SHAPE = (20_000, 420)
LARGE_SHAPE = (250_000, 1_000)
GROWTH = (10_000, 20_000, 40_000, 80_000)
OBSERVED = 4
TOPICS = 20


def generated_tags(n: int, m: int, seed: int = 0) -> sparse.csr_array:
    """``OBSERVED`` different tags an image, drawn from mixtures of ``TOPICS`` multinomials."""
    random = np.random.default_rng(seed)
    topics = random.dirichlet(np.full(m, 0.1), TOPICS)
    drawn = []
    for start in range(0, n, 10_000):
        size = min(10_000, n - start)
        shares = random.dirichlet(np.full(TOPICS, 0.1), size) @ topics
        # The largest of log p + Gumbel noise are a draw without replacement.
        noisy = np.log(shares + 1e-6) + random.gumbel(size=shares.shape)
        drawn.append(np.argpartition(-noisy, OBSERVED, axis=1)[:, :OBSERVED])
    columns = np.concatenate(drawn).ravel()
    rows = np.repeat(np.arange(n), OBSERVED)
    return sparse.csr_array((np.ones(len(rows)), (rows, columns)), shape=(n, m))


def weight(n: int) -> float:
    """Weight of the trace norm: singular values of noise grow with the root of n."""
    return 5.0 * float(np.sqrt(n / 20_000))


def reference() -> ModuleType | None:
    """The plain implementation kept as comparator, if it is there."""
    path = Path(os.environ.get("AFFINITY_REFERENCE", "../shared/reference")) / "tcmr_plain.py"
    if not path.exists():
        return None
    spec = importlib.util.spec_from_file_location("tcmr_plain", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def seconds_per_iteration(D: sparse.csr_array, lam: float, few: int, many: int) -> float:
    """Slope of the fitting time between two iteration limits: what is done once cancels."""
    spent = []
    for iterations in (few, many):
        start = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            TCMR(lam, tol=0.0, max_iter=iterations).fit(D)
        spent.append(time.perf_counter() - start)
    return (spent[1] - spent[0]) / (many - few)


def against_the_reference(
    n: int = SHAPE[0], m: int = SHAPE[1], rounds: int = 2
) -> list[dict[str, Any]]:
    """Time per iteration side by side, and what the reference says about our end point."""
    plain = reference()
    what = f"TCMR0 {n} x {m}, seconds per iteration"
    if plain is None:
        return [{"what": what, "note": "skipped: AFFINITY_REFERENCE holds no tcmr_plain.py"}]
    D, lam = generated_tags(n, m), weight(n)
    dense = D.toarray()
    ours, theirs = [], []
    for _ in range(rounds):
        ours.append(seconds_per_iteration(D, lam, 10, 30))
        # The first few iterations of the reference do not backtrack yet, later ones do.
        start = time.perf_counter()
        plain.tcmr(dense, lam=lam, iters=4, tol=0.0)
        between = time.perf_counter()
        plain.tcmr(dense, lam=lam, iters=10, tol=0.0)
        theirs.append((time.perf_counter() - between - (between - start)) / 6)
    ours_s, peer_s = statistics.median(ours), statistics.median(theirs)
    rows = [{"what": what, "ours_s": ours_s, "peer_s": peer_s, "ratio": peer_s / ours_s}]
    start = time.perf_counter()
    model = TCMR(lam).fit(D)
    spent = time.perf_counter() - start
    Q = model.scores_
    observed = np.maximum(dense.sum(axis=1, keepdims=True), 1)
    weights = (1 / observed, 1 / np.maximum(m - observed, 1))
    value, _ = plain.loss_grad(Q, dense, *weights, model.eps)
    value += lam * np.linalg.svd(Q, compute_uv=False).sum()
    bound = lower_bound(Q, D, lam, model.rank_, model.eps)
    rows.append(
        {
            "what": "  fit to tol 1e-8",
            "ours_s": spent,
            "note": f"{model.n_iter_} iterations, rank {model.rank_}",
        }
    )
    rows.append(
        {
            "what": "  objective by the reference's formula, relative difference",
            "ratio": abs(model.objective_ - value) / abs(value),
            "note": f"no point is lower by more than {(value - bound) / abs(value):.1e} of it (dual bound)",
        }
    )
    return rows


def same_minimum(n: int = 1_500, m: int = 60, lam: float = 4.0) -> list[dict[str, Any]]:
    """Both run to the end on a problem small enough for the reference."""
    plain = reference()
    if plain is None:
        return []
    D = generated_tags(n, m, seed=1)
    start = time.perf_counter()
    model = TCMR(lam, tol=1e-10).fit(D)
    ours_s = time.perf_counter() - start
    start = time.perf_counter()
    _, history, _ = plain.tcmr(D.toarray(), lam=lam, iters=4_000, tol=1e-10)
    difference = (model.objective_ - min(history)) / abs(model.objective_)
    peer_s = time.perf_counter() - start
    note = f"objective {difference:+.1e} of the reference's, {model.n_iter_}"
    return [
        {
            "what": f"TCMR0 {n} x {m}, whole fit",
            "ours_s": ours_s,
            "peer_s": peer_s,
            "ratio": peer_s / ours_s,
            "note": f"{note} against {len(history) - 1} iterations",
        }
    ]


def growth(m: int = 420) -> list[dict[str, Any]]:
    """Time per iteration against n: the ratio of the growths should stay below 1.2."""
    problems = [(n, generated_tags(n, m)) for n in GROWTH]
    seconds: dict[int, list[float]] = {n: [] for n in GROWTH}
    for _ in range(3):
        for n, D in problems:
            seconds[n].append(seconds_per_iteration(D, weight(n), 8, 14))
    medians = {n: statistics.median(values) for n, values in seconds.items()}
    first = GROWTH[0]
    return [
        {
            "what": f"TCMR0 {n} x {m}, seconds per iteration",
            "ours_s": medians[n],
            "ratio": medians[n] / medians[first] / (n / first),
            "note": f"ratio: growth of the time over growth of n, from {first}",
        }
        for n in GROWTH
    ]


def large(n: int = LARGE_SHAPE[0], m: int = LARGE_SHAPE[1]) -> list[dict[str, Any]]:
    """The large problem in a process of its own, to see its peak of memory."""
    code = (
        "import json, tests.performance.bench_completion as b;"
        f"print(json.dumps(b._large_in_this_process({n}, {m})))"
    )
    root = str(Path(__file__).resolve().parents[2])
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True
    )
    found = json.loads(done.stdout.splitlines()[-1])
    return [
        {
            "what": f"TCMR0 {n} x {m}, seconds per iteration",
            "ours_s": found["seconds"],
            "note": f"{found['busy']:.1f} s of processor time an iteration, "
            f"peak memory {found['gib']:.2f} GiB, rank {found['rank']}",
        }
    ]


def _large_in_this_process(n: int, m: int, iterations: int = 6) -> dict[str, float]:
    D = generated_tags(n, m)
    start, start_cpu = time.perf_counter(), time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = TCMR(weight(n), tol=0.0, max_iter=iterations).fit(D)
    seconds = (time.perf_counter() - start) / iterations
    busy = (time.process_time() - start_cpu) / iterations
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return {"seconds": seconds, "busy": busy, "gib": peak, "rank": model.rank_}


def run() -> list[dict[str, Any]]:
    """All comparisons."""
    return [*against_the_reference(), *same_minimum(), *growth(), *large()]


if __name__ == "__main__":
    print_table("tag completion", run())
