"""Suites: TOML files that say what to benchmark, and how they expand into paths.

A suite names problems; a problem names a dataset with its splits, the methods with their parameter
grids, the protocol's options and the rule of selection. ``flows/suites/`` holds the suites of the
papers' tables and ``quickstart``; any path to a TOML file of the same form works as well.
"""

from __future__ import annotations

import itertools
import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError, model_validator

from pipeline_lib import registry
from pipeline_lib.errors import InputError
from pipeline_lib.specs import Parameters, PathSpec, StrictModel
from pipeline_lib.suggest import unknown_name


class Selection(StrictModel):
    """How one trial is chosen among those of a method.

    Attributes
    ----------
    metric : str
        Metric whose mean decides; larger is better.
    scope : {"all", "split"}
        ``all``: one choice for all splits and repetitions, by the mean over them. ``split``: each split
        and repetition chooses for itself.
    """

    metric: str
    scope: Literal["all", "split"] = "all"


def _finite(value: Any) -> bool:
    """Whether a parameter holds no NaN or infinity, which neither JSON nor a method can take."""
    if isinstance(value, list | tuple):
        return all(map(_finite, value))
    return not isinstance(value, float) or math.isfinite(value)


class MethodEntry(StrictModel):
    """One row of a results table: a method with its parameters and grid.

    Attributes
    ----------
    name : str
        Registered name.
    label : str, optional
        Name of the row; by default the method's.
    params : dict
        Fixed parameters.
    grid : dict of lists
        Parameters to choose among; every combination is a trial. Values are walked in the order given.
    winners_of : str, optional
        Label of another row (``problem/label`` for one of another problem) whose chosen trial this row
        takes over, with ``params`` on top.
    repetitions : int, optional
        Repetitions of the random draws; by default the problem's.
    """

    name: str
    label: str = ""
    params: Parameters = {}
    grid: dict[str, list[Any]] = {}
    winners_of: str | None = None
    repetitions: int | None = Field(default=None, ge=1)

    @model_validator(mode="after")
    def _complete(self) -> MethodEntry:
        for name, values in self.grid.items():
            if not values:
                raise ValueError(f"the grid of {name} is empty")
        for name, value in {**self.params, **self.grid}.items():
            if not _finite(value):
                raise ValueError(f"the parameter {name} is not a finite number")
        if self.winners_of and self.grid:
            raise ValueError("winners_of and grid exclude each other")
        return self

    @property
    def row(self) -> str:
        """Label of the row."""
        return self.label or self.name


class Problem(StrictModel):
    """One dataset under one protocol, with the methods compared on it."""

    name: str = ""
    kind: str
    dataset: str
    splits: list[str] = Field(min_length=1)
    repetitions: int = Field(default=1, ge=1)
    headline: str
    options: Parameters = {}
    selection: Selection | None = None
    published: str | None = None
    methods: list[MethodEntry] = Field(min_length=1)

    @property
    def title(self) -> str:
        """Name of the problem within its suite."""
        return self.name or self.dataset


class Suite(StrictModel):
    """A benchmark, said completely."""

    version: Literal[1] = 1
    name: str = Field(pattern=r"^[a-z0-9][a-z0-9._-]*$")
    title: str
    summary: str = ""
    seed: int = Field(default=0, ge=0)
    problems: list[Problem] = Field(min_length=1)

    @model_validator(mode="before")
    @classmethod
    def _titled(cls, values: Any) -> Any:
        if isinstance(values, dict) and "title" not in values:
            return {**values, "title": values.get("name", "")}
        return values


@dataclass(frozen=True)
class PlannedPath:
    """A path with the place of its results: which problem and which row of its table."""

    problem: int
    label: str
    spec: PathSpec


def suite_names() -> list[str]:
    """Names of the suites that come with the project."""
    folder = resources.files("flows") / "suites"
    return sorted(
        entry.name.removesuffix(".toml")
        for entry in folder.iterdir()
        if entry.name.endswith(".toml")
    )


def load_suite(name_or_path: str | Path) -> Suite:
    """Read a suite by name or from a TOML file.

    Raises
    ------
    InputError
        If there is no such suite or file, or a key, a value, a method or a parameter in it is wrong;
        the sentence names the place and, for a misspelling, the closest known name.
    """
    given = str(name_or_path)
    if given.endswith(".toml") or "/" in given:
        path = Path(given)
        try:
            text = path.read_text(encoding="utf-8-sig")
        except FileNotFoundError:
            raise InputError("no such suite file", path=path) from None
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"the suite file cannot be read ({error})", path=path) from None
    else:
        if given not in suite_names():
            raise unknown_name("suite", given, suite_names())
        path, text = _shipped(given)
    return parse_suite(text, path=path)


