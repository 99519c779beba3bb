"""Which function reads which format.

A reader takes a `ReadRequest` and returns a `RawTable`: the layout at once, the rows while they are
consumed. It raises `InputError` with file, line and column for anything it does not understand, and
never writes. Adding a format means one function and one line in `READERS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipeline_lib.datasets.canonical import RawTable


@dataclass(frozen=True)
class ReadRequest:
    """What a reader is asked for.

    Attributes
    ----------
    dataset, part : str
        Catalogue names.
    files : mapping of str to tuple of Path
        Files by role (``data`` unless the catalogue says otherwise), in catalogue order; empty for
        bundled and generated data.
    options : mapping
        The reader's options as declared; a reader refuses those it does not know.
    seed : int
        For generated data; everything else ignores it.
    """

    dataset: str
    part: str
    files: Mapping[str, tuple[Path, ...]] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0

    def only_file(self, role: str = "data") -> Path:
        """The single file of a role."""
        (path,) = self.files[role]
        return path


Reader = Callable[[ReadRequest], RawTable]
