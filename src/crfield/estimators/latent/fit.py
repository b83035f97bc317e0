"""What the two latent models share in ``fit``: parameters, random starts, progress, and the report of training."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from numbers import Integral
from typing import Any

import numpy as np

from crfield.core.checks import random_generator, resolve_jobs
from crfield.errors import ConvergenceWarning, InputError
from crfield.estimators.base.progress import Progress
from crfield.estimators.chain.checks import check_numbers, check_template
from crfield.optimize.history import CALLBACK, INTERRUPTED, Result, Step
from crfield.optimize.penalty import Penalty
from crfield.training.latent import TRAININGS, Halves, fit_best

REPORT: dict[str, type] = {
    "objective_": float,
    "n_iter_": int,
    "n_evaluations_": int,
    "converged_": bool,
    "stop_reason_": str,
}


def check_latent_parameters(parameters: Mapping[str, Any]) -> None:
    """InputError unless the parameters that both models have can be used.

    >>> check_latent_parameters({"l1": 0.0, "l2": 1.0, "tol": 1e-4, "max_iter": 9, "min_count": 1, "n_init": 0})
    Traceback (most recent call last):
    crfield.errors.InputError: n_init must be a whole number of at least 1, the random starts, got 0.
    """
    check_numbers(parameters)
    n_init, scale = parameters["n_init"], parameters.get("start_scale")
    if isinstance(n_init, bool) or not isinstance(n_init, Integral) or n_init < 1:
        raise InputError(f"n_init must be a whole number of at least 1, the random starts, got {n_init!r}.")
    if isinstance(scale, bool) or not isinstance(scale, int | float | np.floating) or not 0 < scale < np.inf:
        raise InputError(
            f"start_scale must be a finite number above 0, got {scale!r}. From zero all states would stay alike."
        )
    if parameters["training"] not in TRAININGS:
        names = ", ".join(map(repr, TRAININGS))
        raise InputError(f"training must be one of {names}, got {parameters['training']!r}.")
    if not isinstance(parameters["standardize"], bool | np.bool_):
        raise InputError(f"standardize must be True or False, got {parameters['standardize']!r}.")
    if not isinstance(parameters["verbose"], Integral) or parameters["verbose"] < 0:
        raise InputError(f"verbose must be 0, 1 or 2, got {parameters['verbose']!r}.")
    if parameters["callback"] is not None and not callable(parameters["callback"]):
        raise InputError(f"callback must be a function of (step, weights) or None, got {parameters['callback']!r}.")
    check_template(parameters["template"])
    resolve_jobs(parameters["n_jobs"])
    random_generator(parameters["random_state"])


class LatentReport:
    """What `train_latent` and `report_training` tell of a model, for those who read its types."""

    objective_: float
    n_iter_: int
    converged_: bool
    history_: list[Step]
    start_objectives_: np.ndarray
    n_evaluations_: int
    stop_reason_: str


def train_latent(model: Any, problem: Halves, penalty: Penalty, *, hidden: bool) -> Result:
    """The best of the model's starts; one start from the origin where nothing is hidden."""
    rng, jobs = random_generator(model.random_state), resolve_jobs(model.n_jobs)
    starts: list[np.ndarray | None] = [None]
    if hidden:
        starts = [rng.normal(scale=model.start_scale, size=problem.n_weights) for _ in range(model.n_init)]
    alone = jobs == 1 or len(starts) == 1
    with Progress(model.verbose, total=model.max_iter, description=type(model).__name__) as progress:

        def watch(step: Step, weights: np.ndarray) -> bool | None:
            progress.update(step)
            return model.callback(step, weights) if model.callback is not None else None

        def after(number: int, result: Result) -> None:
            if result.history:
                progress.update(result.history[-1])

        try:
            trained = fit_best(
                problem,
                penalty,
                starts,
                training=model.training,
                tol=model.tol,
                max_iter=int(model.max_iter),
                n_jobs=jobs,
                callback=watch if model.callback is not None or (model.verbose and alone) else None,
                after=after,
            )
        except RuntimeError as error:
            # A script that spawns processes is imported again by each of them, and must not train when it is.
            if alone or type(error).__name__ != "BrokenProcessPool":
                raise
            raise InputError(
                "the processes of n_jobs > 1 ended at once. In a script, put what it does under "
                "`if __name__ == '__main__':`, or set n_jobs=1."
            ) from error
    model.start_objectives_ = trained.values
    model.n_evaluations_ = trained.n_evaluations
    return trained.best


def report_training(model: Any, result: Result) -> None:
    """Attributes that tell of training, and a warning where it did not come to its end."""
    model.objective_ = float(result.value)
    model.n_iter_ = result.n_iter
    model.history_ = result.history
    model.converged_ = result.converged
    model.stop_reason_ = result.reason
    if result.converged or result.reason == CALLBACK:
        return
    advice = (
        "The best weights so far are kept"
        if result.reason == INTERRUPTED
        else "Raise max_iter or tol, or scale numeric features (standardize=True)"
    )
    warnings.warn(
        f"training stopped before the tolerance {model.tol:g} was met ({result.reason}, {result.n_iter} steps, "
        f"objective {result.value:.6g}). {advice}.",
        ConvergenceWarning,
        stacklevel=3,
    )
