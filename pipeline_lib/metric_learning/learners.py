"""Metric learners by name, for settings that come from files."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from pipeline_lib.errors import InputError
from pipeline_lib.seeds import RandomState
from pipeline_lib.suggest import unknown_name

_CLASSES = {
    "rca": "rca:RCA",
    "prca": "rca:PRCA",
    "dca": "dca:DCA",
    "lfda": "lfda:LFDA",
    "lmnn": "lmnn:LMNN",
    "itml": "itml:ITML",
    "ldml": "ldml:LDML",
    "kernel-pca": "kernel_pca:KernelPCA",
    "nca": "nca:NCA",
}

LEARNERS: tuple[str, ...] = tuple(_CLASSES)
"""Names `make_learner` knows."""


def make_learner(
    name: str, params: Mapping[str, Any] | None = None, random_state: RandomState = None
) -> Any:
    """An unfitted metric learner.

    Parameters
    ----------
    name : str
        One of `LEARNERS`.
    params : mapping, optional
        Its constructor's arguments.
    random_state : int, Generator, RandomState or None
        Given to learners that draw, unless ``params`` has its own.

    Raises
    ------
    InputError
        For an unknown learner or parameter.
    """
    if name not in _CLASSES:
        raise unknown_name("metric learner", name, LEARNERS)
    module, _, cls = _CLASSES[name].partition(":")
    learner = getattr(importlib.import_module(f"pipeline_lib.metric_learning.{module}"), cls)()
    known = learner.get_params()
    given = dict(params or {})
    for parameter in given:
        if parameter not in known:
            raise InputError(
                f"{name} has no parameter {parameter!r}", expected="one of " + ", ".join(known)
            )
    if "random_state" in known:
        given.setdefault("random_state", random_state)
    return learner.set_params(**given)
