"""Stochastic gradient steps for a chain, one sequence (or a few) at a time.

    sgd        η_t = η_0 / (1 + η_0 λ t) with λ = l2 / N (Bottou 2010), η_0 tried out on a part of the data
    sgd_l1     η_t = η_0 α^(t/N) and the cumulative l1 penalty of Tsuruoka, Tsujii & Ananiadou 2009
    adagrad    a rate for every weight (Duchi, Hazan & Singer 2011), l1 and l2 by proximal steps

All train the likelihood, the softmax margin, or the hinge by its subgradients, also with labels partly known.
Penalties wait until a weight is next read, so that a step costs what its sequence holds; the loops are compiled
(`crfield.kernels.online`). A rate is tried out by the loss met on the way over up to 1,000 sequences, each before the
weights have seen it. With an l1 penalty AdaGrad makes weights small, but few of them zero: use sgd_l1 for that.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from crfield.errors import InputError, LabelError
from crfield.kernels.online import Met, Trainer
from crfield.optimize.history import Result
from crfield.optimize.penalty import Penalty
from crfield.training.chain.passes import Options, Passes, online_trainer
from crfield.training.chain.plan import Job

TRIED = 1_000  # sequences that a first rate is tried on
TRIALS = 12


def fit_sgd(parts: Any, penalty: Penalty, job: Job) -> Result:
    """SGD with a ridge. Options: ``epochs`` (30), ``rate`` (None: tried out), ``batch_size`` (1)."""
    chosen = Options("sgd", job.options)
    epochs, batch = chosen.count("epochs", 30), chosen.count("batch_size", 1, most=64)
    given = chosen.get("rate", None)
    trainer = online_trainer(parts, penalty, start=job.start)
    fall = penalty.l2 / max(1, _n_sequences(parts)) * batch  # λ of a step

    def rates(first: float, done: int, count: int) -> np.ndarray:
        # Without a ridge nothing says how fast to slow down: to half after the first pass.
        falls = fall if fall > 0 else batch / (first * max(1, trainer.n_sequences))
        return first / (1 + first * falls * (done + np.arange(count)))

    def descend(order: np.ndarray, first: float, done: int) -> Met:
        sizes = rates(first, done, -(-len(order) // batch))
        return trainer.descend(order, sizes, batch=batch, loss=job.objective, l2=penalty.l2)

    if given is None:
        tried = job.rng.permutation(trainer.n_sequences)[:TRIED]
        first = _calibrate(trainer, lambda rate: descend(tried, rate, 0).loss)
    else:
        first = chosen.positive("rate", 1.0)
    done = 0

    def one_pass(order: np.ndarray) -> Met:
        nonlocal done
        met = descend(order, first, done)
        done += -(-len(order) // batch)
        return met

    run = Passes(trainer, penalty, job.objective, job.rng, job.callback, trainer.weights)
    return run.go(one_pass, epochs=epochs, max_iter=job.max_iter, tol=job.tol)


def fit_sgd_l1(parts: Any, penalty: Penalty, job: Job) -> Result:
    """Cumulative l1 penalty. Options: ``epochs`` (30), ``rate`` (0.5), ``decay`` (0.85), ``batch_size`` (1).

    The rate is multiplied by ``decay`` from pass to pass, evenly. A ridge shrinks besides.
    """
    chosen = Options("sgd_l1", job.options)
    epochs, batch = chosen.count("epochs", 30), chosen.count("batch_size", 1, most=64)
    first, decay = chosen.positive("rate", 0.5), chosen.positive("decay", 0.85)
    if decay > 1:
        raise InputError(f"the option decay of 'sgd_l1' must be a finite number > 0 and ≤ 1, got {decay}.")
    trainer = online_trainer(parts, penalty, start=job.start)
    passes = 0

    def one_pass(order: np.ndarray) -> Met:
        nonlocal passes
        count = -(-len(order) // batch)
        sizes = first * decay ** (passes + np.arange(count) / max(1, count))
        passes += 1
        return trainer.descend(order, sizes, batch=batch, loss=job.objective, l1=penalty.l1, l2=penalty.l2)

    run = Passes(trainer, penalty, job.objective, job.rng, job.callback, trainer.weights)
    return run.go(one_pass, epochs=epochs, max_iter=job.max_iter, tol=job.tol)


def fit_adagrad(parts: Any, penalty: Penalty, job: Job) -> Result:
    """AdaGrad. Options: ``epochs`` (30), ``rate`` (None: tried out), ``batch_size`` (1)."""
    chosen = Options("adagrad", job.options)
    epochs, batch = chosen.count("epochs", 30), chosen.count("batch_size", 1, most=64)
    given = chosen.get("rate", None)
    trainer = online_trainer(parts, penalty, start=job.start)

    def descend(order: np.ndarray, rate: float) -> Met:
        return trainer.adagrad(order, rate=rate, batch=batch, loss=job.objective, l1=penalty.l1, l2=penalty.l2)

    if given is None:
        tried = job.rng.permutation(trainer.n_sequences)[:TRIED]
        rate = _calibrate(trainer, lambda rate: descend(tried, rate).loss)
    else:
        rate = chosen.positive("rate", 1.0)
    run = Passes(trainer, penalty, job.objective, job.rng, job.callback, trainer.weights)
    return run.go(lambda order: descend(order, rate), epochs=epochs, max_iter=job.max_iter, tol=job.tol)


def _n_sequences(parts: Any) -> int:
    return int((parts.batch.topology.lengths > 0).sum())


def _calibrate(trainer: Trainer, loss_of: Callable[[float], float]) -> float:
    """The power of two, times 1/8, whose loss met on the way is smallest; the trainer is left as it was."""
    start = trainer.weights()

    def tried(rate: float) -> float:
        try:
            found = loss_of(rate)
        except LabelError:
            raise
        except InputError:  # too large
            found = math.inf
        trainer.set_weights(start)
        return found if math.isfinite(found) else math.inf

    best, least = 0.125, tried(0.125)
    for factor in (2.0, 0.5):
        for _ in range(TRIALS):
            found = tried(best * factor)
            if not found < least:
                break
            best, least = best * factor, found
    return best
