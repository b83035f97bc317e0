"""What one evaluation must do at least, and how near it comes (Williams, Waterman & Patterson 2009).

Two limits of one core are measured here and now: operations a second, by a matrix product of BLAS on one thread, and
bytes a second, by copying an array too large for any cache. Then, for chunks (22 labels) and Spanish names (nine):

- **sweep**: the same sequences without a single column, so that only exponentials, recursions and expected pairs are
  left. For each of N positions two products with the L × L table, an outer product of which only the P pairs with a
  weight are needed, and L exponentials of some twenty operations:

      N (4 L² + 2 P + 40 L) operations

- **columns**: what the evaluation takes beyond that, scores and gradient together. At the least it reads the number
  of each of nnz columns (four bytes; the second reading is from a cache), reads every weight once and writes its
  gradient once; and for every weight that a position meets there are two additions, each as long as a multiply-add:

      4 nnz + 16 W bytes          4 Σ_positions weights met operations

  of which the larger time is the bound, if no two positions shared a sum. Weights are met in no order, and a cache
  line brings seven others along that nobody asked for: the bound is not within reach, but the distance tells where
  time is to be had.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from benchmarks.contestant import Ours
from benchmarks.corpora import Bench, Tags, entity_strings, spanish_names
from benchmarks.table import Row, seconds
from benchmarks.timing import interleaved
from crfield.core.target import Target
from crfield.data.batch import Batch, Columns
from crfield.scoring.layout import Layout
from crfield.training.likelihood import FusedChain

EXP = 40  # operations of one exponential: twenty multiply-adds


def limits(turns: int) -> tuple[float, float]:
    """Operations and bytes a second of one core."""
    n, size = 768, 1 << 23
    a, b, c = np.ones((n, n)), np.ones((n, n)), np.empty((n, n))
    x, y = np.ones(size), np.empty(size)
    product, copy = interleaved(lambda: np.dot(a, b, out=c), lambda: np.copyto(y, x), turns=turns)
    return 2 * n**3 / product.best, 2 * x.nbytes / copy.best


def bare(ours: Ours, batch: Batch, target: Target) -> FusedChain:
    """The same sequences and labels without columns."""
    empty = Columns.from_rows([[]] * batch.topology.n_nodes, width=1)
    nothing = Batch(batch.topology, empty)
    layout = Layout.observe(nothing, target, bias=False, boundaries=False)
    assert len(layout.pairs) == len(ours.layout.pairs)
    return FusedChain(layout, nothing, target)


def problems(bench: Bench) -> Iterator[tuple[str, Ours, Batch, Target]]:
    """Names, our problems, and the encoded data behind them."""
    train = bench.chunks.train.first(1_000) if bench.quick else bench.chunks.train
    ours = Ours.build(train, bench.chunks.template)
    sets: list[tuple[str, Ours, Any, Tags]] = [("chunks", ours, train.rows, train.tags)]
    names = spanish_names(bench)
    if names is not None:
        strings = entity_strings(names.rows)
        sets.append(("names", Ours.of_strings(strings, names.tags), strings, names.tags))
    for name, ours, rows, tags in sets:
        batch = ours.encoder.encode(rows)
        codes = ours.coder.encode(tags, batch.topology.lengths)
        yield name, ours, batch, Target(batch.topology, ours.coder.n_labels, *codes)


def _evaluation(problem: FusedChain, weights: np.ndarray, gradient: np.ndarray) -> Callable[[], float]:
    return lambda: problem.evaluate(weights, gradient)


def run(bench: Bench) -> list[Row]:
    """Sweep and columns of each problem, as multiples of their bounds."""
    turns = 10 if bench.quick else 40
    operations, stream = limits(turns)
    rows = [
        Row(
            "roofline: one core",
            operations / stream,
            unit="operations a byte",
            note=f"{operations / 1e9:.0f} thousand million operations and {stream / 1e9:.1f} GB a second",
        )
    ]
    for name, ours, batch, target in problems(bench):
        plain = bare(ours, batch, target)
        weights, gradient = ours.half_trained(), np.empty(ours.n_weights)
        few, rest = weights[ours.layout.part["transitions"]].copy(), np.empty(plain.n_weights)
        full = np.concatenate([np.zeros(plain.n_weights - len(few)), few])
        whole, sweep = interleaved(
            _evaluation(ours.problem, weights, gradient), _evaluation(plain, full, rest), turns=turns
        )
        n, labels, pairs = batch.topology.n_nodes, ours.layout.n_labels, len(ours.layout.pairs)
        nnz = len(batch.node.indices)
        column, _ = ours.layout.node_features()
        met = int(np.bincount(column, minlength=ours.layout.n_columns)[batch.node.indices].sum())
        swept = n * (4 * labels**2 + 2 * pairs + EXP * labels) / operations
        moved, added = (4 * nnz + 16 * ours.n_weights) / stream, 4 * met / operations
        columns = whole.best - sweep.best
        for part, took, bound, why in (
            ("sweep", sweep.best, swept, "operations"),
            ("columns", columns, max(moved, added), "bytes" if moved > added else "operations"),
        ):
            rows.append(
                Row(
                    f"roofline: {part} of {name}, {labels} labels",
                    took / bound,
                    better="less",
                    ours=seconds(took),
                    rival=seconds(bound),
                    note=f"rival: the bound, by {why}; {took / whole.best:.0%} of an evaluation; "
                    f"{n:,} positions, {nnz / n:.1f} columns each, {met / n:.1f} weights met",
                    detail={"whole": whole.best, "sweep": sweep.best, "moved": moved, "added": added},
                )
            )
    return rows
