"""The image and tag collections by name: real files where they are, official layouts elsewhere."""

from __future__ import annotations

import bz2
import functools
import os

import numpy as np
import pytest
import scipy.io

from pipeline_lib.datasets import catalogue
from pipeline_lib.datasets.acquire import load
from pipeline_lib.datasets.generators import low_rank_probabilities
from pipeline_lib.datasets.hvecs import write_vecs
from pipeline_lib.datasets.libsvm import write_libsvm
from pipeline_lib.datasets.npz import ArrayTable, write_npz
from pipeline_lib.datasets.pictures import write_pgm
from pipeline_lib.datasets.thumbnails import picture_sheet, pictures_of, thumbnail_sheet
from pipeline_lib.errors import DataMissingError, InputError

loaded = functools.cache(load)


def real(name, part=None):
    if not os.environ.get("AFFINITY_DATA"):
        pytest.skip("AFFINITY_DATA does not say where the real files are")
    try:
        return loaded(name, part)
    except DataMissingError as error:
        pytest.skip(f"raw files are not here: {error}")


@pytest.mark.parametrize(
    ("name", "part", "shape", "labels", "low", "high"),
    [
        ("coil20", None, (1440, 1024), np.full(20, 72), 0, 1),
        ("orl", None, (400, 1024), np.full(40, 10), 2, 235),
        ("cmu-pie", None, (2856, 1024), np.full(68, 42), 0, 255),
        ("usps", None, (9298, 256), [1553, 1269, 929, 824, 852, 716, 834, 792, 708, 821], 0, 1),
        ("usps", "train", (7291, 256), [1194, 1005, 731, 658, 652, 556, 664, 645, 542, 644], 0, 1),
        ("usps", "test", (2007, 256), [359, 264, 198, 166, 200, 160, 170, 147, 166, 177], 0, 1),
    ],
)
def test_image_sets(name, part, shape, labels, low, high):
    data = real(name, part)
    assert data.X.shape == shape and data.X.dtype == np.float64
    assert (data.X.min(), data.X.max()) == (low, high)
    np.testing.assert_array_equal(np.bincount(data.y)[1:], labels)
    assert np.bincount(data.y)[0] == 0
    assert data.info["variant"] == "official" and data.info["mismatch"] == []


@pytest.mark.parametrize(
    ("name", "part", "n", "d", "tags", "ones", "without"),
    [
        ("corel5k-mulan", "train", 4500, 499, 374, 15847, 0),
        ("corel5k-mulan", "test", 500, 499, 374, 1763, 0),
        ("corel5k-mulan", "all", 5000, 499, 374, 17610, 0),
        ("corel5k", "all", 4999, None, 260, 16979, 7),
        ("corel5k", "train", 4500, None, 260, 15223, 7),
        ("corel5k", "test", 499, None, 260, 1756, 0),
        ("espgame", None, 21846, None, 269, 101472, 0),
        ("espgame", "train", 19659, None, 269, 91321, 0),
        ("espgame", "test", 2185, None, 269, 10144, 0),
        ("iaprtc12", "test", 1962, None, 291, 11053, 0),
        ("nuswide", None, 161789, None, 81, 301459, 36340),
    ],
)
def test_tag_tables(name, part, n, d, tags, ones, without):
    data = real(name, part)
    assert data.Y.shape == (n, tags) and data.Y.dtype == np.uint8 and data.Y.sum() == ones
    assert (data.X is None) if d is None else (data.X.shape == (n, d))
    assert len(data.tags) == len(set(data.tags)) == tags
    assert len(data.ids) == len(set(data.ids)) == n
    assert int((data.Y.sum(axis=1) == 0).sum()) == without  # pictures without tags stay


def test_order_of_rows_and_tags():
    mulan = real("corel5k-mulan", "train")
    assert mulan.tags[:3] == ("city", "mountain", "sky") and mulan.tags[-1] == "hawaii"
    esp = real("espgame", "test")
    assert esp.ids[0] == "100006.jpg" and esp.tags[0] == "airplane"
    iapr = real("iaprtc12", "test")
    assert iapr.ids[:2].tolist() == ["00/26", "00/35"] and iapr.tags[-1] == "writing"


