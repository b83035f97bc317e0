"""A chain CRF whose scores are sums of trees.

    node_t(c)      = prior(c) + Σ_m values_m[leaf_m(x_t)](c)  (+ start(c) at the first step, + end(c) at the last)
    edge_t(b, c)   = table(b, c) + Σ_m values'_m[leaf'_m(x_t)](b, c)

The second sum is there only if transitions were boosted too; its trees read the columns of the later step, as in
Dietterich, Ashenfelter & Bulatov (2004). Whatever the scores are made of, they are `Potentials`, so every engine and
every report applies.

With a memory b and c are states, pairs of labels (`crfield.training.segment_memory`), and answers are among the paths
of states that labellings have.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from crfield.boosting.weak_learners.candidates import Table
from crfield.boosting.weak_learners.tree_scorer import TreeSum
from crfield.core.potentials import Potentials
from crfield.core.topology import Chains
from crfield.storage.state import State, refuse
from crfield.training.segment_memory import SegmentMemory

PARTS = ("prior", "start", "end", "table")


@dataclass(frozen=True, eq=False)
class TreeField:
    """Trees and tables that score chains of K labels.

    >>> field = TreeField(TreeSum(1, 2), np.zeros(2), np.array([1.0, 0.0]), np.zeros(2), np.eye(2))
    >>> scores = field.potentials(np.zeros((2, 1)), Chains.from_lengths([2]))
    >>> scores.node.tolist(), scores.edge.tolist()
    ([[1.0, 0.0], [0.0, 0.0]], [[[1.0, 0.0], [0.0, 1.0]]])
    """

    trees: TreeSum  # K values at a leaf; K is the number of labels, or of the states of a memory
    prior: np.ndarray  # (K,)
    start: np.ndarray  # (K,)
    end: np.ndarray  # (K,)
    table: np.ndarray  # (K, K)
    edge_trees: TreeSum | None = None  # K² values at a leaf
    memory: SegmentMemory | None = None

    def potentials(self, columns: Table, chains: Chains) -> Potentials:
        """Scores of steps with columns (N, F)."""
        edge = None
        if self.edge_trees is not None and len(self.edge_trees):
            edge = self.edge_trees.score(columns[chains.heads])
        return self.assemble(self.trees.score(columns), edge, chains)

    def assemble(
        self, node: np.ndarray, edge: np.ndarray | None, chains: Chains, *, legal: bool = True
    ) -> Potentials:
        """Potentials from the sums of trees (N, K) and (E, K²) or None; with a memory of ``legal`` paths alone."""
        some = chains.lengths > 0
        node = node + self.prior
        start, tables = self.start, self.table[None]
        if self.memory is not None and legal:
            start, tables = start + self.memory.start, tables + self.memory.edge
        node[chains.offsets[:-1][some]] += start
        node[chains.offsets[1:][some] - 1] += self.end
        if edge is not None:
            tables = tables + edge.reshape(-1, *self.table.shape)
        return Potentials(node, tables, chains)

    def towards(self, other: TreeField, share: float) -> TreeField:
        """The same trees with tables that lie between these and another's.

        >>> none, one = (TreeField(TreeSum(1, 1), *(np.full(1, v),) * 3, np.full((1, 1), v)) for v in (0, 1))
        >>> none.towards(one, 0.25).table.tolist()
        [[0.25]]
        """
        if share == 1.0:
            return other
        mixed = {name: (1 - share) * getattr(self, name) + share * getattr(other, name) for name in PARTS}
        return replace(self, **mixed)

    def state(self) -> State:
        """Tables and trees, as arrays alone."""
        arrays = {name: np.ascontiguousarray(getattr(self, name)) for name in PARTS}
        for prefix, trees in (("trees", self.trees), ("edge_trees", self.edge_trees)):
            if trees is not None:
                arrays |= {f"{prefix}/{name}": array for name, array in trees.state().arrays.items()}
        if self.memory is not None:
            arrays |= {f"memory/{name}": array for name, array in self.memory.arrays().items()}
        return State({}, arrays)

    @classmethod
    def from_state(cls, state: State, *, n_columns: int, n_labels: int) -> TreeField:
        """The field whose `state` this is; ModelFileError where the arrays cannot be one."""

        def trees(prefix: str, n_values: int) -> TreeSum:
            return TreeSum.from_state(State({}, state.under(prefix)), n_columns=n_columns, n_values=n_values)

        kept = state.under("memory")
        memory = SegmentMemory.from_arrays(kept, n_labels) if kept else None
        size = n_labels if memory is None else memory.space.n_states
        prior, start, end = (state.array(name, (size,)) for name in PARTS[:3])
        table = state.array("table", (size, size))
        edge_trees = trees("edge_trees", n_labels * n_labels) if state.under("edge_trees") else None
        if memory is not None and edge_trees is not None:
            refuse("the model file has trees on transitions and a memory, which do not go together")
        return cls(trees("trees", size), prior, start, end, table, edge_trees, memory)
