"""Unpacking of downloaded archives: nothing leaves its folder, swells without bound, or stays half done."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import shutil
import stat
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import IO, Any

from pipeline_lib.datasets.reading import PathLike, existing_file
from pipeline_lib.errors import InputError

_DAMAGED = (
    zipfile.BadZipFile,
    tarfile.TarError,
    zlib.error,
    lzma.LZMAError,
    EOFError,
    OSError,
    NotImplementedError,
    RuntimeError,
    ValueError,
    OverflowError,
    IndexError,
)
_OPENERS: dict[str, Callable[[Path], Any]] = {
    ".gz": gzip.GzipFile,
    ".bz2": bz2.BZ2File,
    ".xz": lzma.LZMAFile,
}


@dataclass(frozen=True)
class Limits:
    """What an archive may become.

    Parameters
    ----------
    max_bytes : int
        Sum of all unpacked sizes.
    max_files : int
    max_ratio : int
        Unpacked over packed size, looked at once more than ``ratio_from`` bytes are unpacked.
    ratio_from : int
    """

    max_bytes: int = 64 * 2**30
    max_files: int = 2_000_000
    max_ratio: int = 200
    ratio_from: int = 64 * 2**20


DEFAULT_LIMITS = Limits()


@contextmanager
def _reporting(path: Path) -> Iterator[None]:
    try:
        yield
    except InputError:
        raise
    except _DAMAGED as error:
        raise InputError(
            f"damaged archive ({type(error).__name__}: {error})",
            path=path,
            remedy="fetch it again",
        ) from None


def safe_member(name: str, archive: Path) -> PurePosixPath:
    """The relative path of a member, refused when it would leave the folder."""
    pure = PurePosixPath(name.replace("\\", "/"))
    windows = PureWindowsPath(name)
    if pure.is_absolute() or windows.is_absolute() or windows.drive or windows.root:
        raise InputError(f"member {name!r} has an absolute path", path=archive)
    if ".." in pure.parts:
        raise InputError(f"member {name!r} leaves the folder", path=archive)
    if "\0" in name or not pure.parts:
        raise InputError(f"member {name!r} has no usable name", path=archive)
    return pure


def check_zip_member(
    member: zipfile.ZipInfo, path: PathLike, limits: Limits = DEFAULT_LIMITS
) -> None:
    """Refuse a zip member that is encrypted, a link, or declared to swell beyond the limits."""
    if member.flag_bits & 1:
        raise InputError(f"member {member.filename!r} is encrypted", path=path)
    mode = member.external_attr >> 16
    if mode and not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_IFMT(mode) == 0):
        raise InputError(f"member {member.filename!r} is a link or device", path=path)
    size, packed = member.file_size, member.compress_size
    swells = size > limits.ratio_from and size > limits.max_ratio * max(packed, 1)
    if size > limits.max_bytes or swells:
        raise InputError(
            f"member {member.filename!r} swells from {packed:,} to {size:,} bytes",
            path=path,
            expected=f"at most {limits.max_ratio} times",
        )


def unpack(
    archive: PathLike, folder: PathLike, limits: Limits = DEFAULT_LIMITS
) -> list[PurePosixPath]:
    """Unpack a zip, tar (also .gz, .bz2, .xz) or a single compressed file into a new folder.

    Absolute paths, ``..``, links, devices, encrypted members, repeated names, and contents beyond
    ``limits`` are refused. The folder appears under its name only when everything is unpacked.

    Parameters
    ----------
    archive : path
    folder : path
        Must not exist, or be an empty folder.
    limits : Limits, optional

    Returns
    -------
    list of PurePosixPath
        The files written, relative to ``folder``, sorted.
    """
    archive, folder = existing_file(archive), Path(folder)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError("is there already", path=folder, expected="a new or empty folder")
    folder.parent.mkdir(parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        with _reporting(archive):
            written = _unpack_into(archive, staging, limits)
        if folder.exists():
            folder.rmdir()
        staging.chmod(0o755)
        os.replace(staging, folder)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return sorted(written)


class _Budget:
    """Counts what has really been written: declared sizes are not believed."""

    def __init__(self, archive: Path, limits: Limits) -> None:
        self.archive = archive
        self.limits = limits
        self.packed = max(1, archive.stat().st_size)
        self.bytes = 0
        self.files = 0
        self.written: list[PurePosixPath] = []
        self._seen: set[str] = set()

    def member(self, name: str) -> PurePosixPath:
        pure = safe_member(name, self.archive)
        # Two names that differ in case only are one file on some systems.
        key = str(pure).casefold()
        if key in self._seen:
            raise InputError(f"member {name!r} stands twice", path=self.archive)
        self._seen.add(key)
        self.files += 1
        if self.files > self.limits.max_files:
            raise InputError(f"more than {self.limits.max_files:,} files", path=self.archive)
        self.written.append(pure)
        return pure

    def copy(self, source: IO[bytes], target: Path) -> None:
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("xb") as sink:
            while block := source.read(1 << 20):
                self.bytes += len(block)
                limit = self.limits
                swells = self.bytes > limit.ratio_from and (
                    self.bytes > limit.max_ratio * self.packed
                )
                if self.bytes > limit.max_bytes or swells:
                    raise InputError(
                        f"swells beyond {self.bytes:,} bytes from {self.packed:,}",
                        path=self.archive,
                        expected=f"at most {limit.max_bytes:,} bytes and {limit.max_ratio} times",
                    )
                sink.write(block)


def _unpack_into(archive: Path, staging: Path, limits: Limits) -> list[PurePosixPath]:
    budget = _Budget(archive, limits)
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as content:
            for member in content.infolist():
                if member.is_dir():
                    safe_member(member.filename, archive)
                    continue
                check_zip_member(member, archive, limits)
                target = staging / budget.member(member.filename)
                with content.open(member) as source:
                    budget.copy(source, target)
    elif _is_tar(archive):
        with tarfile.open(archive) as content:
            for entry in content:
                if entry.isdir():
                    if entry.name not in (".", "./"):
                        safe_member(entry.name, archive)
                    continue
                if not entry.isreg():
                    raise InputError(f"member {entry.name!r} is a link or device", path=archive)
                target = staging / budget.member(entry.name)
                packed = content.extractfile(entry)
                assert packed is not None  # regular files always have content
                with packed:
                    budget.copy(packed, target)
    elif archive.suffix.lower() in _OPENERS:
        target = staging / budget.member(archive.stem)
        with _OPENERS[archive.suffix.lower()](archive) as source:
            budget.copy(source, target)
    else:
        raise InputError(
            "is not an archive this project unpacks",
            path=archive,
            expected="zip, tar, tar.gz, tar.bz2, tar.xz, gz, bz2 or xz",
            remedy="unpack it by hand (for .rar and .7z: unrar, 7z) and import the folder",
        )
    return budget.written


def _is_tar(path: Path) -> bool:
    try:
        return tarfile.is_tarfile(path)
    except _DAMAGED:
        return False


def read_compressed(path: PathLike, limits: Limits = DEFAULT_LIMITS) -> bytes:
    """The content of a file that is plain or compressed with gz, bz2 or xz (by its suffix)."""
    path = existing_file(path)
    opener = _OPENERS.get(path.suffix.lower())
    if opener is None:
        return path.read_bytes()
    packed = max(1, path.stat().st_size)
    blocks, size = [], 0
    with _reporting(path), opener(path) as source:
        while block := source.read(1 << 20):
            size += len(block)
            if size > limits.ratio_from and size > limits.max_ratio * packed:
                raise InputError(f"swells beyond {size:,} bytes from {packed:,}", path=path)
            blocks.append(block)
    return b"".join(blocks)
