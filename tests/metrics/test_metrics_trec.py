import numpy as np
import pytest

from pipeline_lib.errors import InputError
from pipeline_lib.metrics.ranking import RankingDefinition, ranking_metrics
from pipeline_lib.metrics.trec import write_qrels, write_trec_run


def test_lines_by_hand(tmp_path):
    qid, docids = [7, 3, 7, 7], ["d1", "d2", "d3", "d2"]
    write_trec_run(tmp_path / "run", qid, docids, [0.5, -1e-7, 2.0, 0.5], "svm")
    assert (tmp_path / "run").read_text() == (
        "7 Q0 d3 1 2.0 svm\n7 Q0 d1 2 0.5 svm\n7 Q0 d2 3 0.5 svm\n3 Q0 d2 1 -1e-07 svm\n"
    )
    write_qrels(tmp_path / "qrels", qid, docids, np.array([0, 1, 2, 0]))
    assert (tmp_path / "qrels").read_text() == "7 0 d1 0\n7 0 d3 2\n7 0 d2 0\n3 0 d2 1\n"


def test_files_score_in_trec_eval_as_the_arrays_do_here(tmp_path):
    pytrec_eval = pytest.importorskip("pytrec_eval")
    rng = np.random.default_rng(0)
    qid = np.repeat(["q1", "q2", "q3"], [12, 5, 30])
    docids = [f"doc{i}" for i in range(len(qid))]
    labels, scores = rng.integers(0, 3, len(qid)), rng.normal(size=len(qid))
    write_trec_run(tmp_path / "run", qid, docids, scores, "ours")
    write_qrels(tmp_path / "qrels", qid, docids, labels)
    with open(tmp_path / "qrels") as qrels, open(tmp_path / "run") as run:
        theirs = pytrec_eval.RelevanceEvaluator(
            pytrec_eval.parse_qrel(qrels), {"map", "ndcg_cut.10"}
        ).evaluate(pytrec_eval.parse_run(run))
    ours = ranking_metrics(scores, labels, qid, RankingDefinition(gain="linear")).per_item
    for row in ours.iter_rows(named=True):
        assert row["map"] == pytest.approx(theirs[row["qid"]]["map"], abs=1e-12)
        assert row["ndcg_at_10"] == pytest.approx(theirs[row["qid"]]["ndcg_cut_10"], abs=1e-12)


def test_scores_read_back_exactly(tmp_path):
    scores = np.random.default_rng(1).normal(size=50) * 10.0 ** np.arange(-25, 25)
    write_trec_run(tmp_path / "run", np.zeros(50, int), [f"d{i}" for i in range(50)], scores, "t")
    read = {
        fields[2]: float(fields[4])
        for fields in map(str.split, (tmp_path / "run").read_text().splitlines())
    }
    assert [read[f"d{i}"] for i in range(50)] == scores.tolist()


def test_refuses_what_the_formats_cannot_hold(tmp_path):
    path = tmp_path / "out"
    with pytest.raises(InputError, match="document 'd' is listed twice for query 1"):
        write_qrels(path, [1, 1], ["d", "d"], [0, 1])
    with pytest.raises(InputError, match="white space"):
        write_qrels(path, [1, 1], ["d 1", "d2"], [0, 1])
    with pytest.raises(InputError, match="white space"):
        write_trec_run(path, [1], ["d"], [0.1], "my run")
    with pytest.raises(InputError, match="white space"):
        write_trec_run(path, [1], [""], [0.1], "run")
    with pytest.raises(InputError, match="whole numbers"):
        write_qrels(path, [1], ["d"], [0.5])
    with pytest.raises(InputError, match="score nan"):
        write_trec_run(path, [1], ["d"], [np.nan], "run")
    with pytest.raises(InputError, match="docids has shape"):
        write_trec_run(path, [1, 1], ["d"], [1.0, 2.0], "run")
    assert not path.exists()
