"""Virtual evidence: what every node hears of its neighbours, kept from round to round.

A round of boosting changes the model a little, so its messages need no new start: one synchronous sweep of belief
propagation, from where the last round left them, is all that a round pays for (Liao, Choudhury, Fox & Kautz 2007).
`VirtualEvidence` holds the state of that: the local scores F, the tables of the relations, the messages, and the
totals F + Σ log μ. It changes in place; nothing of it outlives training.

The paper sums over labels. Where the model will be asked for the best labelling as a whole, messages may maximise
instead, and the responses are then those of the max-marginals (``maximise``).

Cost: O(E L²) a sweep, in the kernels; adding a weak learner costs O(N).
"""

from __future__ import annotations

import numpy as np

from crfield.boosting.couplings import MOST, Group, groups_of
from crfield.data.graph_batch import GraphBatch, GraphSchema
from crfield.kernels import virtual
from crfield.kernels.virtual import Sums


class VirtualEvidence:
    """Messages between the nodes of a batch while a model grows.

    >>> from crfield.data.graph import Edges, Graph
    >>> from crfield.features.graph_encoder import GraphEncoder
    >>> encoder = GraphEncoder()
    >>> batch = encoder.fit([Graph(2, {"near": Edges([(0, 1)], symmetric=True)})])
    >>> heard = VirtualEvidence(batch, encoder.schema, np.log([[3.0, 1.0], [1.0, 1.0]]))
    >>> heard.add_table(0, np.log([[4.0, 1.0], [1.0, 4.0]]))
    >>> heard.advance().round(3).tolist()
    [[0.75, 0.25], [0.65, 0.35]]
    """

    def __init__(
        self,
        batch: GraphBatch,
        schema: GraphSchema,
        local: np.ndarray,
        *,
        relations: tuple[int, ...] | None = None,
        maximise: bool = False,
        n_jobs: int = 1,
    ) -> None:
        self.groups: list[Group] = groups_of(schema, relations)
        n_labels = local.shape[1]
        to_head, to_tail = np.full(len(schema.relations), -1), np.full(len(schema.relations), -1)
        for number, group in enumerate(self.groups):
            if group.to_head:
                to_head[group.relation] = number
            if not group.to_head or group.symmetric:
                to_tail[group.relation] = number
        heard = np.flatnonzero(to_head[batch.relation] >= 0) if len(to_head) else np.zeros(0, np.int64)
        kept = batch.relation[heard]
        topology = batch.topology
        self.wiring = virtual.wire(
            topology.n_nodes, topology.tails[heard], topology.heads[heard], to_head[kept], to_tail[kept]
        )
        self.local = np.array(local, np.float64)  # (N, L)
        self.total = self.local.copy()
        self.messages = np.full((self.wiring.n_messages, n_labels), 1.0 / n_labels)
        self.evidence = self.messages
        self.tables = np.zeros((len(self.groups), n_labels, n_labels))
        self.maximise, self.n_jobs = maximise, n_jobs

    def advance(self) -> np.ndarray:
        """One synchronous sweep; beliefs (N, L)."""
        sweep = virtual.advance(
            self.wiring,
            self.local,
            self.total,
            self.messages,
            self.tables,
            maximise=self.maximise,
            n_jobs=self.n_jobs,
        )
        self.evidence, self.messages, self.total = sweep.evidence, sweep.messages, sweep.total
        return sweep.beliefs

    def couple(self, weight: np.ndarray, response: np.ndarray, *, exact: bool) -> Sums:
        """Sums of the regression of responses on the neighbours that the last sweep heard of."""
        return virtual.couple(
            self.wiring, self.evidence, weight, response, len(self.groups), squares=exact, n_jobs=self.n_jobs
        )

    def add_local(self, rows: np.ndarray | slice, values: np.ndarray) -> None:
        """Add scores of the first K labels to some nodes."""
        labels = values.shape[1]
        self.local[rows, :labels] += values
        self.total[rows, :labels] += values

    def add_table(self, number: int, step: np.ndarray) -> None:
        """Add to the table of a group; a directed relation's other end reads the same table the other way."""
        self.tables[number] = np.clip(self.tables[number] + step, -MOST, MOST)
        group = self.groups[number]
        if not group.symmetric:
            for mirror, twin in enumerate(self.groups):
                if twin.relation == group.relation and twin.to_head != group.to_head:
                    self.tables[mirror] = self.tables[number].T
