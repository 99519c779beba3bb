"""Image annotation in the report: table, verdict, paired tests, precision curve, time."""

from __future__ import annotations

from pipeline_lib.report.figures import bars, lines
from pipeline_lib.report.paired import paired_section
from pipeline_lib.report.results_table import results_section, verdict_section
from pipeline_lib.report.sections import ProblemView, Section

_PAPER_METHOD = "RKML"
_CLAIM = "The thesis claims that RKML is better than the distance metrics and annotation models it compares."


def sections(view: ProblemView) -> list[Section]:
    """Make the sections of an annotation problem."""
    cutoffs = [int(t) for t in view.problem.options.get("cutoffs", [1, 2, 3, 4, 5])]
    metrics = [
        *((f"ap_at_{t}", f"AP@{t}") for t in cutoffs),
        (f"ar_at_{cutoffs[-1]}", f"AR@{cutoffs[-1]}"),
        ("tag_precision", "P per tag"),
        ("tag_recall", "R per tag"),
    ]
    note = (
        "Percent, over test images with at least one tag; P and R per tag are means over tags when "
        "every image gets a fixed number of tags. Parameters by held-out training images."
    )
    baseline = _PAPER_METHOD if _PAPER_METHOD in set(view.results["label"]) else None
    series = {
        str(row["label"]): [100 * float(row[f"ap_at_{t}"]) for t in cutoffs]
        for row in view.results.iter_rows(named=True)
    }
    made = [
        results_section(
            view, metrics, note=note, percent=True, time=("predict_seconds", "annotating, s")
        ),
        *verdict_section(view, _PAPER_METHOD, _CLAIM, percent=True),
        *paired_section(view, baseline=baseline, items="images"),
    ]
    if len(cutoffs) >= 3:
        drawn = lines(cutoffs, series, xlabel="t", ylabel="AP@t, %")
        made.append(Section("Precision against the number of tags", f"<figure>{drawn}</figure>"))
    drawn = bars(
        view.results["label"].to_list(),
        view.results["predict_seconds"].to_list(),
        xlabel="seconds to annotate the test images",
        log=True,
    )
    made.append(Section("Time", f"<figure>{drawn}</figure>"))
    return made
