"""Accuracy against the strength of coupling: figure 1(a) of the paper on virtual evidence boosting.

Ten chains of 2,000 binary labels, each label equal to the one before with probability p, and fifty observations of
which none says more than a few hundredths of a bit (`simulate.order_chains`; Liao, Choudhury, Fox & Kautz 2007,
section 5.1). Each chain is left out once, for every p and every observation model (seed). The paper compares virtual
evidence boosting (VEB) with boosted random fields (BRF), and claims nothing else of this figure. Beside them stand
its better forms, likelihood and pseudo-likelihood, and the model that made the data, which nobody can expect to beat:

    ceiling           the true model
    VEB, paper        algorithm 2 to the letter, 50 rounds
    VEB, exact        exact normal equations, start from the class prior, ridge, 100 rounds; trained for its decoding
    VEB, verified     proposals by virtual evidence, relations verified, all weights by likelihood
    BRF, linear       boosted random field (Torralba, Murphy & Freeman 2004) with linear regressions on beliefs
    BRF, stump        the same with stumps on beliefs
    ML                exact likelihood of a chain, l2 = 1 (the paper's shrinkage prior)
    MPL               pseudo-likelihood, l2 = 1, exact inference
    LogitBoost        stumps on the observations alone, 50 rounds

Accuracy of the best labelling as a whole (MAP, the paper's) and of the best label of each step (MPM). BRF and
LogitBoost give beliefs and no joint model, so they have the second alone.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from crfield.core.graphs import Graphs
from crfield.core.potentials import Potentials
from crfield.core.semiring import Semiring
from crfield.data.graphs.builders import chain
from crfield.errors import CrfieldWarning
from crfield.estimators.boosted.logit_boost import LogitBoost
from crfield.estimators.boosted.random_field import BoostedRandomField
from crfield.estimators.boosted.virtual_evidence import VirtualEvidenceBoosting
from crfield.estimators.chain.crf import ChainCRF
from crfield.estimators.graph.crf import GraphCRF
from crfield.inference.graphs.forest import ForestEngine
from crfield.report.displays.curves import Chart
from crfield.report.findings import Claim, Findings, mean_interval, paired_interval
from crfield.simulate.order_chains import OrderChains, make_order_chains
from studies.framework import Case, Outcome, Outcomes, Settings, Study, above, by_seed, crossed, curve, gap_text

CEILING, PAPER, EXACT, VERIFIED, LINEAR, STUMP, ML, MPL, ALONE = METHODS = (
    "ceiling",
    "VEB, paper",
    "VEB, exact",
    "VEB, verified",
    "BRF, linear",
    "BRF, stump",
    "ML",
    "MPL",
    "LogitBoost",
)
MAP, MPM, SECONDS = 0, 1, 2  # places in an outcome
WEAK, STRONG = 0.8, 0.9  # up to the first the paper finds no difference, from the second on a dramatic one
Scores = tuple[float | None, float | None]  # MAP, MPM


cases = crossed(seed="seeds", p="p", out="folds")  # a case is one chain left out of one world


def run(settings: Settings, case: Case) -> Outcome:
    """All methods on one case: method → [MAP, MPM, CPU seconds]."""
    world = make_order_chains(
        case["p"], n_chains=settings["n_chains"], length=settings["length"], random_state=case["seed"]
    )
    return {name: timed(_RUNS[name], world, case["out"]) for name in METHODS}


def timed(method: Callable[[OrderChains, int], Scores], world: OrderChains, out: int) -> list[float | None]:
    """The accuracies of a method, and the CPU seconds that it took."""
    began = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CrfieldWarning)
        scores = method(world, out)
    return [*scores, time.process_time() - began]


# --------------------------------------------------------------------------------------------------------- methods


def ceiling(world: OrderChains, out: int) -> tuple[float, float]:
    """The model that made the data.

    >>> world = make_order_chains(0.95, n_chains=1)
    >>> whole, single = ceiling(world, 0)
    >>> whole < single
    True
    """
    steps = np.arange(len(world.labels[out]) - world.order)
    graph = Graphs(np.array([0, len(world.labels[out])]), steps, steps + world.order)
    scores = Potentials(world.node_scores[out], world.edge_scores[None], graph)
    whole, single = (
        float((ForestEngine().infer(scores, semiring).node.argmax(axis=1) == world.labels[out]).mean())
        for semiring in (Semiring.MAX, Semiring.LOG)
    )
    return whole, single


def split(
    world: OrderChains, out: int
) -> tuple[list[np.ndarray], list[np.ndarray], list[np.ndarray], list[np.ndarray]]:
    """Features and labels to learn from, then those to test on."""
    X = [x.astype(np.float64) for x in world.features]
    learn = [k for k in range(len(X)) if k != out]
    return [X[k] for k in learn], [world.labels[k] for k in learn], [X[out]], [world.labels[out]]


def both_ways(model: Any, X: Any, y: Any, *, whole: str = "map") -> Scores:
    """MAP and MPM of a fitted model."""
    return (float(model.set_params(decode=whole).score(X, y)), float(model.set_params(decode="marginal").score(X, y)))


def _paper(world: OrderChains, out: int) -> Scores:
    X, y, held, truth = split(world, out)
    return both_ways(VirtualEvidenceBoosting(mode="paper", n_rounds=50).fit(X, y), held, truth)


def _exact(world: OrderChains, out: int) -> Scores:
    X, y, held, truth = split(world, out)
    whole, single = (
        float(VirtualEvidenceBoosting(mode="exact", decode=decode).fit(X, y).score(held, truth))
        for decode in ("map", "marginal")
    )
    return whole, single


def _verified(world: OrderChains, out: int) -> Scores:
    X, y, held, truth = split(world, out)
    return both_ways(VirtualEvidenceBoosting(mode="verified").fit(X, y), held, truth)


def _linear(world: OrderChains, out: int) -> Scores:
    return _field("linear", world, out)


def _stump(world: OrderChains, out: int) -> Scores:
    return _field("stump", world, out)


def _field(learner: str, world: OrderChains, out: int) -> Scores:
    X, y, held, truth = split(world, out)
    return None, float(BoostedRandomField(learner=learner, n_rounds=50).fit(X, y).score(held, truth))


def _likelihood(world: OrderChains, out: int) -> Scores:
    X, y, held, truth = split(world, out)
    return both_ways(ChainCRF(l2=1.0).fit(X, y), held, truth, whole="viterbi")


def _pseudo(world: OrderChains, out: int) -> Scores:
    X, y, held, truth = split(world, out)
    model = GraphCRF(objective="pseudo_likelihood", l2=1.0).fit([chain(x, symmetric=True) for x in X], y)
    return both_ways(model.set_params(engine="forest"), [chain(x, symmetric=True) for x in held], truth)


def _alone(world: OrderChains, out: int) -> Scores:
    X, y, held, truth = split(world, out)
    model = LogitBoost(n_rounds=50).fit(np.concatenate(X), np.concatenate(y))
    return None, float(model.score(held[0], truth[0]))


_RUNS: dict[str, Callable[[OrderChains, int], Scores]] = {
    CEILING: ceiling,
    PAPER: _paper,
    EXACT: _exact,
    VERIFIED: _verified,
    LINEAR: _linear,
    STUMP: _stump,
    ML: _likelihood,
    MPL: _pseudo,
    ALONE: _alone,
}


def report(settings: Settings, outcomes: Outcomes) -> Findings:
    """A line for every method and way to decode, a column for every p."""
    places, values = list(settings["p"]), partial(_values, outcomes)
    kept = [
        (name, way)
        for name in METHODS
        for way in (MAP, MPM)
        if all(outcome[name][way] is not None for _, outcome in outcomes)
    ]
    unit = float(np.mean([outcome[ALONE][SECONDS] for _, outcome in outcomes]))
    rows = []
    for name, way in kept:
        cost = float(np.mean([outcome[name][SECONDS] for _, outcome in outcomes])) / unit
        rows.append(
            (
                f"{name}, {('MAP', 'MPM')[way]}",
                *(mean_interval(values(name, way, p)) for p in places),
                None if name == CEILING else f"{cost:.1f}",
            )
        )
    charts = tuple(
        Chart(
            title,
            "probability that a label repeats",
            "right labels",
            tuple(
                curve(name, places, [values(name, own, p) for p in places], faint=name == CEILING)
                for name in METHODS
                for own in [way if (name, way) in kept else MPM]
            ),
        )
        for title, way in (("best labelling (MAP)", MAP), ("best labels (MPM)", MPM))
    )
    return Findings(
        f"First-order chains: {settings['n_chains']} chains of {settings['length']:,} labels, "
        f"{settings['folds']} of them left out in turn, {len(settings['seeds'])} observation models",
        ("method", *(f"p = {p:g}" for p in places), "time ÷ LogitBoost"),
        tuple(rows),
        notes=(
            "± is half of the 95 % interval over observation models; differences are taken seed by seed",
            f"{EXACT} is trained twice, for each way to decode",
        ),
        charts=charts,
    )


def _values(outcomes: Outcomes, name: str, way: int, p: float) -> list[float]:
    return by_seed(outcomes, lambda outcome: outcome[name][way], p=p)


def claims(settings: Settings, outcomes: Outcomes) -> list[Claim]:
    """The paper's, p by p, and ours on its better forms."""
    places, values = list(settings["p"]), partial(_values, outcomes)
    claims = []
    for p in places:
        one, linear, stump = (values(PAPER, MAP, p), values(LINEAR, MPM, p), values(STUMP, MPM, p))
        if p <= WEAK:
            gap = paired_interval(one, linear)
            claims.append(Claim(f"paper, p = {p:g}: VEB and BRF within .03", gap.within(-0.03, 0.03), gap_text(gap)))
        elif p >= STRONG:
            claims.append(above(f"paper, p = {p:g}: VEB above linear BRF", one, linear))
            claims.append(above(f"paper, p = {p:g}: VEB above BRF with stumps", one, stump))
    strong = [p for p in places if p >= STRONG]
    for p in strong:
        for name in (EXACT, VERIFIED):
            gap = paired_interval(values(name, MPM, p), values(ML, MPM, p))
            claims.append(Claim(f"ours, p = {p:g}: {name} within .01 of ML, MPM", gap.within(-0.01), gap_text(gap)))
        gap = paired_interval(values(VERIFIED, MPM, p), values(CEILING, MPM, p))
        claims.append(
            Claim(f"ours, p = {p:g}: {VERIFIED} within .02 of the ceiling, MPM", gap.within(-0.02), gap_text(gap))
        )
        claims.append(
            above(f"ours, p = {p:g}: ceiling, MPM above MAP", values(CEILING, MPM, p), values(CEILING, MAP, p))
        )
    return claims


STUDY = Study(
    {
        "p": [0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99],
        "seeds": [1, 2, 3, 4, 5],
        "folds": 10,
        "n_chains": 10,
        "length": 2000,
    },
    {"p": [0.5, 0.8, 0.95, 0.99], "seeds": [1, 2, 3], "folds": 1, "n_chains": 10, "length": 1000},
    cases,
    run,
    report,
    claims,
)
