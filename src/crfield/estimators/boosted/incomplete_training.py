"""How `IncompleteBoost` is trained: the form of what is hidden, where to start, and which solver runs."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Integral
from typing import Any

import numpy as np

from crfield.boosting.incomplete import updates
from crfield.boosting.incomplete.hidden_values import as_table, learn_values
from crfield.boosting.incomplete.structures import Bag, Form, Values, Windows, chain_of
from crfield.core.checks import resolve_jobs
from crfield.errors import InputError
from crfield.estimators.base.progress import Progress
from crfield.optimize.history import Result, Step
from crfield.optimize.lbfgs import minimize
from crfield.optimize.penalty import Penalty

RANDOM_START = 0.1  # standard deviation of the hidden columns' weights at a random start
PASS_TOLERANCE = 0.01  # of tol: what a pass of updates must lower the objective by to go on


def form_for(model: Any, hidden: Any, rows: Any) -> Form | None:
    """The form of the hidden part; None where there is none to speak of."""
    n, given = rows.shape[0], model.hidden_values
    if model.baseline == "without_hidden":
        return None
    if model.structure == "bag":
        return Bag(rows.shape[1])
    if model.structure == "chain":
        coder, places = chain_of(hidden, n, given)
        return Windows(coder, places, bool(model.pairs), resolve_jobs(model.n_jobs)) if coder and places else None
    several = model.structure == "attributes"
    if hidden is None and given is None:
        return None
    table = as_table(hidden, n, several=several)
    values = [None] * table.shape[1] if given is None else list(given) if several else [given]
    if not table.shape[1]:
        table = np.full((n, len(values)), None, dtype=object)
    if len(values) != table.shape[1]:
        raise InputError(f"hidden_values must be {table.shape[1]} lists, one per attribute, got {len(values)}.")
    coders = [learn_values(table[:, a], known) for a, known in enumerate(values)]
    if None in coders and any(coders):
        raise InputError(
            f"attribute {coders.index(None)} is hidden in all data, so its values are not known. Leave it out, "
            "or name its values with hidden_values=."
        )
    if not coders or None in coders:
        return None
    width = rows.shape[1]
    given = () if model.interactions is None else model.interactions
    chosen = list(range(width)) if isinstance(given, str) else list(given)
    if any(not isinstance(column, Integral) or not -width <= column < width for column in chosen):
        raise InputError(f"interactions must be columns of X, 0 … {width - 1}, got {chosen}.")
    return Values(tuple(c for c in coders if c), several, tuple(int(c) % width for c in chosen))


def solve(model: Any, problem_of: Callable[[str], Any], form: Form | None) -> Result:
    """Minimise the loss from the start that was asked for."""
    problem = problem_of(model.loss)
    start = np.zeros(problem.n_weights)
    kind = model.start
    if kind == "auto":
        kind = "random" if model.baseline == "hidden_crf" else "zero"
    if kind == "random" and form is not None:
        from sklearn.utils import check_random_state

        hidden = problem.tables(start)[1]
        hidden[:] = check_random_state(model.random_state).normal(scale=RANDOM_START, size=hidden.shape)
    elif kind in ("jensen", "joint"):
        start = minimize(
            problem_of(kind), start, Penalty(l2=model.l2), tol=model.tol, max_iter=model.max_iter
        ).weights
    with Progress(model.verbose, total=model.max_iter, description=f"{model.loss}, {model.solver}") as progress:

        def show(step: Step, weights: np.ndarray) -> None:
            progress.update(step)

        if model.solver == "lbfgs":
            return minimize(
                problem,
                start,
                Penalty(l2=model.l2),
                tol=model.tol,
                max_iter=model.max_iter,
                n_jobs=resolve_jobs(model.n_jobs),
                callback=show,
            )
        options: dict[str, Any] = {
            "l2": float(model.l2),
            "smoothing": model.smoothing,
            "tol": PASS_TOLERANCE * model.tol,
            "max_iter": model.max_iter,
            "callback": show,
        }
        if model.solver == "parallel":
            return updates.parallel(problem, start, **options)
        return updates.sequential(problem, start, tight=model.bound == "tight", **options)
