"""Mistake-driven trainers of a chain: perceptron, passive-aggressive, AROW.

    perceptron           Collins 2002: add the features of the truth, take away those of the mistake
    passive_aggressive   Crammer et al. 2006: as far as the margin asks, in three variants
    arow                 Crammer, Kulesza & Dredze 2009: further where a weight has rarely been moved (diagonal)

A batch trainer looks at all sequences before it moves once; these move at every mistake, and are near a good place
after a few passes. They know no penalty and minimise no objective; that they end with the average of all weights met
(Freund & Schapire 1999) takes its place. Where only the last weights make no mistake at all, and not the average,
they are the result. Where labels are partly known, the best labelling of those allowed stands for the truth. The
loops are compiled (`crfield.kernels.online`); a visit costs a decoding, a mistake the features of the steps that were
wrong.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from crfield.core.checks import one_of
from crfield.kernels.online import VARIANTS, Met
from crfield.optimize.history import Result
from crfield.optimize.penalty import Penalty
from crfield.training.chain.passes import Options, Passes, online_trainer
from crfield.training.chain.plan import Job


def fit_perceptron(parts: Any, penalty: Penalty, job: Job) -> Result:
    """The averaged perceptron. Options: ``epochs`` (10), ``averaged`` (True).

    It knows no penalty; averaging takes its place. The value is by how much wrong labellings beat the true ones.
    """
    chosen = Options("perceptron", job.options)
    epochs, averaged = chosen.count("epochs", 10), chosen.flag("averaged", True)
    trainer = online_trainer(parts, penalty, start=job.start)
    run = Passes(
        trainer, penalty, "perceptron", job.rng, job.callback, trainer.average if averaged else trainer.weights
    )
    return run.go(trainer.perceptron, epochs=epochs, max_iter=job.max_iter, tol=None)


def fit_passive_aggressive(parts: Any, penalty: Penalty, job: Job) -> Result:
    """Passive-aggressive. Options: ``epochs`` (10), ``averaged`` (True), ``variant`` ("PA-I"), ``C`` (1).

    Variants are "PA", "PA-I" and "PA-II".
    With sequence weights C is multiplied by them; in PA, which has no C, the step is. The value is the hinge.
    """
    chosen = Options("passive_aggressive", job.options)
    epochs, averaged = chosen.count("epochs", 10), chosen.flag("averaged", True)
    variant, bound = chosen.get("variant", "PA-I"), chosen.positive("C", 1.0)
    one_of(*VARIANTS)("the option variant", variant)
    trainer = online_trainer(parts, penalty, start=job.start)
    run = Passes(trainer, penalty, "hinge", job.rng, job.callback, trainer.average if averaged else trainer.weights)

    def one_pass(order: np.ndarray) -> Met:
        return trainer.passive_aggressive(order, variant=variant, aggressiveness=bound)

    return run.go(one_pass, epochs=epochs, max_iter=job.max_iter, tol=None)


def fit_arow(parts: Any, penalty: Penalty, job: Job) -> Result:
    """AROW with a diagonal. Options: ``epochs`` (10), ``averaged`` (True), ``r`` (100).

    With sequence weights r is divided by them. The value is the hinge.
    """
    chosen = Options("arow", job.options)
    epochs, averaged = chosen.count("epochs", 10), chosen.flag("averaged", True)
    regularity = chosen.positive("r", 100.0)
    trainer = online_trainer(parts, penalty, start=job.start)
    run = Passes(trainer, penalty, "hinge", job.rng, job.callback, trainer.average if averaged else trainer.weights)

    def one_pass(order: np.ndarray) -> Met:
        return trainer.arow(order, regularity=regularity)

    return run.go(one_pass, epochs=epochs, max_iter=job.max_iter, tol=None)
