"""Image retrieval in the report: table with published rows, verdict, paired tests, curves, time."""

from __future__ import annotations

import html
import json
from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl

from pipeline_lib.report.figures import bars, lines
from pipeline_lib.report.paired import paired_section, paired_table
from pipeline_lib.report.results_table import results_section
from pipeline_lib.report.retrieval_pictures import pictures
from pipeline_lib.report.sections import Column, ProblemView, Section, html_table

_PAPER_METHOD = "RAN"
_PAPER_BASELINES = (
    "Euclidean",
    "SelfDiffusion",
    "PersonalizedPageRank",
    "ManifoldRanking",
    "GraphTransduction",
)
_CLAIM = "The paper claims that RAN is best in every column of its table."
_LEVEL = 0.05
_MOST_CHOICES = 3


def sections(view: ProblemView) -> list[Section]:
    """Make the sections of a retrieval problem."""
    made = [_table(view), *pictures(view), *_verdict(view)]
    baseline = _PAPER_METHOD if _PAPER_METHOD in set(view.results["label"]) else None
    per_draw = _drawn_anew(view)
    items = "draws of the database" if per_draw else "queries"
    made += paired_section(view, baseline=baseline, items=items, per_draw=per_draw)
    made += [*_choices(view), *_precision_curves(view), *_neighbor_curves(view)]
    made += [*_unreached(view), _time(view)]
    return made


def _drawn_anew(view: ProblemView) -> bool:
    return view.problem.options.get("rows_per_class") is not None and view.problem.repetitions > 1


def _table(view: ProblemView) -> Section:
    precisions = [f"p_at_{k}" for k in view.problem.options["cutoffs"]]
    headline = view.problem.headline
    # Recall is precision times K over the size of the class: one column of it is enough.
    last = headline if headline in precisions else precisions[-1]
    metrics = [*precisions, last.replace("p_at_", "recall_at_")]
    return results_section(
        view,
        [*((metric, _title(metric)) for metric in metrics), ("map", "MAP")],
        note=" ".join(_protocol(view)),
        percent=True,
        time=("predict_seconds", "ranking, s"),
    )


def _protocol(view: ProblemView) -> list[str]:
    """What was measured, sentence by sentence."""
    options = view.problem.options
    counted = "counted" if options.get("count_query", True) else "not counted"
    said = [f"Percent. The query itself is {counted} as retrieved and relevant."]
    if options.get("rows_per_class"):
        draws = "One draw" if view.problem.repetitions == 1 else f"{view.problem.repetitions} draws"
        said.append(f"{draws} of {options['rows_per_class']} images a class.")
    asked = options.get("queries")
    queries = "every image is a query" if asked is None else f"{asked} images drawn are the queries"
    if options.get("protocol") == "tuned":
        said.append(
            f"Parameters chosen on one half of the queries, reported on the other ({queries})."
        )
    else:
        said.append(f"Parameters fixed beforehand; {queries}.")
    recall = (
        view.results["neighbor_recall"][0] if "neighbor_recall" in view.results.columns else None
    )
    if recall is not None:
        said.append(
            f"Neighbours by approximate search, which finds {100 * recall:.2f} % of the true ones "
            "(measured on a sample)."
        )
    return said


def _verdict(view: ProblemView) -> list[Section]:
    """Say plainly whether RAN is best here, as the paper claims, and what chance has to do with it."""
    if len(view.pictures):
        return []  # there the claim is another one, and stands beside the pictures
    if _PAPER_METHOD not in set(view.results["label"]):
        return []
    tests = paired_table(view, baseline=_PAPER_METHOD, per_draw=_drawn_anew(view))
    if not len(tests):
        return []
    method_of = dict(view.results.select("label", "method").iter_rows())
    of_paper = {label for label, method in method_of.items() if method in _PAPER_BASELINES}
    rivals = tests.filter(pl.col("method").is_in(of_paper))
    others = tests.filter(~pl.col("method").is_in(of_paper))
    own = 100 * float(view.results.filter(pl.col("label") == _PAPER_METHOD)["value"][0])
    said = [_CLAIM]
    if len(rivals):
        said.append(_judgement(rivals))
        said.append(f"By {_title(view.problem.headline)}, RAN has {own:.2f}.")
        said.append(f"The paper's baselines – {_placed(rivals)}.")
    if len(others):
        said.append(f"Rows beyond the paper – {_placed(others)}.")
    note = (
        f"Better and worse: Holm-corrected paired randomisation test at {100 * _LEVEL:.0f} %, the "
        "table below."
    )
    items = int(tests["n_items"][0])
    if len(tests) * 2.0 ** (1 - items) > _LEVEL:
        note += f" {items} draws are too few for this test to tell anything apart: look at the intervals."
    return [Section("Verdict", f"<p>{' '.join(said)}</p>", note)]


def _title(metric: str) -> str:
    """Name of a metric for people: ``P@15``, ``R@15``, ``MAP``."""
    return metric.replace("recall_at_", "R@").replace("p_at_", "P@").replace("map", "MAP")


