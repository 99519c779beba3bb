"""Clustering of real images: the marks that the coding methods must pass on all 20 COIL20 objects."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.io import loadmat

from pipeline_lib.clustering.graph_sparse_coding import GraphSC
from pipeline_lib.clustering.graphscan import GraphSCAN
from pipeline_lib.clustering.labels import RepresentationClustering
from pipeline_lib.features.pca import PCA
from pipeline_lib.metrics.clustering import nmi

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
]


@pytest.fixture(scope="module")
def images(real_data: Path) -> tuple[NDArray[np.float64], NDArray[Any]]:
    path = real_data / "coil20" / "COIL20.mat"
    if not path.exists():
        pytest.skip("the real files have no coil20/COIL20.mat")
    content = loadmat(path)
    return PCA(175, unit_norm="after").fit_transform(content["X"]), content["Y"].ravel()


@pytest.mark.parametrize(
    ("coder", "least"),
    [
        (None, 0.70),
        (GraphSC(beta=0.05, lam=3.0), 0.86),
        (GraphSCAN(beta=0.01, lam=30.0), 0.90),
    ],
)
def test_normalized_mutual_information(images: Any, coder: Any, least: float) -> None:
    X, y = images
    if coder is not None:
        coder.set_params(max_iter=15, code_tol=1e-6, random_state=0)
    labels = RepresentationClustering(coder, n_clusters=20, random_state=0).fit_predict(X)
    assert nmi(y, labels) >= least
