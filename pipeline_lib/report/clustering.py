"""Image clustering in the report: tables over the numbers of classes, verdict, sweeps, convergence, time."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import polars as pl

from pipeline_lib.clustering.protocol import class_count
from pipeline_lib.report.figures import bars, lines
from pipeline_lib.report.paired import paired_section
from pipeline_lib.report.results_table import results_section, verdict_section
from pipeline_lib.report.sections import Column, ProblemView, Section, html_table

_PAPER_METHOD = "GraphSCAN"
_CLAIM = "The paper claims that GraphSCAN is best on average over the numbers of classes."
_METRICS = (("acc", "ACC"), ("nmi", "NMI"), ("ari", "ARI"))
_FEWEST_SWEPT = 4
_REPRODUCED = 5.0  # points within which a printed average counts as reproduced


def sections(view: ProblemView) -> list[Section]:
    """Make the sections of a clustering problem."""
    counts = {split: class_count(split) for split in view.problem.splits}
    by_class = {split: count for split, count in counts.items() if count is not None}
    overall = view
    if len(view.published):
        whole = [class_count(protocol) is None for protocol in view.published["protocol"]]
        overall = replace(view, published=view.published.filter(pl.Series(whole)))
    made = [results_section(overall, _METRICS, note=_note(view), percent=True)]
    several = view.results["items"].min() > 1  # type: ignore[operator]
    if several:
        made += verdict_section(view, _PAPER_METHOD, _CLAIM, percent=True)
    if len(by_class) > 1:
        made += _over_classes(view, by_class)
    made += _sweeps(view)
    if several:
        baseline = _PAPER_METHOD if _PAPER_METHOD in set(view.results["label"]) else None
        made += paired_section(view, baseline=baseline, items="class subsets")
    made += _histories(view)
    drawn = bars(
        view.results["label"].to_list(), view.results["fit_seconds"].to_list(), xlabel="seconds"
    )
    made.append(Section("Time to represent", f"<figure>{drawn}</figure>"))
    return made


def _note(view: ProblemView) -> str:
    """What the numbers are, and which of them have seen the labels."""
    drawn = [split for split in view.problem.splits if class_count(split) is not None]
    sentences = ["Percent. NMI divides by the larger entropy; accuracy by optimal matching."]
    if len(drawn) > 1:
        sentences.append(
            f"Averages over {drawn[0]} to {drawn[-1]}, every number with its own random subsets."
        )
    tuned, carried, fixed = [], [], []
    for entry in view.problem.methods:
        place = (entry.winners_of or "").rpartition("/")[0]
        if place:
            carried.append(f"{entry.row} ({place})")
        elif entry.winners_of:
            carried.append(f"{entry.row} ({entry.winners_of})")
        elif any(len(values) > 1 for values in entry.grid.values()):
            tuned.append(entry.row)
        elif entry.params:
            fixed.append(entry.row)
    if tuned:
        sentences.append(
            "Tuned on the class labels they are scored by, as the papers do, so reach rather than a "
            f"fair choice: {', '.join(tuned)}."
        )
    if carried:
        sentences.append(f"At settings chosen in another problem or row: {', '.join(carried)}.")
    if fixed:
        sentences.append(f"At settings fixed beforehand: {', '.join(fixed)}.")
    return " ".join(sentences)


def _over_classes(view: ProblemView, counts: Mapping[str, int]) -> list[Section]:
    """One table and one curve a metric: methods against numbers of classes, published rows below."""
    ordered = sorted(counts, key=lambda split: counts[split])
    means = view.per_item.group_by("label", "split").agg(
        *(pl.col(key).mean() * 100.0 for key, _ in _METRICS)
    )
    labels = view.results["label"].to_list()
    made = []
    for key, name in _METRICS[:2]:
        own: dict[str, dict[str, float]] = {label: {} for label in labels}
        for row in means.iter_rows(named=True):
            own[row["label"]][row["split"]] = row[key]
        rows: list[dict[str, object]] = [
            {"label": label, **values, "mean": sum(values.values()) / max(len(values), 1)}
            for label, values in own.items()
        ]
        classes = {}
        for method, printed in _printed(view, key):
            classes[len(rows)] = "published"
            rows.append({"label": f"{method}, published", **printed})
        apart = _apart(rows)
        columns = [
            Column("label", "method"),
            *(Column(split, str(counts[split]), 2, best=True) for split in ordered),
            Column("mean", "mean", 2, best=True),
        ]
        body = html_table(rows, columns, classes=classes)
        if len(ordered) > 2:
            places = [counts[split] for split in ordered]
            series = {
                label: [v.get(split, float("nan")) for split in ordered] for label, v in own.items()
            }
            drawn = lines(places, series, xlabel="number of classes", ylabel=f"{name}, %")
            body += f"<figure>{drawn}</figure>"
        made.append(Section(f"{name} by number of classes", body, apart))
    return made


def _apart(rows: Sequence[Mapping[str, object]]) -> str:
    """Say which printed averages do not reproduce."""
    means = {str(row["label"]): row.get("mean") for row in rows}
    found = []
    for label, own in means.items():
        printed = means.get(f"{label}, published")
        if (
            isinstance(own, float)
            and isinstance(printed, float)
            and abs(own - printed) > _REPRODUCED
        ):
            found.append(f"{label} ({own:.2f} here, {printed:.2f} printed)")
    if not found:
        return ""
    return f"Averages that differ from the printed ones by more than {_REPRODUCED:g} points: " + (
        f"{', '.join(found)}."
    )


def _printed(view: ProblemView, metric: str) -> Iterator[tuple[str, dict[str, float]]]:
    """Published values of each method by split, and their printed average."""
    if not len(view.published):
        return
    own = view.published.filter(pl.col("metric") == metric)
    for (method,), part in own.group_by("method", maintain_order=True):
        values = dict(zip(part["protocol"], part["value"], strict=True))
        average = values.pop("average over C", None)
        yield str(method), {**values, **({} if average is None else {"mean": average})}


def _sweeps(view: ProblemView) -> list[Section]:
    """NMI and ACC along every parameter that some row walks through; other rows stay level."""
    if not {"vali_nmi", "vali_acc"} <= set(view.trials.columns):
        return []
    done = view.trials.filter(pl.col("vali_nmi").is_not_null())
    walked = {entry.row: _walked(entry.grid) for entry in view.problem.methods}
    made = []
    for name in dict.fromkeys(value for value in walked.values() if value):
        points = sorted(
            {float(v) for e in view.problem.methods if walked[e.row] == name for v in e.grid[name]}
        )
        for key, title in (("vali_nmi", "NMI"), ("vali_acc", "ACC")):
            series: dict[str, list[float]] = {}
            for (label,), part in done.group_by("label", maintain_order=True):
                swept = walked.get(str(label)) == name
                values: dict[float | None, list[float]] = {}
                for text, value in part.select("params", key).iter_rows():
                    at = float(json.loads(text)[name]) if swept else None
                    values.setdefault(at, []).append(100.0 * value)
                series[str(label)] = [
                    _mean(values.get(point if swept else None, [])) for point in points
                ]
            wide = points[0] > 0.0 and points[-1] > 20.0 * points[0]
            drawn = lines(points, series, xlabel=name, ylabel=f"{title}, %", log_x=wide)
            made.append(Section(f"{title} against {name}", f"<figure>{drawn}</figure>"))
    return made


def _mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else float("nan")


def _walked(grid: Mapping[str, list[object]]) -> str | None:
    """The one numeric parameter a grid walks through in at least four steps."""
    many = [name for name, values in grid.items() if len(values) > 1]
    if len(many) != 1 or len(grid[many[0]]) < _FEWEST_SWEPT:
        return None
    numeric = all(isinstance(v, int | float) for v in grid[many[0]])
    return many[0] if numeric else None


def _histories(view: ProblemView) -> list[Section]:
    if not len(view.history):
        return []
    last = max(view.problem.splits, key=lambda split: class_count(split) or 0)
    first = view.history.filter(
        (pl.col("key") == "objective")
        & (pl.col("repetition") == 0)
        & (pl.col("split") == last)
        & (pl.col("value") > 0)
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
    note = f"Of the chosen setting, on {last}." if class_count(last) else "Of the chosen setting."
    return [Section("Objective", f"<figure>{drawn}</figure>", note)]
