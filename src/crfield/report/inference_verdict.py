"""What a comparison of engines says, in words.

An engine with marginals is judged by the labels it chooses node by node, against the exact ones chosen so; one
without by its labelling as a whole, against the exact whole one. Differences of half a point of accuracy, or of a
single node, are taken for none. Three answers are possible: the exact answer is no better than the others, so the
model is at fault; it is better, so inference is; it is worse, and then the model is too, since a better answer is not
the one that it prefers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from crfield.report.inference_comparison import InferenceRow

_POINTS = 0.5  # of accuracy


def verdict(rows: Sequence[InferenceRow], reference: str | None, *, n_judged: int) -> str:
    """A few sentences on who is to blame; ``reference`` is the name of the exact row, if there is one."""
    shown = [row for row in rows if row.ran]
    if not shown:
        return "No engine could be run, so nothing can be said."
    exact = next((row for row in shown if row.name == reference), None)
    if n_judged and exact is not None and exact.mpm_accuracy is not None:
        return _against_exact(shown, exact, tolerance=max(_POINTS, 150 / n_judged))
    if n_judged:
        return " ".join(filter(None, [_among_themselves(shown, max(_POINTS, 150 / n_judged)), _bounds(shown)]))
    if exact is not None:
        return _marginals(shown, exact)
    return " ".join(filter(None, ["No exact engine could be run, and there is no truth given.", _bounds(shown)]))


def _against_exact(rows: Sequence[InferenceRow], exact: InferenceRow, *, tolerance: float) -> str:
    right = 100 * (exact.mpm_accuracy or 0.0)
    said = f"Exact inference ({exact.name}) labels {right:.1f} % of the nodes right."
    losses = [(row.name, loss) for row in rows if row is not exact and (loss := _loss(row, exact)) is not None]
    losers = sorted((pair for pair in losses if pair[1] > tolerance), key=lambda pair: -pair[1])
    winners = sorted((pair for pair in losses if pair[1] < -tolerance), key=lambda pair: pair[1])
    if losers:
        said += f" Inference loses {_list([(name, loss) for name, loss in losers])}: there it is the inference."
    if winners:
        better = _list([(name, -loss) for name, loss in winners])
        said += f" An inexact answer gains {better}: the model prefers a worse one, so the model is at fault."
    if not losers and not winners:
        beside = "no inference could do better" if not losses else "no other engine is noticeably better or worse"
        said += f" The other {100 - right:.1f} % are the fault of the model (or of the data), as {beside}."
    if exact.map_accuracy is not None and abs(whole := right - 100 * exact.map_accuracy) > tolerance:
        said += (
            f" Its best labelling as a whole (MAP) is {abs(whole):.1f} points {'worse' if whole > 0 else 'better'}."
        )
    return said


def _loss(row: InferenceRow, exact: InferenceRow) -> float | None:
    """Points of accuracy that the engine loses against the exact answer to the same question."""
    if row.mpm_accuracy is not None and exact.mpm_accuracy is not None:
        return 100 * (exact.mpm_accuracy - row.mpm_accuracy)
    if row.map_accuracy is not None and exact.map_accuracy is not None:
        return 100 * (exact.map_accuracy - row.map_accuracy)
    return None


def _list(pairs: Sequence[tuple[str, float]]) -> str:
    parts = [f"{points:.1f} points with {name}" for name, points in pairs]
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def _among_themselves(rows: Sequence[InferenceRow], tolerance: float) -> str:
    found = {
        row.name: 100 * share for row in rows if (share := _share(row.mpm_accuracy, row.map_accuracy)) is not None
    }
    best, worst = max(found, key=found.__getitem__), min(found, key=found.__getitem__)
    said = f"No exact engine could be run. The best, {best}, labels {found[best]:.1f} % of the nodes right"
    apart = found[best] - found[worst]
    if len(found) == 1:
        return f"{said}; with nothing beside it, model and inference cannot be told apart."
    if apart <= tolerance:
        return f"{said}, and no other is noticeably worse: the model is the likelier fault."
    return f"{said}, {apart:.1f} points more than {worst}: the inference matters, so judge the model by the best."


def _share(mpm: float | None, best: float | None) -> float | None:
    return mpm if mpm is not None else best


def _bounds(rows: Sequence[InferenceRow]) -> str:
    lower = [row.total for row in rows if row.bound == "lower" and row.total is not None]
    upper = [row.total for row in rows if row.bound == "upper" and row.converged and row.total is not None]
    if not lower or not upper:
        return ""
    return f"log Z lies between {max(lower):.4f} and {min(upper):.4f}."


def _marginals(rows: Sequence[InferenceRow], exact: InferenceRow) -> str:
    errors = {row.name: row.mean_error for row in rows if row is not exact and row.mean_error is not None}
    if not errors:
        return f"Only exact inference ({exact.name}) gave marginals; there is nothing to compare them with."
    best, worst = min(errors, key=errors.__getitem__), max(errors, key=errors.__getitem__)
    said = f"Against exact inference ({exact.name}) the marginals of {best} are off by {errors[best]:.1e} on average"
    return f"{said}." if best == worst else f"{said}, those of {worst} by {errors[worst]:.1e}."
