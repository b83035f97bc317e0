"""Posterior of a chain: entropy, samples, and span probabilities.

A chain is a Markov chain also when it is seen from its marginals: given the label of one step, the next one depends
on nothing before, and

    p(y_{t+1} | y_t) = p(y_t, y_{t+1}) / p(y_t).

So samples, and the chance of any stretch of labels, come from node and edge marginals alone, exactly; no second kind
of sweep is needed. Everything takes ``node`` (T, L) and ``pairs`` (T − 1, L, L) of one chain.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from crfield.core.beliefs import Beliefs
from crfield.core.potentials import Potentials
from crfield.inference.labellings import segment_sums


def entropies(potentials: Potentials, beliefs: Beliefs, pairs: np.ndarray) -> np.ndarray:
    """(B,) −Σ_y p(y) log p(y) of every sequence, in nats; ``pairs`` (E, L, L) are the marginals of every edge.

        H = log Z − Σ_n ⟨p_n, node_n⟩ − Σ_e ⟨p_e, edge_e⟩

    >>> import numpy as np
    >>> from crfield.core.semiring import Semiring
    >>> from crfield.core.topology import Chains
    >>> from crfield.inference.chain import ChainEngine
    >>> scores = Potentials(np.zeros((2, 2)), np.zeros((1, 2, 2)), Chains.from_lengths([2]))
    >>> engine = ChainEngine()
    >>> h = entropies(scores, engine.infer(scores, Semiring.LOG), engine.edge_marginals(scores))
    >>> float((h[0] / np.log(2.0)).round(9))
    2.0
    """
    topology = potentials.topology
    local = _expected(beliefs.node, potentials.node).sum(axis=1)
    joint = _expected(pairs, potentials.edge[potentials.tables]).sum(axis=(1, 2))
    mean = segment_sums(local, topology.offsets) + segment_sums(joint, topology.edge_offsets)
    # An impossible sequence (total −∞) has no distribution; a certain one may round below zero.
    return np.maximum(np.where(np.isneginf(beliefs.total), np.nan, beliefs.total - mean), 0.0)


def _expected(chance: np.ndarray, score: np.ndarray) -> np.ndarray:
    """chance · score, and 0 where a forbidden score (−∞) has no chance."""
    return np.where(chance > 0, chance * np.where(np.isneginf(score), 0.0, score), 0.0)


def draw(node: np.ndarray, pairs: np.ndarray, n: int, rng: np.random.Generator) -> np.ndarray:
    """(n, T) labellings of one chain, drawn independently from p(y | x).

    >>> import numpy as np
    >>> node = np.array([[1.0, 0.0], [0.0, 1.0]])
    >>> draw(node, np.array([[[0.0, 1.0], [0.0, 0.0]]]), 2, np.random.default_rng(0)).tolist()
    [[0, 1], [0, 1]]
    """
    paths = np.zeros((n, len(node)), dtype=np.int32)
    uniform = rng.random((len(node), n))
    for t in range(len(node)):
        rows = np.broadcast_to(node[0], (n, node.shape[1])) if t == 0 else pairs[t - 1][paths[:, t - 1]]
        ladder = np.cumsum(rows, axis=1)
        place = uniform[t] * ladder[:, -1]  # of an unnormalised row, so that rounding loses nothing
        paths[:, t] = (place[:, None] >= ladder[:, :-1]).sum(axis=1)
    return paths


@dataclass(frozen=True, eq=False)
class SpanRules:
    """Which neighbouring labels begin, continue and end spans, and of which kind; the last row stands for the edge.

    ``kind[j]`` is −1 for labels outside of all spans. ``begins[i, j]`` says whether a span begins at label j that
    follows i, ``ends[i, j]`` whether one that i belongs to ends before j; index L stands for what lies beyond the
    first and the last step.
    """

    kind: np.ndarray  # (L,) int
    begins: np.ndarray  # (L + 1, L + 1) bool
    ends: np.ndarray  # (L + 1, L + 1) bool

    def of(self, label: np.ndarray) -> SpanRules:
        """The rules of states, for the label of each (S,).

        >>> import numpy as np
        >>> rules = SpanRules(np.array([-1, 0]), np.eye(3, dtype=bool), np.eye(3, dtype=bool))
        >>> rules.of(np.array([0, 1, 1])).kind.tolist()
        [-1, 0, 0]
        """
        wide = np.append(label, len(self.kind))
        return SpanRules(self.kind[label], self.begins[np.ix_(wide, wide)], self.ends[np.ix_(wide, wide)])


def span_chances(
    node: np.ndarray, pairs: np.ndarray, rules: SpanRules, *, start: int, kind: int, least: float = 0.0
) -> Iterator[tuple[int, float]]:
    """The stop (not in the span) and chance of every span of a kind that begins at ``start``, shortest first.

    All labellings that are read as this span count. It ends where what remains open falls to ``least`` or below.

        open_a(j) = Σ_i p(i, j) [begins]          open_{t+1}(k) = Σ_j open_t(j) p(k | j) [goes on]
        chance(a, b) = Σ_j open_{b-1}(j) Σ_k p(k | j) [ends]

    >>> import numpy as np
    >>> rules = SpanRules(np.array([-1, 0]), np.array([[0, 1, 0], [0, 0, 0], [0, 1, 0]], bool),
    ...                   np.array([[0, 0, 0], [1, 0, 1], [0, 0, 0]], bool))
    >>> node = np.full((2, 2), 0.5)
    >>> list(span_chances(node, np.full((1, 2, 2), 0.25), rules, start=0, kind=0))
    [(1, 0.25), (2, 0.25)]
    """
    labels = node.shape[1]
    own = rules.kind == kind
    if start == 0:
        held = node[0] * (own & rules.begins[labels, :labels])
    else:
        held = (pairs[start - 1] * rules.begins[:labels, :labels]).sum(axis=0) * own
    stays = own[:, None] & own[None, :] & ~rules.begins[:labels, :labels] & ~rules.ends[:labels, :labels]
    for t in range(start, len(node)):
        if not held.sum() > least:
            return
        share = np.divide(held, node[t], out=np.zeros(labels), where=node[t] > 0)  # p(span so far | y_t)
        if t + 1 == len(node):
            yield t + 1, float(held @ rules.ends[:labels, labels])
            return
        flow = share[:, None] * pairs[t]
        # A new span may begin without the rules saying that the old one ends: a bracket does so.
        over = rules.ends[:labels, :labels] | rules.begins[:labels, :labels]
        yield t + 1, float(flow[over].sum())
        held = (flow * stays).sum(axis=0)


def likely_spans(
    node: np.ndarray, pairs: np.ndarray, rules: SpanRules, *, least: float
) -> list[tuple[int, int, int, float]]:
    """All spans (start, stop, kind, chance) of one chain whose chance is above ``least``, which must be positive."""
    labels = node.shape[1]
    kinds = np.unique(rules.kind[rules.kind >= 0]).tolist()
    found = []
    for start in range(len(node)):
        if start == 0:
            mass = node[0] * rules.begins[labels, :labels]
        else:
            mass = (pairs[start - 1] * rules.begins[:labels, :labels]).sum(axis=0)
        for kind in kinds:
            if mass[rules.kind == kind].sum() > least:
                for stop, chance in span_chances(node, pairs, rules, start=start, kind=kind, least=least):
                    if chance > least:
                        found.append((start, stop, kind, chance))
    return found


def best_spans(spans: list[tuple[int, int, int, float]], *, threshold: float) -> list[tuple[int, int, int, float]]:
    """Those spans that do not overlap and have the largest sum of (chance − threshold), in order.

    With the threshold ½ this is the answer of least expected risk when a span too many costs as much as one that is
    missed: right minus wrong spans is expected to be 2 Σ (chance − ½). The set with the best expected F1 is found at
    some threshold below ½ (half of that F1). Weighted intervals, O(n log n).

    >>> best_spans([(0, 2, 0, 0.6), (0, 1, 0, 0.3), (1, 3, 1, 0.9), (4, 5, 0, 0.4)], threshold=0.5)
    [(1, 3, 1, 0.9)]
    """
    kept = sorted((span for span in spans if span[3] > threshold), key=lambda span: (span[1], span[0], span[2]))
    stops = [span[1] for span in kept]
    best: list[float] = [0.0]
    taken: list[tuple[bool, int]] = []
    for start, _, _, chance in kept:
        before = int(np.searchsorted(stops, start, side="right"))
        gain = best[before] + chance - threshold
        taken.append((gain > best[-1], before))
        best.append(max(gain, best[-1]))
    chosen, k = [], len(kept)
    while k > 0:
        take, before = taken[k - 1]
        if take:
            chosen.append(kept[k - 1])
        k = before if take else k - 1
    return chosen[::-1]
