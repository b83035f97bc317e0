"""α-expansion: good labellings of graphs with many labels, by one cut for each label in turn.

A move offers one label α to all nodes at once: each keeps its label or takes α, whichever choice of all nodes
together scores best (Boykov, Veksler & Zabih 2001, *Fast approximate energy minimization via graph cuts*). That is a
problem of two states, so a cut solves it; labels are offered in turn until a whole cycle changes nothing. Where
disagreement costs a metric (Potts, truncated distances) every move is exact and the result lies within a known
factor of the best. For other tables a move may meet edges that repel; those moves are settled by roof duality,
which never lowers the score: nodes that it leaves open keep their labels (Lempitsky, Rother, Roth & Blake 2010,
*Fusion moves*). Tables may differ from edge to edge.

The labelling found is a local best with respect to very large moves, not proven to be the best of all: `exact` is
False, and the total a lower bound. Where every node has at most two labels `CutEngine` answers, exactly if it can.

Forbidden scores: as long as the labelling breaks a rule, −∞ counts as a very low finite score, so moves lead to
labellings without broken rules first; graphs for which none was found have the total −∞ and are not converged.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from crfield.core.beliefs import Beliefs
from crfield.core.potentials import Potentials
from crfield.core.semiring import Semiring
from crfield.errors import InputError, ShapeError
from crfield.inference.cuts import CutEngine, labelled, refuse_sums, two_state_problem
from crfield.inference.labellings import check_scores, path_scores
from crfield.inference.two_states import Links, solve


@dataclass(frozen=True)
class ExpansionEngine:
    """Labellings that no expansion of a single label improves.

    ``max_cycles`` limits the turns through all labels. ``n_jobs`` is there because every engine has it; a cut runs
    in one thread.

    >>> import numpy as np
    >>> from crfield.core.graphs import Graphs
    >>> square = Graphs(np.array([0, 4]), np.array([0, 1, 2, 3]), np.array([1, 2, 3, 0]))
    >>> node = np.array([[2.0, 0.0, 0.0], [0.5, 0.0, 0.6], [2.0, 0.0, 0.0], [0.0, 0.0, 5.0]])
    >>> beliefs = ExpansionEngine().infer(Potentials(node, np.eye(3)[None], square), Semiring.MAX)
    >>> beliefs.node.argmax(axis=1).tolist(), beliefs.total.tolist(), beliefs.converged, beliefs.exact
    ([0, 0, 0, 2], [11.5], True, False)
    """

    max_cycles: int = 20
    n_jobs: int = 1

    def __post_init__(self) -> None:
        if self.max_cycles < 1:
            raise InputError(f"max_cycles must be at least 1, got {self.max_cycles}.")

    def infer(self, potentials: Potentials, semiring: Semiring) -> Beliefs:
        """A good labelling as zeros and ones, and its score for each graph."""
        refuse_sums(semiring, "cuts")
        check_scores(potentials)
        possible = ~np.isneginf(potentials.node)
        if not potentials.node.size or possible.sum(axis=1).max() <= 2:
            return CutEngine(repelling="roof").infer(potentials, semiring)
        labels, converged, cycles = self.improve(potentials, potentials.node.argmax(axis=1))
        hopeless = np.asarray(~possible.any(axis=1))
        return labelled(potentials, labels, impossible=hopeless, exact=False, converged=converged, sweeps=cycles)

    def improve(self, potentials: Potentials, labels: np.ndarray) -> tuple[np.ndarray, bool, int]:
        """Better labels (N,) from given ones, whether a whole cycle ended without a change, and the cycles run.

        No graph's score falls.

        >>> import numpy as np
        >>> from crfield.core.topology import Chains
        >>> scores = Potentials(np.zeros((3, 3)), np.eye(3)[None], Chains.from_lengths([3]))
        >>> labels, converged, cycles = ExpansionEngine().improve(scores, np.array([0, 1, 2]))
        >>> len(set(labels.tolist())), converged
        (1, True)
        """
        topology = potentials.topology
        labels = np.array(labels, dtype=np.int64)
        if labels.shape != (topology.n_nodes,):
            raise ShapeError(f"labels must have one entry for each of {topology.n_nodes} nodes, got {labels.shape}.")
        if len(labels) and (labels.min() < 0 or labels.max() >= potentials.n_labels):
            raise InputError(
                f"labels must lie in 0 … {potentials.n_labels - 1}, got {labels.min()} … {labels.max()}."
            )
        links = Links.of(topology.n_nodes, topology.tails, topology.heads)
        broken, softened = np.isneginf(path_scores(potentials, labels)), _softened(potentials)
        spent = 0
        settled = True
        if broken.any():
            labels, settled, spent = self._cycle(softened, labels, links, only=broken)
            broken = np.isneginf(path_scores(potentials, labels))
        if broken.all() and len(broken):
            return labels, False, spent
        labels, settled, cycles = self._cycle(potentials, labels, links, only=~broken)
        return labels, settled and not broken.any(), spent + cycles

    def _cycle(
        self, potentials: Potentials, labels: np.ndarray, links: Links, *, only: np.ndarray
    ) -> tuple[np.ndarray, bool, int]:
        """Offer all labels in turn to the graphs ``only`` (B,) until none is taken."""
        owner = potentials.topology.sequence_of_node
        score = path_scores(potentials, labels)
        movable, possible = only[owner], ~np.isneginf(potentials.node)
        offered = np.flatnonzero(possible.any(axis=0))
        unchanged = 0
        for cycle in range(self.max_cycles):
            for offer in offered:
                takes = movable & possible[:, offer] & (labels != offer)
                if takes.any():
                    # A node that may not move has one label twice, which leaves it one state.
                    both = np.stack([labels, np.where(takes, offer, labels)], axis=1)
                    moved = both[np.arange(len(labels)), solve(two_state_problem(potentials, both, links)).state]
                    value = path_scores(potentials, moved)
                    better = value > score
                    labels = np.where(better[owner], moved, labels)
                    score = np.where(better, value, score)
                    unchanged = 0 if better.any() else unchanged + 1
                else:
                    unchanged += 1
                if unchanged >= len(offered):
                    return labels, True, cycle + 1
        return labels, False, self.max_cycles


def _softened(potentials: Potentials) -> Potentials:
    """The same scores with −∞ so low, but finite, that no sum of the others outweighs one of them."""
    sizes = [
        np.ptp(np.where(np.isfinite(scores), scores, 0.0), axis=axes) if scores.size else np.zeros(0)
        for scores, axes in ((potentials.node, 1), (potentials.edge, (1, 2)))
    ]
    low = -1.0 - 2.0 * float(sizes[0].sum() + sizes[1][potentials.tables].sum())
    lows = [
        float(np.where(np.isfinite(s), s, 0.0).min(initial=0.0)) + low for s in (potentials.node, potentials.edge)
    ]
    return Potentials(
        np.maximum(potentials.node, lows[0]),
        np.maximum(potentials.edge, lows[1]),
        potentials.topology,
        potentials.table,
    )
