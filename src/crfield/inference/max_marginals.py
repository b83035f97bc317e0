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
    after: np.ndarray | None  # (S, L), None where states are labels
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
        if after is None or label is None:
            after, label = None, np.arange(size)
        nothing = np.zeros((steps, len(label)))
        return cls(node, score, after, label, nothing, nothing).within(0, steps - 1, node, score)

    def within(self, first: int, last: int, node: np.ndarray, score: np.ndarray) -> MaxMarginals:
        """After scores of steps ``first`` to ``last``, and of edges between them, changed; right for these alone.

        What was best before the first of them, and after the last, has not changed and is not swept again.

        >>> node, edge = np.zeros((5, 2)), np.eye(2)[None]
        >>> changed = node.copy()
        >>> changed[2, 1] = -np.inf
        >>> best = MaxMarginals.of(node, edge).within(1, 3, changed, edge)
        >>> best.labels(1).tolist(), best.labels(3).tolist()
        ([4.0, 3.0], [4.0, 3.0])
        """
        size, forward, backward = node.shape[1], self.forward.copy(), self.backward.copy()
        for t in range(first, last + 1):
            if t == 0:
                forward[0], forward[0, :size] = -np.inf, node[0]  # single labels are the first states
                continue
            reached = forward[t - 1][:, None] + score[0 if len(score) == 1 else t - 1] + node[t]
            if self.after is None:
                forward[t] = reached.max(axis=0)
            else:
                forward[t] = -np.inf
                np.maximum.at(forward[t], self.after, reached)
        for t in range(last, first, -1):
            following = backward[t] if self.after is None else backward[t][self.after]
            backward[t - 1] = (score[0 if len(score) == 1 else t - 1] + node[t] + following).max(axis=1)
        return MaxMarginals(node, score, self.after, self.label, forward, backward)

    def labels(self, step: int) -> np.ndarray:
        """(L,) the best score with each label at the step."""
        out = np.full(self.node.shape[1], -np.inf)
        np.maximum.at(out, self.label, self.forward[step] + self.backward[step])
        return out

    def pairs(self, edge: int) -> np.ndarray:
        """(L, L) the best score with each pair of labels at steps ``edge`` and ``edge`` + 1; states are labels."""
        own = self.score[0] if len(self.score) == 1 else self.score[edge]
        return self.forward[edge][:, None] + own + self.node[edge + 1] + self.backward[edge + 1]
