"""Errors that a user can cause, each one clear sentence with its place and its remedy."""

from __future__ import annotations

from pathlib import Path


class AffinityError(Exception):
    """Base of every error this project raises on purpose; ``exit_status`` is what the command returns."""

    exit_status = 1


class InputError(AffinityError, ValueError):
    """A file, a value or a command that cannot be used.

    Parameters
    ----------
    what : str
        What is wrong, without a full stop.
    path, line, column : optional
        Where: a file and one-based position in it.
    expected : str, optional
        What would have been right.
    remedy : str, optional
        What the user can do about it.

    Notes
    -----
    ``str(error)`` reads ``path:line:column: what; expected ...; remedy``.
    """

    exit_status = 2

    def __init__(
        self,
        what: str,
        *,
        path: str | Path | None = None,
        line: int | None = None,
        column: int | None = None,
        expected: str | None = None,
        remedy: str | None = None,
    ) -> None:
        self.what = what
        self.path = None if path is None else str(path)
        self.line = line
        self.column = column
        self.expected = expected
        self.remedy = remedy
        super().__init__(self._sentence())

    def _sentence(self) -> str:
        place = ":".join(
            str(part) for part in (self.path, self.line, self.column) if part is not None
        )
        sentence = f"{place}: {self.what}" if place else self.what
        if self.expected:
            sentence += f"; expected {self.expected}"
        if self.remedy:
            sentence += f"; {self.remedy}"
        return sentence


class DataMissingError(InputError):
    """The raw files of a dataset are not where they are looked for."""


class ArtifactError(AffinityError):
    """A stored artifact is damaged or incomplete."""


class TrialError(AffinityError):
    """A trial could not be computed; the rest of the suite goes on."""
