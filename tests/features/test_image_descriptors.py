from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("skimage")
pytest.importorskip("PIL")

from PIL import Image

import pipeline_lib.features.image_descriptors as module
from pipeline_lib.errors import InputError
from pipeline_lib.features.descriptors.colour import colour_histogram, colour_moments
from pipeline_lib.features.descriptors.sift import BagOfVisualWords, dense_sift
from pipeline_lib.features.descriptors.texture import (
    edge_directions,
    local_binary_patterns,
    oriented_gradients,
)
from pipeline_lib.features.image_descriptors import DESCRIPTORS, describe_pictures

RNG = np.random.default_rng(0)
COLOUR = RNG.integers(0, 256, (60, 80, 3), dtype=np.uint8)
GREY = RNG.integers(0, 256, (40, 32), dtype=np.uint8)
SIZES = {
    "colour-moments": 225,
    "colour-histogram": 64,
    "lbp": 59,
    "edge-directions": 73,
    "hog": 1764,
}


@pytest.mark.parametrize("name", DESCRIPTORS)
@pytest.mark.parametrize(
    "picture",
    [COLOUR, GREY, GREY.astype(np.uint16) * 257, np.full((5, 4), 7, np.uint8), GREY[:1, :1]],
    ids=["colour", "grey", "deep", "flat", "pixel"],
)
def test_every_descriptor_takes_every_picture(name, picture):
    values = DESCRIPTORS[name](picture)
    assert values.shape == (SIZES[name],) and np.isfinite(values).all()


@pytest.mark.parametrize("name", DESCRIPTORS)
def test_depth_and_equal_channels_change_nothing(name):
    expected = DESCRIPTORS[name](GREY)
    np.testing.assert_allclose(DESCRIPTORS[name](GREY.astype(np.uint16) * 257), expected, atol=1e-9)
    if name != "hog":  # skimage takes the strongest channel, in another order of rounding
        stacked = np.repeat(GREY[..., None], 3, axis=2)
        np.testing.assert_allclose(DESCRIPTORS[name](stacked), expected, atol=1e-9)


def test_moments_of_known_cells():
    picture = np.zeros((10, 10, 3), dtype=np.uint8)
    picture[:2, :2] = 255  # the first cell is white, L = 100, the others black
    values = colour_moments(picture).reshape(25, 3, 3)
    np.testing.assert_allclose(values[0, 0], [100, 0, 0], atol=1e-6)
    np.testing.assert_allclose(values[1:, 0], 0, atol=1e-6)
    half = np.zeros((10, 10), dtype=np.uint8)
    half[:, 5:] = 255
    mean, deviation, skewness = colour_moments(half, grid=1).reshape(3, 3)[0]
    np.testing.assert_allclose([mean, deviation, skewness], [50, 50, 0], atol=1e-3)


def test_histograms_sum_to_one_and_separate_colours():
    red = np.zeros((8, 8, 3), np.uint8)
    red[..., 0] = 255
    blue = red[..., ::-1]
    assert colour_histogram(COLOUR).sum() == pytest.approx(1)
    assert colour_histogram(red).max() == 1 and colour_histogram(red) @ colour_histogram(blue) == 0
    assert local_binary_patterns(COLOUR, grid=2).reshape(4, 59).sum(axis=1) == pytest.approx(1)


def test_edges_know_their_direction():
    step = np.zeros((32, 32), np.uint8)
    step[:, 16:] = 255  # brighter to the right: angle 0, the middle of the range
    values = edge_directions(step)
    assert values[:-1].argmax() == 36 and values[36] == pytest.approx(1)
    turned = edge_directions(np.ascontiguousarray(step.T))
    assert turned[:-1].argmax() == 54
    assert edge_directions(np.full((32, 32), 9, np.uint8)).tolist() == [0] * 72 + [1]
    assert np.abs(oriented_gradients(step) - oriented_gradients(step.T)).max() > 0.1


def plain_sift(picture, top, left, cell=4):
    """One descriptor, pixel by pixel from the definition."""
    grey = picture / 255
    down, right = np.gradient(grey)
    out = np.zeros((4, 4, 8))
    for i in range(grey.shape[0]):
        for j in range(grey.shape[1]):
            angle = np.arctan2(down[i, j], right[i, j]) * 8 / (2 * np.pi) % 8
            low = int(angle)
            for r in range(4):
                for c in range(4):
                    centre_i = top + r * cell + (cell - 1) / 2
                    centre_j = left + c * cell + (cell - 1) / 2
                    weight = max(0, 1 - abs(i - centre_i) / cell) * max(
                        0, 1 - abs(j - centre_j) / cell
                    )
                    m = weight * np.hypot(down[i, j], right[i, j])
                    out[r, c, low % 8] += m * (1 - (angle - low))
                    out[r, c, (low + 1) % 8] += m * (angle - low)
    v = out.ravel() / np.linalg.norm(out)
    v = np.minimum(v, 0.2)
    return v / np.linalg.norm(v)


