"""Care of the artifact store: remove what no run refers to, verify what is there.

A run's manifest lists the artifacts that it made or reused. What no manifest lists can be computed
again but explains no result any more; `gc` removes exactly that. A run in progress reuses artifacts
of any age and lists them only at its end, so it holds a lock on the store, and `gc` waits its turn.
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from pipeline_lib.artifacts import (
    SIDECAR,
    ArtifactRef,
    ArtifactStore,
    read_sidecar,
    verify_files,
)
from pipeline_lib.errors import AffinityError, ArtifactError
from pipeline_lib.home import Home
from pipeline_lib.locking import alive

_OTHER_FOLDERS = ("tmp", "locks")


class StoreBusyError(AffinityError):
    """A run uses the store."""


@dataclass(frozen=True)
class Collection:
    """What `gc` removed, or would.

    Attributes
    ----------
    removed : tuple of str
        Names ``stage/fingerprint``.
    bytes : int
        Their size.
    kept : int
        Artifacts that stay.
    """

    removed: tuple[str, ...]
    bytes: int
    kept: int


@dataclass(frozen=True)
class Verification:
    """What `verify` found.

    Attributes
    ----------
    checked : int
        Artifacts looked at.
    bytes : int
        Their size.
    damaged : tuple of str
        A sentence on each artifact that is not what it was.
    missing : tuple of str
        ``run: stage/fingerprint`` of what runs refer to and is gone.
    """

    checked: int
    bytes: int
    damaged: tuple[str, ...]
    missing: tuple[str, ...]

    @property
    def sound(self) -> bool:
        """Whether nothing is damaged or missing."""
        return not self.damaged and not self.missing


@contextmanager
def using_store(home: Home) -> Iterator[None]:
    """Hold the store for the time of a run: nothing is collected meanwhile; runs do not exclude each other.

    The lock is the kernel's, so a run that is killed frees it.
    """
    with _lock_file(home).open("a") as handle:
        fcntl.flock(handle, fcntl.LOCK_SH)
        yield


def gc(home: Home, *, dry_run: bool = False) -> Collection:
    """Remove the artifacts that no run refers to, and nothing else.

    Parameters
    ----------
    home : Home
    dry_run : bool, default=False
        Only say what would be removed.

    Raises
    ------
    StoreBusyError
        If a run is in progress.
    ArtifactError
        If a manifest cannot be read: what its run refers to is not known then.
    """
    store = ArtifactStore(home.store)
    with _store_alone(home):
        manifests = _manifests(home)
        used = {name for manifest in manifests.values() for name in manifest["artifacts"]}
        protected = _begun_by_live_processes(manifests)
        doomed: dict[str, Path] = {}
        kept = 0
        for name, folder in _artifacts(store):
            young = protected is not None and (folder / SIDECAR).stat().st_mtime >= protected
            if name in used or young:
                kept += 1
            else:
                doomed[name] = folder
        size = sum(map(_size, doomed.values()))
        if not dry_run:
            for folder in doomed.values():
                store.discard(ArtifactRef(folder.parent.name, folder.name))
            store.clean_temporary()
    return Collection(tuple(doomed), size, kept)


def verify(home: Home) -> Verification:
    """Compare every file of every artifact with its checksum, and the runs with what they refer to."""
    store = ArtifactStore(home.store)
    present: set[str] = set()
    damaged = []
    size = 0
    for name, folder in _artifacts(store):
        present.add(name)
        size += _size(folder)
        try:
            sidecar = read_sidecar(folder)
            verify_files(folder, sidecar)
            _verify_name(folder, sidecar)
        except ArtifactError as error:
            damaged.append(str(error))
    missing = [
        f"{run}: {name}"
        for run, manifest in sorted(_manifests(home).items())
        for name in manifest["artifacts"]
        if name not in present
    ]
    return Verification(len(present), size, tuple(damaged), tuple(missing))


def _verify_name(folder: Path, sidecar: dict[str, Any]) -> None:
    own = f"{sidecar['stage']}/{sidecar['fingerprint']}"
    if own != f"{folder.parent.name}/{folder.name}":
        raise ArtifactError(f"{folder}: the artifact in this place is {own}")
    strange = {path.name for path in folder.iterdir()} - {SIDECAR, *sidecar["files"]}
    if strange:
        raise ArtifactError(f"{folder}: {min(strange)} does not belong to the artifact")


def _artifacts(store: ArtifactStore) -> Iterator[tuple[str, Path]]:
    for path in sorted(store.root.glob(f"*/*/{SIDECAR}")):
        folder = path.parent
        if folder.parent.name not in _OTHER_FOLDERS:
            yield f"{folder.parent.name}/{folder.name}", folder


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())


def _manifests(home: Home) -> dict[str, dict[str, Any]]:
    found = {}
    for path in home.runs.glob("*/manifest.json"):
        try:
            manifest = json.loads(path.read_text(encoding="utf-8"))
            _ = manifest["artifacts"], manifest["status"]
        except FileNotFoundError:
            continue  # a run that somebody deletes right now
        except (OSError, ValueError, KeyError, TypeError):
            raise ArtifactError(
                f"{path}: the manifest cannot be read, so what its run refers to is not known; "
                "restore it, or delete the run's folder"
            ) from None
        found[path.parent.name] = manifest
    return found


def _begun_by_live_processes(manifests: dict[str, dict[str, Any]]) -> float | None:
    """Earliest start, in seconds since 1970, of runs that stand as running and whose process lives."""
    starts = [
        datetime.fromisoformat(manifest["started"]).timestamp()
        for manifest in manifests.values()
        if manifest["status"] == "running" and alive(int(manifest["pid"]))
    ]
    return min(starts, default=None)


def _lock_file(home: Home) -> Path:
    folder = home.root / "locks"
    folder.mkdir(parents=True, exist_ok=True)
    return folder / "store.lock"


@contextmanager
def _store_alone(home: Home) -> Iterator[None]:
    with _lock_file(home).open("a") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            running = [r for r, m in sorted(_manifests(home).items()) if m["status"] == "running"]
            raise StoreBusyError(
                f"the store is in use by a run{f' ({running[-1]})' if running else ''}; "
                "repeat the command when it has ended"
            ) from None
        yield
