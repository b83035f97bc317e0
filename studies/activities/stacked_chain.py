"""A chain on the scores of classifiers, whose trust in them is learnt together with its transitions.

A classifier of single steps is sure of what it says sixty times a minute, and neighbouring steps are not independent:
a chain that adds up its log-probabilities as they are believes the first mistake of a minute sixty times. Here

    score(label, step) = Σ_m scale_m · log p_m(label | step) + bias(label)

and scales, biases and transitions maximise the likelihood of whole label sequences (Lafferty et al. 2001), so a
scale becomes as small as the sequences ask for. The log-probabilities must come from classifiers that have not met
the sequence (stacked generalisation: Wolpert 1992); else the chain learns to trust what will not be there.

Scales are at least 0 and free; biases are held to 0 and transitions to the counted ones by a quadratic penalty.
A step of training costs one forward–backward sweep, N · S² for N steps and S states.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.optimize import minimize

from crfield.core.potentials import Potentials
from crfield.core.target import Target
from crfield.core.topology import Chains
from crfield.errors import InputError
from crfield.inference.chain import ChainEngine
from crfield.objectives.contrast import Contrast
from crfield.training.segment_memory import SegmentStates


@dataclass(frozen=True, eq=False)
class StackedChain:
    """Scales of M sources of scores, biases of L labels, and the states with their transitions.

    >>> sure = np.log([[0.9, 0.1]] * 4 + [[0.1, 0.9]] * 4)
    >>> words = [["a"] * 4 + ["b"] * 4]
    >>> states = SegmentStates.counted(words, ["a", "b"], memory=False, smoothing=0.1)
    >>> chain = StackedChain.learnt(states, [[sure]], words)
    >>> chain.best_labels([sure]).tolist()
    [0, 0, 0, 0, 1, 1, 1, 1]
    """

    states: SegmentStates
    scales: np.ndarray  # (M,)
    bias: np.ndarray  # (L,)

    @classmethod
    def learnt(
        cls,
        states: SegmentStates,
        sources: Sequence[Sequence[np.ndarray]],
        labels: Sequence[Iterable[Any]],
        *,
        penalty: float = 1.0,
        max_iter: int = 60,
    ) -> StackedChain:
        """From scores ``sources[sequence][m]`` (n, L) and labels of the same sequences; None is not known."""
        if not np.isfinite(states.start).all():
            raise InputError("a stacked chain needs states that may all begin: count them with smoothing above 0.")
        chains = Chains.from_lengths([len(own[0]) for own in sources])
        scores = np.stack([np.concatenate(parts) for parts in zip(*sources, strict=True)])  # (M, N, L)
        codes = [-1 if code is None else code for row in labels for code in states.codes(row)]
        known, n_states = np.array(codes, dtype=np.int32), len(states.label)
        allowed = (known[:, None] == np.arange(n_states)) | (known < 0)[:, None]
        target = Target(chains, n_states, known, allowed)
        free = np.isfinite(states.edge)
        held = np.concatenate([np.zeros(scores.shape[2]), states.start, states.edge[free]])
        first, (m, _, n_labels) = chains.offsets[:-1], scores.shape
        ends = np.cumsum([m, n_labels, n_states])
        of_label = (states.label[:, None] == np.arange(n_labels)).astype(np.float64)  # (S, L)

        def slope(theta: np.ndarray) -> tuple[float, np.ndarray]:
            scales, bias, start, pairs = np.split(theta, ends)
            node = (np.tensordot(scales, scores, axes=1) + bias)[:, states.label]
            node[first] += start
            edge = states.edge.copy()
            edge[free] = pairs
            told = Contrast().evaluate(Potentials(node, edge[None], chains), target, ChainEngine())
            by_label = told.node @ of_label
            away = theta[m:] - held
            gradient = np.concatenate(
                [
                    np.tensordot(scores, by_label, axes=2),
                    by_label.sum(axis=0),
                    told.node[first].sum(axis=0),
                    told.edge[0][free],
                ]
            )
            gradient[m:] += penalty * away
            return told.value + 0.5 * penalty * float(away @ away), gradient

        begin = np.concatenate([np.full(m, 0.1 / m), held])
        bounds = [(0.0, None)] * m + [(None, None)] * len(held)
        found = minimize(slope, begin, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": max_iter})
        scales, bias, start, pairs = np.split(found.x, ends)
        edge = states.edge.copy()
        edge[free] = pairs
        return cls(replace(states, start=start, edge=edge), scales, bias)

    def best_labels(self, sources: Sequence[np.ndarray]) -> np.ndarray:
        """(n,) codes of labels on the best path, from the scores (n, L) of the M sources."""
        return self.states.best_labels(np.tensordot(self.scales, np.stack(sources), axes=1) + self.bias)
