from __future__ import annotations

import zipfile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline_lib.datasets.nuswide import (
    FEATURE_KINDS,
    read_concept_csv,
    read_features,
    read_ground_truth,
    read_tags,
)
from pipeline_lib.errors import InputError

GOOD = (
    "image,sky,water,waterfall\r\n"
    "actor\\1.jpg,0,1,0\r\n"
    "actor\\2.jpg,1,1,1\r\n"
    "beach\\1.jpg,0,0,0\r\n"
)


def write(tmp_path, text, name="a.csv"):
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8", newline="")
    return path


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("text", [GOOD, GOOD.replace("\r", ""), GOOD.rstrip()])
def test_concept_table(tmp_path, zipped, text):
    path = write(tmp_path, text)
    if zipped:
        path = tmp_path / "a.zip"
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("labels.csv", text)
    found = read_concept_csv(path)
    assert found.table.tags == ("sky", "water", "waterfall")
    assert found.table.ids == ("actor\\1.jpg", "actor\\2.jpg", "beach\\1.jpg")
    assert found.table.Y.tolist() == [[0, 1, 0], [1, 1, 1], [0, 0, 0]]
    assert found.findings == {}


def test_swapped_headers_are_put_back_and_reported(tmp_path):
    path = write(tmp_path, "image,waterfall,sky,water\na,1,0,0\nb,1,0,1\nc,1,1,0\n")
    found = read_concept_csv(path)
    assert found.table.tags == ("water", "sky", "waterfall")
    assert found.swapped == (("water", "waterfall"),)
    assert found.findings == {"swapped_headers_put_back": ["columns 4 (water) and 2 (waterfall)"]}


def test_stray_values_stop_with_row_and_column_unless_they_are_known(tmp_path):
    path = write(tmp_path, GOOD.replace("beach\\1.jpg,0,0", "beach\\1.jpg,0,-1130179"))
    with pytest.raises(InputError, match=":4:3: -1130179 for concept 'water'; expected 0 or 1"):
        read_concept_csv(path)
    found = read_concept_csv(path, known_strays=[(4, 3, -1130179)])
    assert found.table.Y[2].tolist() == [0, 0, 0]
    assert found.findings["stray_values_read_as_0"] == ["line 4, column 3: -1130179"]
    with pytest.raises(InputError, match="-1130179"):
        read_concept_csv(path, known_strays=[(4, 3, 7)])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (GOOD.replace("2.jpg,1,1,1", "2.jpg,1,,1"), ":3:3: ''"),
        (GOOD.replace("2.jpg,1,1,1", "2.jpg,1,x,1"), ":3:3: 'x'"),
        (GOOD.replace("2.jpg,1,1,1", "2.jpg,1,1"), ":3: 3 fields; expected 4"),
        (GOOD.replace("2.jpg,1,1,1", "2.jpg,1,1,1,1"), ":3: 5 fields; expected 4"),
        (GOOD.replace("actor\\2.jpg", "actor\\1.jpg"), ":3:1: image .* already on line 2"),
        (GOOD.replace("actor\\2.jpg", ""), ":3:1: no image name"),
        (GOOD.replace("sky", "water"), ":1:3: column name 'water' stands twice"),
        ("image\na\n", "one column"),
        ("image,sky\n", "no rows"),
    ],
)
def test_bad_tables_are_refused(tmp_path, text, message):
    with pytest.raises(InputError, match=message):
        read_concept_csv(write(tmp_path, text))


def test_odd_zips_are_refused(tmp_path):
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.csv", GOOD)
        archive.writestr("b.csv", GOOD)
    with pytest.raises(InputError, match="2 CSV files"):
        read_concept_csv(path)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.csv", b"0" * (80 * 2**20))
    with pytest.raises(InputError, match="swells"):
        read_concept_csv(path)


def official(tmp_path):
    concepts = write(tmp_path, "water\r\nwaterfall\r\nsky\r\n", "ConceptsList/Concepts81.txt")
    folder = tmp_path / "Groundtruth" / "TrainTestLabels"
    for name, values in (("water", "1 1 0"), ("waterfall", "0 1 0"), ("sky", "0 0 0")):
        text = "".join(f"{v} \n" for v in values.split())
        write(tmp_path, text, f"Groundtruth/TrainTestLabels/Labels_{name}_Train.txt")
    images = write(tmp_path, "a\\1.jpg\nb\\2.jpg\nc\\3.jpg\n", "ImageList/TrainImagelist.txt")
    return folder, concepts, images


def test_ground_truth_follows_the_order_of_the_concept_list(tmp_path):
    folder, concepts, images = official(tmp_path)
    table = read_ground_truth(folder, concepts, "Train", images)
    assert table.tags == ("water", "waterfall", "sky")
    assert table.Y.tolist() == [[1, 0, 0], [1, 1, 0], [0, 0, 0]]
    assert table.ids[2] == "c\\3.jpg"
    with pytest.raises(InputError, match="no such file"):
        read_ground_truth(folder, concepts, "Test")
    write(tmp_path, "1\n0\n", "Groundtruth/TrainTestLabels/Labels_sky_Train.txt")
    with pytest.raises(InputError, match=r"Labels_sky_Train\.txt: 2 lines; expected 3"):
        read_ground_truth(folder, concepts, "Train")
    write(tmp_path, "1\n0\n3\n", "Groundtruth/TrainTestLabels/Labels_sky_Train.txt")
    with pytest.raises(InputError, match=r":3:1: 3 .*expected 0 or 1"):
        read_ground_truth(folder, concepts, "Train")


def test_tags_and_features(tmp_path):
    names = write(tmp_path, "nature\nnan\n", "TagList1k.txt")
    table = read_tags(write(tmp_path, "0\t1\t\n1\t0\t\n", "Train_Tags1k.dat"), names)
    assert table.tags == ("nature", "nan") and table.Y.tolist() == [[0, 1], [1, 0]]
    row = " ".join(["0.5"] * FEATURE_KINDS["CH"]) + " \n"
    path = write(tmp_path, row * 3, "Train_Normalized_CH.dat")
    assert read_features(path, "CH").shape == (3, 64)
    with pytest.raises(InputError, match=":1: 64 values; expected 73"):
        read_features(path, "EDH")
    broken = write(tmp_path, row + row.replace("0.5", "nan", 1), "b.dat")
    with pytest.raises(InputError, match=":2:1: 'nan' is not a finite number"):
        read_features(broken)


@given(
    rows=st.lists(
        st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=3, max_size=3),
        min_size=1,
        max_size=6,
    )
)
def test_feature_tables_are_read_exactly(rows, tmp_path_factory):
    path = tmp_path_factory.mktemp("dat") / "a.dat"
    path.write_text("".join(" ".join(map(repr, row)) + " \n" for row in rows))
    np.testing.assert_array_equal(read_features(path), np.array(rows))
