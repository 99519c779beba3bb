from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from pipeline_lib.datasets.image_folder import (
    find_pictures,
    match_tags,
    natural_key,
    read_image_classes,
)
from pipeline_lib.datasets.pictures import read_pgm, read_picture, resize, to_grey, write_pgm
from pipeline_lib.errors import InputError


def test_pgm_official_forms(tmp_path):
    path = tmp_path / "a.pgm"
    path.write_bytes(b"P2\n# made by hand\n3 2 # size\n15\n0 1 2\n3 4 15\n")
    assert read_pgm(path).tolist() == [[0, 1, 2], [3, 4, 15]] and read_pgm(path).dtype == np.uint8
    path.write_bytes(b"P5\n2 2\n255\n\x00\x80\xff\x0a")
    assert read_pgm(path).tolist() == [[0, 128], [255, 10]]
    path.write_bytes(b"P5 2 1 1000\n\x01\x00\x03\xe8")  # the high byte comes first
    assert read_pgm(path).tolist() == [[256, 1000]] and read_pgm(path).dtype == np.uint16
    path.write_bytes(b"P2 2 1 65535 65535 7")
    assert read_pgm(path).tolist() == [[65535, 7]]


@pytest.mark.parametrize("ascii", [False, True])
@pytest.mark.parametrize("kind", [np.uint8, np.uint16])
@given(data=st.data())
def test_written_pgm_is_read_again(ascii, kind, data, tmp_path_factory):
    shape = hnp.array_shapes(min_dims=2, max_dims=2, max_side=6)
    pixels = data.draw(hnp.arrays(kind, shape))
    path = tmp_path_factory.mktemp("pgm") / "a.pgm"
    write_pgm(path, pixels, ascii=ascii)
    np.testing.assert_array_equal(read_pgm(path), pixels)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"P6 1 1 255\nabc", "no PGM header"),
        (b"P5 2 2 255\nabc", "3 bytes of pixels after byte 11; expected 4"),
        (b"P5 2 2 255\nabcdefg", "7 bytes of pixels"),
        (b"P5 2 0 255\n", "a picture of 2 x 0"),
        (b"P5 2 2 70000\n", "values up to 70000"),
        (b"P5 99999 99999 255\n", "a picture of 99999 x 99999"),
        (b"P2 2 1 9\n1 10", "pixel 2 is 10; expected at most 9"),
        (b"P2 2 1 9\n1 -1", "pixel 2 is b'-1'"),
        (b"P2 2 2 9\n1 1", "2 pixels; expected 4"),
    ],
)
def test_bad_pgm_is_refused(tmp_path, content, message):
    path = tmp_path / "a.pgm"
    path.write_bytes(content)
    with pytest.raises(InputError, match=message):
        read_pgm(path)


def save(path, pixels, **options):
    image = pytest.importorskip("PIL.Image")
    path.parent.mkdir(parents=True, exist_ok=True)
    image.fromarray(pixels).save(path, **options)
    return path


def test_png_jpeg_gif_grey_colour_and_depth(tmp_path):
    grey = np.arange(48, dtype=np.uint8).reshape(6, 8) * 5
    colour = np.random.default_rng(0).integers(0, 255, (6, 8, 3), dtype=np.uint8)
    np.testing.assert_array_equal(read_picture(save(tmp_path / "a.png", grey)), grey)
    np.testing.assert_array_equal(read_picture(save(tmp_path / "b.png", colour)), colour)
    np.testing.assert_array_equal(read_picture(save(tmp_path / "c.gif", grey)), grey)
    deep = grey.astype(np.uint16) * 256
    np.testing.assert_array_equal(read_picture(save(tmp_path / "d.png", deep)), deep)
    smooth = read_picture(save(tmp_path / "e.jpg", grey, quality=95))
    assert smooth.shape == grey.shape and abs(smooth.astype(int) - grey).max() < 12


def test_transparency_is_black_and_the_cameras_orientation_is_applied(tmp_path):
    from PIL import Image

    pixels = np.full((2, 3, 4), 200, dtype=np.uint8)
    pixels[..., 3] = 255
    pixels[0, 0, 3] = 0
    found = read_picture(save(tmp_path / "a.png", pixels))
    assert found[0, 0].tolist() == [0, 0, 0] and found[1, 1].tolist() == [200, 200, 200]
    image = Image.fromarray(np.zeros((4, 9, 3), dtype=np.uint8))
    exif = Image.Exif()
    exif[0x0112] = 6  # turned by a quarter
    image.save(tmp_path / "b.jpg", exif=exif)
    assert read_picture(tmp_path / "b.jpg").shape == (9, 4, 3)


