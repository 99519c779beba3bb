"""Data of one's own: the README's commands, on files made by the README's words alone."""

from __future__ import annotations

import gzip
import re
import shlex
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import scipy.io
from typer.testing import CliRunner, Result

from flows.cli import app
from pipeline_lib.datasets import catalogue, rawfiles
from pipeline_lib.datasets.pictures import write_pgm
from pipeline_lib.errors import InputError
from pipeline_lib.home import resolve_home
from pipeline_lib.results import load_run

README = Path(__file__).resolve().parents[2] / "README.md"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty folder to work in, with no data known but the project's own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AFFINITY_DATA", "")
    monkeypatch.setenv("AFFINITY_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(rawfiles, "raw_root", lambda: tmp_path / "root")
    monkeypatch.setattr("pipeline_lib.datasets.own.raw_root", lambda: tmp_path / "root")
    catalogue.forget_declarations()
    yield tmp_path
    catalogue.forget_declarations()


def affinity(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments), catch_exceptions=True)


def section() -> str:
    return (
        README.read_text(encoding="utf-8").partition("## Your own data\n")[2].partition("\n## ")[0]
    )


def recipes() -> list[tuple[list[str], list[str]]]:
    """Pairs of commands: the one that adds, the one that runs."""
    found = []
    for block in re.findall(r"```sh\n(.*?)```", section(), re.DOTALL):
        add, run = (shlex.split(line, comments=True)[1:] for line in block.splitlines())
        assert add[:2] == ["data", "add"] and run == ["run", "--dataset", add[2]]
        found.append((add, run))
    return found


def points(n: int, d: int) -> tuple[np.ndarray, np.ndarray]:
    """Three classes, apart from each other."""
    y = np.arange(n) % 3
    return np.random.default_rng(0).random((n, d)) + y[:, None], y


def make_wine(folder: Path) -> None:
    header, *examples = re.search(r"```\n(wine,.*?)```", section(), re.DOTALL)[1].splitlines()
    assert all(len(row.split(",")) == len(header.split(",")) for row in examples)
    X, y = points(60, header.count(",") - 1)
    rows = [f"w{i},{','.join(map(str, x))},class_{k}" for i, (x, k) in enumerate(zip(X, y))]
    (folder / "wine.csv").write_text("\n".join([header, *rows]) + "\n")


def make_clicks(folder: Path) -> None:
    header = re.search(r"has the columns `(.*?)`", section())[1]
    assert header.startswith("query,document,") and header.endswith(",relevance")
    X, y = points(120, header.count(",") - 2)
    rows = [f"q{i // 8},d{i},{','.join(map(str, X[i]))},{y[i]}" for i in range(120)]
    (folder / "clicks.csv").write_text("\n".join([header, *rows]) + "\n")


def make_vectors(folder: Path) -> None:
    command = re.search(r'`(np\.savez\("embeddings\.npz", X=X, y=y\))`', section())[1]
    X, y = points(60, 8)
    assert command == 'np.savez("embeddings.npz", X=X, y=y)'
    np.savez(folder / "embeddings.npz", X=X, y=y)


def make_pictures(folder: Path) -> None:
    header, *_ = re.search(r"```\n(picture,tags.*?)```", section(), re.DOTALL)[1].splitlines()
    rng = np.random.default_rng(0)
    rows = [header]
    for i in range(60):
        place = folder / "pictures" / f"digit{i % 3}"
        place.mkdir(parents=True, exist_ok=True)
        write_pgm(place / f"{i:03d}.pgm", rng.integers(0, 80, (12, 12)) + 80 * (i % 3))
        tags = [f"digit{i % 3}", ("even", "odd")[i % 2], ("low", "high")[i > 29], "seen"]
        rows.append(f"digit{i % 3}/{i:03d},{';'.join(tags)}")
    (folder / "pictures" / "tags.csv").write_text("\n".join(rows) + "\n")


MADE = {
    "wine": (make_wine, ["Euclidean"]),
    "clicks": (make_clicks, ["RankSVM"]),
    "vectors": (make_vectors, ["Euclidean"]),
    "pictures": (make_pictures, ["Pop"]),
}


@pytest.mark.parametrize(
    "name", ["wine", "vectors", "pictures", pytest.param("clicks", marks=pytest.mark.slow)]
)
def test_the_recipes_of_the_readme_work_from_its_words_alone(name, folder):
    if name == "pictures":
        pytest.importorskip("skimage")
    make, only = MADE[name]
    make(folder)
    (recipe,) = [pair for pair in recipes() if pair[0][2] == name]
    add, run = recipe
    added = affinity(*add)
    assert added.exit_code == 0, added.exception
    assert f"next: affinity run --dataset {name}" in added.output
    options = [word for method in only for word in ("--only", method)]
    ran = affinity(*run, *options, "--engine", "plain", "--workers", "1")
    assert ran.exit_code == 0, (ran.output, ran.exception)
    record = load_run(resolve_home(None), "latest")
    assert record.status == "finished" and set(record.results["method"]) == set(only)
    assert set(record.results["dataset"]) == {name}
    if name == "clicks":
        assert set(record.trials["split"]) == {f"fold{k}" for k in range(1, 6)}


