"""The linear form of a boosted model: its leaves as columns, all weights fitted together.

A weak learner with l leaves becomes l − 1 columns of zeros and ones, the first leaf going into the bias; a relation
has one weight for each pair of labels. That is the linear model of `crfield.scoring.graph_linear`, so likelihood,
pseudo-likelihood and every engine are those of `GraphCRF`; `additive` goes back.

    F(w) = −log p(y | x) + ½ l2 ‖w‖²

Columns are kept densely: N numbers for each leaf but the first.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from crfield.boosting.virtual_evidence.additive import Additive, LocalStep
from crfield.boosting.virtual_evidence.rounds import Block
from crfield.core.graphs import Graphs
from crfield.core.potentials import Potentials
from crfield.core.semiring import Semiring
from crfield.core.target import Target
from crfield.data.batch import Columns
from crfield.data.graphs.batch import GraphBatch, GraphSchema, NodeKind
from crfield.inference.graphs.catalogue import choose_engine
from crfield.optimize.history import INTERRUPTED, Result
from crfield.optimize.penalty import Penalty
from crfield.scoring.graph_layout import GraphLayout
from crfield.scoring.graph_linear import GraphScorer
from crfield.training.graph.fit import fit_graph
from crfield.training.graph.plan import Plan, plan_training

_PSEUDO = Plan("pseudo_likelihood", None, exact=True, reason="pseudo_likelihood: verifies relations")
_VERIFYING_TOL = 1e-7  # of an objective whose differences are compared with a few units


@dataclass(frozen=True, eq=False)
class Weights:
    """Weights by their meaning, whatever columns and relations a model has at the time."""

    bias: tuple[np.ndarray, ...]  # (L_k,) of each kind
    columns: tuple[np.ndarray, ...]  # (D_k, L_k) of each kind
    tables: np.ndarray  # (R, L, L)

    @classmethod
    def zero(cls, sizes: tuple[int, ...], n_relations: int) -> Weights:
        """No weights at all.

        >>> Weights.zero((2, 3), 1).tables.shape
        (1, 3, 3)
        """
        most = max(sizes)
        return cls(
            tuple(np.zeros(size) for size in sizes),
            tuple(np.zeros((0, size)) for size in sizes),
            np.zeros((n_relations, most, most)),
        )


class LinearForm:
    """Leaves of weak learners as columns, on a fixed training set."""

    def __init__(
        self,
        batch: GraphBatch,
        schema: GraphSchema,
        target: Target,
        sizes: tuple[int, ...],
        blocks: list[Block],
        *,
        l2: float,
        n_jobs: int,
        rng: np.random.Generator,
    ) -> None:
        self._batch, self._schema, self._target, self._sizes = batch, schema, target, sizes
        self._blocks, self._penalty, self._n_jobs, self._rng = blocks, Penalty(l2=l2), n_jobs, rng
        self._steps: list[LocalStep] = []
        self._columns: list[np.ndarray] = []  # (n_k, leaves − 1) of each step
        self._made: dict[tuple[int, ...], tuple[Graphs, np.ndarray]] = {}
        self._engines: dict[tuple[int, ...], object] = {}
        self.reason, self.converged = "", True

    @property
    def n_steps(self) -> int:
        """How many weak learners there are."""
        return len(self._steps)

    def add(self, step: LocalStep) -> None:
        """The leaves of one more weak learner become columns."""
        block = next(b for b in self._blocks if (b.kind, b.part) == (step.kind, step.part))
        self._steps.append(step)
        self._columns.append(step.indicators(block.candidates))

    def fit(self, accepted: tuple[int, ...], start: Weights, *, tol: float = 1e-4) -> Weights:
        """Weights of all columns and of the accepted relations by likelihood, exact where that can be had."""
        batch, target, layout = self._problem(accepted)
        plan = plan_training(batch.topology, max(self._sizes), n_jobs=self._n_jobs)
        result = self._minimise(batch, target, layout, plan, start, accepted, tol)
        if result.reason == INTERRUPTED:
            raise KeyboardInterrupt
        self.reason, self.converged = plan.reason, bool(result.converged)
        return self._weights(result.weights, layout, accepted)

    def pseudo_likelihood(self, accepted: tuple[int, ...], start: Weights) -> float:
        """The least −log pseudo-likelihood, with its penalty, of a model with these relations."""
        batch, target, layout = self._problem(accepted)
        return float(self._minimise(batch, target, layout, _PSEUDO, start, accepted, _VERIFYING_TOL).value)

    def least_gain(self, relation: int) -> float:
        """½ · dof · log N: a table has one weight less than cells, for a constant changes nothing."""
        layout = GraphLayout.full(self._reduced((relation,)), self._sizes)
        dof = max(layout.tables[0].n_weights - 1, 1)
        return 0.5 * dof * float(np.log(max((self._target.labels >= 0).sum(), 2)))

    def infer(self, accepted: tuple[int, ...], weights: Weights, extra: np.ndarray, semiring: Semiring) -> np.ndarray:
        """(N, L) beliefs of the model with ``extra`` (N, L) added to its node scores."""
        batch, _, layout = self._problem(accepted)
        scores = GraphScorer(layout).score(self._flat(weights, layout, accepted), batch)
        potentials = Potentials(scores.node + extra, scores.edge, scores.topology, scores.table)
        if accepted not in self._engines:
            self._engines[accepted] = choose_engine(potentials, n_jobs=self._n_jobs).engine
        return self._engines[accepted].infer(potentials, semiring).node  # type: ignore[attr-defined]

    def additive(self, accepted: tuple[int, ...], weights: Weights) -> Additive:
        """The same model as a sum of weak learners."""
        rows = [0] * len(self._sizes)
        steps = []
        for step, columns in zip(self._steps, self._columns):
            size, first = columns.shape[1], rows[step.kind]
            values = np.zeros((size + 1, self._sizes[step.kind]))
            own = weights.columns[step.kind][first : first + size]  # none where training was interrupted before
            values[1 : 1 + len(own)] = own
            steps.append(replace(step, values=values))
            rows[step.kind] += size
        tables = np.zeros_like(weights.tables)
        tables[list(accepted)] = weights.tables[list(accepted)]
        return Additive(self._schema, self._sizes, weights.bias, tuple(steps), tables)

    # ------------------------------------------------------------------- the problem

    def _minimise(
        self,
        batch: GraphBatch,
        target: Target,
        layout: GraphLayout,
        plan: Plan,
        start: Weights,
        accepted: tuple[int, ...],
        tol: float,
    ) -> Result:
        return fit_graph(
            GraphScorer(layout),
            batch,
            target,
            self._penalty,
            plan,
            start=self._flat(start, layout, accepted),
            tol=tol,
            n_jobs=self._n_jobs,
            rng=self._rng,
        )

    def _problem(self, accepted: tuple[int, ...]) -> tuple[GraphBatch, Target, GraphLayout]:
        schema = self._reduced(accepted)
        topology, relation = self._edges(accepted)
        nodes = topology.n_nodes
        bare = Columns(np.zeros(nodes + 1, np.int64), np.zeros(0, np.int32), 0, None, self._dense())
        batch = GraphBatch(topology, bare, self._batch.kind, relation, (None,) * len(accepted))
        target = Target(topology, max(self._sizes), self._target.labels, self._target.allowed, self._target.weight)
        return batch, target, GraphLayout.full(schema, self._sizes)

    def _edges(self, accepted: tuple[int, ...]) -> tuple[Graphs, np.ndarray]:
        if accepted not in self._made:
            number = np.full(len(self._schema.relations), -1)
            number[list(accepted)] = np.arange(len(accepted))
            of_edge = number[self._batch.relation]
            kept = np.flatnonzero(of_edge >= 0)
            whole = self._batch.topology
            topology = Graphs(whole.offsets, whole.tails[kept], whole.heads[kept])
            self._made[accepted] = topology, of_edge[kept]
        return self._made[accepted]

    def _dense(self) -> np.ndarray | None:
        widths = self._widths()
        if not sum(widths):
            return None
        dense = np.zeros((self._batch.topology.n_nodes, sum(widths)))
        at = np.cumsum([0, *widths])[:-1].tolist()
        for step, columns in zip(self._steps, self._columns):
            block = next(b for b in self._blocks if (b.kind, b.part) == (step.kind, step.part))
            dense[block.rows, at[step.kind] : at[step.kind] + columns.shape[1]] = columns
            at[step.kind] += columns.shape[1]
        return dense

    def _widths(self) -> list[int]:
        widths = [0] * len(self._sizes)
        for step, columns in zip(self._steps, self._columns):
            widths[step.kind] += columns.shape[1]
        return widths

    def _reduced(self, accepted: tuple[int, ...]) -> GraphSchema:
        ends = np.cumsum([0, *self._widths()]).tolist()
        kinds = tuple(NodeKind(kind.name, dense=(ends[k], ends[k + 1])) for k, kind in enumerate(self._schema.kinds))
        return GraphSchema(kinds, tuple(self._schema.relations[r] for r in accepted))

    # ------------------------------------------------------------- weights, flat and not

    def _flat(self, weights: Weights, layout: GraphLayout, accepted: tuple[int, ...]) -> np.ndarray:
        out = np.zeros(layout.n_weights)
        for k, kind in enumerate(layout.schema.kinds):
            out[layout.part[f"{kind.name}/bias"]] = weights.bias[k]
            own = weights.columns[k].reshape(-1)
            start = layout.part[f"{kind.name}/dense"].start
            out[start : start + len(own)] = own  # columns that are new come last and keep 0
        for table, relation in zip(layout.tables, accepted):
            name = self._schema.relations[relation].name
            values = np.zeros(table.n_weights)
            rows, columns = np.nonzero(table.tie >= 0)
            values[table.tie[rows, columns]] = weights.tables[relation][rows, columns]
            out[layout.part[f"{name}/table"]] = values
        return out

    def _weights(self, flat: np.ndarray, layout: GraphLayout, accepted: tuple[int, ...]) -> Weights:
        bias, columns = [], []
        for k, kind in enumerate(layout.schema.kinds):
            bias.append(flat[layout.part[f"{kind.name}/bias"]].copy())
            columns.append(flat[layout.part[f"{kind.name}/dense"]].reshape(-1, self._sizes[k]).copy())
        tables = np.zeros((len(self._schema.relations), max(self._sizes), max(self._sizes)))
        for relation in accepted:
            own = self._schema.relations[relation]
            table = layout.table(flat, own.name)
            tables[relation, : table.shape[0], : table.shape[1]] = table
        return Weights(tuple(bias), tuple(columns), tables)
