"""What the M-estimator is worth: on a model that is known, and on tag.

*Known model.* Sequences of ten steps with three labels and three numeric columns, drawn from a chain whose weights
are known: the distance of the estimated weights to the true ones and to those of maximum likelihood, as data grow.
Constants that change no probability are taken out before.

    ML                  likelihood, to its optimum
    refreshed           whole sequences as blocks, the reference renewed until nothing changes
    sequences, Markov   one shot, whole sequences, reference the chain of labels
    blocks, Markov      one shot, blocks of three steps

*Tag.* Speeds, chasing (with squares) and closeness, 93 weights, ten minutes of training, ten to choose by and ten of
test. The penalty of ML and the ridge of the M-estimates are chosen on the game held out; CPU seconds are those of one
fit. The one-shot estimate sees blocks of ten steps and the Markov chain of labels; *refreshed × k* has blocks of
thirty and the penalty of ML.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from crfield.core.potentials import Potentials
from crfield.core.semiring import Semiring
from crfield.core.target import Target
from crfield.core.topology import Chains
from crfield.data.batch import Batch, Columns
from crfield.features.columns.trajectories import Scaling, TagSet, TrajectoryColumns, tag_columns
from crfield.inference.chain import ChainEngine
from crfield.report.displays.curves import Chart
from crfield.report.findings import Claim, Findings, mean_interval, paired_interval
from crfield.scoring.layout import Layout
from crfield.scoring.linear import LinearScorer
from crfield.simulate.tag import TagGames, make_tag
from crfield.training.m_estimate import m_estimate
from studies.framework import Case, Outcome, Outcomes, Settings, Study, by_seed, curve, gap_text
from studies.vail.tag.models import Encoded, judge, likelihood

ML, SHORT_ML, BLOCK = "ML", "ML, 60 steps", "one shot"
SIX, FIFTEEN = "refreshed × 6", "refreshed × 15"
TAG_METHODS = (ML, SHORT_ML, BLOCK, SIX, FIFTEEN)
REFRESHED, WHOLE, PARTS = "refreshed", "sequences, Markov", "blocks, Markov"
KNOWN_METHODS = (ML, REFRESHED, WHOLE, PARTS)
TO_TRUTH, TO_ML = 0, 1
ERROR, LOG_PROB, SECONDS = 0, 1, 2
SET = TagSet(("velocity", "chasing", "closeness"))
LABELS, STEPS, COLUMNS = 3, 10, 3


def cases(settings: Settings) -> list[Case]:
    """Known models of every size, and games of tag."""
    known = [{"seed": seed, "world": "known", "n": n} for seed in settings["seeds"] for n in settings["sizes"]]
    return known + [{"seed": seed, "world": "tag", "n": 0} for seed in settings["seeds"]]


def run(settings: Settings, case: Case) -> Outcome:
    """Known: method → [rmse to the truth, rmse to ML]; tag: method → [error, log p(y | x), CPU seconds]."""
    return _known(case["seed"], case["n"]) if case["world"] == "known" else _tag(settings, case["seed"])


# ----------------------------------------------------------------------------------------------------- known model


def known_model(n: int, seed: int) -> tuple[Layout, Batch, Target, np.ndarray]:
    """n sequences drawn from a chain with known weights: layout, columns, labels, weights.

    >>> layout, batch, target, truth = known_model(5, 1)
    >>> layout.n_weights, batch.topology.n_nodes, len(truth)
    (18, 50, 18)
    """
    rng = np.random.default_rng([seed, n])
    chains = Chains.from_lengths([STEPS] * n)
    rows = np.zeros(chains.n_nodes + 1, np.int64)
    columns = rng.normal(size=(chains.n_nodes, COLUMNS))
    batch = Batch(chains, Columns(rows, np.zeros(0, np.int32), 0, dense=columns))
    layout = Layout(LABELS, n_dense=COLUMNS, pairs=np.arange(LABELS**2, dtype=np.int32))
    truth = 0.5 * np.random.default_rng(seed).normal(size=layout.n_weights)
    return layout, batch, Target(chains, LABELS, drawn(LinearScorer(layout).score(truth, batch), rng)), truth


def drawn(potentials: Potentials, rng: np.random.Generator) -> np.ndarray:
    """(N,) labels drawn from chains of equal length, step by step from the pair marginals."""
    chains, engine = potentials.topology, ChainEngine()
    sequences, steps = chains.n_sequences, int(chains.lengths[0])
    first = engine.infer(potentials, Semiring.LOG).node.reshape(sequences, steps, -1)[:, 0]
    pairs = engine.edge_marginals(potentials).reshape(sequences, steps - 1, first.shape[1], -1)
    labels = np.empty((sequences, steps), np.int64)
    shares = first
    for t in range(steps):
        bounds = np.cumsum(shares, axis=1)
        draws = rng.random(sequences)[:, None] * bounds[:, -1:]
        labels[:, t] = np.minimum((draws >= bounds).sum(axis=1), shares.shape[1] - 1)
        if t < steps - 1:
            shares = pairs[np.arange(sequences), t, labels[:, t]]
    return labels.ravel()


def without_constants(layout: Layout, weights: np.ndarray) -> np.ndarray:
    """Weights less what changes no probability: a column's mean over labels, the mean of all transitions."""
    out, part = weights.copy(), layout.part
    table = out[part["dense"]].reshape(layout.n_dense, layout.n_labels)
    out[part["dense"]] = (table - table.mean(axis=1, keepdims=True)).ravel()
    out[part["transitions"]] -= out[part["transitions"]].mean()
    return out


