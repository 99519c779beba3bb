"""The artifact store: results of stages on disk, written once, verified before each use.

An artifact is a folder named by its fingerprint, ``store/<stage>/<fingerprint>/``, that holds Parquet
tables and one sidecar, ``artifact.json``, with the checksum of each file, the specification that made
it, and small records. It is written in a temporary sibling folder, flushed to disk, and renamed: a
reader sees all of it or nothing, whatever is killed when. Present and verified means reuse.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from pipeline_lib.errors import ArtifactError
from pipeline_lib.locking import alive

SIDECAR = "artifact.json"
SIDECAR_VERSION = 1

_verified: dict[Path, dict[str, str]] = {}
"""Checksums found right by this process: an artifact is verified once, before its first use."""


@dataclass(frozen=True)
class ArtifactRef:
    """What is passed between stages instead of data: an artifact's name, and how it came about.

    Attributes
    ----------
    stage, fingerprint : str
        Its name.
    cached : bool
        Whether it was there already, so that nothing was computed.
    notice : str, optional
        A sentence on a damaged artifact that this one replaces.
    """

    stage: str
    fingerprint: str
    cached: bool = False
    notice: str | None = None

    @property
    def name(self) -> str:
        """``stage/fingerprint``, as manifests write it."""
        return f"{self.stage}/{self.fingerprint}"

    @classmethod
    def of(cls, name: str) -> ArtifactRef:
        """Read a name."""
        stage, _, fingerprint = name.partition("/")
        return cls(stage, fingerprint)


class ArtifactWriter:
    """Collects the tables, arrays and records of one artifact in its temporary folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.records: dict[str, Any] = {}
        self._arrays: dict[str, dict[str, Any]] = {}

    def table(self, name: str, frame: pl.DataFrame) -> None:
        """Write a table as ``<name>.parquet``; its row order is kept."""
        frame.write_parquet(self.folder / f"{name}.parquet", compression="zstd")

    def array(self, name: str, values: ArrayLike | sparse.sparray | sparse.spmatrix) -> None:
        """Write an array as Parquet: a vector as one column, a matrix as wide columns.

        A matrix wider than long is stored transposed; a sparse matrix as its CSR triplet.
        """
        if sparse.issparse(values):
            csr = sparse.csr_array(values)
            self._arrays[name] = {"form": "csr", "shape": list(csr.shape)}
            self.table(f"{name}.indptr", pl.DataFrame({"indptr": csr.indptr.astype(np.int64)}))
            self.table(
                f"{name}.entries",
                pl.DataFrame({"column": csr.indices.astype(np.int64), "value": csr.data}),
            )
            return
        dense = np.asarray(values)
        form = "dense"
        if dense.size == 0:
            matrix = np.empty((0, 1), dtype=dense.dtype)
        else:
            matrix = dense.reshape(len(dense), -1) if dense.ndim > 1 else dense.reshape(-1, 1)
        if dense.ndim == 2 and dense.size and dense.shape[1] > dense.shape[0]:
            form, matrix = "transposed", dense.T
        self._arrays[name] = {"form": form, "shape": list(dense.shape), "dtype": dense.dtype.str}
        columns = {f"c{j}": np.ascontiguousarray(matrix[:, j]) for j in range(matrix.shape[1])}
        self.table(name, pl.DataFrame(columns))

    def record(self, **values: Any) -> None:
        """Add small JSON values to the sidecar."""
        self.records.update(values)


