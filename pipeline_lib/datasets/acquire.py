"""From a dataset's name to its data: locate, import, ingest, load.

`ingest` is the only road from raw files to rows: reader, check against the declaration, canonical
Parquet. `load` takes the same road through a temporary file, so what a notebook sees is what a run
sees.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from pipeline_lib.datasets.archives import unpack
from pipeline_lib.datasets.canonical import CanonicalWriter, read_canonical, sync_folder
from pipeline_lib.datasets.catalogue import DatasetSpec, Part, dataset_spec, read_all
from pipeline_lib.datasets.container import Dataset
from pipeline_lib.datasets.layout import RawTable, Summary
from pipeline_lib.datasets.rawfiles import (
    RawFiles,
    data_roots,
    find_raw_files,
    match_files,
    raw_root,
    require_raw_files,
    sha256,
)
from pipeline_lib.datasets.readers import ReadRequest, reader_of
from pipeline_lib.datasets.subset import stored_subset
from pipeline_lib.errors import InputError

DATA_FILE = "data.parquet"


def locate(name: str, part: str | None = None) -> list[Path]:
    """The raw files of a part, in catalogue order; none for bundled and generated data.

    Raises
    ------
    DataMissingError
        They are not all there; the sentence holds address, names and import command.
    """
    return _raw(dataset_spec(name).part(part)).paths()


def source_digest(name: str, part: str | None = None, *, seed: int = 0) -> dict[str, str]:
    """What the rows of a part come from, by content.

    Returns
    -------
    dict
        Relative file name to SHA-256; for data without files, the reader's name to the SHA-256 of
        its options and seed.
    """
    resolved = dataset_spec(name).part(part)
    return _digests(resolved, _raw(resolved), seed)


def ingest(
    name: str,
    part: str | None,
    target_dir: Path,
    *,
    allow_mismatch: bool = False,
    seed: int = 0,
    scratch: Path | None = None,
) -> dict[str, Any]:
    """Read a part, check it against its declaration, write canonical Parquet.

    Parameters
    ----------
    name, part : str
        Catalogue names; the dataset's first part when ``part`` is None.
    target_dir : Path
        Gets the file ``data.parquet``, whole or not at all.
    allow_mismatch : bool, default=False
        Record what differs from the declaration instead of stopping.
    seed : int, default=0
        For generated data; what is read from files does not depend on it.
    scratch : Path, optional
        Folder in which a reader may keep finished blocks of long work (descriptors of pictures), so
        that the same call goes on there after a crash.

    Returns
    -------
    dict
        The metadata of the file: counts, sources, variant, mismatches, findings.

    Raises
    ------
    DataMissingError, InputError
        Files are missing, cannot be read, or hold something else than declared.
    """
    return ingest_part(
        dataset_spec(name).part(part),
        target_dir,
        allow_mismatch=allow_mismatch,
        seed=seed,
        scratch=scratch,
    )


def ingest_part(
    resolved: Part,
    target_dir: Path,
    *,
    allow_mismatch: bool = False,
    seed: int = 0,
    scratch: Path | None = None,
) -> dict[str, Any]:
    """`ingest` of a part that need not stand in the catalogue."""
    raw = _raw(resolved)
    digests = _digests(resolved, raw, seed)
    table = _read(resolved, raw, seed, scratch)
    with CanonicalWriter(Path(target_dir) / DATA_FILE, table.layout) as writer:
        for rows in table.blocks:
            writer.write(rows)
        provenance = _provenance(
            resolved, raw, digests, table, writer.summary, allow_mismatch=allow_mismatch
        )
        return writer.finish(provenance | {"seed": seed} if not resolved.files else provenance)


def load(
    name: str, part: str | None = None, *, allow_mismatch: bool = False, seed: int = 0
) -> Dataset:
    """One part of a dataset, in memory.

    Parameters
    ----------
    name : str
        Catalogue name, for example ``mq2008`` or ``digits``.
    part : str, optional
        For example ``fold1/train``; the dataset's first part when not given.
    allow_mismatch : bool, default=False
        Accept data that differ from their declaration.
    seed : int, default=0
        For generated data.

    Returns
    -------
    Dataset
        With the fields that apply; ``info`` holds its provenance.
    """
    with tempfile.TemporaryDirectory(prefix="affinity-load-") as folder:
        ingest(name, part, Path(folder), allow_mismatch=allow_mismatch, seed=seed)
        return read_canonical(Path(folder) / DATA_FILE)


def status() -> list[dict[str, Any]]:
    """Which parts of the catalogue are here.

    Returns
    -------
    list of dict
        ``name``, ``part``, ``state`` (``found``, ``partial``, ``missing``, or ``built in`` for data
        that need no files), ``path`` (folder), ``bytes``, ``missing`` (names). A declaration that is
        not valid is left out.
    """
    rows = []
    roots = data_roots()
    for spec in read_all()[0]:
        for part_name in spec.part_names():
            part = spec.part(part_name)
            row = {"name": spec.name, "part": part_name, "path": "", "bytes": 0, "missing": []}
            if not part.files:
                rows.append(row | {"state": "built in"})
                continue
            found = find_raw_files(part, roots)
            if found is None:
                wanted = [file.name for file in part.files]
                rows.append(row | {"state": "missing", "missing": wanted})
                continue
            rows.append(
                row
                | {
                    "state": "partial" if found.missing else "found",
                    "path": str(found.folder),
                    "bytes": sum(path.stat().st_size for path in found.paths()),
                    "missing": list(found.missing),
                }
            )
    return rows


def import_files(
    name: str, path: Path, raw_root_: Path | None = None, *, allow_mismatch: bool = False
) -> list[str]:
    """Take the files of a dataset into ``data/raw``, checked before anything is written.

    Parameters
    ----------
    name : str
        Catalogue name.
    path : Path
        A folder that holds the release (or the folder of the release itself), or a zip or tar
        archive of one, or a file that the declaration names. Whatever parts are in it are imported.
    raw_root_ : Path, optional
        Where to; `rawfiles.raw_root` by default.
    allow_mismatch : bool, default=False
        Import parts that differ from their declaration, and say so.

    Returns
    -------
    list of str
        One line per imported part.

    Raises
    ------
    InputError
        Nothing recognised, or a part differs from its declaration; nothing is written then.
    """
    spec, path = dataset_spec(name), Path(path).expanduser()
    target = Path(raw_root_) if raw_root_ is not None else raw_root()
    if not path.exists():
        raise InputError("no such file or folder", path=path, expected="a folder or an archive")
    if path.is_dir():
        return _import_folder(spec, path, target, allow_mismatch)
    if path.suffix.lower() in (".rar", ".7z"):
        raise InputError(
            f"{path.suffix} archives are not read",
            path=path,
            remedy="unpack it and give the folder",
        )
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".import-", dir=target) as scratch:
        unpacked = Path(scratch) / path.name.split(".")[0]
        if path.name in {file.name for part in spec.parts for file in part.files}:
            unpacked.mkdir()
            (unpacked / path.name).symlink_to(path.resolve())
        else:
            unpack(path, unpacked)
        try:
            return _import_folder(spec, unpacked, target, allow_mismatch)
        except InputError as error:
            # The folder is gone when the sentence is read: the archive is what the user knows.
            inside = Path(error.path or unpacked).relative_to(unpacked)
            raise InputError(
                error.what,
                path=path / inside,
                line=error.line,
                column=error.column,
                expected=error.expected,
                remedy=error.remedy,
            ) from None


def _import_folder(
    spec: DatasetSpec, folder: Path, target: Path, allow_mismatch: bool
) -> list[str]:
    found = [
        raw for raw in (_find_below(spec.part(part), folder) for part in spec.part_names()) if raw
    ]
    if not found:
        wanted = sorted({file.name for part in spec.parts for file in part.files})
        raise InputError(
            f"no part of {spec.name} found",
            path=folder,
            expected=", ".join(wanted[:6]) + (" ..." if len(wanted) > 6 else ""),
            remedy=f"see {spec.homepage}",
        )
    lines = []
    for raw in found:
        table = _read(raw.part, raw, 0)
        summary = Summary(features=len(table.layout.features), tags=len(table.layout.tags))
        for rows in table.blocks:
            summary.add(rows)
        digests = _digests(raw.part, raw, 0)
        judged = _provenance(raw.part, raw, digests, table, summary, allow_mismatch=allow_mismatch)
        doubts = [f"{doubt}, but not confirmed" for doubt in judged["unconfirmed"]]
        # What differs is neither the official release nor a declared variant of it.
        known = [] if judged["mismatch"] else [judged["variant"]]
        notes = [*known, *judged["mismatch"], *doubts, *raw.hints]
        lines.append(f"{spec.name} {raw.part.name}: {summary.rows:,} rows ({'; '.join(notes)})")
    for raw in found:
        place = target / raw.part.folders[0]
        for source in raw.paths():
            _copy(source, place / source.relative_to(raw.folder))
    return lines


def _find_below(part: Part, folder: Path) -> RawFiles | None:
    """The part inside ``folder``, which may be a data root, the release's folder, or its parent."""
    if not part.files:
        return None
    inside = find_raw_files(part, [folder])
    if inside is None:
        # The folder given may itself be the last step of a declared one (``MQ2008`` of
        # ``letor/MQ2008``); the plain version is also recognised under any other name.
        own_name = {Path(declared).name.casefold() for declared in part.folders}
        plain = part.folders == part.dataset.folders
        others = {
            Path(place).name.casefold()
            for version in part.dataset.versions
            for place in version.folders
        }
        if folder.name.casefold() in own_name or (plain and folder.name.casefold() not in others):
            inside = match_files(part, folder)
    return inside if inside is not None and inside.files and not inside.missing else None


