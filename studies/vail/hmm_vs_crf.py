"""Generative or discriminative? Section 2.6 of the thesis on activity recognition, figures 2.2 to 2.4.

Three worlds of two labels, a hidden Markov model that is counted against a chain CRF with columns of the same power
(Vail 2008, *Conditional random fields for activity recognition*):

    few data       rows of the Pima Indians Diabetes data drawn for the labels of a Markov chain, training on T steps
                   (figure 2.2; after Ng & Jordan 2002 on naive Bayes and logistic regression)
    copies         n copies of one observation with 20 % noise, and n observations with 25 % noise each: the model
                   takes the copies for n witnesses (figure 2.3)
    switched       a coin, seen one step before, decides whether labels stay with probability p or 1 − p: no emission
                   can say that, a feature of two labels can (figure 2.4)

A trial is a seed: a new split, a new training sequence and a new test sequence; errors are of the best label of each
step. The thesis gives no self-transition for the first world (here .75, as in the second) and no length for the other
two (here 1,000 steps). At T = 10 a training sequence may hold one label only, which is then the answer.
"""

from __future__ import annotations

import io
import os
import warnings
from functools import partial
from typing import Any

import numpy as np

from crfield.errors import ConvergenceWarning, DataWarning, FormatError
from crfield.estimators.chain.crf import ChainCRF
from crfield.estimators.markov.hmm import HMM
from crfield.report.displays.curves import Chart
from crfield.report.findings import Claim, Findings, mean_interval, paired_interval
from crfield.storage.files import read_text
from studies.framework import Case, Outcome, Outcomes, Settings, Study, above, crossed, curve, data_path, gap_text

FEW, COPIES, SWITCHED = "few data", "copies", "switched"
MARKOV, FIELD, FIRM, UNLINKED = "HMM", "CRF", "CRF, l2 = 1", "CRF without the link"
MODELS = {FEW: (MARKOV, FIELD, FIRM), COPIES: (MARKOV, FIELD), SWITCHED: (MARKOV, FIELD, UNLINKED)}
L2 = 0.01  # of the field that is nearly not smoothed
STAYS = 0.75
PIMA = os.path.join("pima", "pima-indians-diabetes.csv")

Sequence = tuple[np.ndarray, np.ndarray]  # columns (T, D) and labels (T,)


# ---------------------------------------------------------------------------------------------------------- worlds


def markov_labels(length: int, stays: np.ndarray | float, rng: np.random.Generator) -> np.ndarray:
    """(T,) labels 0 and 1 that stay with a probability, one for all steps or one for each.

    >>> markov_labels(3, 1.0, np.random.default_rng(0)).tolist() in ([0, 0, 0], [1, 1, 1])
    True
    """
    changes = rng.random(length) >= stays
    changes[0] = rng.random() < 0.5
    return np.cumsum(changes) % 2


def read_pima(folder: str) -> Sequence:
    """Attributes (768, 8) and labels of the Pima Indians Diabetes data."""
    path = os.path.join(folder, PIMA)
    try:
        table = np.loadtxt(io.StringIO(read_text(path)), delimiter=",", skiprows=1)
    except ValueError as error:
        raise FormatError(f"not the table of numbers that was expected: {error}.", file=path) from None
    return table[:, :-1], table[:, -1].astype(int)


