"""All benchmarks, one after the other: ``python -m tests.performance [NAME ...]``.

Each compares ours with a peer side by side in one run; ratios can be trusted on a noisy machine,
seconds cannot.
"""

from __future__ import annotations

import importlib
import os
import sys
import time

from tests.performance._table import print_table

BENCHMARKS = {
    "letor": ("reading LETOR files", "bench_letor_reading"),
    "metrics": ("metrics", "bench_metrics"),
    "kernels": ("kernel approximations", "bench_kernels"),
    "ltr": ("learning to rank", "bench_ltr"),
    "formats": ("reading image and tag formats", "bench_formats"),
    "retrieval": ("manifold ranking", "bench_retrieval"),
    "clustering": ("clustering by sparse coding", "bench_clustering"),
    "completion": ("tag completion", "bench_completion"),
    "annotation": ("image annotation", "bench_annotation"),
    "overhead": ("orchestration of quickstart", "bench_overhead"),
}


def main(names: list[str]) -> int:
    """Run the named benchmarks, or all."""
    unknown = [name for name in names if name not in BENCHMARKS]
    if unknown:
        print(f"unknown benchmark {unknown[0]!r}; known: {', '.join(BENCHMARKS)}", file=sys.stderr)
        return 2
    # Processor times are compared, and BLAS threads that wait for each other would count as work: one
    # thread for both sides, set before numpy is imported, and inherited by processes that are started.
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ.setdefault(variable, "1")
    for name in names or BENCHMARKS:
        title, module = BENCHMARKS[name]
        started = time.perf_counter()
        rows = importlib.import_module(f"tests.performance.{module}").run()
        print_table(f"{title} ({time.perf_counter() - started:.0f} s)", rows)
        print()
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
