"""One world, every model of sequences: what is special about the data says which to take.

The world (`simulate.episodes`) has four switches. With none of them on a hidden Markov model is the truth; each
switch then breaks what one model assumes and another knows:

    plain     nothing on
    copies    the columns that tell of the label come five times
    lengths   episodes have typical lengths
    phases    labels differ in the order of their phases
    rings     labels differ in the distance from a centre, not in any mean
    all       all of it

Every model sees the same columns of the same sequences and gives each step its most probable label. Its penalty (for
the counted Markov model, what is added to counts) is one of the same three for all: the one with most right steps on
the last third of the training sequences. With it the model is trained on all of them. Two rows see the squares of the
columns too, and run only where there are rings. The Bayes rule knows the chances that made the data. CPU time is that
of the last training and of labelling the test sequences.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from time import process_time
from typing import Any

import numpy as np

from crfield.errors import ConvergenceWarning
from crfield.estimators.chain.crf import ChainCRF
from crfield.estimators.chain.memm import MEMM
from crfield.estimators.latent.latent_dynamic import LatentDynamicCRF
from crfield.estimators.markov.hmm import HMM
from crfield.estimators.segments.semi_markov import SemiMarkovCRF
from crfield.estimators.similarity.crf import KernelCRF
from crfield.metrics.segment_scores import segment_f1, segments
from crfield.report.findings import Claim, Findings, mean_interval, paired_interval
from crfield.simulate.episodes import N_PHASES, make_episodes
from studies.framework import Case, Outcome, Outcomes, Settings, Study, crossed, gap_text

COPIES = 5
WORLDS: Mapping[str, Mapping[str, Any]] = {
    "plain": {},
    "copies": {"copies": COPIES},
    "lengths": {"lengths": True},
    "phases": {"phases": True},
    "rings": {"rings": True},
    "all": {"copies": COPIES, "lengths": True, "phases": True, "rings": True},
}
PENALTIES = (10.0, 1.0, 0.1)
HELD_OUT = 1 / 3
LONGER = 0.01  # of the training segments: so many may be longer than the semi-Markov model's longest

BAYES, CRF = "Bayes rule", "CRF"
MARKOV, TRAINED, LOCAL, LATENT, SEGMENTS, KERNEL = (
    "HMM",
    "HMM, gradient",
    "MEMM",
    "latent-dynamic",
    "semi-Markov",
    "kernel",
)
CRF_SQUARES, SEGMENTS_SQUARES = f"{CRF}, squares", f"{SEGMENTS}, squares"

Sequences = Sequence[np.ndarray]
Made = Callable[[float, Sequences, int], Any]  # of a penalty, the labels of the training part, and a seed


def _hmm(penalty: float, y: Sequences, seed: int) -> HMM:
    return HMM("gaussian", smoothing=penalty, decode="marginal")


def _trained(penalty: float, y: Sequences, seed: int) -> HMM:
    return HMM("gaussian", training="discriminative", l2=penalty, decode="marginal")


def _linear(kind: type, penalty: float, y: Sequences, seed: int) -> Any:
    return kind(l2=penalty, decode="marginal")


def _latent(penalty: float, y: Sequences, seed: int) -> LatentDynamicCRF:
    return LatentDynamicCRF(n_states=N_PHASES, l2=penalty, tol=1e-3, random_state=seed)


def _segments(penalty: float, y: Sequences, seed: int) -> SemiMarkovCRF:
    lengths = [stop - start for labels in y for start, stop, _ in segments(labels.tolist())]
    longest = int(np.ceil(np.quantile(lengths, 1 - LONGER / 2)))
    return SemiMarkovCRF(max_length=longest, l2=penalty, tol=1e-3, decode="marginal")


def _kernel(penalty: float, y: Sequences, seed: int) -> KernelCRF:
    return KernelCRF(n_components=200, l2=penalty, decode="marginal", random_state=seed)


MODELS: Mapping[str, Made] = {
    MARKOV: _hmm,
    TRAINED: _trained,
    LOCAL: partial(_linear, MEMM),
    CRF: partial(_linear, ChainCRF),
    LATENT: _latent,
    SEGMENTS: _segments,
    KERNEL: _kernel,
    CRF_SQUARES: partial(_linear, ChainCRF),
    SEGMENTS_SQUARES: _segments,
}
ROWS = (BAYES, *MODELS)
CURVED = (CRF_SQUARES, SEGMENTS_SQUARES)  # they are there for rings, and run where there are some
COLUMNS = ("right steps", *WORLDS, "F1, all", "CPU")


cases = crossed(world=WORLDS, seed="seeds")  # every world of every seed


def report(settings: Settings, outcomes: Outcomes) -> Findings:
    """All models on all worlds."""

    def times(name: str) -> str:
        ratios = [run[name]["seconds"] / run[CRF]["seconds"] for _, run in outcomes if name in run]
        return f"{np.median(ratios):.2g}"

    rows = [
        (
            name,
            *(mean_interval(_told(outcomes, w, name, "right")) if _runs_in(w, name) else None for w in WORLDS),
            mean_interval(_told(outcomes, "all", name, "f1")),
            None if name == BAYES else times(name),
        )
        for name in ROWS
    ]
    return Findings(
        f"Every model on one world: {len(settings['seeds'])} seeds, {settings['n_sequences']} sequences to learn "
        f"from, {settings['n_test']} to test on",
        COLUMNS,
        tuple(rows),
        notes=(
            "share of right steps with each switch on; F1 of segments found by half, all switches on; CPU time over "
            f"{CRF}'s, median",
            f"penalty out of {', '.join(f'{p:g}' for p in PENALTIES)} by the last third of the training part",
            "± is half of the 95 % interval of the mean over seeds",
        ),
    )


def _told(outcomes: Outcomes, world: str, name: str, what: str) -> list[float]:
    return [outcome[name][what] for case, outcome in outcomes if case["world"] == world]


def claims(settings: Settings, outcomes: Outcomes) -> list[Claim]:
    """What each switch does to whom."""
    several = len(settings["seeds"]) > 1

    def surely(world: str, one: str, other: str, least: float, words: str) -> Claim:
        found = paired_interval(*(_told(outcomes, world, name, "right") for name in (one, other)))
        return Claim(f"{world}: {words}", found.within(least) if several else found.mean > least, gap_text(found))

    return [
        surely("plain", MARKOV, BAYES, -0.02, "the HMM is within 2 points of the Bayes rule"),
        surely("plain", CRF, BAYES, -0.02, "the CRF is within 2 points of the Bayes rule"),
        surely("plain", CRF, LOCAL, 0.0, "the CRF is above the MEMM"),
        surely("copies", CRF, MARKOV, 0.0, "the CRF is above the HMM"),
        surely("lengths", SEGMENTS, CRF, 0.03, "the semi-Markov CRF is more than 3 points above the CRF"),
        surely("phases", LATENT, CRF, 0.05, "the latent-dynamic CRF is more than 5 points above the CRF"),
        surely("rings", KERNEL, CRF, 0.2, "the kernel CRF is more than 20 points above the CRF"),
        surely("rings", CRF_SQUARES, CRF, 0.2, "squares as columns raise the CRF by more than 20 points"),
        *(
            surely("all", SEGMENTS_SQUARES, other, 0.0, f"semi-Markov on squares is above {other}")
            for other in (LATENT, KERNEL, CRF_SQUARES)
        ),
    ]


def run(settings: Settings, case: Case) -> Outcome:
    """Every model on the world of one seed: share of right steps, F1 of segments, seconds."""
    world, seed = case["world"], case["seed"]
    learn = make_episodes(n_sequences=settings["n_sequences"], random_state=seed, **WORLDS[world])
    test = make_episodes(n_sequences=settings["n_test"], random_state=10_000 + seed, **WORLDS[world])
    found = {BAYES: {**_judged(test.labels, test.bayes_labels()), "seconds": float("nan")}}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        for name, made in MODELS.items():
            if not _runs_in(world, name):
                continue
            seen = squared if name.endswith("squares") else list
            found[name] = _run_model(made, seen(learn.features), learn.labels, seen(test.features), test.labels, seed)
    return found


def _runs_in(world: str, name: str) -> bool:
    return name not in CURVED or bool(WORLDS[world].get("rings"))


def _run_model(
    made: Made, X: Sequences, y: Sequences, X_test: Sequences, y_test: Sequences, seed: int
) -> dict[str, float]:
    inner = round(len(X) * (1 - HELD_OUT))
    best, most = PENALTIES[0], -1.0
    for penalty in PENALTIES:
        model = made(penalty, y[:inner], seed).fit(X[:inner], y[:inner])
        right = _judged(y[inner:], model.predict(X[inner:]))["right"]
        if right > most:
            best, most = penalty, right
    begun = process_time()
    said = made(best, y, seed).fit(X, y).predict(X_test)
    return {"seconds": process_time() - begun, **_judged(y_test, said)}


def _judged(y: Sequences, said: Sequences) -> dict[str, float]:
    right = np.concatenate(list(y)) == np.concatenate(list(said))
    return {"right": float(right.mean()), "f1": segment_f1(y, said, overlap=0.5)}


def squared(X: Sequences) -> list[np.ndarray]:
    """The columns and their squares.

    >>> squared([np.array([[1.0, 3.0]])])[0].tolist()
    [[1.0, 3.0, 1.0, 9.0]]
    """
    return [np.concatenate([x, x**2], axis=1) for x in X]


FULL: Settings = {"seeds": list(range(5)), "n_sequences": 40, "n_test": 60}
STUDY = Study(FULL, {"seeds": [0, 1], "n_sequences": 12, "n_test": 10}, cases, run, report, claims)
