"""Tag completion in the report: table, verdict, paired tests, time."""

from __future__ import annotations

from pipeline_lib.report.figures import bars
from pipeline_lib.report.paired import paired_section
from pipeline_lib.report.results_table import results_section, verdict_section
from pipeline_lib.report.sections import ProblemView, Section

_PAPER_METHOD = "TCMR0"
_CLAIM = "The thesis claims that TCMR is better than every other method that uses the tags alone."


def sections(view: ProblemView) -> list[Section]:
    """Make the sections of a completion problem."""
    cutoffs = view.problem.options.get("cutoffs", [1, 3, 5])
    metrics = [
        (f"{name}_at_{n}", f"{title}@{n}")
        for name, title in (("ap", "AP"), ("ar", "AR"), ("c", "C"))
        for n in cutoffs
    ]
    note = (
        "Percent, on the hidden tags: AP@N share of hidden tags among the N best, AR@N share of the "
        "hidden tags found, C@N share of images with a hit."
    )
    baseline = _PAPER_METHOD if _PAPER_METHOD in set(view.results["label"]) else None
    drawn = bars(
        view.results["label"].to_list(),
        view.results["predict_seconds"].to_list(),
        xlabel="seconds to complete all images",
        log=True,
    )
    return [
        results_section(
            view, metrics, note=note, percent=True, time=("predict_seconds", "seconds")
        ),
        *verdict_section(view, _PAPER_METHOD, _CLAIM, percent=True),
        *paired_section(view, baseline=baseline, items="images"),
        Section("Time", f"<figure>{drawn}</figure>"),
    ]
