"""Virtual evidence: what every node hears of its neighbours, kept from round to round.

A round of boosting changes the model a little, so its messages need no new start: one synchronous sweep of belief
propagation, from where the last round left them, is all that a round pays for (Liao, Choudhury, Fox & Kautz 2007).
`VirtualEvidence` holds the state of that: exp of the local scores, the tables of the relations, the messages and the
beliefs. It changes in place; nothing of it outlives training.

The paper sums over labels. Where the model will be asked for the best labelling as a whole, messages may maximise
instead, and the responses are then those of the max-marginals (``maximise``).

Cost: O(E L²) a sweep, in the kernel, which finds the responses and their regression on the neighbours on the way;
adding a weak learner costs O(N).
"""

from __future__ import annotations

import numpy as np

from crfield.boosting.virtual_evidence.couplings import MOST, Group, Sums, groups_of
from crfield.data.graphs.batch import GraphBatch, GraphSchema
from crfield.kernels import virtual
from crfield.kernels.virtual import Heard

SAFE = 300.0  # local scores may have grown by so much before their exp is brought back into range


class VirtualEvidence:
    """Messages between the nodes of a batch while a model grows.

    >>> from crfield.data.graphs.graph import Edges, Graph
    >>> from crfield.features.graphs.encoder import GraphEncoder
    >>> encoder = GraphEncoder()
    >>> batch = encoder.fit([Graph(2, {"near": Edges([(0, 1)], symmetric=True)})])
    >>> local = np.array([[0.75, 0.25], [0.5, 0.5]])
    >>> state = VirtualEvidence(batch, encoder.schema, local, labels=np.array([0, 1]), weight=np.ones(2))
    >>> state.add_table(0, np.log([[4.0, 1.0], [1.0, 4.0]]))
    >>> state.listen().beliefs.round(3).tolist()
    [[0.75, 0.25], [0.65, 0.35]]
    """

    def __init__(
        self,
        batch: GraphBatch,
        schema: GraphSchema,
        local: np.ndarray,
        *,
        labels: np.ndarray,
        weight: np.ndarray,
        held: np.ndarray | None = None,
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
        self.local = np.array(local, np.float64)  # (N, L) exp of the local scores, each row up to a factor
        self.beliefs = self.local.copy()
        self.messages = np.full((self.wiring.n_messages, n_labels), 1.0 / n_labels)
        self.tables = np.zeros((len(self.groups), n_labels, n_labels))
        self._labels, self._weight, self._held = labels, weight, held
        self._maximise, self._n_jobs = maximise, n_jobs
        self._grown = 0.0
        self._last: Heard | None = None
        self._spare: Heard | None = None  # the answer before the last, whose memory is free

    def listen(self, *, limit: float = 4.0, exact: bool = False) -> Heard:
        """One synchronous sweep, and the responses and sums that come of it; squares of neighbours if ``exact``.

        The answer is good until the next but one.
        """
        heard = virtual.listen(
            self.wiring,
            self.local,
            self.beliefs,
            self.messages,
            self.tables,
            self._labels,
            self._weight,
            held=self._held,
            limit=limit,
            maximise=self._maximise,
            squares=exact,
            out=self._spare,
            n_jobs=self._n_jobs,
        )
        self.messages, self.beliefs = heard.messages, heard.beliefs
        self._last, self._spare = heard, self._last
        return heard

    def add_local(self, rows: np.ndarray | slice, leaves: np.ndarray, values: np.ndarray) -> None:
        """Add the scores of leaves, ``values`` (leaves, K), to the first K labels of some nodes."""
        factors = np.ones((len(values), self.local.shape[1]))
        factors[:, : values.shape[1]] = np.exp(values)
        if isinstance(rows, slice):
            virtual.scale(self.local, self.beliefs, leaves, factors)
        else:
            self.local[rows] *= factors[leaves]
            self.beliefs[rows] *= factors[leaves]
        self._grown += float(np.abs(values).max(initial=0.0))
        if self._grown > SAFE:
            self.local /= self.local.max(axis=1, keepdims=True)
            self._grown = 0.0

    def add_table(self, number: int, step: np.ndarray) -> None:
        """Add to the table of a group; a directed relation's other end reads the same table the other way."""
        self.tables[number] = np.clip(self.tables[number] + step, -MOST, MOST)
        group = self.groups[number]
        if not group.symmetric:
            for mirror, twin in enumerate(self.groups):
                if twin.relation == group.relation and twin.to_head != group.to_head:
                    self.tables[mirror] = self.tables[number].T


def sums_of(heard: Heard) -> Sums:
    """The part of what was heard that couplings are fitted to."""
    return Sums(heard.moment, heard.mass, heard.square)
