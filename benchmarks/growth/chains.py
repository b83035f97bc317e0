"""Chains: steps, labels, active features, threads, and the longest segment."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.growth.curve import Curve, decades, grown, timed
from benchmarks.segments import Case
from crfield import ChainCRF, make_phrases, phrase_features
from crfield.core.target import Target
from crfield.core.topology import Chains
from crfield.data.batch import Batch, Columns
from crfield.kernels.linear import Tagger
from crfield.scoring.layout import Layout
from crfield.training.likelihood import FusedChain

LENGTH, LABELS, COLUMNS, ENTRIES = 25, 9, 20_000, 8


def text_like(steps: int, *, entries: int = ENTRIES, labels: int = LABELS, columns: int = COLUMNS) -> tuple[Any, Any]:
    """Sequences of 25 steps with binary columns that follow Zipf's law, and labels that the first column tells."""
    rng = np.random.default_rng(0)
    chains = Chains.from_lengths([LENGTH] * max(steps // LENGTH, 1))
    n = chains.n_nodes
    drawn = np.exp(rng.random((n, entries), dtype=np.float32) * np.float32(np.log(columns)))
    indices = np.minimum(drawn.astype(np.int32), columns - 1)
    del drawn
    gold = (indices[:, 0] % labels).astype(np.int32)
    batch = Batch(chains, Columns(np.arange(0, n * entries + 1, entries), indices.reshape(-1), columns))
    return batch, Target(chains, labels, gold)


def evaluation(batch: Any, target: Any, *, n_jobs: int = 1, **options: Any) -> Callable[[], float]:
    """One value and gradient at weights near a solution."""
    layout = Layout.observe(batch, target, **options)
    problem = FusedChain(layout, batch, target, n_jobs=n_jobs)
    weights = 0.1 * np.random.default_rng(1).normal(size=layout.n_weights)
    gradient = np.empty(layout.n_weights)
    return lambda: problem.evaluate(weights, gradient)


def tagging(batch: Any, target: Any, **options: Any) -> Callable[[], Any]:
    """The best path of every sequence."""
    layout = Layout.observe(batch, target, **options)
    tagger = Tagger(layout, 0.1 * np.random.default_rng(1).normal(size=layout.n_weights))
    return lambda: tagger.decode(batch)


def steps(quick: bool) -> list[Curve]:
    """Steps of the data: an evaluation, tagging, and a whole training."""
    panel, sizes = "steps", decades(1e4, 1e5 if quick else 1e7)

    def training(n: int, ridge: float) -> Callable[[], Any]:
        phrases = make_phrases(n // 8, random_state=0)
        X = [phrase_features(tokens) for tokens in phrases.tokens]
        return lambda: ChainCRF(l2=ridge).fit(X, phrases.labels)

    return [
        grown(
            panel, "an evaluation", "steps", 1.0, sizes, lambda n: evaluation(*text_like(n)), why="one sweep a step"
        ),
        grown(panel, "tagging", "steps", 1.0, sizes, lambda n: tagging(*text_like(n)), why="one sweep a step"),
        grown(
            panel, "fit from dicts, l2 in proportion", "steps", 1.0, decades(2e3, 2e4 if quick else 2e5),
            lambda n: training(n, n / 2e3), why="as many passes over the data whatever its size",
        ),
        grown(
            panel, "fit from dicts, l2 = 1", "steps", 1.5, decades(2e3, 2e4 if quick else 2e5),
            lambda n: training(n, 1.0), why="at most: passes grow with the root of the condition number, steps / l2",
        ),
    ]  # fmt: skip


def labels(quick: bool) -> list[Curve]:
    """Labels: all transitions, few of them, and the best path."""
    panel, most = "labels", 100 if quick else 2_000
    sizes = [n for n in (2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000) if n <= most]

    def few(n: int) -> tuple[Any, Any]:
        """Labels that are followed by three others at most."""
        batch, target = text_like(10_000, labels=n)
        path, rng = np.zeros(len(target.labels), np.int32), np.random.default_rng(2)
        for t in range(1, len(path)):
            path[t] = (3 * path[t - 1] + rng.integers(0, 3)) % n
        return batch, Target(target.topology, n, path)

    return [
        grown(
            panel, "an evaluation, all transitions", "labels", 2.0, sizes,
            lambda n: evaluation(*text_like(1_000, labels=n), transition_pairs="all"), why="a matrix product a step",
        ),
        grown(
            panel, "tagging, all transitions", "labels", 2.0, sizes,
            lambda n: tagging(*text_like(1_000, labels=n), transition_pairs="all"), why="all pairs at each step",
        ),
        grown(
            panel, "an evaluation, three transitions a label", "labels", 1.0, sizes,
            lambda n: evaluation(*few(n)), why="the pairs that occur, and a sum for the others",
        ),
    ]  # fmt: skip


def features(quick: bool) -> list[Curve]:
    """Active features of a step."""
    sizes = decades(1, 100 if quick else 1_000)
    return [
        grown(
            "active features", what, "features a step", 1.0, sizes,
            lambda n, make=make: make(*text_like(5_000, entries=n)), why="a row of weights for each",
        )
        for what, make in (("an evaluation", evaluation), ("tagging", tagging))
    ]  # fmt: skip


def threads(quick: bool) -> list[Curve]:
    """Threads, on the clock."""
    sizes = [n for n in (1, 2, 4, 8) if n <= max(2, os.cpu_count() or 1)]
    data = text_like(10_000 if quick else 1_000_000)
    seconds = [timed(evaluation(*data, n_jobs=n), clock=True) for n in sizes]
    return [Curve("threads", "an evaluation", "threads", -1.0, sizes, seconds, "shares of the sequences", clock=True)]


def segments(quick: bool) -> list[Curve]:
    """The longest segment of a semi-Markov model."""
    sizes = decades(1, 100 if quick else 1_000)
    return [
        grown(
            "longest segment", "a gradient, 2,000 steps and 5 labels", "steps of the longest segment", 1.0, sizes,
            lambda n: Case(2_000, n, 5).fused, why="all lengths that end at a step",
        )
    ]  # fmt: skip


GROUPS: tuple[Callable[[bool], list[Curve]], ...] = (steps, labels, features, threads, segments)
