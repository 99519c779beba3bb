import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import ndcg_score

from pipeline_lib.errors import InputError
from pipeline_lib.metrics.ranking import RankingDefinition, ranking_metrics

# Labels in ranked order and what the LETOR 4.0 tool reports: NDCG@1..10, MeanNDCG, AP.
LETOR4 = [
    (
        [2, 0, 1, 0, 0, 1],
        [1, 0.75, *[0.7840606415528585] * 3, 0.8675973885605611, 0, 0, 0, 0],
        0.8282965522031894,
        0.7222222222222222,
    ),
    (
        [0, 1, 2],
        [0, 0.25, 0.7231973151785931, 0, 0, 0, 0, 0, 0, 0],
        0.324399105059531,
        0.5833333333333333,
    ),
    ([0, 0, 0], [0] * 10, 0, 0),
    ([2], [1] + [0] * 9, 1, 1),
    (
        [0, 0, 1, 2, 1, 0, 2, 0, 0, 1, 2, 0],
        [
            0,
            0,
            0.07993748885604382,
            0.2539000667568386,
            0.2903174743636943,
            0.2781235281488997,
            *[0.3941479139182306] * 3,
            0.42683190758740386,
        ],
        0.29612727964341196,
        0.5083694083694084,
    ),
    ([1, 0], [1, 1] + [0] * 8, 1, 1),
    ([2, 2, 2, 1], [1, 1, 1, 1] + [0] * 6, 1, 1),
    (
        [2, 0, 0, 0, 0, 2, 0, 0, 2, 0, 2, 0, 2],
        [
            1,
            0.5,
            0.38009376671593426,
            0.31939394323979897,
            0.2807721888661444,
            *[0.3893896983223993] * 3,
            *[0.4779634622879169] * 2,
        ],
        0.48904659656852467,
        0.482983682983683,
    ),
]
NDCG = [f"ndcg_at_{k}" for k in range(1, 11)]
PRECISION = [f"p_at_{k}" for k in range(1, 11)]


def one_query(labels, scores=None, definition="letor4"):
    scores = -np.arange(len(labels)) if scores is None else scores
    return ranking_metrics(scores, labels, np.zeros(len(labels), int), definition).means


def naive(scores, labels, definition):
    """Every number from its definition, one query at a time, in plain loops."""
    n = len(labels)
    if definition != "standard":
        scores = [round(float(s), 6) for s in scores]
    order = sorted(range(n), key=lambda i: -scores[i])
    ranked = [int(labels[i]) for i in order]

    def discount(r):
        if definition == "standard":
            return 1 / math.log2(r + 1)
        return 1.0 if r <= 2 else 1 / math.log2(r)

    def ndcg(k):
        def dcg(values):
            return sum((2**v - 1) * discount(r) for r, v in enumerate(values[:k], start=1))

        ideal = dcg(sorted(ranked, reverse=True))
        return dcg(ranked) / ideal if ideal else 0.0

    def hits(k):
        return sum(v > 0 for v in ranked[:k])

    out = {"mean_ndcg": sum(ndcg(k) for k in range(1, n + 1)) / n}
    for k in range(1, 11):
        out[f"ndcg_at_{k}"] = 0.0 if definition == "letor4" and k > n else ndcg(k)
        out[f"p_at_{k}"] = 0.0 if definition == "letor3" and k > n else hits(k) / k
    precisions = [hits(r) / r for r in range(1, n + 1) if ranked[r - 1] > 0]
    out["map"] = sum(precisions) / len(precisions) if precisions else 0.0
    pairs = [(i, j) for i in range(n) for j in range(n) if labels[i] > labels[j]]
    right = sum((scores[i] > scores[j]) + 0.5 * (scores[i] == scores[j]) for i, j in pairs)
    out["pairwise_accuracy"] = right / len(pairs) if pairs else None
    return out


@pytest.mark.parametrize(("labels", "ndcg", "mean_ndcg", "ap"), LETOR4)
def test_letor4_tool(labels, ndcg, mean_ndcg, ap):
    means = one_query(labels)
    assert [means[name] for name in NDCG] == pytest.approx(ndcg, abs=1e-14)
    precision = [sum(v > 0 for v in labels[:k]) / k for k in range(1, 11)]
    assert [means[name] for name in PRECISION] == pytest.approx(precision, abs=1e-14)
    assert means["mean_ndcg"] == pytest.approx(mean_ndcg, abs=1e-14)
    assert means["map"] == pytest.approx(ap, abs=1e-14)


