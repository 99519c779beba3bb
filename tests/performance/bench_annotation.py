"""Image annotation: RKML against a plain version, RKML at scale, and what metric learners take.

Quality is AP@5 in percent. The large run happens in a process of its own, so that its peak memory is
its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from pipeline_lib.annotation.metric_annotator import MetricAnnotator
from pipeline_lib.annotation.rkml import RKML
from pipeline_lib.annotation.semantic import semantic_embedding, unit_rows
from pipeline_lib.datasets.acquire import load
from pipeline_lib.errors import DataMissingError
from pipeline_lib.metric_learning import (
    DCA,
    ITML,
    LDML,
    LFDA,
    LMNN,
    NCA,
    PRCA,
    RCA,
    KernelPCA,
    from_tags,
)
from pipeline_lib.metrics.annotation import annotation_metrics

try:
    from tests.performance._table import print_table
except ImportError:  # run as a script, with this folder on the path
    from _table import print_table

RANK = 300
NEIGHBORS = 50


def generated_images(n: int, d: int, n_tags: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Images of one to three of 60 topics: tags are drawn from the topics, features are noisy sums."""
    rng = np.random.default_rng(seed)
    n_topics, per_image = 60, 6
    chance = rng.dirichlet(np.full(n_tags, 0.05), size=n_topics).cumsum(axis=1)
    chance /= chance[:, -1:]
    centres = rng.standard_normal((n_topics, d))
    topics = rng.integers(n_topics, size=(n, 3))
    topics[:, 2] = topics[np.arange(n), rng.integers(2, size=n)]
    X = 1.5 * rng.standard_normal((n, d))
    for k in range(3):
        X += centres[topics[:, k]]
    chosen = topics[np.arange(n)[:, None], rng.integers(3, size=(n, per_image))]
    Y = np.zeros((n, n_tags), dtype=np.uint8)
    for k in range(per_image):
        draw = rng.random(n)
        for topic in range(n_topics):
            mine = np.flatnonzero(chosen[:, k] == topic)
            Y[mine, np.searchsorted(chance[topic], draw[mine])] = 1
    return X, Y


def kernel_width(X: np.ndarray) -> float:
    """One over the mean squared distance between rows."""
    return float(1.0 / (2.0 * X.var(axis=0).sum()))


def plain_rkml(
    X: np.ndarray,
    Y: np.ndarray,
    Xq: np.ndarray,
    landmarks: np.ndarray,
    gamma: float,
    m: int,
    *,
    by: str = "gram",
) -> np.ndarray:
    """The method in double precision on the whole rectangle, in a few lines of numpy.

    ``by="svd"`` takes the singular values of K_b, as the definition reads; ``by="gram"`` knows that a full
    decomposition of K_b' K_b gives the same in a fraction of the time.
    """

    def rbf(A: np.ndarray, B: np.ndarray) -> np.ndarray:
        D = (A**2).sum(axis=1)[:, None] + (B**2).sum(axis=1)[None] - 2.0 * A @ B.T
        return np.exp(-gamma * np.maximum(D, 0.0))

    targets = semantic_embedding(Y, m)
    K_b, K_q = rbf(X, landmarks), rbf(Xq, landmarks)
    if by == "svd":
        U, s, Vt = np.linalg.svd(K_b, full_matrices=False)
        coefficients = Vt[:RANK].T @ ((U[:, :RANK].T @ targets) / s[:RANK, None])
    else:
        w, V = np.linalg.eigh(K_b.T @ K_b)
        w, V = w[-RANK:], V[:, -RANK:]
        coefficients = V @ ((V.T @ (K_b.T @ targets)) / w[:, None])
    return _vote(K_q @ coefficients, K_b @ coefficients, Y)


def _vote(query: np.ndarray, train: np.ndarray, Y: np.ndarray) -> np.ndarray:
    similarity = query @ train.T
    nearest = np.argpartition(-similarity, NEIGHBORS - 1, axis=1)[:, :NEIGHBORS]
    weights = np.take_along_axis(similarity, nearest, axis=1)
    return np.einsum("qk,qkm->qm", weights, Y[nearest].astype(np.float64))


