"""Splits are data: seeded where no official one exists, stored as Parquet, read back exactly.

A stored file has the columns ``trial`` (int32), ``part`` (string) and ``row`` (int64, positions in
the dataset, increasing within a part), and the parameters of the draw in its metadata.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import ArrayLike, NDArray

from pipeline_lib.datasets.reading import existing_file
from pipeline_lib.errors import InputError
from pipeline_lib.seeds import derive_seed

_METADATA_KEY = b"affinity-splits"
_SCHEMA = pa.schema([("trial", pa.int32()), ("part", pa.string()), ("row", pa.int64())])
Split = Mapping[str, NDArray[np.int64]]


@dataclass(frozen=True)
class Splits:
    """Trials of a split: for each, the rows of every part (``train``, ``test``, ...).

    Attributes
    ----------
    trials : tuple of mappings of part name to increasing row positions
    info : mapping
        How they were made.
    """

    trials: tuple[Split, ...]
    info: Mapping[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.trials)

    def __iter__(self) -> Iterator[Split]:
        return iter(self.trials)

    def __getitem__(self, trial: int) -> Split:
        return self.trials[trial]


def random_splits(
    n: int, shares: Mapping[str, float], *, n_trials: int = 1, seed: int = 0, dataset: str = ""
) -> Splits:
    """Independent random splits of ``n`` rows.

    Parameters
    ----------
    n : int
    shares : mapping
        Share of each part, summing to 1, for example ``{"train": 0.9, "test": 0.1}``. Sizes are
        rounded so that they sum to ``n``.
    n_trials : int, default 1
    seed : int, default 0
        With ``dataset`` and the trial's number it fixes a draw: more trials never change earlier ones.
    dataset : str, optional
    """
    names = list(shares)
    weights = np.array([shares[name] for name in names], dtype=np.float64)
    if not names or (weights <= 0).any() or abs(weights.sum() - 1) > 1e-9:
        raise InputError(f"shares are {dict(shares)}", expected="positive numbers that sum to 1")
    bounds = np.rint(np.cumsum(weights) * n).astype(np.int64)
    if (np.diff(bounds, prepend=0) < 1).any():
        raise InputError(f"{n} rows leave a part of {dict(shares)} empty")
    trials = []
    for trial in range(n_trials):
        rng = np.random.default_rng(derive_seed(seed, "random-split", dataset, n, trial))
        pieces = np.split(rng.permutation(n), bounds[:-1])
        trials.append({name: np.sort(piece) for name, piece in zip(names, pieces)})
    info = {"kind": "random", "n": n, "shares": dict(shares), "seed": seed, "dataset": dataset}
    return Splits(tuple(trials), info)


def stratified_folds(y: ArrayLike, n_folds: int, *, seed: int = 0, dataset: str = "") -> Splits:
    """Folds with nearly the class shares of the whole: trial k tests on fold k, trains on the rest."""
    y = np.asarray(y)
    if not 2 <= n_folds <= len(y):
        raise InputError(f"n_folds is {n_folds}", expected=f"2 to {len(y)}")
    rng = np.random.default_rng(derive_seed(seed, "stratified-folds", dataset, len(y), n_folds))
    # Shuffled within classes, then dealt out like cards: no class piles up in one fold.
    order = np.lexsort([rng.random(len(y)), y])
    fold = np.empty(len(y), dtype=np.int64)
    fold[order] = np.arange(len(y)) % n_folds
    trials = tuple(
        {"train": np.flatnonzero(fold != k), "test": np.flatnonzero(fold == k)}
        for k in range(n_folds)
    )
    info = {"kind": "stratified-folds", "n_folds": n_folds, "seed": seed, "dataset": dataset}
    return Splits(trials, info)


def query_folds(qid: ArrayLike, *, n_folds: int = 5, seed: int = 0, dataset: str = "") -> Splits:
    """Folds of whole queries, rotated as LETOR's are.

    Queries are dealt at random to ``n_folds`` pieces. Fold k tests on the piece before its own place
    in the circle, validates on the one before that, and trains on the others, so that every query is
    tested, and validated on, in one fold.

    Parameters
    ----------
    qid : array-like of shape (n,)
        Query of each row, rows of a query together.
    n_folds : int, default 5
        Fewer when there are fewer queries.
    seed : int, default 0
    dataset : str, optional

    Raises
    ------
    InputError
        Fewer than three queries, or fewer than three folds asked for.
    """
    qid = np.asarray(qid)
    _, query = np.unique(qid, return_inverse=True)
    n_queries = int(query.max(initial=-1)) + 1
    if n_queries < 3 or n_folds < 3:
        raise InputError(
            f"{n_queries} queries in {n_folds} folds",
            expected="at least three of both: one to train, one to validate and one to test",
        )
    n_folds = min(n_folds, n_queries)
    rng = np.random.default_rng(derive_seed(seed, "query-folds", dataset, n_queries, n_folds))
    piece = (rng.permutation(n_queries) % n_folds)[query]
    trials = []
    for k in range(n_folds):
        test, vali = piece == (k - 1) % n_folds, piece == (k - 2) % n_folds
        rows = {"train": ~(test | vali), "vali": vali, "test": test}
        trials.append({name: np.flatnonzero(mask) for name, mask in rows.items()})
    info = {"kind": "query-folds", "n": len(qid), "seed": seed, "dataset": dataset}
    return Splits(tuple(trials), info)


def fixed_split(parts: Mapping[str, ArrayLike], **info: Any) -> Splits:
    """One official split, given as row positions."""
    trial = {name: np.sort(np.asarray(rows, dtype=np.int64)) for name, rows in parts.items()}
    return Splits((trial,), {"kind": "official", **info})


def write_splits(path: str | Path, splits: Splits) -> None:
    """Store splits as Parquet; the file appears whole or not at all."""
    path = Path(path)
    trial: list[NDArray[np.int32]] = []
    part: list[pa.Array] = []
    row: list[NDArray[np.int64]] = []
    for k, parts in enumerate(splits):
        for name, rows in parts.items():
            trial.append(np.full(len(rows), k, dtype=np.int32))
            part.append(pa.repeat(name, len(rows)))
            row.append(rows)
    metadata = {_METADATA_KEY: json.dumps({"version": 1, **splits.info}, sort_keys=True)}
    table = pa.table(
        [np.concatenate(trial), pa.concat_arrays(part), np.concatenate(row)],
        schema=_SCHEMA.with_metadata(metadata),
    )
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        pq.write_table(table, temporary, compression="zstd")
        with open(temporary, "rb+") as handle:
            os.fsync(handle.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def read_splits(path: str | Path, *, n: int | None = None) -> Splits:
    """Read stored splits.

    Parameters
    ----------
    path : path
    n : int, optional
        Number of rows of the dataset; positions beyond it are refused.

    Raises
    ------
    InputError
        Not a stored split, a row in two parts of a trial, or a position out of range.
    """
    path = existing_file(path)
    try:
        table = pq.read_table(path)
        table.validate(full=True)
        metadata = table.schema.metadata or {}
        if not table.schema.equals(_SCHEMA) or _METADATA_KEY not in metadata:
            raise InputError("is not a stored split", path=path, expected="trial, part, row")
        if any(column.null_count for column in table.columns):
            raise InputError("has empty cells", path=path)
        info = dict(json.loads(metadata[_METADATA_KEY]))
        trials = table["trial"].to_numpy()
        names = table["part"].dictionary_encode().combine_chunks()
        rows = table["row"].to_numpy()
    except (pa.ArrowException, OSError, ValueError, TypeError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"damaged Parquet file ({error})", path=path) from None
    codes = names.indices.to_numpy()
    found: list[dict[str, NDArray[np.int64]]] = []
    # A part of a trial is a run of rows: only where runs begin is there something to look at.
    changes = (np.diff(trials, prepend=-1) != 0) | (np.diff(codes, prepend=-1) != 0)
    begins = np.flatnonzero(changes)
    for begin, end in zip(begins, [*begins[1:], len(rows)]):
        trial, name = int(trials[begin]), str(names.dictionary[int(codes[begin])])
        if trial not in (len(found) - 1, len(found)):
            raise InputError(f"trial {trial} after {len(found) - 1}", path=path)
        if trial == len(found):
            found.append({})
        if name in found[trial]:
            raise InputError(f"part {name!r} of trial {trial} stands in two places", path=path)
        found[trial][name] = rows[begin:end]
    version = info.pop("version", None)
    if version != 1:
        raise InputError(f"split version {version}", path=path, expected="version 1")
    splits = Splits(tuple(_checked(parts, n, path) for parts in found), info)
    if not len(splits):
        raise InputError("holds no trial", path=path)
    return splits


def _checked(parts: Split, n: int | None, path: Path) -> Split:
    every = np.concatenate(list(parts.values()))
    if np.unique(every).size != every.size:
        raise InputError("a row is in a trial twice", path=path)
    if every.min() < 0 or (n is not None and every.max() >= n):
        raise InputError(f"row {every.max()}", path=path, expected=f"0 to {n and n - 1}")
    return parts
