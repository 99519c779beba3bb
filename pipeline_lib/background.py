"""Work that nobody waits for, carried out in order by one thread beside the main one."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable


class Background:
    """Carries calls out one after the other in a thread of its own.

    The first exception ends the work: later calls are dropped, and `error` holds it. The thread does
    not keep the process alive.
    """

    def __init__(self, name: str) -> None:
        self.error: Exception | None = None
        self.dropped = 0
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._hurry = threading.Event()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def submit(self, call: Callable[[], None]) -> None:
        """Carry out a call after those before it."""
        self._calls.put(call)

    def close(self, seconds: float | None = None) -> None:
        """Wait for the calls submitted; after some seconds drop those not yet begun.

        The call in progress is always waited for, so that nothing is left half written.
        """
        self._calls.put(None)
        self._thread.join(seconds)
        self._hurry.set()
        self._thread.join()

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            if self.error is not None or self._hurry.is_set():
                self.dropped += 1
                continue
            try:
                call()
            except Exception as error:
                self.error = error
                self.dropped += 1
