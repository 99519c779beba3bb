from __future__ import annotations

import pytest

from pipeline_lib.datasets.mirflickr import read_annotations, read_tags
from pipeline_lib.errors import InputError


def test_tags_in_numerical_order_with_images_without_tags(tmp_path):
    for i in range(1, 13):
        content = "null\nsky\n" if i % 2 else "sky\n" if i != 12 else ""
        (tmp_path / f"tags{i}.txt").write_text(content, newline="\r\n")
    (tmp_path / "readme.txt").write_text("not tags")
    table = read_tags(tmp_path, min_images=2)
    assert table.ids[:3] == ("im1", "im2", "im3") and len(table.ids) == 12
    assert table.tags == ("null", "sky")
    assert table.Y[11].tolist() == [0, 0] and table.Y[0].tolist() == [1, 1]
    assert read_tags(tmp_path, min_images=7).tags == ("sky",)
    (tmp_path / "tags5.txt").unlink()
    with pytest.raises(InputError, match=r"tags5\.txt is missing"):
        read_tags(tmp_path)


def test_annotations_and_their_stricter_half(tmp_path):
    (tmp_path / "sky.txt").write_text("1\n3\n")
    (tmp_path / "sky_r1.txt").write_text("3\n")
    (tmp_path / "baby.txt").write_text("2\n")
    (tmp_path / "README.txt").write_text("words")
    Y, concepts = read_annotations(tmp_path, 4)
    assert concepts == ("baby", "sky")
    assert Y.tolist() == [[0, 1], [1, 0], [0, 1], [0, 0]]
    Y, concepts = read_annotations(tmp_path, 4, relevant=True)
    assert concepts == ("sky",) and Y[:, 0].tolist() == [0, 0, 1, 0]
    for text, message in [
        ("1\n5\n", r"sky\.txt:2: '5'; expected an image number, 1-4"),
        ("0\n", "'0'"),
        ("x\n", "'x'"),
        ("1\n1\n", "image 1 stands twice"),
    ]:
        (tmp_path / "sky.txt").write_text(text)
        with pytest.raises(InputError, match=message):
            read_annotations(tmp_path, 4)
