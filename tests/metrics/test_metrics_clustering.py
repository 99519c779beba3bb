import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline_lib.errors import InputError
from pipeline_lib.metrics.clustering import ari, clustering_accuracy, nmi

# fmt: off
TRUTH = [2, 1, 0, 0, 3, 0, 1, 2, 3, 0, 2, 3, 0, 1, 3, 3, 2, 3, 2, 2,
         1, 0, 2, 2, 0, 1, 2, 1, 3, 1, 0, 3, 0, 0, 1, 0, 2, 2, 1, 0]
PREDICTED = [2, 2, 3, 4, 3, 4, 0, 4, 1, 4, 3, 3, 0, 0, 4, 1, 3, 4, 2, 4,
             2, 0, 0, 2, 0, 4, 3, 0, 4, 4, 3, 4, 0, 2, 0, 1, 2, 2, 2, 3]
# fmt: on


def test_known_values():
    assert clustering_accuracy(TRUTH, PREDICTED) == pytest.approx(0.4, abs=1e-15)
    assert nmi(TRUTH, PREDICTED) == pytest.approx(0.20263384846420301, abs=1e-12)


def mutual_information(y, labels):
    n = len(y)
    total = 0.0
    for a in set(y):
        for b in set(labels):
            both = sum(p == a and q == b for p, q in zip(y, labels)) / n
            if both:
                total += both * np.log(both / ((y.count(a) / n) * (labels.count(b) / n)))
    return total


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=30))
def test_accuracy_is_the_best_of_all_matchings(rows):
    y, labels = map(list, zip(*rows))
    best = max(
        sum(matching[label] == truth for truth, label in rows)
        for matching in itertools.permutations(range(4))
    )
    assert clustering_accuracy(y, labels) == pytest.approx(best / len(rows))


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=2, max_size=30))
def test_nmi_follows_its_definition(rows):
    y, labels = map(list, zip(*rows))
    information = mutual_information(y, labels)
    entropies = mutual_information(y, y), mutual_information(labels, labels)
    if min(entropies) > 0:
        for name, mean in [
            ("max", max(entropies)),
            ("min", min(entropies)),
            ("geometric", np.sqrt(entropies[0] * entropies[1])),
            ("arithmetic", sum(entropies) / 2),
        ]:
            assert nmi(y, labels, name) == pytest.approx(information / mean, abs=1e-9)


def test_renaming_groups_changes_nothing():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 5, 60)
    labels = np.where(rng.random(60) < 0.7, y, rng.integers(0, 5, 60))
    renamed = np.array(["e", "d", "c", "b", "a"])[labels]
    assert clustering_accuracy(y, labels) == clustering_accuracy(y, renamed)
    assert nmi(y, labels) == pytest.approx(nmi(y, renamed))
    assert ari(y, labels) == pytest.approx(ari(y, renamed))
    for score in (clustering_accuracy, nmi, ari):
        assert score(y, np.array(list("edcba"))[y]) == pytest.approx(1.0)


def test_degenerate_partitions():
    assert clustering_accuracy([7], ["x"]) == 1.0
    assert clustering_accuracy([0, 0, 1, 1], [0, 1, 2, 3]) == 0.5
    assert nmi([0, 0, 0], [1, 1, 1]) == 1.0
    assert nmi([0, 1, 0, 1], [1, 1, 1, 1]) == 0.0


@pytest.mark.parametrize("score", [clustering_accuracy, nmi, ari])
@pytest.mark.parametrize(
    ("y", "labels", "message"),
    [
        ([], [], "y has shape"),
        ([0, 1], [0], "labels has shape"),
        ([0, 1], [0, np.nan], "NaN"),
        ([0, 1], [0, 0.5], "fractional"),
        ([[0, 1]], [0, 1], "y has shape"),
    ],
)
def test_refuses_what_is_no_pair_of_partitions(score, y, labels, message):
    with pytest.raises(InputError, match=message):
        score(y, labels)


def test_refuses_an_unknown_normalisation():
    with pytest.raises(InputError, match="unknown normalisation 'mean'"):
        nmi([0, 1], [0, 1], "mean")
