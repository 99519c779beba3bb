"""Download of the collections whose files have a pinned checksum (extra ``fetch``).

Everything else is downloaded by hand: many providers ask to accept a licence first, and a file that
nobody has checksummed is not fetched behind the user's back. `fetch` then says at once what to get,
from where, and which command imports it.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

from pipeline_lib.datasets.acquire import import_files
from pipeline_lib.datasets.archives import unpack
from pipeline_lib.datasets.catalogue import DatasetSpec, Source, dataset_spec
from pipeline_lib.datasets.rawfiles import raw_root
from pipeline_lib.errors import DataMissingError, InputError

_TIMEOUT = (10, 60)  # seconds to connect, and between two blocks
_ARCHIVES = (".zip", ".tar", ".tgz", ".tar.gz", ".tar.bz2", ".tar.xz")
_BLOCK = 1 << 16  # what is lost, at most, when a connection breaks


def fetch(
    name: str,
    target: Path | None = None,
    *,
    dry_run: bool = False,
    report: Callable[[str], None] | None = None,
) -> list[str]:
    """Download a dataset, verify it, and import it.

    Parameters
    ----------
    name : str
        Catalogue name.
    target : Path, optional
        Where raw files go; by default ``data/raw``. Downloads are kept in its folder ``.downloads``,
        where an interrupted one goes on.
    dry_run : bool, default False
        Only say what would be downloaded; nothing is written and no connection made.
    report : callable, optional
        Gets each line when it is known, the licence first.

    Returns
    -------
    list of str
        The lines: licence, files, and what was imported.

    Raises
    ------
    DataMissingError
        The dataset is downloaded by hand, or no address can be reached; the sentence holds the address,
        the names of the files and the import command.
    InputError
        A download differs from its pinned checksum, or its content from the declaration.
    """
    spec = dataset_spec(name)
    lines: list[str] = []

    def say(line: str) -> None:
        lines.append(line)
        if report is not None:
            report(line)

    if not any(part.files for part in spec.parts):
        say(f"{spec.name} needs no files: it is made by {spec.reader.format}")
        return lines
    pinned = [source for source in spec.sources if source.hash]
    if not pinned:
        raise by_hand(spec, "is downloaded by hand (no checksum is pinned)")
    say(f"{spec.title}; licence: {spec.licence}")
    for source in pinned:
        size = f"{source.bytes:,} bytes" if source.bytes else "size unknown"
        say(f"{source.url} ({size}, {source.hash})")
    root = Path(target) if target is not None else raw_root()
    if dry_run:
        say(f"would be imported into {root / spec.folders[0]}")
        return lines
    downloads = root / ".downloads" / spec.name
    downloads.mkdir(parents=True, exist_ok=True)
    files = [(source, _download(spec, source, downloads)) for source in pinned]
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=root) as scratch:
        release = Path(scratch) / "release"
        for number, (source, file) in enumerate(files):
            _place(file, release / source.folder, Path(scratch) / f"unpacked{number}")
        for line in import_files(name, release, root):
            say(line)
    shutil.rmtree(downloads, ignore_errors=True)
    return lines


def by_hand(spec: DatasetSpec, why: str) -> DataMissingError:
    """The error that says what to download where, and how to import it."""
    wanted = "; ".join(f"{source.url} ({source.files})" for source in spec.sources if source.files)
    names = sorted({file.name for part in spec.parts for file in part.files})
    shown = ", ".join(names[:6]) + (" ..." if len(names) > 6 else "")
    return DataMissingError(
        f"{spec.name} {why}",
        expected=f"the files {shown}",
        remedy=f"get them from {wanted or spec.homepage}, mind the licence ({spec.licence}), and run: "
        f"affinity data import {spec.name} PATH",
    )


def _place(file: Path, folder: Path, scratch: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    if not file.name.lower().endswith(_ARCHIVES):
        shutil.move(file, folder / file.name)
        return
    unpack(file, scratch)
    for child in scratch.iterdir():
        shutil.move(child, folder / child.name)


def _download(spec: DatasetSpec, source: Source, folder: Path) -> Path:
    try:
        import pooch
        import requests
    except ImportError:
        raise InputError(
            "downloading needs pooch",
            remedy="install affinity-bench with the extra fetch: pip install 'affinity-bench[fetch]'; "
            f"or get {source.url} yourself and run: affinity data import {spec.name} PATH",
        ) from None
    pooch.get_logger().setLevel("ERROR")
    name = Path(urlsplit(source.url).path).name
    failures = []
    for url in (source.url, *source.mirrors):
        try:
            return Path(
                pooch.retrieve(
                    url,
                    known_hash=source.hash,
                    fname=name,
                    path=folder,
                    downloader=_Resuming(folder / f"{name}.part", source.bytes),
                )
            )
        except ValueError:
            # pooch found another checksum: the partial file is as wrong as the whole.
            failures.append(f"{url}: the file differs from its pinned checksum {source.hash}")
        except (requests.RequestException, OSError) as error:
            failures.append(f"{url}: {_short(error)}")
    raise by_hand(spec, f"could not be fetched ({'; '.join(failures)})")


def _short(error: Exception) -> str:
    text = str(error) or type(error).__name__
    return type(error).__name__ if len(text) > 200 else text


class _Resuming:
    """A downloader for pooch that goes on where an earlier one stopped.

    Parameters
    ----------
    partial : Path
        What is there so far; kept when the connection breaks, removed when the file is complete.
    size : int, optional
        Bytes of the whole; more are refused.
    """

    def __init__(self, partial: Path, size: int | None) -> None:
        self.partial = partial
        self.size = size

    def __call__(self, url: str, output_file: str | IO[bytes], pooch: Any) -> None:
        import requests

        have = self.partial.stat().st_size if self.partial.is_file() else 0
        headers = {"Range": f"bytes={have}-", "Accept-Encoding": "identity"} if have else {}
        with requests.get(url, headers=headers, stream=True, timeout=_TIMEOUT) as answer:
            if answer.status_code == 416:  # nothing after what is there: complete, or another file
                pass
            else:
                answer.raise_for_status()
                # A server that does not know ranges sends the whole again.
                mode = "ab" if have and answer.status_code == 206 else "wb"
                with self.partial.open(mode) as sink:
                    for block in answer.iter_content(_BLOCK):
                        sink.write(block)
                        if self.size is not None and sink.tell() > self.size:
                            raise OSError(f"more than the declared {self.size:,} bytes")
        expected = self.size
        if expected is not None and self.partial.stat().st_size < expected:
            raise OSError(f"the connection ended after {self.partial.stat().st_size:,} bytes")
        self.partial.replace(str(output_file))
