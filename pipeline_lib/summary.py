"""From the artifacts of a run to its tables: results, trials, history and values per item."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from pipeline_lib.artifacts import Artifact, ArtifactRef, ArtifactStore
from pipeline_lib.fingerprints import canonical_json
from pipeline_lib.metrics.resampling import bootstrap_interval
from pipeline_lib.results import RESULT_COLUMNS, TRIAL_COLUMNS, RunRecord
from pipeline_lib.seeds import derive_seed
from pipeline_lib.selection import validation_table
from pipeline_lib.specs import PathSpec
from pipeline_lib.suites import MethodEntry

_BOOTSTRAP_RESAMPLES = 2_000


@dataclass(frozen=True)
class EvaluatedPath:
    """A chosen trial that has been evaluated."""

    path: int
    setting: int
    evaluation: ArtifactRef


@dataclass(frozen=True)
class RowOutcome:
    """All that became of one row; lists run parallel to its paths."""

    problem: int
    entry: MethodEntry
    specs: Sequence[PathSpec]
    features: Sequence[Sequence[ArtifactRef]]
    fits: Sequence[ArtifactRef | None]
    errors: Sequence[str | None]
    evaluated: Sequence[EvaluatedPath]


def summarise(record: RunRecord, rows: Iterable[RowOutcome], store: ArtifactStore) -> None:
    """Fill in the tables of a run; rows stand in the suite's order."""
    position = {
        (i, entry.row): (i, j)
        for i, problem in enumerate(record.suite.problems)
        for j, entry in enumerate(problem.methods)
    }
    ordered = sorted(rows, key=lambda row: position[row.problem, row.entry.row])
    per_item: dict[str, list[pl.DataFrame]] = {}
    pictures: dict[str, list[pl.DataFrame]] = {}
    results, trials, history = [], [], []
    for row in ordered:
        title = record.suite.problems[row.problem].title
        trials.extend(_trials(record, row, store))
        history.extend(_history(record, row, store))
        drawn = _pictures(row, store)
        if drawn:
            pictures.setdefault(title, []).extend(drawn)
        values = _per_item(row, store)
        if values:
            per_item.setdefault(title, []).extend(values)
            results.extend(_results(record, row, values, store))
    record.results = _ordered(results, RESULT_COLUMNS)
    record.trials = _ordered(trials, TRIAL_COLUMNS)
    record.history = pl.concat(history) if history else pl.DataFrame()
    record.per_item = {
        title: pl.concat(frames, how="diagonal_relaxed") for title, frames in per_item.items()
    }
    record.pictures = {title: pl.concat(frames) for title, frames in pictures.items()}


def metric_columns(frame: pl.DataFrame, known: Sequence[str]) -> list[str]:
    """Columns of a table that are metrics: numbers, and not among the documented ones."""
    return [
        name for name, dtype in frame.schema.items() if name not in known and dtype.is_numeric()
    ]


def _per_item(row: RowOutcome, store: ArtifactStore) -> list[pl.DataFrame]:
    frames = []
    for evaluated in row.evaluated:
        spec = row.specs[evaluated.path]
        artifact = store.open(evaluated.evaluation)
        for table in artifact.tables():
            if not table.startswith("per_item."):
                continue
            values = artifact.table(table)
            item, *_ = values.columns
            frames.append(
                values.select(
                    pl.lit(row.entry.row).alias("label"),
                    pl.lit(table.removeprefix("per_item.")).alias("definition"),
                    pl.lit(spec.split).alias("split"),
                    pl.lit(spec.repetition, pl.Int64).alias("repetition"),
                    pl.col(item).cast(pl.String).alias(item),
                    pl.all().exclude(item),
                )
            )
    return frames


def _pictures(row: RowOutcome, store: ArtifactStore) -> list[pl.DataFrame]:
    """What the evaluations keep to be drawn."""
    frames = []
    for evaluated in row.evaluated:
        spec, artifact = row.specs[evaluated.path], store.open(evaluated.evaluation)
        if "picture" in artifact.tables():
            frames.append(
                artifact.table("picture").select(
                    pl.lit(row.entry.row).alias("label"),
                    pl.lit(spec.split).alias("split"),
                    pl.lit(spec.repetition, pl.Int64).alias("repetition"),
                    pl.all(),
                )
            )
    return frames


def _results(
    record: RunRecord, row: RowOutcome, values: list[pl.DataFrame], store: ArtifactStore
) -> list[dict[str, object]]:
    problem = record.suite.problems[row.problem]
    opened = [store.open(e.evaluation) for e in row.evaluated]
    chosen = [canonical_json(row.specs[e.path].trial(e.setting)) for e in row.evaluated]
    specs = [row.specs[e.path] for e in row.evaluated]
    common = {
        "problem": problem.title,
        "kind": problem.kind,
        "dataset": problem.dataset,
        "method": row.entry.name,
        "label": row.entry.row,
        "splits": len({spec.split for spec in specs}),
        "repetitions": len({spec.repetition for spec in specs}),
        "params": chosen[0] if len(set(chosen)) == 1 else "varies with the split",
        "fit_seconds": float(np.mean([_fit_seconds(row, e, store) for e in row.evaluated])),
        "predict_seconds": float(np.mean([a.records["predict_seconds"] for a in opened])),
        "headline": problem.headline,
    }
    rows: list[dict[str, object]] = []
    for definition in opened[0].records["means"]:
        means = [a.records["means"][definition] for a in opened]
        metrics = {
            name: float(np.mean([m[name] for m in means]))
            for name in means[0]
            if all(m.get(name) is not None for m in means)
        }
        headline = [m.get(problem.headline) for m in means]
        spread = [h for h in headline if h is not None]
        low, high = _interval(record, row, values, definition)
        rows.append(
            {
                **common,
                "definition": definition,
                "items": sum(len(v) for v in values if v["definition"][0] == definition),
                "value": metrics.get(problem.headline),
                "low": low,
                "high": high,
                "std": float(np.std(spread, ddof=1)) if len(spread) > 1 else None,
                **metrics,
            }
        )
    return rows