def against_plain(n: int = 20_000, d: int = 1_000, n_samples: int = 5_000) -> list[dict[str, Any]]:
    """Fit and annotate 10 % of the images; all sides use the same landmarks."""
    X, Y = generated_images(n, d, 291)
    cut = n - n // 10
    train, tags, test, truth = X[:cut], Y[:cut], X[cut:], Y[cut:]
    gamma, m = kernel_width(train), int(0.38 * 291)
    scores: dict[str, np.ndarray] = {}
    landmarks: list[np.ndarray] = []

    def ours(precision: str) -> None:
        model = RKML(
            gamma, RANK, m, n_samples, n_neighbors=NEIGHBORS, random_state=0, precision=precision
        )
        scores[precision] = model.fit(train, tags).predict(test)
        landmarks.append(model.landmarks_)

    def plain(by: str) -> None:
        scores[by] = plain_rkml(train, tags, test, landmarks[0], gamma, m, by=by)

    calls: dict[str, Callable[[], None]] = {
        "single": lambda: ours("single"),
        "double": lambda: ours("double"),
        "gram": lambda: plain("gram"),
        "svd": lambda: plain("svd"),
    }
    seconds, processor = {}, {}
    for name, call in calls.items():
        start, started = time.perf_counter(), time.process_time()
        call()
        seconds[name] = time.perf_counter() - start
        processor[name] = time.process_time() - started
    ap = {k: 100 * annotation_metrics(v, truth, 5).means["ap_at_5"] for k, v in scores.items()}
    return [
        {
            "what": f"RKML {n:,} x {d:,}, n_s {n_samples:,}, {precision}, vs numpy by {by}",
            "ours_s": seconds[precision],
            "peer_s": seconds[by],
            "ratio": seconds[by] / seconds[precision],
            "processor ratio": processor[by] / processor[precision],
            "note": f"AP@5 {ap[precision]:.2f} vs {ap[by]:.2f} (to be equal to .2)",
        }
        for by in ("svd", "gram")
        for precision in ("single", "double")
    ]


def large(n: int = 500_000, n_samples: int = 2_000) -> dict[str, Any]:
    """500,000 images of 291 features with 1,000 tags: seconds and this process's peak memory."""
    import resource

    X, Y = generated_images(n + 2_000, 291, 1_000)
    model = RKML(
        kernel_width(X[:5_000]),
        RANK,
        380,
        n_samples,
        normalize=True,
        n_neighbors=NEIGHBORS,
        random_state=0,
        precision="single",
    )
    start = time.perf_counter()
    model.fit(X[:n], Y[:n])
    fitted = time.perf_counter() - start
    start = time.perf_counter()
    scores = model.predict(X[n:])
    annotated = time.perf_counter() - start
    return {
        "fit_s": fitted,
        "ms_per_image": 1e3 * annotated / 2_000,
        "ap_at_5": 100 * annotation_metrics(scores, Y[n:], 5).means["ap_at_5"],
        "peak_gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
    }


def at_scale() -> list[dict[str, Any]]:
    """`large` in its own process."""
    done = subprocess.run(
        [sys.executable, str(Path(__file__).resolve()), "large"],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])},
    )
    result = json.loads(done.stdout.splitlines()[-1])
    return [
        {
            "what": "RKML 500,000 x 291, 1,000 tags, n_s 2,000",
            "ours_s": result["fit_s"],
            "note": f"{result['ms_per_image']:.2f} ms an image, AP@5 {result['ap_at_5']:.1f}, "
            f"peak {result['peak_gib']:.1f} GiB (limit 12)",
        }
    ]


LEARNERS: dict[str, Any] = {
    "RCA": RCA(),
    "pRCA": PRCA(max_iter=30),
    "DCA": DCA(),
    "LFDA": LFDA(n_components=100),
    "KernelPCA": KernelPCA(200),
    "ITML": ITML(random_state=0),
    "LDML": LDML(random_state=0),
    "LMNN": LMNN(max_iter=50),
    "NCA (scikit-learn)": NCA(n_components=50, max_iter=20, random_state=0),
}


def corel5k() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray] | None:
    """Corel5k with 499 binary features as unit rows, official split; None without the files."""
    try:
        train, test = load("corel5k-mulan", "train"), load("corel5k-mulan", "test")
    except DataMissingError:
        return None
    return unit_rows(train.X), train.Y, unit_rows(test.X), test.Y


def learning_seconds() -> list[dict[str, Any]]:
    """Every metric learner on Corel5k with the constraints of 50 topics; AP@5 of 20 neighbours."""
    data = corel5k()
    if data is None:
        note = "skipped: AFFINITY_DATA has no Corel5k"
        return [{"what": "metric learners on Corel5k", "note": note}]
    X, Y, Xt, Yt = data
    known = from_tags(Y, random_state=0)
    rows = []
    for name, learner in {"Euclid": None, **LEARNERS}.items():
        start = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model = MetricAnnotator(learner, vote="similarity")
            model.fit(X, Y, constraints=None if name in ("Euclid", "KernelPCA") else known)
        seconds = time.perf_counter() - start
        ap = 100 * annotation_metrics(model.predict(Xt), Yt, 5).means["ap_at_5"]
        rows.append({"what": f"learn {name}, Corel5k", "ours_s": seconds, "note": f"AP@5 {ap:.1f}"})
    return rows


def run() -> list[dict[str, Any]]:
    """All comparisons."""
    return against_plain() + at_scale() + learning_seconds()


if __name__ == "__main__":
    if sys.argv[1:] == ["large"]:
        print(json.dumps(large()))
    else:
        print_table("image annotation", run())
