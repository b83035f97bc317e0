"""One training of a chain model: its plan carried out, watched, scored on held-out data and kept on disk.

`ChainCRF` says what is trained (a plan and a problem, `training.chain.plan`); here it is run, with everything that
may sit beside a run: the progress line, the user's callback, held-out sequences (`estimators.chain.early_stopping`)
and a checkpoint (`storage.checkpoints`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from crfield.core.checks import random_generator, resolve_jobs
from crfield.errors import InputError
from crfield.estimators.base.progress import Progress
from crfield.estimators.chain.early_stopping import HeldOut, check_validation, split_sequences, taken
from crfield.estimators.chain.model import ColumnModel, FunctionModel
from crfield.estimators.chain.options import SolverOptions
from crfield.estimators.chain.problem import ChainProblem
from crfield.optimize.history import CALLBACK, INTERRUPTED, Result, Step
from crfield.optimize.penalty import Penalty
from crfield.storage.checkpoints import Checkpoint
from crfield.storage.digests import digest
from crfield.training.chain.plan import fit_chain
from crfield.training.chain.shards import ShardedChain, fit_sharded

Run = Callable[..., Result]
_MATTERS = ("l1", "l2", "penalize_intercepts", "objective", "solver", "solver_options", "random_state")


@dataclass(frozen=True)
class Watch:
    """What sits beside a training: the user's callback, held-out data, a checkpoint, and a progress line."""

    callback: Callable[[Step, np.ndarray], bool | None] | None = None
    held_out: HeldOut | None = None
    checkpoint: Checkpoint | None = None
    verbose: int = 0
    total: int | None = None
    description: str = "training"


def run_training(run: Run, watch: Watch) -> Result:
    """``run(callback=…)`` with all that sits beside it.

    With a checkpoint, ``run`` also gets ``keeper``, and ``max_iter`` where nothing is left to do. The checkpoint is
    done unless Ctrl-C or the user's callback ended the run.
    """
    checkpoint, held_out = watch.checkpoint, watch.held_out
    kept: dict[str, Any] = {}
    if checkpoint is not None:
        kept["keeper"] = checkpoint
        if held_out is not None:
            found = checkpoint.found_beside("held_out")
            if found is not None:
                held_out.restore(found)
            checkpoint.keep_beside("held_out", held_out.state)
    if held_out is not None and held_out.waited_enough:  # the run that is gone on from had come to its end
        kept["max_iter"] = max(held_out.scores)
    with Progress(watch.verbose, total=watch.total, description=watch.description) as progress:

        def after(step: Step, weights: np.ndarray) -> bool | None:
            enough = False
            if held_out is not None:
                step, enough = held_out.after(step, weights)
            progress.update(step)
            wish = watch.callback(step, weights) if watch.callback is not None else None
            return enough or wish

        watching = watch.callback is not None or held_out is not None or bool(watch.verbose)
        result = run(callback=after if watching else None, **kept)
    if checkpoint is not None:
        wished = result.reason == CALLBACK and not (held_out is not None and held_out.waited_enough)
        checkpoint.close(done=result.reason != INTERRUPTED and not wished)
    return result if held_out is None else held_out.kept(result)


def train(options: SolverOptions, problem: ChainProblem, held_out: HeldOut | None = None) -> Result:
    """Carry out the plan of a problem by the parameters of an estimator."""
    plan, handed, start = problem.plan, problem.handed, problem.start
    penalty = chain_penalty(options, problem.model)
    common: dict[str, Any] = {
        "start": start,
        "tol": options.tol,
        "max_iter": options.max_iter,
        "n_jobs": resolve_jobs(options.n_jobs),
        "rng": random_generator(options.random_state),
    }

    def run(**watched: Any) -> Result:
        if isinstance(handed, ShardedChain):
            stochastic = plan.solver != "lbfgs" and handed.stochastic
            return fit_sharded(handed, penalty, stochastic=stochastic, **{**common, **watched})
        return fit_chain(plan, handed, penalty, options=options.solver_options, **{**common, **watched})

    checkpoint = None
    if options.checkpoint is not None:
        told = {**problem.digests(), "the parameters": parameters_digest(options)}
        checkpoint = open_checkpoint(options, told, start=start, held_out=held_out)
    name = type(options).__name__
    return run_training(run, Watch(options.callback, held_out, checkpoint, options.verbose, options.max_iter, name))


def chain_penalty(options: SolverOptions, model: ColumnModel | FunctionModel) -> Penalty:
    """The penalty that ``l1``, ``l2`` and ``penalize_intercepts`` mean for a model."""
    penalised = None
    if not options.penalize_intercepts and isinstance(model, ColumnModel):
        penalised = (~model.layout.intercepts).astype(np.uint8)
    return Penalty(l1=options.l1, l2=options.l2, penalised=penalised)


def parameters_digest(options: SolverOptions) -> str:
    """The digest of the parameters that training depends on beside the data.

    ``tol``, ``max_iter`` and ``n_jobs`` are not among them: a training may go on for longer, or on another machine.
    """
    return digest({name: getattr(options, name, None) for name in _MATTERS})


def open_checkpoint(
    options: SolverOptions, digests: Mapping[str, str], *, start: np.ndarray | None, held_out: HeldOut | None = None
) -> Checkpoint:
    """The checkpoint of a training; InputError if the file is of another one that is not done."""
    more = {"the starting weights": digest(start)}
    if held_out is not None:
        more["the held-out data"] = digest([[options.validation_score, options.patience], held_out.data])
    return Checkpoint(options.checkpoint, {**digests, **more}, every=float(options.checkpoint_every))


def divide(
    options: SolverOptions, X: Any, y: Any, sample_weight: Any, validation: Any
) -> tuple[Any, Any, Any, tuple[Any, Any] | None]:
    """X, y, weights and the held-out pair (X, y), given or split off by ``validation_fraction``."""
    fraction = options.validation_fraction
    if validation is not None:
        if fraction is not None:
            raise InputError(
                "validation_fraction and validation=(X, y) both name held-out data. Leave one of them out."
            )
        return X, y, sample_weight, check_validation(validation)
    if fraction is None or not hasattr(X, "__len__") or not hasattr(y, "__len__") or len(X) != len(y):
        return X, y, sample_weight, None  # lengths that differ are told of later, with the places
    if options.checkpoint is not None and options.random_state is None:
        raise InputError(
            "a checkpoint with validation_fraction needs a random_state: without one, the training that goes on "
            "would hold out other sequences. Give an integer."
        )
    rng = random_generator(options.random_state)
    train, held = split_sequences(len(X), float(fraction), rng)
    weight = None if sample_weight is None else np.asarray(sample_weight)[train]
    return taken(X, train), taken(y, train), weight, (taken(X, held), taken(y, held))
