"""What every registered method must declare."""

from __future__ import annotations

import inspect

import pytest
from sklearn.base import clone

from pipeline_lib import registry

SPECS = [
    pytest.param(spec, id=f"{spec.kind}-{spec.name}")
    for spec in registry.methods()
    if spec.skip() is None
]


@pytest.mark.parametrize("spec", SPECS)
def test_the_declaration_is_complete(spec: registry.MethodSpec) -> None:
    assert spec.summary.endswith(".")
    assert len(spec.source) > 10
    for name, values in spec.test_grid.items():
        assert values
        for value in values:
            spec.check({name: value})
    spec.check(dict(spec.defaults))


@pytest.mark.parametrize("spec", SPECS)
def test_the_estimator_follows_the_conventions(spec: registry.MethodSpec) -> None:
    cls = spec.load()
    assert inspect.getdoc(cls)
    # Parameters of a map that the estimator takes whole are not the estimator's own.
    own = inspect.signature(cls).parameters
    required = {
        name: spec.test_grid[name][0]
        for name, p in spec.parameters().items()
        if p.required and name in own
    }
    estimator = cls(**{**required, **spec.defaults})
    assert clone(estimator).get_params().keys() == estimator.get_params().keys()


@pytest.mark.parametrize("spec", SPECS)
def test_map_parameters_exist(spec: registry.MethodSpec) -> None:
    if spec.feature_map is None:
        assert spec.map_parameters == ()
        return
    known = inspect.signature(spec.load_feature_map()).parameters
    assert set(spec.map_parameters) <= set(known)
    assert set(spec.map_parameters) <= set(spec.parameters())
