"""The exact engine for graphs with loops, where they are narrow enough.

The graph is turned into a tree of cliques by eliminating its nodes (`crfield.inference.graphs.elimination`), and the
tree is swept like a forest, with a table over each clique: up with log-sums, down with conditionals. The cost in time
and memory is that of the tables, N L^(width + 1) for a long thin graph. Width 1 is a forest, a chain with links to
the k last steps has width k, a grid the smaller of its sides.

Labels with the score −∞ at a node take no room: tables run over the labels that are left. So nodes with different
label sets, and nodes whose label is known, cost what they must and no more. A graph that needs more than
``max_bytes`` is refused before anything is summed.

References: Lauritzen and Spiegelhalter, *Local computations with probabilities on graphical structures* (1988);
Dechter, *Bucket elimination* (1999).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from crfield.core.beliefs import Beliefs
from crfield.core.potentials import Potentials
from crfield.core.semiring import Semiring
from crfield.errors import WidthError
from crfield.inference.graphs.elimination import EliminationPlan, in_words, plan
from crfield.inference.graphs.forest import graph_scores
from crfield.inference.labellings import check_scores, one_hot
from crfield.kernels import forest

FAR_TOO_MANY = 1e12  # bytes that nobody will allow


@dataclass(frozen=True)
class JunctionTreeEngine:
    """Exact totals and marginals of any graph whose tables fit into ``max_bytes`` (for each of ``n_jobs`` threads).

    >>> import numpy as np
    >>> from crfield.core.graphs import Graphs
    >>> square = Graphs(np.array([0, 4]), tails=np.array([0, 1, 2, 3]), heads=np.array([1, 2, 3, 0]))
    >>> scores = Potentials(np.zeros((4, 2)), np.log([[[2.0, 1.0], [1.0, 2.0]]]), square)
    >>> beliefs = JunctionTreeEngine().infer(scores, Semiring.LOG)
    >>> round(float(np.exp(beliefs.total[0])), 9), beliefs.node[0].round(12).tolist(), beliefs.exact
    (82.0, [0.5, 0.5], True)
    >>> JunctionTreeEngine(max_bytes=100).infer(scores, Semiring.LOG)
    Traceback (most recent call last):
    crfield.errors.WidthError: graph 0 needs 264 bytes ...
    """

    max_bytes: int = 2**30
    n_jobs: int = 1

    def infer(self, potentials: Potentials, semiring: Semiring) -> Beliefs:
        """Total of each graph and its gradient with respect to the scores."""
        if semiring is Semiring.MAX:
            total, labels = self.best_labelling(potentials)
            return Beliefs(total, *one_hot(potentials, labels, possible=~np.isneginf(total)))
        found, label_ptr, label = self._prepare(potentials)
        return Beliefs(
            *forest.clique_sum_product(
                found.elimination, graph_scores(potentials), label_ptr, label, n_jobs=self.n_jobs
            )
        )

    def best_labelling(self, potentials: Potentials) -> tuple[np.ndarray, np.ndarray]:
        """Score (B,) and labels (N,) of the best labelling of each graph; the score is −∞ where none is possible.

        >>> import numpy as np
        >>> from crfield.core.graphs import Graphs
        >>> ring = Graphs(np.array([0, 3]), tails=np.array([0, 1, 2]), heads=np.array([1, 2, 0]))
        >>> scores = Potentials(np.eye(3, 2), -2 * np.eye(2)[None], ring)
        >>> JunctionTreeEngine().best_labelling(scores)
        (array([0.]), array([0, 1, 0], dtype=int32))
        """
        found, label_ptr, label = self._prepare(potentials)
        return forest.clique_max_product(
            found.elimination, graph_scores(potentials), label_ptr, label, n_jobs=self.n_jobs
        )

    def _prepare(self, potentials: Potentials) -> tuple[EliminationPlan, np.ndarray, np.ndarray]:
        """The plan, and the labels that every node may take."""
        check_scores(potentials)
        allowed = ~np.isneginf(potentials.node)
        # a node without any label keeps one that is forbidden, so that its graph comes out as impossible
        allowed[~allowed.any(axis=1), 0] = True
        counts = allowed.sum(axis=1)
        found = plan(potentials.topology, counts)
        if not found.complete or found.n_bytes > self.max_bytes:
            raise WidthError(_too_wide(found, self.max_bytes))
        label_ptr = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
        return found, label_ptr, np.nonzero(allowed)[1].astype(np.int32)


def _too_wide(found: EliminationPlan, max_bytes: int) -> str:
    least = "" if found.complete else "at least "
    graph = found.widest_graph
    advice = "Use" if found.n_bytes > FAR_TOO_MANY else "Raise max_bytes, or use"
    return (
        f"graph {graph} needs {least}{in_words(found.n_bytes)} for exact inference ({least}width "
        f"{found.widths[graph]}), the engine may take {in_words(max_bytes)}. {advice} an approximate engine such as "
        "loopy belief propagation."
    )
