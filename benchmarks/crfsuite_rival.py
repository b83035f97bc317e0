"""python-crfsuite as a contestant: trained with a stop-watch at every iteration.

CRFsuite reports to a callback after each iteration. There we read the clock, may let ours take its turn, and
start the clock again, so the two really alternate within one training run. Its objective is
−Σ log p + c1 ‖w‖₁ + c2 ‖w‖², which is ours with l1 = c1 and l2 = 2 · c2.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pycrfsuite

from benchmarks.corpora import Strings, Tags
from benchmarks.timing import Timing, cpu


class Enough(Exception):
    """Raised in the callback to end a training run; CRFsuite then stores no model."""


@dataclass(frozen=True)
class Iteration:
    """One iteration as CRFsuite reports it; ``seconds`` is CPU time without what the callback took."""

    number: int
    loss: float
    trials: int
    active: int
    seconds: float


class _Watched(pycrfsuite.Trainer):
    iterations: list[Iteration]
    after: Callable[[Iteration], Any] | None
    began: float
    prepare_seconds: float

    def watch(self, after: Callable[[Iteration], Any] | None) -> None:
        self.iterations, self.after, self.prepare_seconds, self.began = [], after, 0.0, cpu()

    def message(self, message: str) -> None:
        """Called by CRFsuite with every line of its log."""
        event = self.logparser.feed(message)
        if event == "featgen_end":
            self.prepare_seconds = cpu() - self.began
            self.began = cpu()
        elif event == "iteration":
            self.record(cpu() - self.began, self.logparser.last_iteration)

    def record(self, seconds: float, info: dict[str, Any]) -> None:
        done = Iteration(
            info["num"], info["loss"], info["linesearch_trials"], info.get("active_features", 0), seconds
        )
        self.iterations.append(done)
        if self.after is not None:
            self.after(done)
        self.began = cpu()


@dataclass(frozen=True, eq=False)
class Trained:
    """What a training run left: its iterations and the CPU time of what came before them."""

    iterations: list[Iteration]
    append_seconds: float
    prepare_seconds: float  # CRFsuite's own feature generation
    stopped: bool  # by its own rule

    @property
    def loss(self) -> float:
        """The objective of the last iteration, as printed (six decimals)."""
        return self.iterations[-1].loss

    def single_trials(self) -> Timing:
        """CPU time of iterations that needed one evaluation; the first, which has two, is left out."""
        return Timing([i.seconds for i in self.iterations[1:] if i.trials == 1] or [self.iterations[-1].seconds])

    def until(self, target: float) -> tuple[float, int | None]:
        """CPU time from the call of train until the loss is at most ``target``, and which iteration that was.

        The time of the whole run, and None, when it never got there.
        """
        total = self.prepare_seconds
        for i in self.iterations:
            total += i.seconds
            if i.loss <= target:
                return total, i.number
        return total, None


def train(
    X: Strings,
    y: Tags,
    path: str,
    *,
    c1: float = 0.0,
    c2: float = 1.0,
    max_iterations: int | None = None,
    all_pairs: bool = False,
    after: Callable[[Iteration], Any] | None = None,
) -> Trained:
    """Train by CRFsuite's L-BFGS (OWL-QN when c1 > 0); ``after`` is called after every iteration."""
    trainer = _Watched(algorithm="lbfgs", verbose=False)
    options = {"c1": c1, "c2": c2, "feature.possible_states": all_pairs, "feature.possible_transitions": all_pairs}
    if max_iterations is not None:
        options["max_iterations"] = max_iterations
    trainer.set_params(options)
    began = cpu()
    for features, tags in zip(X, y):
        trainer.append(features, tags)
    appended = cpu() - began
    trainer.watch(after)
    try:
        trainer.train(path)
        stopped = max_iterations is None or len(trainer.iterations) < max_iterations
    except Enough:
        stopped = False
    return Trained(trainer.iterations, appended, trainer.prepare_seconds, stopped)


def tagger(path: str) -> Any:
    """A python-crfsuite tagger with the model of that file."""
    opened = pycrfsuite.Tagger()
    opened.open(path)
    return opened
