"""A weight of the trace norm for tags that nobody has tuned for."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from pipeline_lib.completion.sampling import cross_validate
from pipeline_lib.completion.tcmr import TCMR

# In units of the root of the number of images, with which singular values of noise grow.
_SHARES = (0.02, 0.045, 0.1)
_USUAL_SHARE = 0.045
_MOST_IMAGES = 3_000
_LEAST_IMAGES = 20
_FOLDS = 2


def choose_weight(D: sparse.csr_array, seed: int = 0) -> float:
    """Choose ``lam`` of TCMR0 by cross-validation on the observed tags.

    Parameters
    ----------
    D : csr_array of shape (n, m)
        Observed tags.
    seed : int, default=0
        Draws the images and the tags hidden for validation.

    Returns
    -------
    float
        The best of .02, .045 and .1 times the root of n, compared on at most 3,000 images; the
        middle one where fewer than 20 images have two tags to validate on.
    """
    able = np.flatnonzero(np.diff(D.indptr) >= 2)
    share = _USUAL_SHARE
    if len(able) >= _LEAST_IMAGES:
        rng = np.random.default_rng(seed)
        images = np.sort(rng.permutation(D.shape[0])[:_MOST_IMAGES])
        part = D[images]
        # Tags that no drawn image has cannot be told apart.
        seen = np.flatnonzero(part.sum(axis=0))
        tags = part[:, seen].toarray()
        if (tags.sum(axis=1) >= 2).sum() >= _LEAST_IMAGES:
            scale = float(np.sqrt(len(images)))
            grid = [{"lam": share * scale} for share in _SHARES]
            best, _ = cross_validate(_quick, grid, tags, n_folds=_FOLDS, seed=seed)
            share = best["lam"] / scale
    return share * float(np.sqrt(D.shape[0]))


def _quick(lam: float) -> TCMR:
    return TCMR(lam, tol=1e-5)