@pytest.mark.parametrize("cell", [3, 4])
def test_dense_sift_is_the_definition(cell):
    picture = RNG.integers(0, 256, (30, 27), dtype=np.uint8)
    found = dense_sift(picture, step=5, cell=cell)
    tops = range(0, 30 - 4 * cell + 1, 5)
    lefts = range(0, 27 - 4 * cell + 1, 5)
    assert len(found) == len(tops) * len(lefts)
    expected = np.array([plain_sift(picture, top, left, cell) for top in tops for left in lefts])
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_sift_ignores_light_and_turns_with_the_picture():
    picture = RNG.integers(0, 100, (32, 32)).astype(np.uint8)
    base = dense_sift(picture)
    np.testing.assert_allclose(dense_sift(picture * 2 + 30), base, atol=1e-5)
    # A quarter turn of the picture turns cells and directions of its middle descriptor.
    middle = dense_sift(picture[8:24, 8:24]).reshape(4, 4, 8)
    turned = dense_sift(np.rot90(picture[8:24, 8:24])).reshape(4, 4, 8)
    np.testing.assert_allclose(turned, np.roll(np.rot90(middle), -2, axis=2), atol=1e-5)
    assert not dense_sift(np.full((32, 32), 100, np.uint8)).any()
    assert dense_sift(picture[:15]).shape == (0, 128)


def test_visual_words_are_seeded_shares():
    pictures = [RNG.integers(0, 256, (64, 64), dtype=np.uint8) for _ in range(6)]
    one = BagOfVisualWords(10, random_state=3).fit(pictures)
    two = BagOfVisualWords(10, random_state=3).fit(pictures)
    np.testing.assert_array_equal(one.vocabulary_, two.vocabulary_)
    X = one.transform(pictures)
    assert X.shape == (6, 10)
    np.testing.assert_allclose(X.sum(axis=1), 1)
    distance = np.linalg.norm(one.descriptors(pictures[0])[:, None] - one.vocabulary_, axis=2)
    np.testing.assert_allclose(
        X[0] * len(distance), np.bincount(distance.argmin(axis=1), minlength=10)
    )
    assert one.transform([np.zeros((64, 64), np.uint8)]).tolist() == [[0] * 10]
    with pytest.raises(InputError, match="for a vocabulary of 9999 words"):
        BagOfVisualWords(9999).fit(pictures)


@pytest.fixture
def folder(tmp_path):
    files = []
    for i in range(7):
        path = tmp_path / f"{i}.png"
        Image.fromarray(RNG.integers(0, 256, (40, 48, 3), dtype=np.uint8)).save(path)
        files.append(path)
    return files


@pytest.mark.parametrize("descriptor", ["lbp", "sift-words"])
def test_threads_change_nothing(folder, descriptor):
    one, names = describe_pictures(folder, descriptor, n_words=5, n_jobs=1, seed=1)
    many, _ = describe_pictures(folder, descriptor, n_words=5, n_jobs=4, seed=1)
    np.testing.assert_array_equal(one, many)
    assert one.dtype == np.float32 and len(names) == one.shape[1] and names[1] == f"{descriptor}:1"


@pytest.mark.parametrize("descriptor", ["lbp", "sift-words"])
def test_a_crash_is_resumed_where_it_stopped(folder, tmp_path, monkeypatch, descriptor):
    monkeypatch.setattr(module, "_CHUNK", 3)
    expected, _ = describe_pictures(folder, descriptor, n_words=5)
    store = tmp_path / "store"
    read = module.read_picture
    seen = []

    def failing(path):
        seen.append(path)
        if len(seen) > (12 if descriptor == "sift-words" else 5):
            raise KeyboardInterrupt
        return read(path)

    monkeypatch.setattr(module, "read_picture", failing)
    with pytest.raises(KeyboardInterrupt):
        describe_pictures(folder, descriptor, n_words=5, n_jobs=1, checkpoint=store)
    assert (store / "0.npy").is_file()
    again = []
    monkeypatch.setattr(module, "read_picture", lambda path: again.append(path) or read(path))
    found, _ = describe_pictures(folder, descriptor, n_words=5, checkpoint=store)
    np.testing.assert_array_equal(found, expected)
    assert sorted(again) == folder[3:]  # neither finished pictures nor the vocabulary again
    with pytest.raises(InputError, match="other pictures, parameters"):
        describe_pictures(folder[:-1], descriptor, n_words=5, checkpoint=store)


@pytest.mark.parametrize("descriptor", ["hog", "sift-words"])
def test_damaged_pictures_are_named_together(folder, descriptor):
    for i in (2, 5):
        folder[i].write_bytes(folder[i].read_bytes()[:50])
    with pytest.raises(InputError, match=r"2 of 7 pictures cannot be used: .*2\.png.*5\.png"):
        describe_pictures(folder, descriptor, n_words=5)
    with pytest.raises(InputError, match="unknown descriptor 'gist'"):
        describe_pictures(folder, "gist")
