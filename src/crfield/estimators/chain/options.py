"""`SolverOptions`: how a solver trains the weights of a chain, declared once for all that are trained so."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from crfield.core.checks import Check, file_path, flag, integer, number, one_of, seed, share, threads
from crfield.core.parameters import parameter
from crfield.errors import InputError
from crfield.estimators.base.groups import Optimised, Penalised
from crfield.training.chain.plan import SOLVERS

SCORES = ("log_likelihood", "accuracy", "f1")  # of held-out sequences


class SolverOptions(Penalised, Optimised):
    """From where a training starts, how long it goes on, and who watches it."""

    label_functions: Sequence[Callable[[Any, Any, Any, int], float]] | None = parameter(default=None, stored=False)
    penalize_intercepts: bool = parameter(flag, default=True)
    solver: str = parameter(one_of(*SOLVERS), default="auto")
    solver_options: dict[str, Any] | None = parameter(default=None)
    max_iter: int = parameter(integer(1, meaning="the most steps of the optimiser"), default=1000)
    warm_start: bool = parameter(flag, default=False)
    n_jobs: int | None = parameter(threads, default=None)
    random_state: Any = parameter(seed, default=0)
    checkpoint: Any = parameter(file_path | None, default=None, stored=False)
    checkpoint_every: float = parameter(number(0, meaning="seconds"), default=60.0)
    validation_fraction: float | None = parameter(share() | None, default=None)
    validation_score: Any = parameter(
        one_of(*SCORES) | Check("a function of (estimator, X, y)", callable), default="log_likelihood"
    )
    patience: int = parameter(integer(1, meaning="the steps without a better score"), default=5)


def check_label_functions(options: SolverOptions) -> list[Any]:
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
