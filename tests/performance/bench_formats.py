"""Readers of the image and tag formats beside the usual tools, on files written here."""

from __future__ import annotations

import io
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from pipeline_lib.datasets.arff import read_arff
from pipeline_lib.datasets.hvecs import read_vecs, write_vecs
from pipeline_lib.datasets.libsvm import read_libsvm, write_libsvm
from pipeline_lib.datasets.nuswide import read_concept_csv
from pipeline_lib.datasets.reading import read_number_table
from pipeline_lib.features.descriptors.sift import dense_sift

try:
    from tests.performance._table import print_table
except ImportError:  # run as a script, with this folder on the path
    from _table import print_table


def _pair(
    ours: Callable[[], object], peer: Callable[[], object], rounds: int
) -> tuple[float, float]:
    """Median processor seconds of each, measured in turns."""
    seconds: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds):
        for function, times in zip((ours, peer), seconds):
            started = time.process_time()
            function()
            times.append(time.process_time() - started)
    return statistics.median(seconds[0]), statistics.median(seconds[1])


def _plain_vecs(path: Path) -> np.ndarray:
    """Record by record, as the scripts that circulate read them."""
    rows = []
    with path.open("rb") as handle:
        while head := handle.read(2):
            d = int(np.frombuffer(head, "<u2")[0])
            rows.append(np.frombuffer(handle.read(2 * d), "<u2"))
    return np.array(rows)


def _plain_concepts(path: Path) -> np.ndarray:
    import csv

    with path.open(newline="") as handle:
        return np.array([[int(cell) for cell in row[1:]] for row in list(csv.reader(handle))[1:]])


def run(rounds: int = 3) -> list[dict]:
    """Time every reader beside a peer; both read the same file."""
    from scipy.io import arff as scipy_arff
    from sklearn.datasets import load_svmlight_file

    rng = np.random.default_rng(0)
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        binary = (rng.random((4500, 873)) < 0.02).astype(int)

        arff = folder / "a.arff"
        header = "@relation r\n" + "".join(f"@attribute a{j} {{0,1}}\n" for j in range(873))
        body = "\n".join(",".join(map(str, row)) for row in binary)
        arff.write_text(f"{header}@data\n{body}\n")
        ours, peer = _pair(
            lambda: read_arff(arff).numbers(arff), lambda: scipy_arff.loadarff(arff), rounds
        )
        rows.append(
            {
                "what": "ARFF 4,500 x 873 nominal",
                "peer": "scipy.io.arff",
                "ours_s": ours,
                "peer_s": peer,
            }
        )

        dense = rng.random((2000, 256)).round(6)
        svm = folder / "a.svm"
        write_libsvm(svm, dense, np.arange(2000) % 10)
        ours, peer = _pair(
            lambda: read_libsvm(svm), lambda: load_svmlight_file(str(svm))[0].toarray(), rounds
        )
        rows.append(
            {
                "what": "libsvm 2,000 x 256 dense",
                "peer": "scikit-learn",
                "ours_s": ours,
                "peer_s": peer,
            }
        )

        vecs = folder / "a.hvecs"
        write_vecs(vecs, rng.integers(0, 9, (20_000, 1000)))
        ours, peer = _pair(lambda: read_vecs(vecs), lambda: _plain_vecs(vecs), rounds)
        rows.append(
            {"what": "hvecs 20,000 x 1,000", "peer": "record loop", "ours_s": ours, "peer_s": peer}
        )

        concepts = folder / "a.csv"
        table = (rng.random((20_000, 81)) < 0.02).astype(int)
        lines = "\n".join(f"im{i}," + ",".join(map(str, row)) for i, row in enumerate(table))
        concepts.write_text("image," + ",".join(f"c{j}" for j in range(81)) + "\n" + lines + "\n")
        ours, peer = _pair(
            lambda: read_concept_csv(concepts), lambda: _plain_concepts(concepts), rounds
        )
        rows.append(
            {
                "what": "concept CSV 20,000 x 81",
                "peer": "csv module",
                "ours_s": ours,
                "peer_s": peer,
            }
        )

        dat = folder / "a.dat"
        np.savetxt(dat, rng.random((5000, 225)), fmt="%.6f")
        ours, peer = _pair(
            lambda: read_number_table(dat),
            lambda: np.genfromtxt(io.StringIO(dat.read_text())),
            rounds,
        )
        rows.append(
            {
                "what": "features .dat 5,000 x 225",
                "peer": "numpy.genfromtxt",
                "ours_s": ours,
                "peer_s": peer,
            }
        )

        picture = rng.integers(0, 256, (240, 320), dtype=np.uint8)
        ours, peer = _pair(lambda: dense_sift(picture), lambda: _skimage_daisy(picture), rounds)
        rows.append(
            {
                "what": "dense SIFT 320 x 240",
                "peer": "skimage DAISY, same grid",
                "ours_s": ours,
                "peer_s": peer,
            }
        )
    return [row | {"ratio": row["peer_s"] / row["ours_s"]} for row in rows]


def _skimage_daisy(picture: np.ndarray) -> np.ndarray:
    """The dense descriptor that scikit-image has, of a similar size (its SIFT finds keypoints)."""
    from skimage.feature import daisy

    return daisy(picture, step=8, radius=8, rings=2, histograms=8, orientations=8)


if __name__ == "__main__":
    print_table("Reading formats", run())
