"""The embedded default data: scikit-learn's 1,797 handwritten digits, for all five problem kinds.

The images are real (8 x 8, 17 grey levels; E. Alpaydin, C. Kaynak, UCI Machine Learning Repository,
1998). They come with ten class labels only; relevance and tags are *derived* from class and strokes
by the rules below, so numbers on them compare methods and are nobody's published benchmark.

**all**: pixels divided by 16, class labels.

**tags/all**: each image has 3 to 6 of 21 tags. Three come with every image: the name of the digit,
``even`` or ``odd``, and ``no loop``, ``one loop`` or ``two loops``, counted on the strokes (enclosed
regions of the image at half ink), so a sloppily closed 8 has one. Three more apply to the images in
the outer quartiles: ``light`` / ``heavy`` (total ink), ``narrow`` / ``wide`` (horizontal spread),
``leaning left`` / ``leaning right`` (slant of the second moments).

**ltr/train, ltr/vali, ltr/test**: image-to-image search with graded relevance. A query is an image,
its 40 documents are other images: 8 of its own digit, 6 of the digit it is most easily taken for
(the *look-alike*: the other digit to which most of the digit's images have their nearest neighbour,
from the images themselves), 26 of the remaining digits. Relevance is

    2   the same digit in a like stroke: the 4 of those 8 whose outline is nearest to the query's
        (distance of the images blurred over 3 x 3 pixels, centred on their ink)
    1   the rest of the same digit, and half of the look-alikes: the 3 nearest by the same distance
    0   everything else

The 40 features of a pair, scaled to [0, 1] within the query as in LETOR, see only coarse descriptors
(ink on a 4 x 4 grid, row and column profiles) and whole-image numbers, not the blurred images that
grade them. The three parts share no image.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage
from sklearn.datasets import load_digits

from pipeline_lib.datasets.layout import Layout, RawTable, Rows
from pipeline_lib.errors import InputError
from pipeline_lib.features.query_normalization import query_minmax
from pipeline_lib.seeds import derive_seed

NAMES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
STROKE_TAGS = ("light", "heavy", "narrow", "wide", "leaning left", "leaning right")
TAGS = (*NAMES, "even", "odd", "no loop", "one loop", "two loops", *STROKE_TAGS)

# Share of the images of each digit that a part of the ranking task draws from, and its queries.
SPLITS = {"train": (0.5, 60), "vali": (0.2, 20), "test": (0.3, 30)}
SAME, LOOK_ALIKE, OTHER = 8, 6, 26
FEATURES = (
    *(f"ink difference {row}{column}" for row in range(4) for column in range(4)),
    *(f"row difference {row}" for row in range(8)),
    *(f"column difference {column}" for column in range(8)),
    "grid correlation",
    "row correlation",
    "column correlation",
    "total ink difference",
    "spread difference",
    "slant difference",
    "loop difference",
    "loop product",
)


def digits_table(seed: int, *, task: str, split: str = "train") -> RawTable:
    """One of the tables described above.

    Parameters
    ----------
    seed : int
        Draws queries and documents of the ranking task; the other tasks draw nothing.
    task : {"classes", "tags", "ranking"}
    split : {"train", "vali", "test"}, default="train"
        Of the ranking task.
    """
    pixels, y = _digits()
    ids = np.array([f"digit-{row:04d}" for row in range(len(y))], dtype=object)
    flat = pixels.reshape(len(y), -1)
    names = tuple(f"pixel {row}{column}" for row in range(8) for column in range(8))
    image = {"image": {"height": 8, "width": 8, "order": "C"}}
    if task == "classes":
        layout = Layout("matrix", names, "float64", has_id=True, has_y=True, classes=NAMES)
        return RawTable(layout, [Rows(X=flat, y=y, ids=ids)], image)
    if task == "tags":
        layout = Layout("tags", names, "float64", tags=TAGS, has_id=True)
        return RawTable(layout, [Rows(X=flat, ids=ids, Y=_tag_matrix(pixels, y))], image)
    if task == "ranking" and split in SPLITS:
        layout = Layout("ltr", FEATURES, "float64", has_id=True, has_y=True)
        X, grades, queries, documents = ranking(seed, split)
        rows = Rows(X=X, y=grades, qid=ids[queries], ids=ids[documents])
        look_alikes = {NAMES[digit]: NAMES[other] for digit, other in enumerate(_look_alikes())}
        return RawTable(layout, [rows], {"look_alikes": look_alikes})
    raise InputError(
        f"digits task {task!r}, split {split!r}",
        expected="task classes, tags or ranking, and split " + ", ".join(SPLITS),
    )


def ranking(
    seed: int, split: str
) -> tuple[NDArray[np.floating], NDArray[np.int32], NDArray[np.int64], NDArray[np.int64]]:
    """Features, grades, query image and document image of each pair of a part."""
    pixels, y = _digits()
    images = _images_of(seed, split, y)
    rng = np.random.default_rng(derive_seed(seed, "digits", split, "queries"))
    look_alikes = _look_alikes()
    outlines = _outlines()
    queries = rng.permutation(images)[: SPLITS[split][1]]
    pairs, grades = [], []
    for query in queries:
        others = images[images != query]
        own = others[y[others] == y[query]]
        alike = others[y[others] == look_alikes[y[query]]]
        rest = others[(y[others] != y[query]) & (y[others] != look_alikes[y[query]])]
        chosen = [
            rng.choice(own, SAME, replace=False),
            rng.choice(alike, LOOK_ALIKE, replace=False),
            rng.choice(rest, OTHER, replace=False),
        ]
        grade = np.zeros(SAME + LOOK_ALIKE + OTHER, np.int32)
        grade[:SAME] = 1
        grade[_nearest(outlines, query, chosen[0], SAME // 2)] = 2
        grade[SAME + _nearest(outlines, query, chosen[1], LOOK_ALIKE // 2)] = 1
        # Documents stand in random order, so that ties in a score do not favour the relevant ones.
        order = rng.permutation(len(grade))
        pairs.append(np.concatenate(chosen)[order])
        grades.append(grade[order])
    documents = np.concatenate(pairs)
    sources = np.repeat(queries, SAME + LOOK_ALIKE + OTHER)
    X = query_minmax(_pair_features(pixels, sources, documents), sources)
    return X, np.concatenate(grades), sources, documents


@cache
def _digits() -> tuple[NDArray[np.float64], NDArray[np.int32]]:
    bunch: Any = load_digits()
    pixels, y = bunch.images / 16.0, bunch.target.astype(np.int32)
    pixels.setflags(write=False)
    y.setflags(write=False)
    return pixels, y


def _images_of(seed: int, split: str, y: NDArray[np.int32]) -> NDArray[np.int64]:
    """Rows that belong to a split: of each digit its share, drawn once for all splits."""
    rng = np.random.default_rng(derive_seed(seed, "digits", "splits"))
    before = 0.0
    for name, (share, _) in SPLITS.items():
        if name == split:
            break
        before += share
    chosen = []
    for digit in range(10):
        rows = rng.permutation(np.flatnonzero(y == digit))
        first, last = (round(bound * len(rows)) for bound in (before, before + SPLITS[split][0]))
        chosen.append(rows[first:last])
    return np.sort(np.concatenate(chosen))


@cache
def _look_alikes() -> tuple[int, ...]:
    """For each digit the other digit that holds most of its images' nearest foreign images."""
    pixels, y = _digits()
    flat = pixels.reshape(len(y), -1)
    square = (flat**2).sum(axis=1)
    distances = square[:, None] + square - 2 * flat @ flat.T
    distances[y[:, None] == y] = np.inf
    nearest = y[distances.argmin(axis=1)]
    return tuple(int(np.bincount(nearest[y == digit]).argmax()) for digit in range(10))