class Artifact:
    """A verified artifact, to read from."""

    def __init__(self, folder: Path, sidecar: Mapping[str, Any]) -> None:
        self.folder = folder
        self.sidecar = sidecar
        self.records: Mapping[str, Any] = sidecar["records"]

    @property
    def fingerprint(self) -> str:
        """The name of the artifact."""
        return str(self.sidecar["fingerprint"])

    def path(self, name: str) -> Path:
        """Path of a table's Parquet file."""
        return self.folder / f"{name}.parquet"

    def table(self, name: str) -> pl.DataFrame:
        """Read a table, rows in the order written."""
        return pl.read_parquet(self.path(name))

    def tables(self) -> list[str]:
        """Names of all tables."""
        return sorted(
            Path(file).stem for file in self.sidecar["files"] if file.endswith(".parquet")
        )

    def array_names(self) -> list[str]:
        """Names of all arrays."""
        return sorted(self.sidecar["arrays"])

    def array(self, name: str) -> NDArray[Any]:
        """Read a dense array with its shape and dtype."""
        form = self.sidecar["arrays"][name]
        matrix = self.table(name).to_numpy()
        if form["form"] == "transposed":
            matrix = matrix.T
        values = np.asarray(matrix, dtype=np.dtype(form["dtype"])).reshape(form["shape"])
        return values if values.ndim == 0 else np.ascontiguousarray(values)

    def sparse_array(self, name: str) -> sparse.csr_array:
        """Read a sparse matrix."""
        form = self.sidecar["arrays"][name]
        indptr = self.table(f"{name}.indptr")["indptr"].to_numpy()
        entries = self.table(f"{name}.entries")
        triplet = (entries["value"].to_numpy(), entries["column"].to_numpy(), indptr)
        return sparse.csr_array(triplet, shape=tuple(form["shape"]))

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Read every dense array."""
        dense = (
            name for name in self.array_names() if self.sidecar["arrays"][name]["form"] != "csr"
        )
        return {name: self.array(name) for name in dense}


@dataclass
class ArtifactStore:
    """Artifacts under one folder, shared safely by threads and processes.

    Parameters
    ----------
    root : Path
        The folder.
    """

    root: Path

    def folder(self, stage: str, fingerprint: str) -> Path:
        """Where an artifact stands."""
        return self.root / stage / fingerprint

    def open(self, ref: ArtifactRef) -> Artifact:
        """Open an artifact after verifying every checksum.

        Raises
        ------
        ArtifactError
            If it is absent or a file does not match its checksum.
        """
        folder = self.folder(ref.stage, ref.fingerprint)
        sidecar = read_sidecar(folder)
        if _verified.get(folder) != sidecar["files"]:
            verify_files(folder, sidecar)
            _verified[folder] = sidecar["files"]
        return Artifact(folder, sidecar)

    def discard(self, ref: ArtifactRef) -> None:
        """Remove an artifact; a reader elsewhere keeps the files it has open."""
        folder = self.folder(ref.stage, ref.fingerprint)
        doomed = self._temporary(ref.fingerprint)
        try:
            folder.rename(doomed)
        except OSError:
            return
        _verified.pop(folder, None)
        shutil.rmtree(doomed, ignore_errors=True)

    def build(
        self,
        stage: str,
        fingerprint: str,
        spec: Mapping[str, Any],
        make: Callable[[ArtifactWriter], None],
    ) -> ArtifactRef:
        """Return the artifact of that name, making it if it is absent or damaged.

        Parameters
        ----------
        stage, fingerprint : str
            Its name.
        spec : mapping
            Plain JSON values that say what it is; kept in the sidecar.
        make : callable
            Writes tables, arrays and records through the `ArtifactWriter` it is given.

        Returns
        -------
        ArtifactRef
            With ``cached`` true when nothing was computed.
        """
        ref = ArtifactRef(stage, fingerprint, cached=True)
        if self._sound(ref):
            return ref
        with self._exclusive(fingerprint):
            # Another thread or process may have made it while this one waited.
            notice = None
            if self.folder(stage, fingerprint).exists():
                try:
                    self.open(ref)
                    return ref
                except ArtifactError as error:
                    notice = f"{error}; it is rebuilt"
                    self.discard(ref)
            folder = self._temporary(fingerprint)
            folder.mkdir(parents=True)
            try:
                writer = ArtifactWriter(folder)
                started = time.perf_counter()
                make(writer)
                _seal(folder, stage, fingerprint, spec, writer, time.perf_counter() - started)
                target = self.folder(stage, fingerprint)
                target.parent.mkdir(parents=True, exist_ok=True)
                folder.rename(target)
                _sync(target.parent)
            finally:
                shutil.rmtree(folder, ignore_errors=True)
        return ArtifactRef(stage, fingerprint, cached=False, notice=notice)

    def clean_temporary(self) -> None:
        """Remove what dead processes left unfinished."""
        for folder in (self.root / "tmp").glob("*"):
            owner = folder.name.split(".")[1] if folder.name.count(".") >= 2 else ""
            if owner.isdigit() and not alive(int(owner)):
                shutil.rmtree(folder, ignore_errors=True)

    def _sound(self, ref: ArtifactRef) -> bool:
        try:
            self.open(ref)
        except ArtifactError:
            return False
        return True

    def _temporary(self, fingerprint: str) -> Path:
        folder = self.root / "tmp"
        folder.mkdir(parents=True, exist_ok=True)
        return folder / f"{fingerprint}.{os.getpid()}.{uuid.uuid4().hex[:8]}"

    @contextmanager
    def _exclusive(self, fingerprint: str) -> Iterator[None]:
        """Let one thread of one process make an artifact; a killed holder frees the lock."""
        folder = self.root / "locks"
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{fingerprint}.lock"
        while True:
            handle = path.open("a")
            fcntl.flock(handle, fcntl.LOCK_EX)
            # The file may have been removed by its last holder between open and lock.
            if path.exists() and os.fstat(handle.fileno()).st_ino == path.stat().st_ino:
                break
            handle.close()
        try:
            yield
        finally:
            path.unlink(missing_ok=True)
            handle.close()


def verify_files(folder: Path, sidecar: Mapping[str, Any]) -> None:
    """Compare each file of an artifact with its checksum.

    Raises
    ------
    ArtifactError
        Naming the artifact and the file that differs.
    """
    for name, expected in sidecar["files"].items():
        path = folder / name
        try:
            actual = file_digest(path)
        except OSError:
            raise ArtifactError(f"{folder}: the file {name} is missing from the artifact") from None
        if actual != expected:
            raise ArtifactError(f"{folder}: the file {name} does not match its checksum")


def file_digest(path: Path) -> str:
    """SHA-256 of a file's bytes."""
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def write_text_atomically(path: Path, text: str) -> None:
    """Write a small file so that a reader sees the old text or the new, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    sibling = path.with_name(f".{path.name}.{os.getpid()}.{uuid.uuid4().hex[:8]}")
    try:
        with sibling.open("w", encoding="utf-8") as handle:
            handle.write(text)
            handle.flush()
            os.fsync(handle.fileno())
        sibling.replace(path)
    finally:
        sibling.unlink(missing_ok=True)


def _seal(
    folder: Path,
    stage: str,
    fingerprint: str,
    spec: Mapping[str, Any],
    writer: ArtifactWriter,
    seconds: float,
) -> None:
    files = {}
    for path in sorted(folder.iterdir()):
        files[path.name] = file_digest(path)
        _sync(path)
    body = {
        "version": SIDECAR_VERSION,
        "stage": stage,
        "fingerprint": fingerprint,
        "spec": spec,
        "seconds": seconds,
        "files": files,
        "arrays": writer._arrays,
        "records": writer.records,
    }
    text = json.dumps(body, indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False)
    # The sidecar guards the files; its own digest guards it.
    sealed = {"sha256": hashlib.sha256(text.encode()).hexdigest(), "sidecar": body}
    path = folder / SIDECAR
    path.write_text(
        json.dumps(sealed, indent=1, sort_keys=True, ensure_ascii=False), encoding="utf-8"
    )
    _sync(path)
    _sync(folder)


def read_sidecar(folder: Path) -> dict[str, Any]:
    """Read the sidecar of the artifact in a folder; the files it names are not looked at.

    Raises
    ------
    ArtifactError
        If it is absent or does not match its own checksum.
    """
    try:
        sealed = json.loads((folder / SIDECAR).read_text(encoding="utf-8"))
        body: dict[str, Any] = sealed["sidecar"]
        text = json.dumps(body, indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False)
        sound = hashlib.sha256(text.encode()).hexdigest() == sealed["sha256"]
    except FileNotFoundError:
        raise ArtifactError(f"{folder}: no such artifact") from None
    except (OSError, ValueError, KeyError, TypeError):
        sound = False
    if not sound:
        raise ArtifactError(f"{folder}: the file {SIDECAR} does not match its checksum")
    return body


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
