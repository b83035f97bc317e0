"""Visiting one site at a time, in Python: the body to read. `kernels.sites` states the contract of both.

A site depends on those visited just before it, so these are loops over nodes in plain floats; only random numbers
and pseudo-likelihood, where the neighbours never move, are whole arrays. Local scores are added up in the order of
the edges, as in the compiled body, and both use the C library's exponential: so the labels drawn are the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from math import exp, inf, log

import numpy as np

GAMMA = 0x9E3779B97F4A7C15
WORD = (1 << 64) - 1


def _mix(z: np.ndarray) -> np.ndarray:
    """The finaliser of SplitMix64 on uint64."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def _word(x: int) -> int:
    return int(_mix(np.array([x & WORD], np.uint64))[0])


def uniforms(seed: int, chain: int, first: int, count: int) -> np.ndarray:
    """Uniform numbers in [0, 1) of the counters ``first`` … of a chain."""
    key = _word(_word(seed + GAMMA) + GAMMA * (chain + 1))
    counters = np.uint64(first + 1) + np.arange(count, dtype=np.uint64)
    bits = _mix(np.uint64(key) + counters * np.uint64(GAMMA))
    return (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53


class _Field:
    """Scores and neighbours as nested lists, which plain loops read fastest."""

    def __init__(
        self, indptr: np.ndarray, other: np.ndarray, slot: np.ndarray, node: np.ndarray, edge: np.ndarray
    ) -> None:
        self.node = node.tolist()
        # own label last: rows[slot][label at the other end][own label]
        self.rows = np.stack([edge, edge.transpose(0, 2, 1)], axis=1).reshape(-1, *edge.shape[1:]).tolist()
        starts, others, slots = indptr.tolist(), other.tolist(), slot.tolist()
        self.places = [list(zip(others[a:b], slots[a:b])) for a, b in pairwise(starts)]

    def pull(self, n: int, y: list[int]) -> list[float]:
        """Σ_e edge_e(·, y_other) at node n."""
        out = [0.0] * len(self.node[n])
        for other, slot in self.places[n]:
            row = self.rows[slot][y[other]]
            out = [a + b for a, b in zip(out, row)]
        return out

    def parts(self, y: list[int], nodes: range) -> tuple[float, float]:
        """Node and edge score of a labelling of one graph."""
        local = sum(self.node[n][y[n]] for n in nodes)
        joint = sum(self.rows[slot][y[m]][y[n]] for n in nodes for m, slot in self.places[n] if slot & 1)
        return local, joint


def _graphs(offsets: np.ndarray) -> Iterator[tuple[int, range]]:
    for b, (first, last) in enumerate(pairwise(offsets.tolist())):
        yield b, range(first, last)


def gibbs(
    offsets: np.ndarray,
    indptr: np.ndarray,
    other: np.ndarray,
    slot: np.ndarray,
    node: np.ndarray,
    edge: np.ndarray,
    node_scale: np.ndarray,
    edge_scale: np.ndarray,
    burn_in: int,
    n_batches: int,
    seed: int,
    labels: np.ndarray,
    best: np.ndarray,
    best_score: np.ndarray,
    trace: np.ndarray,
    work: np.ndarray,
    conditional: np.ndarray,
    drawn: np.ndarray,
    batch_square: np.ndarray,
    pairs: np.ndarray,
    n_jobs: int,
) -> None:
    """Sweeps of all chains, as `kernels.sites.gibbs` says."""
    field = _Field(indptr, other, slot, node, edge)
    n_nodes, sweeps, kept = len(node), len(node_scale), len(node_scale) - burn_in
    length = max(1, kept // n_batches)
    for c in range(len(labels)):
        y = labels[c].tolist()
        for b, nodes in _graphs(offsets):
            local, joint = field.parts(y, nodes)
            best_score[c, b] = local + joint
            if not local + joint > -inf:
                continue
            mine = slice(nodes.start, nodes.stop)
            batch = np.zeros((len(nodes), node.shape[1]))
            for s in range(sweeps):
                a, d, before = float(node_scale[s]), float(edge_scale[s]), joint
                u = uniforms(seed, c, s * n_nodes + nodes.start, len(nodes)).tolist()
                for k, n in enumerate(nodes):
                    own, pull, old = field.node[n], field.pull(n, y), y[n]
                    p = [a * x + d * z for x, z in zip(own, pull)]
                    top = max(p)
                    p = [exp(x - top) for x in p]
                    total = 0.0
                    for x in p:
                        total += x
                    new = _pick(p, u[k] * total)
                    if new != old:
                        y[n] = new
                        local += own[new] - own[old]
                        joint += pull[new] - pull[old]
                    if s >= burn_in:
                        p = [x / total for x in p]
                        half = 2 * (s - burn_in) // kept
                        batch[k] += p
                        conditional[c, half, n] += p
                        drawn[c, half, n, new] += 1
                        for m, at in field.places[n]:
                            table = pairs[c, at >> 1]
                            (table[:, y[m]] if at & 1 else table[y[m]])[:] += 0.5 * np.array(p)
                trace[c, s] += local + joint
                if s:
                    work[c, b] += (edge_scale[s] - edge_scale[s - 1]) * np.array([before, joint])
                if local + joint > best_score[c, b]:
                    best_score[c, b] = local + joint
                    best[c, mine] = y[mine]
                if s >= burn_in and (s - burn_in + 1) % length == 0:
                    batch_square[c, mine] += (batch / length) ** 2
                    batch[:] = 0
        labels[c] = y


def _pick(weights: list[float], mark: float) -> int:
    """The first label at which the running sum of the weights passes the mark; never one without weight."""
    reached, last = 0.0, 0
    for label, weight in enumerate(weights):
        if weight > 0:
            reached += weight
            last = label
            if reached > mark:
                break
    return last


def icm(
    offsets: np.ndarray,
    indptr: np.ndarray,
    other: np.ndarray,
    slot: np.ndarray,
    node: np.ndarray,
    edge: np.ndarray,
    labels: np.ndarray,
    max_sweeps: int,
    sweeps: np.ndarray,
    settled: np.ndarray,
    n_jobs: int,
) -> None:
    """Climb to a labelling that no change of one label improves."""
    field = _Field(indptr, other, slot, node, edge)
    for c in range(len(labels)):
        y = labels[c].tolist()
        for b, nodes in _graphs(offsets):
            while sweeps[c, b] < max_sweeps and not settled[c, b]:
                moved = False
                for n in nodes:
                    scores = [x + z for x, z in zip(field.node[n], field.pull(n, y))]
                    new = max(range(len(scores)), key=scores.__getitem__)
                    if scores[new] > scores[y[n]]:
                        y[n], moved = new, True
                sweeps[c, b] += 1
                settled[c, b] = not moved
        labels[c] = y


def mean_field(
    offsets: np.ndarray,
    indptr: np.ndarray,
    other: np.ndarray,
    slot: np.ndarray,
    node: np.ndarray,
    edge: np.ndarray,
    beliefs: np.ndarray,
    max_sweeps: int,
    tol: float,
    bound: np.ndarray,
    sweeps: np.ndarray,
    settled: np.ndarray,
    n_jobs: int,
) -> None:
    """Coordinate ascent of every start, graph by graph."""
    field = _Field(indptr, other, slot, node, edge)
    for r in range(len(beliefs)):
        q = beliefs[r].tolist()
        for b, nodes in _graphs(offsets):
            while sweeps[r, b] < max_sweeps and not settled[r, b]:
                moved = 0.0
                for n in nodes:
                    fresh = _softmax([x + z for x, z in zip(field.node[n], _expected(field, n, q))])
                    if fresh:
                        moved = max(moved, *(abs(x - z) for x, z in zip(fresh, q[n])))
                        q[n] = fresh
                sweeps[r, b] += 1
                settled[r, b] = moved <= tol
            bound[r, b] = _bound(field, nodes, q)
        beliefs[r] = np.array(q).reshape(node.shape)


def _expected(field: _Field, n: int, q: list[list[float]], *, tails_only: bool = False) -> list[float]:
    """Σ_e E_q[edge_e(·, y_other)] at node n, where a label without weight forbids nothing."""
    out = [0.0] * len(q[n])
    for m, slot in field.places[n]:
        if tails_only and not slot & 1:
            continue
        for weight, row in zip(q[m], field.rows[slot]):
            if weight > 0:
                out = [x + weight * z for x, z in zip(out, row)]
    return out


def _softmax(scores: list[float]) -> list[float]:
    """Probabilities; nothing where every score is −∞."""
    top = max(scores)
    if top == -inf:
        return []
    p = [exp(x - top) for x in scores]
    total = 0.0
    for x in p:
        total += x
    return [x / total for x in p]


def _bound(field: _Field, nodes: range, q: list[list[float]]) -> float:
    total = 0.0
    for n in nodes:
        for p, score, pull in zip(q[n], field.node[n], _expected(field, n, q, tails_only=True)):
            if p > 0:
                total += p * (score + pull - log(p))
    return total


def pseudo_likelihood(
    node: np.ndarray,
    edge: np.ndarray,
    tails: np.ndarray,
    heads: np.ndarray,
    tables: np.ndarray,
    labels: np.ndarray,
    allowed: np.ndarray | None,
    weight: np.ndarray | None,
    node_gradient: np.ndarray,
    edge_gradient: np.ndarray,
) -> float:
    """Local scores beside gold neighbours, their softmax, and the way back."""
    weight = np.ones(len(node)) if weight is None else weight
    for ends, limit in ((tails, len(node)), (heads, len(node)), (tables, len(edge))):
        if len(ends) and not 0 <= ends.min() <= ends.max() < limit:
            raise ValueError("an edge names a node or a table that there is not")
    if allowed is None and ((labels < 0) & (weight != 0)).any():
        raise ValueError("unknown labels (-1) need the table of what is allowed")
    ways = []  # node, its edge's table read with the own label last, label at the other end
    for own, far, rows, out in (
        (tails, heads, edge.transpose(0, 2, 1), edge_gradient.transpose(0, 2, 1)),
        (heads, tails, edge, edge_gradient),
    ):
        counted = weight[own] != 0
        if (labels[far][counted] < 0).any():
            raise ValueError("a node that counts is next to one whose label is unknown")
        ways.append((own[counted], tables[counted], labels[far][counted], rows, out))
    scores = node.copy()
    for own, table, label, rows, _ in ways:
        np.add.at(scores, own, rows[table, label])
    gold = np.zeros(node.shape, bool) if allowed is None else allowed.astype(bool)
    known = np.flatnonzero(labels >= 0)
    gold[known] = False
    gold[known, labels[known]] = True
    free, free_p = _log_sum(scores)
    clamped, clamped_p = _log_sum(np.where(gold, scores, -np.inf))
    counts, possible = weight != 0, clamped > -np.inf
    node_gradient[:] = np.where((counts & possible)[:, None], weight[:, None] * (free_p - clamped_p), 0.0)
    for own, table, label, _, out in ways:
        np.add.at(out, (table, label), node_gradient[own])
    with np.errstate(invalid="ignore"):
        gap = np.where(possible, np.maximum(free - clamped, 0.0), np.inf)
    return float((weight[counts] * gap[counts]).sum())


def _log_sum(scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Log-sum-exp (N,) and softmax (N, L) of every row; zeros where all is forbidden."""
    top = scores.max(axis=1)
    possible = top > -np.inf
    p = np.exp(scores - np.where(possible, top, 0.0)[:, None])
    total = np.where(possible, p.sum(axis=1), 1.0)
    with np.errstate(divide="ignore"):
        return top + np.log(total), p / total[:, None]
