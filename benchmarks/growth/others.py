"""Graphs, boosting and selection."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.boosting import chains, evidence_rounds, world
from benchmarks.families import gradient, soccer, wandering
from benchmarks.growth.curve import Curve, decades, grown
from crfield import LogitBoost, TreeCRF
from crfield.core.graphs import Graphs
from crfield.core.potentials import Potentials
from crfield.core.semiring import Semiring
from crfield.core.target import Target
from crfield.core.topology import Chains
from crfield.features.lazy_columns import MatrixColumns
from crfield.features.relational.examples import SOCCER
from crfield.inference.graphs.cuts import CutEngine
from crfield.inference.graphs.forest import ForestEngine
from crfield.inference.graphs.loopy import LoopyEngine
from crfield.inference.graphs.mean_field import MeanFieldEngine
from crfield.selection.problem import SelectionProblem

SWEEPS = 10


def grid(nodes: int) -> Graphs:
    """About so many nodes with four neighbours each."""
    side = max(2, round(nodes**0.5))
    at = np.arange(side * side).reshape(side, side)
    tails = np.concatenate([at[:, :-1].ravel(), at[:-1].ravel()])
    heads = np.concatenate([at[:, 1:].ravel(), at[1:].ravel()])
    return Graphs(np.array([0, side * side]), tails, heads)


def tree(nodes: int, *, near: int | None = None) -> Graphs:
    """Every node hangs on one drawn from all before it, or from the ``near`` last of them."""
    heads = np.arange(1, nodes)
    reach = heads if near is None else np.minimum(heads, near)
    tails = heads - 1 - (np.random.default_rng(0).random(nodes - 1) * reach).astype(np.int64)
    return Graphs(np.array([0, nodes]), tails, heads)


def scored(graphs: Graphs, labels: int, *, attract: float | None = None) -> Potentials:
    """Normal scores of nodes; one table for all edges, which rewards equal labels where asked for."""
    rng = np.random.default_rng(1)
    edge = rng.normal(size=(labels, labels)) if attract is None else attract * np.eye(labels)
    return Potentials(rng.normal(size=(graphs.n_nodes, labels)), edge[None], graphs)


def nodes(quick: bool) -> list[Curve]:
    """Nodes of one graph."""
    panel, sizes = "nodes of a graph", decades(1e3, 1e5 if quick else 1e6)
    cases: list[tuple[str, Callable[[int], Any], Any, Semiring, float, str]] = [
        (f"loopy propagation, {SWEEPS} sweeps of a grid, 5 labels", lambda n: scored(grid(n), 5),
         LoopyEngine(max_sweeps=SWEEPS, tol=0.0), Semiring.LOG, 1.0, "messages of every edge"),
        (f"mean field, {SWEEPS} sweeps of a grid, 5 labels", lambda n: scored(grid(n), 5),
         MeanFieldEngine(max_sweeps=SWEEPS, tol=0.0), Semiring.LOG, 1.0, "neighbours of every node"),
        ("exact beliefs of a tree, parents near, 5 labels", lambda n: scored(tree(n, near=100), 5), ForestEngine(),
         Semiring.LOG, 1.0, "two messages an edge"),
        ("exact beliefs of a tree, parents anywhere, 5 labels", lambda n: scored(tree(n), 5), ForestEngine(),
         Semiring.LOG, 1.0, "the same; parents leave the cache"),
        ("a cut of a grid, 2 labels", lambda n: scored(grid(n), 2, attract=0.7), CutEngine(), Semiring.MAX, 1.0,
         "paths stay short where nodes have opinions; the worst case is cubic"),
    ]  # fmt: skip

    def making(make: Callable[[int], Any], engine: Any, semiring: Semiring) -> Callable[[int], Callable[[], Any]]:
        def of_size(n: int) -> Callable[[], Any]:
            potentials = make(n)
            return lambda: engine.infer(potentials, semiring)

        return of_size

    return [
        grown(panel, what, "nodes", expected, sizes, making(make, engine, semiring), why=why)
        for what, make, engine, semiring, expected, why in cases
    ]


def rounds(quick: bool) -> list[Curve]:
    """Rounds of boosting."""
    panel = "rounds of boosting"
    rows = world(5_000, 20)
    sequences = chains(200, 20, numeric=True)
    few = decades(8, 32 if quick else 512)
    return [
        grown(
            panel, "LogitBoost, 5,000 × 20", "rounds", 1.0, decades(10, 100 if quick else 1_000),
            lambda n: lambda: LogitBoost(n_rounds=n).fit(*rows), why="a search a round",
        ),
        grown(
            panel, "VirtualEvidenceBoosting, 1,800 × 20", "rounds", 1.0, few,
            lambda n: lambda: evidence_rounds(*sequences, n), why="a sweep and a search a round",
        ),
        grown(
            panel, "TreeCRF, 1,800 × 20", "rounds", 1.0, few[:-1],
            lambda n: lambda: TreeCRF(n_rounds=n).fit(*sequences), why="a tree a label and round; scores are kept",
        ),
    ]  # fmt: skip


def candidates(quick: bool) -> list[Curve]:
    """Candidates of feature selection: a look at all of them."""
    panel, steps = "candidates of selection", 1_000

    def columns(n: int) -> Callable[[], Any]:
        rng = np.random.default_rng(0)
        chains = Chains.from_lengths([steps // 5] * 5)
        target = Target(chains, 3, np.repeat(rng.integers(0, 3, steps // 10), 10).astype(np.int32))
        made = MatrixColumns(rng.normal(size=(steps, n // 3)), chains=chains, n_labels=3)
        problem = SelectionProblem(made, target, standardize=False)
        slopes = rng.normal(size=(steps, 3)), rng.normal(size=(steps - 5, 3, 3))
        return lambda: problem.scores(*slopes)

    few = SOCCER.replace("win all 1,6,30,60,120", "win all 1,30").replace("win mean 1,6,30,60,120", "win mean 30")
    counts = (10, 20, 40) if quick else (10, 20, 40, 80, 160, 320)
    finer = [soccer(few.replace("50:2000:50", f"{2000 // n}:2000:{2000 / n:g}")) for n in counts]
    played, slopes = wandering(3_000), gradient(3_000)
    by_size = {catalogue.n_candidates: catalogue.on(played) for catalogue in finer}
    return [
        grown(
            panel, "slopes of numeric columns, 1,000 steps", "candidates", 1.0, decades(1e3, 3e4 if quick else 1e5),
            columns, why="a product for each",
        ),
        grown(
            panel, "slopes of tests on thresholds, 3,000 steps", "candidates", 1.0, sorted(by_size),
            lambda n: lambda: by_size[n].scores(*slopes), why="at most: thresholds of one distance share its series",
        ),
    ]  # fmt: skip


GROUPS: tuple[Callable[[bool], list[Curve]], ...] = (nodes, rounds, candidates)
