"""Asking the chain kernels, and what any answer must satisfy."""

from __future__ import annotations

import numpy as np

from crfield.core.potentials import Potentials
from crfield.kernels import chain
from tests.cases.chains import assert_totals

Answer = tuple[np.ndarray, np.ndarray, np.ndarray]


def sums(potentials: Potentials, *, each: bool = False, n_jobs: int = 1) -> Answer:
    return chain.sum_product(potentials.topology.offsets, potentials.node, potentials.edge, each=each, n_jobs=n_jobs)


def best(potentials: Potentials, n_jobs: int = 1) -> tuple[np.ndarray, np.ndarray]:
    return chain.max_product(potentials.topology.offsets, potentials.node, potentials.edge, n_jobs=n_jobs)


def unshared(potentials: Potentials) -> Potentials:
    """The same scores with a table for every edge."""
    chains = potentials.topology
    shape = (chains.n_edges, *potentials.edge.shape[1:])
    return Potentials(potentials.node, np.broadcast_to(potentials.edge, shape), chains)


def assert_consistent(potentials: Potentials, answer: Answer, atol: float = 1e-12) -> None:
    """Marginals are distributions that agree with each other; impossible sequences have none."""
    chains = potentials.topology
    total, node, edge = answer
    possible = np.isfinite(total)
    mass = possible[chains.sequence_of_node].astype(float)
    assert (node >= 0).all()
    assert (edge >= 0).all()
    np.testing.assert_allclose(node.sum(axis=1), mass, rtol=0, atol=atol)
    if len(edge) == chains.n_edges:
        np.testing.assert_allclose(edge.sum(axis=1), node[chains.heads], rtol=0, atol=atol)
        np.testing.assert_allclose(edge.sum(axis=2), node[chains.heads - 1], rtol=0, atol=atol)
    else:
        many = max(1, chains.n_edges)
        np.testing.assert_allclose(edge[0].sum(axis=0), node[chains.heads].sum(axis=0), rtol=0, atol=many * atol)
        np.testing.assert_allclose(edge[0].sum(axis=1), node[chains.heads - 1].sum(axis=0), rtol=0, atol=many * atol)


def assert_same(a: Answer, b: Answer, potentials: Potentials) -> None:
    """Two bodies: totals and marginals to 1e-12, summed edge marginals to 1e-10 relative."""
    assert_totals(a[0], b[0], potentials)
    np.testing.assert_allclose(a[1], b[1], rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(a[2], b[2], rtol=1e-10, atol=1e-13)