def _interval(
    record: RunRecord, row: RowOutcome, values: list[pl.DataFrame], definition: str
) -> tuple[float | None, float | None]:
    """Bootstrap the headline over items; repetitions of an item count once, by their mean."""
    headline = record.suite.problems[row.problem].headline
    frames = [v for v in values if v["definition"][0] == definition and headline in v.columns]
    if not frames:
        return None, None
    pooled = pl.concat(frames, how="diagonal_relaxed")
    item = pooled.columns[4]
    per_item = (
        pooled.group_by("split", item, maintain_order=True)
        .agg(pl.col(headline).mean())[headline]
        .drop_nulls()
        .to_numpy()
    )
    if len(per_item) < 2:
        return None, None
    seed = derive_seed(record.suite.seed, "interval", row.entry.row, definition)
    return bootstrap_interval(per_item, seed=seed, n_resamples=_BOOTSTRAP_RESAMPLES)


def _fit_seconds(row: RowOutcome, evaluated: EvaluatedPath, store: ArtifactStore) -> float:
    """Seconds of the whole fit: feature steps, work shared along the path, and the trial itself.

    A kind that fits its choice anew to evaluate it records the seconds of that fit, which count.
    """
    again = store.open(evaluated.evaluation).records.get("fit_seconds")
    if again is not None:
        return float(again)
    reference = row.fits[evaluated.path]
    assert reference is not None
    fitted = store.open(reference)
    trial = fitted.table("trials").row(evaluated.setting, named=True)
    steps = sum(float(store.open(ref).sidecar["seconds"]) for ref in row.features[evaluated.path])
    return steps + float(fitted.records.get("shared_seconds", 0.0)) + float(trial["seconds"])


def _trials(record: RunRecord, row: RowOutcome, store: ArtifactStore) -> list[dict[str, object]]:
    problem = record.suite.problems[row.problem]
    chosen = {(e.path, e.setting): e.evaluation.fingerprint for e in row.evaluated}
    rows: list[dict[str, object]] = []
    for position, spec in enumerate(row.specs):
        reference = row.fits[position]
        fitted = None if reference is None else store.open(reference)
        means = _validation(fitted)
        for setting in range(len(spec.settings)):
            values: dict[str, object] = {
                "problem": problem.title,
                "label": row.entry.row,
                "method": spec.method,
                "split": spec.split,
                "repetition": spec.repetition,
                "path": None if reference is None else reference.fingerprint,
                "setting": setting,
                "params": canonical_json(spec.trial(setting)),
                "selected": (position, setting) in chosen,
                "cached": reference is not None and reference.cached,
                "evaluation": chosen.get((position, setting)),
                "error": row.errors[position],
            }
            if fitted is not None:
                trial = fitted.table("trials").row(setting, named=True)
                values |= {
                    key: trial[key]
                    for key in ("seconds", "objective", "n_iter", "converged", "error")
                }
            values |= means.get(setting, {})
            rows.append(values)
    return rows


def _validation(fitted: Artifact | None) -> dict[int, dict[str, float]]:
    if fitted is None:
        return {}
    return {
        row["setting"]: {f"vali_{k}": v for k, v in row.items() if k != "setting"}
        for row in validation_table(fitted).iter_rows(named=True)
    }


def _history(record: RunRecord, row: RowOutcome, store: ArtifactStore) -> list[pl.DataFrame]:
    frames = []
    for evaluated in row.evaluated:
        reference = row.fits[evaluated.path]
        if reference is None:
            continue
        fitted = store.open(reference)
        if "history" not in fitted.tables():
            continue
        spec = row.specs[evaluated.path]
        own = fitted.table("history").filter(pl.col("setting") == evaluated.setting)
        frames.append(
            own.select(
                pl.lit(record.suite.problems[row.problem].title).alias("problem"),
                pl.lit(row.entry.row).alias("label"),
                pl.lit(spec.split).alias("split"),
                pl.lit(spec.repetition, pl.Int64).alias("repetition"),
                "key",
                "iteration",
                "value",
            )
        )
    return frames


def _ordered(rows: list[dict[str, object]], first: Sequence[str]) -> pl.DataFrame:
    """Frame with the documented columns first, whatever columns the rows have."""
    others: dict[str, None] = {}
    for row in rows:
        others.update({name: None for name in row if name not in first})
    columns = [*first, *others]
    complete = [{name: row.get(name) for name in columns} for row in rows]
    return pl.DataFrame(complete, schema=None if rows else list(columns), infer_schema_length=None)
