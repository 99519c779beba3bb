"""Kernel approximations: Nystroem and Fourier maps against scikit-learn's, with the error of each."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_svmlight_file
from sklearn.kernel_approximation import Nystroem as PeerNystroem
from sklearn.kernel_approximation import RBFSampler

from pipeline_lib.kernels.fourier import FourierFeatures
from pipeline_lib.kernels.functions import kernel_matrix
from pipeline_lib.kernels.nystroem import Nystroem

try:
    from tests.performance._table import print_table
except ImportError:  # run as a script, with this folder on the path
    from _table import print_table

GAMMA = 2.0**-8


def documents() -> tuple[np.ndarray, str]:
    """MQ2008's training documents, or generated rows of the same shape."""
    root = os.environ.get("AFFINITY_DATA")
    path = Path(root or ".") / "letor" / "MQ2008" / "Fold1" / "train.txt"
    if root is None or not path.exists():
        return np.random.default_rng(0).random((9_630, 46)), "generated"
    return load_svmlight_file(str(path))[0].toarray(), "MQ2008"


def run() -> list[dict[str, Any]]:
    X, source = documents()
    rows = np.random.default_rng(1).choice(len(X), 2_000, replace=False)
    K = kernel_matrix(X[rows], gamma=GAMMA)
    scale = np.linalg.norm(K)

    def error(Z: np.ndarray) -> float:
        return float(np.linalg.norm(K - Z[rows] @ Z[rows].T) / scale)

    def ours(**arguments: Any) -> Callable[[], np.ndarray]:
        mapping = Nystroem(gamma=GAMMA, random_state=0, **arguments)
        return lambda: mapping.fit(X).transform(X)

    def peer(m: int) -> Callable[[], np.ndarray]:
        mapping = PeerNystroem(gamma=GAMMA, n_components=m, random_state=0)
        return lambda: mapping.fit(X).transform(X)

    def fourier(m: int) -> Callable[[], np.ndarray]:
        return lambda: FourierFeatures(m, GAMMA, random_state=0).fit(X).transform(X)

    def sampler(m: int) -> Callable[[], np.ndarray]:
        return lambda: RBFSampler(gamma=GAMMA, n_components=m, random_state=0).fit_transform(X)

    cases = [
        ("Nystroem m=500", ours(n_components=500), peer(500)),
        ("Nystroem m=2000, cutoff 1e-6", ours(n_components=2000), peer(2000)),
        (
            "Nystroem m=2000, equal error",
            ours(n_components=2000, cutoff=1e-8, factorization="cholesky"),
            peer(2000),
        ),
        ("Fourier m=500", fourier(500), sampler(500)),
        ("Fourier m=2000", fourier(2000), sampler(2000)),
    ]
    table = []
    for what, mine, other in cases:
        seconds: tuple[list[float], list[float]] = ([], [])
        maps: list[np.ndarray] = []
        for _ in range(3):
            maps.clear()
            for call, record in zip((mine, other), seconds):
                # Processor time, so that other work on the machine counts for neither.
                start = time.process_time()
                maps.append(call())
                record.append(time.process_time() - start)
        ours_s, peer_s = (statistics.median(record) for record in seconds)
        table.append(
            {
                "what": f"{what}, {source}",
                "ours_s": ours_s,
                "peer_s": peer_s,
                "ratio": peer_s / ours_s,
                "note": f"kernel error {error(maps[0]):.2e} against {error(maps[1]):.2e}; "
                f"{maps[0].shape[1]} dimensions",
            }
        )
    return table


if __name__ == "__main__":
    print_table("kernel approximations against scikit-learn", run())