@cache
def _outlines() -> NDArray[np.float64]:
    """Images moved so that the centre of their ink is the middle, blurred over 3 x 3 pixels."""
    pixels, _ = _digits()
    outlines = []
    for image in pixels:
        centre = ndimage.center_of_mass(image)
        moved = ndimage.shift(image, [3.5 - at for at in centre], order=1)
        outlines.append(ndimage.uniform_filter(moved, size=3, mode="constant").ravel())
    return np.array(outlines)


def _nearest(
    outlines: NDArray[np.float64], query: int, candidates: NDArray[np.int64], k: int
) -> NDArray[np.int64]:
    distance = ((outlines[candidates] - outlines[query]) ** 2).sum(axis=1)
    return np.argsort(distance, kind="stable")[:k]


def _spread_and_slant(
    pixels: NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Horizontal standard deviation of the ink, and its shear: columns moved per row upwards."""
    rows, columns = np.mgrid[:8, :8]
    ink = pixels.sum(axis=(1, 2))
    row = (pixels * rows).sum(axis=(1, 2)) / ink
    column = (pixels * columns).sum(axis=(1, 2)) / ink
    off_row = rows - row[:, None, None]
    off_column = columns - column[:, None, None]
    spread = np.sqrt((pixels * off_column**2).sum(axis=(1, 2)) / ink)
    slant = -(pixels * off_row * off_column).sum(axis=(1, 2)) / (pixels * off_row**2).sum(
        axis=(1, 2)
    )
    return spread, slant


def _loops(pixels: NDArray[np.float64]) -> NDArray[np.int64]:
    """Enclosed background regions at half ink: strokes join at corners, background does not."""
    counts = []
    for image in pixels:
        background = np.pad(image < 0.5, 1, constant_values=True)
        counts.append(ndimage.label(background)[1] - 1)
    return np.array(counts)


def _tag_matrix(pixels: NDArray[np.float64], y: NDArray[np.int32]) -> NDArray[np.uint8]:
    spread, slant = _spread_and_slant(pixels)
    loops = np.minimum(_loops(pixels), 2)
    columns = [y == digit for digit in range(10)]
    columns += [y % 2 == 0, y % 2 == 1]
    columns += [loops == count for count in range(3)]
    for measure in (pixels.sum(axis=(1, 2)), spread, slant):
        low, high = np.percentile(measure, [25, 75])
        columns += [measure < low, measure > high]
    return np.column_stack(columns).astype(np.uint8)


def _pair_features(
    pixels: NDArray[np.float64], sources: NDArray[np.int64], documents: NDArray[np.int64]
) -> NDArray[np.float64]:
    grid = pixels.reshape(-1, 4, 2, 4, 2).mean(axis=(2, 4)).reshape(-1, 16)
    rows, columns = pixels.mean(axis=2), pixels.mean(axis=1)
    spread, slant = _spread_and_slant(pixels)
    loops = _loops(pixels).astype(np.float64)

    def difference(values: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.abs(values[sources] - values[documents])

    def correlation(values: NDArray[np.float64]) -> NDArray[np.float64]:
        centred = values - values.mean(axis=1, keepdims=True)
        centred /= np.linalg.norm(centred, axis=1, keepdims=True)
        return np.einsum("ij,ij->i", centred[sources], centred[documents])

    parts = [difference(grid), difference(rows), difference(columns)]
    parts += [correlation(values)[:, None] for values in (grid, rows, columns)]
    whole = (pixels.mean(axis=(1, 2)), spread, slant, loops)
    parts += [difference(values)[:, None] for values in whole]
    parts.append((loops[sources] * loops[documents])[:, None])
    return np.hstack(parts)
