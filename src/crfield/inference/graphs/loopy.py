"""Loopy belief propagation: the sums of a tree, asked of any graph.

Neighbours tell each other what they think of each other's labels until nobody changes his mind. On a forest that is
exact; with loops a message comes back to where it started, is counted again, and the answer is an estimate: beliefs
that agree on every edge, and the Bethe total (Yedidia, Freeman & Weiss 2005), whose gradient they are where messages
have settled. They need not settle. `LoopyEngine` says so in ``converged``, and what comes out then is no stationary
point of anything.

Edges that join the same two nodes are added up first: as two edges they would be a loop, and the graph of two nodes
no tree. Damping mixes logs, not probabilities: a forbidden label is then forbidden at once, whereas an average of
probabilities would let it leak back for many sweeps. Graphs without a loop are not damped.

Cost: O(E L²) a sweep. ``"sweeps"`` (the default) needs the fewest of them and runs graph by graph; ``"synchronous"``
divides one large graph over threads; ``"residual"`` (Elidan, McGraw & Koller 2006) settles some graphs on which the
other two go round in circles. Under MAX the labelling is read off the messages node by node, each given the labels
before it (`crfield.kernels.graph.decode`).
"""

from __future__ import annotations

from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np

from crfield.core.beliefs import Beliefs
from crfield.core.graphs import Graphs
from crfield.core.potentials import Potentials
from crfield.core.semiring import Semiring
from crfield.core.topology import Chains
from crfield.inference.labellings import check_scores, one_hot, path_scores
from crfield.kernels import graph
from crfield.kernels.graph import Propagation

_links: WeakKeyDictionary[Graphs, Links] = WeakKeyDictionary()


@dataclass(frozen=True)
class LoopyEngine:
    """Belief propagation: exact on forests, an estimate elsewhere.

    ``schedule``: "sweeps", "synchronous" or "residual". Messages have settled when none changes by more than ``tol``
    (in logs); graphs with loops mix ``damping`` of the old message into the new.

    >>> import numpy as np
    >>> square = Graphs(np.array([0, 4]), np.array([0, 1, 2, 0]), np.array([1, 2, 3, 3]))
    >>> scores = Potentials(np.array([[1.0, 0.0], [0, 0], [0, 0], [0, 0]]), np.eye(2)[None], square)
    >>> beliefs = LoopyEngine().infer(scores, Semiring.LOG)
    >>> beliefs.exact, beliefs.converged, beliefs.bound, beliefs.node[2].round(3).tolist()
    (False, True, 'estimate', [0.601, 0.399])
    """

    schedule: str = "sweeps"
    damping: float = 0.2
    max_sweeps: int = 500
    tol: float = 1e-8
    n_jobs: int = 1

    def infer(self, potentials: Potentials, semiring: Semiring) -> Beliefs:
        """Bethe total of each graph and its beliefs, or under MAX a labelling and its score."""
        return self.run(potentials, semiring)[0]

    def run(
        self, potentials: Potentials, semiring: Semiring, messages: np.ndarray | None = None
    ) -> tuple[Beliefs, np.ndarray]:
        """Beliefs and the messages they come from, with which a next run on the same graphs may start.

        There are two messages (to the head, to the tail) for every pair of neighbours: (links, 2, L), where the links
        are the edges in their order, parallel ones counted where the first of them stands.

        >>> import numpy as np
        >>> ring = Graphs(np.array([0, 3]), np.array([0, 1, 2]), np.array([1, 2, 0]))
        >>> scores = Potentials(np.array([[1.0, 0.0], [0, 0], [0, 0]]), np.eye(2)[None], ring)
        >>> first, messages = LoopyEngine().run(scores, Semiring.LOG)
        >>> again, _ = LoopyEngine().run(scores, Semiring.LOG, messages)
        >>> first.sweeps > again.sweeps, messages.shape
        (True, (3, 2, 2))
        """
        check_scores(potentials)
        links = links_of(potentials.topology)
        done = propagated(
            potentials,
            links,
            semiring,
            None,
            schedule=self.schedule,
            damping=self.damping,
            max_sweeps=self.max_sweeps,
            tol=self.tol,
            messages=messages,
            n_jobs=self.n_jobs,
        )
        settled = bool((done.residual <= self.tol).all())
        exact = settled and bool(links.forest.all())
        sweeps = int(done.sweeps.max(initial=0))
        if semiring is Semiring.MAX:
            total, node, edge = labelled(potentials, links, done, None, self.n_jobs)
            return Beliefs(total, node, edge, exact, settled, sweeps, "exact" if exact else "lower"), done.messages
        edge = links.spread(potentials, done.edge)
        beliefs = Beliefs(done.total, done.node, edge, exact, settled, sweeps, "exact" if exact else "estimate")
        return beliefs, done.messages


# ------------------------------------------------------------------------------------------------------ links


