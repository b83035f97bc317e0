"""Where training of runs of labels begins: at a chain, and with the curvature that the objective has there.

A chain is a semi-Markov model of runs. With transitions t and a run of label j that lasts d steps, (d − 1) t_jj is

    d t_jj, in the intercept of its steps, less t_jj, in the transition that leads to it

so the chain's weights are a start that costs as much as a chain does and is far below zero weights. More than that
they tell how the objective bends: at zero weights every length and every label is as likely as any other, which is
nothing like the end, where what is open is the step at which a run ends. The second derivative of the likelihood is
the covariance of the counts of features under the model (Lehmann & Casella 1998, *Theory of point estimation*, §
2.5),

    ∇²f(w) = Σ_s weight_s Cov(counts of a labelling drawn from p(y | x_s, w))

and labellings of a chain are drawn at next to no cost. ``DRAWS`` of each sequence are enough for a matrix that
L-BFGS starts from; its root is the basis (`optimize.basis`). The optimum is the same; on the six worlds of `crfield
experiment one-data-set` it takes 7 to 36 evaluations to get there, where zero weights took 37 to 252. Columns in
units that lie far apart keep the start at zero weights: there rounding decides, and the second derivative itself is
needed.

Cost: a chain's training to a rough tolerance, and products of W × W numbers for ``ROWS`` W drawn sequences, so this
is for models with few weights.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from crfield.core.segments import Segmentation
from crfield.core.target import Target
from crfield.core.topology import Chains
from crfield.data.batch import Batch, Columns
from crfield.features.columns.select import take_rows
from crfield.optimize.basis import Basis
from crfield.optimize.lbfgs import minimize
from crfield.optimize.penalty import Penalty
from crfield.scoring.layout import Layout
from crfield.scoring.segments import SegmentLayout
from crfield.training.column_basis import Moments, column_basis, column_table
from crfield.training.drawn_curvature import draw_labels
from crfield.training.likelihood import FusedChain, history_pairs

if TYPE_CHECKING:
    from crfield.training.segments import FusedSegments

MOST_WEIGHTS = 400
TOL, STEPS = 1e-2, 40  # of the chain's training: what a start needs
DRAWS = 16  # labellings of each sequence
ROWS = 4  # drawn sequences for each weight, at most
LONGEST = 128  # steps of a sequence that are drawn together
FAR = 1e3  # the largest size of a column over the smallest deviation
LEAST = 1e-6  # curvature of what was never drawn, where one is that at zero weights


@dataclass(frozen=True, eq=False)
class ChainOfRuns:
    """The chain that a semi-Markov model of runs has in it."""

    layout: SegmentLayout
    chain: Layout
    nodes: np.ndarray  # weights of the semi-Markov layout that are the chain's of sparse columns
    dense: np.ndarray  # (n_dense, L) those of dense ones

    @classmethod
    def within(cls, layout: SegmentLayout) -> ChainOfRuns | None:
        """None where the model is no chain with more features: touching segments, texts, features of edges."""
        base, labels = layout.base, layout.n_labels
        fits = layout.runs and "sum" in layout.roles and base.bias and labels > 1 and not len(layout.item_label)
        if not fits or base.n_edge_columns or base.n_edge_dense or layout.n_weights > MOST_WEIGHTS:
            return None
        role, steps, start = layout.roles.index("sum"), layout.steps, layout.part["steps"].start
        column, item = steps.node_features()
        own = np.flatnonzero(item // labels == role)
        chain = replace(
            base,
            n_columns=steps.n_columns,
            n_dense=steps.n_dense,
            feature_ptr=np.searchsorted(column[own], np.arange(steps.n_columns + 1)).astype(np.int64),
            feature_label=(item[own] % labels).astype(np.int32),
        )
        dense = np.arange(steps.n_weights)[steps.part["dense"]].reshape(steps.n_dense, steps.n_labels)
        dense = dense[:, role * labels : (role + 1) * labels]
        return cls(layout, chain, start + own + steps.part["node"].start, start + dense)

    def weights(self, of_chain: np.ndarray) -> np.ndarray:
        """(W,) those that score every labelling as the chain does."""
        made, part = np.zeros(self.layout.n_weights), self.chain.part
        table = np.nan_to_num(self.chain.transitions(of_chain))
        stay = np.diag(table)
        made[self.nodes], made[self.dense] = of_chain[part["node"]], of_chain[part["dense"]].reshape(self.dense.shape)
        base, own = made[self.layout.part["base"]], self.layout.base.part
        base[own["bias"]] = of_chain[part["bias"]] + stay
        if self.chain.boundaries:
            base[own["start"]], base[own["end"]] = of_chain[part["start"]] - stay, of_chain[part["end"]]
        apart = table - stay
        np.fill_diagonal(apart, 0.0)  # from piece to piece of one run nothing is left
        pairs = self.layout.base.pairs
        base[own["transitions"]] = apart.ravel() if pairs is None else apart.ravel()[pairs]
        return made


def started(problem: FusedSegments, penalty: Penalty, basis: Basis) -> tuple[np.ndarray, Basis] | None:
    """Weights (W,) to start from and the basis there; None where the model is no chain with more features."""
    layout, batch = problem.scorer.layout, problem.data.batch
    found, moments = ChainOfRuns.within(layout), Moments.of(batch, problem.weight)
    if found is None or _far(moments):
        return None
    chain, target = (
        found.chain,
        Target(batch.topology, layout.n_labels, problem.gold.node_labels, weight=problem.weight),
    )
    spared = None if penalty.penalised is None else (~chain.intercepts).astype(np.uint8)
    ridge = Penalty(l2=penalty.l2, penalised=spared)
    weights = minimize(
        FusedChain(chain, batch, target, n_jobs=problem.n_jobs),
        np.zeros(chain.n_weights),
        ridge,
        memory=history_pairs(chain.n_weights, ridge),
        basis=column_basis(chain, moments, ridge),
        tol=TOL,
        max_iter=STEPS,
        n_jobs=problem.n_jobs,
    ).weights
    pieces = _pieces(batch, problem.weight, most=-(-ROWS * layout.n_weights // DRAWS))
    counts = basis.pulled(_counts(layout, pieces, _drawn(chain, weights, pieces)))
    bend = counts.T @ counts
    own = basis.pulled(np.diag(np.sqrt(penalty.ridge(layout.n_weights))))
    bend += own.T @ own
    bend[np.diag_indices_from(bend)] += LEAST
    try:
        turn = np.linalg.inv(np.linalg.cholesky(bend)).T
    except np.linalg.LinAlgError:
        return None
    whole = basis.pulled(np.eye(layout.n_weights)) @ turn
    return found.weights(weights), Basis(basis.scale, ((np.arange(layout.n_weights)[:, None], whole),))


def _far(moments: Moments) -> bool:
    """Whether columns are in units so different that the end is a matter of rounding (`optimize.basis`)."""
    spread = np.sqrt((np.diag(moments.gram) if moments.gram.ndim == 2 else moments.gram) / max(moments.count, 1e-300))
    size = np.hypot(spread, moments.mean)[spread > 0]
    return bool(len(size) and size.max() > FAR * spread[spread > 0].min())


@dataclass(frozen=True, eq=False)
class _Pieces:
    """Some stretches of the sequences, and what each stands for."""

    chains: Chains
    rows: Columns
    weight: np.ndarray  # (pieces,)


def _pieces(batch: Batch, weight: np.ndarray, *, most: int) -> _Pieces:
    """At most so many stretches of at most ``LONGEST`` steps, taken evenly from all."""
    lengths = batch.topology.lengths
    count = -(-lengths // LONGEST)
    start = np.repeat(batch.topology.offsets[:-1], count)
    number = np.arange(len(start)) - np.repeat(np.cumsum(count) - count, count)
    start = start + number * LONGEST
    stop = np.minimum(start + LONGEST, np.repeat(batch.topology.offsets[1:], count))
    taken = np.unique(np.linspace(0, len(start) - 1, min(len(start), most)).astype(np.int64))
    steps = (stop - start)[taken]
    nodes = np.arange(steps.sum()) + np.repeat(start[taken] - (np.cumsum(steps) - steps), steps)
    share = float(lengths.sum()) / float(steps.sum())
    return _Pieces(Chains.from_lengths(steps), take_rows(batch.node, nodes), share * np.repeat(weight, count)[taken])


def _drawn(chain: Layout, weights: np.ndarray, pieces: _Pieces) -> np.ndarray:
    """(DRAWS, steps) labels of every piece, drawn from the chain."""
    return draw_labels(chain, weights, Batch(pieces.chains, pieces.rows), DRAWS, np.random.default_rng(0))


def _counts(layout: SegmentLayout, pieces: _Pieces, drawn: np.ndarray) -> np.ndarray:
    """(DRAWS · pieces, W) the counts of features of every draw less their mean; CᵀC is their covariance."""
    one, labels, roles = pieces.chains, layout.n_labels, layout.roles
    chains = Chains.from_lengths(np.tile(one.lengths, DRAWS))
    cut, _ = Segmentation.of_runs(chains, drawn.ravel()).limited(layout.limit)
    rows, sequence, code = chains.n_sequences, cut.sequence, cut.label.astype(np.int64)

    def table(
        values: np.ndarray, place: np.ndarray, size: int, which: np.ndarray | slice = slice(None)
    ) -> np.ndarray:
        """(rows, size) sums of the values of segments at their places."""
        key = sequence[which] * size + place
        return np.bincount(key, values, minlength=rows * size).reshape(rows, size)

    out, ones = np.zeros((rows, layout.n_weights)), np.ones(len(cut.start))
    base, own = out[:, layout.part["base"]], layout.base.part
    base[:, own["bias"]] = table(cut.lengths, code, labels)
    if layout.base.boundaries:
        first = np.flatnonzero(~cut.follows)
        last = np.append(first[1:], len(cut.start)) - 1
        base[:, own["start"]] = table(ones[first], code[first], labels, first)
        base[:, own["end"]] = table(ones[last], code[last], labels, last)
    later = np.flatnonzero(cut.follows)
    met = table(ones[later], code[later - 1] * labels + code[later], labels**2, later)
    base[:, own["transitions"]] = met if layout.base.pairs is None else met[:, layout.base.pairs]
    bins = layout.bins[cut.lengths - 1].astype(np.int64)
    long = np.flatnonzero(bins >= 0)
    lengths = out[:, layout.part["length"]]
    lengths[:] = table(ones[long], bins[long] * labels + code[long], lengths.shape[1], long)
    values = column_table(pieces.rows)
    sums = np.concatenate([np.zeros((1, values.shape[1])), np.cumsum(values - values.mean(axis=0), axis=0)])
    before, after = cut.start % one.n_nodes, (cut.stop - 1) % one.n_nodes
    whole = sums[after + 1] - sums[before] + cut.lengths[:, None] * values.mean(axis=0)
    by_role = {"sum": whole, "first": values[before], "last": values[after], "mean": whole / cut.lengths[:, None]}
    met_columns = np.empty((rows, values.shape[1], len(roles) * labels))
    for number, role in enumerate(roles):
        for each in range(values.shape[1]):
            place = slice(number * labels, (number + 1) * labels)
            met_columns[:, each, place] = table(by_role[role][:, each], code, labels)
    steps, inside = out[:, layout.part["steps"]], layout.steps.part
    column, item = layout.steps.node_features()
    steps[:, inside["node"]] = met_columns[:, column, item]
    steps[:, inside["dense"]] = met_columns[:, layout.steps.n_columns :].reshape(rows, -1)
    by_draw = out.reshape(DRAWS, one.n_sequences, -1)
    by_draw -= by_draw.mean(axis=0)
    by_draw *= np.sqrt(pieces.weight / (DRAWS - 1))[:, None]
    return out
