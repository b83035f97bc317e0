"""Chains that remember more than one label: kernels, states and scores against enumeration."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from crfield.core.semiring import Semiring
from crfield.core.target import Target
from crfield.core.topology import Chains
from crfield.errors import InputError, ShapeError
from crfield.inference.chain import ChainEngine
from crfield.kernels import chain, choice, tuples
from crfield.scoring.higher_order import HigherOrderScores, LabelRuns
from tests.cases.chains import INF, native_level, needs_native


def some_runs(rng: np.random.Generator, labels: int, order: int, share: float = 0.4) -> LabelRuns:
    """Random weighted runs of every order from 2 on."""
    kept = []
    for r in range(2, order + 1):
        every = np.array(list(product(range(labels), repeat=r + 1)), np.int32)
        kept.append(every[rng.random(len(every)) < share])
    return LabelRuns(labels, tuple(kept))


def random_scores(
    rng: np.random.Generator, lengths: list[int], runs: LabelRuns, *, scale: float = 1.0, forbidden: float = 0.0
) -> HigherOrderScores:
    chains = Chains.from_lengths(lengths)
    node = scale * rng.standard_normal((chains.n_nodes, runs.n_labels))
    score = scale * rng.standard_normal((len(runs.states), runs.n_labels))
    for table in (node, score):
        table[rng.random(table.shape) < forbidden] = -INF
    return HigherOrderScores(node, score, runs, chains)


def enumerated(scores: HigherOrderScores, s: int) -> dict[tuple[int, ...], float]:
    """Score of every labelling of one sequence, the states found from the labels alone, without `after`."""
    runs, first = scores.runs, int(scores.topology.offsets[s])
    place = {state: k for k, state in enumerate(runs.states)}
    out = {}
    for path in product(range(runs.n_labels), repeat=int(scores.topology.lengths[s])):
        total = 0.0
        for t, y in enumerate(path):
            total += scores.node[first + t, y]
            if t:
                state = next(place[path[k:t]] for k in range(t) if path[k:t] in place)
                total += scores.score[state, y]
        out[path] = total
    return out


CASES = [
    (2, 2, [5, 1, 0, 4, 3], 1.0, 0.0),
    (3, 2, [4, 1, 3, 2, 4, 4, 1, 2, 3, 4], 1.0, 0.15),
    (2, 3, [6, 2, 5], 30.0, 0.0),
    (2, 4, [6, 5], 400.0, 0.2),
    (1, 2, [3, 1], 1.0, 0.0),
]


@pytest.mark.parametrize(("labels", "order", "lengths", "scale", "forbidden"), CASES, ids=str)
def test_totals_and_beliefs_equal_enumeration(
    body: str, labels: int, order: int, lengths: list[int], scale: float, forbidden: float
) -> None:
    rng = np.random.default_rng(1)
    scores = random_scores(rng, lengths, some_runs(rng, labels, order), scale=scale, forbidden=forbidden)
    weight = rng.uniform(0.5, 2.0, len(lengths))
    total, belief, uses = scores.beliefs(weight=weight, n_jobs=2)
    best, path = scores.best(n_jobs=2)
    expected_uses = np.zeros_like(uses)
    walk = scores.runs.walk
    for s, length in enumerate(lengths):
        if not length:
            assert total[s] == best[s] == 0
            continue
        first = int(scores.topology.offsets[s])
        found = enumerated(scores, s)
        values = np.array(list(found.values()))
        top = values.max()
        if top == -INF:
            assert total[s] == best[s] == -INF
            assert (belief[first : first + length] == 0).all()
            continue
        chances = np.exp(values - top)
        np.testing.assert_allclose(total[s], top + np.log(chances.sum()), rtol=1e-12)
        chances /= chances.sum()
        expected = np.zeros((length, labels))
        for labelling, chance in zip(found, chances):
            expected[np.arange(length), labelling] += chance
            states = walk(np.array(labelling), Chains.from_lengths([length]))
            np.add.at(expected_uses, (states[:-1], np.array(labelling[1:], int)), weight[s] * chance)
        np.testing.assert_allclose(belief[first : first + length], expected, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(best[s], top, rtol=1e-12)
        np.testing.assert_allclose(found[tuple(path[first : first + length].tolist())], top, rtol=1e-12)
    np.testing.assert_allclose(uses, expected_uses, rtol=1e-9, atol=1e-12)


def test_states_written_out_give_the_same(body: str) -> None:
    """The same model as a plain chain over states, most of whose edges are forbidden."""
    rng = np.random.default_rng(2)
    scores = random_scores(rng, [7, 1, 9, 30], some_runs(rng, 3, 3, 0.3), forbidden=0.05)
    plain = ChainEngine().infer(scores.potentials(), Semiring.LOG)
    total, belief, uses = scores.beliefs()
    np.testing.assert_allclose(total, plain.total, rtol=1e-12)
    sums = np.zeros_like(belief)
    np.add.at(sums.T, scores.runs.label, plain.node.T)
    np.testing.assert_allclose(belief, sums, rtol=1e-9, atol=1e-12)
    runs = scores.runs
    np.testing.assert_allclose(
        uses, plain.edge[0][np.arange(len(runs.label))[:, None], runs.after], rtol=1e-9, atol=1e-12
    )


def test_without_longer_runs_it_is_the_plain_chain(body: str) -> None:
    rng = np.random.default_rng(3)
    scores = random_scores(rng, [5, 1, 0, 12], LabelRuns(4, ()))
    total, belief, uses = scores.beliefs()
    expected = chain.sum_product(scores.topology.offsets, scores.node, scores.score[None])
    np.testing.assert_allclose(total, expected[0], rtol=1e-13)
    np.testing.assert_allclose(belief, expected[1], rtol=1e-10, atol=1e-13)
    np.testing.assert_allclose(uses, expected[2][0], rtol=1e-10, atol=1e-13)
    path = scores.best()[1]
    np.testing.assert_array_equal(
        path, chain.max_product(scores.topology.offsets, scores.node, scores.score[None])[1]
    )


@needs_native
@pytest.mark.parametrize("level", [2, 3, 4])
def test_bodies_agree(level: int) -> None:
    rng = np.random.default_rng(4)
    scores = random_scores(rng, [*rng.integers(0, 12, 21)], some_runs(rng, 4, 2, 0.5), scale=2.0, forbidden=0.02)
    with choice.use("numpy"):
        expected, best = scores.beliefs(), scores.best()
    with native_level(level):
        one, two = scores.beliefs(), scores.beliefs(n_jobs=2)
        for got in (one, two):
            for a, b in zip(got, expected):
                np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12)
        for a, b in zip(scores.best(n_jobs=3), best):
            np.testing.assert_allclose(a, b, rtol=1e-12)


def test_the_states_are_the_beginnings_of_runs() -> None:
    rng = np.random.default_rng(5)
    for labels, order in ((2, 4), (3, 3), (4, 2)):
        runs = some_runs(rng, labels, order, 0.2)
        wanted = {tuple(run[:k].tolist()) for run in np.concatenate([r[:, :2] for r in runs.runs]) for k in (1, 2)}
        assert set(runs.states) >= wanted - {()}
        weights = rng.standard_normal(runs.n_weights)
        flat = {tuple(run): weights[k] for k, run in enumerate(run for r in runs.runs for run in r.tolist())}
        labelling = rng.integers(0, labels, 30)
        states = runs.walk(labelling, Chains.from_lengths([30]))
        for t in range(1, 30):
            history = tuple(labelling[: t + 1].tolist())
            expected = sum(flat.get(history[t - r :], 0.0) for r in range(2, order + 1) if t >= r)
            got = sum(
                weights[number[states[t - 1], labelling[t]]]
                for number in runs.weight_of
                if number[states[t - 1], labelling[t]] >= 0
            )
            np.testing.assert_allclose(got, expected, atol=1e-13)


def test_runs_are_those_of_known_labels_that_count() -> None:
    chains = Chains.from_lengths([4, 3])
    allowed = np.ones((7, 2), dtype=bool)
    target = Target(chains, 2, np.array([0, 1, 1, -1, 1, 1, 1]), allowed, np.array([1.0, 0.0]))
    assert LabelRuns.observe(target, 2).runs[0].tolist() == [[0, 1, 1]]
    assert LabelRuns.observe(target, 3).runs[1].tolist() == []
    with pytest.raises(InputError, match="too high"):
        LabelRuns.observe(target, 61)


GOOD: dict[str, Any] = {
    "offsets": np.array([0, 1]),
    "node": np.zeros((1, 2)),
    "after": np.array([[0, 1], [0, 1]]),
    "label": np.array([0, 1]),
    "score": np.zeros((2, 2)),
}


@pytest.mark.parametrize(
    "change",
    [
        {"offsets": np.array([0, 2])},
        {"offsets": np.array([1, 1])},
        {"node": np.zeros((1, 3))},
        {"after": np.array([[0, 2], [0, 1]])},
        {"after": np.array([[1, 1], [0, 1]])},
        {"label": np.array([1, 0])},
        {"label": np.array([0])},
        {"score": np.full((2, 2), np.nan)},
        {"score": np.zeros((2, 3))},
        {"node": np.full((1, 2), np.inf)},
    ],
    ids=["nodes", "offsets", "labels", "state", "wrong label", "order", "few", "nan", "width", "inf"],
)
def test_what_does_not_fit_is_refused(body: str, change: dict[str, Any]) -> None:
    with pytest.raises((InputError, ShapeError)):
        tuples.sum_product(**{**GOOD, **change})
    with pytest.raises((InputError, ShapeError)):
        tuples.max_product(**{**GOOD, **change})
