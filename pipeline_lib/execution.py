"""How stages are carried out: one interface, here in threads of this process.

`flows.benchmark` brings the Prefect executor of the same interface.
"""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from pipeline_lib.environment import set_blas_threads


@dataclass(frozen=True)
class Outcome:
    """Result of one submitted call: a value, or the exception that it raised."""

    key: Any
    value: Any = None
    error: BaseException | None = None


class Executor(Protocol):
    """Carries out stage calls; outcomes arrive in any order."""

    def submit(self, key: Any, stage: str, name: str, call: Callable[..., Any], *args: Any) -> None:
        """Carry out ``call(*args)`` as the given stage; ``name`` is for people."""

    def next(self, timeout: float) -> Outcome | None:
        """Return one outcome, or None when none arrives in time (seconds)."""


class ThreadExecutor:
    """Carries out calls in threads; BLAS releases the interpreter's lock."""

    def __init__(self, pool: ThreadPoolExecutor) -> None:
        self._pool = pool
        self._outcomes: queue.SimpleQueue[Outcome] = queue.SimpleQueue()

    def submit(self, key: Any, stage: str, name: str, call: Callable[..., Any], *args: Any) -> None:
        """Carry out ``call(*args)`` in a thread."""

        def work() -> None:
            try:
                self._outcomes.put(Outcome(key, value=call(*args)))
            except BaseException as error:
                self._outcomes.put(Outcome(key, error=error))

        self._pool.submit(work)

    def next(self, timeout: float) -> Outcome | None:
        """Return one outcome, or None when none arrives in time."""
        try:
            return self._outcomes.get(timeout=timeout)
        except queue.Empty:
            return None


@contextmanager
def thread_executor(workers: int) -> Iterator[ThreadExecutor]:
    """Open a thread pool; calls not yet started are dropped when the block is left by an exception.

    BLAS and OpenMP get one thread in each: parallel are the calls.
    """
    pool = ThreadPoolExecutor(
        workers, thread_name_prefix="affinity", initializer=set_blas_threads, initargs=(1,)
    )
    try:
        yield ThreadExecutor(pool)
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        raise
    pool.shutdown(wait=True)