def _known(seed: int, n: int) -> Outcome:
    layout, batch, target, truth = known_model(n, seed)
    encoded = Encoded(batch, target)
    found = {
        ML: likelihood(encoded, layout, l2=1e-6, max_iter=500, tol=1e-10).weights,
        REFRESHED: m_estimate(layout, batch, target, block=None, ridge=0.1, l2=1e-6, refreshes=30, tol=1e-9).weights,
        WHOLE: m_estimate(layout, batch, target, block=None, ridge=1e-3).weights,
        PARTS: m_estimate(layout, batch, target, block=3, ridge=1e-3).weights,
    }
    plain = {name: without_constants(layout, weights) for name, weights in found.items()}
    goal = without_constants(layout, truth)
    return {
        name: [float(np.sqrt(np.mean((own - other) ** 2))) for other in (goal, plain[ML])]
        for name, own in plain.items()
    }


# ------------------------------------------------------------------------------------------------------------- tag


def tag_game(seed: int, minutes: float) -> list[Encoded]:
    """Three games as columns of 93 weights, scaled by the first.

    >>> tag_game(1, 0.2)[0].layout().n_weights
    93
    """
    games = [make_tag(minutes, random_state=3 * seed + k) for k in range(3)]
    columns = [_without_negations(game) for game in games]
    scaling = Scaling.of(columns[:1])
    return [Encoded.of(scaling(one), game) for one, game in zip(columns, games)]


def _without_negations(game: TagGames) -> TrajectoryColumns:
    columns = tag_columns(game.positions, SET, powers=(1, 2))
    kept = np.array([not name.startswith("not ") for name in columns.names])
    names = tuple(name for name, keep in zip(columns.names, kept) if keep)
    return replace(
        columns, values=columns.values[:, kept], names=names, link=columns.link[kept], scaled=columns.scaled[kept]
    )


def _tag(settings: Settings, seed: int) -> Outcome:
    train, held, test = tag_game(seed, settings["minutes"])
    layout = train.layout()

    def best(fit: Callable[[float], np.ndarray], strengths: list[float]) -> tuple[list[float], float]:
        """Error, log p and CPU seconds on test of the strength that does best on the game held out."""
        tried = []
        for strength in strengths:
            began = time.process_time()
            weights = fit(strength)
            seconds = time.process_time() - began
            tried.append((judge(held, layout, weights).accuracy, strength, seconds, weights))
        _, strength, seconds, weights = max(tried, key=lambda one: one[0])
        found = judge(test, layout, weights)
        return [1 - found.accuracy, found.log_prob, seconds], strength

    def by_likelihood(max_iter: int) -> Callable[[float], np.ndarray]:
        return lambda l2: likelihood(train, layout, l2=l2, max_iter=max_iter).weights

    told: Outcome = {}
    told[SHORT_ML], l2 = best(by_likelihood(60), settings["penalties"])
    told[ML], _ = best(by_likelihood(settings["max_iter"]), settings["penalties"])

    def by_rounds(refreshes: int, penalty: float) -> Callable[[float], np.ndarray]:
        return lambda ridge: (
            m_estimate(layout, train.batch, train.target, ridge=ridge, l2=penalty, refreshes=refreshes).weights
        )

    rounds = ((BLOCK, 0, 0.0), (SIX, 6, l2), (FIFTEEN, 15, l2))
    for name, refreshes, penalty in rounds:
        told[name], _ = best(by_rounds(refreshes, penalty), settings["ridges"])
    return told


