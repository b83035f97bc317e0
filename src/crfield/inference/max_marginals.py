"""Max-marginals of one chain: the best score of any labelling that gives a step a label.

    m_t(l) = max over y with y_t = l of score(y)

from two sweeps of max-product, forward and backward. They tell at once what the best labelling would score if the
scores of a single step changed: max over l of m_t(l) + change(l). So the exact effect of taking away each of many
features is known from two sweeps, without decoding once for each. A chain of higher order is read as an automaton
(`crfield.scoring.higher_order`): from state s label y leads to state ``after[s, y]``; a plain chain is the one whose
states are its labels. O(T S L) time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, eq=False)
class MaxMarginals:
    """Both sweeps over one sequence of T ≥ 1 steps.

    >>> node, edge = np.array([[0.0, 1.0], [0.0, 0.5]]), np.array([[[2.0, 0.0], [0.0, 0.0]]])
    >>> best = MaxMarginals.of(node, edge)
    >>> best.labels(0).tolist(), best.labels(1).tolist(), best.pairs(0).tolist()
    ([2.0, 1.5], [2.0, 1.5], [[2.0, 0.5], [1.0, 1.5]])
    """

    node: np.ndarray  # (T, L)
    score: np.ndarray  # (T − 1, S, L), or (1, S, L) for all edges alike
    label: np.ndarray  # (S,)
    forward: np.ndarray  # (T, S) best score of the steps up to t that ends in each state
    backward: np.ndarray  # (T, S) best score of the steps after t from each state

    @classmethod
    def of(
        cls,
        node: np.ndarray,
        score: np.ndarray,
        *,
        after: np.ndarray | None = None,
        label: np.ndarray | None = None,
    ) -> MaxMarginals:
        """The sweeps; without ``after`` (S, L) and ``label`` (S,) states are labels."""
        steps, size = node.shape
        plain = after is None or label is None
        label = np.arange(size) if plain or label is None else label
        after = np.tile(label, (size, 1)) if plain or after is None else after
        forward, backward = np.full((steps, len(label)), -np.inf), np.zeros((steps, len(label)))
        forward[0, :size] = node[0]  # single labels are the first states
        for t in range(1, steps):
            own = score[0] if len(score) == 1 else score[t - 1]
            reached = forward[t - 1][:, None] + own + node[t]
            if plain:
                forward[t] = reached.max(axis=0)
            else:
                np.maximum.at(forward[t], after, reached)
        for t in range(steps - 1, 0, -1):
            own = score[0] if len(score) == 1 else score[t - 1]
            backward[t - 1] = (own + node[t] + backward[t][after]).max(axis=1)
        return cls(node, score, label, forward, backward)

    def labels(self, step: int) -> np.ndarray:
        """(L,) the best score with each label at the step."""
        out = np.full(self.node.shape[1], -np.inf)
        np.maximum.at(out, self.label, self.forward[step] + self.backward[step])
        return out

    def pairs(self, edge: int) -> np.ndarray:
        """(L, L) the best score with each pair of labels at steps ``edge`` and ``edge`` + 1; states are labels."""
        own = self.score[0] if len(self.score) == 1 else self.score[edge]
        return self.forward[edge][:, None] + own + self.node[edge + 1] + self.backward[edge + 1]
