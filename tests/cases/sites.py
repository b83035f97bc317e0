"""Random graphs for the tests of what visits one site at a time: loops, parallel edges, shared tables, empty ones."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from crfield.core.graphs import Graphs
from crfield.core.potentials import Potentials
from crfield.core.target import Target
from crfield.core.topology import Chains


def random_graphs(rng: np.random.Generator, sizes: list[int], density: float) -> Graphs:
    """Graphs with ``density`` edges a node; where there are several between two nodes, so much the better."""
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    tails, heads = [], []
    for first, size in zip(offsets[:-1], sizes):
        count = round(density * size) if size > 1 else 0
        tail = rng.integers(0, max(1, size), count)
        tails.append(first + tail)
        heads.append(first + (tail + rng.integers(1, max(2, size), count)) % max(1, size))
    return Graphs(offsets, np.concatenate([[], *tails]).astype(int), np.concatenate([[], *heads]).astype(int))


def random_field(
    rng: np.random.Generator,
    sizes: list[int],
    labels: int,
    *,
    density: float = 1.3,
    tables: int = 2,
    scale: float = 1.0,
    forbidden: float = 0.0,
) -> Potentials:
    """Normal scores; edges times ``scale``; each score −∞ with the probability ``forbidden``."""
    graphs = random_graphs(rng, sizes, density)
    node = rng.standard_normal((graphs.n_nodes, labels))
    edge = scale * rng.standard_normal((tables, labels, labels))
    for scores in (node, edge):
        scores[rng.random(scores.shape) < forbidden] = -np.inf
    return Potentials(node, edge, graphs, rng.integers(0, tables, graphs.n_edges))


@st.composite
def fields(draw: st.DrawFn, scales: tuple[float, ...] = (0.5, 2.0)) -> Potentials:
    """Small enough to enumerate: up to three graphs, some empty, one to four labels, a fifth of them chains."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    labels = draw(st.integers(1, 4))
    sizes = draw(st.lists(st.integers(0, 4 if labels > 2 else 6), max_size=3))
    scale, forbidden = draw(st.sampled_from(scales)), draw(st.sampled_from([0.0, 0.0, 0.2, 0.5]))
    if draw(st.integers(0, 4)) == 0:
        chains = Chains.from_lengths(sizes)
        edge = scale * rng.standard_normal((draw(st.sampled_from([1, chains.n_edges])), labels, labels))
        edge[rng.random(edge.shape) < forbidden] = -np.inf
        return Potentials(rng.standard_normal((chains.n_nodes, labels)), edge, chains)
    density, tables = draw(st.sampled_from([0.0, 1.0, 2.0])), draw(st.integers(1, 5))
    return random_field(rng, sizes, labels, density=density, tables=tables, scale=scale, forbidden=forbidden)


def local_scores(potentials: Potentials, n: int, y: np.ndarray) -> np.ndarray:
    """(L,) score of every label of node n while the others keep theirs, edge by edge."""
    out = potentials.node[n].copy()
    topology = potentials.topology
    for e, k in enumerate(potentials.tables.tolist()):
        if topology.tails[e] == n:
            out += potentials.edge[k][:, y[topology.heads[e]]]
        if topology.heads[e] == n:
            out += potentials.edge[k][y[topology.tails[e]]]
    return out


def graph_target(rng: np.random.Generator, potentials: Potentials, *, partial: float, weighted: bool) -> Target:
    """Random labels, a share ``partial`` of them unknown but for a random set that is allowed."""
    topology, labels = potentials.topology, potentials.n_labels
    codes = rng.integers(0, labels, topology.n_nodes).astype(np.int32)
    allowed = None
    if partial:
        allowed = rng.random((topology.n_nodes, labels)) < 0.5
        allowed[np.arange(topology.n_nodes), codes] = True
        codes[rng.random(topology.n_nodes) < partial] = -1
    weight = rng.uniform(0.2, 3.0, topology.n_sequences) if weighted else None
    return Target(topology, labels, codes, allowed, weight)
