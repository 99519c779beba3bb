"""A run in MLflow while it goes on: which of its moments are logged, and as what."""

from __future__ import annotations

from collections.abc import Mapping

from pipeline_lib import tracked
from pipeline_lib.artifacts import ArtifactStore
from pipeline_lib.results import RunRecord
from pipeline_lib.run_state import PathState, RowState
from pipeline_lib.tracking import Tracker

_ENDED = {"finished": "FINISHED", "failed": "FAILED", "interrupted": "KILLED"}


class RunTracking:
    """Logs one run; every call does nothing where tracking is off.

    Parameters
    ----------
    record : RunRecord
        The run; where it stands in MLflow is written into its manifest.
    store : ArtifactStore
        Holds what its paths computed.
    tracker : Tracker or None
        None turns tracking off.
    """

    def __init__(self, record: RunRecord, store: ArtifactStore, tracker: Tracker | None) -> None:
        self.record = record
        self.store = store
        self.tracker = tracker

    def begin(self, tags: Mapping[str, str]) -> None:
        """Open the run, below the experiment of its suite."""
        if self.tracker is None:
            return
        suite, body = self.record.suite, self.record.manifest
        code = body["environment"]["code"]
        run = self.tracker.start(
            suite.name,
            self.record.id,
            {"seed": suite.seed, "workers": body["workers"]},
            {
                "affinity.suite": suite.name,
                "affinity.run": self.record.id,
                "affinity.stage": "run",
                "affinity.code": str(code["version"]),
                "mlflow.source.name": f"affinity run {suite.name}",
                "mlflow.source.git.commit": str(code["commit"] or ""),
                **tags,
            },
            tracked.suite_note(suite),
        )
        body["mlflow"] = {
            "uri": self.tracker.uri,
            "run": run,
            "experiment": self.tracker.experiment,
        }

    def data(self) -> None:
        """Log the data that the manifest names."""
        if self.tracker is not None:
            self.tracker.log_data(self.record.manifest["data"])

    def trials(self, row: RowState, path: PathState) -> None:
        """Log the trials of a fitted path, one child run each."""
        if self.tracker is None or path.fitted is None:
            return
        suite = self.record.suite
        logs = tracked.trial_logs(
            suite,
            self.record.id,
            suite.problems[row.problem].title,
            row.entry,
            path.spec,
            self.store,
            path.ingested,
            path.fitted,
        )
        path.mlflow = [self.tracker.log_trial(log) for log in logs]

    def evaluation(self, row: RowState, position: int) -> None:
        """Log the test metrics of the chosen trial of a path."""
        evaluated = row.evaluated(position)
        if self.tracker is None or evaluated is None:
            return
        setting, ref = evaluated
        self.tracker.log_metrics(
            tracked.evaluation_metrics(self.store.open(ref)),
            {"affinity.selected": "true", "affinity.stage": "evaluate"},
            trial=row.paths[position].mlflow[setting],
        )

    def results(self) -> None:
        """Log the headlines, and what the run says of itself."""
        if self.tracker is not None:
            self.tracker.log_metrics(
                tracked.headline_metrics(self.record),
                {"mlflow.note.content": tracked.run_note(self.record)},
            )

    def end(self) -> str | None:
        """Close the run with the record's status; returns a sentence on what could not be logged."""
        if self.tracker is None:
            return None
        self.tracker.finish(_ENDED[self.record.status])
        return self.tracker.error
