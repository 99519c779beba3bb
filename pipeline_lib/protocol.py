"""What a problem kind brings to the pipeline: its data, its stages, its part of the report."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import polars as pl
from pydantic import ValidationError

from pipeline_lib.artifacts import Artifact, ArtifactWriter
from pipeline_lib.datasets.container import Dataset
from pipeline_lib.errors import InputError
from pipeline_lib.metrics.result import MetricResult
from pipeline_lib.specs import FeatureStep, Parameters, PathSpec, StrictModel
from pipeline_lib.suggest import unknown_name

Data = Mapping[str, Dataset]


class ProblemKind(ABC):
    """The protocol of one problem kind: learning to rank, retrieval, annotation, ...

    A path goes through four stages; each writes one artifact, and nothing but specifications and
    artifacts is passed between them:

    1. *ingest*: the dataset parts that `parts` names become canonical Parquet;
    2. *features*: the steps that `features` names (normalisation, feature maps, graphs);
    3. *fit*: the method over the path's settings, with the values by which one is selected;
    4. *evaluate*: the selected trial on the test side, per item.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    item: ClassVar[str]
    """What metrics are computed per: query, image, subset."""
    Options: ClassVar[type[StrictModel]]

    def check_options(self, options: Parameters, *, path: str | Path | None = None) -> Parameters:
        """Validate the options of a problem and complete them with defaults."""
        try:
            return self.Options.model_validate(options).model_dump(mode="json")
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(str(part) for part in first["loc"])
            if first["type"] == "extra_forbidden":
                raise unknown_name(
                    f"option of {self.name}", place, self.Options.model_fields, path=path
                ) from None
            message = first["msg"].removeprefix("Value error, ")
            raise InputError(
                f"option {place} of {self.name}: {message[0].lower()}{message[1:]}", path=path
            ) from None

    @abstractmethod
    def selection_metrics(self, options: Parameters) -> list[str]:
        """Names of the validation metrics that a setting can be chosen by, under completed options."""

    @abstractmethod
    def check_data(self, dataset: str, splits: Sequence[str], *, path: Any = None) -> None:
        """Raise `InputError` when the dataset or a split does not exist or is of another kind."""

    @abstractmethod
    def parts(self, spec: PathSpec) -> dict[str, str]:
        """Map roles (``train``, ``vali``, ``test``, ``all``) to dataset parts to ingest."""

    def features(self, spec: PathSpec) -> list[FeatureStep]:
        """Return the steps of the features stage, in order; each sees the artifact of the one before."""
        return []

    @abstractmethod
    def fit(
        self, spec: PathSpec, data: Data, features: Sequence[Artifact], out: ArtifactWriter
    ) -> None:
        """Walk the path's settings and write a `FitLog` and what `evaluate` needs."""

    @abstractmethod
    def evaluate(
        self,
        spec: PathSpec,
        index: int,
        data: Data,
        features: Sequence[Artifact],
        fitted: Artifact,
        out: ArtifactWriter,
    ) -> None:
        """Evaluate trial ``index`` on the test side and write with `write_evaluation`."""


@dataclass
class FitLog:
    """What the fit stage records of each trial: outcome, time, objective history, selection values.

    Use ``with log.trial(i) as record:`` around each fit: an exception inside is recorded as the trial's
    error, and the path goes on to its next setting.
    """

    rows: list[dict[str, Any]] = field(default_factory=list)
    histories: list[pl.DataFrame] = field(default_factory=list)
    validations: list[pl.DataFrame] = field(default_factory=list)

    @contextmanager
    def trial(self, index: int) -> Iterator[TrialRecord]:
        """Record one trial."""
        record = TrialRecord(index)
        started = time.perf_counter()
        try:
            yield record
        except Exception as error:
            record.error = f"{type(error).__name__}: {error}"
        seconds = time.perf_counter() - started
        self.rows.append(
            {
                "setting": index,
                "seconds": seconds if record.seconds is None else record.seconds,
                "objective": record.objective,
                "n_iter": record.n_iter,
                "converged": record.converged,
                "error": record.error,
            }
        )
        if record.history and record.error is None:
            self.histories.append(_history_frame(index, record.history))
        if record.validation is not None and record.error is None:
            setting = pl.lit(index, pl.Int64).alias("setting")
            self.validations.append(record.validation.per_item.select(setting, pl.all()))

    def write(self, out: ArtifactWriter) -> None:
        """Write the tables ``trials``, ``history`` and, where there is one, ``validation``."""
        schema = {
            "setting": pl.Int64,
            "seconds": pl.Float64,
            "objective": pl.Float64,
            "n_iter": pl.Int64,
            "converged": pl.Boolean,
            "error": pl.String,
        }
        out.table("trials", pl.DataFrame(self.rows, schema=schema))
        if self.histories:
            out.table("history", pl.concat(self.histories))
        if self.validations:
            out.table("validation", pl.concat(self.validations))


@dataclass
class TrialRecord:
    """Values of one trial, filled in by the problem kind."""

    index: int
    objective: float | None = None
    n_iter: int | None = None
    converged: bool | None = None
    seconds: float | None = None
    history: Mapping[str, Sequence[float]] = field(default_factory=dict)
    validation: MetricResult | None = None
    error: str | None = None

    def take(self, estimator: Any) -> None:
        """Copy objective, iterations, convergence and history from a fitted estimator."""
        self.objective = getattr(estimator, "objective_", None)
        self.n_iter = getattr(estimator, "n_iter_", None)
        self.converged = getattr(estimator, "converged_", None)
        self.history = getattr(estimator, "history_", {})


def write_evaluation(
    out: ArtifactWriter,
    results: Mapping[str, MetricResult],
    *,
    seconds: float,
    predictions: pl.DataFrame | None = None,
) -> None:
    """Write what the evaluate stage must leave.

    Parameters
    ----------
    out : ArtifactWriter
    results : mapping
        Metric definition (``letor4``, ``standard``, or ``default``) to values.
    seconds : float
        Time of prediction.
    predictions : DataFrame, optional
        Scores per item, for later comparison and export.
    """
    for definition, result in results.items():
        out.table(f"per_item.{definition}", result.per_item)
    if predictions is not None:
        out.table("predictions", predictions)
    means = {definition: _finite(result.means) for definition, result in results.items()}
    out.record(means=means, predict_seconds=seconds)


def _finite(means: Mapping[str, float]) -> dict[str, float | None]:
    return {
        name: float(v) if v is not None and abs(v) < float("inf") else None
        for name, v in means.items()
    }


def _history_frame(index: int, history: Mapping[str, Sequence[float]]) -> pl.DataFrame:
    parts = [
        pl.DataFrame(
            {
                "setting": pl.Series([index] * len(values), dtype=pl.Int64),
                "key": pl.Series([key] * len(values), dtype=pl.String),
                "iteration": pl.Series(range(len(values)), dtype=pl.Int64),
                "value": pl.Series([float(v) for v in values], dtype=pl.Float64),
            }
        )
        for key, values in history.items()
    ]
    return pl.concat(parts)
