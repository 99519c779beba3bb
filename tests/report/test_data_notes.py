"""What a run accepted of its data stands in everything it shows."""

from __future__ import annotations

import numpy as np
import scipy.io

from flows.compare import CompareCommand, compare_command
from flows.prefect_artifacts import links
from flows.terminal import print_results
from pipeline_lib.execution import thread_executor
from pipeline_lib.home import Home
from pipeline_lib.report.page import render
from pipeline_lib.results import data_notes
from pipeline_lib.runner import Run
from pipeline_lib.suites import parse_suite

SUITE = """
version = 1
name = "faces"
title = "Faces"
[[problems]]
kind = "retrieval"
dataset = "yale"
splits = ["all"]
headline = "map"
[problems.options]
cutoffs = [2]
[[problems.methods]]
name = "Euclidean"
[[problems.methods]]
name = "ManifoldRanking"
params = { damping = 0.9, graph = "union", n_neighbors = 3 }
"""


def test_an_allowed_mismatch_is_told_everywhere(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("AFFINITY_DATA", str(tmp_path))
    (tmp_path / "yale").mkdir()
    y = np.repeat(np.arange(1, 16), 4)
    X = np.random.default_rng(0).integers(0, 99, (60, 1024)) + 9 * y[:, None]
    scipy.io.savemat(
        tmp_path / "yale" / "Yale_32x32.mat", {"fea": X.astype(np.uint8), "gnd": y[:, None]}
    )
    home = Home(tmp_path / "home")
    with thread_executor(1) as executor:
        run = Run(parse_suite(SUITE), home, executor, workers=1, allow_mismatch=True, track=False)
        record = run.execute()
    note = "yale/all: rows: 60 found, 165 declared (accepted with --allow-mismatch)"
    assert note in data_notes(record.manifest["data"])
    assert note in render(record)
    print_results(record)
    assert note in capsys.readouterr().out
    assert note in links(record)
    for output, mark in (("markdown", "data: "), ("latex", "% data: "), ("html", "data: ")):
        compare_command(CompareCommand((record.id,), output=output, home=home.root))
        assert mark + note in capsys.readouterr().out
    compare_command(CompareCommand((record.id,), output="csv", home=home.root))
    assert note in capsys.readouterr().err


def test_variants_with_their_note_doubts_and_repaired_values():
    data = {
        "mq2008/fold1/vali": {"info": {"variant": "first-1000", "variant_note": "only the first"}},
        "mq2007/fold1/vali": {
            "info": {"variant": "official", "unconfirmed": ["rows: 1 found, 2 declared"]}
        },
        "corel5k/all": {
            "info": {"findings": {"a.hvecs: dictionary": "d.txt is not there: words are numbered"}}
        },
        "nuswide/train": {
            "info": {"findings": {"stray_values_read_as_0": ["line 5, column 3: 7"]}}
        },
        "orl/all": {"info": {"variant": "official", "findings": {"image": {"height": 32}}}},
    }
    assert data_notes(data) == [
        "mq2008/fold1/vali: the declared variant “first-1000”, not the official release: "
        "only the first",
        "mq2007/fold1/vali: rows: 1 found, 2 declared; the declared number is not confirmed",
        "corel5k/all: a.hvecs: dictionary: d.txt is not there: words are numbered",
        "nuswide/train: stray values read as 0: line 5, column 3: 7",
    ]
    assert data_notes(data, "orl") == []
