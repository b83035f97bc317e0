"""Grafting: the candidate with the steepest slope enters, the model is fitted again, and so on.

At the present model every candidate that is not in it has the weight 0, and |∂ loss / ∂ w_k| says how fast the loss
would fall if it entered (Perkins, Lacker & Theiler 2003, *Grafting: fast, incremental feature selection by gradient
descent in function space*). A round scores all candidates, takes the ``m`` steepest and fits all weights:

    objective = loss + l0 · (number of features) + l1 Σ |w| + ½ l2 Σ w²

With l1 only slopes above l1 can pay, and when there are none the model is optimal over all candidates; weights that
return to zero leave. With l0 a round must lower the rest of the objective by l0 for each feature that entered, or the
selection ends before it. Otherwise it ends after ``max_features``, when the held-out score has not improved for
``patience`` rounds, or when no candidate has a slope.

Larger m is cheaper and gives larger models: neighbouring thresholds of one family have nearly the same slope, and all
of them enter at once. ``max_correlation`` below 1 passes over a candidate whose column is that close to one which is
entering in the same round.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from crfield.core.checks import integer, number
from crfield.selection.path import SelectionPath, SelectionRound
from crfield.selection.problem import SelectionModel, SelectionProblem
from crfield.selection.record import Recorder

Watch = Callable[[SelectionRound], bool | None]
LOOKED_AT = 16  # candidates for each place, where correlated ones are passed over


def graft(
    problem: SelectionProblem,
    *,
    m: int = 1,
    l0: float = 0.0,
    l1: float = 0.0,
    l2: float = 0.01,
    max_features: int = 200,
    patience: int | None = 20,
    criterion: str = "error",
    tol: float = 1e-5,
    max_iter: int = 50,
    max_correlation: float = 1.0,
    start: SelectionModel | None = None,
    watch: Watch | None = None,
) -> SelectionPath:
    """The path of grafting; its first round is the base alone, or ``start``.

    ``watch`` is called after every round and may end the selection by returning True.

    >>> from crfield.core.target import Target
    >>> from crfield.core.topology import Chains
    >>> from crfield.features.lazy_columns import MatrixColumns
    >>> rng = np.random.default_rng(0)
    >>> labels = np.repeat(rng.integers(0, 2, 40), 5)
    >>> X = rng.normal(size=(200, 5))
    >>> X[:, 3] += labels
    >>> chains = Chains.from_lengths([150, 50])
    >>> columns = MatrixColumns(X, chains=chains, n_labels=2)
    >>> path = graft(SelectionProblem(columns, Target(chains, 2, labels), spans=[(0, 150)], held_spans=[(150, 200)]))
    >>> path[1].added
    ('s3 | 0',)
    """
    check_rounds(m=m, max_features=max_features, patience=patience)
    for name, value in (("l0", l0), ("l1", l1), ("l2", l2)):
        number(0, meaning="the strength of a penalty")(name, value)
    record = Recorder(problem, "grafting", criterion=criterion, patience=patience, watch=watch)
    model = problem.fit([], l2=l2, tol=tol, max_iter=max_iter) if start is None else start
    record.add(model)
    try:
        while not record.stopped:
            slopes = np.abs(problem.slopes(model))
            slopes[model.active] = 0.0
            largest = float(slopes.max(initial=0.0))
            room = min(m, max_features - len(model.active))
            if room <= 0:
                record.stop("max_features")
                break
            entering = steepest(problem, slopes, room, above=l1, max_correlation=max_correlation)
            if not len(entering):
                record.stop("no slope above l1")
                break
            found = problem.fit(
                np.concatenate([model.active, entering]), model, l1=l1, l2=l2, tol=tol, max_iter=max_iter
            )
            if l0 and model.value - found.value < l0 * len(entering):
                record.stop("gain below l0")
                break
            kept = found.without_zeros()
            if len(kept.active) <= len(model.active) and set(kept.active) <= set(model.active):
                record.stop("nothing that enters stays")
                break
            model = kept
            record.add(model, added=entering, largest=largest, penalty=l1 if l1 else float("nan"))
    except KeyboardInterrupt:
        record.stop("interrupted")
    return record.path()


def steepest(
    problem: SelectionProblem, slopes: np.ndarray, m: int, *, above: float = 0.0, max_correlation: float = 1.0
) -> np.ndarray:
    """(≤ m,) candidates of the largest |slope| above a level, the largest first; ties go to the lower number.

    Slopes that differ by rounding alone are ties: a column and its complement at two labels have the same.
    """
    wanted = min(m * (1 if max_correlation >= 1 or m == 1 else LOOKED_AT), len(slopes))
    least = np.partition(slopes, len(slopes) - wanted)[len(slopes) - wanted] if wanted else 0.0
    order = np.flatnonzero(slopes >= least * (1 - 1e-9))
    rounded = np.round(slopes[order] / (slopes[order].max(initial=0.0) or 1.0), 9)
    order = order[np.lexsort((order, -rounded))]
    order = order[slopes[order] > max(above, 1e-9)]
    if max_correlation >= 1 or m == 1:
        return order[:m]
    chosen: list[int] = []
    columns: list[np.ndarray] = []
    for k, column in enumerate(problem.values(order)):
        length = float(np.linalg.norm(column))
        unit = column / (length or 1.0)
        close = any(len(other) == len(unit) and abs(float(other @ unit)) > max_correlation for other in columns)
        if not close:
            chosen.append(int(order[k]))
            columns.append(unit)
        if len(chosen) == m:
            break
    return np.array(chosen, np.int64)


def check_rounds(*, m: int, max_features: int, patience: int | None) -> None:
    """InputError unless counts of rounds and features are integers ≥ 1."""
    for name, value in (("m", m), ("max_features", max_features), ("patience", patience)):
        if value is not None or name != "patience":
            integer(1)(name, value)
