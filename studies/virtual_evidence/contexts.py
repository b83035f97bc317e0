"""Motions and places at once: table 2 of the paper on virtual evidence boosting, on episodes that are made.

Twelve episodes with a wearable sensor, each left out once: six motions and three places at every step, coupled in
time and with each other (`simulate.wearable`; Subramanya, Raj, Bilmes & Fox 2006; Liao, Choudhury, Fox & Kautz 2007,
figure 2). The recordings of the papers are not public, so the order of the methods can be compared and not their
numbers. All twelve sensors are seen by both layers.

    VEB, paper · exact · verified    virtual evidence boosting on the graph of two layers, three relations
    VEB, paper, from prior           algorithm 2 started from the shares of the labels and not from zero
    LogitBoost                       each step and layer on its own, 50 rounds
    all observations → MPL           one stump for every sensor and layer, pseudo-likelihood of the graph
    boosting → MPL                   the stumps of LogitBoost for every layer, pseudo-likelihood of the graph
    boosting → ML                    the same by exact likelihood: a junction tree makes possible what the paper could
                                     not wait for
    raw columns → ML                 the sensors as they are, standardised, exact likelihood
    HMM + boosting                   one hidden Markov model whose states are the pairs, scores of LogitBoost as
                                     emissions (after Subramanya et al., who used AdaBoost)

Graphs are asked with the junction tree. Accuracy is over steps and both layers, as a whole (MAP) and by node (MPM).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np

from crfield.data.graphs.builders import layers
from crfield.data.graphs.graph import Graph
from crfield.errors import CrfieldWarning
from crfield.estimators.boosted.logit_boost import LogitBoost
from crfield.estimators.boosted.virtual_evidence import VirtualEvidenceBoosting
from crfield.estimators.graph.crf import GraphCRF
from crfield.estimators.markov.classifier_hmm import ClassifierHMM
from crfield.estimators.selected.stump_encoder import StumpEncoder
from crfield.estimators.selected.stump_selector import StumpSelector
from crfield.report.displays.curves import Chart
from crfield.report.findings import Claim, Findings, mean_interval, paired_interval
from crfield.simulate.wearable import make_wearable_episodes
from studies.framework import Case, Outcome, Outcomes, Settings, Study, above, by_seed, crossed, curve

PAPER, PRIOR, EXACT, VERIFIED, ALONE = (
    "VEB, paper",
    "VEB, paper, from prior",
    "VEB, exact",
    "VEB, verified",
    "LogitBoost",
)
ALL_MPL, MPL, ML, RAW, HMM = (
    "all observations → MPL",
    "boosting → MPL",
    "boosting → ML",
    "raw columns → ML",
    "HMM + boosting",
)
METHODS = (PAPER, PRIOR, EXACT, VERIFIED, ALONE, ALL_MPL, MPL, ML, RAW, HMM)
PAPERS = {PAPER: "88.8 ± 4.4 %", ALL_MPL: "72.1 ± 3.9 %", MPL: "70.9 ± 6.5 %", HMM: "85.8 ± 2.7 %"}  # its table 2
LAYERS = ("motion", "context")
MOTION, CONTEXT, BOTH = 0, 1, 2  # places in an outcome's ways
ROUNDS = 50
_BETWEEN = "/"
Labels = tuple[np.ndarray, np.ndarray]  # motions and contexts of the episode
Answers = dict[str, Labels]  # by way of decoding


cases = crossed(seed="seeds", out="folds")  # a case is one episode left out of one person's


def run(settings: Settings, case: Case) -> Outcome:
    """All methods: method → {"MAP": [motion, context, both right], "MPM": …}."""
    episodes = Episodes.made(settings["n_episodes"], settings["length"], case["seed"], case["out"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CrfieldWarning)
        answers = {name: _RUNS[name](episodes) for name in METHODS}
    return {name: {way: episodes.shares(labels) for way, labels in own.items()} for name, own in answers.items()}


@dataclass(frozen=True, eq=False)
class Episodes:
    """Episodes to learn from and one to test on."""

    X: list[np.ndarray]  # (T, 12) all sensors
    y: list[dict[str, np.ndarray]]
    held: np.ndarray
    truth: dict[str, np.ndarray]

    @classmethod
    def made(cls, n_episodes: int, length: int, seed: int, out: int) -> Episodes:
        """Of one person, one of them left out."""
        here = make_wearable_episodes(n_episodes, length=length, random_state=seed)
        sensors = [np.concatenate(pair, axis=1) for pair in zip(here.motion_features, here.context_features)]
        labels = [{"motion": motion, "context": context} for motion, context in zip(here.motions, here.contexts)]
        learn = [k for k in range(n_episodes) if k != out]
        return cls([sensors[k] for k in learn], [labels[k] for k in learn], sensors[out], labels[out])

    def shares(self, found: Labels) -> list[float]:
        """Right motions, right contexts, steps right in both."""
        right = [found[k] == self.truth[layer] for k, layer in enumerate(LAYERS)]
        return [float(right[0].mean()), float(right[1].mean()), float((right[0] & right[1]).mean())]

    def of(self, layer: str) -> list[np.ndarray]:
        """The labels of a layer."""
        return [own[layer] for own in self.y]

    @cached_property
    def boosted(self) -> dict[str, tuple[list[np.ndarray], np.ndarray]]:
        """For each layer the stumps of boosting as columns."""
        return {layer: self._encoded(StumpSelector(n_rounds=ROUNDS), layer) for layer in LAYERS}

    @cached_property
    def each(self) -> dict[str, tuple[list[np.ndarray], np.ndarray]]:
        """For each layer one stump for every sensor as columns."""
        return {layer: self._encoded(StumpEncoder(), layer) for layer in LAYERS}

    @cached_property
    def raw(self) -> dict[str, tuple[list[np.ndarray], np.ndarray]]:
        """All sensors for each layer."""
        return {layer: (self.X, self.held) for layer in LAYERS}

    def _encoded(self, encoder: Any, layer: str) -> tuple[list[np.ndarray], np.ndarray]:
        encoder.fit(self.X, self.of(layer))
        return encoder.transform(self.X), encoder.transform([self.held])[0]


# --------------------------------------------------------------------------------------------------------- methods


def _joined(columns: dict[str, tuple[list[np.ndarray], np.ndarray]]) -> tuple[list[Graph], list[Graph]]:
    """Graphs of two layers, to learn from and to test on."""
    counts = range(len(columns[LAYERS[0]][0]))
    return (
        [layers({layer: columns[layer][0][k] for layer in LAYERS}) for k in counts],
        [layers({layer: columns[layer][1] for layer in LAYERS})],
    )


def _asked(model: Any, graphs: Sequence[Graph]) -> Answers:
    """Both ways to decode; the nodes of a graph are those of one layer and then those of the other."""
    answers = {}
    for way, decode in (("MAP", "map"), ("MPM", "marginal")):
        found = model.set_params(decode=decode, engine="junction_tree").predict(graphs)[0]
        half = len(found) // 2
        answers[way] = (found[:half], found[half:])
    return answers


def _virtual(mode: str, **options: Any) -> Callable[[Episodes], Answers]:
    def method(episodes: Episodes) -> Answers:
        learn, held = _joined(episodes.raw)
        model = VirtualEvidenceBoosting(mode=mode, decode="map", **options).fit(learn, episodes.y)
        answers = _asked(model, held)
        if mode == "exact":  # the form that is trained for its decoding
            model = VirtualEvidenceBoosting(mode=mode, decode="marginal", **options).fit(learn, episodes.y)
            answers["MPM"] = _asked(model, held)["MPM"]
        return answers

    return method


def _graph(columns: str, **options: Any) -> Callable[[Episodes], Answers]:
    def method(episodes: Episodes) -> Answers:
        learn, held = _joined(getattr(episodes, columns))
        return _asked(GraphCRF(l2=1.0, engine="junction_tree", **options).fit(learn, episodes.y), held)

    return method


def _alone(episodes: Episodes) -> Answers:
    X = np.concatenate(episodes.X)
    motion, context = (
        LogitBoost(n_rounds=ROUNDS).fit(X, np.concatenate(episodes.of(layer))).predict(episodes.held)
        for layer in LAYERS
    )
    return {"MPM": (motion, context)}


def _hidden(episodes: Episodes) -> Answers:
    pairs = [
        np.array([f"{motion}{_BETWEEN}{context}" for motion, context in zip(own["motion"], own["context"])])
        for own in episodes.y
    ]
    model = ClassifierHMM(LogitBoost(n_rounds=ROUNDS)).fit(episodes.X, pairs)
    answers = {}
    for way, decode in (("MAP", "viterbi"), ("MPM", "marginal")):
        parts = [str(pair).split(_BETWEEN) for pair in model.set_params(decode=decode).predict([episodes.held])[0]]
        answers[way] = (np.array([part[0] for part in parts]), np.array([part[1] for part in parts]))
    return answers


_RUNS: dict[str, Callable[[Episodes], Answers]] = {
    PAPER: _virtual("paper", n_rounds=ROUNDS),
    PRIOR: _virtual("paper", n_rounds=ROUNDS, start="prior"),
    EXACT: _virtual("exact"),
    VERIFIED: _virtual("verified", n_rounds=ROUNDS),
    ALONE: _alone,
    ALL_MPL: _graph("each", objective="pseudo_likelihood"),
    MPL: _graph("boosted", objective="pseudo_likelihood"),
    ML: _graph("boosted", objective="likelihood"),
    RAW: _graph("raw", objective="likelihood", standardize=True),
    HMM: _hidden,
}


def report(settings: Settings, outcomes: Outcomes) -> Findings:
    """A line for every method: motions, contexts, both, overall in both ways, difference to HMM + boosting."""
    values = partial(_values, outcomes)
    rows = []
    for name in METHODS:
        rows.append(
            (
                name,
                mean_interval(values(name, "MAP")),
                mean_interval(values(name, "MPM")),
                None if name == HMM else paired_interval(values(name, "MAP"), values(HMM, "MAP")),
                *(mean_interval(values(name, "MPM", place)) for place in (MOTION, CONTEXT, BOTH)),
                PAPERS.get(name),
            )
        )
    chart = Chart(
        "both layers",
        "",
        "right labels",
        tuple(
            curve(title, METHODS, [values(name, way) for name in METHODS])
            for title, way in (("best labelling (MAP)", "MAP"), ("best labels (MPM)", "MPM"))
        ),
    )
    return Findings(
        f"Motions and contexts: {settings['n_episodes']} episodes of about {settings['length']} steps, "
        f"{settings['folds']} of them left out in turn, {len(settings['seeds'])} persons; right labels",
        (
            "method",
            "overall, MAP",
            "overall, MPM",
            f"MAP − {HMM}",
            "motion, MPM",
            "context, MPM",
            "both, MPM",
            "paper",
        ),
        tuple(rows),
        notes=(
            "± is half of the 95 % interval over persons; differences are taken person by person",
            "the paper's column is of its own recordings: its order can be compared, not its numbers",
        ),
        charts=(chart,),
    )


def _values(outcomes: Outcomes, name: str, way: str, place: int | None = None) -> list[float]:
    known = way if way in outcomes[0][1][name] else "MPM"  # without a joint model there is one way
    if place is None:
        return by_seed(outcomes, lambda outcome: sum(outcome[name][known][:BOTH]) / len(LAYERS))
    return by_seed(outcomes, lambda outcome: outcome[name][known][place])


def claims(settings: Settings, outcomes: Outcomes) -> list[Claim]:
    """The paper's order of methods, and ours."""
    values = partial(_values, outcomes)
    pairs = [("paper", PAPER, rival) for rival in (ALL_MPL, MPL, HMM)]
    pairs += [("paper", HMM, rival) for rival in (ALL_MPL, MPL)]
    pairs += [("ours", name, PAPER) for name in (EXACT, VERIFIED)]
    pairs += [("ours", VERIFIED, HMM), ("ours", ML, MPL), ("ours", ML, HMM)]
    return [
        above(f"{whose}: {name} above {rival}, overall, MAP", values(name, "MAP"), values(rival, "MAP"))
        for whose, name, rival in pairs
    ]


STUDY = Study(
    {"seeds": [1, 2, 3, 4, 5], "folds": 12, "n_episodes": 12, "length": 250},
    {"seeds": [1, 2, 3, 4, 5], "folds": 1, "n_episodes": 8, "length": 200},
    cases,
    run,
    report,
    claims,
)
