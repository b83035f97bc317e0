"""What a comparison of engines says, in words.

An engine with marginals is judged by the labels it chooses node by node, against the exact ones chosen so; one
without by its labelling as a whole, against the exact whole one. A difference is noticed from half a point of
accuracy on, if it is also more than three standard errors.

Three answers are possible. The exact answer is no better than the others: what is wrong is wrong with the model. It
is better: the engines that lose are at fault. It is worse than some other answer, although no labels expect fewer
errors under the model than those of its exact marginals: then the model is wrong too. A labelling as a whole that has
fewer errors than the exact whole one proves nothing of the kind, since the best whole labelling need not have few.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from crfield.report.comparisons.inference import InferenceRow

_NOTICED = 0.005  # of accuracy
_ERRORS = 3.0


def verdict(rows: Sequence[InferenceRow], reference: str | None) -> str:
    """A few sentences on who is to blame; ``reference`` is the name of the exact row, if there is one."""
    shown = [row for row in rows if row.ran]
    if not shown:
        return "No engine could be run, so nothing can be said."
    exact = next((row for row in shown if row.name == reference), None)
    judged = any(_accuracy(row) is not None for row in shown)
    if exact is not None:
        return _against_exact(shown, exact) if judged else _marginals(shown, exact)
    said = _among_themselves(shown) if judged else "No exact engine could be run, and there is no truth given."
    return " ".join(filter(None, [said, _bounds(shown)]))


def _accuracy(row: InferenceRow) -> float | None:
    return row.mpm_accuracy if row.mpm_accuracy is not None else row.map_accuracy


def _against_exact(rows: Sequence[InferenceRow], exact: InferenceRow) -> str:
    right = 100 * (exact.mpm_accuracy or 0.0)
    said = f"Exact inference ({exact.name}) labels {right:.1f} % of the nodes right."
    others = [row for row in rows if row is not exact]
    losers = [(row.name, 100 * row.loss) for row in others if row.loss is not None and row.loss > _noticed(row)]
    winners = [
        (row.name, -100 * row.loss)
        for row in others
        if row.loss is not None and row.mpm_accuracy is not None and -row.loss > _noticed(row)
    ]
    if losers:
        said += f" Inference is at fault where it loses: {_list(losers)}."
    if winners:
        said += f" An inexact answer gains {_list(winners)}, so the model is at fault: it prefers a worse one."
    if not losers and not winners:
        beside = "no other engine does noticeably better or worse" if others else "better inference there is none"
        fault = (
            f"The other {100 - right:.1f} % are the fault of the model or of the data"
            if right < 100
            else "None is wrong"
        )
        said += f" {fault}: {beside}."
    if exact.map_accuracy is not None and abs(whole := right - 100 * exact.map_accuracy) > 100 * _NOTICED:
        said += (
            f" The best labelling as a whole (MAP) is {abs(whole):.1f} points {'worse' if whole > 0 else 'better'}."
        )
    return said


def _noticed(row: InferenceRow) -> float:
    return max(_NOTICED, _ERRORS * (row.loss_error or 0.0))


def _list(pairs: Sequence[tuple[str, float]]) -> str:
    parts = [f"{points:.1f} points with {name}" for name, points in sorted(pairs, key=lambda pair: -pair[1])]
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def _among_themselves(rows: Sequence[InferenceRow]) -> str:
    found = {row.name: share for row in rows if (share := _accuracy(row)) is not None}
    best, worst = max(found, key=found.__getitem__), min(found, key=found.__getitem__)
    said = f"No exact engine could be run. The best, {best}, labels {100 * found[best]:.1f} % of the nodes right"
    apart = found[best] - found[worst]
    if len(found) == 1:
        return f"{said}; with nothing beside it, model and inference cannot be told apart."
    if apart <= _NOTICED:
        return f"{said}, and no other is noticeably worse: the model is the likelier fault."
    return f"{said}, {100 * apart:.1f} points more than {worst}: inference matters, so judge the model by the best."


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
