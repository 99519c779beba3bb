"""Image retrieval in the report: table with published rows, paired tests, precision curve, time."""

from __future__ import annotations

from pipeline_lib.report.figures import bars, lines
from pipeline_lib.report.paired import paired_section
from pipeline_lib.report.results_table import results_section, verdict_section
from pipeline_lib.report.sections import ProblemView, Section

_PAPER_METHOD = "RAN"
_CLAIM = "The paper claims that RAN is best in every column."


def sections(view: ProblemView) -> list[Section]:
    """Make the sections of a retrieval problem."""
    made = [_table(view), *verdict_section(view, _PAPER_METHOD, _CLAIM, percent=True)]
    baseline = _PAPER_METHOD if _PAPER_METHOD in set(view.results["label"]) else None
    made += paired_section(view, baseline=baseline, items="queries")
    made += _curves(view)
    made.append(_time(view))
    return made


def _table(view: ProblemView) -> Section:
    options = view.problem.options
    metrics = [
        column
        for k in options["cutoffs"]
        for column in ((f"p_at_{k}", f"P@{k}"), (f"recall_at_{k}", f"R@{k}"))
    ]
    counted = "counted" if options.get("count_query", True) else "not counted"
    note = f"Percent. The query itself is {counted} as retrieved and relevant. " + (
        "Parameters chosen on one half of the queries, reported on the other."
        if options.get("protocol") == "tuned"
        else "Parameters fixed beforehand; every image is a query."
    )
    return results_section(
        view,
        [*metrics, ("map", "MAP")],
        note=note,
        percent=True,
        time=("predict_seconds", "ranking, s"),
    )


def _curves(view: ProblemView) -> list[Section]:
    cutoffs = [int(k) for k in view.problem.options["cutoffs"]]
    if len(cutoffs) < 3:
        return []
    series = {
        str(row["label"]): [100 * float(row[f"p_at_{k}"]) for k in cutoffs]
        for row in view.results.iter_rows(named=True)
    }
    drawn = lines(cutoffs, series, xlabel="K", ylabel="P@K, %")
    return [Section("Precision against K", f"<figure>{drawn}</figure>")]


def _time(view: ProblemView) -> Section:
    drawn = bars(
        view.results["label"].to_list(),
        view.results["predict_seconds"].to_list(),
        xlabel="seconds for all test queries, graph given",
        log=True,
    )
    return Section("Time to rank", f"<figure>{drawn}</figure>")
