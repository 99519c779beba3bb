"""The completion protocol: filters, hiding, noise, and cross-validation that cannot peek."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from pipeline_lib.completion.base import TagCompleter
from pipeline_lib.completion.ease import EASE
from pipeline_lib.completion.frequency import Frequency
from pipeline_lib.completion.sampling import (
    cross_validate,
    filter_tags,
    hide_tags,
    replace_with_noise,
)
from pipeline_lib.errors import InputError


@pytest.fixture(scope="module")
def Y() -> np.ndarray:
    random = np.random.default_rng(0)
    return (random.random((400, 30)) < random.uniform(0.05, 0.5, 30)).astype(np.uint8)


def test_filters_hold_together(Y: np.ndarray) -> None:
    images, tags = filter_tags(Y, min_tags_per_image=7, min_images_per_tag=60)
    kept = Y[np.ix_(images, tags)]
    assert kept.sum(axis=1).min() >= 7
    assert kept.sum(axis=0).min() >= 60
    assert 0 < len(images) < 400 and 0 < len(tags) < 30
    everything = filter_tags(np.ones((3, 2)), 2, 3)
    assert [len(part) for part in everything] == [3, 2]
    # A tag that falls takes an image with it, which takes another tag.
    chain = np.array([[1, 1, 0], [0, 1, 1], [0, 0, 1], [0, 0, 1]])
    images, tags = filter_tags(chain, 1, 2)
    assert (images.tolist(), tags.tolist()) == ([0, 1, 2, 3], [1, 2])
    with pytest.raises(InputError, match="ask for less"):
        filter_tags(chain, 3, 4)


def test_hiding_keeps_the_wanted_number_of_true_tags(Y: np.ndarray) -> None:
    D = hide_tags(Y, 3, seed=1)
    assert D.dtype == np.uint8
    assert np.all(D <= Y)
    assert np.array_equal(D.sum(axis=1), np.minimum(Y.sum(axis=1), 3))


def test_hiding_depends_on_seed_and_image_only(Y: np.ndarray) -> None:
    D = hide_tags(Y, 2, seed=1)
    assert np.array_equal(D, hide_tags(Y, 2, seed=1))
    assert not np.array_equal(D, hide_tags(Y, 2, seed=2))
    part = np.arange(100, 200)[::-1]
    assert np.array_equal(hide_tags(Y[part], 2, seed=1, ids=part), D[part])
    # More observed tags include the fewer.
    assert np.all(hide_tags(Y, 3, seed=1) >= D)


def test_every_tag_of_an_image_is_as_likely_to_stay() -> None:
    Y = np.zeros((20_000, 6), dtype=np.uint8)
    Y[:, [0, 2, 3, 5]] = 1
    share = hide_tags(Y, 1, seed=3).mean(axis=0)
    # Four standard errors.
    assert np.abs(share[[0, 2, 3, 5]] - 0.25).max() < 4 * np.sqrt(0.25 * 0.75 / 20_000)
    pairs = hide_tags(Y, 2, seed=3)[:, [0, 2]].prod(axis=1).mean()
    assert abs(pairs - 1 / 6) < 4 * np.sqrt(5 / 36 / 20_000)


@pytest.mark.parametrize("per_image", [False, True])
@pytest.mark.parametrize("share", [0.0, 0.25, 0.7, 1.0])
def test_noise_replaces_the_share(Y: np.ndarray, share: float, per_image: bool) -> None:
    D = hide_tags(Y, 4, seed=1)
    noisy = replace_with_noise(D, Y, share, seed=5, per_image=per_image)
    assert np.array_equal(noisy.sum(axis=1), D.sum(axis=1))
    wrong = ((noisy > 0) & (Y == 0)).sum(axis=1)
    right = ((noisy > 0) & (D > 0)).sum(axis=1)
    assert np.array_equal(wrong + right, D.sum(axis=1))
    if per_image:
        assert np.array_equal(wrong, np.floor(share * D.sum(axis=1) + 0.5))
    else:
        assert wrong.sum() == int(share * D.sum() + 0.5)
    more = replace_with_noise(D, Y, min(1.0, share + 0.2), seed=5, per_image=per_image)
    assert np.all((noisy > 0) & (Y == 0) <= (more > 0))
    part = np.arange(50, 90)
    if per_image:
        again = replace_with_noise(D[part], Y[part], share, 5, ids=part, per_image=True)
        assert np.array_equal(again, noisy[part])


def test_wrong_tags_are_uniform_and_limited_by_what_is_wrong() -> None:
    Y = np.tile([1, 1, 0, 0, 0, 0], (12_000, 1))
    noisy = replace_with_noise(hide_tags(Y, 1, 0), Y, 1.0, seed=0)
    share = noisy[:, 2:].mean(axis=0)
    assert np.abs(share - 0.25).max() < 4 * np.sqrt(0.25 * 0.75 / 12_000)
    full = np.ones((3, 4))
    assert np.array_equal(replace_with_noise(full, full, 1.0, seed=0), full)
    nearly = np.array([[1, 1, 1, 0]])
    assert replace_with_noise(nearly, nearly, 1.0, seed=0).tolist()[0][3] == 1
    assert replace_with_noise(nearly, nearly, 1.0, seed=0).sum() == 3


class Peeker(TagCompleter):
    """Records what it is fitted on."""

    seen: list[np.ndarray] = []

    def __init__(self, kind: int = 0) -> None:
        self.kind = kind

    def _complete(self, D, X, laplacian):  # type: ignore[no-untyped-def]
        self.seen.append(D.toarray())
        return Frequency().fit(D).scores_ * (1 if self.kind else -1)


def test_cross_validation_sees_observed_tags_only_and_hides_one_an_image(Y: np.ndarray) -> None:
    D = hide_tags(Y, 3, seed=1)
    Peeker.seen.clear()
    best, table = cross_validate(Peeker, [{"kind": 0}, {"kind": 1}], D, n_folds=4, seed=3)
    assert best == {"kind": 1}
    assert table.shape == (8, 3)
    assert table.columns == ["setting", "fold", "ap"]
    able = D.sum(axis=1) >= 2
    hidden = [D - left for left in Peeker.seen[::2]]
    assert all(np.all(h >= 0) and h.sum(axis=1).max() == 1 for h in hidden)
    # Every image with two tags or more is validated in exactly one fold.
    assert np.array_equal(sum(h.sum(axis=1) for h in hidden), able)
    means = table.group_by("setting").agg(pl.col("ap").mean()).sort("setting")["ap"]
    assert means[1] > means[0]


def test_cross_validation_takes_the_first_of_equals_and_repeats(Y: np.ndarray) -> None:
    D = hide_tags(Y, 3, seed=1)
    best, table = cross_validate(EASE, [{"l2": 5.0}, {"l2": 5.0}], D, n_folds=2)
    again = cross_validate(EASE, [{"l2": 5.0}, {"l2": 5.0}], D, n_folds=2)[1]
    assert best == {"l2": 5.0}
    assert table.equals(again)
    for grid, folds in (([], 3), ([{"l2": 1.0}], 1), ([{"l2": 1.0}], 10_000)):
        with pytest.raises(InputError):
            cross_validate(EASE, grid, D, n_folds=folds)


def test_unusable_input(Y: np.ndarray) -> None:
    for call in (
        lambda: hide_tags(Y * 2, 1, 0),
        lambda: hide_tags(Y, 0, 0),
        lambda: hide_tags(Y, 1, 0, ids=[1, 2]),
        lambda: replace_with_noise(Y, Y, 1.5, 0),
        lambda: replace_with_noise(Y[:3], Y, 0.5, 0),
    ):
        with pytest.raises(InputError):
            call()
