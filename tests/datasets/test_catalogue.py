"""The catalogue: every declaration is complete, wrong ones and unknown names get a sentence."""

from __future__ import annotations

import pytest

from pipeline_lib.datasets import catalogue
from pipeline_lib.datasets.catalogue import Expectation, dataset_spec
from pipeline_lib.datasets.readers import READERS, reader_of
from pipeline_lib.errors import InputError

NAMES = sorted(path.stem for path in catalogue.catalogue_dir().glob("*.toml"))
LETOR = {"mq2008": 46, "mq2007": 46, "ohsumed": 45, "td2004": 44, "mslr": 136}


@pytest.mark.parametrize("name", NAMES)
def test_declarations_are_complete(name):
    spec = dataset_spec(name)
    assert spec.name == name
    assert spec.title and spec.licence and spec.citation and spec.homepage
    assert spec.basis, f"{name} does not say where its numbers come from"
    assert spec.reader.format in READERS
    for part_name in spec.part_names():
        part = spec.part(part_name)
        assert part.name == part_name
        assert not part.files or part.folders
        assert len({file.name for file in part.files}) == len(part.files)
        assert part.expect != Expectation(), f"{name} {part_name} declares nothing to check"
        for variant in part.variants:
            assert variant.note and variant.expect != Expectation()
    if any(part.files for part in spec.parts):
        assert spec.sources


@pytest.mark.parametrize("name", LETOR)
def test_letor_sets_have_five_folds_of_one_width(name):
    spec = dataset_spec(name)
    folds = [f"fold{fold}/{part}" for fold in range(1, 6) for part in ("train", "vali", "test")]
    assert [part.name for part in spec.parts] == folds
    for part_name in spec.part_names():
        part = spec.part(part_name)
        assert part.options == {"base": 1, "width": LETOR[name]}
        assert part.expect.features in (None, LETOR[name])


def test_versions_share_rows_but_not_range():
    spec = dataset_spec("mq2008")
    plain, null = spec.part("fold1/train"), spec.part("null/fold1/train")
    assert (null.expect.rows, null.expect.labels) == (plain.expect.rows, plain.expect.labels)
    assert (plain.expect.maximum, null.expect.maximum) == (1, None)
    assert set(plain.folders).isdisjoint(null.folders)
    assert dataset_spec("mslr").part("30k/fold1/train").expect.rows == 2_270_296
    assert dataset_spec("mslr").part("30k/fold2/train").expect.rows is None


def test_the_first_part_is_the_default():
    assert dataset_spec("mq2008").part().name == "fold1/train"
    assert dataset_spec("digits").part().name == "all"


def test_unknown_names_get_a_suggestion():
    with pytest.raises(InputError, match='unknown dataset "mq208"; did you mean "mq2008"'):
        dataset_spec("mq208")
    with pytest.raises(InputError, match=r'unknown dataset "zzz"; known: .*digits'):
        dataset_spec("zzz")
    with pytest.raises(
        InputError, match='unknown part of mq2008 "fold1/valid"; did you mean "fold1/vali"'
    ):
        dataset_spec("mq2008").part("fold1/valid")
    with pytest.raises(InputError, match='unknown format "leter"; did you mean "letor"'):
        reader_of("leter")


COUNTS = {
    "rows": 1000,
    "queries": 69,
    "features": 46,
    "labels": {"0": 788, "1": 149, "2": 63},
    "minimum": 0.0,
    "maximum": 1.0,
}


def test_every_number_that_differs_is_named():
    expect = Expectation(rows=999, queries=69, features=45, labels={"0": 788, "3": 1}, maximum=0.5)
    assert expect.mismatches(COUNTS) == [
        "rows: 1,000 found, 999 declared",
        "features: 46 found, 45 declared",
        "rows with label 1: 149 found, 0 declared",
        "rows with label 2: 63 found, 0 declared",
        "rows with label 3: 0 found, 1 declared",
        "largest feature value: 1 found, at most 0.5 declared",
    ]
    assert Expectation(largest_label=1, minimum=0.1).mismatches(COUNTS) == [
        "largest label: 2 found, 1 declared",
        "smallest feature value: 0 found, at least 0.1 declared",
    ]
    assert Expectation().mismatches(COUNTS) == []


