"""Graph-regularised sparse coding against its plain reference, dictionary learners, and its own growth.

COIL20 and the reference code are found through AFFINITY_DATA and AFFINITY_REFERENCE; SPAMS is used when
it is installed. What is absent is said in the table.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.io import loadmat
from sklearn.decomposition import (
    DictionaryLearning,
    MiniBatchDictionaryLearning,
    sparse_encode,
)
from sklearn.exceptions import ConvergenceWarning

from pipeline_lib.clustering.alternation import alternate, random_dictionary
from pipeline_lib.clustering.code_solver import CodeProblem, solve_codes
from pipeline_lib.clustering.coder import sample_dictionary
from pipeline_lib.clustering.feature_sign import solve_codes_by_feature_sign
from pipeline_lib.clustering.graph_sparse_coding import GraphSC
from pipeline_lib.clustering.graph_terms import AdaptiveGraph
from pipeline_lib.clustering.graphscan import GraphSCAN
from pipeline_lib.clustering.sparse_coding import SparseCoding
from pipeline_lib.features.pca import PCA

try:
    from tests.performance._table import print_table
except ImportError:  # run as a script, with this folder on the path
    from _table import print_table

Array = NDArray[np.float64]
ATOMS, OUTER = 128, 15


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
    """Processor time and result: both sides use one thread, and others on the machine do not count."""
    start = time.process_time()
    result = call()
    return time.process_time() - start, result


def coil20() -> Array | None:
    """The 1,440 images as 175 principal components of norm 1."""
    for folder in filter(None, os.environ.get("AFFINITY_DATA", "").split(":")):
        path = Path(folder) / "coil20" / "COIL20.mat"
        if path.exists():
            return PCA(175, unit_norm="after").fit_transform(loadmat(path)["X"])
    return None


def generated_images(n: int, d: int = 1024, seed: int = 0) -> Array:
    """Unit rows around closed curves, one per class, like objects on a turntable."""
    rng = np.random.default_rng(seed)
    classes = 68
    centres, first, second = rng.standard_normal((3, classes, d))
    label, angle = rng.integers(classes, size=n), rng.uniform(0, 2 * np.pi, size=n)
    X = centres[label] + np.cos(angle)[:, None] * first[label]
    X += np.sin(angle)[:, None] * second[label]
    X += 0.3 * rng.standard_normal((n, d))
    return X / np.linalg.norm(X, axis=1, keepdims=True)


def against_reference(X: Array) -> list[dict[str, Any]]:
    """15 outer iterations of the reference against as many of ours as reach its objective."""
    folder = os.environ.get("AFFINITY_REFERENCE")
    if not folder:
        return [
            {
                "what": "GraphSC, GraphSCAN against the plain reference",
                "note": "skipped: AFFINITY_REFERENCE is not set",
            }
        ]
    sys.path.insert(0, folder)
    reference = importlib.import_module("graphscan_plain")
    rows = []
    for name, estimator, beta, lam in (
        ("GraphSC", GraphSC, 0.05, 1.0),
        ("GraphSCAN", GraphSCAN, 0.01, 10.0),
    ):
        peer_s, (_, _, _, history) = timed(
            lambda name=name, beta=beta, lam=lam: reference.fit(
                X.T.copy(), ATOMS, name.lower(), 5, beta, lam, iters=OUTER
            )
        )

        def ours(
            max_iter: int, estimator: Any = estimator, beta: float = beta, lam: float = lam
        ) -> Any:
            return estimator(
                n_atoms=ATOMS, beta=beta, lam=lam, tol=0.0, max_iter=max_iter, random_state=0
            ).fit(X)

        # The reference ends with a step of the dictionary, ours with one of the codes: a later
        # iteration may be needed for as low an objective, and then counts.
        path = np.array(ours(2 * OUTER).history_["objective"])
        enough = max(OUTER, int(np.flatnonzero(path <= history[-1])[0]) + 1)
        first, _ = timed(lambda ours=ours, enough=enough: ours(enough))
        second, model = timed(lambda ours=ours, enough=enough: ours(enough))
        ours_s = (first + second) / 2
        rows.append(
            {
                "what": f"{name}, COIL20, 15 outer iterations, plain reference",
                "ours_s": ours_s,
                "peer_s": peer_s,
                "ratio": peer_s / ours_s,
                "note": f"objective {model.objective_:.2f} after {enough} iterations "
                f"against {history[-1]:.2f}",
            }
        )
    return rows


def lasso_objective(X: Array, dictionary: Array, beta: float) -> float:
    """Sparse coding objective of a dictionary with its optimal codes, atoms shortened to norm 1."""
    atoms = dictionary / np.maximum(np.linalg.norm(dictionary, axis=1, keepdims=True), 1.0)
    codes = solve_codes(CodeProblem(atoms @ atoms.T, X @ atoms.T, beta), tol=1e-6).codes
    return float(((X - codes @ atoms) ** 2).sum() + beta * np.abs(codes).sum())


def against_dictionary_learners(X: Array, beta: float = 0.1) -> list[dict[str, Any]]:
    """Seconds until our objective is no larger than the one the peer ends with."""
    half = beta / 2  # the peers minimise half of the squares
    peers: dict[str, Callable[[], Array]] = {
        "scikit-learn DictionaryLearning, 5 iterations": lambda: (
            DictionaryLearning(
                ATOMS, alpha=half, max_iter=5, tol=0.0, fit_algorithm="cd", random_state=0
            )
            .fit(X)
            .components_
        ),
        "scikit-learn MiniBatchDictionaryLearning, 5 epochs": lambda: (
            MiniBatchDictionaryLearning(
                ATOMS,
                alpha=half,
                max_iter=5,
                tol=0.0,
                max_no_improvement=None,
                fit_algorithm="cd",
                random_state=0,
            )
            .fit(X)
            .components_
        ),
    }
    rows: list[dict[str, Any]] = []
    if importlib.util.find_spec("spams"):
        spams = importlib.import_module("spams")
        columns = np.asfortranarray(X.T)
        peers["SPAMS trainDL, 20 batches of 512"] = lambda: np.ascontiguousarray(
            spams.trainDL(
                columns, K=ATOMS, lambda1=half, iter=20, batchsize=512, numThreads=1, verbose=False
            ).T
        )
    else:
        rows.append({"what": "SparseCoding, SPAMS", "note": "skipped: spams is not installed"})

    def ours(max_iter: int) -> SparseCoding:
        return SparseCoding(
            ATOMS,
            beta,
            tol=0.0,
            max_iter=max_iter,
            code_tol=1e-4,
            random_state=0,
            initial_dictionary="samples",
        ).fit(X)

    path = np.array(ours(60).history_["objective"])
    for name, peer in peers.items():
        peer_s, dictionary = timed(peer)
        target = lasso_objective(X, dictionary, beta)
        reached = np.flatnonzero(path <= target)
        if not len(reached):
            rows.append(
                {
                    "what": f"SparseCoding, {name}",
                    "peer_s": peer_s,
                    "note": f"ours stays above {target:.2f}",
                }
            )
            continue
        enough = int(reached[0]) + 1
        ours_s, model = timed(lambda enough=enough: ours(enough))
        rows.append(
            {
                "what": f"SparseCoding, COIL20, {name}",
                "ours_s": ours_s,
                "peer_s": peer_s,
                "ratio": peer_s / ours_s,
                "note": f"objective {model.objective_:.2f} against {target:.2f}",
            }
        )
    return rows


def codes_against_lasso_solvers(X: Array, beta: float = 0.1) -> list[dict[str, Any]]:
    """The E-step of all images, cold, dictionary given: exact codes against the peers' own accuracy."""
    dictionary = sample_dictionary(X, ATOMS, np.random.default_rng(0))
    problem = CodeProblem(dictionary @ dictionary.T, X @ dictionary.T, beta)

    def value(codes: Array) -> float:
        return problem.value(codes, problem.apply(codes))

    peers: dict[str, Callable[[], Array]] = {
        f"scikit-learn sparse_encode, {algorithm}": lambda algorithm=algorithm: sparse_encode(
            X, dictionary, algorithm=algorithm, alpha=beta / 2
        )
        for algorithm in ("lasso_cd", "lasso_lars")
    }
    if importlib.util.find_spec("spams"):
        spams = importlib.import_module("spams")
        images, atoms = np.asfortranarray(X.T), np.asfortranarray(dictionary.T)
        peers["SPAMS lasso"] = lambda: (
            spams.lasso(images, D=atoms, lambda1=beta / 2, mode=2, numThreads=1).toarray().T
        )
    rows = []
    for name, peer in peers.items():
        first, ours = timed(lambda: solve_codes(problem))
        peer_s, theirs = timed(peer)
        second, _ = timed(lambda: solve_codes(problem))
        rows.append(
            {
                "what": f"codes of one dictionary, COIL20, {name}",
                "ours_s": (first + second) / 2,
                "peer_s": peer_s,
                "ratio": 2 * peer_s / (first + second),
                "note": f"objective {value(ours.codes):.4f} against {value(theirs):.4f}",
            }
        )
    return rows