def shipped_suites() -> list[Suite]:
    """The suites that come with the project, not held against the registry (which loads every method)."""
    return [_read(text, path) for path, text in map(_shipped, suite_names())]


def _shipped(name: str) -> tuple[Path, str]:
    path = Path(str(resources.files("flows") / "suites" / f"{name}.toml"))
    return path, path.read_text(encoding="utf-8")


def parse_suite(text: str, *, path: str | Path | None = None) -> Suite:
    """Read a suite from TOML text; see `load_suite`."""
    suite = _read(text, path)
    _check(suite, path)
    return suite


def _read(text: str, path: str | Path | None) -> Suite:
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"not valid TOML: {error}", path=path) from None
    try:
        return Suite.model_validate(values)
    except ValidationError as error:
        raise _suite_error(error, path) from None


def with_overrides(
    suite: Suite,
    *,
    only: Sequence[str] = (),
    dataset: str | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Suite:
    """Narrow or change a suite from the command line.

    Parameters
    ----------
    suite : Suite
    only : sequence of str
        Problem titles, method names or row labels to keep; empty keeps all.
    dataset : str, optional
        Dataset, or ``dataset/split``, to use instead of the problems' own: see `with_dataset`.
    settings : mapping, optional
        ``seed``, ``repetitions``, or parameter values (fixed for every method that has the parameter).

    Raises
    ------
    InputError
        If a name matches nothing.
    """
    body = suite.model_dump()
    for name in only:
        names = {p.title for p in suite.problems} | {
            n for p in suite.problems for m in p.methods for n in (m.name, m.row)
        }
        if name not in names:
            raise unknown_name("problem or method of this suite", name, names)
    if only:
        body["problems"] = _keep(body["problems"], set(only))
    if dataset is not None:
        body["problems"] = with_dataset(body["problems"], dataset, suite.name)
    for name, value in (settings or {}).items():
        _set(body, name, value)
    try:
        changed = Suite.model_validate(body)
    except ValidationError as error:
        raise _suite_error(error, None) from None
    _check(changed, None)
    return changed


def with_dataset(problems: list[dict[str, Any]], dataset: str, suite: str) -> list[dict[str, Any]]:
    """Put another dataset into the problems that it fits; the others are left out.

    A problem keeps its splits where the dataset has them. Else it takes the dataset's own, in the
    catalogue's order, those whose files are here before others: of a ranking every fold, of other data
    as many as before; ``name/split`` names one. Of several problems of one kind, the first that chooses
    its parameters stays. Published numbers belong to the dataset they were measured on.

    Raises
    ------
    InputError
        If the dataset or split is unknown, or fits no problem of the suite.
    """
    from pipeline_lib.datasets.catalogue import dataset_spec

    name, _, split = dataset.partition("/")
    spec = dataset_spec(name)
    parts = spec.part_names()
    groups = [part.rpartition("/")[0] for part in parts if part.endswith("/train")]
    every = list(dict.fromkeys(["official", *parts, *groups]))
    candidates = [split] if split else every
    fitting: dict[str, tuple[dict[str, Any], list[str]]] = {}
    present = set()
    for problem in problems:
        known = [c for c in candidates if _fits(problem, name, c)]
        here = [c for c in known if _is_here(problem, name, c)]
        present |= {problem["kind"]} if here else set()
        known = here or known
        wanted = [s for s in problem["splits"] if not split and _fits(problem, name, s)]
        if len(wanted) == len(problem["splits"]):
            splits = wanted
        elif problem["kind"] == "ltr":  # folds of other versions have a deeper name
            splits = [c for c in known if c.count("/") == known[0].count("/")]
        else:
            splits = known[: len(problem["splits"])]
        if not splits:
            continue
        before = fitting.get(problem["kind"])
        if before is None or (problem["selection"] and not before[0]["selection"]):
            fitting[problem["kind"]] = (problem, splits)
    if present:  # what lacks its files does not hold up the rest
        fitting = {kind: found for kind, found in fitting.items() if kind in present}
    if not fitting:
        known = [c for c in every if any(_fits(problem, name, c) for problem in problems)]
        if split and known:
            raise unknown_name(f"split of {name}", split, known)
        kinds = ", ".join(sorted({problem["kind"] for problem in problems}))
        raise InputError(
            f'"{name}" (layout {spec.kind}) fits no problem of suite {suite} ({kinds})',
            remedy="name another suite; affinity list suites shows them",
        )
    titles = {p["name"] or p["dataset"]: f"{name}-{kind}" for kind, (p, _) in fitting.items()}
    changed = []
    for kind, (problem, splits) in fitting.items():
        published = problem["published"] if problem["dataset"] == name else None
        methods = [
            {**method, "winners_of": _retitled(method["winners_of"], titles)}
            for method in problem["methods"]
        ]
        changed.append(
            {
                **problem,
                "name": f"{name}-{kind}" if len(problems) > 1 else "",
                "dataset": name,
                "splits": splits,
                "published": published,
                "methods": methods,
            }
        )
    return changed


def _fits(problem: Mapping[str, Any], dataset: str, split: str) -> bool:
    from pipeline_lib.datasets.catalogue import dataset_spec

    try:
        registry.kind(problem["kind"]).check_data(dataset, [split])
        parts = [dataset_spec(dataset).part(part) for part in _parts(problem, dataset, split)]
    except InputError:
        return False
    # A tag table without features can be completed, and is not material for annotation.
    return problem["kind"] != "annotation" or all(part.expect.features != 0 for part in parts)


def _is_here(problem: Mapping[str, Any], dataset: str, split: str) -> bool:
    from pipeline_lib.datasets.acquire import locate

    try:
        for part in _parts(problem, dataset, split):
            locate(dataset, part)
    except InputError:
        return False
    return True


def _parts(problem: Mapping[str, Any], dataset: str, split: str) -> list[str]:
    protocol = registry.kind(problem["kind"])
    options = protocol.check_options(problem["options"])
    spec = PathSpec(kind=protocol.name, dataset=dataset, split=split, method="", options=options)
    return list(protocol.parts(spec).values())


def _retitled(reference: str | None, titles: Mapping[str, str]) -> str | None:
    title, slash, label = (reference or "").partition("/")
    return f"{titles[title]}/{label}" if slash and title in titles else reference


def _keep(problems: list[dict[str, Any]], only: set[str]) -> list[dict[str, Any]]:
    """The named problems and rows, with every row that they take winners from, wherever it stands."""

    def title(problem: dict[str, Any]) -> str:
        return problem["name"] or problem["dataset"]

    def row(entry: dict[str, Any]) -> str:
        return entry["label"] or entry["name"]

    entries = {(title(p), row(m)): m for p in problems for m in p["methods"]}
    kept = [
        (place, label)
        for (place, label), entry in entries.items()
        if place in only or entry["name"] in only or label in only
    ]
    for place, label in kept:  # grows on the way
        winner = entries[place, label]["winners_of"]
        if winner is None:
            continue
        other, _, there = winner.partition("/")
        source = (place, winner) if (place, winner) in entries else (other, there)
        if source in entries and source not in kept:
            kept.append(source)
    chosen = [
        {**p, "methods": [m for m in p["methods"] if (title(p), row(m)) in kept]} for p in problems
    ]
    return [problem for problem in chosen if problem["methods"]]


def _set(body: dict[str, Any], name: str, value: Any) -> None:
    if name == "seed":
        body["seed"] = value
        return
    used = False
    for problem in body["problems"]:
        if name == "repetitions":
            problem["repetitions"], used = value, True
            continue
        if name in problem["options"]:
            problem["options"][name], used = value, True
            continue
        for entry in problem["methods"]:
            if name not in registry.method(entry["name"], problem["kind"]).parameters():
                continue
            used = True
            if isinstance(value, list) and entry["winners_of"]:
                continue  # such a row takes what the other one has chosen from the list
            entry["grid"].pop(name, None)
            if isinstance(value, list):
                entry["grid"][name] = value
                entry["params"].pop(name, None)
            else:
                entry["params"][name] = value
    if not used:
        known = {"seed", "repetitions"} | {
            parameter
            for problem in body["problems"]
            for entry in problem["methods"]
            for parameter in registry.method(entry["name"], problem["kind"]).parameters()
        }
        raise unknown_name("setting", name, known)


def expand(
    suite: Suite,
    index: int,
    entry: MethodEntry,
    winner: Parameters | None = None,
    *,
    allow_mismatch: bool = False,
) -> list[PlannedPath]:
    """Expand one row of a problem into its paths.

    Parameters
    ----------
    suite : Suite
    index : int
        Which problem.
    entry : MethodEntry
        Which row of it.
    winner : dict, optional
        The chosen parameters of the row named by ``winners_of``.
    allow_mismatch : bool
        Passed on to the data stage.

    Returns
    -------
    list of PlannedPath
        One for each split, repetition and setting of the feature map, in a fixed order.
    """
    problem = suite.problems[index]
    method = registry.method(entry.name, problem.kind)
    # A row of another method takes over what it has as well: gamma and C, not the number of landmarks.
    known = method.parameters()
    taken = {name: value for name, value in (winner or {}).items() if name in known}
    fixed = {**taken, **method.plain(entry.params)}
    on_map = [name for name in entry.grid if name in method.map_parameters]
    walked = [name for name in entry.grid if name not in method.map_parameters]
    maps = [
        method.plain(dict(zip(on_map, values)))
        for values in itertools.product(*(entry.grid[n] for n in on_map))
    ]
    settings = tuple(
        method.plain(dict(zip(walked, values)))
        for values in itertools.product(*(entry.grid[n] for n in walked))
    )
    map_fixed = {n: v for n, v in fixed.items() if n in method.map_parameters}
    fit_fixed = {n: v for n, v in fixed.items() if n not in method.map_parameters}
    options = registry.kind(problem.kind).check_options(problem.options)
    repetitions = entry.repetitions or problem.repetitions
    return [
        PlannedPath(
            index,
            entry.row,
            PathSpec(
                kind=problem.kind,
                dataset=problem.dataset,
                split=split,
                repetition=repetition,
                method=entry.name,
                features={**map_fixed, **features},
                params=fit_fixed,
                settings=settings,
                options=options,
                seed=suite.seed,
                allow_mismatch=allow_mismatch,
            ),
        )
        for split in problem.splits
        for repetition in range(repetitions)
        for features in maps
    ]


def phases(suite: Suite) -> list[list[tuple[int, MethodEntry]]]:
    """Order the rows so that each comes after the row whose winner it takes over."""
    rows = [(i, entry) for i, problem in enumerate(suite.problems) for entry in problem.methods]
    done: set[tuple[int, str]] = set()
    ordered: list[list[tuple[int, MethodEntry]]] = []
    while rows:
        ready = [
            (i, entry)
            for i, entry in rows
            if entry.winners_of is None or winner_key(suite, i, entry.winners_of) in done
        ]
        if not ready:
            raise InputError(
                f'the rows of suite "{suite.name}" take winners from each other in a circle'
            )
        ordered.append(ready)
        done.update((i, entry.row) for i, entry in ready)
        rows = [row for row in rows if row not in ready]
    return ordered


def winner_key(suite: Suite, index: int, reference: str) -> tuple[int, str]:
    """Resolve ``label`` or ``problem/label`` to a problem's index and a row's label."""
    labels = {entry.row for entry in suite.problems[index].methods}
    if reference in labels:
        return index, reference
    title, _, label = reference.partition("/")
    for i, problem in enumerate(suite.problems):
        if problem.title == title and label in {entry.row for entry in problem.methods}:
            return i, label
    known = labels | {f"{p.title}/{m.row}" for p in suite.problems for m in p.methods}
    raise unknown_name("row in winners_of", reference, known)


def _check(suite: Suite, path: str | Path | None) -> None:
    titles = [problem.title for problem in suite.problems]
    if len(set(titles)) != len(titles):
        raise InputError(
            "two problems of the suite have one name", path=path, remedy="give each a name"
        )
    for i, problem in enumerate(suite.problems):
        protocol = registry.kind(problem.kind)
        options = protocol.check_options(problem.options, path=path)
        protocol.check_data(problem.dataset, problem.splits, path=path)
        if problem.selection is not None:
            metric, known = problem.selection.metric, protocol.selection_metrics(options)
            if metric not in known:
                raise unknown_name(f"selection metric of {problem.title}", metric, known, path=path)
        rows = [entry.row for entry in problem.methods]
        if len(set(rows)) != len(rows):
            raise InputError(
                f'two rows of problem "{problem.title}" have one label',
                path=path,
                remedy="give each a label",
            )
        for entry in problem.methods:
            method = registry.method(entry.name, problem.kind, path=path)
            if method.skip() is None:
                method.check(entry.params, path=path)
                for name, values in entry.grid.items():
                    for value in values:
                        method.check({name: value}, path=path)
            if entry.winners_of is not None:
                winner_key(suite, i, entry.winners_of)
            trials = 1
            for values in entry.grid.values():
                trials *= len(values)
            if trials > 1 and problem.selection is None:
                raise InputError(
                    f'"{entry.row}" has a grid but problem "{problem.title}" has no selection',
                    path=path,
                    remedy="add a [problems.selection] table with the metric to choose by",
                )
    phases(suite)


def _suite_error(error: ValidationError, path: str | Path | None) -> InputError:
    # A misspelled key is both unknown and missing: the first is the one to speak of.
    first = min(error.errors(), key=lambda e: e["type"] != "extra_forbidden")
    place = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        known: set[str] = set()
        for model in (Suite, Problem, MethodEntry, Selection):
            known |= set(model.model_fields)
        return unknown_name("suite key", place.rpartition(".")[2], known, path=path)
    message = first["msg"].removeprefix("Value error, ")
    return InputError(f"{place}: {message[0].lower()}{message[1:]}", path=path)
