"""What online trainers share: passes in random orders, options, the end of a run.

``max_iter`` bounds the passes (epochs), the option ``epochs`` says how many are wanted. A run that made them all has
done what it was asked to, and counts as converged; so does one that made a pass without a mistake, or whose objective
no longer falls. Everything is sequential: ``n_jobs`` makes no difference, the generator gives the orders. A step of
the history is a pass; its value is what was met on the way, each sequence at the weights of its visit, and its gap
the share of sequences that moved the weights.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from crfield.core.checks import flag, integer, number
from crfield.errors import InputError
from crfield.kernels.online import Met, Trainer
from crfield.optimize.history import CALLBACK, INTERRUPTED, MAX_ITER, TOLERANCE, Result, Step
from crfield.optimize.penalty import Penalty
from crfield.training.chain.plan import Callback

EPOCHS_DONE = "all epochs done"
LOOK_BACK = 5  # epochs over which the objective must have fallen by more than the tolerance


@dataclass
class Passes:
    """What all of them share: the trainer, the passes, the history and the end."""

    trainer: Trainer
    penalty: Penalty
    loss: str
    rng: np.random.Generator
    callback: Callback | None
    weights_of: Callable[[], np.ndarray]
    steps: list[Step] = field(default_factory=list)
    reason: str = MAX_ITER

    def go(self, one_pass: Callable[[np.ndarray], Met], *, epochs: int, max_iter: int, tol: float | None) -> Result:
        """Passes in random orders; ``tol`` is None where only a pass without a mistake ends them early."""
        began, numbers = time.perf_counter(), np.arange(self.trainer.n_sequences)
        try:
            for epoch in range(1, min(epochs, max_iter) + 1):
                met = one_pass(self.rng.permutation(numbers))
                weights = self.weights_of()
                value = met.loss + (0.0 if tol is None else penalty_value(self.penalty, weights))
                share = met.mistakes / max(1, self.trainer.n_sequences)
                active = int(np.count_nonzero(weights)) if self.penalty.l1 else self.trainer.n_weights
                seconds = time.perf_counter() - began
                self.steps.append(Step(epoch, epoch, value, math.nan, 1.0, active, seconds, share))
                if tol is None and not met.mistakes:
                    self.reason = TOLERANCE
                    break
                if tol is not None and self._flat(tol):
                    self.reason = TOLERANCE
                    break
                weights.flags.writeable = False
                if self.callback is not None and self.callback(self.steps[-1], weights):
                    self.reason = CALLBACK
                    break
            else:
                self.reason = EPOCHS_DONE if epochs <= max_iter else MAX_ITER
        except KeyboardInterrupt:
            self.reason = INTERRUPTED
        weights = self.weights_of()
        if tol is None and self.reason == TOLERANCE:
            # the last weights made no mistake; the average may
            last = self.trainer.weights()
            self.trainer.set_weights(weights)
            if self.trainer.perceptron(numbers).mistakes:
                weights = last
        value = self.trainer.evaluate(weights, loss=self.loss)
        value += 0.0 if tol is None else penalty_value(self.penalty, weights)
        converged = self.reason in (TOLERANCE, EPOCHS_DONE)
        return Result(weights, value, len(self.steps), len(self.steps) + 1, converged, self.reason, self.steps)

    def _flat(self, tol: float) -> bool:
        """Whether the loss met no longer falls."""
        if len(self.steps) <= LOOK_BACK:
            return False
        before = min(step.value for step in self.steps[:-LOOK_BACK])
        return before - min(step.value for step in self.steps[-LOOK_BACK:]) <= tol * abs(before)


def online_trainer(parts: Any, penalty: Penalty, *, start: np.ndarray | None = None) -> Trainer:
    """The compiled trainer of a labelled batch of columns; InputError where scores are no plain columns."""
    layout, target = parts.layout, parts.target
    if layout is None:
        raise InputError(
            "online trainers work on models of columns; functions of two labels and locally normalised models have "
            "none. Use solver='lbfgs'."
        )
    free = penalty.penalised
    if free is not None and not np.array_equal(free != 0, ~layout.intercepts):
        raise InputError(
            "online trainers can leave the penalty off all intercepts or off none, not off other weights."
        )
    return Trainer(
        layout,
        parts.batch,
        target.labels,
        target.allowed,
        target.weight,
        getattr(target, "cost", None),
        start=start,
        penalise_intercepts=free is None,
    )


def penalty_value(penalty: Penalty, weights: np.ndarray) -> float:
    w = weights if penalty.penalised is None else weights[penalty.penalised != 0]
    return 0.5 * penalty.l2 * float(w @ w) + penalty.l1 * float(np.abs(w).sum())


class Options:
    """The options of a solver, each checked as it is taken."""

    def __init__(self, solver: str, options: Mapping[str, Any] | None) -> None:
        self._solver, self._given = solver, dict(options or {})

    def get(self, name: str, default: Any) -> Any:
        value = self._given.get(name, default)
        return default if value is None else value

    def positive(self, name: str, default: float) -> float:
        value = self.get(name, default)
        number(above=0)(f"the option {name} of {self._solver!r}", value)
        return float(value)

    def count(self, name: str, default: int, *, most: int | None = None) -> int:
        value = self.get(name, default)
        integer(1, most=most)(f"the option {name} of {self._solver!r}", value)
        return int(value)

    def flag(self, name: str, default: bool) -> bool:
        value = self.get(name, default)
        flag(f"the option {name} of {self._solver!r}", value)
        return bool(value)
