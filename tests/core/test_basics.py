"""Errors, seeds, home, registry and the environment record."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from pipeline_lib import registry
from pipeline_lib.environment import blas_threads, environment_record, set_blas_threads
from pipeline_lib.errors import InputError
from pipeline_lib.home import resolve_home
from pipeline_lib.seeds import as_generator, derive_seed


def test_an_error_is_one_sentence_with_place_and_remedy() -> None:
    error = InputError(
        "the label is negative",
        path="a.txt",
        line=3,
        column=1,
        expected="0 or more",
        remedy="mend it",
    )
    assert str(error) == "a.txt:3:1: the label is negative; expected 0 or more; mend it"
    assert isinstance(error, ValueError)
    assert error.exit_status == 2


def test_seeds_are_the_same_everywhere_and_differ_by_purpose() -> None:
    assert derive_seed(0, "mq2008", "fold1", 0) == 2992929178
    assert derive_seed(0, "a", "bc") != derive_seed(0, "ab", "c")
    assert derive_seed(0, 1) != derive_seed(0, "1")
    assert derive_seed(0, "x") != derive_seed(1, "x")


def test_generators_leave_the_global_state_alone() -> None:
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    same = [as_generator(5).random(), as_generator(np.random.default_rng(5)).random()]
    assert same[0] == same[1]
    as_generator(np.random.RandomState(1)).random()
    np.testing.assert_array_equal(before, np.random.get_state()[1])  # noqa: NPY002


def test_home_by_argument_variable_and_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert resolve_home(tmp_path / "a").root == tmp_path / "a"
    monkeypatch.setenv("AFFINITY_HOME", str(tmp_path / "b"))
    assert resolve_home().root == tmp_path / "b"
    monkeypatch.delenv("AFFINITY_HOME")
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "x" / "y").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "x" / "y")
    assert resolve_home().root == tmp_path / ".affinity"
    (tmp_path / "pyproject.toml").unlink()
    other = tmp_path / "no project"
    other.mkdir()
    monkeypatch.chdir(other)
    assert resolve_home().root.name == ".affinity"


def test_a_home_that_cannot_be_made_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="home folder cannot be made"):
        resolve_home(tmp_path / "file" / "home")


def test_the_environment_record_is_json_and_complete() -> None:
    record = environment_record()
    assert {"python", "platform", "cpus", "blas_threads", "packages", "code"} <= set(record)
    assert {"numpy", "scipy", "polars", "mlflow", "prefect"} <= set(record["packages"])
    json.dumps(record)


def test_blas_threads_are_set_for_the_process() -> None:
    set_blas_threads(1)
    assert blas_threads() == 1


def test_parameters_are_checked_by_name_and_type() -> None:
    spec = registry.method("RankNystroem", "ltr")
    spec.check({"C": 1.0, "n_components": 20})
    with pytest.raises(InputError, match='did you mean "gamma"'):
        spec.check({"gama": 1.0})
    with pytest.raises(InputError, match="n_components = 'many' cannot be used"):
        spec.check({"n_components": "many"})
    with pytest.raises(InputError, match="unknown parameter"):
        spec.check({"random_state": 0})


def test_plug_ins_load_and_clashes_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    class Entry:
        name, value = "plugin", "plugin:METHODS"

        def __init__(self, specs: list[registry.MethodSpec] | None) -> None:
            self.specs = specs

        def load(self) -> list[registry.MethodSpec]:
            if self.specs is None:
                raise ImportError("no module named numpy2")
            return self.specs

    def install(entry: Entry) -> None:
        registry.methods.cache_clear()
        monkeypatch.setattr(registry.importlib.metadata, "entry_points", lambda group: [entry])

    mine = registry.MethodSpec("Mine", "ltr", "m:M", "A method.", "a paper")
    clash = registry.MethodSpec("RankSVM", "ltr", "m:M", "A method.", "a paper")
    try:
        install(Entry([mine]))
        assert registry.method("Mine", "ltr") is mine
        install(Entry([clash]))
        with pytest.raises(InputError, match='"RankSVM" of plugin:METHODS is taken'):
            registry.methods()
        install(Entry(None))
        with pytest.raises(InputError, match=r'plug-in "plugin".*numpy2'):
            registry.methods()
    finally:
        registry.methods.cache_clear()


def test_a_missing_extra_is_a_reason_not_an_error() -> None:
    spec = registry.MethodSpec(
        "X", "ltr", "m:M", "s", "p", requires=("no_such_package",), extra="peers"
    )
    assert spec.skip() == (
        'the package no_such_package is not installed (pip install "affinity-bench[peers]")'
    )
