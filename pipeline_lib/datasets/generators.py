"""Datasets that are made instead of read: every draw is fixed by its seed and its sizes.

`two_moons` and `three_rings` are the point clouds of Figures 1 and 2 of "Ranking with Adaptive
Neighbors" (Li, Li, Nie 2018), `low_rank_tags` draws tags from the model behind the recovery theory
of TCMR (Feng's thesis, section 4.3), and `letor_like` makes queries of any size with the shape of
the LETOR collections.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline_lib.datasets.container import Dataset
from pipeline_lib.errors import InputError
from pipeline_lib.seeds import derive_seed

FloatArray = NDArray[np.float64]


def _require(condition: bool, what: str, expected: str) -> None:
    if not condition:
        raise InputError(what, expected=expected)


def _provenance(generator: str, **parameters: Any) -> Mapping[str, Any]:
    return {"generator": generator, "parameters": parameters}


def _generator(seed: int, *draw: str | int) -> np.random.Generator:
    return np.random.default_rng(derive_seed(seed, *draw))


def two_moons(n: int = 200, noise: float = 0.05, seed: int = 0) -> Dataset:
    """Two interleaving half circles of radius 1, the second one turned over.

    Parameters
    ----------
    n : int, default 200
        Points in all; an odd one goes to the upper moon.
    noise : float, default 0.05
        Standard deviation of the Gaussian noise on each coordinate.
    seed : int, default 0

    Returns
    -------
    Dataset
        ``X`` (n, 2); ``y`` 0 on the upper moon and 1 on the lower one. Rows follow each moon from
        its left end to its right end, so row 0 starts the upper moon.

    Notes
    -----
    Angles are stratified (one uniform draw in each of equal arcs): a small sample has no gaps.
    """
    _require(n >= 2, f"two_moons cannot make {n} points", "n >= 2")
    _require(noise >= 0, f"noise is {noise}", "a standard deviation >= 0")
    rng = _generator(seed, "two-moons", n)
    n_lower = n // 2
    n_upper = n - n_lower
    upper = np.pi * (1.0 - _stratified(n_upper, rng))
    lower = np.pi * _stratified(n_lower, rng)
    X = np.vstack(
        [
            np.column_stack([np.cos(upper), np.sin(upper)]),
            np.column_stack([1.0 - np.cos(lower), 0.5 - np.sin(lower)]),
        ]
    )
    X += noise * rng.standard_normal(X.shape)
    y = np.repeat([0, 1], [n_upper, n_lower])
    info = _provenance("two_moons", n=n, noise=noise, seed=seed)
    return Dataset("two-moons", "all", X=X, y=y, info=info)


def three_rings(n: int = 300, noise: float = 0.05, seed: int = 0) -> Dataset:
    """Three concentric circles of radius 1, 2 and 3 with equal density along them.

    Parameters
    ----------
    n : int, default 300
        Points in all, shared between the rings as 1 : 2 : 3.
    noise : float, default 0.05
        Standard deviation of the Gaussian noise on each coordinate.
    seed : int, default 0

    Returns
    -------
    Dataset
        ``X`` (n, 2); ``y`` 0 on the innermost, 1 on the middle and 2 on the outermost ring, rows in
        that order and counter-clockwise on each ring.
    """
    _require(n >= 6, f"three_rings cannot make {n} points", "n >= 6")
    _require(noise >= 0, f"noise is {noise}", "a standard deviation >= 0")
    rng = _generator(seed, "three-rings", n)
    counts = [round(n / 6), round(n / 3)]
    counts.append(n - sum(counts))
    y = np.repeat([0, 1, 2], counts)
    angle = 2.0 * np.pi * np.concatenate([_stratified(count, rng) for count in counts])
    X = (y + 1.0)[:, None] * np.column_stack([np.cos(angle), np.sin(angle)])
    X += noise * rng.standard_normal(X.shape)
    info = _provenance("three_rings", n=n, noise=noise, seed=seed)
    return Dataset("three-rings", "all", X=X, y=y, info=info)


def _stratified(n: int, rng: np.random.Generator) -> FloatArray:
    """Increasing draws of [0, 1), one uniform in each of n equal cells."""
    return (np.arange(n) + rng.random(n)) / max(n, 1)


def low_rank_probabilities(
    n: int,
    m: int,
    rank: int,
    *,
    concentration: float = 0.3,
    floor: float = 0.1,
    seed: int = 0,
) -> tuple[FloatArray, FloatArray]:
    """Tag probabilities P = Theta B of n images: each row mixes ``rank`` multinomials over m tags.

    Parameters
    ----------
    n, m, rank : int
        Images, tags, and mixture components; ``rank <= min(n, m)``.
    concentration : float, default 0.3
        Of the Dirichlet draws of mixing weights and of components; smaller is more peaked.
    floor : float in [0, 1), default 0.1
        Share of each component that is spread evenly over all tags, which keeps every probability
        at least ``floor / m`` (the lower bound that Theorem 4.1 of the thesis assumes).
    seed : int, default 0

    Returns
    -------
    P : ndarray of shape (n, m)
        Positive, rows sum to 1, rank at most ``rank``.
    Theta : ndarray of shape (n, rank)
        Mixing weights of the images; rows sum to 1.
    """
    _require(n >= 1 and m >= 1, f"a tag table of {n} images and {m} tags", "n >= 1 and m >= 1")
    _require(1 <= rank <= min(n, m), f"rank is {rank}", f"1 <= rank <= {min(n, m)}")
    _require(concentration > 0, f"concentration is {concentration}", "a positive number")
    _require(0 <= floor < 1, f"floor is {floor}", "0 <= floor < 1")
    rng = _generator(seed, "low-rank-probabilities", n, m, rank)
    components = rng.dirichlet(np.full(m, concentration), size=rank)
    components = (1.0 - floor) * components + floor / m
    weights = rng.dirichlet(np.full(rank, concentration), size=n)
    return weights @ components, weights


def draw_tags(
    P: FloatArray, n_observed: int, *, replace: bool = False, seed: int = 0
) -> NDArray[np.int64]:
    """Draw ``n_observed`` tags of each image from its row of probabilities.

    Parameters
    ----------
    P : ndarray of shape (n, m)
        Positive probabilities, one multinomial a row.
    n_observed : int
        Draws per image (the m* of the thesis).
    replace : bool, default False
        True draws from the multinomial itself, so that a tag can be drawn twice, as the theory
        has it; False draws distinct tags, so that every image has exactly ``n_observed`` of them.
    seed : int, default 0

    Returns
    -------
    ndarray of shape (n, m)
        How often each tag was drawn; rows sum to ``n_observed``.
    """
    n, m = P.shape
    _require(n_observed >= 1, f"n_observed is {n_observed}", "n_observed >= 1")
    rng = _generator(seed, "draw-tags", n, m, n_observed, int(replace))
    if replace:
        return np.asarray(rng.multinomial(n_observed, P / P.sum(axis=1, keepdims=True)))
    _require(n_observed <= m, f"{n_observed} distinct tags of {m}", f"n_observed <= {m}")
    # Gumbel noise on the logarithms: the largest k are k successive draws without replacement.
    keys = np.log(P) + rng.gumbel(size=(n, m))
    drawn = np.argpartition(-keys, n_observed - 1, axis=1)[:, :n_observed]
    counts = np.zeros((n, m), dtype=np.int64)
    np.put_along_axis(counts, drawn, 1, axis=1)
    return counts


def low_rank_tags(
    n: int = 500,
    m: int = 60,
    rank: int = 5,
    *,
    n_observed: int = 6,
    n_features: int = 20,
    feature_noise: float = 0.1,
    concentration: float = 0.3,
    floor: float = 0.1,
    seed: int = 0,
) -> Dataset:
    """Images whose tags are drawn from a low-rank probability matrix, with matching features.

    Parameters
    ----------
    n, m, rank, concentration, floor
        As in `low_rank_probabilities`, which with the same values and seed returns the truth.
    n_observed : int, default 6
        Distinct tags drawn for every image (see `draw_tags`).
    n_features : int, default 20
        Columns of ``X``: a random linear image of the mixing weights plus noise, so that images
        with similar features have similar tags.
    feature_noise : float, default 0.1
        Standard deviation of the noise on the features.
    seed : int, default 0

    Returns
    -------
    Dataset
        ``X`` (n, n_features), ``Y`` (n, m) binary, ``tags`` named ``tag000``, ``tag001``, ...
    """
    _require(n_features >= 1, f"n_features is {n_features}", "n_features >= 1")
    _require(feature_noise >= 0, f"feature_noise is {feature_noise}", "a standard deviation >= 0")
    P, weights = low_rank_probabilities(
        n, m, rank, concentration=concentration, floor=floor, seed=seed
    )
    Y = draw_tags(P, n_observed, seed=seed).astype(np.uint8)
    rng = _generator(seed, "low-rank-features", n, rank, n_features)
    X = weights @ rng.standard_normal((rank, n_features))
    X += feature_noise * rng.standard_normal(X.shape)
    width = max(3, len(str(m - 1)))
    tags = tuple(f"tag{j:0{width}d}" for j in range(m))
    info = _provenance(
        "low_rank_tags",
        n=n,
        m=m,
        rank=rank,
        n_observed=n_observed,
        n_features=n_features,
        feature_noise=feature_noise,
        concentration=concentration,
        floor=floor,
        seed=seed,
    )
    return Dataset("lowrank-tags", "all", X=X, Y=Y, tags=tags, info=info)


def letor_like(
    n_queries: int = 50,
    docs_per_query: int | tuple[int, int] = (10, 60),
    n_features: int = 46,
    seed: int = 0,
    *,
    label_shares: tuple[float, ...] = (0.8, 0.13, 0.07),
    noise: float = 0.3,
) -> Dataset:
    """Queries with graded documents, of the shape and value range of LETOR's normalised files.

    Parameters
    ----------
    n_queries : int, default 50
    docs_per_query : int or (int, int), default (10, 60)
        Documents of every query, or the inclusive range from which each query draws its number.
    n_features : int, default 46
    seed : int, default 0
    label_shares : tuple of float, default (0.8, 0.13, 0.07)
        Share of the documents with label 0, 1, ...; positive and summing to 1.
    noise : float, default 0.3
        Standard deviation of the noise on the hidden relevance, whose own one is 1.

    Returns
    -------
    Dataset
        ``X`` (n, n_features) float64, scaled query by query so that each feature spans [0, 1] (a
        feature that is constant in a query is 0 there); ``y`` labels from 0; ``qid`` 0, 1, ... with
        the rows of a query together.

    Notes
    -----
    Documents live near a few latent topics, features are their noisy projections, and relevance is
    a linear score plus Gaussian bumps: a linear ranker does well and a kernel does better.
    """
    low, high = (
        (docs_per_query, docs_per_query) if isinstance(docs_per_query, int) else docs_per_query
    )
    _require(n_queries >= 1, f"n_queries is {n_queries}", "n_queries >= 1")
    _require(1 <= low <= high, f"docs_per_query is {docs_per_query}", "1 <= low <= high")
    _require(n_features >= 1, f"n_features is {n_features}", "n_features >= 1")
    shares = np.asarray(label_shares, dtype=np.float64)
    _require(
        shares.ndim == 1 and shares.size >= 2 and bool(np.all(shares > 0)),
        f"label_shares is {label_shares}",
        "two or more positive shares",
    )
    _require(abs(shares.sum() - 1) < 1e-9, f"label_shares sum to {shares.sum()}", "a sum of 1")
    _require(noise >= 0, f"noise is {noise}", "a standard deviation >= 0")

    rng = _generator(seed, "letor-like", n_queries, low, high, n_features)
    lengths = rng.integers(low, high, size=n_queries, endpoint=True)
    qid = np.repeat(np.arange(n_queries, dtype=np.int64), lengths)
    n = qid.size

    n_latent = min(8, n_features)
    latent = rng.standard_normal((n, n_latent))
    relevance = latent @ rng.standard_normal(n_latent) / np.sqrt(n_latent)
    for centre in rng.standard_normal((4, n_latent)):
        distance = np.einsum("ij,ij->i", latent - centre, latent - centre)
        relevance += 2.0 * np.exp(-distance / n_latent)
    spread = relevance.std()
    relevance = (relevance - relevance.mean()) / (spread if spread > 0 else 1.0)
    relevance += noise * rng.standard_normal(n)
    # Ranks, not thresholds: the shares hold to a document even for tiny sizes.
    order = np.argsort(relevance, kind="stable")
    y = np.empty(n, dtype=np.int64)
    y[order] = np.searchsorted(np.cumsum(shares)[:-1], (np.arange(n) + 0.5) / n, side="right")

    X = latent @ rng.standard_normal((n_latent, n_features))
    X += 0.3 * rng.standard_normal(X.shape)
    starts = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    smallest = np.minimum.reduceat(X, starts, axis=0)
    span = np.maximum.reduceat(X, starts, axis=0) - smallest
    span[span == 0] = 1.0
    X -= smallest[qid]
    X /= span[qid]
    info = _provenance(
        "letor_like",
        n_queries=n_queries,
        docs_per_query=docs_per_query,
        n_features=n_features,
        seed=seed,
        label_shares=label_shares,
        noise=noise,
    )
    return Dataset("letor-like", "all", X=X, y=y, qid=qid, info=info)
