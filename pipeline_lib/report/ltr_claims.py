"""What the paper claims of kernel approximations, beside what the rows of a problem show."""

from __future__ import annotations

import html
import json
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pipeline_lib.metrics.significance import compare
from pipeline_lib.report.ltr_curves import Curve, curves
from pipeline_lib.report.paired import item_means
from pipeline_lib.report.sections import ProblemView, Section

_TABLE_METRICS = ("ndcg_at_1", "ndcg_at_3", "ndcg_at_5", "ndcg_at_10", "mean_ndcg", "map")
_APPROXIMATIONS = ("RankNystroem", "RankRandomFourier")
_RESAMPLES = 2_000  # p to two decimals is all that is shown
_NOTE = (
    "Means decide; p is that of a paired randomisation test over the test queries. A claim about a mean "
    "difference with p above .05 is neither confirmed nor refuted by so many queries."
)

Row = dict[str, object]


@dataclass(frozen=True)
class _Claim:
    """A claim, whether the means agree with it, and the numbers."""

    text: str
    held: bool
    found: str


def claims_section(view: ProblemView) -> list[Section]:
    """Make the section; empty when the rows bear on no claim."""
    found = [*_about_curves(view), *_about_the_exact_kernel(view), *_about_the_others(view)]
    if not found:
        return []
    body = "".join(
        f"<p>{html.escape(c.text)} <strong>{'Here as well' if c.held else 'Not here'}:</strong> "
        f"{html.escape(c.found)}.</p>"
        for c in found
    )
    return [Section("The paper's claims", body, _NOTE)]


def _about_curves(view: ProblemView) -> list[_Claim]:
    by_method = {curve.method: curve for curve in curves(view)}
    if not all(method in by_method for method in _APPROXIMATIONS):
        return []
    nystroem, fourier = (by_method[method] for method in _APPROXIMATIONS)
    metric = view.problem.headline
    claims = []
    linear = _first(view, "RankSVM")
    if linear is not None:
        level = _value(linear, metric)
        first = [curve.values(metric)[0] for curve in (nystroem, fourier)]
        last = [curve.values(metric)[-1] for curve in (nystroem, fourier)]
        tested = ", ".join(
            f"{curve.method} {_value(curve.rows[-1], metric):.4f}{_p(view, curve.rows[-1], linear, metric)}"
            for curve in (nystroem, fourier)
        )
        claims.append(
            _Claim(
                "With few features the approximations rank worse than linear RankSVM, with many better.",
                max(first) < level < min(last),
                f"linear {level:.4f}; at m = {nystroem.m[0]:,} {first[0]:.4f} and {first[1]:.4f}; "
                f"at m = {nystroem.m[-1]:,} {tested}",
            )
        )
    small = (nystroem.values(metric)[0], fourier.values(metric)[0])
    large = (nystroem.values(metric)[-1], fourier.values(metric)[-1])
    p = _p_value(view, nystroem.rows[-1], fourier.rows[-1], metric)
    claims.append(
        _Claim(
            "With few features RankNystroem ranks better than RankRandomFourier, with many they are alike.",
            small[0] > small[1] and abs(large[0] - large[1]) < abs(small[0] - small[1]),
            f"difference {small[0] - small[1]:+.4f} at m = {nystroem.m[0]:,}, "
            f"{large[0] - large[1]:+.4f} at m = {nystroem.m[-1]:,} (p = {p:.2f})",
        )
    )
    claims += _about_errors(nystroem, fourier)
    return claims


def _about_errors(nystroem: Curve, fourier: Curve) -> list[_Claim]:
    errors = [np.array(curve.values("kernel_error")) for curve in (nystroem, fourier)]
    common = sorted(set(nystroem.m) & set(fourier.m))
    if not all(np.isfinite(e).all() and (e > 0).all() for e in errors) or len(common) < 3:
        return []
    at = [[list(c.m).index(m) for m in common] for c in (nystroem, fourier)]
    smaller = errors[0][at[0]] < errors[1][at[1]]
    slopes = [
        float(np.polyfit(np.log(c.m), np.log(e), 1)[0]) for c, e in zip((nystroem, fourier), errors)
    ]
    return [
        _Claim(
            "The Nystroem method approximates the kernel better than random Fourier features.",
            bool(smaller.all()),
            f"smaller error at {int(smaller.sum())} of {len(common)} values of m; at m = {common[-1]:,} "
            f"{errors[0][at[0][-1]]:.1e} against {errors[1][at[1][-1]]:.1e}",
        ),
        _Claim(
            "The error of random Fourier features falls as 1/√m; that of the Nystroem method depends on the data.",
            abs(slopes[1] + 0.5) < 0.1,
            f"fitted: m^{slopes[1]:.2f} for Fourier features, m^{slopes[0]:.2f} for Nystroem",
        ),
    ]


