"""Tag completion in the report: table, verdicts, paired tests, time, and curves across problems."""

from __future__ import annotations

from pipeline_lib.report.figures import bars
from pipeline_lib.report.paired import paired_section
from pipeline_lib.report.results_table import results_section, verdict_section
from pipeline_lib.report.sections import ProblemView, Section

_ONE_LINERS = ("CoOccurrence", "ItemCosine", "EASE")

_TAGS_ALONE = frozenset({"TCMR0", "Frequency", "LSA", "tKNN", "LDA", "LRES0", "pLSA"})

# The row of which the thesis claims something, its rivals where they are not all rows, the claim.
_CLAIMS: tuple[tuple[str, frozenset[str] | None, str], ...] = (
    (
        "TCMR0",
        _TAGS_ALONE,
        "The thesis claims that TCMR0 is better than Frequency, LSA, tKNN, LDA, LRES0 and pLSA, which "
        "use the tags alone as well.",
    ),
    (
        "TCMR",
        None,
        "The thesis claims that TCMR with its graph term is best, together with LSR (not among ours).",
    ),
    (
        "likelihood",
        None,
        "The thesis claims that the likelihood is the best of five losses (Table 4.4).",
    ),
    (
        "trace norm",
        None,
        "The thesis claims that the trace norm is far better than the two other norms (Table 4.3).",
    ),
)
_NOTES = {
    "completion": "Percent, on the hidden tags: AP@N share of hidden tags among the N best, AR@N share of "
    "the hidden tags found, C@N share of images with a hit.",
    "ranking": "Percent, against all tags initially assigned; observed tags are ranked with the others.",
    "refinement": "Percent, against the manual labels; observed tags are ranked with the others, images "
    "without a label are left out.",
    "recovery": "Overlap of the estimated with the true probabilities, 1 - |q - p|_1 / 2, mean over "
    "images. Parameters were chosen by the likelihood of draws held out.",
}


def sections(view: ProblemView) -> list[Section]:
    """Make the sections of a completion problem."""
    task = view.problem.options.get("task", "completion")
    percent = task != "recovery"
    cutoffs = view.problem.options.get("cutoffs", [1, 3, 5])
    metrics = [
        (f"{name}_at_{n}", f"{title}@{n}")
        for name, title in (("ap", "AP"), ("ar", "AR"), ("c", "C"))
        for n in cutoffs
    ]
    if task == "recovery":
        metrics = [("overlap", "overlap")]
    labels = set(view.results["label"])
    claims = [claim for claim in _CLAIMS if claim[0] in labels]
    drawn = bars(
        view.results["label"].to_list(),
        view.results["predict_seconds"].to_list(),
        xlabel="seconds to complete all images",
    )
    return [
        results_section(
            view,
            metrics,
            note=_NOTES[task],
            percent=percent,
            time=("predict_seconds", "seconds"),
        ),
        *(
            section
            for method, rivals, claim in claims
            for section in verdict_section(view, method, claim, rivals=rivals, percent=percent)
        ),
        *_simple_company(view),
        *paired_section(view, baseline=_baseline(labels), items="images"),
        Section("Time", f"<figure>{drawn}</figure>"),
    ]


def _baseline(labels: set[str]) -> str | None:
    """The thesis's row in the problem."""
    own = (*(claim[0] for claim in _CLAIMS), "TCMR-simplex")
    return next((label for label in own if label in labels), None)


def _simple_company(view: ProblemView) -> list[Section]:
    """Say plainly where the simplest methods of all stand against TCMR0."""
    values = dict(zip(view.results["label"], view.results["value"], strict=True))
    if "TCMR0" not in values:
        return []
    found = [
        f"{name} {100 * values[name]:.2f} ({100 * (values['TCMR0'] - values[name]):+.2f})"
        for name in _ONE_LINERS
        if name in values
    ]
    if not found:
        return []
    headline = view.problem.headline.replace("_", " ")
    better = [name for name in _ONE_LINERS if values.get(name, -1.0) > values["TCMR0"]]
    text = (
        f"Methods of one line that the thesis does not compare with, by {headline}, and what TCMR0 "
        f"({100 * values['TCMR0']:.2f}) adds to each: {', '.join(found)}. "
        f"{' and '.join(better) or 'None of them'} {'are' if len(better) > 1 else 'is'} better here."
    )
    return [Section("One-line methods", f"<p>{text}</p>")]