def test_definitions_differ_on_short_lists_as_documented():
    letor3, letor4, standard = (
        one_query([0, 2], definition=name) for name in ("letor3", "letor4", "standard")
    )
    assert (letor4["ndcg_at_2"], letor3["ndcg_at_2"]) == (1.0, 1.0)  # ranks 1 and 2 weigh the same
    assert standard["ndcg_at_2"] == pytest.approx(1 / math.log2(3))
    assert (letor4["ndcg_at_5"], letor3["ndcg_at_5"]) == (0.0, 1.0)
    assert standard["ndcg_at_5"] == pytest.approx(1 / math.log2(3))
    assert (letor4["p_at_4"], letor3["p_at_4"], standard["p_at_4"]) == (0.25, 0.0, 0.25)


def test_gain_and_ties_of_the_standard_definition():
    labels = [3, 2, 3, 0, 1, 2]
    linear = RankingDefinition(gain="linear")
    assert one_query(labels, definition="standard")["ndcg_at_6"] == pytest.approx(0.94881, abs=5e-6)
    assert one_query(labels, definition=linear)["ndcg_at_6"] == pytest.approx(0.96081, abs=5e-6)
    tied = [1.0, 1.0]
    assert one_query([1, 0], tied, "standard")["ndcg_at_2"] == 1.0
    assert one_query([0, 1], tied, "standard")["ndcg_at_2"] == pytest.approx(0.6309, abs=5e-5)


def test_scores_equal_to_six_decimals_are_tied_in_the_letor_definitions_only():
    scores = [0.10000001, 0.10000002]
    assert one_query([1, 0], scores, "letor4")["ndcg_at_1"] == 1.0
    assert one_query([1, 0], scores, "standard")["ndcg_at_1"] == 0.0
    assert one_query([1, 0], scores, "letor4")["pairwise_accuracy"] == 0.5
    huge = [1e300, -1e300, 3e20]
    assert one_query([2, 0, 1], huge, "letor3")["pairwise_accuracy"] == 1.0


@pytest.mark.parametrize("definition", ["letor3", "letor4", "standard"])
def test_agrees_with_plain_loops_on_scattered_queries_with_ties(definition):
    rng = np.random.default_rng(7)
    qid = rng.permutation(np.repeat(np.arange(60), rng.integers(1, 40, 60)))
    labels = rng.integers(0, 4, len(qid)) * rng.integers(0, 2, len(qid))
    labels[qid == 3] = 0
    scores = np.where(
        rng.random(len(qid)) < 0.5, rng.integers(0, 5, len(qid)), rng.random(len(qid))
    )
    result = ranking_metrics(scores, labels, qid, definition)
    assert result.per_item["qid"].to_list() == list(dict.fromkeys(qid.tolist()))
    for row in result.per_item.iter_rows(named=True):
        inside = qid == row.pop("qid")
        assert row.pop("n_documents") == inside.sum()
        assert row.pop("n_relevant") == (labels[inside] > 0).sum()
        expected = naive(scores[inside], labels[inside], definition)
        assert row.keys() == expected.keys()
        for name, value in expected.items():
            assert row[name] == (None if value is None else pytest.approx(value, abs=1e-13)), name
    for name, mean in result.means.items():
        assert mean == pytest.approx(result.per_item[name].mean(), abs=1e-13)


def test_queries_without_relevant_documents_count_as_zero_but_have_no_pairs():
    result = ranking_metrics([3, 2, 1, 0], [1, 0, 0, 0], ["a", "a", "b", "b"])
    assert result.means["map"] == 0.5
    assert result.means["mean_ndcg"] == 0.5
    assert result.per_item["pairwise_accuracy"].to_list() == [1.0, None]
    assert result.means["pairwise_accuracy"] == 1.0
    assert not {"n_documents", "n_relevant"} & result.means.keys()
    assert math.isnan(ranking_metrics([1.0], [0], [9]).means["pairwise_accuracy"])


def test_agrees_with_scikit_learn_without_ties():
    rng = np.random.default_rng(1)
    scores = rng.random((30, 25))
    labels = rng.integers(0, 5, scores.shape)
    labels[0] = 0
    qid = np.repeat(np.arange(30), 25)
    ours = ranking_metrics(scores.ravel(), labels.ravel(), qid, "standard").per_item
    linear = RankingDefinition(gain="linear")
    ours_linear = ranking_metrics(scores.ravel(), labels.ravel(), qid, linear).per_item
    for k in range(1, 11):
        for row in range(30):
            gains = 2.0 ** labels[None, row] - 1
            theirs = ndcg_score(gains, scores[None, row], k=k)
            assert ours[f"ndcg_at_{k}"][row] == pytest.approx(theirs, abs=1e-13)
            theirs = ndcg_score(labels[None, row], scores[None, row], k=k)
            assert ours_linear[f"ndcg_at_{k}"][row] == pytest.approx(theirs, abs=1e-13)


