"""Coordinate by coordinate: how the thesis trained its hidden Markov model for labels, section 2.7.4.

The thesis raises the conditional likelihood of the training set by steps of single parameters, whose length falls
with the iteration j as 1/√j (Vail 2008). Here every parameter is tried a step up and a step down, and what raises
log p(y | x) most is kept; an iteration visits all of them once, in order. Distributions stay normalised and
deviations positive, since steps are taken on their logs, and columns have mean 0 and deviation 1. The thesis stopped
after two days, this study after a number of iterations.

    HMM, counted           the start
    HMM, coordinates       as above
    HMM, gradient          the same objective by L-BFGS, which is `HMM(training="discriminative", l2=0)`

The data are those of table 2.2 (`studies.vail.tag.smoothing`): speeds and chasing.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from crfield.core.graphs import Graphs
from crfield.core.potentials import Potentials
from crfield.core.semiring import Semiring
from crfield.core.target import Target
from crfield.core.topology import Chains
from crfield.estimators.markov.hmm import HMM
from crfield.features.columns.trajectories import TagSet, tag_columns
from crfield.inference.graphs.forest import ForestEngine
from crfield.report.findings import Claim, Findings, mean_interval
from crfield.scoring.densities.gaussian import DiagonalGaussian
from crfield.simulate.tag import SCHEMES, make_tag
from crfield.training.markov.gradient import MarkovConditional, Tables, fit_discriminative
from studies.framework import Case, Outcome, Outcomes, Settings, Study, above, by_seed, crossed

COUNTED, COORDINATES, GRADIENT = METHODS = "HMM, counted", "HMM, coordinates", "HMM, gradient"
SET = TagSet(("velocity", "chasing"))
RIGHT, LIKELIHOOD, EVALUATIONS = range(3)


cases = crossed(seed="seeds", scheme=SCHEMES)  # a case is a game to train on and one to test on


def run(settings: Settings, case: Case) -> Outcome:
    """Method → [right labels in test, log p(y | x) of a training step, evaluations]."""
    games = [
        make_tag(settings["minutes"], scheme=case["scheme"], random_state=2 * case["seed"] + k) for k in range(2)
    ]
    X, y = [tag_columns(game.positions, SET).values for game in games], [game.labels for game in games]
    mean, deviation = X[0].mean(axis=0), X[0].std(axis=0)
    X = [(x - mean) / np.where(deviation > 0, deviation, 1.0) for x in X]
    counted = HMM().fit(X[:1], y[:1])
    emissions = counted.emissions_
    assert isinstance(emissions, DiagonalGaussian)
    codes = np.searchsorted(counted.classes_, y[0])
    target = Target(Chains.from_lengths([len(codes)]), len(counted.classes_), codes)
    first: Tables = counted.start_probabilities_, counted.transition_probabilities_, emissions
    problem = MarkovConditional(X[0], target, *first)
    weights, evaluations = climbed(problem, settings["iterations"], settings["step"])
    gradient, result = fit_discriminative(X[0], target, *first, l2=0.0, max_iter=settings["max_iter"])
    found = {
        COUNTED: (first, _value(problem, np.zeros(problem.n_weights)), 1),
        COORDINATES: (problem.tables(weights), _value(problem, weights), evaluations),
        GRADIENT: (gradient, float(result.value), result.n_evaluations),
    }
    return {
        name: [_right(tables, X[1], y[1], counted.classes_), -value / len(codes), asked]
        for name, (tables, value, asked) in found.items()
    }


def climbed(problem: MarkovConditional, iterations: int, step: float) -> tuple[np.ndarray, int]:
    """The point that steps of step / √j along single coordinates reach, and how often the problem was asked."""
    weights = np.zeros(problem.n_weights)
    best, asked = _value(problem, weights), 1
    for j in range(1, iterations + 1):
        for k in range(len(weights)):
            here = weights[k]
            tried = {here: best}
            for there in (here + step / np.sqrt(j), here - step / np.sqrt(j)):
                weights[k] = there
                tried[there] = _value(problem, weights)
                asked += 1
            weights[k], best = min(tried.items(), key=lambda pair: pair[1])
    return weights, asked


def _value(problem: MarkovConditional, weights: np.ndarray) -> float:
    return problem.evaluate(weights, np.empty(problem.n_weights))


def _right(tables: Tables, rows: np.ndarray, truth: Any, classes: np.ndarray) -> float:
    """Right labels of the most probable label of each step."""
    start, transition, emissions = tables
    node = emissions.log_density(rows)
    node[0] += np.log(np.maximum(start, 1e-300))
    steps = np.arange(len(rows) - 1)
    chain = Graphs(np.array([0, len(rows)]), steps, steps + 1)
    scores = Potentials(node, np.log(np.maximum(transition, 1e-300))[None], chain)
    best = ForestEngine().infer(scores, Semiring.LOG).node.argmax(axis=1)
    return float((classes[best] == np.asarray(truth)).mean())


def _values(outcomes: Outcomes, name: str, what: int, scheme: str) -> list[float]:
    return by_seed(outcomes, lambda outcome: outcome[name][what], scheme=scheme)


def report(settings: Settings, outcomes: Outcomes) -> Findings:
    """A line for every method, columns for both ways to move."""
    rows = tuple(
        (
            name,
            *(
                cell
                for scheme in SCHEMES
                for cell in (
                    mean_interval(_values(outcomes, name, RIGHT, scheme)),
                    mean_interval(_values(outcomes, name, LIKELIHOOD, scheme)),
                    f"{np.mean(_values(outcomes, name, EVALUATIONS, scheme)):.0f}",
                )
            ),
        )
        for name in METHODS
    )
    return Findings(
        f"A hidden Markov model trained for its labels, parameter by parameter: games of {settings['minutes']} min, "
        f"{settings['iterations']} iterations, {len(settings['seeds'])} pairs of games",
        ("model", *(f"{scheme}: {what}" for scheme in SCHEMES for what in ("right", "log p, training", "asked"))),
        rows,
        notes=("log p(y | x) of a training step in the mean; asked: how often the likelihood was computed",),
    )


def claims(settings: Settings, outcomes: Outcomes) -> list[Claim]:
    """That the thesis's steps work, and that they take long."""
    claims = []
    for scheme in SCHEMES:
        steps, counted = (_values(outcomes, name, RIGHT, scheme) for name in (COORDINATES, COUNTED))
        claims.append(above(f"paper: {scheme}, trained by coordinates above counted", steps, counted))
        asked = [np.mean(_values(outcomes, name, EVALUATIONS, scheme)) for name in (COORDINATES, GRADIENT)]
        reached = [np.mean(_values(outcomes, name, LIKELIHOOD, scheme)) for name in (COORDINATES, GRADIENT)]
        claims.append(
            Claim(
                f"ours: {scheme}, the gradient is as likely with a tenth of the evaluations",
                bool(reached[1] >= reached[0] and 10 * asked[1] <= asked[0]),
                f"log p {reached[1]:.3f} against {reached[0]:.3f}, {asked[1]:.0f} evaluations for {asked[0]:.0f}",
            )
        )
    return claims


STUDY = Study(
    {"seeds": [1, 2, 3, 4, 5], "minutes": 20, "iterations": 100, "step": 0.5, "max_iter": 300},
    {"seeds": [1, 2, 3], "minutes": 1, "iterations": 15, "step": 0.5, "max_iter": 100},
    cases,
    run,
    report,
    claims,
)