def test_variants_are_recognised_by_counts_or_checksum():
    vali = dataset_spec("mq2008").part("fold1/vali")
    assert vali.judge(COUNTS, ["0" * 64]) == ("first-1000", [])
    assert vali.judge({**COUNTS, "rows": 2707, "queries": 157}, []) == ("official", [])
    # Neither the official release nor a variant: compared with the official one.
    variant, mismatches = vali.judge({**COUNTS, "rows": 999}, [])
    assert (variant, mismatches[0]) == ("official", "rows: 999 found, 2,707 declared")
    train = dataset_spec("mq2008").part("fold1/train")
    sha = train.variants[0].sha256
    assert train.judge(COUNTS, [sha])[0] == "placeholder-ids"
    assert train.judge(COUNTS, [sha])[
        1
    ]  # the checksum decides what it is, the counts whether it is right


VALID = """
name = "own"
title = "t"
kind = "ltr"
licence = "l"
homepage = "https://example.org"
citation = "c"
folders = ["own"]
reader = { format = "letor" }
[[parts]]
name = "all"
files = [{ name = "all.txt" }]
"""


@pytest.fixture
def own_catalogue(tmp_path, monkeypatch):
    monkeypatch.setattr(catalogue, "catalogue_dir", lambda: tmp_path)
    return tmp_path / "own.toml"


def test_a_valid_declaration(own_catalogue):
    own_catalogue.write_text(VALID)
    assert catalogue.names() == ["own"]
    assert dataset_spec("own").part("all").folders == ("own",)


@pytest.mark.parametrize(
    "old, new, message",
    [
        ('title = "t"', "", "title: Field required"),
        ('title = "t"', 'title = "t"\ntitel = "x"', "titel: Extra inputs"),
        ('kind = "ltr"', 'kind = "ranking"', "kind: "),
        ('name = "own"', 'name = "other"', "declares the name 'other'; expected 'own'"),
        ("[[parts]]", "[[parts]", "not valid TOML"),
        ("https://", "ftp://", "homepage: "),
        ('name = "all"', 'name = "All of it"', "parts.0.name: "),
        ("[[parts]]", '[[parts]]\nname = "all"\n[[parts]]', "declares part 'all' more than once"),
    ],
)
def test_wrong_declarations(own_catalogue, old, new, message):
    own_catalogue.write_text(VALID.replace(old, new, 1))
    with pytest.raises(InputError, match=message) as caught:
        dataset_spec("own")
    assert caught.value.path == str(own_catalogue)


def test_unconfirmed_numbers_are_reported_and_not_enforced():
    part = dataset_spec("mq2007").part("fold1/vali")
    assert part.expect.unconfirmed == ("rows", "queries")
    counts = {"rows": 13_000, "queries": 339, "features": 46, "labels": {"2": 9, "3": 1}}
    assert part.judge(counts, []) == ("official", ["largest label: 3 found, 2 declared"])
    assert part.expect.doubts(counts) == ["rows: 13,000 found, 13,813 declared"]
    with pytest.raises(ValueError, match="'tags' is not declared, so it cannot be unconfirmed"):
        Expectation(rows=1, unconfirmed=("tags",))


@pytest.mark.parametrize(
    ("name", "queries", "rows"), [("mq2008", 784, 15_211), ("mq2007", 1_692, 69_623)]
)
def test_pieces_of_fold_1_add_up_to_the_collection(name, queries, rows):
    parts = [dataset_spec(name).part(f"fold1/{role}").expect for role in ("train", "vali", "test")]
    assert sum(part.queries for part in parts) == queries
    assert sum(part.rows for part in parts) == rows


def test_files_without_folders_are_refused(tmp_path):
    text = """
name = "lost"
title = "t"
kind = "matrix"
licence = "l"
[reader]
format = "image-set"
[[parts]]
name = "all"
files = [{ name = "a.mat" }]
"""
    with pytest.raises(InputError, match=r"lost\.toml: there are files, and no folders"):
        catalogue.parse_declaration(text, tmp_path / "lost.toml")