def test_nuswide_reports_its_swapped_headers_and_its_stray_value():
    data = real("nuswide")
    counts = dict(zip(data.tags, data.Y.sum(axis=0, dtype=int)))
    assert counts["water"] == 21004 and counts["waterfall"] == 355
    assert data.info["findings"] == {
        "stray_values_read_as_0": ["line 78374, column 36: -1130179"],
        "swapped_headers_put_back": ["columns 77 (water) and 78 (waterfall)"],
    }
    assert counts["sky"] == 44255


@pytest.mark.parametrize("name", ["coil20", "orl", "cmu-pie", "usps"])
def test_pictures_stand_upright(name, tmp_path):
    data = real(name)
    pictures = np.array(pictures_of(data, range(0, len(data), 37)))
    assert pictures.min() >= 0 and pictures.max() <= 1
    mean = pictures.mean(axis=0)
    # Faces and objects are nearly mirror images left to right and not top to bottom; so are digits,
    # less so. Lying on their side they would be the other way round.
    sideways = np.abs(mean - mean[:, ::-1]).mean()
    upside = np.abs(mean - mean[::-1]).mean()
    if name in ("orl", "cmu-pie"):
        assert sideways < upside
    sheet = thumbnail_sheet(data, tmp_path / "sheet.png", per_class=3, max_classes=2)
    assert sheet.read_bytes().startswith(b"\x89PNG")


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("AFFINITY_DATA", str(tmp_path))
    return tmp_path


def load_small(name, part=None):
    """Load a small file in an official layout: it must be refused for its counts, and only for them."""
    with pytest.raises(InputError, match=r"differs from its declaration.*rows: "):
        load(name, part)
    data = load(name, part, allow_mismatch=True)
    assert any("rows: " in line for line in data.info["mismatch"])
    return data


