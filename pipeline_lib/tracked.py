"""What a run tells MLflow: trials under plain names, headline metrics, descriptions for people."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from pipeline_lib import stages
from pipeline_lib.artifacts import Artifact, ArtifactRef, ArtifactStore
from pipeline_lib.results import RunRecord
from pipeline_lib.selection import validation_table
from pipeline_lib.specs import PathSpec
from pipeline_lib.suites import MethodEntry, Suite
from pipeline_lib.tracking import TrialLog

_FOREIGN = re.compile(r"[^\w\-. :/]")


def trial_logs(
    suite: Suite,
    run: str,
    problem: str,
    entry: MethodEntry,
    spec: PathSpec,
    store: ArtifactStore,
    ingested: Mapping[str, ArtifactRef],
    fitted: ArtifactRef,
) -> list[TrialLog]:
    """What is logged of each trial of a path, in the order of its settings."""
    artifact = store.open(fitted)
    label = entry.row
    validation = validation_table(artifact)
    histories = _histories(artifact)
    digests = [stages.content_digest(store, ref) for _, ref in sorted(ingested.items())]
    logs = []
    for row in artifact.table("trials").iter_rows(named=True):
        setting = row["setting"]
        metrics = {
            name: float(row[name])
            for name in ("seconds", "objective", "n_iter")
            if row[name] is not None
        }
        metrics |= _validation(validation.filter(pl.col("setting") == setting))
        logs.append(
            TrialLog(
                name=_trial_name(entry, spec, setting),
                params={
                    "problem": problem,
                    "row": label,
                    "dataset": spec.dataset,
                    "split": spec.split,
                    "repetition": spec.repetition,
                    "method": spec.method,
                    **spec.trial(setting),
                },
                metrics=metrics,
                history=histories.get(setting, {}),
                tags={
                    "affinity.suite": suite.name,
                    "affinity.run": run,
                    "affinity.problem": problem,
                    "affinity.row": label,
                    "affinity.path": fitted.fingerprint,
                    "affinity.dataset_digest": ",".join(digests),
                    "affinity.stage": "fit",
                    "affinity.selected": "false",
                    "affinity.cached": str(fitted.cached).lower(),
                },
                failed=row["error"],
            )
        )
    return logs


def evaluation_metrics(evaluated: Artifact) -> dict[str, float | None]:
    """Test metrics of a chosen trial: plain names, other definitions than the first prefixed."""
    means = evaluated.records["means"]
    first, *others = means
    metrics = dict(means[first])
    for definition in others:
        metrics |= {f"{definition}_{name}": value for name, value in means[definition].items()}
    return metrics


def headline_metrics(record: RunRecord) -> dict[str, float]:
    """Headline of each row, ``<problem>/<row> <metric>``: what runs of a suite are compared by."""
    found = {}
    for row in _headlines(record):
        name = (
            f"{row['problem'].replace('/', '-')}/{row['label'].replace('/', '-')} {row['headline']}"
        )
        found[" ".join(_FOREIGN.sub("", name).split())] = float(row["value"])
    return found


def run_note(record: RunRecord) -> str:
    """Description of a run as Markdown: status, a table of headlines, where the report is."""
    lines = [
        f"**{record.suite.title}**: {record.status}. The report and the values per item are among "
        f"the artifacts of this run; here they stand in `{record.folder}`.",
        "",
        "| problem | row | metric | value | 95 % interval |",
        "|---|---|---|--:|---|",
    ]
    for row in _headlines(record):
        interval = "" if row["low"] is None else f"{row['low']:.4f} – {row['high']:.4f}"
        label = row["label"].replace("|", "\\|")
        lines.append(
            f"| {row['problem']} | {label} | {row['headline']} | {row['value']:.4f} | {interval} |"
        )
    return "\n".join(lines) + "\n"


def suite_note(suite: Suite) -> str:
    """Description of a suite's experiment as Markdown."""
    return (
        f"**{suite.title}**\n\n{suite.summary}\n\nEach run of the suite is a parent run; its headline "
        "metrics are named `problem/row metric`. Its children are the trials: validation metrics "
        "begin with `vali_`, test metrics are there where the tag `affinity.selected` is `true`.\n"
    )


def _headlines(record: RunRecord) -> Sequence[dict[str, Any]]:
    if not len(record.results):
        return []
    first = record.results.unique(["problem", "label"], keep="first", maintain_order=True)
    return first.filter(pl.col("value").is_not_null()).to_dicts()


def _trial_name(entry: MethodEntry, spec: PathSpec, setting: int) -> str:
    """Row, split, and the values that its trials differ in."""
    split = f"{spec.split} #{spec.repetition}" if spec.repetition else spec.split
    trial = spec.trial(setting)
    values = " ".join(f"{name}={short(trial[name])}" for name in entry.grid if name in trial)
    return " · ".join(filter(None, [entry.row, split, values]))


def short(value: Any) -> str:
    """A parameter's value as it stands in names for people."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _histories(artifact: Artifact) -> dict[int, dict[str, list[float]]]:
    if "history" not in artifact.tables():
        return {}
    found: dict[int, dict[str, list[float]]] = {}
    ordered = artifact.table("history").sort("setting", "key", "iteration")
    for (setting, key), part in ordered.group_by("setting", "key", maintain_order=True):
        found.setdefault(int(str(setting)), {})[f"{key}_history"] = part["value"].to_list()
    return found


def _validation(means: pl.DataFrame) -> dict[str, float]:
    if not len(means):
        return {}
    values = means.drop("setting").row(0, named=True)
    return {f"vali_{name}": float(v) for name, v in values.items() if v is not None}