def batch_against_feature_sign(X: Array) -> dict[str, Any]:
    """The E-step of 200 images, cold, to one residual, by the two solvers."""
    rows = X[:200]
    dictionary = random_dictionary(ATOMS, rows.shape[1], np.random.default_rng(0))
    graph = AdaptiveGraph(rows, 5, 1.0, 1.0)
    problem = CodeProblem(dictionary @ dictionary.T, rows @ dictionary.T, 0.1, graph.laplacian)
    ours_s, ours = timed(lambda: solve_codes(problem, tol=1e-6))
    peer_s, peer = timed(lambda: solve_codes_by_feature_sign(problem, tol=1e-6))
    difference = np.abs(ours.codes - peer.codes).max()
    return {
        "what": "E-step, 200 images, feature-sign search image by image",
        "ours_s": ours_s,
        "peer_s": peer_s,
        "ratio": peer_s / ours_s,
        "note": f"codes differ by at most {difference:.1g}",
    }


def growth(d: int = 64) -> dict[str, Any]:
    """Seconds per iteration of GraphSCAN, neighbours given, on 8 times as many images.

    A-, S- and E-step together, divided by the proximal iterations made: how many of these a problem
    needs is its own, not its size's.
    """

    def per_iteration(n: int) -> float:
        X = generated_images(n, d)
        graph = AdaptiveGraph(X, 5, 10.0, 10.0)
        start = random_dictionary(ATOMS, d, np.random.default_rng(0))
        seconds, result = timed(
            lambda: alternate(
                X, start, graph, beta=0.01, lam=10.0, tol=0.0, max_iter=3, code_tol=1e-3
            )
        )
        return seconds / sum(result.history["code_iterations"])

    small, large = 1_440, 11_520
    ratios = []
    for _ in range(3):
        base, grown = per_iteration(small), per_iteration(large)
        ratios.append(grown / base / (large / small))
    return {
        "what": f"GraphSCAN, iteration at n = {large:,} against {small:,}, times the growth of n",
        "ratio": float(np.median(ratios)),
        "note": "at most 1.3",
    }


