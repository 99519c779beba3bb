"""Live progress on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import TracebackType

from rich.console import Console
from rich.live import Live
from rich.text import Text

from pipeline_lib.progress import Counts, Progress

_PLAIN_SECONDS = 10.0
_BAR = 28


_listener: ContextVar[Progress | None] = ContextVar("listener", default=None)


@contextmanager
def listening(listener: Progress) -> Iterator[None]:
    """Let a listener hear the flows that the block starts in this process.

    Flows are given names and numbers only. They ask `current_listener`, a function: what a flow's own
    module held would be sent along to worker processes, where it cannot go.
    """
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


def current_listener() -> Progress | None:
    """Who listens, if anybody."""
    return _listener.get()


class ProgressDisplay:
    """Shows where a run stands: trials done, reused, failed, time left.

    On a terminal one line is redrawn; elsewhere a plain line is written at each change of stage and
    every ten seconds. Everything goes to standard error: standard output is for results.

    Parameters
    ----------
    quiet : bool
        Show notices of failures only.
    """

    def __init__(self, *, quiet: bool = False) -> None:
        self.quiet = quiet
        self.console = Console(stderr=True, highlight=False)
        self.live: Live | None = None
        self.current = ""
        self.last = Counts()
        self.began: float | None = None
        self.written = 0.0

    def __enter__(self) -> ProgressDisplay:
        if not self.quiet and self.console.is_terminal:
            self.live = Live(console=self.console, refresh_per_second=4, transient=True)
            self.live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Take the live line away."""
        if self.live is not None:
            self.live.stop()
            self.live = None

    def line(self, sentence: str) -> None:
        """Write a line that stays."""
        if not self.quiet:
            self.console.print(sentence, soft_wrap=True)

    def stage(self, name: str) -> None:
        """Begin a part of the run."""
        self.current = name
        if self.live is None:
            self.line(name)
        self._draw()

    def counts(self, counts: Counts) -> None:
        """Take new counts."""
        if counts.done and self.began is None:
            self.began = time.monotonic()
        self.last = counts
        now = time.monotonic()
        if self.live is not None:
            self._draw()
        elif not self.quiet and counts.total and now - self.written > _PLAIN_SECONDS:
            self.written = now
            self.line(self._text())

    def notice(self, sentence: str) -> None:
        """Show something that the user should read, even when quiet."""
        self.console.print(Text(sentence, style="yellow"), soft_wrap=True)

    def _draw(self) -> None:
        if self.live is not None:
            self.live.update(Text(self._text()))

    def _text(self) -> str:
        counts = self.last
        if not counts.total:
            return self.current
        share = counts.done / counts.total
        bar = "█" * round(share * _BAR) + "░" * (_BAR - round(share * _BAR))
        parts = [f"{self.current}  {bar}  {counts.done}/{counts.total} trials"]
        if counts.cached:
            parts.append(f"{counts.cached} reused")
        parts.append(f"{counts.failed} failed")
        left = self._seconds_left()
        if left is not None:
            parts.append(f"{_duration(left)} left")
        return ", ".join(parts)

    def _seconds_left(self) -> float | None:
        """Extrapolate from the trials computed in this run; reused ones cost nothing."""
        counts = self.last
        worked = counts.done - counts.cached
        if self.began is None or worked < 2 or counts.done >= counts.total:
            return None
        return (time.monotonic() - self.began) / worked * (counts.total - counts.done)


def _duration(seconds: float) -> str:
    whole = int(seconds + 0.5)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
