"""Baum–Welch: hidden Markov models from observations whose labels are known nowhere, or here and there.

    E   r_n(c) = p(y_n = c | x, what is known of y),  expected first labels and pairs
    M   tables ∝ expected counts + smoothing,  densities fitted to rows that count by r

The E step is the chain engine on the model's scores, with what a label rules out at −∞, so one loop serves
unsupervised data, data with some labels, and sets of possible labels. The objective

    Σ_s weight_s log p(x_s, known labels)  +  smoothing · Σ log (table entries)  +  prior of the emissions

never falls (Baum, Petrie, Soules & Weiss 1970; Dempster, Laird & Rubin 1977): smoothing is a Dirichlet prior, and a
floor of variances is a bound within which the M step is still the best. It climbs to a local optimum, so the start
decides; several are tried, and the highest is kept. A start takes the densities of steps whose label is known and,
where a label has none, of rows near to one drawn at random, the drawn ones far apart; for that alone, cells that are
missing (NaN) stand at the middle of their column. In the steps they are integrated out, and the objective still never
falls.

An iteration costs O(N L²) for the chain and O(N L D) for diagonal densities, both compiled.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from crfield.core.potentials import Potentials
from crfield.core.semiring import Semiring
from crfield.core.target import Target
from crfield.core.topology import Chains
from crfield.errors import InputError, LabelError
from crfield.inference.chain import ChainEngine
from crfield.optimize.history import CALLBACK, INTERRUPTED, MAX_ITER, NO_IMPROVEMENT, TOLERANCE, Result, Step
from crfield.scoring.densities.gaussian import Emissions, Fitting, Spread
from crfield.scoring.densities.mixture import far_apart
from crfield.scoring.densities.observed import filled
from crfield.training.markov.counting import counted, shares
from crfield.training.markov.durations import Durations

Callback = Callable[[Step, np.ndarray], bool | None]


@dataclass(frozen=True, eq=False)
class Markov:
    """The parameters of a hidden Markov model.

    >>> from crfield.scoring.densities.gaussian import DiagonalGaussian
    >>> model = Markov(np.array([1.0]), np.array([[1.0]]), DiagonalGaussian(np.zeros((1, 1)), np.ones((1, 1))))
    >>> model.potentials(np.zeros((2, 1)), Chains.from_lengths([2])).node.round(3).tolist()
    [[-0.919], [-0.919]]
    """

    start: np.ndarray  # (L,)
    transition: np.ndarray  # (L, L)
    emissions: Emissions
    durations: Durations | None = None

    def potentials(self, rows: np.ndarray, chains: Chains, *, n_jobs: int = 1) -> Potentials:
        """Scores of rows (N, D) on chains: log p(x | c), log p(c) at first steps, log p(c | b) on edges."""
        node = self.emissions.log_density(rows, n_jobs=n_jobs)
        start, transition = self.start, self.transition
        if self.durations is not None:
            node = node[:, self.durations.states.label_of_state]
            start, transition = self.durations.starts(start), self.durations.transitions(transition)
        with np.errstate(divide="ignore"):
            node[chains.offsets[:-1][chains.lengths > 0]] += np.log(start)
            return Potentials(node, np.log(transition)[None], chains)


@dataclass(frozen=True, eq=False)
class Expected:
    """What an E step finds."""

    total: float  # Σ_s weight_s log p(x_s, known labels)
    start: np.ndarray  # (L,)
    pairs: np.ndarray  # (L, L)
    responsibility: np.ndarray  # (N, L)


def expected(
    model: Markov, rows: np.ndarray, target: Target | None, chains: Chains, *, n_jobs: int = 1, first: int = 0
) -> Expected:
    """The E step; without a target every label is possible everywhere. The first sequence is number ``first``."""
    scores = model.potentials(rows, chains, n_jobs=n_jobs)
    durations, weight = model.durations, None if target is None else target.weight
    if target is not None and (target.allowed is not None or (target.labels >= 0).any()):
        allowed = target.mask if durations is None else target.mask[:, durations.states.label_of_state]
        scores = Potentials(np.where(allowed, scores.node, -np.inf), scores.edge, chains)
    engine = ChainEngine(n_jobs)
    beliefs = engine.infer(scores, Semiring.LOG)
    node, pairs, totals = beliefs.node, beliefs.edge[0], beliefs.total
    if np.isneginf(totals).any():
        raise LabelError(
            f"sequence {first + int(np.argmin(totals))} is impossible: no labelling of it has any probability. Raise "
            "smoothing or emission_smoothing above 0, or check min_duration and the known labels."
        )
    if weight is not None:
        if (weight == weight[0]).all():
            pairs = pairs * weight[0]
        else:
            pairs = np.tensordot(weight[chains.sequence_of_edge], engine.edge_marginals(scores), axes=1)
        node, totals = node * weight[chains.sequence_of_node][:, None], totals * weight
    if durations is not None:
        node, pairs = durations.states.label_sums(node), durations.pairs(pairs)
    begins = chains.offsets[:-1][chains.lengths > 0]
    return Expected(float(totals.sum()), node[begins].sum(axis=0), pairs, node)


def maximised(
    model: Markov, rows: np.ndarray, found: Expected, *, smoothing: float = 0.0, fitting: Fitting | None = None
) -> Markov:
    """The M step."""
    return replace(
        model,
        start=shares(found.start + smoothing),
        transition=shares(found.pairs + smoothing),
        emissions=model.emissions.refit(rows, found.responsibility, fitting or Fitting()),
    )


def log_prior(model: Markov, smoothing: float, fitting: Fitting) -> float:
    """What is added to the log-likelihood; see the module."""
    value = model.emissions.log_prior(fitting)
    if smoothing:
        with np.errstate(divide="ignore"):
            value += smoothing * float(np.log(model.start).sum() + np.log(model.transition).sum())
    return value


class Steps(Protocol):
    """The two halves of an iteration, wherever the rows are."""

    def expected(self, model: Markov) -> Any:
        """The E step; its ``total`` is Σ_s weight_s log p(x_s, known labels)."""
        ...

    def maximised(self, model: Markov, found: Any) -> Markov:
        """The M step from what the E step found."""
        ...


@dataclass(frozen=True, eq=False)
class StepsHere:
    """Both halves on rows in this process."""

    rows: np.ndarray
    target: Target
    chains: Chains
    smoothing: float
    fitting: Fitting

    def expected(self, model: Markov) -> Expected:
        """The E step."""
        return expected(model, self.rows, self.target, self.chains, n_jobs=self.fitting.n_jobs)

    def maximised(self, model: Markov, found: Expected) -> Markov:
        """The M step."""
        return maximised(model, self.rows, found, smoothing=self.smoothing, fitting=self.fitting)


MakeSteps = Callable[
    [float, Fitting], Steps
]  # by the smoothing of tables, and the fitting with the spread of all rows


def fit_em(
    model: Markov,
    rows: np.ndarray,
    target: Target,
    *,
    smoothing: float = 0.0,
    fitting: Fitting | None = None,
    tol: float = 1e-4,
    max_iter: int = 200,
    n_jobs: int = 1,
    callback: Callback | None = None,
    make_steps: MakeSteps | None = None,
) -> tuple[Markov, Result]:
    """Steps of EM until one raises the objective by less than ``tol`` for each step of the data.

    The result's value is minus the objective, as optimisers have it, of the model that is returned. ``make_steps``
    makes both halves of an iteration where the rows lie elsewhere.

    >>> from crfield.scoring.densities.gaussian import DiagonalGaussian
    >>> rows = np.array([[0.0], [0.1], [3.0], [3.1]])
    >>> family = DiagonalGaussian(np.array([[1.0], [2.0]]), np.ones((2, 1)))
    >>> free = Target(Chains.from_lengths([4]), 2, np.full(4, -1), np.ones((4, 2), bool))
    >>> fit_em(Markov(np.full(2, 0.5), np.full((2, 2), 0.5), family), rows, free)[0].emissions.mean.round(2).tolist()
    [[0.05], [3.05]]
    """
    chains = target.topology
    if not isinstance(chains, Chains):
        raise InputError("a hidden Markov model reads chains, got graphs.")
    weight = np.ones(chains.n_nodes) if target.weight is None else target.weight[chains.sequence_of_node]
    # What the floor refers to is taken once: rows and their weights stay the same.
    fitting = replace(fitting or Fitting(), spread=Spread.of(rows, weight), n_jobs=n_jobs)
    steps: Steps = StepsHere(rows, target, chains, smoothing, fitting)
    if make_steps is not None:
        steps = make_steps(smoothing, fitting)
    began, history = time.perf_counter(), list[Step]()
    found = steps.expected(model)
    value, reason = -found.total - log_prior(model, smoothing, fitting), MAX_ITER
    for n_iter in range(1, max_iter + 1):
        try:
            better = steps.maximised(model, found)
            after = steps.expected(better)
        except KeyboardInterrupt:
            reason = INTERRUPTED
            break
        now = -after.total - log_prior(better, smoothing, fitting)
        rise = (value - now) / weight.sum()
        if rise < -1e-9:  # only densities that are not of maximum likelihood can do this
            reason = NO_IMPROVEMENT
            break
        model, found, value = better, after, min(now, value)
        history.append(
            Step(n_iter, n_iter + 1, value, abs(rise), 1.0, model.transition.size, time.perf_counter() - began)
        )
        if callback is not None and callback(history[-1], np.zeros(0)):
            reason = CALLBACK
            break
        if rise <= tol:
            reason = TOLERANCE
            break
    return model, Result(
        np.zeros(0), value, len(history), len(history) + 1, reason in (TOLERANCE, NO_IMPROVEMENT), reason, history
    )


# ---------------------------------------------------------------------------------------------------------- starts


def first_model(
    family: Any,
    rows: np.ndarray,
    target: Target,
    *,
    smoothing: float,
    fitting: Fitting,
    durations: Durations | None,
    rng: np.random.Generator,
    known_only: bool,
) -> Markov:
    """A model to start from: counted where labels are known, drawn where they are not; see the module.

    With ``known_only`` the densities come from known steps alone, which needs one of every label.
    """
    chains, known = target.topology, target.labels >= 0
    weight = np.ones(chains.n_nodes) if target.weight is None else target.weight[chains.sequence_of_node]
    table = np.zeros((chains.n_nodes, target.n_labels))
    table[known, target.labels[known]] = weight[known]
    start, transition, _ = counted(target, smoothing=max(smoothing, 1.0))
    if not known_only:
        spread = Spread.of(rows, weight)
        known_cells = filled(rows, spread.middle) if spread.gaps else rows
        scaled = (known_cells - spread.middle) / np.sqrt(np.where(spread.varies, spread.variance, 1.0))
        centres = far_apart(scaled, weight, target.n_labels, rng)
        for c in np.flatnonzero(table.sum(axis=0) > 0):  # a label that is known somewhere begins there
            centres[c] = table[:, c] @ scaled / table[:, c].sum()
        away = np.stack([((scaled - centre) ** 2).sum(axis=1) for centre in centres], axis=1)
        open_rows = np.flatnonzero(~known)
        nearest = np.where(target.mask, away, np.inf)[open_rows].argmin(axis=1)
        # A little of every row for every label, so that no density is of one row alone.
        table[open_rows] = 0.1 * weight[open_rows, None] * target.mask[open_rows] / target.n_labels
        table[open_rows, nearest] += 0.9 * weight[open_rows]
    return Markov(start, transition, family.fit(rows, table, fitting), durations)
