"""What orchestration costs: the plain runner and the Prefect flow side by side, with the services up.

Both run in this process over one executor size, each in a home of its own, report and MLflow included.
They take turns, and the median of their differences, turn by turn, is the cost: a machine that becomes
slower does so for both. The run with everything stored computes nothing, so that its difference is the
orchestration alone; spread over the paths of the suite it is the cost of a path.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from statistics import median
from typing import Any

from flows import service_state, services
from flows.run import configure_prefect, drain, prefect_settings
from pipeline_lib.environment import cpu_count, set_blas_threads, silence_convergence_warnings
from pipeline_lib.execution import thread_executor
from pipeline_lib.home import Home
from pipeline_lib.report.page import write_report
from pipeline_lib.results import RunRecord, load_run
from pipeline_lib.runner import Run
from pipeline_lib.suites import load_suite
from pipeline_lib.tracking import attach_report

SUITE = "quickstart"
MOST_SHARE = 0.15
MOST_MILLISECONDS = 60.0
REPETITIONS = 6


def run(suite: str = SUITE) -> list[dict[str, Any]]:
    """Time both roads; one row with nothing stored and one with everything stored."""
    with tempfile.TemporaryDirectory(prefix="overhead-") as folder:
        place = Path(folder)
        homes = {name: Home(place / name) for name in ("plain", "prefect", "services")}
        for home in homes.values():
            home.root.mkdir()
        for name in ("PREFECT_API_URL", "MLFLOW_TRACKING_URI"):
            os.environ.pop(name, None)
        services.up(homes["services"])
        try:
            return _rows(suite, homes)
        finally:
            # What Prefect still holds goes to the server while it is there.
            drain()
            services.down(homes["services"])


def _rows(suite: str, homes: dict[str, Home]) -> list[dict[str, Any]]:
    set_blas_threads(1)
    silence_convergence_warnings()
    with _prefect(homes["services"]):
        roads: dict[str, Callable[[], RunRecord]] = {
            "plain": lambda: _plain(suite, homes["plain"]),
            "prefect": lambda: _flow(suite, homes["prefect"]),
        }
        # The first use of a road imports; what it computed is thrown away.
        for name, warm_up in (("plain", _plain), ("prefect", _flow)):
            warm_up(_tiny(homes[name]), homes[name])
        turns: dict[bool, list[dict[str, float]]] = {True: [], False: []}
        for cold in (True, False):
            for turn in range(REPETITIONS):
                seconds = {}
                for name in sorted(roads, reverse=turn % 2 == 1):
                    if cold:
                        shutil.rmtree(homes[name].store, ignore_errors=True)
                    seconds[name], record = _timed(roads[name])
                turns[cold].append(seconds)
    paths = len(record.manifest["paths"])
    whole = median(seconds["plain"] for seconds in turns[True])
    return [
        _row(f"{suite}, nothing stored", turns[True], paths, whole),
        _row(f"{suite}, everything stored", turns[False], paths, whole),
    ]


def _row(what: str, turns: list[dict[str, float]], paths: int, whole: float) -> dict[str, Any]:
    differences = sorted(seconds["prefect"] - seconds["plain"] for seconds in turns)
    extra = median(differences)
    share = extra / whole
    each = 1000 * extra / paths
    return {
        "case": what,
        "paths": paths,
        "plain s": median(seconds["plain"] for seconds in turns),
        "Prefect s": median(seconds["prefect"] for seconds in turns),
        "overhead s": extra,
        "from, to s": f"{differences[0]:.2f}, {differences[-1]:.2f}",
        "of a cold run": f"{share:.1%}",
        "ms a path": each,
        "goal": f"< {MOST_SHARE:.0%}, < {MOST_MILLISECONDS:.0f} ms",
        "met": share < MOST_SHARE and each < MOST_MILLISECONDS,
    }


def _timed(road: Callable[[], RunRecord]) -> tuple[float, RunRecord]:
    began = time.perf_counter()
    record = road()
    return time.perf_counter() - began, record


def _plain(suite: str, home: Home) -> RunRecord:
    with thread_executor(cpu_count()) as executor:
        record = Run(load_suite(suite), home, executor, workers=cpu_count()).execute()
    write_report(record)
    attach_report(record)
    return record


def _flow(suite: str, home: Home) -> RunRecord:
    from flows.benchmark import BenchmarkRequest, benchmark, task_runner

    runner = task_runner("threads", cpu_count())
    request = BenchmarkRequest(suite=suite, home=str(home.root))
    return load_run(home, benchmark.with_options(task_runner=runner)(request))


def _prefect(home: Home) -> AbstractContextManager[Any]:
    configure_prefect(home)
    return prefect_settings(service_state.api_url(home), managed=True)


def _tiny(home: Home) -> str:
    path = home.root / "tiny.toml"
    path.write_text(
        'version = 1\nname = "tiny"\ntitle = "Tiny"\n[[problems]]\nname = "search"\nkind = "ltr"\n'
        'dataset = "digits"\nsplits = ["ltr"]\nheadline = "map"\n[[problems.methods]]\n'
        'name = "RankSVM"\nparams = { C = 0.01 }\n',
        encoding="utf-8",
    )
    return str(path)
