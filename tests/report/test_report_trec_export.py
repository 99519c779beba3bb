"""Rankings exported for other people's tools mean there what they mean here."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from pipeline_lib.artifacts import ArtifactStore
from pipeline_lib.errors import InputError
from pipeline_lib.execution import thread_executor
from pipeline_lib.home import Home
from pipeline_lib.report.trec_export import export_trec
from pipeline_lib.results import RunRecord
from pipeline_lib.runner import Run
from pipeline_lib.suites import parse_suite

SUITE = """
version = 1
name = "small"
title = "Small"

[[problems]]
name = "search"
kind = "ltr"
dataset = "digits"
splits = ["ltr"]
headline = "map"
[[problems.methods]]
name = "RankSVM"
params = { C = 0.01 }

[[problems]]
name = "moons"
kind = "retrieval"
dataset = "two-moons"
splits = ["all"]
headline = "p_at_10"
[problems.options]
cutoffs = [10]
queries = 20
[[problems.methods]]
name = "Euclidean"
label = "by distance / plain"
"""


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunRecord, ArtifactStore]:
    home = Home(tmp_path_factory.mktemp("home"))
    with thread_executor(1) as executor:
        record = Run(parse_suite(SUITE), home, executor, track=False).execute()
    assert record.status == "finished"
    return record, ArtifactStore(home.store)


def read(path: Path) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        fields = line.split()
        query, document = fields[0], fields[2]
        found.setdefault(query, {})[document] = float(fields[3 if len(fields) == 4 else 4])
    return found


def test_trec_eval_finds_our_numbers(
    finished: tuple[RunRecord, ArtifactStore], tmp_path: Path
) -> None:
    pytrec_eval = pytest.importorskip("pytrec_eval")
    record, store = finished
    written = export_trec(record, store, tmp_path)
    names = [str(path.relative_to(tmp_path)) for path in written]
    assert sorted(names) == [
        "moons/all/by-distance-plain.run",
        "moons/all/qrels.txt",
        "search/ltr/RankSVM.run",
        "search/ltr/qrels.txt",
    ]
    for folder, run, theirs, ours, item in (
        ("search/ltr", "RankSVM", "map", "map", "qid"),
        ("moons/all", "by-distance-plain", "P_10", "p_at_10", "query"),
    ):
        judged = read(tmp_path / folder / "qrels.txt")
        qrels = {q: {d: int(v) for d, v in of.items()} for q, of in judged.items()}
        evaluator = pytrec_eval.RelevanceEvaluator(qrels, {"map", "P.10"})
        measured = evaluator.evaluate(read(tmp_path / folder / f"{run}.run"))
        per_item = record.per_item[folder.partition("/")[0]].filter(
            pl.col("definition").is_in(["letor4", "default"])
        )
        expected = dict(per_item.select(item, ours).iter_rows())
        assert measured.keys() == expected.keys()
        for query, value in expected.items():
            assert measured[query][theirs] == pytest.approx(value, abs=1e-9), query


def test_a_run_without_rankings_says_so(finished: tuple[RunRecord, ArtifactStore]) -> None:
    record, store = finished
    empty = RunRecord(record.id, record.folder, record.suite, record.status)
    with pytest.raises(InputError, match="no rankings"):
        export_trec(empty, store, Path("nowhere"))
