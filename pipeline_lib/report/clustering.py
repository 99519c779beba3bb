"""Image clustering in the report: table with published rows, verdict, objective histories, time."""

from __future__ import annotations

import polars as pl

from pipeline_lib.report.figures import bars, lines
from pipeline_lib.report.paired import paired_section
from pipeline_lib.report.results_table import results_section, verdict_section
from pipeline_lib.report.sections import ProblemView, Section

_PAPER_METHOD = "GraphSCAN"
_CLAIM = "The paper claims that GraphSCAN is best on average over the numbers of classes."


def sections(view: ProblemView) -> list[Section]:
    """Make the sections of a clustering problem."""
    note = "Percent. NMI divides by the larger entropy; accuracy by optimal matching. " + (
        "Parameters were chosen by the class labels, as the papers do: reach, not a fair choice."
        if view.problem.selection
        else "Parameters were fixed beforehand."
    )
    made = [
        results_section(
            view, [("acc", "ACC"), ("nmi", "NMI"), ("ari", "ARI")], note=note, percent=True
        ),
        *verdict_section(view, _PAPER_METHOD, _CLAIM, percent=True),
    ]
    if view.results["items"].min() > 1:  # type: ignore[operator]
        baseline = _PAPER_METHOD if _PAPER_METHOD in set(view.results["label"]) else None
        made += paired_section(view, baseline=baseline, items="class subsets")
    made += _histories(view)
    drawn = bars(
        view.results["label"].to_list(),
        view.results["fit_seconds"].to_list(),
        xlabel="seconds",
        log=True,
    )
    made.append(Section("Time to represent", f"<figure>{drawn}</figure>"))
    return made


def _histories(view: ProblemView) -> list[Section]:
    if not len(view.history):
        return []
    first = view.history.filter(
        (pl.col("key") == "objective") & (pl.col("repetition") == 0) & (pl.col("value") > 0)
    )
    series = {
        str(label): part.sort("iteration")["value"].to_list()
        for (label,), part in first.group_by("label", maintain_order=True)
    }
    if not series:
        return []
    longest = max(len(values) for values in series.values())
    padded = {
        label: values + [float("nan")] * (longest - len(values)) for label, values in series.items()
    }
    drawn = lines(
        range(1, longest + 1), padded, xlabel="outer iteration", ylabel="objective", log_y=True
    )
    return [Section("Objective", f"<figure>{drawn}</figure>")]
