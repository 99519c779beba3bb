"""Predictions made elsewhere are read strictly and scored as our own are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pipeline_lib.datasets.container import Dataset
from pipeline_lib.errors import InputError
from pipeline_lib.metrics import annotation_metrics, ranking_metrics
from pipeline_lib.scoring import read_predictions, score

RNG = np.random.default_rng(0)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("0.5\n-1e-3\n2\n", [0.5, -0.001, 2.0]),
        ("\ufeff1\r\n2\r\n3\r\n", [1.0, 2.0, 3.0]),
        ("1 2\n3,4\n", [[1.0, 2.0], [3.0, 4.0]]),
    ],
)
def test_text_is_read(tmp_path: Path, text: str, values: list) -> None:
    path = tmp_path / "scores.txt"
    path.write_text(text, encoding="utf-8", newline="")
    assert read_predictions(path).tolist() == values


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("1\nx\n", 'scores.txt:2: "x" is not a number'),
        ("1\n\n2\n", "scores.txt:2: an empty line"),
        ("1 2\n3\n", "scores.txt:2: 1 values; expected 2"),
        ("", "empty file"),
        ("1:2\n", "not a number"),
    ],
)
def test_damaged_text_names_its_place(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "scores.txt"
    path.write_text(text)
    with pytest.raises(InputError, match=says.replace("(", r"\(")):
        read_predictions(path)


def test_arrays_are_read_and_objects_are_not(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.arange(6).reshape(3, 2))
    assert read_predictions(tmp_path / "a.npy").shape == (3, 2)
    for name, value in {"o": np.array([{}, []], dtype=object), "s": np.array(["a"])}.items():
        np.save(tmp_path / f"{name}.npy", value, allow_pickle=True)
        with pytest.raises(InputError):
            read_predictions(tmp_path / f"{name}.npy")
    (tmp_path / "cut.npy").write_bytes((tmp_path / "a.npy").read_bytes()[:20])
    with pytest.raises(InputError):
        read_predictions(tmp_path / "cut.npy")
    with pytest.raises(InputError, match="no such file"):
        read_predictions(tmp_path / "none.txt")


def test_what_the_data_have_decides_what_is_measured() -> None:
    y, qid, scores = RNG.integers(0, 3, 30), np.repeat(np.arange(3), 10), RNG.normal(size=30)
    ranked = Dataset("own", "all", X=None, y=y, qid=qid)
    assert score(ranked, scores, definition="standard").means == pytest.approx(
        ranking_metrics(scores, y, qid, definition="standard").means, nan_ok=True
    )
    Y = (RNG.random((30, 5)) < 0.4).astype(np.uint8)
    matrix = RNG.random((30, 5))
    tagged = Dataset("own", "all", Y=Y)
    assert score(tagged, matrix, cutoffs=(2,)).means == annotation_metrics(matrix, Y, (2,)).means
    grouped = Dataset("own", "all", y=y)
    result = score(grouped, (y + 1) % 3)
    assert result.means == {"acc": 1.0, "nmi": pytest.approx(1.0), "ari": pytest.approx(1.0)}


def test_what_does_not_fit_is_refused() -> None:
    grouped = Dataset("own", "all", y=np.arange(4))
    with pytest.raises(InputError, match="3 predictions for 4 rows"):
        score(grouped, np.arange(3))
    with pytest.raises(InputError, match="whole number"):
        score(grouped, np.array([0.5, 1, 2, 3]))
    with pytest.raises(InputError, match="2 values a row"):
        score(grouped, np.zeros((4, 2)))
    with pytest.raises(InputError, match="no labels"):
        score(Dataset("own", "all", X=np.zeros((4, 2))), np.zeros(4))
    with pytest.raises(InputError):
        score(grouped, np.array([0, 1, 2, np.nan]))
