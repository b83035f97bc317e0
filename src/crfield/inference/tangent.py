"""Covariance of a chain: exact derivatives of its beliefs with respect to its scores.

The derivative of marginals along a direction of the scores is a covariance under the model (`kernels.tangent`), and
therefore a product with the second derivative of the log-total. It serves Newton's method, which asks for such
products with directions of the weights, and objectives of marginals (expected accuracy), whose gradients are products
with what each label is worth. Cost: one sum-product and one more sweep of the same order.

Marginals of every pair of labels on every edge are written out on the way, E L² numbers; a batch is therefore taken
in parts of whole sequences, so that what is written at one time stays small.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from crfield.core.potentials import Potentials
from crfield.core.topology import Chains
from crfield.errors import InputError, ShapeError
from crfield.inference.labellings import check_scores
from crfield.kernels import chain
from crfield.kernels.tangent import belief_tangent, pair_marginals

AT_ONCE = 2_000_000  # marginals of pairs that are written out at one time: 16 MB
KEPT = 20_000_000  # those that may be kept between products: 160 MB


class ChainCovariance:
    """The covariance of the labels of chains under given scores, as something to multiply with.

    With ``keep`` the marginals are kept from one product to the next where they are not too many.

    >>> scores = Potentials(np.zeros((2, 2)), np.zeros((1, 2, 2)), Chains.from_lengths([2]))
    >>> ChainCovariance(scores).times(np.array([[1.0, 0.0], [0.0, 0.0]]))[0].tolist()
    [[0.25, -0.25], [0.0, 0.0]]
    """

    def __init__(self, potentials: Potentials, *, n_jobs: int = 1, keep: bool = False) -> None:
        topology = potentials.topology
        if not isinstance(topology, Chains):
            raise InputError("derivatives of beliefs are known for chains alone, got graphs.")
        check_scores(potentials)
        self._potentials, self._topology, self._jobs = potentials, topology, n_jobs
        self._keep = keep and topology.n_edges * potentials.n_labels**2 <= KEPT
        self._kept: dict[int, tuple[np.ndarray, np.ndarray]] = {}

    def times(
        self, node: np.ndarray, edge: np.ndarray | None = None, *, weight: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """d/ds of ``weight`` times the marginals of the scores + s · direction, at s = 0.

        The direction is ``node`` (N, L) and ``edge`` in the shape of the edge scores (nothing where None), all
        finite; ``weight`` (B,) has a number for each sequence. The result has the shapes of the scores: where edges
        share a table it holds the sum over them. A sequence in which nothing is possible has derivatives of zero.
        """
        potentials, topology = self._potentials, self._topology
        edge = np.zeros((1, potentials.n_labels, potentials.n_labels)) if edge is None else edge
        fits = edge.shape in (potentials.edge.shape, (1, *potentials.edge.shape[1:]))
        if node.shape != potentials.node.shape or not fits:
            raise ShapeError(
                f"a direction has the shape of the scores, {potentials.node.shape} and {potentials.edge.shape}, got "
                f"{node.shape} and {edge.shape}."
            )
        if not (np.isfinite(node).all() and np.isfinite(edge).all()):
            raise InputError("a direction of the scores must be finite.")
        node_out, edge_out = np.zeros_like(potentials.node), np.zeros_like(potentials.edge)
        tables = potentials.tables
        for sequences, nodes, edges in _parts(topology, potentials.n_labels):
            offsets = topology.offsets[sequences.start : sequences.stop + 1] - nodes.start
            node_out[nodes], found = belief_tangent(
                offsets,
                *self._marginals(offsets, nodes, tables[edges]),
                node[nodes],
                edge if len(edge) == 1 else edge[tables[edges]],
                weight=None if weight is None else weight[sequences],
                each=not potentials.shared,
                n_jobs=self._jobs,
            )
            if potentials.shared:
                edge_out += found
            else:
                np.add.at(edge_out, tables[edges], found)
        return node_out, edge_out

    def _marginals(self, offsets: np.ndarray, nodes: slice, tables: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(N', L) and (E', L, L) of a part."""
        known = self._kept.get(nodes.start)
        if known is not None:
            return known
        node, edge = self._potentials.node[nodes], self._potentials.edge
        hard = np.ones(1, dtype=bool)
        if self._potentials.shared:
            p = chain.sum_product(offsets, node, edge, n_jobs=self._jobs)[1]
            q, hard = pair_marginals(offsets, node, edge[0], p, n_jobs=self._jobs)
        if hard.any():
            edge = edge if self._potentials.shared else edge[tables]
            _, p, q = chain.sum_product(offsets, node, edge, each=True, n_jobs=self._jobs)
        if self._keep and nodes.stop > nodes.start:
            self._kept[nodes.start] = p, q
        return p, q


def chain_tangent(
    potentials: Potentials,
    node: np.ndarray,
    edge: np.ndarray | None = None,
    *,
    weight: np.ndarray | None = None,
    n_jobs: int = 1,
) -> tuple[np.ndarray, np.ndarray]:
    """One product: see `ChainCovariance.times`.

    >>> scores = Potentials(np.zeros((2, 2)), np.zeros((1, 2, 2)), Chains.from_lengths([2]))
    >>> chain_tangent(scores, np.array([[1.0, 0.0], [0.0, 0.0]]), weight=np.array([2.0]))[0].tolist()
    [[0.5, -0.5], [0.0, 0.0]]
    """
    return ChainCovariance(potentials, n_jobs=n_jobs).times(node, edge, weight=weight)


def _parts(topology: Chains, n_labels: int) -> Iterator[tuple[slice, slice, slice]]:
    """Runs of sequences, with their nodes and edges, of few enough pairs of labels; at least one sequence each."""
    most = max(1, AT_ONCE // max(1, n_labels * n_labels))
    first = 0
    while first < topology.n_sequences:
        last = int(np.searchsorted(topology.edge_offsets, topology.edge_offsets[first] + most, side="right")) - 1
        last = min(max(last, first + 1), topology.n_sequences)
        yield (
            slice(first, last),
            slice(int(topology.offsets[first]), int(topology.offsets[last])),
            slice(int(topology.edge_offsets[first]), int(topology.edge_offsets[last])),
        )
        first = last
