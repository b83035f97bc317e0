"""Feature functions of two labels, f(y₋₁, y, x, t), as the textbooks write them.

One weight a function, whatever the labels: the function itself looks at them. Every function is written out for
every pair of labels at every step once, as a table; scores are then weighted sums of tables. That costs
K·N·L² numbers, so it is for teaching and for small problems; for large ones use columns.

At the first step there is no label before; functions are called with ``None`` for it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from crfield.core.potentials import Potentials
from crfield.core.topology import Chains
from crfield.core.typing import Sequences
from crfield.data.large import LARGEST, too_large
from crfield.errors import FeatureError, InputError

LabelFunction = Callable[[Any, Any, Any, int], float]


@dataclass(frozen=True, eq=False)
class FunctionTables:
    """K functions written out over a batch: a batch whose columns know the labels."""

    topology: Chains
    first: np.ndarray  # (K, B', L) at the first step of each non-empty sequence
    pair: np.ndarray  # (K, E, L, L)


def tabulate(functions: Sequence[LabelFunction], labels: Sequence[Hashable], X: Sequences) -> FunctionTables:
    """Call every function for every pair of labels at every step.

    >>> def stays(before, label, x, t):
    ...     return before == label
    >>> tables = tabulate([stays], ["a", "b"], [[0, 0]])
    >>> tables.pair[0, 0].tolist(), tables.first[0].tolist()
    ([[1.0, 0.0], [0.0, 1.0]], [[0.0, 0.0]])
    """
    chains = Chains.from_lengths([len(x) for x in X])
    size, count = len(labels), len(functions)
    if count * chains.n_nodes * size * size > 2e8:
        raise InputError(
            f"{count} functions of two labels over {chains.n_nodes} steps and {size} labels need more than 2e8 "
            "numbers. Use feature functions f(x, t) instead, which are kept as columns."
        )
    first = np.zeros((count, int((chains.lengths > 0).sum()), size))
    pair = np.zeros((count, chains.n_edges, size, size))
    for k, function in enumerate(functions):
        start = edge = 0
        for s, x in enumerate(X):
            for t in range(len(x)):
                if t == 0:
                    first[k, start] = [_call(function, None, y, x, t, s) for y in labels]
                    start += 1
                else:
                    pair[k, edge] = [[_call(function, b, y, x, t, s) for y in labels] for b in labels]
                    edge += 1
    return FunctionTables(chains, first, pair)


def _call(function: LabelFunction, before: Any, label: Any, x: Any, t: int, s: int) -> float:
    name = getattr(function, "__name__", repr(function))
    try:
        value = float(function(before, label, x, t))
    except Exception as error:
        raise FeatureError(
            f"feature function {name} failed at sequence {s}, step {t}, labels ({before!r}, {label!r}): "
            f"{type(error).__name__}: {error}."
        ) from error
    if not np.isfinite(value):
        raise FeatureError(
            f"feature function {name} gave {value} at sequence {s}, step {t}; a finite number is needed."
        )
    if abs(value) > LARGEST:
        raise FeatureError(f"sequence {s}, step {t}: {too_large(name, value, LARGEST, 'reckon with')}")
    return value


@dataclass(frozen=True)
class TableScorer:
    """Weighted sums of function tables.

    >>> import numpy as np
    >>> tables = tabulate([lambda before, label, x, t: x[t] * (label == "b")], ["a", "b"], [[2.0, 3.0]])
    >>> TableScorer(1, 2).score(np.array([10.0]), tables).node.tolist()
    [[0.0, 20.0], [0.0, 0.0]]
    """

    n_weights: int
    n_labels: int

    def score(self, weights: np.ndarray, batch: FunctionTables) -> Potentials:
        """Potentials; everything but the first step lives on the edges."""
        chains = batch.topology
        node = np.zeros((chains.n_nodes, self.n_labels))
        node[chains.offsets[:-1][chains.lengths > 0]] = np.tensordot(weights, batch.first, axes=1)
        edge = np.tensordot(weights, batch.pair, axes=1)
        return Potentials(node, edge if chains.n_edges else np.zeros((1, *edge.shape[1:])), chains)

    def pull(self, node: np.ndarray, edge: np.ndarray, batch: FunctionTables) -> np.ndarray:
        """The adjoint of ``score``: (K,)."""
        chains = batch.topology
        starts = node[chains.offsets[:-1][chains.lengths > 0]]
        gradient = np.tensordot(batch.first, starts, axes=([1, 2], [0, 1]))
        if chains.n_edges:
            gradient = gradient + np.tensordot(batch.pair, edge, axes=([1, 2, 3], [0, 1, 2]))
        return np.asarray(gradient)
