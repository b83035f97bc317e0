"""Weights by M-estimation: one table of centred features, then cheap steps; again from there if asked.

A round starts at weights w₀, whose model is the reference q of the criterion (`objectives.m_estimator`). One sweep
over the data gives truth − q, and pulling that back block by block gives the centred features Φ (n, W). Then

    minimise over δ     n log( 1/n Σ_b exp(−Φ_b δ) )  +  ½ n ridge Σ_k s_k² δ_k²  +  ½ l2 ‖w₀ + δ‖²

where s_k² = mean_b Φ_bk² + 1/n: the ridge weighs on columns of one size, and the floor 1/n keeps features that
(nearly) never occur, whose Φ has one sign and would run away, where they are. Each step costs one product with Φ.

- The first round starts from the Markov chain of the labels (log of the counted transitions on the transition
  weights), or from zero (``reference="uniform"``), or from weights given. This alone is the *one-shot* estimate.
- Further rounds, ``refreshes``, start from where the last one ended. Their first-order term is the gradient of the
  penalised likelihood, so its maximum is the fixed point; the ridge then only shortens the steps, less from
  round to round while they are good.
- A step that would raise −log p(y | x) + ½ l2 ‖w‖² is shortened until it does not, which asks for one more sweep.
  Blocks that hang together are counted as if they did not, so that a full step may be much too sure of itself. The
  one-shot estimate is taken whole all the same: its labels are good because all weights are large together, and a
  part of the step would leave them under the rule of the Markov chain it began with.

Cost: a sweep and O(N K L) a round, and O(n W) for every step within. The table is dense but for sparse columns, and
takes 8 n W bytes; longer blocks make it smaller. `objectives.m_estimator.MEstimator` is the same criterion without
the table.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from crfield.core.checks import one_of
from crfield.core.target import Target
from crfield.core.topology import Chains
from crfield.data.batch import Batch, Columns
from crfield.errors import InputError
from crfield.inference.chain import ChainEngine
from crfield.objectives.contrast import Contrast
from crfield.objectives.m_estimator import Blocks, Centre, block_weights, log_mean_exp
from crfield.optimize.history import CALLBACK, INTERRUPTED, NO_IMPROVEMENT, TOLERANCE, Result, Step
from crfield.optimize.lbfgs import minimize
from crfield.scoring.layout import Layout
from crfield.scoring.linear import LinearScorer

REFERENCES = ("markov", "uniform")
ROUNDS = "rounds"  # all that were asked for are done
AUTO = "auto"
BLOCK, RIDGE = 30, 0.1
ONE_BLOCK, ONE_RIDGE = 10, 0.01  # of a single round: what is not refreshed must see finer, and go farther
CHUNK = 1 << 21  # edge marginals held at once
MOST = 1 << 28  # numbers of the dense part of the table
HALVINGS = 8
LESS, MORE = 0.5, 2.0  # factors of the ridge from round to round
LEAST = 1e-12  # a probability whose logarithm is still a weight
MEMORY = 50  # pairs of the history: the table is small, and so are its weights

Callback = Callable[[Step, np.ndarray], bool | None]


@dataclass(frozen=True, eq=False)
class CentredTable:
    """Φ: the centred features of n blocks, the sparse node columns apart from the rest.

    ``scale`` is s of the module's essay and ``log_prob`` is Σ weight · log p(y | x) of the reference.
    """

    sparse: Any  # (n, F) csr_array, or None
    dense: np.ndarray  # (n, W − F)
    weight: np.ndarray  # (n,)
    scale: np.ndarray  # (W,)
    log_prob: float

    def dot(self, delta: np.ndarray) -> np.ndarray:
        """(n,) Φ δ."""
        split = 0 if self.sparse is None else self.sparse.shape[1]
        eta = self.dense @ delta[split:]
        return np.asarray(eta if self.sparse is None else eta + self.sparse @ delta[:split])

    def back(self, slope: np.ndarray) -> np.ndarray:
        """(W,) Φᵀ slope."""
        rest = slope @ self.dense
        return rest if self.sparse is None else np.concatenate([self.sparse.T @ slope, rest])


def centred_table(
    layout: Layout, batch: Batch, target: Target, weights: np.ndarray, *, block: int | None = BLOCK, n_jobs: int = 1
) -> CentredTable:
    """Φ (n, W) with the model of the given weights as the reference.

    >>> batch = Batch(Chains.from_lengths([4]), Columns(np.zeros(5), [], 0, dense=np.arange(4.0)[:, None]))
    >>> target = Target(batch.topology, 2, np.array([0, 0, 1, 1]))
    >>> layout = Layout.observe(batch, target, boundaries=False, transition_pairs="none")
    >>> centred_table(layout, batch, target, np.zeros(2), block=2).dense.tolist()
    [[0.5, -0.5], [-2.5, 2.5]]
    """
    from scipy.sparse import vstack

    scorer, parts, log_prob = LinearScorer(layout), [], 0.0
    rows = Blocks.cut(batch.topology, block)
    split = layout.part["node"].stop
    if len(rows) * (layout.n_weights - split) > MOST:
        raise InputError(
            f"the table of {len(rows):,} blocks and {layout.n_weights - split:,} numeric weights is too large to "
            "hold. Take longer blocks, or fewer columns."
        )
    for piece, truth in _chunks(batch, target):
        centre = Centre.of(scorer.score(weights, piece), truth, n_jobs=n_jobs)
        log_prob += float(centre.log_prob.sum() if truth.weight is None else truth.weight @ centre.log_prob)
        parts.append(_pulled(layout, piece, centre, Blocks.cut(piece.topology, block)))
    sparse = vstack([part[0] for part in parts], format="csr") if split else None
    dense = parts[0][1] if len(parts) == 1 else np.concatenate([part[1] for part in parts])
    own = block_weights(rows, target)
    n = max(float(own.sum()), 1e-300)
    square = own @ dense**2
    if sparse is not None:
        square = np.concatenate([sparse.power(2).T @ own, square])
    return CentredTable(sparse, dense, own, np.sqrt((square + 1.0) / n), log_prob)


def _chunks(batch: Batch, target: Target) -> Iterator[tuple[Batch, Target]]:
    """Runs of sequences whose edge marginals are few enough to hold."""
    chains, square = batch.topology, target.n_labels**2
    if chains.n_edges * square <= CHUNK:
        yield batch, target
        return
    first = 0
    while first < chains.n_sequences:
        last = int(np.searchsorted(chains.edge_offsets, chains.edge_offsets[first] + CHUNK // square, side="right"))
        last = min(max(last - 1, first + 1), chains.n_sequences)
        nodes = slice(int(chains.offsets[first]), int(chains.offsets[last]))
        edges = slice(int(chains.edge_offsets[first]), int(chains.edge_offsets[last]))
        own = Chains(chains.offsets[first : last + 1] - chains.offsets[first])
        edge = None if batch.edge is None else _rows(batch.edge, edges)
        yield (
            Batch(own, _rows(batch.node, nodes), edge),
            Target(
                own,
                target.n_labels,
                target.labels[nodes],
                None if target.allowed is None else target.allowed[nodes],
                None if target.weight is None else target.weight[first:last],
            ),
        )
        first = last


def _rows(columns: Columns, rows: slice) -> Columns:
    start, stop = int(columns.indptr[rows.start]), int(columns.indptr[rows.stop])
    return Columns(
        columns.indptr[rows.start : rows.stop + 1] - start,
        columns.indices[start:stop],
        columns.width,
        None if columns.values is None else columns.values[start:stop],
        None if columns.dense is None else columns.dense[rows],
    )


def _pulled(layout: Layout, batch: Batch, centre: Centre, blocks: Blocks) -> tuple[Any, np.ndarray]:
    """truth − q pulled back to the weights, block by block: the sparse node columns, and the rest."""
    from scipy.sparse import csr_array

    labels, chains, n = layout.n_labels, batch.topology, len(blocks)

    def gather(values: np.ndarray, starts: np.ndarray) -> Any:
        """(n, rows) a matrix that sums rows, weighed by ``values``, over each block."""
        return csr_array((values, np.arange(len(values)), starts), shape=(n, len(values)))

    def linked(columns: Columns, weigh: np.ndarray, starts: np.ndarray, *, n_items: int) -> np.ndarray:
        """(n, D · items) of a dense block."""
        out = np.empty((n, columns.n_dense, n_items))
        for item in range(n_items):
            out[:, :, item] = gather(weigh[:, item], starts) @ columns.dense
        return out.reshape(n, -1)

    edge = centre.edge.reshape(len(centre.edge), labels * labels)
    sparse = None
    if layout.part["node"].stop:
        column, label = layout.node_features()
        sparse = _sparse_linked(batch.node, centre.node, blocks.nodes, column, label, gather)
    rest = []
    if layout.n_dense:
        rest.append(linked(batch.node, centre.node, blocks.nodes, n_items=labels))
    if layout.bias:
        rest.append(gather(np.ones(chains.n_nodes), blocks.nodes) @ centre.node)
    if layout.boundaries:
        filled = chains.lengths > 0
        for ends in (chains.offsets[:-1][filled], chains.offsets[1:][filled] - 1):
            only = np.zeros(chains.n_nodes)
            only[ends] = 1.0
            rest.append(gather(only, blocks.nodes) @ centre.node)
    if len(layout.pairs):
        rest.append(gather(np.ones(len(edge)), blocks.edges) @ np.ascontiguousarray(edge[:, layout.pairs]))
    if layout.part["edge"].stop > layout.part["edge"].start and batch.edge is not None:
        column, pair = layout.edge_features()
        rest.append(_sparse_linked(batch.edge, edge, blocks.edges, column, pair, gather).toarray())
    if layout.n_edge_dense and batch.edge is not None:
        rest.append(linked(batch.edge, edge, blocks.edges, n_items=labels * labels))
    return sparse, np.concatenate([np.zeros((n, 0)), *rest], axis=1)


def _sparse_linked(
    columns: Columns, weigh: np.ndarray, starts: np.ndarray, column: np.ndarray, item: np.ndarray, gather: Any
) -> Any:
    """(n, F) csr of features (column, item) of sparse columns."""
    from scipy.sparse import csr_array, hstack

    values = np.ones(len(columns.indices)) if columns.values is None else columns.values
    table = csr_array((values, columns.indices, columns.indptr), shape=(columns.n_rows, columns.width))
    order, parts = [], []
    for wanted in np.unique(item):
        chosen = np.flatnonzero(item == wanted)
        parts.append((gather(weigh[:, wanted], starts) @ table).tocsc()[:, column[chosen]])
        order.append(chosen)
    if not parts:
        return csr_array((len(starts) - 1, 0))
    back = np.argsort(np.concatenate(order))
    return hstack(parts, format="csc")[:, back].tocsr()


class Criterion:
    """The criterion of a round in the scaled coordinates v = s δ, for an optimiser."""

    def __init__(self, table: CentredTable, start: np.ndarray, *, ridge: float, l2: np.ndarray) -> None:
        self.table, self.start, self.l2 = table, start, l2
        self.strength = ridge * float(table.weight.sum())

    @property
    def n_weights(self) -> int:
        """W."""
        return len(self.start)

    def evaluate(self, weights: np.ndarray, gradient: np.ndarray) -> float:
        """Value at v; the gradient is written to ``gradient``."""
        table = self.table
        delta = weights / table.scale
        value, slope = log_mean_exp(table.dot(delta), table.weight)
        there = self.start + delta
        gradient[:] = (table.back(slope) + self.l2 * there) / table.scale + self.strength * weights
        return value + 0.5 * self.strength * float(weights @ weights) + 0.5 * float(self.l2 @ there**2)


def markov_weights(layout: Layout, target: Target, *, smoothing: float = 1.0) -> np.ndarray:
    """(W,) weights of the Markov chain of the labels: log p(j | i) on transitions, log p(first) at the start.

    A constant on all transitions changes nothing, so they are centred, which makes them small. Only where some pairs
    have no weight, and score 0 whatever is known of them, the constant is the one that brings the least likely of
    these there. Without transitions the shares of the labels stand on the intercepts instead.

    >>> target = Target(Chains.from_lengths([4]), 2, np.array([0, 0, 0, 1]))
    >>> layout = Layout(2, pairs=np.arange(4), edge_ptr=np.zeros(1, np.int64), edge_pair=np.zeros(0, np.int32))
    >>> markov_weights(layout, target).round(3).tolist()  # log of .6, .4, .5, .5, less their mean
    [0.193, -0.213, 0.01, 0.01]
    """
    from crfield.training.markov.counting import counted

    weights = np.zeros(layout.n_weights)
    start, transition, shares = (np.maximum(table, LEAST) for table in counted(target, smoothing=smoothing))
    if len(layout.pairs):
        table = np.log(transition).ravel()
        without = np.setdiff1d(np.arange(table.size), layout.pairs)
        table -= table[without].min() if len(without) else table.mean()
        weights[layout.part["transitions"]] = table[layout.pairs]
        if layout.boundaries:
            weights[layout.part["start"]] = np.log(start) - np.log(start).mean()
    elif layout.bias:
        logs = np.log(shares)
        weights[layout.part["bias"]] = logs - logs.mean()
    return weights


def m_estimate(
    layout: Layout,
    batch: Batch,
    target: Target,
    *,
    start: np.ndarray | None = None,
    reference: str = "markov",
    block: int | str | None = AUTO,
    ridge: float | str = AUTO,
    l2: float = 0.0,
    penalised: np.ndarray | None = None,
    refreshes: int = 0,
    tol: float = 1e-4,
    max_iter: int = 200,
    n_jobs: int = 1,
    callback: Callback | None = None,
) -> Result:
    """Weights (W,) of a linear chain model by one M-estimate and some refreshes; see the module.

    ``block`` "auto" is 10 steps for one shot and 30 with refreshes, ``ridge`` "auto" 0.01 and 0.1.
    ``penalised`` (W,) says where ``l2`` applies. The result's value is −log p(y | x) + ½ l2 ‖w‖²; its history has a
    step for each round, and ``n_evaluations`` counts the sweeps over the data. It ends before all
    rounds are done (``reason``) when one promises to lower the value by less than ``tol`` of it.

    >>> batch = Batch(Chains.from_lengths([4]), Columns(np.zeros(5), [], 0, dense=np.arange(4.0)[:, None] - 1.5))
    >>> target = Target(batch.topology, 2, np.array([0, 0, 1, 1]))
    >>> layout = Layout.observe(batch, target)
    >>> weights = m_estimate(layout, batch, target, block=1).weights
    >>> LinearScorer(layout).score(weights, batch).node.argmax(axis=1).tolist()
    [0, 0, 1, 1]
    """
    one_of(*REFERENCES)("reference", reference)
    if isinstance(block, str) or isinstance(ridge, str):
        if {one for one in (block, ridge) if isinstance(one, str)} != {AUTO}:
            raise InputError(f"block and ridge must be numbers or 'auto', got {block!r} and {ridge!r}.")
        block = (BLOCK if refreshes else ONE_BLOCK) if isinstance(block, str) else block
        ridge = (RIDGE if refreshes else ONE_RIDGE) if isinstance(ridge, str) else ridge
    if not ridge >= 0 or refreshes < 0:
        raise InputError(f"ridge and refreshes must be ≥ 0, got ridge={ridge}, refreshes={refreshes}.")
    mask = np.ones(layout.n_weights) if penalised is None else np.asarray(penalised, np.float64)
    run = _Rounds(layout, batch, target, block=block, ridge=ridge, l2=l2 * mask, n_jobs=n_jobs)
    if start is None:
        markov = reference == "markov"
        start = markov_weights(layout, target) if markov else np.zeros(layout.n_weights)
    try:
        return run.go(start, rounds=1 + refreshes, tol=tol, max_iter=max_iter, callback=callback)
    except KeyboardInterrupt:
        return run.result(INTERRUPTED, converged=False)


class _Rounds:
    """One call of `m_estimate`."""

    def __init__(
        self,
        layout: Layout,
        batch: Batch,
        target: Target,
        *,
        block: int | None,
        ridge: float,
        l2: np.ndarray,
        n_jobs: int,
    ) -> None:
        self.layout, self.batch, self.target = layout, batch, target
        self.block, self.ridge, self.l2, self.n_jobs = block, ridge, l2, n_jobs
        self.weights, self.value = np.zeros(layout.n_weights), float("nan")
        self.steps: list[Step] = []
        self.sweeps = 0
        self.began = time.perf_counter()

    def result(self, reason: str, *, converged: bool) -> Result:
        """The end of the run at the present weights."""
        return Result(self.weights, self.value, len(self.steps), self.sweeps, converged, reason, self.steps)

    def table(self, weights: np.ndarray) -> tuple[CentredTable, float]:
        """Φ at the weights, and the penalised −log p there."""
        self.sweeps += 1
        table = centred_table(self.layout, self.batch, self.target, weights, block=self.block, n_jobs=self.n_jobs)
        return table, 0.5 * float(self.l2 @ weights**2) - table.log_prob

    def height(self, weights: np.ndarray) -> float:
        """The penalised −log p alone."""
        self.sweeps += 1
        scorer, value = LinearScorer(self.layout), 0.5 * float(self.l2 @ weights**2)
        for piece, truth in _chunks(self.batch, self.target):
            value += Contrast().evaluate(scorer.score(weights, piece), truth, ChainEngine(self.n_jobs)).value
        return value

    def step(
        self, table: CentredTable, start: np.ndarray, *, ridge: float, tol: float, max_iter: int
    ) -> tuple[np.ndarray, float]:
        """δ that minimises the criterion of a round, and the slope of the penalised −log p along it."""
        criterion = Criterion(table, start, ridge=ridge, l2=self.l2)
        here, slope = np.zeros(len(start)), np.empty(len(start))
        criterion.evaluate(here, slope)
        scaled = minimize(criterion, here, tol=tol, max_iter=max_iter, memory=MEMORY, n_jobs=self.n_jobs).weights
        return scaled / table.scale, float(slope @ scaled)

    def one_shot(self, table: CentredTable, *, tol: float, max_iter: int, callback: Callback | None) -> Result:
        """The minimum of the first criterion, whatever the likelihood says of it."""
        delta, _ = self.step(table, self.weights, ridge=self.ridge, tol=tol, max_iter=max_iter)
        self.weights = self.weights + delta
        self.value = self.height(self.weights)
        stopped = self.report(1.0, delta, callback)
        return self.result(CALLBACK if stopped else ROUNDS, converged=not stopped)

    def go(self, start: np.ndarray, *, rounds: int, tol: float, max_iter: int, callback: Callback | None) -> Result:
        """All rounds."""
        self.weights, (table, self.value), longest = start, self.table(start), 1.0
        ridge = self.ridge
        if rounds == 1:
            return self.one_shot(table, tol=tol, max_iter=max_iter, callback=callback)
        for left in reversed(range(rounds)):
            delta, slope = self.step(table, self.weights, ridge=ridge, tol=tol, max_iter=max_iter)
            if -slope <= tol * abs(self.value):
                return self.result(TOLERANCE, converged=True)
            size, first = longest, True
            for _ in range(HALVINGS):
                there = self.weights + size * delta
                if left:
                    table, value = self.table(there)
                else:
                    value = self.height(there)
                if value < self.value:
                    break
                # The minimum of the parabola through both values and the slope, but no wild guesses.
                bend = value - self.value - size * slope
                size, first = size * min(max(-0.5 * size * slope / bend, 0.1), 0.5), False
            else:
                return self.result(NO_IMPROVEMENT, converged=False)
            # As Levenberg and Marquardt do: less ridge after a step that was good at once, more after one that was
            # too long. And what was too long will mostly be so again: a trial costs a sweep.
            ridge *= LESS if first else MORE
            longest = min(1.5 * size, 1.0) if first else size
            self.weights, self.value = there, value
            if self.report(size, delta, callback):
                return self.result(CALLBACK, converged=False)
        return self.result(ROUNDS, converged=True)

    def report(self, size: float, delta: np.ndarray, callback: Callback | None) -> bool:
        """Record a round and tell the callback; True if it wishes to stop."""
        seconds, moved = time.perf_counter() - self.began, size * float(np.sqrt(delta @ delta))
        self.steps.append(Step(len(self.steps) + 1, self.sweeps, self.value, moved, size, len(delta), seconds))
        return callback is not None and bool(callback(self.steps[-1], self.weights))
