"""The three ways in which `HMM` is trained, on rows and a target."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from crfield.core.checks import random_generator, resolve_jobs
from crfield.core.target import Target
from crfield.core.topology import Chains
from crfield.core.typing import Seed
from crfield.data.batch import Batch
from crfield.data.labels import LabelCoder
from crfield.errors import ConvergenceWarning, InputError, LabelError
from crfield.estimators.base.progress import Progress
from crfield.features.encoder import Encoder
from crfield.optimize.history import INTERRUPTED, Result, Step
from crfield.scoring.densities.gaussian import Fitting, family_named, family_of_kind
from crfield.training.cluster.current import CURRENT
from crfield.training.cluster.markov import fit_each_on_cluster
from crfield.training.markov.counting import counted, shares
from crfield.training.markov.durations import Durations
from crfield.training.markov.em import Markov, first_model
from crfield.training.markov.em_starts import fit_each
from crfield.training.markov.gradient import fit_discriminative

Report = dict[str, Any]


class Options(Protocol):
    """The parameters of an `HMM`."""

    emissions: Any  # the name of a family, or a density of scikit-learn
    training: str
    n_components: int
    n_init: int
    deviation_factor: float
    variance_floor: float
    smoothing: float
    emission_smoothing: float
    min_duration: int | Mapping[Any, int]
    l2: float
    tol: float
    max_iter: int
    n_jobs: int | None
    random_state: Seed
    verbose: int


def trained(
    model: Options, batch: Batch, rows: np.ndarray, target: Target, coder: LabelCoder
) -> tuple[Markov, Report]:
    """Parameters and what is to be said of training, by the options of an `HMM`."""
    family = chosen_family(model.emissions, batch)
    durations = Durations.of_labels(coder.labels, model.min_duration)
    fitting = Fitting(
        floor=float(model.variance_floor),
        smoothing=float(model.emission_smoothing),
        n_components=int(model.n_components),
        density=None if isinstance(model.emissions, str) else model.emissions,
        n_jobs=resolve_jobs(model.n_jobs),
    )
    if model.training == "discriminative":
        refuse_missing(rows, family.kind, "training='discriminative'")
    if model.training == "em":
        return _climbed(model, family, rows, target, fitting, durations)
    start, transition = _tables(target, durations, float(model.smoothing))
    table = _responsibility(target, coder)
    densities = family.fit(rows, table, fitting).widened(float(model.deviation_factor))
    found = Markov(start, transition, densities, None if durations.plain else durations)
    if model.training == "counting":
        return found, _told(None)
    if not hasattr(densities, "natural"):
        raise InputError(
            f"emissions={model.emissions!r:.60} are not log-linear, so they cannot be trained by gradient. Use "
            "training='counting' or 'em', or another family."
        )
    return _discriminative(model, rows, target, found)


def chosen_family(emissions: Any, batch: Batch) -> Any:
    """The family of a name for columns as the batch has them: words have one distribution for all."""
    family = family_named(emissions)
    return family_of_kind("words") if family.kind == "categorical" and batch.node.width else family


def refuse_unobserved(rows: np.ndarray, encoder: Encoder) -> None:
    """InputError for a column that no row (N, D) has a value of, by its name."""
    never = np.flatnonzero(np.isnan(rows).all(axis=0))
    if len(rows) and len(never):
        raise InputError(
            f"feature {encoder.dense_name(int(never[0]))!r} is missing (NaN) at every step that is learnt from, so "
            f"it has no density ({len(never)} of {rows.shape[1]} columns are). Leave such columns out of X."
        )


def refuse_missing(rows: np.ndarray, family: str, what: str) -> None:
    """InputError where cells are missing and the columns of the log-linear form need all of them."""
    if family != "categorical" and np.isnan(rows).any():  # a missing symbol is none of the indicators
        raise InputError(
            f"{what} needs every cell of normal columns, and X has missing ones (NaN). Use training='counting' or "
            "'em', which integrate them out, or fill them in first."
        )


def _tables(target: Target, durations: Durations, smoothing: float) -> tuple[np.ndarray, np.ndarray]:
    start, transition, _ = counted(target, smoothing=smoothing)
    if durations.plain:
        return start, transition
    chains, labels = target.topology, target.labels.astype(np.int64)
    assert isinstance(chains, Chains)
    free = durations.free_edges(target) & (labels[chains.tails] >= 0) & (labels[chains.heads] >= 0)
    weight = np.ones(chains.n_sequences) if target.weight is None else target.weight
    place = labels[chains.tails][free] * target.n_labels + labels[chains.heads][free]
    pairs = np.bincount(place, weight[chains.sequence_of_edge[free]], target.n_labels**2)
    return start, shares(pairs.reshape(target.n_labels, -1) + smoothing)


def _responsibility(target: Target, coder: LabelCoder) -> np.ndarray:
    """(N, L) the weight of each step for its label, zero where that is not known."""
    known = np.flatnonzero(target.labels >= 0)
    table = np.zeros((len(target.labels), target.n_labels))
    chains = target.topology
    weight = 1.0 if target.weight is None else target.weight[chains.sequence_of_node[known]]
    table[known, target.labels[known]] = weight
    missing = np.flatnonzero(table.sum(axis=0) == 0)
    if len(missing):
        name = repr(coder.labels[int(missing[0])])
        raise LabelError(
            f"label {name} is on no step whose label is known, so nothing can be counted for it. training='em' can "
            "learn from steps that may have it."
        )
    return table


def _climbed(
    model: Options, family: Any, rows: np.ndarray, target: Target, fitting: Fitting, durations: Durations
) -> tuple[Markov, Report]:
    """The best of several starts of EM; without hidden steps there is only one."""
    rng = random_generator(model.random_state)
    known = np.bincount(target.labels[target.labels >= 0], minlength=target.n_labels)
    everywhere = bool((known > 0).all())
    starts = 1 if (target.labels >= 0).all() else int(model.n_init)
    lasting = None if durations.plain else durations
    firsts = []
    for number in range(starts):
        seeded = replace(fitting, seed=int(rng.integers(2**31)), n_jobs=1)  # the same start for any number of jobs
        first = first_model(
            family,
            rows,
            target,
            smoothing=float(model.smoothing),
            fitting=seeded,
            durations=lasting,
            rng=rng,
            known_only=everywhere and number == 0,
        )
        firsts.append((first, seeded))
    with Progress(model.verbose, total=model.max_iter * starts, description="HMM") as progress:
        options: dict[str, Any] = {
            "smoothing": float(model.smoothing),
            "tol": float(model.tol),
            "max_iter": int(model.max_iter),
            "watch": progress.update if model.verbose else None,
        }
        workers = CURRENT.get()
        if workers is not None:
            climbed = fit_each_on_cluster(workers, firsts, rows, target, **options)
        else:
            climbed = fit_each(firsts, rows, target, n_jobs=resolve_jobs(model.n_jobs), **options)
    best = min(climbed, key=lambda one: one[1].value)
    reached = [result.value for _, result in climbed]
    _warn(model, best[1])
    widened = best[0].emissions.widened(float(model.deviation_factor))
    made = Markov(best[0].start, best[0].transition, widened, lasting)
    return made, {**_told(best[1]), "start_objectives_": np.array(reached)}


def _discriminative(model: Options, rows: np.ndarray, target: Target, found: Markov) -> tuple[Markov, Report]:
    with Progress(model.verbose, total=model.max_iter, description="HMM") as progress:

        def after(step: Step, weights: np.ndarray) -> None:
            progress.update(step)

        tables, result = fit_discriminative(
            rows,
            target,
            found.start,
            found.transition,
            found.emissions,  # type: ignore[arg-type]
            l2=float(model.l2),
            tol=float(model.tol),
            max_iter=int(model.max_iter),
            n_jobs=resolve_jobs(model.n_jobs),
            callback=after if model.verbose else None,
        )
    _warn(model, result)
    return Markov(*tables), _told(result)


def _warn(model: Options, result: Result) -> None:
    if result.converged:
        return
    advice = "The best so far is kept" if result.reason == INTERRUPTED else "Raise max_iter, tol or l2"
    warnings.warn(
        f"training stopped before the tolerance {model.tol:g} was met ({result.reason}, {result.n_iter} "
        f"steps, objective {result.value:.6g}). {advice}.",
        ConvergenceWarning,
        stacklevel=5,
    )


def _told(result: Result | None) -> Report:
    if result is None:
        return {"n_iter_": 1, "converged_": True, "objective_": float("nan"), "history_": []}
    return {
        "n_iter_": result.n_iter,
        "converged_": result.converged,
        "objective_": float(result.value),
        "history_": result.history,
    }
