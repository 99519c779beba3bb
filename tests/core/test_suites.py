"""Suites: strict reading, did-you-mean, overrides, expansion into paths."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline_lib.errors import InputError
from pipeline_lib.suites import (
    expand,
    load_suite,
    parse_suite,
    phases,
    suite_names,
    with_overrides,
)

TEXT = """
version = 1
name = "small"
title = "A small suite"

[[problems]]
name = "search"
kind = "ltr"
dataset = "digits"
splits = ["ltr"]
headline = "map"

[problems.selection]
metric = "map"

[[problems.methods]]
name = "RankSVM"
grid = { C = [0.1, 1.0] }

[[problems.methods]]
name = "RankNystroem"
label = "N20"
params = { n_components = 20 }
grid = { C = [0.1, 1.0], gamma = [0.1, 0.5, 1.0] }
repetitions = 2

[[problems.methods]]
name = "RankNystroem"
label = "N40"
params = { n_components = 40 }
winners_of = "N20"
"""


def test_every_suite_that_comes_with_the_project_is_sound() -> None:
    assert {"quickstart", "letor-mq2008"} <= set(suite_names())
    for name in suite_names():
        suite = load_suite(name)
        assert suite.name == name
        assert suite.summary
        for index, problem in enumerate(suite.problems):
            for entry in problem.methods:
                assert expand(suite, index, entry)


def test_a_row_expands_into_one_path_per_split_repetition_and_map() -> None:
    suite = parse_suite(TEXT)
    linear, grid, _ = suite.problems[0].methods
    assert [p.spec.settings for p in expand(suite, 0, linear)] == [({"C": 0.1}, {"C": 1.0})]
    paths = expand(suite, 0, grid)
    assert [(p.spec.repetition, p.spec.features["gamma"]) for p in paths] == [
        (0, 0.1), (0, 0.5), (0, 1.0), (1, 0.1), (1, 0.5), (1, 1.0),
    ]  # fmt: skip
    assert all(p.spec.features["n_components"] == 20 for p in paths)
    assert all(p.spec.settings == ({"C": 0.1}, {"C": 1.0}) for p in paths)


def test_a_winner_is_taken_over_and_overridden() -> None:
    suite = parse_suite(TEXT)
    entry = suite.problems[0].methods[2]
    (path,) = expand(suite, 0, entry, {"gamma": 0.5, "C": 0.1, "n_components": 20})
    assert path.spec.features == {"gamma": 0.5, "n_components": 40}
    assert path.spec.trial(0) == {"gamma": 0.5, "n_components": 40, "C": 0.1}
    assert [[entry.row for _, entry in phase] for phase in phases(suite)] == [
        ["RankSVM", "N20"],
        ["N40"],
    ]


def test_a_winner_of_another_method_gives_what_both_have() -> None:
    suite = parse_suite(
        TEXT.replace(
            'name = "RankNystroem"\nlabel = "N40"\nparams = { n_components = 40 }',
            'name = "KernelRankSVM"\nlabel = "exact"\nparams = { tol = 1e-4 }',
        )
    )
    (path,) = expand(
        suite, 0, suite.problems[0].methods[2], {"gamma": 0.5, "C": 0.1, "n_components": 20}
    )
    assert path.spec.trial(0) == {"gamma": 0.5, "C": 0.1, "tol": 1e-4}


def test_data_and_method_seeds_depend_on_what_they_are_for() -> None:
    suite = parse_suite(TEXT)
    first, *_, last = expand(suite, 0, suite.problems[0].methods[1])
    (linear,) = expand(suite, 0, suite.problems[0].methods[0])
    assert first.spec.data_seed() == linear.spec.data_seed()
    assert first.spec.data_seed() != last.spec.data_seed()
    assert first.spec.method_seed() != last.spec.method_seed()
    assert first.spec.method_seed("map") != first.spec.method_seed("fit")


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("title =", "titel =", 'unknown suite key "titel"; did you mean "title"'),
        ('kind = "ltr"', 'kind = "lrt"', 'unknown problem kind "lrt"; did you mean "ltr"'),
        ('"RankSVM"', '"RankSvn"', 'did you mean "RankSVM"'),
        ('"digits"', '"digit"', 'unknown dataset "digit"; did you mean "digits"'),
        ('["ltr"]', '["lrt"]', "unknown part of digits"),
        ("grid = { C = [0.1, 1.0] }", "grid = { c = [0.1] }", 'did you mean "C"'),
        ("grid = { C = [0.1, 1.0] }", 'grid = { C = ["x"] }', "C = 'x' cannot be used"),
        ("grid = { C = [0.1, 1.0] }", "grid = { C = [] }", "the grid of C is empty"),
        ("grid = { C = [0.1, 1.0] }", "grid = { C = [nan] }", "C is not a finite number"),
        ('winners_of = "N20"', 'winners_of = "N200"', 'did you mean "N20"'),
        ('label = "N40"', 'label = "N20"', "two rows"),
        ('[problems.selection]\nmetric = "map"', "", "has a grid but problem"),
        (
            '[problems.selection]\nmetric = "map"',
            '[problems.selection]\nmetric = "mpa"',
            'unknown selection metric of search "mpa"; did you mean "map"',
        ),
        ("version = 1", "version = 2", "version"),
        ('name = "small"', 'name = "a b"', "name"),
        ("[[problems]]", "[[problems]", "not valid TOML"),
    ],
)
def test_a_mistake_is_named_with_its_remedy(old: str, new: str, says: str) -> None:
    assert old in TEXT
    with pytest.raises(InputError) as caught:
        parse_suite(TEXT.replace(old, new, 1), path="small.toml")
    assert says.lower() in str(caught.value).lower()
    assert caught.value.exit_status == 2


def test_circles_are_refused() -> None:
    text = TEXT.replace(
        'label = "N20"\nparams = { n_components = 20 }\ngrid = { C = [0.1, 1.0], gamma = [0.1, 0.5, 1.0] }',
        'label = "N20"\nparams = { n_components = 20 }\nwinners_of = "N40"',
    )
    with pytest.raises(InputError, match="circle"):
        parse_suite(text)


def test_unknown_suites_and_files(tmp_path: Path) -> None:
    with pytest.raises(InputError, match='unknown suite "quikstart"; did you mean "quickstart"'):
        load_suite("quikstart")
    with pytest.raises(InputError, match="no such suite file"):
        load_suite(tmp_path / "none.toml")
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="cannot be read"):
        load_suite(tmp_path / "binary.toml")


def test_overrides() -> None:
    suite = parse_suite(TEXT)
    changed = with_overrides(suite, settings={"C": 5.0, "seed": 3, "repetitions": 2})
    assert changed.seed == 3
    assert changed.problems[0].repetitions == 2
    assert changed.problems[0].methods[0].params == {"C": 5.0}
    assert changed.problems[0].methods[0].grid == {}
    listed = with_overrides(suite, settings={"C": [1.0, 2.0]})
    assert listed.problems[0].methods[0].grid == {"C": [1.0, 2.0]}


def test_only_keeps_rows_and_what_they_need() -> None:
    suite = parse_suite(TEXT)
    rows = [m.row for m in with_overrides(suite, only=["N40"]).problems[0].methods]
    assert rows == ["N20", "N40"]
    rows = [m.row for m in with_overrides(suite, only=["RankSVM"]).problems[0].methods]
    assert rows == ["RankSVM"]
    with pytest.raises(InputError, match='did you mean "RankSVM"'):
        with_overrides(suite, only=["RankSMV"])
    with pytest.raises(InputError, match='unknown setting "gama"; did you mean "gamma"'):
        with_overrides(suite, settings={"gama": 1.0})


def test_another_dataset_keeps_the_problems_it_fits(tmp_path, monkeypatch):
    monkeypatch.setenv("AFFINITY_DATA", str(tmp_path))
    own = load_suite("own")
    tags = with_overrides(own, dataset="lowrank-tags")
    assert [p.title for p in tags.problems] == [
        "lowrank-tags-annotation",
        "lowrank-tags-completion",
    ]
    assert {tuple(p.splits) for p in tags.problems} == {("all",)}
    images = with_overrides(own, dataset="usps/train")
    assert [(p.kind, p.dataset, p.splits) for p in images.problems] == [
        ("retrieval", "usps", ["train"]),
        ("clustering", "usps", ["train"]),
    ]
    folds = with_overrides(own, dataset="mq2007").problems[0]
    assert folds.splits == [f"fold{k}" for k in range(1, 6)]
    assert with_overrides(own, dataset="mq2007/null/fold2").problems[0].splits == ["null/fold2"]
    # What has its files comes before what has not.
    (tmp_path / "corel5k").mkdir()
    (tmp_path / "corel5k" / "corel5k_train_annot.hvecs").write_bytes(b"")
    completed = with_overrides(own, dataset="corel5k")
    assert [(p.kind, p.splits) for p in completed.problems] == [("completion", ["train"])]
    for role in ("train", "vali", "test"):
        (tmp_path / "MQ2007" / "Fold3").mkdir(parents=True, exist_ok=True)
        (tmp_path / "MQ2007" / "Fold3" / f"{role}.txt").write_bytes(b"")
    assert with_overrides(own, dataset="mq2007").problems[0].splits == ["fold3"]
    # What is tuned stays rather than what is fixed; one problem of a kind.
    quick = with_overrides(load_suite("quickstart"), dataset="coil20")
    assert [p.title for p in quick.problems] == ["coil20-retrieval", "coil20-clustering"]
    assert quick.problems[0].options["protocol"] == "tuned"


def test_published_numbers_stay_with_their_dataset():
    suite = load_suite("letor-mq2008").model_copy(deep=True)
    body = suite.model_dump()
    body["problems"][0]["published"] = "letor-mq2007"
    suite = type(suite).model_validate(body)
    assert with_overrides(suite, dataset="mq2008").problems[0].published == "letor-mq2007"
    other = with_overrides(suite, dataset="mq2007").problems[0]
    assert other.published is None and other.splits == suite.problems[0].splits


@pytest.mark.parametrize(
    ("dataset", "says"),
    [
        ("digit", 'unknown dataset "digit"; did you mean "digits"'),
        (
            "two-moons",
            r'"two-moons" \(layout matrix\) fits no problem of suite letor-mq2008 \(ltr\)',
        ),
        ("mq2007/fold9", 'unknown split of mq2007 "fold9"; did you mean "fold'),
    ],
)
def test_a_dataset_that_fits_nothing_is_refused(dataset, says):
    with pytest.raises(InputError, match=says):
        with_overrides(load_suite("letor-mq2008"), dataset=dataset)


def test_only_keeps_what_is_taken_over_from_other_problems() -> None:
    suite = load_suite("clustering-carried")

    def rows(*only: str) -> dict[str, list[str]]:
        kept = with_overrides(suite, only=list(only)).problems
        return {problem.title: [entry.row for entry in problem.methods] for problem in kept}

    assert rows("GraphSC, from coil20")["coil20"] == ["GraphSC"]
    kept = rows("digits")
    assert list(kept) == ["coil20", "digits"]
    assert len(kept["digits"]) == 12
    assert kept["coil20"] == ["GraphSCAN", "GraphSC", "LogSC", "SparseCoding", "Spectral"]
