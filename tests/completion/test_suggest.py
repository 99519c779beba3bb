"""Reading a file of tags, and the suggestions made from it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from scipy import sparse

from flows.complete import complete_tags
from pipeline_lib import registry
from pipeline_lib.completion.cooccurrence import CoOccurrence
from pipeline_lib.completion.frequency import Frequency
from pipeline_lib.completion.sampling import hide_tags
from pipeline_lib.completion.suggest import read_tags, suggest_tags
from pipeline_lib.completion.tcmr import TCMR
from pipeline_lib.completion.weight import choose_weight
from pipeline_lib.datasets.generators import draw_tags, low_rank_probabilities
from pipeline_lib.errors import InputError
from pipeline_lib.metrics.completion import completion_metrics


def write(folder: Path, content: str | bytes) -> Path:
    path = folder / "tags.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_values_that_look_like_missing_ones_are_tags(tmp_path: Path) -> None:
    path = write(tmp_path, "image,tag\na,NA\na,null\nb,nan\nb,None\nc,007\nc,7\nNaN,NA\n1e5,True\n")
    table = read_tags(path)
    assert table.tags == ["NA", "null", "nan", "None", "007", "7", "True"]
    assert table.images == ["a", "b", "c", "NaN", "1e5"]
    assert table.D.toarray().sum() == 8
    assert table.D[3, 0] == 1


@pytest.mark.parametrize(
    "content",
    [
        "image,tag\na,x\na,y\nb,x\n",
        "\ufeffimage,tag\r\na,x\r\na,y\r\nb,x\r\n",
        'tag , image\nx,a\n"y",a\n x , b \n',
        "id,image,tag\n1,a,x\n2,a,y\n3,b,x\n",
        "image,tag\na,x\n\na,y\na,x\nb,x\n\n",
        "image,tag\na,x\na,y\nb,x",
    ],
    ids=["plain", "mark and CRLF", "blanks", "other column", "repeats", "no last newline"],
)
def test_forms_of_one_table(tmp_path: Path, content: str) -> None:
    table = read_tags(write(tmp_path, content))
    assert (table.images, table.tags) == (["a", "b"], ["x", "y"])
    assert table.D.toarray().tolist() == [[1, 1], [1, 0]]


def test_quoted_commas_and_line_breaks(tmp_path: Path) -> None:
    table = read_tags(write(tmp_path, 'image,tag\na,"sea, sky"\na,"two\nlines"\n'))
    assert table.tags == ["sea, sky", "two\nlines"]


@pytest.mark.parametrize(
    ("content", "line", "message"),
    [
        ("", None, "empty"),
        ("image,tag\n", None, "no image is tagged"),
        ("image,label\na,x\n", 1, "column tag is missing"),
        ("image,tag,tag\na,x,y\n", 1, "stands twice"),
        ("a,x\nb,y\n", 1, "column image is missing"),
        ("image,tag\na,x\nb\n", 3, "1 values"),
        ("image,tag\na,x,y\n", 2, "3 values"),
        ("image,tag\na,x\nb, \n", 3, "tag is empty"),
        ("image,tag\na,x\n,y\n", 3, "image is empty"),
        ('image,tag\na,"two\nlines"\nb,\n', 4, "tag is empty"),
        ('image,tag\na,"x\n', None, "end of data"),
        ('image,tag\na,"x"y\n', 2, "expected after"),
        (b"image,tag\na,caf\xe9\n", None, "not UTF-8"),
    ],
)
def test_errors_name_the_line(
    tmp_path: Path, content: str | bytes, line: int | None, message: str
) -> None:
    path = write(tmp_path, content)
    with pytest.raises(InputError, match=message) as raised:
        read_tags(path)
    assert str(path) in str(raised.value)
    if line is not None:
        assert raised.value.line == line


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        read_tags(tmp_path / "absent.csv")


def test_suggestions_are_the_best_tags_an_image_lacks(tmp_path: Path) -> None:
    rows = "image,tag\n" + "".join(
        f"{image},{tag}\n"
        for image, tags in {"p": "ab", "q": "ab", "r": "ac", "s": "a", "t": "abc"}.items()
        for tag in tags
    )
    path = write(tmp_path, rows)
    frame = suggest_tags(path, CoOccurrence(), n_suggestions=2)
    assert frame.schema == {
        "image": pl.String,
        "rank": pl.Int64,
        "tag": pl.String,
        "score": pl.Float64,
    }
    assert frame.rows() == [
        ("p", 1, "c", pytest.approx(2 / 5 + 1 / 3)),
        ("q", 1, "c", pytest.approx(2 / 5 + 1 / 3)),
        ("r", 1, "b", pytest.approx(3 / 5 + 1 / 2)),
        ("s", 1, "b", pytest.approx(3 / 5)),
        ("s", 2, "c", pytest.approx(2 / 5)),
    ]
    assert suggest_tags(path, CoOccurrence(), 1).height == 4
    with pytest.raises(InputError):
        suggest_tags(path, CoOccurrence(), 0)


def test_ties_rank_by_first_appearance_and_blocks_do_not_show(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = np.random.default_rng(0)
    lines = [f"i{i},t{t}" for i in range(30) for t in random.choice(9, 3, replace=False)]
    path = write(tmp_path, "image,tag\n" + "\n".join(lines) + "\n")
    whole = suggest_tags(path, Frequency(), 4)
    monkeypatch.setattr("pipeline_lib.completion.suggest._BLOCK_ENTRIES", 20)
    assert whole.equals(suggest_tags(path, Frequency(), 4))
    order = read_tags(path).tags
    for _, part in whole.group_by("image"):
        part = part.sort("rank")
        keys = [(-score, order.index(tag)) for tag, score in part.select("tag", "score").rows()]
        assert keys == sorted(keys)


def test_the_weight_is_one_that_recovers_observed_tags() -> None:
    probabilities, _ = low_rank_probabilities(400, 30, 3, concentration=0.15, floor=0.02, seed=1)
    Y = draw_tags(probabilities, 6, seed=1)
    D = sparse.csr_array(hide_tags(Y, 3, seed=0))
    lam = choose_weight(D)
    assert lam in [pytest.approx(share * 20.0) for share in (0.02, 0.045, 0.1)]
    found = [
        completion_metrics(TCMR(share * 20.0).fit(D).scores_, D.toarray(), Y, [1]).means["ap_at_1"]
        for share in (0.02, 0.045, 0.1)
    ]
    chosen = completion_metrics(TCMR(lam).fit(D).scores_, D.toarray(), Y, [1]).means["ap_at_1"]
    assert chosen >= max(found) - 0.05


def test_the_weight_of_a_few_images_leaves_something_to_rank_by() -> None:
    D = sparse.csr_array(np.array([[1, 1, 0], [1, 1, 0], [0, 1, 1], [1, 0, 0]]))
    lam = choose_weight(D)
    assert lam == pytest.approx(0.045 * 2.0)
    scores = TCMR(lam).fit(D).scores_
    assert scores[3, 1] > scores[3, 2]


@pytest.mark.parametrize("spec", [s for s in registry.methods() if s.kind == "completion"])
def test_the_command_takes_every_method_for_tags_alone(
    spec: registry.MethodSpec, tmp_path: Path
) -> None:
    path = write(tmp_path, "image,tag\na,x\na,y\nb,x\nb,y\nc,y\nc,z\nd,x\n")
    visual = spec.name in {"TCMR", "TCMR-lr", "LRES", "vKNN", "TagProp", "FastTag", "RKML"}
    if visual:
        with pytest.raises(InputError, match="visual features"):
            complete_tags(path, None, spec.name, 2)
        assert list(tmp_path.iterdir()) == [path]
        return
    parquet, csv = complete_tags(path, None, spec.name, 2)
    found = pl.read_parquet(parquet)
    assert found.filter(pl.col("image") == "d")["tag"].to_list() in (["y", "z"], ["z", "y"])
    assert found.equals(pl.read_csv(csv, schema=found.schema))
