"""Holding a second run against a first, and finding the first step at which they part."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pipeline_lib.artifacts import ArtifactRef, ArtifactStore
from pipeline_lib.errors import ArtifactError
from pipeline_lib.manifest import VERSION
from pipeline_lib.reproduction.causes import Cause, all_changes, step_changes
from pipeline_lib.reproduction.differences import checksum_difference, content_difference
from pipeline_lib.reproduction.outcome import Difference, Outcome, Value
from pipeline_lib.results import RESULT_COLUMNS, RunRecord
from pipeline_lib.summary import metric_columns

TOLERANCE = 1e-6

_STAGES = ("ingest", "features", "fit", "evaluate")


def verify(
    before: RunRecord,
    old_store: ArtifactStore,
    after: RunRecord,
    new_store: ArtifactStore,
    *,
    tolerance: float = TOLERANCE,
) -> Outcome:
    """Hold a second run against a first; see `rerun`."""
    values = tuple(_values(before, after))
    wrong = {(v.problem, v.label) for v in values if v.gap > tolerance}
    differences: Sequence[Difference] = ()
    if wrong and before.manifest.get("version", 1) >= VERSION:
        finder = _Finder(before, old_store, after, new_store, tolerance)
        differences = finder.first_differences(sorted(wrong))
    return Outcome(
        run=before.id,
        verified=not wrong,
        tolerance=tolerance,
        values=values,
        differences=tuple(differences),
        changes=tuple(all_changes(before.manifest, after.manifest)),
    )


class _Finder:
    """Looks for the first step at which two runs part."""

    def __init__(
        self,
        before: RunRecord,
        old_store: ArtifactStore,
        after: RunRecord,
        new_store: ArtifactStore,
        tolerance: float,
    ) -> None:
        self.before, self.after = before.manifest, after.manifest
        self.old_store, self.new_store = old_store, new_store
        self.tolerance = tolerance
        self._known: dict[tuple[str, str, float], str | None] = {}

    def first_differences(self, rows: Sequence[tuple[str, str]]) -> list[Difference]:
        found: dict[Difference, list[str]] = {}
        for problem, label in rows:
            difference = self._first(problem, label)
            found.setdefault(difference, []).append(f"{problem} {label}")
        order = (*_STAGES, "")
        ordered = sorted(found.items(), key=lambda one: order.index(one[0].stage))
        return [replace(difference, rows=tuple(rows)) for difference, rows in ordered]

    def _first(self, problem: str, label: str) -> Difference:
        old, new = (_paths(manifest, problem, label) for manifest in (self.before, self.after))
        # What no tolerance excuses is looked for first, then what may have grown on the way.
        for tolerance in (self.tolerance, 0.0):
            for stage in _STAGES:
                for old_path, new_path in zip(old, new):
                    difference = self._at(stage, old_path, new_path, tolerance)
                    if difference is not None:
                        return difference
        what = (
            "no artifact differs"
            if len(old) == len(new)
            else f"{len(old)} paths before, {len(new)} now"
        )
        causes = all_changes(self.before, self.after)
        return Difference("", "", problem, label, "", what, _or_chance(causes))

    def _at(
        self, stage: str, old: Mapping[str, Any], new: Mapping[str, Any], tolerance: float
    ) -> Difference | None:
        for position, step in enumerate(new["steps"]):
            if step["stage"] != stage:
                continue
            there = position < len(old["steps"]) and old["steps"][position]["stage"] == stage
            if there:
                artifacts = old["steps"][position]["artifact"], step["artifact"]
                what = self._difference(*artifacts, tolerance)
            else:
                what = "a step that was not there"
            if what is None:
                continue
            causes = (
                step_changes(self.before, self.after, old, new, position)
                if there
                else all_changes(self.before, self.after)
            )
            return Difference(
                stage,
                str(step["name"]),
                str(new["problem"]),
                # One ingested part serves many rows and is named once.
                "" if stage == "ingest" else str(new["label"]),
                str(new["spec"]["split"]),
                what,
                _or_chance(causes),
            )
        return None

    def _difference(self, old: str, new: str, tolerance: float) -> str | None:
        key = (old, new, tolerance)
        if key not in self._known:
            self._known[key] = self._look(old, new, tolerance)
        return self._known[key]

    def _look(self, old: str, new: str, tolerance: float) -> str | None:
        try:
            before = self.old_store.open(ArtifactRef.of(old))
        except ArtifactError:
            # Too large to be frozen, or collected: its checksums are still known.
            files = self.before["artifacts"][old]["files"], self.after["artifacts"][new]["files"]
            return checksum_difference(*files)
        return content_difference(before, self.new_store.open(ArtifactRef.of(new)), tolerance)


def _or_chance(causes: Sequence[Cause]) -> tuple[Cause, ...]:
    if causes:
        return tuple(causes)
    return (Cause("chance", "nothing that is recorded changed: it does not repeat itself"),)


def _values(before: RunRecord, after: RunRecord) -> Iterator[Value]:
    now = {identity(row): row for row in _rows(after)}
    for row in _rows(before):
        key = identity(row)
        other = now.pop(key, {})
        for metric in metric_columns(before.results, RESULT_COLUMNS):
            if row[metric] is not None or other.get(metric) is not None:
                yield Value(*key, metric, row[metric], other.get(metric))
    for key, row in now.items():
        yield Value(*key, row["headline"], None, row["value"])


def identity(row: Mapping[str, Any]) -> tuple[str, str, str]:
    """What a row of a results table is the row of: problem, label, metric definition."""
    return row["problem"], row["label"], row["definition"]


def _rows(record: RunRecord) -> Iterator[dict[str, Any]]:
    return record.results.iter_rows(named=True)


def _paths(manifest: Mapping[str, Any], problem: str, label: str) -> list[Mapping[str, Any]]:
    return [
        path
        for path in manifest["paths"]
        if (path["problem"], path["label"]) == (problem, label) and path["steps"]
    ]
