"""Block-coordinate Frank-Wolfe: the hinge of a chain with a ridge, to a proven duality gap.

    F(w) = Σ_i weight_i max_y [ cost_i(y) + g_i(y)·w ] + ½ l2 ‖w‖²,     g_i(y) = features of y − features of the truth

Block-coordinate Frank–Wolfe on the dual (Lacoste-Julien et al. 2013), with pairwise steps (Osokin et al. 2016): the
method, its dual and its stopping rule are those of `crfield.training.graph.frank_wolfe`. The compiled pass keeps for
each sequence the labellings in its mixture as labels, not as features: two of them differ at few steps, and only the
features of those steps are touched.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from crfield.errors import InputError
from crfield.kernels.online import Trainer
from crfield.optimize.history import Result
from crfield.optimize.penalty import Penalty
from crfield.training.chain.passes import Options, online_trainer
from crfield.training.chain.plan import Job
from crfield.training.graph.frank_wolfe import close_gap

INNER_STEPS = 4  # at a visit


class _ChainDual:
    """The mixtures of labellings that the kernel keeps, as `close_gap` asks for them."""

    exact = True

    def __init__(self, trainer: Trainer, l2: float) -> None:
        self.trainer, self.l2 = trainer, l2
        self.weights, self.average = np.zeros(trainer.n_weights), np.zeros(trainer.n_weights)
        self._n_averaged = 0

    @property
    def value(self) -> float:
        """A lower bound of the smallest F."""
        return self.trainer.mixture_cost() - 0.5 * self.l2 * float(self.weights @ self.weights)

    def visit(self, rng: np.random.Generator) -> tuple[float, float]:
        """One pass; the hinge met and by how much the mixtures fell short."""
        order = rng.permutation(self.trainer.n_sequences)
        met = self.trainer.frank_wolfe(order, l2=self.l2, steps=INNER_STEPS)
        self.weights = self.trainer.weights()
        self._n_averaged += 1
        self.average += 2.0 / (self._n_averaged + 1) * (self.weights - self.average)
        return met.loss, met.missing


def fit_frank_wolfe(parts: Any, penalty: Penalty, job: Job) -> Result:
    """The hinge with a ridge until (F − dual) ≤ ``tol`` · F, from zero whatever ``start`` says: F is convex."""
    Options("frank_wolfe", job.options)
    if not penalty.l2 > 0 or penalty.l1 or penalty.penalised is not None:
        raise InputError(
            "solver='frank_wolfe' needs a ridge on all weights: l2 > 0, l1 = 0, penalize_intercepts=True; got "
            f"l2={penalty.l2:g}, l1={penalty.l1:g}. solver='adagrad' trains the hinge with any penalties."
        )
    if not parts.target.complete.all():
        raise InputError(
            "solver='frank_wolfe' needs one gold label at every step: with several the hinge is not convex and has "
            "no dual. solver='adagrad' with objective='hinge' takes the best of what is allowed for gold."
        )
    trainer = online_trainer(parts, penalty)
    return close_gap(
        _ChainDual(trainer, penalty.l2),
        lambda weights: trainer.evaluate(weights, loss="hinge"),
        l2=penalty.l2,
        tol=job.tol,
        max_iter=job.max_iter,
        rng=job.rng,
        callback=job.callback,
    )