def _copy(source: Path, target: Path) -> None:
    if target.exists() and target.samefile(source):
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        shutil.copyfile(source, temporary)
        with open(temporary, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(temporary, target)
        sync_folder(target.parent)
    finally:
        temporary.unlink(missing_ok=True)


def _raw(part: Part) -> RawFiles:
    return require_raw_files(part, data_roots()) if part.files else RawFiles(part, Path())


def _digests(part: Part, raw: RawFiles, seed: int) -> dict[str, str]:
    if not part.files:
        recipe = json.dumps([part.format, dict(part.options), seed], sort_keys=True)
        return {part.format: hashlib.sha256(recipe.encode()).hexdigest()}
    return {path.relative_to(raw.folder).as_posix(): sha256(path) for path in raw.paths()}


def _read(part: Part, raw: RawFiles, seed: int, scratch: Path | None = None) -> RawTable:
    request = ReadRequest(
        part.dataset.name,
        part.name,
        {role: paths for role, paths in raw.files.items() if role != "split"},
        part.options,
        0 if part.files else seed,
        scratch,
    )
    table = reader_of(part.format)(request)
    if table.layout.kind != part.kind:
        raise InputError(
            f"{part.dataset.name} {part.name}: its reader makes a {table.layout.kind!r} table",
            expected=f"kind {part.kind!r}, as declared",
        )
    if part.subset is not None:
        (split,) = raw.files["split"]
        table = stored_subset(table, split, part.subset.trial, part.subset.part)
    return table


def _provenance(
    part: Part,
    raw: RawFiles,
    digests: dict[str, str],
    table: RawTable,
    summary: Summary,
    *,
    allow_mismatch: bool,
) -> dict[str, Any]:
    """What goes into the file's metadata; stops when the data are not what is declared."""
    pinned = {file.name: file.sha256 for file in part.files if file.sha256}
    variant, mismatch = part.judge(summary.as_dict(), digests.values())
    if variant == "official":
        mismatch += [
            f"checksum of {name}: {digests[name][:12]}... found, {expected[:12]}... declared"
            for name, expected in pinned.items()
            if digests.get(name, expected) != expected
        ]
    if mismatch and not allow_mismatch:
        raise InputError(
            f"{part.dataset.name} {part.name} differs from its declaration: {'; '.join(mismatch)}",
            path=raw.folder if raw.files else None,
            remedy="get the official files, or pass --allow-mismatch to go on and have it recorded",
        )
    return {
        "name": part.dataset.name,
        "part": part.name,
        "variant": variant,
        "variant_note": next((each.note for each in part.variants if each.name == variant), ""),
        "mismatch": mismatch,
        "unconfirmed": part.expect.doubts(summary.as_dict()) if variant == "official" else [],
        "sources": digests,
        "reader": {"format": part.format, "options": dict(part.options)},
        "findings": table.findings | ({"hints": list(raw.hints)} if raw.hints else {}),
    }
