"""All segmentations of small sequences, one by one: what the segment kernels must agree with."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np

from crfield.core.segments import SegmentPotentials
from crfield.core.topology import Chains

Segment = tuple[int, int, int]  # first step, step after the last, label


def segmentations(steps: int, most: int, labels: int) -> Iterator[tuple[Segment, ...]]:
    """Every way to cut and to label a sequence."""

    def cuts(begin: int) -> Iterator[list[tuple[int, int]]]:
        if begin == steps:
            yield []
        for stop in range(begin + 1, min(begin + most, steps) + 1):
            for rest in cuts(stop):
                yield [(begin, stop), *rest]

    for pieces in cuts(0):
        for names in product(range(labels), repeat=len(pieces)):
            yield tuple((a, b, j) for (a, b), j in zip(pieces, names, strict=True))


def score_of(potentials: SegmentPotentials, sequence: int, cut: tuple[Segment, ...]) -> float:
    chains = potentials.topology
    first = int(chains.offsets[sequence])
    total = 0.0
    for k, (a, b, j) in enumerate(cut):
        total += potentials.segment[first + b - 1, b - a - 1, j]
        if k:
            table = 0 if potentials.shared else int(chains.edge_offsets[sequence]) + a - 1
            total += potentials.edge[table, cut[k - 1][2], j]
    return float(total)


def enumerated(potentials: SegmentPotentials) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Totals, segment and edge marginals (N, D, L) and (1 | E, L, L), and best scores."""
    chains = potentials.topology
    total, best = np.zeros(chains.n_sequences), np.zeros(chains.n_sequences)
    segment, edge = np.zeros_like(potentials.segment), np.zeros_like(potentials.edge)
    for s, steps in enumerate(chains.lengths.tolist()):
        if not steps:
            continue
        ways = list(segmentations(steps, potentials.max_length, potentials.n_labels))
        scores = np.array([score_of(potentials, s, way) for way in ways])
        best[s] = scores.max()
        if np.isneginf(best[s]):
            total[s] = -np.inf
            continue
        total[s] = best[s] + np.log(np.exp(scores - best[s]).sum())
        for way, p in zip(ways, np.exp(scores - total[s]), strict=True):
            for k, (a, b, j) in enumerate(way):
                segment[chains.offsets[s] + b - 1, b - a - 1, j] += p
                if k:
                    table = 0 if potentials.shared else int(chains.edge_offsets[s]) + a - 1
                    edge[table, way[k - 1][2], j] += p
    return total, segment, edge, best


def random_segments(
    rng: np.random.Generator,
    lengths: list[int],
    most: int,
    labels: int,
    *,
    shared: bool = True,
    scale: float = 1.0,
    forbidden: float = 0.0,
) -> SegmentPotentials:
    """Normal scores times ``scale``, each −∞ with the probability ``forbidden``."""
    chains = Chains.from_lengths(lengths)
    segment = scale * rng.standard_normal((chains.n_nodes, most, labels))
    edge = scale * rng.standard_normal((1 if shared else chains.n_edges, labels, labels))
    for scores in (segment, edge):
        scores[rng.random(scores.shape) < forbidden] = -np.inf
    return SegmentPotentials(segment, edge, chains)
