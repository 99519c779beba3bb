"""Random numbers that depend on what they are drawn for, and on nothing else."""

from __future__ import annotations

import hashlib

import numpy as np

RandomState = int | np.random.Generator | np.random.RandomState | None


def derive_seed(base: int, *parts: str | int) -> int:
    """Hash a base seed with what the draw depends on.

    Parameters
    ----------
    base : int
        The seed of the suite.
    *parts : str or int
        What the draw depends on, for example dataset, split, method and repetition.

    Returns
    -------
    int
        A seed in [0, 2**32); equal arguments give equal seeds on every machine and in any order
        of computation.
    """
    text = "\x1f".join([str(int(base)), *(f"{type(part).__name__}:{part}" for part in parts)])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big")


def as_generator(random_state: RandomState) -> np.random.Generator:
    """Turn scikit-learn's ``random_state`` (int, Generator, RandomState or None) into a Generator.

    A Generator is used as it is (its state advances); numpy's global state is never touched.
    """
    if isinstance(random_state, np.random.RandomState):
        return np.random.default_rng(random_state.randint(0, 2**32, dtype=np.uint64))
    return np.random.default_rng(random_state)
