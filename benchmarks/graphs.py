"""One synchronous sweep of belief propagation against PGMax (JAX), and what a second thread gains.

Two graphs: a grid of 64 × 96 nodes with 7 labels, and a random graph of 40,000 nodes, 100,000 edges
and 5 labels. A sweep makes all messages anew from those before, on both sides the same ones: after a number of sweeps
the beliefs must agree (to single precision, which is PGMax's). A call of many sweeps is timed and divided by their
number, so that ours carries its preparation and its final beliefs; PGMax's is compiled beforehand, as its users do.

PGMax and the JAX it needs are no dependencies of the project: the extra ``bench-graphs`` has them, and without them
only the threads are compared. PGMax 0.6.1 asks for ``jax.lib.xla_bridge``, which the newest JAX no longer has, so an
older one is pinned. XLA is to use one thread; CPU time counts them all anyway.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np

from benchmarks.corpora import Bench
from benchmarks.table import Row, ratio, seconds
from benchmarks.timing import Timing, interleaved, wall
from crfield.kernels import graph
from crfield.kernels.graph import Propagation

REQUIRED, THREADS_REQUIRED = 8.0, 1.7
SWEEPS = 100
AGREE = 2e-3  # of beliefs, after SWEEPS sweeps in single and in double precision
MISSING = "PGMax is not installed: pip install 'crfield[bench-graphs]'"
ONE_THREAD = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"


@dataclass(frozen=True, eq=False)
class Case:
    """A graph with normal scores, one edge table for all edges or one for each."""

    name: str
    tails: np.ndarray
    heads: np.ndarray
    node: np.ndarray  # (N, L)
    edge: np.ndarray  # (1 | E, L, L)

    @classmethod
    def random(
        cls, name: str, nodes: int, labels: int, tails: np.ndarray, heads: np.ndarray, *, each: bool = False
    ) -> Case:
        """Scores that are settled neither at once nor within the sweeps that are timed."""
        rng = np.random.default_rng(1)
        node = rng.standard_normal((nodes, labels))
        return cls(name, tails, heads, node, rng.standard_normal((len(tails) if each else 1, labels, labels)))

    def ours(self, *, damping: float = 0.0, n_jobs: int = 1) -> Propagation:
        """SWEEPS synchronous sweeps."""
        edges = len(self.tails)
        tables = np.zeros(edges, np.int64) if len(self.edge) == 1 else np.arange(edges)
        return graph.propagate(
            np.array([0, len(self.node)]),
            self.tails,
            self.heads,
            tables,
            self.node,
            self.edge,
            damping=damping,
            max_sweeps=SWEEPS,
            tol=0.0,
            n_jobs=n_jobs,
        )


def grid(height: int = 64, width: int = 96, labels: int = 7, *, each: bool = False) -> Case:
    """Four neighbours each."""
    at = np.arange(height * width).reshape(height, width)
    tails = np.concatenate([at[:, :-1].ravel(), at[:-1].ravel()])
    heads = np.concatenate([at[:, 1:].ravel(), at[1:].ravel()])
    name = f"{height}×{width} grid, {labels} labels" + (", a table for each edge" if each else "")
    return Case.random(name, height * width, labels, tails, heads, each=each)


def random_graph(nodes: int = 40_000, edges: int = 100_000, labels: int = 5) -> Case:
    """Pairs drawn at random, no pair twice."""
    rng = np.random.default_rng(0)
    low, high = np.sort(rng.integers(0, nodes, (2 * edges, 2)), axis=1).T
    keys = np.unique((low * nodes + high)[low < high])
    keys = np.sort(rng.permutation(keys)[:edges])
    return Case.random(
        f"random graph of {edges:,} edges, {labels} labels", nodes, labels, keys // nodes, keys % nodes
    )


def rival(case: Case) -> tuple[Callable[[float], Any], Callable[[Any], np.ndarray]]:
    """PGMax on the same scores: a run of SWEEPS sweeps with a damping, and its beliefs (N, L)."""
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {ONE_THREAD}".strip()
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    jax, infer = import_module("jax"), import_module("pgmax.infer")
    fgraph, fgroup, vgroup = (import_module(f"pgmax.{name}") for name in ("fgraph", "fgroup", "vgroup"))
    nodes, labels = case.node.shape
    variables = vgroup.NDVarArray(num_states=labels, shape=(nodes,))
    whole = fgraph.FactorGraph(variable_groups=[variables])
    pairs = [[variables[a], variables[b]] for a, b in zip(case.tails.tolist(), case.heads.tolist())]
    tables = np.broadcast_to(case.edge, (len(pairs), labels, labels)).copy()
    whole.add_factors(fgroup.PairwiseFactorGroup(variables_for_factors=pairs, log_potential_matrix=tables))
    propagation = infer.BP(whole.bp_state, temperature=1.0)
    start = propagation.init(evidence_updates={variables: case.node})
    compiled = jax.jit(propagation.run_bp, static_argnames="num_iters")

    def run(damping: float) -> Any:
        return jax.block_until_ready(compiled(start, num_iters=SWEEPS, damping=damping))

    def beliefs(arrays: Any) -> np.ndarray:
        return np.asarray(infer.get_marginals(propagation.get_beliefs(arrays))[variables])

    return run, beliefs


def against_pgmax(case: Case, *, turns: int, dampings: tuple[float, ...]) -> list[Row]:
    """A sweep of ours and one of PGMax's, CPU time."""
    names = {d: f"graphs: a sweep on a {case.name}" + (f", damping {d}" if d else "") + " / PGMax" for d in dampings}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            run, beliefs = rival(case)
    except ImportError:
        return [Row(name, None, note=MISSING) for name in names.values()]
    rows = []
    for damping, name in names.items():

        def theirs(damping: float = damping) -> Any:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return run(damping)

        def ours(damping: float = damping) -> Propagation:
            return case.ours(damping=damping)

        done = ours()
        apart = float(np.abs(done.node - beliefs(theirs())).max())
        if apart > AGREE:
            raise RuntimeError(f"{name}: beliefs differ by {apart:.1e} from PGMax's; it is not the same sweep.")
        mine, other = interleaved(ours, theirs, turns=turns)
        required = REQUIRED if damping == 0 and len(case.edge) == 1 else None
        note = f"beliefs agree to {apart:.0e}"
        rows.append(ratio(name, per_sweep(mine, done), per_sweep(other), required=required, note=note))
    return rows