def save(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_usps_in_its_other_forms(root):
    X = np.random.default_rng(0).random((5, 256)).round(3)
    y = np.arange(5) + 1
    (root / "usps").mkdir()
    write_libsvm(root / "usps" / "t", X * 2 - 1, y)
    for name in ("usps.bz2", "usps.t.bz2"):
        (root / "usps" / name).write_bytes(bz2.compress((root / "usps" / "t").read_bytes()))
    for part in ("libsvm/train", "libsvm/test"):
        data = load_small("usps", part)
        np.testing.assert_array_equal(data.X, X * 2 - 1)
    h5py = pytest.importorskip("h5py")
    with h5py.File(root / "usps" / "usps.h5", "w") as file:
        for part in ("train", "test"):
            file[f"{part}/data"] = X.astype(np.float32)
            file[f"{part}/target"] = y - 1
    for part in ("hdf5/train", "hdf5/test"):
        assert load_small("usps", part).y.tolist() == [0, 1, 2, 3, 4]


def test_face_folders(root):
    pytest.importorskip("PIL")
    for person in (1, 2, 10):
        for shot in (1, 10, 2):
            path = root / "att_faces" / f"s{person}" / f"{shot}.pgm"
            path.parent.mkdir(parents=True, exist_ok=True)
            write_pgm(path, np.full((112, 92), 10 * person + shot, np.uint8))
    data = load_small("orl", "pictures")
    assert data.X.shape == (9, 1024) and data.y.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert data.X[:, 5].tolist() == [11, 12, 20, 21, 22, 30, 101, 102, 110]
    assert data.info["classes"] == ["s1", "s2", "s10"] and data.ids[2] == "s1/10.pgm"
    from PIL import Image

    (root / "yale" / "yalefaces").mkdir(parents=True)
    for name in ("subject01.sad", "subject01.glasses", "subject02.sad"):
        grey = Image.fromarray(np.full((243, 320), 7, np.uint8))
        grey.save(root / "yale" / "yalefaces" / name, "GIF")
    data = load_small("yale", "pictures")
    assert data.y.tolist() == [0, 0, 1] and (data.X == 7).all()
    scipy.io.savemat(
        root / "yale" / "Yale_32x32.mat",
        {"fea": np.zeros((4, 1024), np.uint8), "gnd": [[1], [1], [2], [2]]},
    )
    assert load_small("yale").y.tolist() == [1, 1, 2, 2]
    for i in range(3):
        path = root / "coil20" / "coil-20-proc" / f"obj{i + 9}__0.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((128, 128), i, np.uint8)).save(path)
    assert load_small("coil20", "pictures").info["classes"] == ["obj9", "obj10", "obj11"]
    picture_sheet(sorted((root / "coil20").rglob("*.png")), root / "sheet.png")
    assert (root / "sheet.png").stat().st_size > 1000


def test_guillaumins_release_with_dictionary_and_features(root):
    folder = root / "corel5k.20091111"
    folder.mkdir()
    Y = np.random.default_rng(0).integers(0, 2, (6, 260))
    write_vecs(folder / "corel5k_train_annot.hvecs", Y)
    save(folder / "corel5k_dictionary.txt", "".join(f"w{j}\n" for j in range(260)))
    save(folder / "corel5k_train_list.txt", "".join(f"100{i}/{i}\n" for i in range(6)))
    gist = np.random.default_rng(1).random((6, 512)).astype(np.float32)
    write_vecs(folder / "corel5k_train_Gist.fvec", gist)
    write_vecs(folder / "corel5k_train_Hsv.hvecs32", np.full((6, 4096), 70_000))
    data = load_small("corel5k", "train/gist")
    np.testing.assert_array_equal(data.Y, Y)
    np.testing.assert_array_equal(data.X, gist)
    assert data.tags[259] == "w259" and data.ids[5] == "1005/5"
    assert load_small("corel5k", "train/hsv").X.max() == 70_000
    write_vecs(folder / "corel5k_train_Rgb.hvecs32", np.zeros((5, 4096)))
    with pytest.raises(InputError, match=r"corel5k_train_Rgb\.hvecs32: 5 records; expected 6"):
        load("corel5k", "train/rgb")
    write_vecs(folder / "corel5k_test_annot.hvecs", 1 - Y[:2])
    save(folder / "corel5k_test_list.txt", "100/1\n100/2\n")
    write_vecs(folder / "corel5k_test_Gist.fvec", gist[:2] * 2)
    both = load_small("corel5k", "all/gist")
    np.testing.assert_array_equal(both.Y, np.vstack([Y, 1 - Y[:2]]))
    np.testing.assert_array_equal(both.X, np.vstack([gist, gist[:2] * 2]))
    assert both.ids[5:].tolist() == ["1005/5", "100/1", "100/2"] and both.tags == data.tags
    iapr = root / "iaprtc12"
    iapr.mkdir()
    write_vecs(iapr / "iaprtc12_train_annot.hvecs", np.eye(3))
    save(iapr / "iaprtc12_dictionary.txt", "a\nNA\nc\n")
    save(iapr / "iaprtc12_train_list.txt", "00/1\n00/2\n00/3\n")
    assert load_small("iaprtc12", "train").tags == ("a", "NA", "c")


def test_nuswide_official(root):
    folder = root / "NUS-WIDE"
    names = [f"c{j}" for j in range(81)]
    save(folder / "ConceptsList" / "Concepts81.txt", "".join(f"{name}\n" for name in names))
    save(folder / "ImageList" / "TestImagelist.txt", "a\\1.jpg\nb\\2.jpg\n")
    for j, name in enumerate(names):
        path = folder / "Groundtruth" / "TrainTestLabels" / f"Labels_{name}_Test.txt"
        save(path, f"{j % 2}\n{int(j == 3)}\n")
    save(folder / "NUS_WID_Tags" / "Test_Tags81.txt", ("1 " + "0 " * 80 + "\n") * 2)
    features = folder / "Low_Level_Features" / "Test_Normalized_CM55.dat"
    save(features, ("0.25 " * 225 + "\n") * 2)
    data = load_small("nuswide", "official/test")
    assert data.tags == tuple(names) and data.Y[1].nonzero()[0].tolist() == [3]
    assert data.ids.tolist() == ["a\\1.jpg", "b\\2.jpg"] and data.Y[0].sum() == 40
    assert load_small("nuswide", "official/test/cm55").X.shape == (2, 225)
    assert load_small("nuswide", "tags81/test").Y[:, 0].tolist() == [1, 1]


def test_mirflickr(root):
    for i in range(1, 25):
        save(root / "mirflickr" / "meta" / "tags" / f"tags{i}.txt", "sky\nnull\n" if i < 22 else "")
    # The folder that the release's own archive makes lies inside the one that is looked for.
    (root / "mirflickr" / "mirflickr").symlink_to(root / "mirflickr", target_is_directory=True)
    data = load_small("mirflickr", "tags")
    assert data.tags == ("null", "sky") and data.Y.sum() == 42 and data.ids[9] == "im10"
    annotations = root / "mirflickr" / "mirflickr25k_annotations_v080"
    save(annotations / "sky.txt", "1\n25000\n")
    save(annotations / "sky_r1.txt", "1\n")
    save(annotations / "README.txt", "not a concept")
    data = load("mirflickr", "annotations", allow_mismatch=True)
    assert data.tags == ("sky",) and data.Y[:, 0].nonzero()[0].tolist() == [0, 24999]
    assert load("mirflickr", "annotations/relevant", allow_mismatch=True).Y.sum() == 1


@pytest.mark.parametrize("name", ["flickr1m", "imagenet"])
def test_feature_matrices_with_tags(root, name):
    (root / name).mkdir()
    X = np.random.default_rng(0).random((4, 3)).astype(np.float32)
    table = ArrayTable(X, np.eye(4, dtype=np.uint8), None, ("a", "b", "null", "d"), None)
    write_npz(root / name / f"{name}.npz", table)
    data = load_small(name)
    np.testing.assert_array_equal(data.X, X)
    assert data.tags[2] == "null" and data.ids.tolist() == ["1", "2", "3", "4"]


def test_a_leak_is_refused_by_name(root):
    # The Corel5k copy whose features hold the labels, saved as MULAN's files.
    rng = np.random.default_rng(0)
    Y = rng.integers(0, 2, (30, 2))
    header = "@relation r\n" + "".join(f"@attribute f{j} {{0,1}}\n" for j in range(3))
    header += "@attribute a {0,1}\n@attribute b {0,1}\n@data\n"
    rows = "".join(f"1,{i % 2},{y[1]},{y[0]},{y[1]}\n" for i, y in enumerate(Y))
    folder = root / "corel5k-mulan"
    save(folder / "Corel5k-train.arff", header + rows)
    save(folder / "Corel5k.xml", '<labels><label name="a"/><label name="b"/></labels>')
    with pytest.raises(InputError, match=r"feature column 3 equals label column 2.*leak"):
        load("corel5k-mulan", "train", allow_mismatch=True)


def test_generated_sets_by_name_and_seed():
    moons = load("two-moons")
    assert moons.X.shape == (200, 2) and np.bincount(moons.y).tolist() == [100, 100]
    assert not np.array_equal(moons.X, load("two-moons", seed=1).X)
    assert np.bincount(load("three-rings").y).tolist() == [50, 100, 150]
    tags = load("lowrank-tags", seed=3)
    P, _ = low_rank_probabilities(500, 60, 5, seed=3)
    assert P[tags.Y == 1].mean() > P[tags.Y == 0].mean()
    queries = load("letor-like")
    assert queries.X.shape[1] == 46 and len(np.unique(queries.qid)) == 100


def test_unknown_options_are_refused():
    from pipeline_lib.datasets.formats import FORMATS, read_format

    for name in FORMATS:
        options = {"nonsense": 1} | ({"generator": "two_moons"} if name == "generated" else {})
        with pytest.raises(InputError, match="nonsense"):
            read_format(name, {}, options)


def test_every_option_of_every_declaration_is_known():
    import inspect

    from pipeline_lib.datasets.formats import FORMATS

    for name in catalogue.names():
        spec = catalogue.dataset_spec(name)
        if spec.reader.format in FORMATS:
            for part_name in spec.part_names():
                part = spec.part(part_name)
                inspect.signature(FORMATS[part.format]).bind({}, 0, **part.options)
