"""Choosing one trial of a row: by validation values only, the same rule for every method."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from pipeline_lib.artifacts import Artifact
from pipeline_lib.errors import TrialError
from pipeline_lib.fingerprints import canonical_json
from pipeline_lib.specs import Parameters, PathSpec
from pipeline_lib.suites import Selection


@dataclass(frozen=True)
class Choice:
    """The trial chosen for one split and repetition.

    Attributes
    ----------
    path : int
        Position of its path among the row's.
    setting : int
        Position of its setting along that path.
    value : float or None
        Mean of the selection metric, None when there was nothing to choose among.
    """

    path: int
    setting: int
    value: float | None


def validation_means(fitted: Artifact, metric: str) -> dict[int, float]:
    """Mean of a validation metric for each setting of a path; failed settings are absent."""
    if "validation" not in fitted.tables():
        return {}
    table = fitted.table("validation")
    if metric not in table.columns:
        raise TrialError(
            f'the selection metric "{metric}" is not among the validation values '
            f"({', '.join(c for c in table.columns if c != 'setting')})"
        )
    means = table.group_by("setting").agg(pl.col(metric).mean()).sort("setting")
    return {int(s): float(v) for s, v in means.iter_rows() if v is not None}


def validation_table(fitted: Artifact) -> pl.DataFrame:
    """Mean of every validation metric for each setting of a path, sorted by setting."""
    if "validation" not in fitted.tables():
        return pl.DataFrame(schema={"setting": pl.Int64})
    table = fitted.table("validation")
    item = table.columns[1]
    return table.drop(item).group_by("setting").mean().sort("setting")


def choose(
    specs: Sequence[PathSpec], fits: Mapping[int, Artifact], selection: Selection | None
) -> list[Choice]:
    """Choose the trials to evaluate, one for each split and repetition.

    Parameters
    ----------
    specs : sequence of PathSpec
        All paths of the row.
    fits : mapping of int to Artifact
        Fit artifacts of the paths that succeeded, by position in ``specs``.
    selection : Selection or None
        The rule; None when each path has one setting and each split one path.

    Returns
    -------
    list of Choice
        Of equal values the first in grid order wins, so that the choice never depends on timing.

    Raises
    ------
    TrialError
        If no candidate succeeded on every split and repetition.
    """
    draws = sorted({(s.split, s.repetition) for s in specs}, key=lambda d: (d[1], d[0]))
    values: dict[str, dict[tuple[str, int], tuple[int, int, float | None]]] = {}
    for position, spec in enumerate(specs):
        if position not in fits:
            continue
        fitted = fits[position]
        means = validation_means(fitted, selection.metric) if selection else {}
        trials = fitted.table("trials")
        for setting, error in trials.select("setting", "error").iter_rows():
            if error is not None or (selection and means and setting not in means):
                continue
            key = _candidate(spec, spec.settings[setting])
            values.setdefault(key, {})[spec.split, spec.repetition] = (
                position,
                setting,
                means.get(setting),
            )
    if selection is not None and selection.scope == "split":
        return [_best_of_draw(values, draw) for draw in draws]
    complete = [by_draw for by_draw in values.values() if len(by_draw) == len(draws)]
    if not complete:
        raise TrialError("no setting succeeded on every split and repetition")
    best = max(complete, key=_mean_value)
    mean = _mean_value(best)
    return [
        Choice(path, setting, None if value is None else mean)
        for path, setting, value in (best[draw] for draw in draws)
    ]


def _best_of_draw(
    values: Mapping[str, Mapping[tuple[str, int], tuple[int, int, float | None]]],
    draw: tuple[str, int],
) -> Choice:
    candidates = [by_draw[draw] for by_draw in values.values() if draw in by_draw]
    if not candidates:
        raise TrialError(f"no setting succeeded on split {draw[0]}, repetition {draw[1]}")
    return Choice(*max(candidates, key=lambda c: c[2] if c[2] is not None else 0.0))


def _mean_value(by_draw: Mapping[tuple[str, int], tuple[int, int, float | None]]) -> float:
    known = [value for _, _, value in by_draw.values() if value is not None]
    return sum(known) / len(known) if known else 0.0


def _candidate(spec: PathSpec, setting: Parameters) -> str:
    return canonical_json([spec.features, setting])