_MEMORY = """
import resource, time, warnings
warnings.simplefilter("ignore")
from tests.performance.bench_clustering import generated_images
from pipeline_lib.clustering.graphscan import GraphSCAN
X = generated_images(11_554)
model = GraphSCAN(128, beta=0.01, lam=10.0, max_iter=2, tol=0.0, code_tol=1e-4, random_state=0).fit(X)
assert model.codes_.shape == (11_554, 128)
print(time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20)
"""


def memory() -> dict[str, Any]:
    """Peak memory of a process that fits GraphSCAN to 11,554 generated images of 1,024 pixels."""
    done = subprocess.run(
        [sys.executable, "-c", _MEMORY],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=True,
    )
    seconds, peak = map(float, done.stdout.split())
    return {
        "what": "GraphSCAN, 11,554 x 1,024, 2 outer iterations",
        "ours_s": seconds,
        "note": f"peak {peak:.2f} GiB of 8",
    }


def run() -> list[dict[str, Any]]:
    """All comparisons, as rows of a table."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        X = coil20()
        if X is None:
            rows = [
                {"what": "everything on COIL20", "note": "skipped: AFFINITY_DATA has no COIL20"}
            ]
        else:
            rows = [*against_reference(X), *against_dictionary_learners(X)]
            rows += codes_against_lasso_solvers(X)
            rows.append(batch_against_feature_sign(X))
        return [*rows, growth(), memory()]


if __name__ == "__main__":
    print_table("clustering", run())