def per_sweep(timing: Timing, done: Propagation | None = None) -> Timing:
    """Times of one sweep."""
    sweeps = SWEEPS if done is None else int(done.sweeps[0])
    return Timing([second / sweeps for second in timing.seconds])


def two_threads(case: Case, *, turns: int) -> Row:
    """Wall clock of a call with two threads over one."""
    one, two = interleaved(lambda: case.ours(n_jobs=1), lambda: case.ours(n_jobs=2), turns=turns, clock=wall)
    one, two = per_sweep(one), per_sweep(two)
    load = os.getloadavg()[0]
    return Row(
        f"graphs: two threads over one on a {case.name}, wall clock",
        one.best / two.best,
        required=THREADS_REQUIRED,
        ours=seconds(two.best),
        rival=seconds(one.best),
        note=f"rival: one thread of ours; medians {one.median / two.median:.2f}×; "
        f"{os.cpu_count()} processors, load {load:.1f}",
        detail={"one": one.seconds, "two": two.seconds, "load_average": load},
    )


def run(bench: Bench) -> list[Row]:
    """PGMax on both graphs, damped and not; a table for each edge; two threads."""
    turns = 4 if bench.quick else 15
    cases = [grid(), random_graph()]
    rows = [row for case in cases for row in against_pgmax(case, turns=turns, dampings=(0.0, 0.5))]
    rows += against_pgmax(grid(each=True), turns=turns, dampings=(0.0,))
    return rows + [two_threads(case, turns=20 if bench.quick else 60) for case in cases]
