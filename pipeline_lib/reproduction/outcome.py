"""What a rerun finds: each metric the first time and now, and where the two runs part."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from pipeline_lib.reproduction.causes import Cause


@dataclass(frozen=True)
class Value:
    """One metric of one row, the first time and now; None when it is not there."""

    problem: str
    label: str
    definition: str
    metric: str
    before: float | None
    after: float | None

    @property
    def gap(self) -> float:
        """How far apart the two are; infinite when only one is there."""
        if self.before is None or self.after is None:
            return 0.0 if self.before is self.after else math.inf
        return abs(self.after - self.before)


@dataclass(frozen=True)
class Difference:
    """The first step on the way to some rows whose artifact came out otherwise.

    Attributes
    ----------
    stage, step : str
        Stage, and the name of the step in it.
    problem, label, split : str
        The path it belongs to.
    what : str
        Where in the artifact, and by how much.
    causes : tuple of Cause
        What changed of all that the step depends on.
    rows : tuple of str
        Rows of the results for which it is the first.
    """

    stage: str
    step: str
    problem: str
    label: str
    split: str
    what: str
    causes: tuple[Cause, ...]
    rows: tuple[str, ...] = ()


@dataclass(frozen=True)
class Outcome:
    """What a rerun found.

    Attributes
    ----------
    run : str
    verified : bool
        Whether every metric came out within the tolerance.
    tolerance : float
    values : tuple of Value
        Every metric of every row.
    differences : tuple of Difference
        Where the rows that did not verify went another way, the earliest first.
    changes : tuple of Cause
        All that changed since, whether it matters or not.
    """

    run: str
    verified: bool
    tolerance: float
    values: tuple[Value, ...]
    differences: tuple[Difference, ...] = ()
    changes: tuple[Cause, ...] = ()

    @property
    def wrong(self) -> list[Value]:
        """The values beyond the tolerance."""
        return [value for value in self.values if value.gap > self.tolerance]

    @property
    def largest(self) -> float:
        """The largest gap."""
        return max((value.gap for value in self.values), default=0.0)

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON values; of the metrics those that differ."""
        return {
            "run": self.run,
            "verified": self.verified,
            "tolerance": self.tolerance,
            "values": len(self.values),
            "largest": self.largest if math.isfinite(self.largest) else None,
            "wrong": [asdict(value) for value in self.wrong],
            "differences": [asdict(difference) for difference in self.differences],
            "changes": [asdict(change) for change in self.changes],
        }
