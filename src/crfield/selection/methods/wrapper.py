"""A greedy wrapper: try candidates in earnest, keep the one whose model is best on held-out steps.

Wrappers ask the question that selection is about, which model will be right more often, and pay for it: every round
fits a model for every candidate (Kohavi & John 1997, *Wrappers for feature subset selection*). Here a fit is short,
since it starts at the present weights and curvature, and only a ``shortlist`` of the steepest slopes is tried. It is
a baseline for the methods that guess: what would the truth have chosen? Held-out steps that were asked so often are
held out no more, so its held-out error flatters; judge it on others.

Without held-out steps the training loss decides: forward selection by likelihood.
"""

from __future__ import annotations

import numpy as np

from crfield.selection.methods.grafting import Watch, check_rounds, steepest
from crfield.selection.path import CRITERIA, SelectionPath
from crfield.selection.problem import SelectionModel, SelectionProblem
from crfield.selection.record import Recorder


def wrapper_path(
    problem: SelectionProblem,
    *,
    shortlist: int | None = 32,
    trial_steps: int = 3,
    l2: float = 0.01,
    max_features: int = 30,
    patience: int | None = 5,
    criterion: str = "error",
    tol: float = 1e-5,
    max_iter: int = 50,
    watch: Watch | None = None,
) -> SelectionPath:
    """Add the candidate whose model, after ``trial_steps`` Newton steps, is best; fit it to the end; and so on.

    >>> from crfield.core.target import Target
    >>> from crfield.core.topology import Chains
    >>> from crfield.features.lazy_columns import MatrixColumns
    >>> rng = np.random.default_rng(0)
    >>> chains, y = Chains.from_lengths([200]), np.repeat(rng.integers(0, 2, 40), 5)
    >>> x = rng.normal(size=(200, 4)) + np.outer(y, [0, 2, 0, 1])
    >>> columns = MatrixColumns(x, chains=chains, n_labels=2)
    >>> problem = SelectionProblem(columns, Target(chains, 2, y), spans=[(0, 120)], held_spans=[(120, 200)])
    >>> wrapper_path(problem, max_features=1).entered()
    [(1, 's1 | ...')]
    """
    check_rounds(m=trial_steps, max_features=max_features, patience=patience)
    record = Recorder(problem, "wrapper", criterion=criterion, patience=patience, watch=watch)
    model = problem.fit([], l2=l2, tol=tol, max_iter=max_iter)
    record.add(model)
    while not record.stopped:
        if len(model.active) >= max_features:
            record.stop("max_features")
            break
        slopes = np.abs(problem.slopes(model))
        slopes[model.active] = 0.0
        largest = float(slopes.max(initial=0.0))
        some = steepest(problem, slopes, problem.n_candidates if shortlist is None else shortlist)
        if not len(some):
            record.stop("no slope")
            break
        keys = []
        for candidate in some.tolist():
            trial = problem.fit([*model.active, candidate], model, l2=l2, tol=tol, max_iter=trial_steps)
            keys.append(_key(problem, trial, criterion))
        best = some[min(range(len(some)), key=keys.__getitem__)]
        model = problem.fit([*model.active, best], model, l2=l2, tol=tol, max_iter=max_iter)
        record.add(model, added=np.array([best]), largest=largest)
    return record.path()


def _key(problem: SelectionProblem, model: SelectionModel, criterion: str) -> tuple[float, float]:
    """What to make small."""
    if problem.held is None:
        return model.value, 0.0
    held = problem.held_out(model)
    return (held.error, held.nll) if criterion == CRITERIA[0] else (held.nll, held.error)
