"""The same loops at each level of x86-64, as this installation compiled them and as clang does.

Every module with sources that are compiled once for each level has a row here for most of these sources, on data so
small that arithmetic and not memory is what takes the time. Most calls ask which level is theirs. The objects of
chains (`Problem`, and the primal–dual table on one) have asked when they were made, so each level makes its own.

The first rows set a level against the one below it, in turns in one process: what AVX2 gains over SSE4.2, and AVX-512
over AVX2. The others set clang's modules against this installation's at the highest level, in processes that take
turns; `make build/clang/.built` makes them, and without them a row says so. CPU time of one thread, the best of many
turns; what is computed is the same, to rounding.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.children import run_task
from benchmarks.corpora import Bench
from benchmarks.table import Row, seconds
from benchmarks.timing import interleaved

CLANG = Path(__file__).parents[1] / "build" / "clang"
LEVELS = {"2": "SSE4.2", "3": "AVX2", "4": "AVX-512"}
LONG_ENOUGH = 0.005  # seconds of a turn, for the clock
MISSING = "clang's modules are not there: make build/clang/.built"

Loop = Callable[[], Any]
Times = dict[str, dict[str, float]]  # seconds by loop and level


@contextmanager
def at(level: str) -> Iterator[None]:
    """Run the block on the code of one level, or of a lower one that the processor has."""
    before = os.environ.get("CRFIELD_LEVEL")
    os.environ["CRFIELD_LEVEL"] = level
    try:
        yield
    finally:
        if before is None:
            del os.environ["CRFIELD_LEVEL"]
        else:
            os.environ["CRFIELD_LEVEL"] = before


def training(bench: Bench) -> dict[str, Loop]:
    """What training a chain does: side_by_side, columns, sparse_edges, label_sets, primal_dual_steps."""
    from benchmarks.contestant import Ours
    from crfield.kernels.dual import PrimalDual

    text = Ours.build(bench.chunks.train.first(1000), bench.chunks.template).problem
    weights, gradient = 0.1 * np.random.default_rng(0).normal(size=text.n_weights), np.empty(text.n_weights)
    state = PrimalDual(text.compiled)
    state.set_steps(np.full(text.n_weights, 0.1))
    order = np.arange(state.n_blocks)
    return {
        "chain: likelihood and gradient, text": lambda: text.evaluate(weights, gradient),
        "chain: the same in single precision": lambda: text.evaluate_single(weights, gradient),
        "chain: a primal–dual epoch": lambda: state.epoch(order, l2=1.0),
        "chain: likelihood, 200 labels, few pairs": likelihood(200, 4, ()),
        "chain: likelihood, labels known in part": likelihood(12, 12, (3, 4)),
    }


def likelihood(labels: int, follow: int, sets: tuple[int, ...]) -> Loop:
    """Likelihood of 200 drawn sequences of 25 steps with six columns each.

    A label has so many that may ``follow`` it; with ``sets`` (S, n) all that is known of it is which n it is one of.
    """
    from crfield.core.target import Target
    from crfield.core.topology import Chains
    from crfield.data.batch import Batch, Columns
    from crfield.scoring.layout import Layout
    from crfield.training.likelihood import FusedChain

    rng, chains = np.random.default_rng(0), Chains.from_lengths([25] * 200)
    path = np.cumsum(rng.integers(0, follow, chains.n_nodes)) % labels
    batch = Batch(chains, Columns.from_rows(rng.integers(0, 2000, (chains.n_nodes, 6)).tolist(), width=2000))
    if sets:
        known = np.kron(np.eye(sets[0], dtype=bool), np.ones((1, sets[1]), bool))[path // sets[1]]
        target = Target(chains, labels, np.full(chains.n_nodes, -1, np.int32), known)
    else:
        target = Target(chains, labels, path)
    layout = Layout.observe(batch, target)
    problem = FusedChain(layout, batch, target)
    weights, gradient = 0.1 * rng.normal(size=layout.n_weights), np.empty(layout.n_weights)
    return lambda: problem.evaluate(weights, gradient)


def sums_and_paths() -> dict[str, Loop]:
    """Sums and best paths of given scores: both_ends, sweep, sweep_log, best_path; tuples."""
    from crfield.core.potentials import Potentials
    from crfield.core.semiring import Semiring
    from crfield.core.topology import Chains
    from crfield.inference.chain import ChainEngine
    from crfield.kernels import tuples

    rng = np.random.default_rng(0)

    def of(steps: int, count: int, labels: int, scale: float, semiring: Semiring) -> Loop:
        chains = Chains.from_lengths([steps] * count)
        node, edge = scale * rng.normal(size=(chains.n_nodes, labels)), scale * rng.normal(size=(1, labels, labels))
        scores = Potentials(node, edge, chains)
        return lambda: ChainEngine().infer(scores, semiring)

    labels = np.arange(9)
    states = np.concatenate([labels, np.tile(labels, 9)]).astype(np.int32)  # single labels, then pairs
    after = (9 + 9 * states[:, None] + labels).astype(np.int32)
    node, score = rng.normal(size=(2000, 9)), rng.normal(size=after.shape)
    offsets = np.arange(0, 2001, 20)
    return {
        "chain: sums on long chains, 12 labels": of(1000, 10, 12, 1.0, Semiring.LOG),
        "chain: sums on short ones, 60 labels": of(20, 50, 60, 1.0, Semiring.LOG),
        "chain: sums in logs, 20 labels": of(20, 50, 20, 300.0, Semiring.LOG),
        "chain: best paths, 22 labels": of(20, 500, 22, 1.0, Semiring.MAX),
        "tuples: sums over pairs of 9 labels": lambda: tuples.sum_product(offsets, node, after, states, score),
    }


def graphs() -> dict[str, Loop]:
    """Grids and trees: forest (sweep, sweep_log, best, cliques), graph, sites, virtual."""
    from benchmarks.graphs import Case, grid
    from crfield.kernels import forest, graph, sites, virtual

    rng, field = np.random.default_rng(0), grid(24, 32)
    one_table = np.zeros(len(field.tails), np.int64)
    ends = np.array([0, len(field.node)]), field.tails, field.heads

    n = 5000
    heads = np.arange(1, n)
    tree = Case.random("tree", n, 7, (heads * rng.random(n - 1)).astype(np.int64), heads)
    near = np.array([0, n]), tree.tails, tree.heads
    plan = forest.order(*near)[1]
    assert plan is not None
    scores, wide = (forest.GraphScores(*near, np.zeros(n - 1), x * tree.node, x * tree.edge) for x in (1.0, 300.0))

    loops = grid(8, 8, 3)
    small = np.array([0, 64]), loops.tails, loops.heads
    cliques = forest.eliminate(*small)
    table = forest.GraphScores(*small, np.zeros(len(loops.tails)), loops.node, loops.edge)
    all_labels = np.arange(0, 3 * 64 + 1, 3), np.tile(np.arange(3), 64)

    def sweeps(how: str) -> Loop:
        given = (*ends, one_table, field.node, field.edge)
        return lambda: graph.propagate(*given, semiring=how, max_sweeps=10, tol=0.0)

    alone = np.zeros(0, np.int64)

    def pseudo(labels: int) -> Loop:  # no edges: what is done with these is not levelled
        local, truth = rng.normal(size=(20_000, labels)), rng.integers(0, labels, 20_000)
        edge = np.zeros((1, labels, labels))
        return lambda: sites.pseudo_likelihood(local, edge, alone, alone, alone, truth)

    wiring = virtual.wire(n, tree.tails, tree.heads, np.zeros(n - 1, np.int64), np.ones(n - 1, np.int64))
    local = np.exp(rng.normal(size=(n, 2)))
    messages, pairs = np.full((wiring.n_messages, 2), 0.5), rng.normal(size=(2, 2, 2))
    truth, ones, beliefs = rng.integers(0, 2, n), np.ones(n), local / local.sum(axis=1, keepdims=True)
    return {
        "forest: sums on a tree": lambda: forest.sum_product(plan, scores),
        "forest: sums on a tree in logs": lambda: forest.sum_product(plan, wide),
        "forest: best labels of a tree": lambda: forest.max_product(plan, scores),
        "forest: sums over cliques": lambda: forest.clique_sum_product(cliques, table, *all_labels),
        "graph: sweeps on a grid": sweeps("log"),
        "graph: sweeps for the best": sweeps("max"),
        "sites: probabilities of two labels": pseudo(2),
        "sites: probabilities of eight labels": pseudo(8),
        "virtual: a sweep, two labels": lambda: virtual.listen(
            wiring, local, beliefs, messages, pairs, truth, ones, squares=True
        ),
    }


def columns() -> dict[str, Loop]:
    """What is done with rows of numbers: boost, emission, families, vectors."""
    from crfield.kernels import boost, emission, families, vectors

    rng = np.random.default_rng(0)

    def working(classes: int) -> Loop:
        margins, truth = rng.normal(size=(10_000, classes)), rng.integers(0, classes, 10_000)
        return lambda: boost.logit_pairs(margins, truth)

    rows, mean, inverse = rng.normal(size=(5000, 3)), rng.normal(size=(10, 3)), np.ones((10, 3))
    shares = rng.dirichlet(np.ones(10), 5000)
    codes, steps = rng.integers(0, 65, (16, 5000)), np.arange(5000)[None]

    def histograms(pairs: int) -> Loop:
        gradient = rng.normal(size=(5000, pairs))
        return lambda: families.histograms(codes, steps, gradient, n_bins=65)

    n = 10_000
    history, out = vectors.History(n, 10, single=True), np.empty(n)
    for _ in range(10):
        step = rng.normal(size=n)
        assert history.push(step, np.zeros(n), step + 0.1 * rng.normal(size=n), np.zeros(n))
    weights, slope = rng.normal(size=n), rng.normal(size=n)
    return {
        "boost: working responses, two classes": working(2),
        "boost: working responses, six classes": working(6),
        "emission: log densities": lambda: emission.normal_scores(rows, mean, inverse, np.zeros(10)),
        "emission: moments": lambda: emission.normal_moments(rows, shares, mean),
        "families: histograms, 9 pairs of labels": histograms(9),
        "families: histograms, 36 pairs of labels": histograms(36),
        "vectors: direction of L-BFGS": lambda: history.direction(slope, out),
        "vectors: step of OWL-QN": lambda: vectors.orthant_step(weights, slope, -slope, 0.1, 0.5, out),
    }


def segments_and_pixels() -> dict[str, Loop]:
    """Semi-Markov models and dense fields: segments (products, sweep, parts), dense."""
    from benchmarks.dense import energies, picture
    from benchmarks.segments import Case
    from crfield.kernels import dense, segments

    case, rng, shape = Case(300, 30, 10), np.random.default_rng(0), (60, 80)
    every, edge = case.written(), case.edge[None]
    colours, unary = picture(rng, shape).reshape(-1, 3), energies(rng, shape, 21).T
    points = np.concatenate([np.indices(shape).reshape(2, -1) / 20.0, colours.T / 13.0])
    lattice, plane = dense.lattice(points, "symmetric"), dense.grid(shape, (3.0, 3.0))
    return {
        "segments: gradient from parts": case.fused,
        "segments: gradient of all segments": lambda: segments.sum_product(case.offsets, every, edge),
        "segments: scores of all from parts": case.written,
        "dense: lattice of an image": lambda: dense.lattice(points, "symmetric"),
        "dense: mean field on it, 21 labels": lambda: dense.mean_field(unary, [lattice], [10.0], steps=5),
        "dense: mean field on a grid": lambda: dense.mean_field(unary, [plane], [3.0], steps=5),
    }


def works(bench: Bench) -> dict[str, Loop]:
    """All loops by name, their objects made at the level that is asked for now."""
    return {**training(bench), **sums_and_paths(), **graphs(), **columns(), **segments_and_pixels()}


def timed(turns: int, *, quick: bool) -> Times:
    """Best CPU seconds of every loop at every level that the processor has."""
    from crfield.kernels import _chain  # type: ignore[attr-defined]

    bench, made = Bench(quick=quick), {}

    def turn(level: str, name: str, times: int) -> None:
        with at(level):
            for _ in range(times):
                made[level][name]()

    try:
        for level in LEVELS:
            with at(level):
                if _chain.level() == int(level):
                    made[level] = works(bench)
        lowest, found = min(made), {}
        for name in made[lowest]:
            count = math.ceil(LONG_ENOUGH / interleaved(partial(turn, lowest, name, 1), turns=3)[0].best)
            times = interleaved(*(partial(turn, level, name, count) for level in made), turns=turns)
            found[name] = {level: timing.best / count for level, timing in zip(made, times)}
        return found
    finally:
        bench.close()


def _best(runs: list[Times]) -> Times:
    """The least of each time over several runs."""
    return {name: {level: min(each[name][level] for each in runs) for level in runs[0][name]} for name in runs[0]}


def run(bench: Bench) -> list[Row]:
    """Levels against the one below, then clang against this build."""
    turns, rounds = ("3", 1) if bench.quick else ("30", 3)
    folders = ["", str(CLANG)] if (CLANG / ".built").exists() else [""]
    runs: dict[str, list[Times]] = {folder: [] for folder in folders}
    for _ in range(rounds):
        for folder in folders:
            runs[folder].append(run_task("levels", turns, "quick" if bench.quick else "", folder)["best"])
    best = {folder: _best(each) for folder, each in runs.items()}
    rows = [
        Row(
            f"levels: {name}, {LEVELS[level]} over {LEVELS[below]}",
            times[below] / times[level],
            ours=seconds(times[level]),
            rival=seconds(times[below]),
        )
        for name, times in best[""].items()
        for below, level in pairwise(times)
    ]
    if len(folders) == 1:
        return [*rows, Row("levels: this build over clang's", None, note=MISSING)]
    for name, times in best[folders[1]].items():
        top = max(times)
        ours = best[""][name][top]
        title = f"levels: {name}, {LEVELS[top]}, this build over clang's"
        rows.append(Row(title, times[top] / ours, ours=seconds(ours), rival=seconds(times[top])))
    return rows