@dataclass(frozen=True, eq=False)
class Links:
    """A topology whose parallel edges are one: pairs of neighbours, each where its first edge stands.

    >>> import numpy as np
    >>> links = links_of(Graphs(np.array([0, 3]), np.array([0, 1, 1]), np.array([1, 0, 2])))
    >>> links.tails.tolist(), links.link.tolist(), links.flipped.tolist(), links.forest.tolist()
    ([0, 1], [0, 0, 1], [False, True, False], [True])
    """

    topology: Chains | Graphs
    tails: np.ndarray  # (links,)
    heads: np.ndarray  # (links,)
    link: np.ndarray  # (E,) the link of each edge
    flipped: np.ndarray  # (E,) bool: the edge runs against its link
    forest: np.ndarray  # (B,) bool

    @property
    def simple(self) -> bool:
        """Whether no two edges are parallel."""
        return len(self.tails) == len(self.link)

    def tables(self, potentials: Potentials) -> tuple[np.ndarray, np.ndarray]:
        """Table of each link, and the tables (T', L, L): those of the edges, then one for each link of several."""
        if self.simple:
            return potentials.tables, potentials.edge
        tables = np.empty(len(self.tails), np.int64)
        tables[self.link] = potentials.tables
        several = np.flatnonzero(np.bincount(self.link) > 1)
        # An only edge always runs with its link.
        tables[several] = len(potentials.edge) + np.arange(len(several))
        of_link = np.zeros((len(self.tails), *potentials.edge.shape[1:]))
        np.add.at(of_link, self.link, self._oriented(potentials.edge[potentials.tables]))
        return tables, np.concatenate([potentials.edge, of_link[several]])

    def spread(self, potentials: Potentials, beliefs: np.ndarray) -> np.ndarray:
        """(T, L, L) beliefs of the edges' tables from those (T', L, L) of `tables`."""
        if self.simple:
            return beliefs
        edge = beliefs[: len(potentials.edge)].copy()
        several = np.bincount(self.link) > 1
        rank = np.cumsum(several) - 1
        parallel = several[self.link]
        shared = beliefs[len(edge) :][rank[self.link[parallel]]]
        np.add.at(edge, potentials.tables[parallel], self._oriented(shared, self.flipped[parallel]))
        return edge

    def _oriented(self, tables: np.ndarray, flipped: np.ndarray | None = None) -> np.ndarray:
        flipped = self.flipped if flipped is None else flipped
        return np.where(flipped[:, None, None], np.swapaxes(tables, 1, 2), tables)


def links_of(topology: Chains | Graphs) -> Links:
    """The links of a topology; found once and kept as long as it lives."""
    if isinstance(topology, Chains):
        edges = np.arange(topology.n_edges)
        straight, forest = np.zeros(len(edges), bool), np.ones(topology.n_sequences, bool)
        return Links(topology, topology.tails, topology.heads, edges, straight, forest)
    known = _links.get(topology)
    if known is None:
        known = _links[topology] = _find_links(topology)
    return known


def _find_links(topology: Graphs) -> Links:
    low, high = np.minimum(topology.tails, topology.heads), np.maximum(topology.tails, topology.heads)
    _, first, link = np.unique(low * max(1, topology.n_nodes) + high, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    link, first = rank[link.reshape(-1)], first[order]
    tails, heads = topology.tails[first], topology.heads[first]
    # Not the topology itself: a value that holds its key would keep it in the dictionary for ever.
    twin = Graphs(topology.offsets, topology.tails, topology.heads)
    return Links(twin, tails, heads, link, topology.tails != tails[link], topology.forest)


# ---------------------------------------------------------------------------------------------------- answers


def propagated(
    potentials: Potentials,
    links: Links,
    semiring: Semiring,
    rho: np.ndarray | None,
    *,
    schedule: str,
    damping: float,
    max_sweeps: int,
    tol: float,
    messages: np.ndarray | None,
    n_jobs: int,
) -> Propagation:
    """Belief propagation over the links, damped where there are loops."""
    tables, edge = links.tables(potentials)
    return graph.propagate(
        potentials.topology.offsets,
        links.tails,
        links.heads,
        tables,
        potentials.node,
        edge,
        semiring=semiring.value,
        rho=rho,
        schedule=schedule,
        damping=np.where(links.forest, 0.0, damping),
        max_sweeps=max_sweeps,
        tol=tol,
        messages=messages,
        n_jobs=n_jobs,
    )


def labelled(
    potentials: Potentials, links: Links, done: Propagation, rho: np.ndarray | None, n_jobs: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Score (B,) of the labelling that max messages lead to, and the labelling as zeros and ones."""
    tables, edge = links.tables(potentials)
    labels = graph.decode(
        potentials.topology.offsets,
        links.tails,
        links.heads,
        tables,
        potentials.node,
        edge,
        done.messages,
        rho=rho,
        n_jobs=n_jobs,
    )
    total = path_scores(potentials, labels)
    return total, *one_hot(potentials, labels, possible=~np.isneginf(total))
