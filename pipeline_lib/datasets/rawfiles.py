"""Where the raw files of a part are: data roots, names without regard to case, checksums."""

from __future__ import annotations

import fnmatch
import hashlib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path, PurePosixPath

from pipeline_lib.datasets.catalogue import Part, catalogue_dir
from pipeline_lib.errors import DataMissingError

ROOTS_VARIABLE = "AFFINITY_DATA"


def raw_root() -> Path:
    """Where imports go: ``data/raw`` of the checkout, or of the current folder when installed."""
    beside = catalogue_dir().parent
    return (beside if beside.name == "data" else Path.cwd() / "data") / "raw"


def data_roots() -> list[Path]:
    """Folders searched for raw files: those of ``$AFFINITY_DATA`` in order, then `raw_root`."""
    named = os.environ.get(ROOTS_VARIABLE, "").split(os.pathsep)
    return [Path(folder).expanduser() for folder in named if folder] + [raw_root()]


@dataclass(frozen=True)
class RawFiles:
    """The files of a part as found below one folder.

    Attributes
    ----------
    part : Part
    folder : Path
        The folder against which the names of the catalogue are meant.
    files : mapping of str to tuple of Path
        Files by role, in the order of the catalogue.
    missing : tuple of str
        Declared names for which nothing was found.
    hints : tuple of str
        Names accepted although the catalogue writes them differently.
    """

    part: Part
    folder: Path
    files: Mapping[str, tuple[Path, ...]] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    hints: tuple[str, ...] = ()

    def paths(self) -> list[Path]:
        """All files, in the order of the catalogue."""
        return [path for paths in self.files.values() for path in paths]


def find_raw_files(part: Part, roots: Iterable[Path]) -> RawFiles | None:
    """Look for a part below every root; the first complete place wins.

    Returns
    -------
    RawFiles or None
        The first place that has every file, else the one that has most of them, else None.
    """
    best: RawFiles | None = None
    for root in roots:
        for folder in part.folders:
            for place in _matches(root, folder):
                found = match_files(part, place)
                if not found.missing:
                    return found
                if found.files and (best is None or len(found.missing) < len(best.missing)):
                    best = found
    return best


def match_files(part: Part, folder: Path) -> RawFiles:
    """Find the declared files of a part below the folder they are relative to."""
    files: dict[str, tuple[Path, ...]] = {}
    missing, hints = [], []
    for spec in part.files:
        declared = PurePosixPath(spec.name)
        matched = [path for path in _matches(folder, spec.name) if path.is_file()]
        for alias in part.dataset.aliases.get(declared.name, ()) if not matched else ():
            other = declared.with_name(alias)
            matched = [path for path in _matches(folder, str(other)) if path.is_file()]
            if matched:
                hints.append(f"{other} was taken for {declared}")
                break
        if matched:
            files[spec.role] = files.get(spec.role, ()) + tuple(matched)
        else:
            missing.append(spec.name)
    return RawFiles(part, folder, files, tuple(missing), tuple(hints))


def require_raw_files(part: Part, roots: Iterable[Path]) -> RawFiles:
    """`find_raw_files`, complete.

    Raises
    ------
    DataMissingError
        One sentence with what is missing, where it was looked for, the official address and the
        import command.
    """
    roots = list(roots)
    found = find_raw_files(part, roots)
    if found is not None and not found.missing:
        return found
    missing = [spec.name for spec in part.files] if found is None else list(found.missing)
    dataset = part.dataset
    if "/" in part.folders:  # the user's own data, which stay where they are
        raise DataMissingError(
            f"{dataset.name} {part.name}: {', '.join(f'/{name}' for name in missing)} is gone",
            remedy=f"put it back, or say where it is now: affinity data add {dataset.name} PATH "
            "--replace",
        )
    # A release in several forms has an address for each: the one that speaks of the file is meant.
    named = [s for s in dataset.sources if PurePosixPath(missing[0]).name in s.files]
    address = next((source.url for source in [*named, *dataset.sources]), dataset.homepage)
    place = f"in {found.folder}" if found else "below " + " or ".join(str(root) for root in roots)
    raise DataMissingError(
        f"{dataset.name} {part.name}: {', '.join(missing)} not found {place}",
        expected=f"{part.folders[0]}/{missing[0]}",
        remedy=f"get {dataset.title} from {address} and run: "
        f"affinity data import {dataset.name} PATH",
    )


def scratch_of(scratch: Path, name: str, part: str) -> Path:
    """The folder of ``scratch`` that belongs to a part."""
    return scratch / f"{name}.{part.replace('/', '_')}"


def sha256(path: Path) -> str:
    """Checksum of a file; asked again for an unchanged file (size and time), it is remembered."""
    stat = path.stat()
    return _sha256(str(path.resolve()), stat.st_size, stat.st_mtime_ns)


@lru_cache(maxsize=4096)
def _sha256(path: str, size: int, mtime_ns: int) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _matches(folder: Path, name: str) -> list[Path]:
    """Paths below ``folder`` with that relative name; ``*`` matches, and case decides only ties."""
    places = [folder]
    for step in PurePosixPath(name).parts:
        places = [child for place in places for child in _children(place, step)]
    return places


def _children(folder: Path, name: str) -> list[Path]:
    exact = folder / name
    if "*" not in name and exact.exists():
        return [exact]
    try:
        entries = sorted(os.listdir(folder))
    except OSError:
        return []
    pattern = name.casefold()
    found = [entry for entry in entries if fnmatch.fnmatchcase(entry.casefold(), pattern)]
    if "*" not in name:
        found = found[:1]
    return [folder / entry for entry in found]
