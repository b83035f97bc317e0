"""Recording a selection while it runs, and early stopping by held-out steps."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from crfield.errors import InputError
from crfield.selection.path import CRITERIA, SelectionPath, SelectionRound, best_round
from crfield.selection.problem import SelectionModel, SelectionProblem


class Recorder:
    """Judges and keeps models as rounds of a path; ``stopped`` when the selection should end.

    Seconds are those of the process since the recorder was made, the judging of held-out steps included.
    """

    def __init__(
        self,
        problem: SelectionProblem,
        method: str,
        *,
        criterion: str = "error",
        patience: int | None = None,
        watch: Callable[[SelectionRound], bool | None] | None = None,
    ) -> None:
        if criterion not in CRITERIA:
            raise InputError(f"criterion must be 'error' or 'nll', got {criterion!r}.")
        self.problem, self.method, self.criterion = problem, method, criterion
        self.patience, self.watch = patience, watch
        self.reason = ""
        self._rounds: list[SelectionRound] = []
        self._names: dict[int, str] = {}
        self._began = time.process_time()

    @property
    def stopped(self) -> bool:
        """Whether somebody has said that it is enough."""
        return bool(self.reason)

    def stop(self, reason: str) -> None:
        """End the selection for this reason."""
        self.reason = reason

    def add(
        self,
        model: SelectionModel,
        *,
        added: np.ndarray | None = None,
        penalty: float = float("nan"),
        largest: float = float("nan"),
    ) -> SelectionRound:
        """One more round; ``added`` are those candidates that entered in it."""
        entering = [] if added is None else np.asarray(added).tolist()
        for candidate in [*entering, *model.active.tolist()]:
            if candidate not in self._names:
                self._names[candidate] = self.problem.name(candidate)
        held = self.problem.held_out(model)
        if self._rounds:
            self._forget_curvature()
        one = SelectionRound(
            len(self._rounds),
            tuple(self._names[k] for k in entering),
            model,
            held.error,
            held.nll,
            time.process_time() - self._began,
            penalty,
            largest,
        )
        self._rounds.append(one)
        if self.watch is not None and self.watch(one):
            self.reason = self.reason or "callback"
        best = best_round([(r.held_error, r.held_nll) for r in self._rounds], self.criterion)
        if self.patience is not None and len(self._rounds) - 1 - best >= self.patience:
            self.reason = self.reason or "held-out score has turned"
        return one

    def _forget_curvature(self) -> None:
        """A matrix for every round would be the largest thing in memory; only the last one is of use."""
        self._rounds[-1] = replace(self._rounds[-1], model=self._rounds[-1].model.light())

    def path(self) -> SelectionPath:
        """All rounds so far."""
        if self._rounds:
            self._forget_curvature()
        return SelectionPath(self.method, tuple(self._rounds), self.criterion, self.reason, self._names)