@pytest.mark.slow
@pytest.mark.parametrize("name", MADE)
def test_the_recipes_with_every_method(name, folder):
    MADE[name][0](folder)
    (recipe,) = [pair for pair in recipes() if pair[0][2] == name]
    for command in (recipe[0], [*recipe[1], "--engine", "plain", "--workers", "1"]):
        done = affinity(*command)
        assert done.exit_code == 0, (done.output, done.exception)


def every_kind(folder: Path) -> dict[str, tuple[list[str], str, list[str]]]:
    """Every kind of file, with the method to run and the splits it is expected to run on."""
    h5py = pytest.importorskip("h5py")
    X, y = points(90, 6)
    tags = [f"t{k};{('even', 'odd')[i % 2]};all" for i, k in enumerate(y)]
    frame = pl.DataFrame({f"x{j}": X[:, j] for j in range(6)} | {"kind": y, "tags": tags})
    query = pl.Series("query", [f"q{i // 6}" for i in range(90)])
    frame.write_parquet("table.parquet")
    frame.write_csv("table.tsv", separator="\t")
    for role, part in (("train", frame[:60]), ("test", frame[60:])):
        part.write_csv(f"{role}.csv")
    for role, rows in (("train", slice(0, 42)), ("vali", slice(42, 66)), ("test", slice(66, 90))):
        frame.with_columns(query)[rows].drop("tags").write_csv(f"ranking-{role}.csv")
    sparse = [" ".join(f"{j + 1}:{v}" for j, v in enumerate(x)) for x in X]
    Path("a.libsvm").write_text("".join(f"{k} {x}\n" for k, x in zip(y, sparse)))
    lines = [f"{k} qid:{i // 6} {x} # d{i}\n" for i, (k, x) in enumerate(zip(y, sparse))]
    Path("a.txt").write_text("".join(lines))
    with gzip.open("a.txt.gz", "wt") as file:
        file.writelines(lines)
    np.save("a.npy", X)
    Path("labels.txt").write_text("".join(f"class {k}\n" for k in y))
    Path("tags.txt").write_text("".join(f"{line}\n" for line in tags))
    Y = np.column_stack([y == 0, y == 1, y == 2, np.arange(90) % 2]).astype(np.uint8)
    np.savez("tagged.npz", X=X, Y=Y, tags=["a", "b", "c", "NA"])
    scipy.io.savemat("set.mat", {"fea": X.T * 40, "gnd": y[:, None] + 1})
    with h5py.File("set.h5", "w") as archive:
        archive["train/data"], archive["train/target"] = X, y
    named = ["--feature", "train/data", "--label", "train/target"]
    make_pictures(folder)
    folds = [f"fold{k}" for k in range(1, 6)]
    ranking = [f"{role}=ranking-{role}.csv" for role in ("train", "vali", "test")]
    columns = ["--label", "kind", *(f"--feature=x{j}" for j in range(6))]
    values = ["--tags", "tags", *(f"--feature=x{j}" for j in range(6))]
    return {
        "parquet": (["table.parquet", *columns], "Euclidean", ["all"]),
        "tsv": (["table.tsv", *columns], "Euclidean", ["all"]),
        "libsvm": (["a.libsvm"], "Euclidean", ["all"]),
        "letor": (["a.txt"], "Regression", folds),
        "letor-gz": (["a.txt.gz"], "Regression", folds),
        "folds": ([*ranking, "--query", "query", "--label", "kind"], "Regression", ["fold1"]),
        "npy-labels": (["a.npy", "--labels", "labels.txt"], "Euclidean", ["all"]),
        "npy-tags": (["a.npy", "--tags", "tags.txt"], "Frequency", ["all"]),
        "npz-tags": (["tagged.npz"], "Pop", ["all"]),
        "mat": (["set.mat", "--size", "2x3"], "Euclidean", ["all"]),
        "hdf5": (["set.h5", *named], "Euclidean", ["all"]),
        "classes": (["pictures", "--size", "8x8"], "KMeans", ["all"]),
        "official": (["train=train.csv", "test=test.csv", *values], "Pop", ["official"]),
        "completion": (["train=train.csv", "test=test.csv", *values], "Frequency", ["train"]),
    }


KINDS = "parquet tsv libsvm letor letor-gz folds npy-labels npy-tags npz-tags mat hdf5 classes official completion"


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS.split())
def test_every_kind_of_file_runs_by_name(kind, folder):
    pytest.importorskip("skimage")
    arguments, method, splits = every_kind(folder)[kind]
    added = affinity("data", "add", "mine", *arguments)
    assert added.exit_code == 0, added.exception
    ran = affinity("run", "--dataset", "mine", "--only", method, "--engine", "plain")
    assert ran.exit_code == 0, (ran.output, ran.exception)
    record = load_run(resolve_home(None), "latest")
    assert record.status == "finished"
    assert record.results["method"].unique().to_list() == [method]
    assert sorted(set(record.trials["split"])) == splits


