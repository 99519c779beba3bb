"""What the ``data`` commands tell, and ``data add``: a dataset of the user's own gets a name."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pipeline_lib.errors import InputError
from pipeline_lib.home import resolve_home

_SHOWN = 4  # parts named of a dataset


def add_dataset(
    name: str,
    paths: Sequence[str],
    *,
    home: Path | None,
    size: str | None,
    tags: Sequence[str] | None,
    features: Sequence[str] | None,
    report: Callable[[str], None],
    **options: Any,
) -> None:
    """Declare the dataset and tell what was found, where the declaration is, and the next command.

    Parameters are those of `pipeline_lib.datasets.own.declare`, as the command line has them: ``paths``
    one path or several ``PART=PATH``, ``size`` as ``HEIGHTxWIDTH``, a single tag as a list of one.
    """
    from pipeline_lib.datasets.catalogue import dataset_spec
    from pipeline_lib.datasets.own import declare

    written = declare(
        name,
        _parts(paths),
        tags=None if not tags else tags[0] if len(tags) == 1 else list(tags),
        features=list(features) if features else None,
        size=None if size is None else _size(size),
        scratch=resolve_home(home).store / "pictures",
        report=report,
        **options,
    )
    drawn = sum(part.subset is not None for part in dataset_spec(name).parts) // 3
    if drawn:
        report(f"{drawn} folds of whole queries were drawn: fold1 to fold{drawn}")
    report(f"declared in {written}")
    report(f"next: affinity run --dataset {name}")


def status_by_dataset(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    """`acquire.status`, one row a dataset: state, the parts that are here, and where they are."""
    found: list[dict[str, str]] = []
    for name in dict.fromkeys(row["name"] for row in rows):
        parts = [row for row in rows if row["name"] == name]
        here = [row for row in parts if row["state"] in ("found", "built in")]
        state = "missing" if not here else f"{len(here)} of {len(parts)} parts"
        if len(here) == len(parts):
            state = "built in" if here[0]["state"] == "built in" else "here"
        shown = [row["part"] for row in here[:_SHOWN]] + ["..."] * (len(here) > _SHOWN)
        places = dict.fromkeys(row["path"] for row in here if row["path"])
        found.append(
            {
                "name": name,
                "state": state,
                "parts here": ", ".join(shown),
                "path": ", ".join(places),
            }
        )
    return found


def _parts(paths: Sequence[str]) -> Path | dict[str, Path]:
    if len(paths) == 1 and (Path(paths[0]).expanduser().exists() or "=" not in paths[0]):
        return Path(paths[0])
    parts: dict[str, Path] = {}
    for given in paths:
        part, equals, path = given.partition("=")
        if not equals or not part or not path:
            raise InputError(
                f"{given!r} does not say which part it is",
                expected="PART=PATH for each of several paths, for example train=a.csv",
            )
        if part in parts:
            raise InputError(f"part {part!r} is given twice")
        parts[part] = Path(path)
    return parts


def _size(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"([1-9]\d{0,4})[xX]([1-9]\d{0,4})", text)
    if match is None:
        raise InputError(f"size {text!r}", expected="HEIGHTxWIDTH in pixels, for example 32x32")
    return int(match[1]), int(match[2])