def _judgement(rivals: pl.DataFrame) -> str:
    real = pl.col("p_randomisation_holm") < _LEVEL
    if len(rivals.filter(real & (pl.col("effect") > 0))):
        return "Here it does <strong>not hold</strong>: a baseline is better by more than chance."
    if len(rivals.filter(~real)):
        first = "" if len(rivals.filter(pl.col("effect") > 0)) else ", though it comes first"
        return f"Here it is <strong>not confirmed</strong>: RAN cannot be told apart from every baseline{first}."
    return "Here it <strong>holds</strong>: RAN is above every baseline by more than chance."


def _placed(tests: pl.DataFrame) -> str:
    real = pl.col("p_randomisation_holm") < _LEVEL
    groups = (
        ("better", real & (pl.col("effect") > 0)),
        ("not to be told apart", ~real),
        ("worse", real & (pl.col("effect") < 0)),
    )
    parts = []
    for name, condition in groups:
        rows = tests.filter(condition).sort("mean_a", descending=True)
        if len(rows):
            listed = ", ".join(
                f"{html.escape(label)} ({100 * mean:.2f})"
                for label, mean in rows.select("method", "mean_a").iter_rows()
            )
            parts.append(f"{name}: {listed}")
    return "; ".join(parts)


def _choices(view: ProblemView) -> list[Section]:
    """The settings that draws chose for themselves, and how often."""
    if not _drawn_anew(view) or view.problem.selection is None:
        return []
    if view.problem.selection.scope != "split":
        return []
    chosen = view.trials.filter(pl.col("selected"))
    rows = []
    for (label,), part in chosen.group_by("label", maintain_order=True):
        counts = part["params"].value_counts(sort=True, name="draws").head(_MOST_CHOICES)
        settings = [json.loads(text) for text in part["params"].unique()]
        varied = [k for k in settings[0] if len({str(s.get(k)) for s in settings}) > 1]
        said = [
            ", ".join(f"{k} = {json.loads(text)[k]}" for k in varied) + f" ({draws})"
            for text, draws in counts.iter_rows()
        ]
        if varied:
            rows.append({"label": label, "settings": "; ".join(said), "different": len(settings)})
    if not rows:
        return []
    columns = [
        Column("label", "method"),
        Column("different", "different settings", 0),
        Column("settings", f"the {_MOST_CHOICES} most frequent (draws)"),
    ]
    return [Section("What the draws chose", html_table(rows, columns))]


def _precision_curves(view: ProblemView) -> list[Section]:
    cutoffs = [int(k) for k in view.problem.options["cutoffs"]]
    if len(cutoffs) < 3:
        return []
    series = {
        str(row["label"]): [100 * float(row[f"p_at_{k}"]) for k in cutoffs]
        for row in view.results.iter_rows(named=True)
    }
    drawn = lines(cutoffs, series, xlabel="K", ylabel="P@K, %")
    return [Section("Precision against K", f"<figure>{drawn}</figure>")]


def _neighbor_curves(view: ProblemView) -> list[Section]:
    """Validation values against k, for every method that was walked over several."""
    selection = view.problem.selection
    if selection is None or f"vali_{selection.metric}" not in view.trials.columns:
        return []
    curves = {
        str(label): curve
        for (label,), part in view.trials.group_by("label", maintain_order=True)
        if len(curve := _best_by_k(part, f"vali_{selection.metric}")) > 2
    }
    if not curves:
        return []
    ks = sorted(set().union(*curves.values()))
    series: Mapping[str, Sequence[float]] = {
        label: [100 * curve.get(k, np.nan) for k in ks] for label, curve in curves.items()
    }
    name = _title(selection.metric)
    drawn = lines(ks, series, xlabel="neighbours k", ylabel=f"validation {name}, %")
    best = ", ".join(f"{label} at {max(c, key=lambda k: c[k]):g}" for label, c in curves.items())
    note = (
        f"Best k: {best}. Means over the validation queries; where other parameters were varied as "
        "well, the best of them for each k."
    )
    return [Section("Number of neighbours", f"<figure>{drawn}</figure>", note)]


def _best_by_k(trials: pl.DataFrame, metric: str) -> dict[float, float]:
    means = trials.group_by("params").agg(pl.col(metric).mean()).drop_nulls()
    best: dict[float, float] = {}
    for params, value in means.iter_rows():
        k = json.loads(params).get("n_neighbors")
        if k is not None:
            best[k] = max(value, best.get(k, value))
    return best


def _unreached(view: ProblemView) -> list[Section]:
    if "unreached" not in view.per_item.columns:
        return []
    counted = (
        view.per_item.filter(pl.col("unreached").is_not_null())
        .group_by("label", maintain_order=True)
        .agg(
            pl.col("unreached").mean().alias("mean"),
            pl.col("unreached").max().alias("most"),
            (100 * (pl.col("unreached") > 0).mean()).alias("share"),
        )
    )
    if not len(counted):
        return []
    columns = [
        Column("label", "method"),
        Column("mean", "points a query, mean", 1),
        Column("most", "most", 0),
        Column("share", "% of queries with any", 1),
    ]
    note = (
        "Points with score 0: no path of the graph, or none within the method's steps, leads to them "
        "from the query. They rank last, by Euclidean distance."
    )
    return [Section("Unreached points", html_table(counted.to_dicts(), columns), note)]


def _time(view: ProblemView) -> Section:
    drawn = bars(
        view.results["label"].to_list(),
        view.results["predict_seconds"].to_list(),
        xlabel="seconds for all test queries, graph given",
    )
    return Section("Time to rank", f"<figure>{drawn}</figure>")
