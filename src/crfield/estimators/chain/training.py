"""One training of a chain model: its plan carried out, watched, scored on held-out data and kept on disk.

`ChainCRF` says what is trained (a plan and a problem, `training.chain.plan`); here it is run, with everything that
may sit beside a run: the progress line, the user's callback, held-out sequences (`estimators.chain.early_stopping`)
and a checkpoint (`storage.checkpoints`).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from crfield.core.checks import random_generator, resolve_jobs
from crfield.errors import ConvergenceWarning, InputError
from crfield.estimators.base.progress import Progress
from crfield.estimators.chain.early_stopping import HeldOut, check_validation, split_sequences, taken
from crfield.estimators.chain.model import ColumnModel, FunctionModel
from crfield.optimize.history import CALLBACK, HELD_OUT, INTERRUPTED, Result, Step
from crfield.optimize.penalty import Penalty
from crfield.storage.checkpoints import Checkpoint
from crfield.storage.digests import digest
from crfield.training.chain.plan import Plan, fit_chain

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


def train_planned(
    crf: Any,
    parameters: Mapping[str, Any],
    problem: tuple[Plan, Any, Any],
    model: ColumnModel | FunctionModel,
    held_out: HeldOut | None,
) -> Result:
    """Carry out what a chain estimator has planned: (plan, problem, digests of it or None without a checkpoint)."""
    plan, handed, digests = problem
    start = model.weights if model.weights.any() else None
    common: dict[str, Any] = {
        "tol": parameters["tol"],
        "max_iter": parameters["max_iter"],
        "n_jobs": resolve_jobs(parameters["n_jobs"]),
        "rng": random_generator(parameters["random_state"]),
        "options": parameters["solver_options"],
    }

    def run(**watched: Any) -> Result:
        return fit_chain(plan, handed, chain_penalty(parameters, model), start=start, **{**common, **watched})

    checkpoint = None
    if digests is not None:
        checkpoint = open_checkpoint(parameters, digests, start=start, held_out=held_out)
    beside = Watch(crf.callback, held_out, checkpoint, crf.verbose, parameters["max_iter"], type(crf).__name__)
    return run_training(run, beside)


def chain_penalty(parameters: Mapping[str, Any], model: ColumnModel | FunctionModel) -> Penalty:
    """The penalty that ``l1``, ``l2`` and ``penalize_intercepts`` mean for a model."""
    penalised = None
    if not parameters["penalize_intercepts"] and isinstance(model, ColumnModel):
        penalised = (~model.layout.intercepts).astype(np.uint8)
    return Penalty(l1=parameters["l1"], l2=parameters["l2"], penalised=penalised)


def training_digests(parameters: Mapping[str, Any], parts: Any) -> dict[str, str]:
    """What a checkpoint must agree with: the data, the layout of the weights, and the parameters that matter.

    ``tol``, ``max_iter`` and ``n_jobs`` are not among them: a training may go on for longer, or on another machine.
    """
    batch, target = getattr(parts, "batch", parts), getattr(parts, "target", None)
    return {
        "the data": digest([batch, target]),
        "the features and labels": digest(getattr(parts, "layout", None)),
        "the parameters": parameters_digest(parameters),
    }


def parameters_digest(parameters: Mapping[str, Any]) -> str:
    """The digest of the parameters that training depends on beside the data."""
    return digest({name: parameters.get(name) for name in _MATTERS})


def open_checkpoint(
    parameters: Mapping[str, Any],
    digests: Mapping[str, str],
    *,
    start: np.ndarray | None,
    held_out: HeldOut | None = None,
) -> Checkpoint:
    """The checkpoint of a training; InputError if the file is of another one that is not done."""
    more = {"the starting weights": digest(start)}
    if held_out is not None:
        chosen = [parameters[name] for name in ("validation_score", "patience")]
        more["the held-out data"] = digest([chosen, held_out.data])
    return Checkpoint(parameters["checkpoint"], {**digests, **more}, every=float(parameters["checkpoint_every"]))


def divide(
    parameters: Mapping[str, Any], X: Any, y: Any, sample_weight: Any, validation: Any
) -> tuple[Any, Any, Any, tuple[Any, Any] | None]:
    """X, y, weights and the held-out pair (X, y), given or split off by ``validation_fraction``."""
    fraction = parameters["validation_fraction"]
    if validation is not None:
        if fraction is not None:
            raise InputError(
                "validation_fraction and validation=(X, y) both name held-out data. Leave one of them out."
            )
        return X, y, sample_weight, check_validation(validation)
    if fraction is None or not hasattr(X, "__len__") or not hasattr(y, "__len__") or len(X) != len(y):
        return X, y, sample_weight, None  # lengths that differ are told of later, with the places
    if parameters["checkpoint"] is not None and parameters["random_state"] is None:
        raise InputError(
            "a checkpoint with validation_fraction needs a random_state: without one, the training that goes on "
            "would hold out other sequences. Give a whole number."
        )
    rng = random_generator(parameters["random_state"])
    train, held = split_sequences(len(X), float(fraction), rng)
    weight = None if sample_weight is None else np.asarray(sample_weight)[train]
    return taken(X, train), taken(y, train), weight, (taken(X, held), taken(y, held))


def warn_unless_converged(result: Result, tol: float) -> None:
    """`ConvergenceWarning`, at the line that called ``fit``, where training ended early without being told to."""
    if result.converged or result.reason in (CALLBACK, HELD_OUT):
        return
    advice = (
        "The best weights so far are kept"
        if result.reason == INTERRUPTED
        else "Raise max_iter or tol, or scale numeric features (standardize=True)"
    )
    warnings.warn(
        f"training stopped before the tolerance {tol:g} was met ({result.reason}, {result.n_iter} steps, objective "
        f"{result.value:.6g}). {advice}.",
        ConvergenceWarning,
        stacklevel=4,
    )
