"""The rounds of a selection while it runs: what entered, how it is judged, and when to stop.

Methods differ in what they add; the rest is the same for all. Each round is judged on held-out steps at once, and a
selection ends when the best round lies ``patience`` rounds behind, when it has ``max_features``, or when the method
itself finds nothing more.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from crfield.errors import InputError
from crfield.selection.path import SelectionPath, SelectionRound, best_round
from crfield.selection.problem import SelectionModel, SelectionProblem

Callback = Callable[[SelectionRound], bool | None]


class Rounds:
    """A path that grows.

    >>> from crfield.core.target import Target
    >>> from crfield.core.topology import Chains
    >>> from crfield.features.lazy_columns import MatrixColumns
    >>> columns = MatrixColumns(np.array([[1.0], [3.0]]), chains=Chains.from_lengths([2]), n_labels=2)
    >>> problem = SelectionProblem(columns, Target(columns.chains, 2, np.array([0, 1])))
    >>> rounds = Rounds(problem, "by hand", max_features=1)
    >>> rounds.add(problem.fit([]))
    >>> rounds.add(problem.fit([0], l2=1.0))
    >>> rounds.path().stop_reason, rounds.path().entered()
    ('1 features', [(1, 's0 | 0')])
    """

    def __init__(
        self,
        problem: SelectionProblem,
        method: str,
        *,
        max_features: int | None = None,
        patience: int | None = None,
        criterion: str = "error",
        callback: Callback | None = None,
    ) -> None:
        if max_features is not None and max_features < 0:
            raise InputError(f"max_features must be at least 0, or None, got {max_features}.")
        if patience is not None and patience < 1:
            raise InputError(f"patience must be at least one round, or None, got {patience}.")
        self.problem, self.method, self.criterion, self.patience = problem, method, criterion, patience
        possible = int(problem.usable.sum())
        self.max_features = possible if max_features is None else min(max_features, possible)
        self.rounds: list[SelectionRound] = []
        self.names: dict[int, str] = {}
        self.stop_reason = ""
        self._callback, self._since = callback, time.process_time()

    def add(self, model: SelectionModel, *, largest: float = float("nan"), penalty: float = float("nan")) -> None:
        """Judge a model and keep it as the next round."""
        entered = [k for k in model.active.tolist() if k not in self.names]
        self.names.update({k: self.problem.name(k) for k in entered})
        held = self.problem.held_out(model)
        one = SelectionRound(
            len(self.rounds),
            tuple(self.names[k] for k in entered),
            model,
            held.error,
            held.nll,
            time.process_time() - self._since,
            penalty,
            largest,
        )
        self.rounds.append(one)
        best = best_round([(r.held_error, r.held_nll) for r in self.rounds], self.criterion)
        if self._callback is not None and self._callback(one):
            self.stop_reason = "stopped by the callback"
        elif one.n_features >= self.max_features:
            self.stop_reason = f"{one.n_features} features"
        elif self.patience is not None and self.problem.held is not None and one.number - best >= self.patience:
            self.stop_reason = f"no better held-out {self.criterion} for {self.patience} rounds"

    @property
    def open(self) -> bool:
        """Whether there should be another round."""
        return not self.stop_reason

    @property
    def room(self) -> int:
        """Features that may still enter."""
        return self.max_features - self.rounds[-1].n_features

    def path(self, reason: str = "") -> SelectionPath:
        """The rounds so far as a record."""
        return SelectionPath(
            self.method, tuple(self.rounds), self.criterion, reason or self.stop_reason, dict(self.names)
        )


def steepest(problem: SelectionProblem, slopes: np.ndarray, active: np.ndarray, most: int | None) -> np.ndarray:
    """Usable candidates outside the model, those with the largest |slope| first; up to ``most`` of them."""
    size = np.abs(slopes)
    size[~problem.usable] = -1.0
    size[active] = -1.0
    n = int((size >= 0).sum())
    n = n if most is None else min(most, n)
    if n == 0:
        return np.zeros(0, np.int64)
    some = np.argpartition(-size, n - 1)[:n]
    return some[np.lexsort((some, -size[some]))]
