"""A run in one file: its manifest with the suite, its tables, its small artifacts, the user's own data.

The file is a zip archive whose content is a home folder with one run in it:

==========================  =======================================================================
``frozen.json``             version, run, names of artifacts and files that were too large
``runs/<run id>/``          manifest, tables, values per item
``store/``                  artifacts up to the size given
``data/catalogue/*.toml``   declarations of the user's own datasets that the run uses
``data/files/``             their raw files, up to the same size
==========================  =======================================================================
"""

from __future__ import annotations

import json
import os
import re
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pipeline_lib.artifacts import SIDECAR, ArtifactStore
from pipeline_lib.datasets import catalogue
from pipeline_lib.datasets.archives import unpack
from pipeline_lib.datasets.rawfiles import ROOTS_VARIABLE, data_roots, find_raw_files
from pipeline_lib.errors import InputError
from pipeline_lib.home import Home
from pipeline_lib.results import RunRecord, load_run

VERSION = 1
SMALL = 8 << 20

_CARD = "frozen.json"
_FOLDERS = re.compile(r"^folders\s*=\s*\[([^\]]*)\]", re.MULTILINE)


@dataclass(frozen=True)
class Frozen:
    """What went into a file.

    Attributes
    ----------
    path : Path
    bytes : int
        Size of the file.
    artifacts : int
        How many artifacts it holds.
    left_out : tuple of str
        Artifacts and raw files that were too large or are not there any more.
    """

    path: Path
    bytes: int
    artifacts: int
    left_out: tuple[str, ...]


def freeze(record: RunRecord, target: Path, *, small: int = SMALL) -> Frozen:
    """Pack a run into a file from which it can be repeated elsewhere.

    Parameters
    ----------
    record : RunRecord
    target : Path
        The file; it appears whole or not at all.
    small : int, default=8388608
        Largest size in bytes of an artifact or raw file that goes in. Of larger artifacts the
        checksums in the manifest stay, of larger raw files the checksums as well.

    Raises
    ------
    InputError
        If the run has not ended or has no results, or the file cannot be written.
    """
    if record.status == "running":
        raise InputError(f"run {record.id} has not ended")
    if not len(record.results):
        raise InputError(f"run {record.id} ({record.status}) has no results to repeat")
    partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
    left_out: list[str] = []
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED) as archive:
            for path in _run_files(record):
                archive.write(path, f"runs/{record.id}/{path.relative_to(record.folder)}")
            count = _pack_artifacts(archive, record, small, left_out)
            _pack_own_data(archive, record, small, left_out)
            card = {
                "version": VERSION,
                "run": record.id,
                "frozen": datetime.now(UTC).isoformat(timespec="seconds"),
                "left_out": left_out,
            }
            archive.writestr(_CARD, json.dumps(card, indent=2, ensure_ascii=False) + "\n")
        partial.replace(target)
    except OSError as error:
        raise InputError(f"the file cannot be written ({error.strerror})", path=target) from None
    finally:
        partial.unlink(missing_ok=True)
    return Frozen(target, target.stat().st_size, count, tuple(left_out))


@contextmanager
def thawed(file: Path, folder: Path) -> Iterator[RunRecord]:
    """Unpack a frozen run into a folder and open it; its own data are found meanwhile.

    Raises
    ------
    InputError
        If the file is no frozen run, or of a later version.
    """
    place = folder / "thawed"
    if not zipfile.is_zipfile(file):
        raise InputError(
            "this is not a frozen run, or it is cut off",
            path=file,
            expected="a whole file made by affinity freeze",
        )
    unpack(file, place)
    try:
        card: dict[str, Any] = json.loads((place / _CARD).read_text(encoding="utf-8"))
        version, run = int(card["version"]), str(card["run"])
    except (OSError, ValueError, KeyError, TypeError):
        raise InputError(
            "this is not a frozen run", path=file, expected="a file made by affinity freeze"
        ) from None
    if version > VERSION:
        raise InputError(
            f"frozen by a later version of affinity-bench (layout {version})",
            path=file,
            expected=f"layout {VERSION}",
        )
    before = os.environ.get(ROOTS_VARIABLE)
    if (place / "data").is_dir():
        os.environ[ROOTS_VARIABLE] = os.pathsep.join(
            [str(place / "data"), *([before] if before else [])]
        )
    try:
        yield load_run(Home(place), run)
    finally:
        os.environ.pop(ROOTS_VARIABLE, None)
        if before is not None:
            os.environ[ROOTS_VARIABLE] = before


def _run_files(record: RunRecord) -> list[Path]:
    tables = [*record.folder.glob("*.parquet"), *(record.folder / "per_item").glob("*.parquet")]
    return [record.folder / "manifest.json", *sorted(tables)]


def _pack_artifacts(
    archive: zipfile.ZipFile, record: RunRecord, small: int, left_out: list[str]
) -> int:
    store = ArtifactStore(Home(record.folder.parent.parent).store)
    count = 0
    for name in record.manifest["artifacts"]:
        folder = store.folder(*name.split("/"))
        files = sorted(folder.iterdir()) if (folder / SIDECAR).is_file() else []
        if not files or sum(path.stat().st_size for path in files) > small:
            left_out.append(name)
            continue
        for path in files:
            archive.write(path, f"store/{name}/{path.name}")
        count += 1
    return count


def _pack_own_data(
    archive: zipfile.ZipFile, record: RunRecord, small: int, left_out: list[str]
) -> None:
    """Pack declarations that the project does not have, changed so that the packed files are found."""
    packed: set[str] = set()
    for dataset in sorted({name.partition("/")[0] for name in record.manifest["data"]}):
        path = catalogue.declaration_path(dataset)
        if path.parent == catalogue.catalogue_dir():
            continue
        text = _FOLDERS.sub(
            lambda found: f'folders = ["files", {found[1].strip()}]',
            path.read_text(encoding="utf-8"),
            count=1,
        )
        archive.writestr(f"data/catalogue/{dataset}.toml", text)
        spec = catalogue.dataset_spec(dataset)
        for part in spec.part_names():
            found = find_raw_files(spec.part(part), data_roots())
            if found is None:
                left_out.append(f"{dataset}/{part}, whose files are gone")
                continue
            for raw in found.paths():
                name = f"data/files/{raw.relative_to(found.folder)}"
                if name in packed:
                    continue
                packed.add(name)
                if raw.stat().st_size > small:
                    left_out.append(str(raw))
                else:
                    archive.write(raw, name)
