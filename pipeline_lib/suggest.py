"""Did-you-mean: the sentence for a name that does not exist."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from pathlib import Path

from pipeline_lib.errors import InputError


def unknown_name(
    what: str, name: str, known: Iterable[str], *, path: str | Path | None = None
) -> InputError:
    """Make the error for an unknown name, with the closest known ones.

    Parameters
    ----------
    what : str
        What is named, for example ``method``.
    name : str
        The name given.
    known : iterable of str
        The names that exist.
    path : path, optional
        The file in which the name stands.
    """
    names = sorted(known)
    by_lower = {n.lower(): n for n in reversed(names)}
    close = difflib.get_close_matches(name.lower(), list(by_lower), n=3, cutoff=0.6)
    matches = [by_lower[lower] for lower in close]
    if matches:
        remedy = "did you mean " + " or ".join(f'"{match}"' for match in matches) + "?"
    else:
        remedy = f"known: {', '.join(names)}" if names else "there are none"
    return InputError(f'unknown {what} "{name}"', path=path, remedy=remedy)