def report(settings: Settings, outcomes: Outcomes) -> Findings:
    """Distances on the known model by size, then errors and cost on tag."""
    sizes, far, tag = list(settings["sizes"]), partial(_far, outcomes), partial(_on_tag, outcomes)
    rows: list[tuple[Any, ...]] = []
    for name in KNOWN_METHODS:
        rows.append(
            (f"known: {name}, to truth", *(mean_interval(far(name, TO_TRUTH, n)) for n in sizes), *[None] * 4)
        )
        if name != ML:
            rows.append((f"known: {name}, to ML", *(mean_interval(far(name, TO_ML, n)) for n in sizes), *[None] * 4))
    cost = {name: float(np.mean(tag(name, SECONDS))) for name in TAG_METHODS}
    for name in TAG_METHODS:
        gap = None if name == ML else paired_interval(tag(name, ERROR), tag(ML, ERROR))
        rows.append(
            (
                f"tag: {name}",
                *[None] * len(sizes),
                mean_interval(tag(name, ERROR)),
                gap,
                f"{np.mean(tag(name, LOG_PROB)):.0f}",
                f"{cost[name] / cost[SHORT_ML]:.3f}",
            )
        )
    charts = (
        Chart(
            "known model: distance to the true weights",
            "sequences",
            "rmse",
            tuple(curve(name, sizes, [far(name, TO_TRUTH, n) for n in sizes]) for name in KNOWN_METHODS),
        ),
        Chart(
            "tag, 93 weights",
            "",
            "wrong labels",
            (curve("test", list(TAG_METHODS), [tag(name, ERROR) for name in TAG_METHODS]),),
        ),
    )
    return Findings(
        f"M-estimator: a known chain of {LABELS} labels and {STEPS} steps; tag with 93 weights, "
        f"{settings['minutes']:g} minutes; {len(settings['seeds'])} seeds",
        (
            "world: method",
            *(f"{n:,} sequences" for n in sizes),
            "error on tag",
            "− ML",
            "log p",
            "CPU ÷ 60 steps of ML",
        ),
        tuple(rows),
        notes=("± is half of the 95 % interval over seeds, differences seed by seed; known model: rmse of weights",),
        charts=charts,
    )


def _far(outcomes: Outcomes, name: str, what: int, n: int) -> list[float]:
    return by_seed(outcomes, lambda outcome: outcome[name][what], world="known", n=n)


def _on_tag(outcomes: Outcomes, name: str, what: int) -> list[float]:
    return by_seed(outcomes, lambda outcome: outcome[name][what], world="tag")


def claims(settings: Settings, outcomes: Outcomes) -> list[Claim]:
    """Ours: how near the weights are to those of maximum likelihood, and at which price."""
    sizes, far, tag = list(settings["sizes"]), partial(_far, outcomes), partial(_on_tag, outcomes)
    cost = {name: float(np.mean(tag(name, SECONDS))) for name in TAG_METHODS}
    apart = [float(np.mean(far(REFRESHED, TO_ML, n))) for n in sizes]
    most, ml = float(np.mean(far(ML, TO_TRUTH, sizes[-1]))), float(np.mean(tag(ML, ERROR)))
    claims = [
        Claim(
            "ours: refreshed weights approach those of maximum likelihood, within a tenth of its own error",
            apart[-1] <= 0.1 * most,
            f"{apart[-1]:.1e} apart at {sizes[-1]:,} sequences, ML {most:.1e} from the truth",
        ),
        Claim(
            "ours: whole sequences in one shot are farther from the truth than refreshed",
            all(np.mean(far(WHOLE, TO_TRUTH, n)) > np.mean(far(REFRESHED, TO_TRUTH, n)) for n in sizes),
            f"{np.mean(far(WHOLE, TO_TRUTH, sizes[-1])):.3f} against "
            f"{np.mean(far(REFRESHED, TO_TRUTH, sizes[-1])):.3f} at {sizes[-1]:,}",
        ),
        Claim("ours: ML errs on 1.7 ± 1.5 % of the steps of tag", abs(100 * ml - 1.7) <= 1.5, f"{100 * ml:.2f} %"),
    ]
    for name in (SIX, FIFTEEN):
        gap = paired_interval(tag(name, ERROR), tag(ML, ERROR))
        claims.append(Claim(f"ours: {name} at most a point above ML on tag", gap.mean <= 0.01, gap_text(gap)))
    gap, times = paired_interval(tag(BLOCK, ERROR), tag(ML, ERROR)), cost[SHORT_ML] / cost[BLOCK]
    claims.append(Claim(f"ours: {BLOCK} at most 2.5 points above ML on tag", gap.mean <= 0.025, gap_text(gap)))
    sentence = f"ours: {BLOCK} at least 5 times cheaper than 60 steps of ML"
    claims.append(Claim(sentence, times >= 5, f"{times:.1f} times"))
    return claims


STUDY = Study(
    {
        "seeds": [1, 2, 3, 4, 5, 6, 7, 8],
        "sizes": [100, 1000, 10000],
        "minutes": 10,
        "max_iter": 300,
        "penalties": [0.3, 1.0, 3.0, 10.0],
        "ridges": [0.003, 0.01, 0.03, 0.1, 0.3],
    },
    {
        "seeds": [1, 2, 3],
        "sizes": [100, 1000],
        "minutes": 10,
        "max_iter": 150,
        "penalties": [1.0, 3.0],
        "ridges": [0.003, 0.01, 0.03, 0.1, 0.3],
    },
    cases,
    run,
    report,
    claims,
)
