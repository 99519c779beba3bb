"""Published and measured numbers on the ORL faces (needs the data)."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from scipy.io import loadmat

from pipeline_lib.metrics.retrieval import retrieval_metrics
from pipeline_lib.retrieval.adaptive_neighbors import RankingAdaptiveNeighbors
from pipeline_lib.retrieval.base import scores_of_order
from pipeline_lib.retrieval.euclidean import EuclideanRanking
from pipeline_lib.retrieval.locally_scaled import LocallyScaledAdaptiveNeighbors
from pipeline_lib.retrieval.manifold_ranking import ManifoldRanking
from pipeline_lib.retrieval.personalized_pagerank import PersonalizedPageRank
from pipeline_lib.retrieval.self_diffusion import SelfDiffusion

PATH = Path(os.environ.get("AFFINITY_DATA", "../shared/data"), "orl", "ORL_32x32.mat")
pytestmark = pytest.mark.skipif(not PATH.exists(), reason="ORL_32x32.mat is not in AFFINITY_DATA")


def precision_and_recall(model, queries):
    data = loadmat(PATH)
    X, y = data["fea"] / 255.0, data["gnd"].ravel()
    scores = scores_of_order(model.fit(X).order(queries))
    means = retrieval_metrics(scores, y, queries, 15).means
    return 100 * means["p_at_15"], 100 * means["recall_at_15"]


def test_euclidean():
    precision, recall = precision_and_recall(EuclideanRanking(), range(400))
    assert precision == pytest.approx(41.77, abs=0.05)
    assert recall == pytest.approx(62.65, abs=0.05)


@pytest.mark.parametrize(
    ("model", "printed"),
    [
        (SelfDiffusion(5, sigma=20.0), 46.95),
        (PersonalizedPageRank(0.85, sigma=20.0), 46.68),
        (ManifoldRanking(0.85, sigma=20.0), 47.32),
    ],
    ids=lambda value: type(value).__name__,
)
def test_paper_settings(model, printed):
    assert precision_and_recall(model, range(400))[0] == pytest.approx(printed, abs=0.5)


def test_local_scale_helps():
    queries = np.arange(0, 400, 8)
    plain = precision_and_recall(RankingAdaptiveNeighbors(7, 1.0), queries)[0]
    scaled = precision_and_recall(LocallyScaledAdaptiveNeighbors(), queries)[0]
    assert plain > 46.0
    assert scaled > plain + 0.5