def _about_the_exact_kernel(view: ProblemView) -> list[_Claim]:
    exact, linear = _first(view, "KernelRankSVM"), _first(view, "RankSVM")
    best = [row for row in (_largest(view, method) for method in _APPROXIMATIONS) if row]
    if exact is None or linear is None or len(best) < 2:
        return []
    metric = view.problem.headline
    level, seconds = _value(exact, metric), _value(exact, "fit_seconds")
    claims = [
        _Claim(
            "Linear RankSVM takes less time than the exact kernel and ranks worse.",
            _value(linear, metric) < level and _value(linear, "fit_seconds") < seconds,
            f"{_value(linear, metric):.4f} in {_value(linear, 'fit_seconds'):.2g} s against {level:.4f} in "
            f"{seconds:.2g} s{_p(view, linear, exact, metric)}",
        ),
        _Claim(
            "The approximations take less time than the exact kernel and rank better.",
            all(_value(r, metric) > level and _value(r, "fit_seconds") < seconds for r in best),
            "; ".join(
                f"{row['label']} {_value(row, metric):.4f} in {_value(row, 'fit_seconds'):.2g} s"
                f"{_p(view, row, exact, metric)}"
                for row in best
            ),
        ),
        _Claim(
            "RankRandomFourier ranks slightly better than RankNystroem.",
            _value(best[1], metric) > _value(best[0], metric),
            f"{_value(best[1], metric):.4f} against {_value(best[0], metric):.4f}"
            f"{_p(view, best[1], best[0], metric)}",
        ),
    ]
    hinge = _first(view, "RankSVM", loss="hinge")
    if hinge is not None:
        claims.append(
            _Claim(
                "The squared hinge ranks better than the hinge.",
                _value(linear, metric) > _value(hinge, metric),
                f"{_value(linear, metric):.4f} against {_value(hinge, metric):.4f}"
                f"{_p(view, linear, hinge, metric)}",
            )
        )
    return claims


def _about_the_others(view: ProblemView) -> list[_Claim]:
    """Tables 3 to 5: the approximations have the best value of several metrics of all rankers."""
    rows = _rows(view)
    ours = [row for row in (_largest(view, method) for method in _APPROXIMATIONS) if row]
    if not any(row["method"] == "ListNet" for row in rows) or len(ours) < 2:
        return []
    others = [row for row in rows if row["method"] not in _APPROXIMATIONS]
    metrics = [name for name in _TABLE_METRICS if all(row.get(name) is not None for row in rows)]
    best = {name: _best([*ours, *others], name) for name in metrics}
    won = [name for name, row in best.items() if row in ours]
    return [
        _Claim(
            "Among all rankers the approximations have the best value of three or more of six metrics.",
            len(won) >= 3,
            f"{len(won)} of {len(metrics)}; best: "
            + ", ".join(f"{name} {row['label']}" for name, row in best.items()),
        )
    ]


def _rows(view: ProblemView) -> list[Row]:
    return list(view.definition(str(view.results["definition"][0])).iter_rows(named=True))


def _params(row: Row) -> dict[str, object]:
    try:
        found: dict[str, object] = json.loads(str(row["params"]))
    except ValueError:
        return {}
    return found


def _first(view: ProblemView, method: str, *, loss: str = "squared_hinge") -> Row | None:
    for row in _rows(view):
        if row["method"] == method and _params(row).get("loss", "squared_hinge") == loss:
            return row
    return None


def _largest(view: ProblemView, method: str) -> Row | None:
    """The method's first row with its largest number of features."""
    rows = [row for row in _rows(view) if row["method"] == method]
    sizes = [float(str(_params(row).get("n_components", 0))) for row in rows]
    return rows[sizes.index(max(sizes))] if rows else None


def _best(rows: Sequence[Row], metric: str) -> Row:
    return max(rows, key=lambda row: _value(row, metric))


def _value(row: Row, name: str) -> float:
    return float("nan") if row[name] is None else float(str(row[name]))


def _p_value(view: ProblemView, a: Row, b: Row, metric: str) -> float:
    frames = item_means(view, metric, str(view.results["definition"][0]))
    one, other = frames[str(a["label"])], frames[str(b["label"])]
    return compare(one, other, metric, n_resamples=_RESAMPLES).p_randomisation


def _p(view: ProblemView, a: Row, b: Row, metric: str) -> str:
    return f" (p = {_p_value(view, a, b, metric):.2f})"
