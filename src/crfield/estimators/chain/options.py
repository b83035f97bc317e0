"""`SolverOptions`: how a chain is trained, and what these parameters stand for.

A parameter is what users write. A run of training wants a checkpoint that knows its own (`open_checkpoint`) and
sequences to stop by (`divide`), and functions of two labels stand alone (`check_label_functions`); none of them is
asked of a plain fit. `estimators.chain.training` carries the training out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from crfield.core.checks import Check, file_path, flag, integer, number, one_of, random_generator, seed, share
from crfield.core.parameters import parameter
from crfield.core.typing import FilePath, LabelFeature, Labels, Seed, Sequences, Weights
from crfield.errors import InputError
from crfield.estimators.base.groups import Optimised, Penalised, Threaded
from crfield.estimators.base.sequences import taken
from crfield.estimators.chain.early_stopping import HeldOut, check_validation, split_sequences
from crfield.storage.checkpoints import Checkpoint
from crfield.storage.digests import digest
from crfield.training.chain.plan import SOLVERS

SCORES = ("log_likelihood", "accuracy", "f1")  # of held-out sequences
_MATTERS = ("l1", "l2", "penalize_intercepts", "objective", "solver", "solver_options", "random_state")


class SolverOptions(Penalised, Optimised, Threaded, group=True):
    """From where a training starts, how long it goes on, and who watches it."""

    label_functions: Sequence[LabelFeature] | None = parameter(default=None, stored=False)
    penalize_intercepts: bool = parameter(flag, default=True)
    solver: str = parameter(one_of(*SOLVERS), default="auto")
    solver_options: dict[str, Any] | None = parameter(default=None)
    max_iter: int = parameter(integer(1, meaning="the most steps of the optimiser"), default=1000)
    warm_start: bool = parameter(flag, default=False)
    random_state: Seed = parameter(seed, default=0)
    checkpoint: FilePath | None = parameter(file_path | None, default=None, stored=False)
    checkpoint_every: float = parameter(number(0, meaning="seconds"), default=60.0)
    validation_fraction: float | None = parameter(share() | None, default=None)
    validation_score: str | Callable[[Any, Any, Any], float] = parameter(
        one_of(*SCORES) | Check("a function of (estimator, X, y)", callable), default="log_likelihood"
    )
    patience: int = parameter(integer(1, meaning="the steps without a better score"), default=5)


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
    assert options.checkpoint is not None
    return Checkpoint(options.checkpoint, {**digests, **more}, every=float(options.checkpoint_every))


def divide(
    options: SolverOptions,
    X: Sequences,
    y: Labels,
    sample_weight: Weights,
    validation: tuple[Sequences, Labels] | None,
) -> tuple[Sequences, Labels, Weights, tuple[Sequences, Labels] | None]:
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


def check_label_functions(options: SolverOptions) -> list[LabelFeature]:
    """The label functions as a list; InputError where they are none, or stand beside other features."""
    functions: Any = options.label_functions
    if callable(functions) or isinstance(functions, str) or not isinstance(functions, Iterable):
        raise InputError(f"label_functions must be a list of functions, got {functions!r}. Write [f] for one.")
    functions = list(functions)
    for each in functions:
        if not callable(each):
            raise InputError(f"label_functions must hold functions f(y_before, y, x, t), got {each!r}.")
    if not functions:
        raise InputError("label_functions must hold at least one function f(y_before, y, x, t), got none.")
    for name in ("features", "template", "functions", "transition_functions", "transition_features"):
        given = getattr(options, name)
        if given is not None and not (isinstance(given, tuple | list) and not given):
            raise InputError(f"label_functions stand alone, since they see everything: leave {name} out.")
    return functions
