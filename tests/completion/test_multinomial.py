"""Low-rank multinomials: the proximal operator, the minimum, and what the theory says of it."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline_lib.completion.latent_dirichlet import LatentDirichlet
from pipeline_lib.completion.multinomial import (
    MaximumLikelihood,
    MultinomialRecovery,
    prox_likelihood_on_simplex,
)
from pipeline_lib.completion.plsa import ProbabilisticLSA
from pipeline_lib.completion.sampling import hold_out_draw
from pipeline_lib.datasets.generators import draw_tags, low_rank_probabilities
from pipeline_lib.errors import InputError
from pipeline_lib.graphs.simplex import project_simplex
from pipeline_lib.metrics.recovery import held_out_likelihood, recovery_metrics


@pytest.mark.parametrize("scale", [1e-6, 1e-2, 1.0, 1e3])
def test_proximal_operator_meets_its_optimality_conditions(scale: float) -> None:
    random = np.random.default_rng(0)
    V = random.normal(0.0, 2.0, (40, 9))
    weights = scale * random.random(V.shape) * (random.random(V.shape) < 0.4)
    q = prox_likelihood_on_simplex(V, weights)
    assert np.allclose(q.sum(axis=1), 1.0)
    assert (q >= 0.0).all() and (q[weights > 0] > 0.0).all()
    # One multiplier a row: q - v - w / q is equal where q > 0 and not smaller where q = 0.
    slope = q - V - np.divide(weights, q, out=np.zeros_like(q), where=weights > 0)
    for row, at in zip(slope, q > 1e-9, strict=True):
        level = np.median(row[at])
        assert np.allclose(row[at], level, atol=1e-6 * max(1.0, scale))
        assert (row[~at] >= level - 1e-6 * max(1.0, scale)).all()


def test_without_weights_it_is_the_projection() -> None:
    V = np.random.default_rng(1).normal(size=(20, 7))
    assert np.allclose(prox_likelihood_on_simplex(V, np.zeros_like(V)), project_simplex(V))


def test_no_feasible_direction_leads_down_from_the_minimum() -> None:
    P, _ = low_rank_probabilities(30, 8, 2, seed=2)
    C = draw_tags(P, 6, replace=True, seed=2)
    lam = 2.0
    model = MultinomialRecovery(lam, tol=1e-12, max_iter=20_000).fit(C)

    def objective(Q: np.ndarray) -> float:
        drawn = C > 0
        return -float((C[drawn] / 6 * np.log(Q[drawn])).sum()) + lam * np.linalg.norm(Q, "nuc")

    assert model.converged_
    assert model.objective_ == pytest.approx(objective(model.scores_), rel=1e-9)
    assert np.all(np.diff(model.history_["objective"]) <= 0.0)
    random = np.random.default_rng(3)
    for share in (1e-3, 1e-2, 0.2):
        for _ in range(20):
            other = random.dirichlet(np.ones(8), 30)
            moved = objective((1.0 - share) * model.scores_ + share * other)
            assert moved >= model.objective_ - 1e-6 * abs(model.objective_)


def test_weight_goes_from_each_image_alone_to_all_alike() -> None:
    P, _ = low_rank_probabilities(60, 10, 2, seed=4)
    C = draw_tags(P, 5, replace=True, seed=4)
    alone = MaximumLikelihood().fit(C).scores_
    assert np.allclose(alone, C / 5)
    assert np.abs(MultinomialRecovery(1e-3).fit(C).scores_ - alone).max() < 1e-2
    # Rows on the simplex that are all alike have the least trace norm there is for their length.
    pooled = MultinomialRecovery(1e4, max_iter=20_000).fit(C).scores_
    assert np.abs(pooled - pooled.mean(axis=0)).max() < 2e-2


def test_low_rank_recovers_better_than_each_image_alone() -> None:
    P, _ = low_rank_probabilities(300, 40, 3, seed=5)
    errors = []
    for draws in (5, 40):
        C = draw_tags(P, draws, replace=True, seed=5)
        low = recovery_metrics(MultinomialRecovery(20.0).fit(C).scores_, P).means["overlap"]
        alone = recovery_metrics(MaximumLikelihood().fit(C).scores_, P).means["overlap"]
        assert low > alone + 0.1
        errors.append(2.0 * (1.0 - low))
    assert errors[1] < errors[0]


def test_counts_are_repeated_draws() -> None:
    D = np.random.default_rng(6).integers(0, 3, (30, 12))
    once = ProbabilisticLSA(3, random_state=0).fit(D)
    doubled = ProbabilisticLSA(3, random_state=0).fit(2 * D)
    assert np.allclose(once.scores_, doubled.scores_)
    assert doubled.objective_ == pytest.approx(2.0 * once.objective_)
    assert LatentDirichlet(3, random_state=0).fit(D).scores_.shape == D.shape
    with pytest.raises(InputError, match="whole numbers"):
        MaximumLikelihood().fit(D - 1)


def test_a_held_out_draw_is_one_of_the_image() -> None:
    C = np.array([[2, 0, 1], [1, 0, 0], [0, 0, 0], [0, 4, 0]])
    taken = np.array([C - hold_out_draw(C, seed) for seed in range(300)])
    assert (taken.sum(axis=2) == [1, 0, 0, 1]).all()
    assert (taken <= C).all()
    assert taken[:, 0].mean(axis=0) == pytest.approx([2 / 3, 0.0, 1 / 3], abs=0.09)


def test_metrics_of_recovery() -> None:
    P = np.array([[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]])
    Q = np.array([[0.5, 0.5, 0.0], [0.0, 0.25, 0.75]])
    assert recovery_metrics(Q, P).per_item["overlap"].to_list() == [1.0, 0.0]
    found = held_out_likelihood(Q, [[2, 1, 0], [1, 0, 0]]).per_item["log_likelihood"].to_list()
    assert found == pytest.approx([np.log(0.5), np.log(0.1 / 3)])
    empty = held_out_likelihood(Q, [[2, 1, 0], [0, 0, 0]])
    assert empty.per_item["log_likelihood"].to_list()[1] is None
    with pytest.raises(InputError):
        recovery_metrics(Q, P[:1])
