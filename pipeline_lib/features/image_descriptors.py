"""Feature matrices from picture files: parallel, resumable, damaged pictures reported by name.

Descriptors by name (extra ``images``):

====================  ==========  ==================================================
name                  dimensions  what
====================  ==========  ==================================================
colour-moments        225         moments of Lab on a 5 x 5 grid
colour-histogram      64          joint histogram of Lab
lbp                   59          uniform local binary patterns
edge-directions       73          directions on Canny edges
hog                   1764        histograms of oriented gradients, 64 x 64 pixels
sift-words            n_words     dense SIFT over a seeded vocabulary
====================  ==========  ==================================================
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from pipeline_lib.datasets.image_folder import raise_damaged
from pipeline_lib.datasets.pictures import read_picture
from pipeline_lib.errors import InputError
from pipeline_lib.features.descriptors.colour import colour_histogram, colour_moments
from pipeline_lib.features.descriptors.sift import BagOfVisualWords
from pipeline_lib.features.descriptors.texture import (
    edge_directions,
    local_binary_patterns,
    oriented_gradients,
)
from pipeline_lib.fingerprints import code_digest
from pipeline_lib.seeds import derive_seed

Describe = Callable[[NDArray[Any]], NDArray[Any]]

#: Descriptors that need nothing but the picture.
DESCRIPTORS: dict[str, Describe] = {
    "colour-moments": colour_moments,
    "colour-histogram": colour_histogram,
    "lbp": local_binary_patterns,
    "edge-directions": edge_directions,
    "hog": oriented_gradients,
}
_WORDS = "sift-words"
_CHUNK = 256


class StaleCheckpointError(InputError):
    """A checkpoint of another call."""


def describe_pictures(
    files: Sequence[Path],
    descriptor: str,
    *,
    seed: int = 0,
    n_words: int = 1000,
    n_jobs: int | None = None,
    checkpoint: str | Path | None = None,
) -> tuple[NDArray[np.float32], tuple[str, ...]]:
    """Describe pictures with one descriptor.

    Parameters
    ----------
    files : sequence of Path
    descriptor : str
        A name of the table in the module's description.
    seed : int, default 0
        Of the vocabulary (``sift-words``).
    n_words : int, default 1000
        Of the vocabulary.
    n_jobs : int, optional
        Threads; by default one per processor. Decoding and arithmetic release the lock.
    checkpoint : path, optional
        Folder in which finished blocks are kept. The same call continues there after a crash; other
        files, parameters or code are refused, so that blocks of two runs never mix.

    Returns
    -------
    X : ndarray of shape (len(files), d), float32
    names : tuple of str
        Such as ``lbp:0``.

    Raises
    ------
    InputError
        Naming every damaged picture (ten of them when there are more), after all the others are done.
    """
    if descriptor not in DESCRIPTORS and descriptor != _WORDS:
        raise InputError(
            f"unknown descriptor {descriptor!r}", expected=", ".join([*DESCRIPTORS, _WORDS])
        )
    if not files:
        raise InputError("no pictures to describe")
    _require_skimage()
    files = [Path(file) for file in files]
    store = (
        None if checkpoint is None else _Store(Path(checkpoint), files, descriptor, seed, n_words)
    )
    damaged: list[InputError] = []
    with ThreadPoolExecutor(max_workers=n_jobs or os.cpu_count()) as pool:
        describe: Describe
        if descriptor == _WORDS:
            describe = _vocabulary(files, seed, n_words, pool, store, damaged).histogram
        else:
            describe = DESCRIPTORS[descriptor]
        blocks = []
        for start in range(0, len(files), _CHUNK):
            block = None if store is None else store.load(start)
            if block is None:
                found = list(
                    pool.map(lambda file: _safely(describe, file), files[start : start + _CHUNK])
                )
                errors = [error for error in found if isinstance(error, InputError)]
                damaged.extend(errors)
                if errors:
                    continue
                block = np.stack(cast("list[NDArray[Any]]", found)).astype(np.float32)
                if store is not None:
                    store.save(start, block)
            blocks.append(block)
    unique = {str(error): error for error in damaged}
    raise_damaged(list(unique.values()), files)
    X = np.concatenate(blocks)
    return X, tuple(f"{descriptor}:{j}" for j in range(X.shape[1]))


def _safely(describe: Describe, file: Path) -> NDArray[Any] | InputError:
    try:
        return describe(read_picture(file))
    except InputError as error:
        return error


def _vocabulary(
    files: Sequence[Path],
    seed: int,
    n_words: int,
    pool: ThreadPoolExecutor,
    store: _Store | None,
    damaged: list[InputError],
) -> BagOfVisualWords:
    model = BagOfVisualWords(n_words)
    words = None if store is None else store.load("vocabulary")
    if words is not None:
        model.vocabulary_ = words
        return model

    def draw(i: int) -> NDArray[Any] | InputError:
        # A generator per picture: the draw does not depend on which thread comes first.
        rng = np.random.default_rng(derive_seed(seed, "visual-words", i))
        return _safely(lambda picture: model.sample(picture, len(files), rng), files[i])

    found = list(pool.map(draw, range(len(files))))
    damaged.extend(error for error in found if isinstance(error, InputError))
    raise_damaged(damaged, files)
    rng = np.random.default_rng(derive_seed(seed, "visual-words"))
    model.fit_descriptors(cast("list[NDArray[np.float32]]", found), rng)
    if store is not None:
        store.save("vocabulary", model.vocabulary_)
    return model


class _Store:
    """Finished blocks of one call in a folder; each file appears whole or not at all."""

    def __init__(
        self, folder: Path, files: Sequence[Path], descriptor: str, seed: int, n_words: int
    ) -> None:
        self.folder = folder
        digest = hashlib.sha256()
        for file in files:
            # A file that is missing is reported, with the damaged ones, when its turn comes.
            size, changed = (
                (file.stat().st_size, file.stat().st_mtime_ns) if file.is_file() else (-1, 0)
            )
            digest.update(f"{file}\0{size}\0{changed}\0".encode())
        wanted: dict[str, Any] = {
            "descriptor": descriptor,
            "files": digest.hexdigest(),
            "chunk": _CHUNK,
            "code": code_digest((__name__,)),
        }
        if descriptor == _WORDS:
            wanted |= {"seed": seed, "n_words": n_words}
        folder.mkdir(parents=True, exist_ok=True)
        manifest = folder / "manifest.json"
        try:
            found = json.loads(manifest.read_text(encoding="utf-8"))
        except FileNotFoundError:
            self._write(manifest, json.dumps(wanted, indent=1).encode())
        except ValueError:
            raise InputError("damaged checkpoint", path=manifest, remedy="remove it") from None
        else:
            if found != wanted:
                raise StaleCheckpointError(
                    "holds blocks of other pictures, parameters or code",
                    path=folder,
                    remedy="remove the folder or choose another",
                )

    def load(self, block: int | str) -> NDArray[Any] | None:
        """A finished block, or None."""
        path = self.folder / f"{block}.npy"
        return np.load(path, allow_pickle=False) if path.is_file() else None

    def save(self, block: int | str, values: NDArray[Any]) -> None:
        """Keep a finished block."""
        temporary = self.folder / f".{block}.npy"
        np.save(temporary, values, allow_pickle=False)
        os.replace(temporary, self.folder / f"{block}.npy")

    @staticmethod
    def _write(path: Path, content: bytes) -> None:
        temporary = path.with_name(f".{path.name}")
        temporary.write_bytes(content)
        os.replace(temporary, path)


def _require_skimage() -> None:
    try:
        import skimage  # noqa: F401
    except ImportError:
        raise InputError(
            "image descriptors need scikit-image and pillow",
            remedy="install affinity-bench with the extra images: pip install 'affinity-bench[images]'",
        ) from None
