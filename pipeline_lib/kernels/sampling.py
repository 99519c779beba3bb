"""Uniform samples of rows that do not depend on the order in which the rows come.

Each row gets a 64-bit key, a keyed hash of its own values (equal rows are told apart by counting
them); the rows with the smallest keys are the sample. For a random salt the keys behave as independent
uniform numbers, so every subset of the given size is equally likely, yet the same set of rows in
another order gives the same sample.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Keys = NDArray[np.uint64]


def sample_rows(rows: NDArray[np.float64], size: int, rng: np.random.Generator) -> NDArray[np.intp]:
    """Indices of ``min(size, n)`` rows drawn uniformly without replacement.

    Parameters
    ----------
    rows : ndarray of shape (n, d), float64
    size : int
        All rows when there are fewer.
    rng : Generator
        Gives the salt of the hash: one draw.

    Returns
    -------
    ndarray of shape (min(size, n),)
        In an order that depends on the rows and the salt only, and is itself uniform: every prefix is a
        uniform sample of its length.
    """
    keys = _row_keys(rows, rng.integers(0, 2**63, dtype=np.uint64))
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    starts = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
    if len(starts) < len(order):
        # Copies of a row share a key: mix in each copy's number so that they are drawn separately.
        copy_number = np.arange(len(order)) - np.repeat(
            starts, np.diff(np.append(starts, len(order)))
        )
        ordered = _mix(ordered + copy_number.astype(np.uint64))
        order = order[np.argsort(ordered, kind="stable")]
    return order[: min(size, len(order))]


def _row_keys(rows: NDArray[np.float64], salt: np.uint64) -> Keys:
    keys = np.full(len(rows), salt, dtype=np.uint64)
    for column in rows.T:
        # Adding 0.0 makes -0.0 and 0.0 the same number also in their bits.
        bits = np.ascontiguousarray(column + 0.0).view(np.uint64)
        keys = _mix(keys ^ bits)
    return keys


def _mix(keys: Keys) -> Keys:
    """The finalizer of the SplitMix64 generator (Steele, Lea, Flood 2014): a bijection of 64 bits."""
    keys = keys + np.uint64(0x9E3779B97F4A7C15)
    keys ^= keys >> np.uint64(30)
    keys *= np.uint64(0xBF58476D1CE4E5B9)
    keys ^= keys >> np.uint64(27)
    keys *= np.uint64(0x94D049BB133111EB)
    keys ^= keys >> np.uint64(31)
    return keys
