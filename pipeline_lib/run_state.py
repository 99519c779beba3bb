"""The rows of a run's tables, and their paths, on the way through the stages."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pipeline_lib import manifest, stages, tracked
from pipeline_lib.artifacts import ArtifactRef
from pipeline_lib.selection import Choice
from pipeline_lib.specs import PathSpec
from pipeline_lib.suites import MethodEntry, PlannedPath
from pipeline_lib.summary import EvaluatedPath, RowOutcome
from pipeline_lib.tracking import LoggedTrial


@dataclass
class PathState:
    """A path on its way through the stages."""

    planned: PlannedPath
    ingested: stages.Refs = field(default_factory=dict)
    features: list[ArtifactRef] = field(default_factory=list)
    fitted: ArtifactRef | None = None
    error: str | None = None
    mlflow: list[LoggedTrial] = field(default_factory=list)

    @property
    def spec(self) -> PathSpec:
        return self.planned.spec

    @property
    def title(self) -> str:
        """Name for people: row, split, feature parameters."""
        named = [self.planned.label, self.spec.split]
        if self.spec.repetition:
            named.append(f"#{self.spec.repetition}")
        named += [f"{key}={tracked.short(value)}" for key, value in self.spec.features.items()]
        return " ".join(named)


@dataclass
class RowState:
    """A row of a problem's table: its paths, and what is still to come of it."""

    problem: int
    entry: MethodEntry
    paths: list[PathState]
    waiting: int = 0
    choices: list[Choice] = field(default_factory=list)
    evaluations: dict[int, ArtifactRef] = field(default_factory=dict)
    error: str | None = None

    def evaluated(self, position: int) -> tuple[int, ArtifactRef] | None:
        """The chosen setting of a path with its evaluation, if it was chosen and evaluated."""
        for choice in self.choices:
            if choice.path == position and position in self.evaluations:
                return choice.setting, self.evaluations[position]
        return None

    def outcome(self) -> RowOutcome:
        """What the tables of the run are made from."""
        evaluated = [
            EvaluatedPath(choice.path, choice.setting, self.evaluations[choice.path])
            for choice in self.choices
            if choice.path in self.evaluations
        ]
        return RowOutcome(
            problem=self.problem,
            entry=self.entry,
            specs=[path.spec for path in self.paths],
            features=[path.features for path in self.paths],
            fits=[path.fitted for path in self.paths],
            errors=[path.error for path in self.paths],
            evaluated=evaluated,
        )

    def manifest_entries(self, problem: str) -> list[dict[str, Any]]:
        """Entry of each path in the manifest; `problem` is the title of its table."""
        return [
            manifest.path_entry(
                problem,
                self.entry.row,
                position,
                path.spec,
                path.ingested,
                path.features,
                path.fitted,
                self.evaluated(position),
            )
            for position, path in enumerate(self.paths)
        ]
