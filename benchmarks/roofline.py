"""What one evaluation must do at least, and how near it comes (Williams, Waterman & Patterson 2009).

Limits of one core are measured here and now: operations a second, by a matrix product of BLAS on one thread, in
double and in single precision, and bytes a second, by copying an array too large for any cache. OpenBLAS does not
know every processor, and takes half a vector on some that have whole ones of 512 bits, so it is told. Then, in both
precisions, for chunks (22 labels) and Spanish names (nine):

- **sweep**: the same sequences without a single column, so that only exponentials, recursions and expected pairs are
  left. For each of N positions two products with the L × L table, an outer product of which only the P pairs with a
  weight are needed, and L exponentials of some twenty operations:

      N (4 L² + 2 P + 40 L) operations

- **columns**: what the evaluation takes beyond that, scores and gradient together. At the least it reads the number
  of each of nnz columns (four bytes; the second reading is from a cache), reads every weight once and writes its
  gradient once; and for every weight that a position meets there are two additions, each as long as a multiply-add:

      4 nnz + 16 W bytes          4 Σ_positions weights met operations          (12 W bytes where weights are single)

  of which the larger time is the bound, if no two positions shared a sum. Weights are met in no order, and a cache
  line brings seven others along that nobody asked for: the bound is not within reach, but the distance tells where
  time is to be had.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from benchmarks.children import run_task
from benchmarks.contestant import Ours
from benchmarks.corpora import Bench, Tags, entity_strings, spanish_names
from benchmarks.table import Row, seconds
from benchmarks.timing import interleaved
from crfield.core.target import Target
from crfield.data.batch import Batch, Columns
from crfield.scoring.layout import Layout
from crfield.training.likelihood import FusedChain

EXP = 40  # operations of one exponential: twenty multiply-adds


def limits(turns: int) -> tuple[float, float, float]:
    """Operations a second of one core, in double and in single precision, and bytes: in a process that knows it."""
    from crfield.kernels import _chain  # type: ignore[attr-defined]

    told = {"OPENBLAS_CORETYPE": "SkylakeX"} if _chain.level() == 4 else {}
    double, single, stream = run_task("limits", str(turns), **told)["limits"]
    return double, single, stream


def measured_limits(turns: int) -> tuple[float, float, float]:
    """The same in this process."""
    n, size = 768, 1 << 23
    x, y = np.ones(size), np.empty(size)
    operations = []
    for precision in (np.float64, np.float32):
        a, c = np.ones((n, n), precision), np.empty((n, n), precision)
        product, copy = interleaved(_product(a, c), lambda: np.copyto(y, x), turns=turns)
        operations.append(2 * n**3 / product.best)
    return operations[0], operations[1], 2 * x.nbytes / copy.best


def _product(a: np.ndarray, out: np.ndarray) -> Callable[[], object]:
    return lambda: np.dot(a, a, out=out)


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


def _evaluation(problem: FusedChain, weights: np.ndarray, gradient: np.ndarray, single: bool) -> Callable[[], object]:
    evaluate: Callable[..., object] = problem.evaluate_single if single else problem.evaluate
    return lambda: evaluate(weights, gradient)


def run(bench: Bench) -> list[Row]:
    """Sweep and columns of each problem, as multiples of their bounds."""
    turns = 10 if bench.quick else 40
    double, single, stream = limits(turns)
    rows = [
        Row(
            "roofline: one core",
            double / stream,
            unit="operations a byte",
            note=f"{double / 1e9:.0f} thousand million operations ({single / 1e9:.0f} in single precision) and "
            f"{stream / 1e9:.1f} GB a second",
        )
    ]
    for name, ours, batch, target in problems(bench):
        plain = bare(ours, batch, target)
        for precision, operations in (("", double), (", single precision", single)):
            rows += parts(
                f"{name}, {ours.layout.n_labels} labels{precision}", ours, plain, batch, operations, stream, turns
            )
    return rows


def parts(
    name: str, ours: Ours, plain: FusedChain, batch: Batch, operations: float, stream: float, turns: int
) -> list[Row]:
    """Sweep and columns of one problem in one precision."""
    single = name.endswith("single precision")
    weights, gradient = ours.half_trained(), np.empty(ours.n_weights)
    few, rest = weights[ours.layout.part["transitions"]].copy(), np.empty(plain.n_weights)
    full = np.concatenate([np.zeros(plain.n_weights - len(few)), few])
    whole, sweep = interleaved(
        _evaluation(ours.problem, weights, gradient, single), _evaluation(plain, full, rest, single), turns=turns
    )
    n, labels, pairs = batch.topology.n_nodes, ours.layout.n_labels, len(ours.layout.pairs)
    nnz = len(batch.node.indices)
    column, _ = ours.layout.node_features()
    met = int(np.bincount(column, minlength=ours.layout.n_columns)[batch.node.indices].sum())
    swept = n * (4 * labels**2 + 2 * pairs + EXP * labels) / operations
    moved, added = (4 * nnz + (12 if single else 16) * ours.n_weights) / stream, 4 * met / operations
    columns = whole.best - sweep.best
    rows = []
    for part, took, bound, why in (
        ("sweep", sweep.best, swept, "operations"),
        ("columns", columns, max(moved, added), "bytes" if moved > added else "operations"),
    ):
        rows.append(
            Row(
                f"roofline: {part} of {name}",
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
