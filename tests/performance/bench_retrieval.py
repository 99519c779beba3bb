"""Ranking on manifolds: adaptive neighbours against the plain reference, growth with n, PageRank."""

from __future__ import annotations

import importlib.util
import os
import resource
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from pipeline_lib.datasets.generators import two_moons
from pipeline_lib.graphs.neighbors import NeighborGraph, nearest_neighbors
from pipeline_lib.retrieval.adaptive_neighbors import RankingAdaptiveNeighbors
from pipeline_lib.retrieval.personalized_pagerank import PersonalizedPageRank

try:
    from tests.performance._table import print_table
except ImportError:  # run as a script, with this folder on the path
    from _table import print_table

SAMPLED = 5  # queries of the reference, which takes about a fifth of a second each; scaled to 400
SIZES = (2_000, 8_000, 32_000)
TOLERANCE = 1e-10


def seconds(call: Callable[[], Any]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def data_file(*parts: str) -> Path | None:
    path = Path(os.environ.get("AFFINITY_DATA", "../shared/data"), *parts)
    return path if path.exists() else None


def skipped(what: str, reason: str) -> dict[str, Any]:
    return {"what": what, "note": f"skipped: {reason}"}


def images(path: Path) -> np.ndarray:
    from scipy.io import loadmat

    return loadmat(path)["fea"].astype(np.float64)


def against_the_reference() -> list[dict[str, Any]]:
    """400 ORL queries; both stop at 30 iterations or a relative change of 1e-8."""
    what = "400 ORL queries"
    source = Path(os.environ.get("AFFINITY_REFERENCE", "../shared/reference"), "ran_plain.py")
    path = data_file("orl", "ORL_32x32.mat")
    if path is None or not source.exists():
        return [skipped(what, "AFFINITY_DATA or AFFINITY_REFERENCE is not there")]
    spec = importlib.util.spec_from_file_location("ran_plain", source)
    assert spec is not None and spec.loader is not None
    plain = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(plain)
    X = images(path) / 255.0
    distances = plain.sqdist(X)
    queries = np.linspace(0, len(X) - 1, SAMPLED).astype(int)
    rows = []
    for k, lam in ((5, 0.5), (7, 1.0)):
        model = RankingAdaptiveNeighbors(k, lam, max_iter=30).fit(X)
        ours, theirs, difference = [], [], 0.0
        for query in queries:  # interleaved with a whole run of ours, three times
            if len(ours) < 3:
                ours.append(seconds(lambda model=model: model.rank(range(len(X)))))
            started = time.perf_counter()
            expected = plain.rank(X, query, k, lam, D=distances)
            theirs.append(time.perf_counter() - started)
            difference = max(difference, np.abs(model.rank([query])[0] - expected).max())
        mine, peer = statistics.median(ours), statistics.median(theirs) * len(X)
        note = f"reference: median of {SAMPLED} queries, scaled; scores differ by {difference:.0e}"
        rows.append(
            {
                "what": f"{what}, k={k}, lam={lam}",
                "ours_s": mine,
                "peer_s": peer,
                "ratio": peer / mine,
                "note": note,
            }
        )
    return rows


def usps_query() -> list[dict[str, Any]]:
    """A query on all of USPS in a process of its own, so that its memory can be read."""
    what = "one query on USPS, 9,298 points (k=10, lam=1)"
    if data_file("usps", "USPS.mat") is None:
        return [skipped(what, "AFFINITY_DATA is not there")]
    command = [sys.executable, __file__, "usps"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    answer = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    graph, prepared, query, before, peak = map(float, answer.stdout.split())
    return [
        {
            "what": what,
            "ours_s": query,
            "note": f"peak {peak:.2f} GiB (before the query {before:.2f}); exact neighbours {graph:.1f} s, "
            f"preparation {prepared:.1f} s",
        }
    ]


def measure_usps() -> None:
    path = data_file("usps", "USPS.mat")
    assert path is not None
    X = images(path)
    started = time.perf_counter()
    neighbors = nearest_neighbors(X, 40)
    built = time.perf_counter()
    model = RankingAdaptiveNeighbors(10, 1.0).fit(X, neighbors=neighbors)
    fitted = time.perf_counter()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    times = [seconds(lambda q=q: model.rank([q])) for q in (0, 3_000, 6_000)]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    gib = 2.0**20
    print(built - started, fitted - built, statistics.median(times), before / gib, peak / gib)


def blobs(n: int) -> np.ndarray:
    rng = np.random.default_rng(0)
    centres = 2.0 * rng.standard_normal((20, 10))
    return centres[rng.integers(20, size=n)] + rng.standard_normal((n, 10))


def growth() -> list[dict[str, Any]]:
    """Time of a query as n grows, the neighbour graph given; lam keeps its size against gamma."""
    rows = []
    for name, generate, share in (
        ("two moons", lambda n: two_moons(n, 0.05, 0).X, 0.1),
        ("20 clusters in 10 dimensions", blobs, 0.1),
        ("20 clusters in 10 dimensions", blobs, 0.5),
    ):
        base = None
        for n in SIZES:
            X = generate(n)
            graph: list[NeighborGraph] = []
            built = seconds(lambda X=X, graph=graph: graph.append(nearest_neighbors(X, 20)))
            gamma = RankingAdaptiveNeighbors(8, 1.0).fit(X, neighbors=graph[0]).gamma_
            model = RankingAdaptiveNeighbors(8, share * gamma, tol=1e-6).fit(X, neighbors=graph[0])
            queries = np.random.default_rng(1).choice(n, 7, replace=False)
            took = statistics.median(seconds(lambda q=q, m=model: m.rank([q])) for q in queries)
            base = took if base is None else base
            rows.append(
                {
                    "what": f"one query, {name}, lam={share} gamma, n={n}",
                    "ours_s": took,
                    "ratio": (took / base) / (n / SIZES[0]),
                    "note": f"ratio: growth over growth of n; exact neighbours {built:.1f} s",
                }
            )
    return rows


def pagerank() -> list[dict[str, Any]]:
    """Personalised PageRank on one graph, to one tolerance."""
    what = f"personalised PageRank, 20 queries, tol {TOLERANCE:g}"
    try:
        from sknetwork.ranking import PageRank
    except ImportError:
        return [skipped(what, "scikit-network is not installed")]
    path = data_file("usps", "USPS.mat")
    X = images(path)[:4_000] if path is not None else blobs(4_000)
    queries = list(range(0, 4_000, 200))
    model = PersonalizedPageRank(0.85, n_neighbors=10, solver="iterative", tol=TOLERANCE).fit(X)
    exact = PersonalizedPageRank(0.85, n_neighbors=10, solver="closed").fit(X).rank(queries)
    peer = PageRank(0.85, solver="piteration", n_iter=1_000, tol=TOLERANCE)
    import scipy.sparse as sp

    graph = sp.csr_matrix(model.affinity_)
    scores: dict[str, np.ndarray] = {}

    def ours() -> None:
        scores["ours"] = model.rank(queries)

    def theirs() -> None:
        scores["peer"] = np.array([peer.fit_predict(graph, weights={q: 1.0}) for q in queries])

    pairs = [(seconds(ours), seconds(theirs)) for _ in range(5)]
    mine, other = (statistics.median(times) for times in zip(*pairs))
    error = {
        name: float((np.abs(values - exact) / exact.clip(1e-200)).max())
        for name, values in scores.items()
    }
    note = f"largest relative error of a score: ours {error['ours']:.0e}, peer {error['peer']:.0e}"
    return [{"what": what, "ours_s": mine, "peer_s": other, "ratio": other / mine, "note": note}]


def run() -> list[dict[str, Any]]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # bounded iterations are part of the comparison
        return [*against_the_reference(), *usps_query(), *growth(), *pagerank()]


if __name__ == "__main__":
    if sys.argv[1:] == ["usps"]:
        measure_usps()
    else:
        print_table("ranking on manifolds", run())
