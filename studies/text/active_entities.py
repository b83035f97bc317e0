"""Active learning on Spanish names (CoNLL-2002): F1 against the number of tokens that a person has labelled.

A pool of sentences of ``esp.train`` is given without labels, but for a few drawn at random. A chain is trained on
these, says which sentences it doubts most (`crfield.rank_for_labelling`), gets their labels, is trained again, and
so on: each round labels about as many tokens as the last, so that ways that like long sentences gain nothing by
that. Beside the ways to measure doubt stands the choice at random. Scores are of ``esp.testa``; nothing is chosen
by them. A seed draws pool and beginning, the same for all ways, so that differences are taken seed by seed.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from crfield.estimators.active_learning import rank_for_labelling
from crfield.estimators.chain.crf import ChainCRF
from crfield.features.text.transformer import TextFeatures
from crfield.metrics import span_report
from crfield.report.displays.curves import Chart
from crfield.report.findings import Claim, Findings, mean_interval
from studies.framework import Case, Outcome, Outcomes, Settings, Study, above, crossed, curve, data_path, where
from studies.text.spanish_entities import read_names

RANDOM = "at random"
WAYS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "least confidence": {"by": "least_confidence", "per_step": False},
        "margin": {"by": "margin", "per_step": False},
        "entropy": {"by": "entropy", "per_step": False},
        "entropy per step": {"by": "entropy", "per_step": True},
        "n-best entropy": {"by": "n_best_entropy", "per_step": False},
        "entropy, diverse": {"by": "entropy", "per_step": False, "diversity": 0.3},
    }
)
CANDIDATES = 4  # times as many sentences as the budget of a round may need are ranked


def run(settings: Settings, case: Case) -> Outcome:
    """One way to choose, from the beginning to the end of the budget."""
    train = read_names(data_path(settings, "conll2002", "esp.train.gz"))
    test = read_names(data_path(settings, "conll2002", "esp.testa.gz"), settings["most_test"])
    rng = np.random.default_rng(case["seed"])
    pool = rng.permutation(len(train[1]))[: settings["pool"]]
    features = TextFeatures()
    rows, gold = features.transform([train[0][int(s)] for s in pool]), [train[1][int(s)] for s in pool]
    asked, truth = features.transform(test[0]), test[1]
    sizes = np.array([len(tags) for tags in gold])
    labelled = list(range(settings["first"]))
    tokens, scores = [], []
    for number in range(settings["rounds"] + 1):
        model = ChainCRF(l2=0.5, tol=settings["tol"], n_jobs=settings["n_jobs"])
        model.fit([rows[s] for s in labelled], [gold[s] for s in labelled])
        tokens.append(int(sizes[labelled].sum()))
        scores.append(float(span_report(truth, model.predict(asked)).f1))
        if number == settings["rounds"]:
            break
        free = np.setdiff1d(np.arange(len(gold)), labelled)
        goal = settings["budget"] * (number + 1) + int(sizes[: settings["first"]].sum())
        labelled += _next(model, rows, free, sizes, case["way"], goal - tokens[-1], rng)
    return {"tokens": tokens, "f1": scores}


def _next(
    model: ChainCRF, rows: Any, free: np.ndarray, sizes: np.ndarray, way: str, budget: int, rng: np.random.Generator
) -> list[int]:
    """Sentences of about ``budget`` tokens that are to be labelled next."""
    order = rng.permutation(free)
    if way != RANDOM:
        most = CANDIDATES * max(1, budget // 10)
        order = free[rank_for_labelling(model, [rows[s] for s in free], most, **WAYS[way]).numbers]
    upto = int(np.searchsorted(np.cumsum(sizes[order]), budget)) + 1
    return [int(s) for s in order[:upto]]


def _ways(settings: Settings) -> list[str]:
    return [RANDOM, *settings["ways"]]


def cases(settings: Settings) -> list[Case]:
    """Every way for every seed."""
    return crossed(way=_ways(settings), seed="seeds")(settings)


def _f1(outcomes: Outcomes, way: str, number: int) -> list[float]:
    return [outcome["f1"][number] for _, outcome in where(outcomes, way=way)]


def _area(outcomes: Outcomes, way: str) -> list[float]:
    """Mean F1 over the rounds after the first, of every seed."""
    return [float(np.mean(outcome["f1"][1:])) for _, outcome in where(outcomes, way=way)]


def _saved(outcomes: Outcomes, way: str) -> list[float]:
    """The share of tokens that a way needs for what the choice at random comes to at its end, of every seed."""
    shares = []
    for (_, plain), (_, own) in zip(where(outcomes, way=RANDOM), where(outcomes, way=way)):
        best = np.maximum.accumulate(own["f1"])
        needed = float(np.interp(max(plain["f1"]), best, own["tokens"]))
        shares.append(needed / plain["tokens"][-1])
    return shares


def report(settings: Settings, outcomes: Outcomes) -> Findings:
    """F1 after some rounds, its mean over all rounds, and the tokens needed for what chance comes to."""
    rounds = settings["rounds"]
    shown = sorted({1, rounds // 2, rounds} - {0})
    tokens = np.mean([outcome["tokens"] for _, outcome in outcomes], axis=0)
    columns = ("choice", *(f"F1 at {tokens[k]:,.0f} tokens" for k in shown), "mean over rounds", "tokens needed")
    rows = []
    for way in _ways(settings):
        cells = [mean_interval(_f1(outcomes, way, k)) for k in shown]
        needed = 1.0 if way == RANDOM else mean_interval(_saved(outcomes, way))
        rows.append((way, *cells, mean_interval(_area(outcomes, way)), needed))
    curves = [
        curve(way, tokens.round().astype(int).tolist(), [_f1(outcomes, way, k) for k in range(rounds + 1)])
        for way in _ways(settings)
    ]
    return Findings(
        f"Spanish names: F1 on testa while sentences of a pool of {settings['pool']:,} are labelled",
        columns,
        tuple(rows),
        notes=(
            f"{len(settings['seeds'])} seeds; {settings['first']} sentences to begin with, then about "
            f"{settings['budget']:,} tokens a round, {rounds} rounds; TextFeatures and ChainCRF(l2=0.5)",
            "tokens needed: for the best F1 that the choice at random comes to, as a share of its tokens; 1 if not "
            "reached",
        ),
        charts=(Chart("F1 of spans on testa", "tokens labelled", "F1", tuple(curves)),),
    )


def claims(settings: Settings, outcomes: Outcomes) -> list[Claim]:
    """Doubt beats chance, and how much it saves."""
    chance = _area(outcomes, RANDOM)
    out = [
        above(f"{way} above the choice at random, mean F1 over the rounds", _area(outcomes, way), chance)
        for way in settings["ways"]
    ]
    return out


FULL: Settings = {
    "ways": list(WAYS),
    "seeds": [0, 1, 2, 3, 4],
    "pool": 4000,
    "first": 60,
    "rounds": 10,
    "budget": 1500,
    "most_test": None,
    "tol": 1e-2,
}
QUICK: Settings = {
    "ways": ["least confidence", "entropy"],
    "seeds": [0, 1],
    "pool": 400,
    "first": 20,
    "rounds": 2,
    "budget": 400,
    "most_test": 200,
    "tol": 1e-1,
}
STUDY = Study(FULL, QUICK, cases, run, report, claims)