def test_agrees_with_trec_eval_without_ties():
    pytrec_eval = pytest.importorskip("pytrec_eval")
    rng = np.random.default_rng(2)
    qid = np.repeat([f"q{i}" for i in range(20)], rng.integers(1, 30, 20))
    labels = rng.integers(0, 3, len(qid))
    scores = rng.permutation(len(qid)) / 7.0
    qrels, run = {}, {}
    for row, query in enumerate(qid):
        qrels.setdefault(query, {})[f"d{row}"] = int(labels[row])
        run.setdefault(query, {})[f"d{row}"] = float(scores[row])
    cuts = "1,3,5,10"
    evaluator = pytrec_eval.RelevanceEvaluator(qrels, {"map", f"P.{cuts}", f"ndcg_cut.{cuts}"})
    theirs = evaluator.evaluate(run)
    ours = ranking_metrics(scores, labels, qid, RankingDefinition(gain="linear")).per_item
    for row in ours.iter_rows(named=True):
        their = theirs[row["qid"]]
        assert row["map"] == pytest.approx(their["map"], abs=1e-12)
        for k in (1, 3, 5, 10):
            assert row[f"p_at_{k}"] == pytest.approx(their[f"P_{k}"], abs=1e-12)
            assert row[f"ndcg_at_{k}"] == pytest.approx(their[f"ndcg_cut_{k}"], abs=1e-12)


ranked_lists = st.lists(
    st.tuples(st.integers(0, 4), st.integers(0, 4), st.integers(-50, 50)), min_size=1, max_size=80
)


@settings(max_examples=60, deadline=None)
@given(ranked_lists, st.sampled_from(["letor3", "letor4", "standard"]))
def test_perfect_and_reversed_rankings_bound_all_others(rows, definition):
    qid, labels, scores = map(np.array, zip(*rows))
    given_, best, worst = (
        ranking_metrics(values, labels, qid, definition).per_item
        for values in (scores, labels, -labels)
    )
    has_relevant = best["n_relevant"].to_numpy() > 0
    assert (best["mean_ndcg"].to_numpy() == has_relevant).all()
    assert (best["map"].to_numpy() == has_relevant).all()
    assert set(best["pairwise_accuracy"].drop_nulls()) <= {1.0}
    assert set(worst["pairwise_accuracy"].drop_nulls()) <= {0.0}
    for name in ("mean_ndcg", "map", *NDCG, *PRECISION):
        values = given_[name].to_numpy()
        assert (values <= best[name].to_numpy() + 1e-12).all()
        assert (values >= 0).all()


@settings(max_examples=60, deadline=None)
@given(ranked_lists, st.sampled_from(["letor3", "letor4", "standard"]), st.randoms())
def test_monotone_transforms_and_interleaved_queries_change_nothing(rows, definition, random):
    qid, labels, scores = map(np.array, zip(*rows))
    reference = ranking_metrics(scores, labels, qid, definition).per_item
    transformed = ranking_metrics(scores**3 + 2.0 * scores, labels, qid, definition).per_item
    assert transformed.equals(reference)
    # Any interleaving of the queries that keeps each query's own file order.
    slots = qid.tolist()
    random.shuffle(slots)
    queues = {query: iter(np.flatnonzero(qid == query)) for query in set(slots)}
    mixed = np.array([next(queues[query]) for query in slots])
    shuffled = ranking_metrics(scores[mixed], labels[mixed], qid[mixed], definition).per_item
    assert shuffled.sort("qid").equals(reference.sort("qid"))


@pytest.mark.parametrize(
    ("scores", "labels", "qid", "message"),
    [
        ([1.0, np.nan], [0, 1], [1, 1], "score nan at position 1"),
        ([1.0, np.inf], [0, 1], [1, 1], "score inf"),
        ([1.0], [0, 1], [1, 1], "y has shape"),
        ([1.0, 2.0], [0, 1], [1], "qid has shape"),
        ([1.0, 2.0], [0, -1], [1, 1], r"y\[1\] is -1"),
        ([1.0, 2.0], [0, 0.5], [1, 1], r"y\[1\] is 0.5"),
        ([1.0, 2.0], [0, np.nan], [1, 1], r"y\[1\] is NaN"),
        ([1.0, 2.0], [0, 2000], [1, 1], r"y\[1\] is 2000"),
        ([1.0, 2.0], ["0", "1"], [1, 1], "y has type"),
        ([1.0, 2.0], [0, 1], [1.0, 1.0], "qid has type"),
        ([], [], [], "empty"),
        (["a"], [0], [1], "not numbers"),
    ],
)
def test_refuses_what_it_cannot_score(scores, labels, qid, message):
    with pytest.raises(InputError, match=message):
        ranking_metrics(scores, labels, qid)


def test_refuses_an_unknown_definition():
    with pytest.raises(InputError, match=r"letor5.*letor4, letor3, standard"):
        ranking_metrics([1.0], [0], [1], "letor5")
