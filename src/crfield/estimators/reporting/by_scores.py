"""Why a label, of any model that scores chains: what each step and each pair of neighbours adds to the margin.

`ChainCRF.explain` takes scores apart into named features. Trees, densities and classifiers have no such parts, but
their scores are still sums over steps and over pairs: the best labelling with the label and the best one with
another differ at some steps, and the difference of their scores is the sum of what these steps and the pairs around
them add.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Any

import numpy as np

from crfield.core.potentials import Potentials
from crfield.core.topology import Chains
from crfield.inference.chain import ChainEngine
from crfield.report.explain import Contribution, Explanation
from crfield.report.weights import LabelPair

SHOWS, FOLLOWS = "what the step itself shows", "(transition)"


def explained_by_scores(
    potentials: Potentials, labels: Sequence[Hashable], chance: np.ndarray, steps: Iterable[tuple[int, int]]
) -> dict[int, Explanation]:
    """Of one chain, for each (step, code of its label), why it has the label; steps with no other choice say so.

    >>> from crfield.core.topology import Chains
    >>> node, edge = np.array([[2.0, 0.0], [0.0, 0.5]]), np.array([[[1.0, 0.0], [0.0, 1.0]]])
    >>> scores = Potentials(node, edge, Chains.from_lengths([2]))
    >>> told = explained_by_scores(scores, ["a", "b"], np.full((2, 2), 0.5), [(1, 0)])[1]
    >>> told.label, told.other, told.margin, [(c.name, c.amount) for c in told.contributions]
    ('a', 'b', 0.5, [('(transition)', 1.0), ('what the step itself shows', -0.5)])
    """
    out = {}
    for step, code in steps:
        total, path = _best(potentials, step, code, keep=True)
        other_total, other = _best(potentials, step, code, keep=False)
        if not np.isfinite(total):
            continue
        named = tuple(labels[k] for k in path)
        if not np.isfinite(other_total):
            out[step] = Explanation(step, labels[code], None, np.inf, float(chance[step, code]), 0.0, named, None, ())
            continue
        parts = _parts(potentials, labels, path, other)
        parts.sort(key=lambda part: (-abs(part.amount), abs(part.step - step)))
        rival = int(other[step])
        out[step] = Explanation(
            step, labels[code], labels[rival], total - other_total, float(chance[step, code]),
            float(chance[step, rival]), named, tuple(labels[k] for k in other), tuple(parts),
        )  # fmt: skip
    return out


def of_labels(potentials: Any, n_labels: int) -> bool:
    """Whether these are scores of one chain's labels, finite or forbidden."""
    return (
        isinstance(potentials, Potentials)
        and isinstance(potentials.topology, Chains)
        and potentials.n_labels == n_labels
    )


def _best(potentials: Potentials, step: int, code: int, *, keep: bool) -> tuple[float, np.ndarray]:
    node = potentials.node.copy()
    allowed = (np.arange(node.shape[1]) == code) == keep
    node[step, ~allowed] = -np.inf
    masked = Potentials(node, potentials.edge, potentials.topology, potentials.table)
    total, path = ChainEngine().best_path(masked)
    return float(total[0]), path


def _parts(
    potentials: Potentials, labels: Sequence[Hashable], path: np.ndarray, other: np.ndarray
) -> list[Contribution]:
    parts = []
    for t in np.flatnonzero(path != other).tolist():
        own, rival = potentials.node[t, path[t]], potentials.node[t, other[t]]
        pair = labels[path[t]], labels[other[t]]
        parts.append(Contribution(SHOWS, t, *pair, 1.0, float(own), float(rival), float(own - rival), "node"))
    differs = (path[1:] != other[1:]) | (path[:-1] != other[:-1])
    for t in (np.flatnonzero(differs) + 1).tolist():
        table = potentials.edge[potentials.tables[t - 1]]
        own, rival = table[path[t - 1], path[t]], table[other[t - 1], other[t]]
        pairs = LabelPair(labels[path[t - 1]], labels[path[t]]), LabelPair(labels[other[t - 1]], labels[other[t]])
        amount = float(own - rival)
        if amount:
            parts.append(Contribution(FOLLOWS, t, *pairs, 1.0, float(own), float(rival), amount, "transitions"))
    return parts
