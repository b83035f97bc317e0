"""Which of five relations is true? Figure 1(b) of the paper on virtual evidence boosting.

The label of a step repeats that of k steps before with probability .9, for k = 1 … 5, and the models join all pairs
up to distance five, five relations of which one is true (`simulate.order_chains`; Liao, Choudhury, Fox & Kautz 2007,
section 5.1, "Feature selection in complex models"). Each of ten chains is left out once. The rows:

    ceiling           the true model
    VEB, paper        virtual evidence boosting, algorithm 2 to the letter, 50 rounds
    VEB, exact        exact normal equations, class prior, ridge, 100 rounds
    VEB, verified     a relation enters only if its pseudo-likelihood gain beats BIC; weights by likelihood
    BRF, linear       boosted random field with linear regressions on beliefs; BRF, stump: with stumps
    ML                likelihood of all five relations, exact by a junction tree of width five
    ML, Bethe         the same by loopy belief propagation from zero, as in the paper; slow, so on a few cases only
    MPL               pseudo-likelihood of all five relations

Joint models are asked with the junction tree, so that differences are those of training. For each form of VEB the
table says where the rounds went: to distance k, to its multiples, or to others.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from crfield.data.graphs.builders import chain
from crfield.data.graphs.graph import Graph
from crfield.estimators.boosted.random_field import BoostedRandomField
from crfield.estimators.boosted.virtual_evidence import VirtualEvidenceBoosting
from crfield.estimators.graph.crf import GraphCRF
from crfield.inference.graphs.loopy import LoopyEngine
from crfield.report.displays.curves import Chart
from crfield.report.findings import Claim, Findings, mean_interval, paired_interval
from crfield.simulate.order_chains import OrderChains, make_order_chains
from studies.framework import Case, Outcome, Outcomes, Settings, Study, above, by_seed, crossed, curve, gap_text
from studies.virtual_evidence.chains import (
    CEILING,
    EXACT,
    LINEAR,
    MAP,
    ML,
    MPL,
    MPM,
    PAPER,
    SECONDS,
    STUMP,
    VERIFIED,
    Scores,
    both_ways,
    ceiling,
    split,
    timed,
)

BETHE = "ML, Bethe"
METHODS = (CEILING, PAPER, EXACT, VERIFIED, LINEAR, STUMP, ML, BETHE, MPL)
BOOSTED = (PAPER, EXACT, VERIFIED)
DISTANCES = (1, 2, 3, 4, 5)
_SWEEPS = 50  # of belief propagation in training; where it goes in circles more sweeps only cost time
Method = Callable[[OrderChains, int], Scores]


cases = crossed(seed="seeds", k="k", out="folds")  # a case is one chain left out of one world of one order


def run(settings: Settings, case: Case) -> Outcome:
    """All methods: method → [MAP, MPM, CPU seconds]; "picks": form of VEB → distance → rounds."""
    world = make_order_chains(
        0.9, case["k"], n_chains=settings["n_chains"], length=settings["length"], random_state=case["seed"]
    )
    picks: dict[str, dict[str, int]] = {}

    def boosted(name: str, mode: str, n_rounds: int) -> Method:
        def method(world: OrderChains, out: int) -> Scores:
            scores, picks[name] = _boosted(world, out, mode, n_rounds)
            return scores

        return method

    methods: dict[str, Method] = {
        CEILING: ceiling,
        PAPER: boosted(PAPER, "paper", 50),
        EXACT: boosted(EXACT, "exact", 100),
        VERIFIED: boosted(VERIFIED, "verified", 100),
        LINEAR: lambda world, out: _field(world, out, "linear"),
        STUMP: lambda world, out: _field(world, out, "stump"),
        ML: _likelihood,
        MPL: _pseudo,
    }
    if [case["seed"], case["out"]] in settings["bethe"]:
        methods[BETHE] = _bethe
    told: Outcome = {name: timed(method, world, case["out"]) for name, method in methods.items()}
    return {**told, "picks": picks}


# --------------------------------------------------------------------------------------------------------- methods


def joined(X: list[np.ndarray]) -> list[Graph]:
    """Chains with all pairs up to distance five."""
    return [chain(x, distances=DISTANCES, symmetric=True) for x in X]


def _boosted(world: OrderChains, out: int, mode: str, n_rounds: int) -> tuple[Scores, dict[str, int]]:
    X, y, held, truth = split(world, out)
    model = VirtualEvidenceBoosting(mode=mode, n_rounds=n_rounds, decode="marginal").fit(joined(X), y)
    names = [f"+{distance}" for distance in DISTANCES]
    if mode == "verified":
        picked = {name: int(name in model.accepted_relations_) for name in names}
    else:
        picked = {name: model.rounds_.relations.get(name, 0) for name in names}
    whole, single = both_ways(model.set_params(engine="junction_tree"), joined(held), truth)
    if mode == "exact":  # the form that is trained for its decoding
        model = VirtualEvidenceBoosting(n_rounds=n_rounds, decode="map").fit(joined(X), y)
        whole = float(model.set_params(engine="junction_tree").score(joined(held), truth))
    return (whole, single), picked


def _field(world: OrderChains, out: int, learner: str) -> Scores:
    X, y, held, truth = split(world, out)
    return None, float(BoostedRandomField(learner=learner, n_rounds=50).fit(joined(X), y).score(joined(held), truth))


def _likelihood(world: OrderChains, out: int) -> Scores:
    X, y, held, truth = split(world, out)
    model = GraphCRF(objective="likelihood", engine="junction_tree", l2=1.0).fit(joined(X), y)
    return both_ways(model, joined(held), truth)


def _bethe(world: OrderChains, out: int) -> Scores:
    X, y, held, truth = split(world, out)
    model = GraphCRF(objective="likelihood", engine=LoopyEngine(max_sweeps=_SWEEPS), initial="zero", l2=1.0)
    return both_ways(model.fit(joined(X), y).set_params(engine="junction_tree"), joined(held), truth)


def _pseudo(world: OrderChains, out: int) -> Scores:
    X, y, held, truth = split(world, out)
    model = GraphCRF(objective="pseudo_likelihood", l2=1.0).fit(joined(X), y)
    return both_ways(model.set_params(engine="junction_tree"), joined(held), truth)


def report(settings: Settings, outcomes: Outcomes) -> Findings:
    """A line for every method and way to decode, a column for every k and one for their mean."""
    orders = list(settings["k"])
    kept = [
        (name, way)
        for name in METHODS
        for way in (MAP, MPM)
        if name != BETHE and all(outcome[name][way] is not None for _, outcome in outcomes)
    ]
    values = partial(_values, outcomes)
    unit = float(np.mean([outcome[MPL][SECONDS] for _, outcome in outcomes]))
    rows: list[tuple[Any, ...]] = []
    for name, way in kept:
        cost = float(np.mean([outcome[name][SECONDS] for _, outcome in outcomes])) / unit
        cells = [mean_interval(values(name, way, k)) for k in [*orders, None]]
        rows.append((f"{name}, {('MAP', 'MPM')[way]}", *cells, None if name == CEILING else f"{cost:.1f}"))
    rows += _bethe_rows(orders, outcomes, unit)
    rows += [
        (f"{name}: {'accepted' if name == VERIFIED else 'rounds'} {where}", *cells, None)
        for name in BOOSTED
        for where, cells in _picked(name, orders, outcomes).items()
    ]
    chart = Chart(
        "mean over k",
        "",
        "right labels",
        tuple(
            curve(
                title,
                [name for name in METHODS if (name, way) in kept],
                [values(name, way) for name in METHODS if (name, way) in kept],
            )
            for title, way in (("best labelling (MAP)", MAP), ("best labels (MPM)", MPM))
        ),
    )
    return Findings(
        f"Chains of order k, all pairs up to distance 5: {settings['n_chains']} chains of {settings['length']:,} "
        f"labels, {settings['folds']} of them left out in turn, {len(settings['seeds'])} observation models",
        ("method", *(f"k = {k}" for k in orders), "mean", "time ÷ MPL"),
        tuple(rows),
        notes=(
            "± is half of the 95 % interval over observation models; differences are taken seed by seed",
            f"{EXACT} is trained twice, for each way to decode",
            f"{BETHE}: on {len(settings['bethe'])} of the cases of every k; the paper trained ML in this way",
        ),
        charts=(chart,),
    )


def _bethe_rows(orders: list[int], outcomes: Outcomes, unit: float) -> list[tuple[Any, ...]]:
    some = [(case, outcome) for case, outcome in outcomes if BETHE in outcome]
    if not some:
        return []
    cost = float(np.mean([outcome[BETHE][SECONDS] for _, outcome in some])) / unit
    rows = []
    for way, title in ((MAP, "MAP"), (MPM, "MPM")):
        means = [
            float(np.mean([o[BETHE][way] for case, o in some if k in (None, case["k"])])) for k in [*orders, None]
        ]
        rows.append((f"{BETHE}, {title}", *means, f"{cost:.1f}"))
    return rows


def _picked(name: str, orders: list[int], outcomes: Outcomes) -> dict[str, list[str]]:
    """How many relations of each sort were picked, on the average, for every k and over all."""
    found: dict[str, list[str]] = {}
    for where, asked in _SORTS.items():
        counts = [(case["k"], _count(outcome["picks"][name], case["k"], asked)) for case, outcome in outcomes]
        found[where] = [
            f"{np.mean([count for own, count in counts if k in (None, own)]):.1f}" for k in [*orders, None]
        ]
    return found


_SORTS: dict[str, Callable[[int, int], bool]] = {
    "at distance k": lambda distance, k: distance == k,
    "at multiples of k": lambda distance, k: distance > k and distance % k == 0,
    "at others": lambda distance, k: distance % k != 0,
}


def _count(picks: dict[str, int], k: int, asked: Callable[[int, int], bool]) -> int:
    return sum(rounds for name, rounds in picks.items() if asked(int(name[1:]), k))


def _values(outcomes: Outcomes, name: str, way: int, k: int | None = None) -> list[float]:
    return by_seed(outcomes, lambda outcome: outcome[name][way], **({} if k is None else {"k": k}))


def claims(settings: Settings, outcomes: Outcomes) -> list[Claim]:
    """The paper's and ours: which relations are picked, and who is above whom."""
    values = partial(_values, outcomes)
    claims = []
    for name in (PAPER, EXACT):
        wrong = sum(_count(o["picks"][name], case["k"], _SORTS["at others"]) for case, o in outcomes)
        rounds = sum(sum(o["picks"][name].values()) for _, o in outcomes)
        whose = "paper" if name == PAPER else "ours"
        sentence = f"{whose}: {name} picks only relations at distance k or its multiples"
        claims.append(Claim(sentence, wrong == 0, f"{wrong} of {rounds} picks of relations are at others"))
    for rival, way in ((LINEAR, MPM), (STUMP, MPM), (ML, MAP), (MPL, MAP)):
        sentence = f"paper: VEB above {rival}, mean over k, MAP"
        claims.append(above(sentence, values(PAPER, MAP), values(rival, way)))
    right = [o["picks"][VERIFIED] == {f"+{d}": int(d == case["k"]) for d in DISTANCES} for case, o in outcomes]
    claims.append(
        Claim(f"ours: {VERIFIED} accepts exactly distance k", all(right), f"{sum(right)} of {len(right)} cases")
    )
    for rival in (ML, CEILING):
        gap = paired_interval(values(VERIFIED, MPM), values(rival, MPM))
        sentence = f"ours: {VERIFIED} within .01 of {'the ceiling' if rival == CEILING else rival}, mean over k, MPM"
        claims.append(Claim(sentence, gap.within(-0.01), gap_text(gap)))
    return claims


STUDY = Study(
    {
        "k": [1, 2, 3, 4, 5],
        "seeds": [1, 2, 3, 4, 5],
        "folds": 10,
        "n_chains": 10,
        "length": 2000,
        "bethe": [[1, 0], [2, 0]],
    },
    {"k": [1, 2, 3, 4, 5], "seeds": [1, 2, 3], "folds": 1, "n_chains": 5, "length": 1000, "bethe": []},
    cases,
    run,
    report,
    claims,
)
