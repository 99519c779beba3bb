"""Workers compute with one OpenMP thread each: unlike that of BLAS, its limit belongs to each thread."""

from __future__ import annotations

import sklearn.cluster  # noqa: F401  (brings OpenMP)
from threadpoolctl import threadpool_info, threadpool_limits

from pipeline_lib.execution import thread_executor
from tasks.stages import _prepare


def threads_here() -> set[int]:
    libraries = threadpool_info()
    return {entry["num_threads"] for entry in libraries if entry["user_api"] == "openmp"}


def prepared_threads() -> set[int]:
    _prepare()
    return threads_here()


def test_a_worker_uses_one_thread() -> None:
    with threadpool_limits(limits=2, user_api="openmp"), thread_executor(1) as executor:
        executor.submit("key", "fit", "name", threads_here)
        outcome = executor.next(timeout=30.0)
    assert outcome is not None and outcome.value == {1}


def test_a_task_prepares_the_thread_it_runs_in() -> None:
    from concurrent.futures import ThreadPoolExecutor

    with threadpool_limits(limits=2, user_api="openmp"):
        for _ in range(2):  # each pool brings a new thread
            with ThreadPoolExecutor(1) as pool:
                assert pool.submit(prepared_threads).result() == {1}