def pima_pair(data: Sequence, length: int, test_length: int, rng: np.random.Generator) -> tuple[Sequence, Sequence]:
    """A training and a test sequence whose rows are drawn from two halves of the data."""
    order = rng.permutation(len(data[1]))
    halves = order[: len(order) // 2], order[len(order) // 2 :]
    made = []
    for half, steps in zip(halves, (length, test_length)):
        labels = markov_labels(steps, STAYS, rng)
        pools = [half[data[1][half] == c] for c in (0, 1)]
        rows = np.array([rng.choice(pools[c]) for c in labels])
        made.append((data[0][rows], labels))
    return made[0], made[1]


def copied(n: int, length: int, rng: np.random.Generator) -> Sequence:
    """n copies of one observation that is wrong in 20 % of the steps, and n others each wrong in 25 %.

    >>> copied(2, 5, np.random.default_rng(0))[0].shape
    (5, 4)
    """
    labels = markov_labels(length, STAYS, rng)
    same = labels ^ (rng.random(length) < 0.2)
    own = labels[:, None] ^ (rng.random((length, n)) < 0.25)
    return np.concatenate([np.repeat(same[:, None], n, axis=1), own], axis=1).astype(float), labels


def switched(p: float, length: int, rng: np.random.Generator) -> Sequence:
    """The label with 25 % noise, and a coin; heads at a step: the next label is the same with p, else with 1 − p."""
    coin = rng.random(length) < 0.5
    before = np.roll(coin, 1)
    labels = markov_labels(length, np.where(before, p, 1 - p), rng)
    seen = labels ^ (rng.random(length) < 0.25)
    return np.stack([seen, coin], axis=1).astype(float), labels


cases = crossed(world=MODELS, seed="seeds")  # a case is a trial of one world, at all its places


def run(settings: Settings, case: Case) -> Outcome:
    """Place → model → share of wrong labels."""
    world = case["world"]
    data = read_pima(data_path(settings)) if world == FEW else None
    outcome: Outcome = {}
    for number, place in enumerate(settings[world]):
        rng = np.random.default_rng([case["seed"], list(MODELS).index(world), number])
        if data is not None:
            train, test = pima_pair(data, int(place), settings["test"], rng)
        else:
            make = copied if world == COPIES else switched
            train, test = (make(place, settings["length"], rng) for _ in range(2))
        outcome[str(place)] = {name: wrong(name, world, train, test) for name in MODELS[world]}
    return outcome


def wrong(name: str, world: str, train: Sequence, test: Sequence) -> float:
    """Share of test labels that a model gets wrong."""
    (X, y), (Z, z) = train, test
    model: Any
    if name == MARKOV:
        model = HMM("gaussian" if world == FEW else "categorical")
    else:
        X, Z = (columns(world, one, X) for one in (X, Z))
        model = ChainCRF(
            l2=1.0 if name == FIRM else L2,
            transition_features=(1,) if world == SWITCHED and name == FIELD else None,
            decode="marginal",
            max_iter=1000,
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.simplefilter("ignore", DataWarning)
        model.fit([X], [y])
    return float((model.predict([Z])[0] != z).mean())


def columns(world: str, rows: np.ndarray, train: np.ndarray) -> np.ndarray:
    """What the field sees: numbers on the scale of the training data and their squares; the coin one step before."""
    if world == FEW:
        unit = train.std(axis=0)
        scaled = (rows - train.mean(axis=0)) / np.where(unit > 0, unit, 1.0)
        return np.concatenate([scaled, scaled**2], axis=1)
    if world == COPIES:
        return rows
    return np.stack([rows[:, 0], np.roll(rows[:, 1], 1)], axis=1)


def report(settings: Settings, outcomes: Outcomes) -> Findings:
    """A line for each world and place, and figures 2.2 to 2.4."""
    values = partial(_values, outcomes)
    rows: list[tuple[Any, ...]] = []
    for world, names in MODELS.items():
        for place in settings[world]:
            both = [values(world, place, name) for name in (FIELD, MARKOV)]
            others = [n for n in (FIRM, UNLINKED) if n in names]
            rows.append(
                (
                    f"{world}, {_AXES[world][0]} = {place:g}",
                    mean_interval(both[1]),
                    mean_interval(both[0]),
                    paired_interval(*both),
                    mean_interval(values(world, place, others[0])) if others else None,
                )
            )
    charts = tuple(
        Chart(
            f"{figure}: {world}",
            axis,
            "wrong labels",
            tuple(
                curve(name, list(settings[world]), [values(world, place, name) for place in settings[world]])
                for name in MODELS[world]
            ),
        )
        for world, (axis, figure) in _AXES.items()
    )
    return Findings(
        f"A counted HMM and a CRF of the same power, section 2.6: {len(settings['seeds'])} trials",
        ("world", "HMM", "CRF", "CRF − HMM", "CRF with l2 = 1, or without the link"),
        tuple(rows),
        notes=(
            "wrong labels, the best of each step; ± is half of the 95 % interval over trials, differences by trial",
            f"T: steps of training, {settings['test']} of test; n: copies; p: probability to stay after heads; "
            f"{settings['length']:,} steps of training and of test in the last two worlds",
        ),
        charts=charts,
    )


_AXES = {FEW: ("T", "figure 2.2"), COPIES: ("n", "figure 2.3"), SWITCHED: ("p", "figure 2.4")}


def _values(outcomes: Outcomes, world: str, place: Any, name: str) -> list[float]:
    return [outcome[str(place)][name] for case, outcome in outcomes if case["world"] == world]


def claims(settings: Settings, outcomes: Outcomes) -> list[Claim]:
    """The thesis's, and figures of our own."""
    values = partial(_values, outcomes)
    short = values(FEW, 50, FIELD), values(FEW, 50, MARKOV)
    long = values(FEW, 500, MARKOV), values(FEW, 500, FIELD)
    claims = [
        above("paper: 50 steps, the HMM has fewer errors", *short),
        above("paper: 500 steps, the CRF has fewer errors", *long),
        _least("ours: 50 steps, the HMM by at least 2 points", short, 0.02),
        _least("ours: 500 steps, the CRF by at least 1.5 points", long, 0.015),
        above("paper: the HMM gets worse with more copies", values(COPIES, 10, MARKOV), values(COPIES, 2, MARKOV)),
        above("paper: the CRF gets better with more copies", values(COPIES, 2, FIELD), values(COPIES, 10, FIELD)),
        _near("ours: 10 copies, HMM 19.5 ± 1.5 %", values(COPIES, 10, MARKOV), 0.195, 0.015),
        _near("ours: 10 copies, CRF 2.8 ± .8 %", values(COPIES, 10, FIELD), 0.028, 0.008),
    ]
    for p in (0.02, 0.98):
        pair = values(SWITCHED, p, MARKOV), values(SWITCHED, p, FIELD)
        claims.append(above(f"paper: p = {p:g}, the CRF has fewer errors", *pair))
    even = paired_interval(values(SWITCHED, 0.5, MARKOV), values(SWITCHED, 0.5, FIELD))
    claims.append(Claim("paper: p = .5, no difference of a point", even.within(-0.01, 0.01), gap_text(even)))
    claims += [
        _near("ours: p = .02, CRF 4.7 ± 1.5 %", values(SWITCHED, 0.02, FIELD), 0.047, 0.015),
        _near("ours: p = .02, HMM 25 ± 1.5 %", values(SWITCHED, 0.02, MARKOV), 0.25, 0.015),
        _near("ours: p = .5, CRF 25 ± 1.5 %", values(SWITCHED, 0.5, FIELD), 0.25, 0.015),
    ]
    return claims


def _least(sentence: str, pair: tuple[list[float], list[float]], gap: float) -> Claim:
    found = paired_interval(*pair)
    return Claim(sentence, found.within(gap), gap_text(found))


def _near(sentence: str, values: list[float], wanted: float, within: float) -> Claim:
    mean = float(np.mean(values))
    return Claim(sentence, abs(mean - wanted) <= within, f"{100 * mean:.1f} %")


STUDY = Study(
    {
        "seeds": list(range(1, 301)),
        FEW: [10, 20, 30, 50, 100, 200, 500],
        COPIES: [1, 2, 3, 5, 10, 20],
        SWITCHED: [0.02, 0.1, 0.3, 0.5, 0.7, 0.9, 0.98],
        "test": 500,
        "length": 1000,
    },
    {
        "seeds": list(range(1, 41)),
        FEW: [10, 50, 500],
        COPIES: [1, 2, 10],
        SWITCHED: [0.02, 0.5, 0.98],
        "test": 500,
        "length": 1000,
    },
    cases,
    run,
    report,
    claims,
)
