"""LETOR text to memory: this project's reader beside scikit-learn's, with peak memory.

Generated lines of 136 features in the manner of MSLR (60 small counts, 76 decimals). Every
measurement is a process of its own, so its peak memory is its own.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

try:
    from tests.performance._table import print_table
except ImportError:  # run as a script, with this folder on the path
    from _table import print_table

WIDTH = 136
CHUNK = 20_000
DOCUMENTS_PER_QUERY = 100

OURS = """
with tempfile.TemporaryDirectory(dir=Path(path).parent) as folder:
    target = Path(folder) / "data.parquet"
    write_canonical(target, read_letor(Path(path), base=1, width={width}))
    data = read_canonical(target)
shape, total = data.X.shape, float(data.X[::997].sum())
"""
OURS_TO_PARQUET = """
with tempfile.TemporaryDirectory(dir=Path(path).parent) as folder:
    info = write_canonical(Path(folder) / "data.parquet", read_letor(Path(path), base=1, width={width}))
shape, total = (info["counts"]["rows"], info["counts"]["features"]), None
"""
SKLEARN = """
X, y, qid = load_svmlight_file(path, n_features={width}, query_id=True, zero_based=False)
shape, total = X.shape, float(X[::997].sum())
"""
SKLEARN_WITHOUT_QUERIES = """
X, y = load_svmlight_file(path, n_features={width}, zero_based=False)
shape, total = X.shape, float(X[::997].sum())
"""
# It appends every query id to a copy of those before it: a million lines copy four terabytes.
MOST_LINES_WITH_QUERIES = 100_000
OUR_IMPORTS = """
from pipeline_lib.datasets.canonical import read_canonical, write_canonical
from pipeline_lib.datasets.letor import read_letor
"""
SKLEARN_IMPORTS = "from sklearn.datasets import load_svmlight_file"
FRAME = """
import json, resource, sys, tempfile, time
from pathlib import Path
{imports}
path = sys.argv[1]
started = time.perf_counter(); spent = time.process_time()
{body}
print(json.dumps({{
    "seconds": time.perf_counter() - started, "cpu": time.process_time() - spent,
    "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    "shape": shape, "total": total,
}}))
"""


def write_lines(path: Path, n: int, seed: int = 0) -> None:
    """``n`` lines; the features repeat every 20,000 lines, labels and queries do not."""
    rng = np.random.default_rng(seed)
    size = min(n, CHUNK)
    X = rng.random((size, WIDTH))
    X[:, :60] = np.floor(50 * X[:, :60] ** 3)
    formats = ["%d" if feature < 60 else "%.6f" for feature in range(WIDTH)]
    line = " ".join(f"{index}:{kind}" for index, kind in enumerate(formats, start=1))
    features = [line % tuple(row) for row in X]
    with open(path, "w") as file:
        for start in range(0, n, size):
            labels = rng.integers(0, 5, size=min(size, n - start))
            file.writelines(
                f"{label} qid:{(start + row) // DOCUMENTS_PER_QUERY + 1} {features[row]}\n"
                for row, label in enumerate(labels)
            )


def measure(body: str, path: Path) -> dict[str, Any]:
    """Run one piece of code on the file in a fresh process; imports are not timed."""
    imports = OUR_IMPORTS if "read_letor" in body else SKLEARN_IMPORTS
    code = FRAME.format(imports=imports, body=body.format(width=WIDTH))
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)], check=False, capture_output=True, text=True
    )
    if done.returncode:
        raise RuntimeError(f"exit status {done.returncode}: {done.stderr[-2000:]}")
    return dict(json.loads(done.stdout))


def run(sizes: tuple[tuple[int, int], ...] = ((50_000, 3), (1_000_000, 1))) -> list[dict[str, Any]]:
    """Rows for each (number of lines, number of repetitions)."""
    rows = []
    for n, repetitions in sizes:
        with tempfile.TemporaryDirectory(prefix="bench-letor-") as folder:
            path = Path(folder) / "lines.txt"
            write_lines(path, n)
            queries = n <= MOST_LINES_WITH_QUERIES
            theirs = SKLEARN if queries else SKLEARN_WITHOUT_QUERIES
            runs = [
                [measure(body, path) for body in (OURS_TO_PARQUET, OURS, theirs)]
                for _ in range(repetitions)
            ]
            peer = [run[2] for run in runs]
            for at, what in enumerate(("to Parquet", "to Parquet and into memory (float64)")):
                ours = [run[at] for run in runs]
                assert ours[0]["shape"] == peer[0]["shape"] == [n, WIDTH]
                assert at == 0 or abs(ours[0]["total"] - peer[0]["total"]) < 1e-6 * peer[0]["total"]
                seconds = [
                    statistics.median(run["seconds"] for run in side) for side in (ours, peer)
                ]
                rows.append(
                    {
                        "what": f"{n:,} x {WIDTH} lines {what}",
                        "ours_s": seconds[0],
                        "peer_s": seconds[1],
                        "ratio": seconds[1] / seconds[0],
                        "ours_cpu_s": statistics.median(run["cpu"] for run in ours),
                        "peer_cpu_s": statistics.median(run["cpu"] for run in peer),
                        "ours_peak_mib": max(run["peak_mib"] for run in ours),
                        "peer_peak_mib": max(run["peak_mib"] for run in peer),
                        "note": f"{path.stat().st_size / 1e6:,.0f} MB text; peer load_svmlight_file"
                        + ("" if queries else " without query ids"),
                    }
                )
    return rows


if __name__ == "__main__":
    print_table("Reading LETOR text", run())
