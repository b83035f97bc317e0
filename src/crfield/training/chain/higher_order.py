"""Training of higher-order chains: value and gradient through `crfield.kernels.tuples`.

    value(w) = Σ_s weight_s [ log Z_s(node + cost) − log Z_s(what the target allows) ]

The likelihood, or with costs the soft margin. Scores of labels come from the columns as in a plain chain; the edges
of S states with L labels each are few numbers that are made of the weights once an evaluation. Of sequences with one
gold label everywhere the second total is the score of a path; only partly labelled ones need a second sweep.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from crfield.core.target import Target
from crfield.core.topology import Chains
from crfield.data.batch import Batch
from crfield.errors import InputError
from crfield.kernels import linear, tuples
from crfield.scoring.constraints import refuse_illegal
from crfield.scoring.higher_order import HigherOrderLayout, HigherOrderScores
from crfield.training.chain.plan import TRAINERS, Plan
from crfield.training.column_basis import measured

OBJECTIVES = ("likelihood", "softmax_margin")


class HigherOrderChain:
    """Negative log-likelihood, or soft margin, of a chain of higher order on a labelled batch.

    >>> from crfield.data.batch import Columns
    >>> from crfield.scoring.higher_order import LabelRuns
    >>> from crfield.scoring.layout import Layout
    >>> batch = Batch(Chains.from_lengths([3]), Columns.from_rows([[0], [1], [0]], width=2))
    >>> target = Target(batch.topology, 2, np.array([0, 1, 0]))
    >>> layout = HigherOrderLayout.extend(Layout.observe(batch, target), LabelRuns.observe(target, 2))
    >>> gradient = np.empty(layout.n_weights)
    >>> round(HigherOrderChain(layout, batch, target).evaluate(np.zeros(layout.n_weights), gradient), 6)
    2.079442
    """

    def __init__(
        self, layout: HigherOrderLayout, batch: Batch, target: Target, *, costs: bool = False, n_jobs: int = 1
    ) -> None:
        if layout.fixed is not None:
            refuse_illegal(layout.fixed, target)
        self.layout, self.batch, self.n_jobs = layout, batch, n_jobs
        self.columns: Any = None  # the layout and `training.column_basis.Moments`, where columns are numeric
        self.moments: Any = None
        topology = batch.topology
        self._weight = np.ones(topology.n_sequences) if target.weight is None else target.weight
        by_node = self._weight[topology.sequence_of_node]
        self._by_node = by_node[:, None]
        self._cost = None
        if costs:
            self._cost = np.where(target.mask, 0.0, 1.0) if target.cost is None else target.cost
        whole = target.complete[topology.sequence_of_node]
        self._rows = np.flatnonzero(whole & (by_node != 0))  # nodes on gold paths
        self._gold = target.labels[self._rows]
        states = layout.runs.walk(np.where(whole, target.labels, 0), topology)
        heads = topology.heads[whole[topology.heads] & (by_node[topology.heads] != 0)]
        place = states[heads - 1].astype(np.int64) * layout.n_labels + target.labels[heads]
        cells = layout.runs.after.size
        self._uses = np.bincount(place, by_node[heads], minlength=cells).reshape(layout.runs.after.shape)
        some = np.flatnonzero(~target.complete & (self._weight != 0))
        self._partial = Chains.from_lengths(topology.lengths[some])
        self._partial_weight = self._weight[some]
        self._partial_rows = np.flatnonzero(np.isin(topology.sequence_of_node, some))
        self._allowed = target.mask[self._partial_rows]

    @property
    def n_weights(self) -> int:
        """W."""
        return self.layout.n_weights

    def evaluate(self, weights: np.ndarray, gradient: np.ndarray) -> float:
        """Value; the gradient is written to ``gradient``."""
        layout, plain = self.layout, self.layout.plain
        scores = HigherOrderScores.of(layout, weights, self.batch, n_jobs=self.n_jobs)
        free = scores.node if self._cost is None else scores.node + self._cost
        total, node, uses = scores.beliefs(free, weight=self._weight, n_jobs=self.n_jobs)
        counted = self._weight != 0
        value = float(self._weight[counted] @ total[counted])
        used = self._uses > 0
        value -= float(self._by_node[self._rows, 0] @ scores.node[self._rows, self._gold])
        value -= float(self._uses[used] @ scores.score[used])
        node *= self._by_node
        node[self._rows, self._gold] -= self._by_node[self._rows, 0]
        uses -= self._uses
        if self._partial.n_nodes:
            rows, runs = self._partial_rows, layout.runs
            allowed = np.where(self._allowed, scores.node[rows], -np.inf)
            total, inside, within = tuples.sum_product(
                self._partial.offsets,
                allowed,
                runs.after,
                runs.label,
                scores.score,
                weight=self._partial_weight,
                n_jobs=self.n_jobs,
            )
            value -= float(self._partial_weight @ total)
            node[rows] -= inside * self._by_node[rows]
            uses -= within
        edge, own = layout.pull_runs(uses)
        gradient[: plain.n_weights] = linear.pull(plain, self.batch, node, edge[None])
        gradient[layout.part["runs"]] = own
        return value


@dataclass(frozen=True, eq=False)
class HigherOrderParts:
    """A labelled batch and the layout of a chain of higher order: what a plan is carried out on."""

    layout: HigherOrderLayout
    batch: Batch
    target: Target
    n_jobs: int = 1

    def problem(self, objective: str, *, whole: bool = True) -> HigherOrderChain:
        """The objective as a function of the weights; see `ChainParts.problem`."""
        costs = objective == "softmax_margin"
        made = HigherOrderChain(self.layout, self.batch, self.target, costs=costs, n_jobs=self.n_jobs)
        return measured(made, self.layout, self.batch, self.target) if whole else made


def check_higher_order_plan(plan: Plan) -> None:
    """InputError unless chains of higher order can be trained by this plan.

    >>> check_higher_order_plan(Plan("hinge", "frank_wolfe"))
    Traceback (most recent call last):
    crfield.errors.InputError: order > 1 trains 'likelihood' or 'softmax_margin', got objective='hinge'.
    """
    if plan.objective not in OBJECTIVES:
        raise InputError(f"order > 1 trains {' or '.join(map(repr, OBJECTIVES))}, got objective={plan.objective!r}.")
    if plan.solver == "warm" or (plan.solver != "auto" and TRAINERS[plan.solver].data):
        can = [name for name, row in TRAINERS.items() if not row.data and name != "warm"]
        raise InputError(
            f"order > 1 is trained by solvers that use values and gradients ({', '.join(map(repr, can))}), "
            f"got solver={plan.solver!r}."
        )