def test_damaged_pictures_are_named(tmp_path):
    good = save(tmp_path / "s1" / "1.png", np.zeros((4, 4), np.uint8))
    (tmp_path / "s1" / "2.png").write_bytes(good.read_bytes()[:40])
    (tmp_path / "s2").mkdir()
    (tmp_path / "s2" / "3.jpg").write_bytes(b"rubbish")
    with pytest.raises(InputError, match=r"2 of 3 pictures cannot be used: .*2\.png.*3\.jpg"):
        read_image_classes(tmp_path)


def test_classes_by_folder_in_natural_order(tmp_path):
    for person in (1, 2, 10):
        for shot in (1, 2, 10):
            path = tmp_path / f"s{person}" / f"{shot}.pgm"
            path.parent.mkdir(exist_ok=True)
            write_pgm(path, np.full((3, 2), 10 * person + shot, np.uint8))
    (tmp_path / ".hidden.pgm").write_bytes(b"")
    found = read_image_classes(tmp_path)
    assert found.classes == ("s1", "s2", "s10") and found.shape == (3, 2)
    assert found.y.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert found.X[:, 0].tolist() == [11, 12, 20, 21, 22, 30, 101, 102, 110]
    assert found.ids[2] == "s1/10.pgm"


def test_classes_by_prefix_need_no_suffix(tmp_path):
    for name in ("subject01.glasses", "subject01.sad", "subject02.sad"):
        write_pgm(tmp_path / name, np.zeros((2, 2), np.uint8))
    found = read_image_classes(tmp_path, files=sorted(tmp_path.iterdir()), classes="prefix")
    assert found.classes == ("subject01", "subject02") and found.y.tolist() == [0, 0, 1]
    for angle in (0, 1):
        write_pgm(tmp_path / f"obj{10 - angle}__{angle}.pgm", np.zeros((2, 2), np.uint8))
    files = sorted(tmp_path.glob("obj*"))
    found = read_image_classes(tmp_path, files=files, classes="prefix", separator="__")
    assert found.classes == ("obj9", "obj10")


def test_sizes(tmp_path):
    write_pgm(tmp_path / "a.pgm", np.full((4, 4), 9, np.uint8))
    write_pgm(tmp_path / "b.pgm", np.full((6, 8), 9, np.uint8))
    with pytest.raises(InputError, match=r"b\.pgm: is 6 x 8 pixels; expected 4 x 4 as a.pgm"):
        read_image_classes(tmp_path)
    pytest.importorskip("PIL")
    found = read_image_classes(tmp_path, size=(2, 3))
    assert found.X.shape == (2, 6) and (found.X == 9).all()


def test_resampling_keeps_means_and_types():
    pytest.importorskip("PIL")
    ramp = np.tile(np.arange(64, dtype=np.uint16) * 1000, (32, 1))
    small = resize(ramp, (8, 16))
    assert small.shape == (8, 16) and small.dtype == np.uint16
    np.testing.assert_allclose(small.mean(), ramp.mean(), rtol=0.01)
    assert to_grey(np.full((2, 2, 3), 77, np.uint8)).tolist() == [[77, 77], [77, 77]]


def test_natural_order():
    names = ["s10", "s2", "s1", "a", "s2b", "10", "9"]
    assert sorted(names, key=natural_key) == ["9", "10", "a", "s1", "s2", "s2b", "s10"]


def test_pictures_and_tags_are_joined_by_name(tmp_path):
    for name in ("b10.pgm", "b2.pgm", "sub/c.pgm"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        write_pgm(tmp_path / name, np.zeros((2, 2), np.uint8))
    csv = tmp_path / "tags.csv"
    csv.write_text("image,tags\nsub/c,NA\nb2.pgm,red;cat\n")
    files, table, without = match_tags(tmp_path, csv)
    assert [path.name for path in files] == ["b2.pgm", "b10.pgm", "c.pgm"]
    assert table.tags == ("NA", "cat", "red")
    assert table.Y.tolist() == [[0, 1, 1], [0, 0, 0], [1, 0, 0]]
    assert without == ["b10.pgm"]
    csv.write_text("image,tags\nzz,NA\n")
    with pytest.raises(InputError, match="image 'zz' is no picture in"):
        match_tags(tmp_path, csv)
    csv.write_text("image,tags\nb2,NA\nb2.pgm,red\n")
    with pytest.raises(InputError, match="are one picture"):
        match_tags(tmp_path, csv)
    with pytest.raises(InputError, match="no picture below"):
        find_pictures(csv.parent / "sub" / "..").clear() or find_pictures(_empty(tmp_path))


def _empty(tmp_path):
    folder = tmp_path / "empty"
    folder.mkdir()
    return folder
