"""What has changed between two runs: data, parameters, code, packages, threads, platform."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pipeline_lib import registry, stages
from pipeline_lib.fingerprints import import_closure
from pipeline_lib.specs import PathSpec

Kind = Literal["data", "parameter", "code", "package", "threads", "platform", "chance"]

_MOST_NAMED = 6
_TITLES = ("title", "summary")


@dataclass(frozen=True)
class Cause:
    """One thing that changed.

    Attributes
    ----------
    kind : {"data", "parameter", "code", "package", "threads", "platform", "chance"}
        ``chance``: nothing that is recorded changed, so the computation does not repeat itself.
    what : str
        What it was and what it is.
    """

    kind: Kind
    what: str


Manifest = Mapping[str, Any]


def all_changes(before: Manifest, after: Manifest) -> list[Cause]:
    """Everything that changed between two runs, whether it matters or not."""
    causes = [Cause("parameter", what) for what in _suite_changes(before, after)]
    for part in before["data"]:
        causes += data_changes(before, after, part)
    causes += code_changes(before, after)
    known = set(causes)
    for old in before.get("environments") or [before["environment"]]:
        for new in after.get("environments") or [after["environment"]]:
            fresh = [cause for cause in environment_changes(old, new) if cause not in known]
            known.update(fresh)
            causes += fresh
    return causes


def step_changes(
    before: Manifest,
    after: Manifest,
    old_path: Mapping[str, Any],
    new_path: Mapping[str, Any],
    step: int,
) -> list[Cause]:
    """What changed of all that one step of a path depends on beside the steps before it."""
    old, new = old_path["steps"][step], new_path["steps"][step]
    spec = PathSpec.model_validate(new_path["spec"])
    stage = new["stage"]
    causes: list[Cause] = []
    if stage == "ingest":
        for path in (old_path, new_path):
            part = registry.kind(spec.kind).parts(PathSpec.model_validate(path["spec"]))
            causes += data_changes(before, after, f"{path['spec']['dataset']}/{part[old['name']]}")
        asked = [{"dataset": p["spec"]["dataset"]} for p in (old_path, new_path)]
        modules: Iterable[str] = stages.INGEST_MODULES
    elif stage == "features":
        asked = [dict(s.get("asked", {})) for s in (old, new)]
        steps = registry.kind(spec.kind).features(spec)
        position = [s["stage"] for s in new_path["steps"][:step]].count("features")
        modules = stages.step_modules(steps[position])
    else:
        asked = [
            {**path["spec"], "registered": path["declared"], **path["steps"][step].get("asked", {})}
            for path in (old_path, new_path)
        ]
        if stage == "evaluate":
            rules = [_selection(m, old_path["problem"]) for m in (before, after)]
            asked = [{**body, "selection": rule} for body, rule in zip(asked, rules)]
        modules = stages.modules(spec)
    causes += [Cause("parameter", _plain(what)) for what in changes(asked[0], asked[1])]
    causes += code_changes(before, after, modules)
    environments = [_made_in(m, s["artifact"]) for m, s in ((before, old), (after, new))]
    if environments[0] is not None and environments[1] is not None:
        causes += environment_changes(environments[0], environments[1])
    return list(dict.fromkeys(causes))


def data_changes(before: Manifest, after: Manifest, part: str) -> list[Cause]:
    """Raw files of a part whose checksum is another one."""
    old = before["data"].get(part, {}).get("sources")
    new = after["data"].get(part, {}).get("sources")
    if old is None or new is None:
        return []
    return [Cause("data", f"{part}: {what}") for what in _file_changes(old, new)]


def code_changes(
    before: Manifest, after: Manifest, modules: Iterable[str] | None = None
) -> list[Cause]:
    """Modules whose source changed, among all that the given ones can reach (default: all)."""
    codes = [manifest["environment"]["code"] for manifest in (before, after)]
    old, new = (code.get("modules") or {} for code in codes)
    if not old or not new:
        return []
    changed = {name for name in old.keys() | new.keys() if old.get(name) != new.get(name)}
    if modules is not None:
        # What is gone by now cannot be followed any more: it may have belonged to any stage.
        changed &= import_closure(modules) | (old.keys() - new.keys())
    if not changed:
        return []
    versions = [_commit(code) for code in codes]
    moved = f" ({versions[0]} → {versions[1]})" if versions[0] != versions[1] else ""
    return [Cause("code", _listed(sorted(changed)) + moved)]


def environment_changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[Cause]:
    """Packages, threads and platform of two environments."""
    causes = []
    packages = [environment.get("packages", {}) for environment in (old, new)]
    for name in sorted(packages[0].keys() | packages[1].keys()):
        versions = [known.get(name, "absent") for known in packages]
        if versions[0] != versions[1]:
            causes.append(Cause("package", f"{name} {versions[0]} → {versions[1]}"))
    for name, title, kind in (
        ("blas_threads", "BLAS threads", "threads"),
        ("python", "Python", "platform"),
        ("machine", "machine", "platform"),
        ("blas", "BLAS", "platform"),
    ):
        if old.get(name) != new.get(name):
            values = [_shown(environment.get(name)) for environment in (old, new)]
            causes.append(Cause(kind, f"{title} {values[0]} → {values[1]}"))  # type: ignore[arg-type]
    return causes


def changes(old: Any, new: Any, place: str = "") -> Iterator[str]:
    """Sentences ``place: old → new`` on plain JSON values that differ."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for name in dict.fromkeys((*old, *new)):
            yield from changes(
                old.get(name, _ABSENT), new.get(name, _ABSENT), f"{place}.{name}".lstrip(".")
            )
    elif isinstance(old, list | tuple) and isinstance(new, list | tuple) and len(old) == len(new):
        for position, (one, other) in enumerate(zip(old, new)):
            yield from changes(one, other, f"{place}[{position}]")
    elif old != new:
        yield f"{place}: {_shown(old)} → {_shown(new)}"


def _selection(manifest: Manifest, problem: str) -> Any:
    for body in manifest["suite"]["problems"]:
        if (body["name"] or body["dataset"]) == problem:
            return body["selection"]
    return None


def _plain(what: str) -> str:
    """A parameter by its own name, not by where it stands in the specification."""
    while what.startswith("params."):
        what = what.removeprefix("params.")
    return what


def _suite_changes(before: Manifest, after: Manifest) -> Iterator[str]:
    old, new = (
        {name: value for name, value in manifest["suite"].items() if name not in _TITLES}
        for manifest in (before, after)
    )
    yield from changes(old, new)


def _file_changes(old: Mapping[str, str], new: Mapping[str, str]) -> Iterator[str]:
    for name in sorted(old.keys() | new.keys()):
        if name not in new:
            yield f"{name} is gone"
        elif name not in old:
            yield f"{name} is new"
        elif old[name] != new[name]:
            yield f"{name} changed (sha256 {old[name][:12]} → {new[name][:12]})"


def _made_in(manifest: Manifest, artifact: str) -> Mapping[str, Any] | None:
    position = manifest["artifacts"][artifact].get("made_in")
    return None if position is None else manifest["environments"][position]


def _commit(code: Mapping[str, Any]) -> str:
    name = str(code.get("commit") or code.get("version"))[:10]
    return f"{name} with local changes" if code.get("dirty") else name


def _listed(names: list[str]) -> str:
    more = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


class _Absent:
    def __str__(self) -> str:
        return "absent"


_ABSENT = _Absent()


def _shown(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
