"""The registry: every method and problem kind by name, read by the command line, suites and tests.

Each problem folder lists its methods in ``methods.py`` as `MethodSpec` values with import paths, so that
listing them imports no method. Packages outside add theirs through the entry-point group
``affinity_bench.methods``: an entry point names an iterable of `MethodSpec`.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import inspect
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from pydantic import ConfigDict, TypeAdapter, ValidationError

from pipeline_lib.errors import InputError
from pipeline_lib.suggest import unknown_name

ENTRY_POINTS = "affinity_bench.methods"

_KINDS = {
    "ltr": "pipeline_lib.ltr.protocol:LearningToRank",
    "annotation": "pipeline_lib.annotation.protocol:Annotation",
    "clustering": "pipeline_lib.clustering.protocol:Clustering",
    "completion": "pipeline_lib.completion.protocol:Completion",
    "retrieval": "pipeline_lib.retrieval.protocol:Retrieval",
}
_METHOD_LISTS = (
    "pipeline_lib.ltr.methods:METHODS",
    "pipeline_lib.annotation.methods:METHODS",
    "pipeline_lib.clustering.methods:METHODS",
    "pipeline_lib.completion.methods:METHODS",
    "pipeline_lib.retrieval.methods:METHODS",
)


@dataclass(frozen=True)
class Parameter:
    """One typed parameter of a method."""

    name: str
    annotation: Any
    default: Any
    required: bool


@dataclass(frozen=True)
class MethodSpec:
    """What the pipeline knows of a method.

    Attributes
    ----------
    name : str
        Name in suites, tables and reports.
    kind : str
        Problem kind.
    target : str
        ``module:Class`` of the public estimator.
    summary : str
        One sentence on what it does.
    source : str
        Paper that defines it.
    test_grid : mapping
        A tiny grid for the conformance tests.
    feature_map : str, optional
        ``module:Class`` of the feature map fitted in the features stage.
    map_parameters : tuple of str
        Parameters that belong to the feature map; a path has one value of each.
    solver : str, optional
        ``module:Class`` fitted on the mapped features; by default ``target``.
    defaults : mapping
        Parameters of ``target`` (or ``solver``) that this entry fixes.
    requires : tuple of str
        Optional packages it imports.
    extra : str, optional
        The extra of this project that brings them.
    stochastic : bool
        Whether repetitions differ.
    applies : callable, optional
        Given a mapping of problem facts, returns a reason why it does not apply, or None.
    """

    name: str
    kind: str
    target: str
    summary: str
    source: str
    test_grid: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    feature_map: str | None = None
    map_parameters: tuple[str, ...] = ()
    solver: str | None = None
    defaults: Mapping[str, Any] = field(default_factory=dict)
    requires: tuple[str, ...] = ()
    extra: str | None = None
    stochastic: bool = False
    applies: Callable[[Mapping[str, Any]], str | None] | None = None

    @property
    def module(self) -> str:
        """Module of the public estimator."""
        return self.target.partition(":")[0]

    @property
    def modules(self) -> tuple[str, ...]:
        """Modules whose code a fit runs."""
        return tuple(sorted({(self.solver or self.target).partition(":")[0], self.module}))

    def load(self) -> Any:
        """Import the public estimator's class."""
        return load_object(self.target)

    def load_solver(self) -> Any:
        """Import the class fitted on mapped features."""
        return load_object(self.solver or self.target)

    def load_feature_map(self) -> Any:
        """Import the feature map's class, if the method has one."""
        return None if self.feature_map is None else load_object(self.feature_map)

    def parameters(self) -> dict[str, Parameter]:
        """Typed parameters with their defaults, from the estimator's constructor.

        Parameters of the feature map that the estimator does not have itself, because it takes a
        whole map, come from the map's constructor.
        """
        found = _constructor_parameters(self.load())
        if set(self.map_parameters) - set(found):
            of_map = _constructor_parameters(self.load_feature_map())
            found |= {
                n: p for n, p in of_map.items() if n in self.map_parameters and n not in found
            }
        return found

    def check(self, params: Mapping[str, Any], *, path: Any = None) -> None:
        """Check parameter names and types.

        Raises
        ------
        InputError
            Naming the parameter, what it must be, and the closest name when it is unknown.
        """
        known = self.parameters()
        for name, value in params.items():
            if name not in known or name in ("random_state", "feature_map"):
                raise unknown_name(
                    f"parameter of {self.name}",
                    name,
                    set(known) - {"random_state", "feature_map"},
                    path=path,
                )
            adapter: TypeAdapter[Any] = TypeAdapter(
                known[name].annotation, config=ConfigDict(arbitrary_types_allowed=True)
            )
            try:
                adapter.validate_python(self.plain({name: value})[name])
            except ValidationError as error:
                raise InputError(
                    f"{self.name}: {name} = {value!r} cannot be used",
                    path=path,
                    expected=error.errors()[0]["msg"].removeprefix("Input should be ").lower(),
                ) from None

    def plain(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Parameters as the constructor takes them: TOML has no null, ``"none"`` stands for it."""
        known = self.parameters()
        return {
            name: None
            if value == "none" and type(None) in typing.get_args(known[name].annotation)
            else value
            for name, value in params.items()
        }

    def skip(self, problem: Mapping[str, Any] | None = None) -> str | None:
        """Say why the method cannot be used here, or return None."""
        missing = [name for name in self.requires if importlib.util.find_spec(name) is None]
        if missing:
            bring = f'pip install "affinity-bench[{self.extra}]"' if self.extra else "install it"
            return f"the package {missing[0]} is not installed ({bring})"
        if self.applies is not None and problem is not None:
            return self.applies(problem)
        return None


def _constructor_parameters(cls: Any) -> dict[str, Parameter]:
    constructor = typing.cast(Callable[..., Any], cls.__init__)
    hints = typing.get_type_hints(constructor)
    found = {}
    for name, parameter in inspect.signature(cls).parameters.items():
        if parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
            continue
        required = parameter.default is inspect.Parameter.empty
        default = None if required else parameter.default
        found[name] = Parameter(name, hints.get(name, Any), default, required)
    return found


def load_object(target: str) -> Any:
    """Import ``module:name``."""
    module, _, name = target.partition(":")
    return getattr(importlib.import_module(module), name)


@cache
def methods() -> tuple[MethodSpec, ...]:
    """Every registered method, this project's first; kind and name together are unique.

    Raises
    ------
    InputError
        If a plug-in cannot be loaded, or takes a name that exists.
    """
    found: dict[tuple[str, str], MethodSpec] = {}
    for listing in _METHOD_LISTS:
        for spec in load_object(listing):
            _add(found, spec, listing)
    for entry in importlib.metadata.entry_points(group=ENTRY_POINTS):
        try:
            plugin = list(entry.load())
        except Exception as error:
            raise InputError(
                f'the plug-in "{entry.name}" ({entry.value}) cannot be loaded: {error}',
                remedy="mend it or uninstall its package",
            ) from error
        for spec in plugin:
            _add(found, spec, entry.value)
    return tuple(found.values())


def method(name: str, kind: str, *, path: Any = None) -> MethodSpec:
    """Look a method of a problem kind up by name, with a did-you-mean when there is none."""
    known = {spec.name: spec for spec in methods() if spec.kind == kind}
    if name not in known:
        raise unknown_name(f"{kind} method", name, known, path=path)
    return known[name]


def kinds() -> tuple[str, ...]:
    """Names of the problem kinds."""
    return tuple(_KINDS)


@cache
def kind(name: str) -> Any:
    """Return the protocol of a problem kind (a `pipeline_lib.protocol.ProblemKind`)."""
    if name not in _KINDS:
        raise unknown_name("problem kind", name, _KINDS)
    return load_object(_KINDS[name])()


def _add(found: dict[tuple[str, str], MethodSpec], spec: MethodSpec, listing: str) -> None:
    if spec.kind not in _KINDS:
        raise unknown_name(f"problem kind of {spec.name}", spec.kind, _KINDS)
    if (spec.kind, spec.name) in found:
        raise InputError(f'the {spec.kind} method name "{spec.name}" of {listing} is taken already')
    found[spec.kind, spec.name] = spec