def test_every_recipe_is_tested():
    assert {add[2] for add, _ in recipes()} == set(MADE)


def test_parts_sheets_and_a_second_dataset_of_one_name(folder):
    make_wine(folder)
    columns = ["--label", "cultivar", "--id", "wine"]
    done = affinity("data", "add", "two", "train=wine.csv", "test=wine.csv", *columns)
    assert done.output.splitlines()[:2] == [
        "two train: 60 rows, 7 features, 3 different labels",
        "two test: 60 rows, 7 features, 3 different labels",
    ]
    again = affinity("data", "add", "two", "wine.csv", *columns)
    assert isinstance(again.exception, InputError) and "exists already" in str(again.exception)
    assert affinity("data", "add", "two", "wine.csv", *columns, "--replace").exit_code == 0
    assert catalogue.dataset_spec("two").part_names() == ["all"]
    pytest.importorskip("PIL")
    make_pictures(folder)
    affinity("data", "add", "classes", "pictures", "--size", "8x6")
    facts = affinity("data", "describe", "classes", "--sheet", "sheet.png")
    assert "features           48" in facts.output
    assert "labels             digit0: 20, digit1: 20, digit2: 20" in facts.output
    assert (folder / "sheet.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["wine.csv", "--label", "kind"], "wine.csv:1: no column 'kind'; expected one of"),
        (["wine.csv", "--label", "cultivar"], "'w0' in column 'wine'; expected a finite number"),
        (["wine.csv"], "'w0' in column 'wine'"),
        (["wine.csv", "wine.csv"], "'wine.csv' does not say which part it is"),
        (["a=wine.csv", "a=wine.csv"], "part 'a' is given twice"),
        (["A=wine.csv", "b=wine.csv"], "part name 'A'"),
        (["wine.csv", "--tags", "cultivar", "--separator", ""], "an empty separator"),
        (["wine.csv", "--size", "8x8"], "size does not go with a .csv file"),
        (["nothing.csv"], "nothing.csv: no such file or folder"),
        (["/dev/zero"], "/dev/zero: no such file or folder"),
        (["set.h5"], "set.h5: HDF5 has no fixed names; expected the paths of the matrix"),
        (["wine.exe"], "unknown kind of file '.exe'"),
        (["pickled.npz"], "holds Python objects, which are never unpickled"),
        (["pictures", "--size", "8"], "size '8'; expected HEIGHTxWIDTH"),
        (["pictures", "--size", "99999x99999"], "99999 x 99999 pixels are too large"),
        (["pictures", "--tags", "gone.csv"], "gone.csv: no such file"),
        (["pictures", "--tags", "tags.csv", "--descriptor", "hogg"], "unknown descriptor 'hogg'"),
        (["pictures", "--label", "x"], "label does not go with a folder of pictures"),
    ],
)
def test_what_cannot_be_added_gets_a_sentence_and_leaves_nothing(arguments, says, folder):
    make_wine(folder)
    make_pictures(folder)
    (folder / "wine.exe").write_bytes(b"MZ")
    (folder / "set.h5").write_bytes(b"\x89HDF")
    np.savez(folder / "pickled.npz", X=np.array([{}], dtype=object))
    done = affinity("data", "add", "own", *arguments)
    assert isinstance(done.exception, InputError), (done.output, done.exception)
    assert says in str(done.exception) and "\n" not in str(done.exception)
    assert not (folder / "root").exists()


def test_status_is_one_row_a_dataset(folder):
    make_wine(folder)
    affinity("data", "add", "mine", "wine.csv", "--label", "cultivar", "--id", "wine")
    lines = affinity("data", "status").output.splitlines()
    rows = {line.split()[0]: " ".join(line.split()[1:]) for line in lines}
    assert rows["mine"].startswith("here all /")
    assert rows["two-moons"] == "built in all" and rows["mslr"] == "missing"
    assert len(lines) == 1 + len(catalogue.names())
    parts = affinity("data", "status", "mslr").output
    assert "fold1/train" in parts and "Fold1/train.txt" in parts


@pytest.mark.parametrize("command", [("list", "datasets"), ("data", "status")])
def test_a_damaged_declaration_hides_only_itself(command, folder):
    make_wine(folder)
    add, _ = recipes()[0]
    assert affinity(*add).exit_code == 0
    (declaration,) = (folder / "root").rglob("*.toml")
    before = affinity(*command).stdout
    declaration.with_stem("broken").write_text("version = [", encoding="utf-8")
    result = affinity(*command)
    assert result.exit_code == 0
    assert result.stdout == before
    assert "left out" in result.stderr and "broken.toml" in result.stderr
    assert len(result.stderr.splitlines()) == 1
