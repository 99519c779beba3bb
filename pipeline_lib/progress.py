"""What a run tells while it works: plain events, shown by whoever listens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Counts:
    """Where a run stands; one unit is one trial, or one evaluation of a chosen trial."""

    total: int = 0
    done: int = 0
    cached: int = 0
    failed: int = 0


class Progress(Protocol):
    """Listens to a run."""

    def stage(self, name: str) -> None:
        """A part of the run begins."""

    def counts(self, counts: Counts) -> None:
        """The counts changed."""

    def notice(self, sentence: str) -> None:
        """Something the user should read: a damaged artifact, a failed trial."""


class Silent:
    """Tells nothing."""

    def stage(self, name: str) -> None:
        """Tell nothing."""

    def counts(self, counts: Counts) -> None:
        """Tell nothing."""

    def notice(self, sentence: str) -> None:
        """Tell nothing."""
