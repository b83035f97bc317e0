"""The best labelling of graphs whose nodes have two labels, by a smallest cut.

Where neighbours only ever *attract* (agreeing scores at least as much as disagreeing, summed over both ways), the
best labelling of any graph, loops and all, is a smallest cut (Greig, Porteous & Seheult 1989, *Exact maximum a
posteriori estimation for binary images*). `two_states` does the work and `max_flow` proves it to rounding: `exact`
is set only if the cut's gap is at most 1e-12 of the sum of all scores. Two labels means two *possible* labels for
each node; nodes may have different pairs of labels, and one or none.

Edges that repel are fine as long as renaming labels node by node turns all of them into attracting ones, which is
always so on forests and on grids whose edges all repel. On loops where that fails the problem is NP-hard; the
engine refuses and names an edge, or with ``repelling="roof"`` takes the part of the labelling that roof duality
settles and climbs to a local best from there, which is not exact.

There is no sum over labellings in a cut: LOG is refused.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from crfield.core.beliefs import Beliefs
from crfield.core.potentials import Potentials
from crfield.core.semiring import Semiring
from crfield.errors import InputError
from crfield.inference.labellings import check_scores, one_hot, path_scores
from crfield.inference.two_states import Links, TwoStates, solve

REPELLING = ("refuse", "roof")


@dataclass(frozen=True)
class CutEngine:
    """The best labelling of two-label graphs.

    ``repelling`` says what to do about loops that repel: "refuse" or "roof" (see the essay). ``n_jobs`` is there
    because every engine has it; a cut runs in one thread.

    >>> import numpy as np
    >>> from crfield.core.graphs import Graphs
    >>> triangle = Graphs(np.array([0, 3]), np.array([0, 1, 2]), np.array([1, 2, 0]))
    >>> scores = Potentials(np.array([[0.0, 3.0], [1.0, 0.0], [1.0, 0.0]]), 2 * np.eye(2)[None], triangle)
    >>> beliefs = CutEngine().infer(scores, Semiring.MAX)
    >>> beliefs.total.tolist(), beliefs.node.argmax(axis=1).tolist(), beliefs.exact
    ([9.0], [1, 1, 1], True)
    """

    repelling: str = "refuse"
    n_jobs: int = 1

    def __post_init__(self) -> None:
        if self.repelling not in REPELLING:
            raise InputError(f"repelling must be 'refuse' or 'roof', got {self.repelling!r}.")

    def infer(self, potentials: Potentials, semiring: Semiring) -> Beliefs:
        """The best labelling as zeros and ones, and its score for each graph."""
        refuse_sums(semiring, "cuts")
        check_scores(potentials)
        labels = two_labels(potentials)
        topology = potentials.topology
        links = Links.of(topology.n_nodes, topology.tails, topology.heads)
        solution = solve(
            two_state_problem(potentials, labels, links),
            roof=self.repelling == "roof",
            climb=self.repelling == "roof",
        )
        if solution.repelling >= 0 and self.repelling == "refuse":
            edge = int(links.first[solution.repelling])
            raise InputError(
                f"a cut needs neighbours that attract, but edge {edge} (node {topology.tails[edge]} to node "
                f"{topology.heads[edge]}) lies on a loop that repels however the labels are named. "
                "Use CutEngine(repelling='roof') for a good labelling that is not proven best, or another engine."
            )
        path = labels[np.arange(topology.n_nodes), solution.state]
        return labelled(potentials, path, impossible=solution.impossible, exact=solution.exact)


def refuse_sums(semiring: Semiring, what: str) -> None:
    """Cuts know the best labelling only."""
    if semiring is not Semiring.MAX:
        raise InputError(
            f"{what} find the best labelling (Semiring.MAX); they have no sum over labellings, so no marginals. "
            "Use JunctionEngine or a belief propagation engine for Semiring.LOG."
        )


def two_labels(potentials: Potentials) -> np.ndarray:
    """(N, 2) the two possible labels of each node, the same one twice where there are fewer."""
    possible = ~np.isneginf(potentials.node)
    count = possible.sum(axis=1)
    if (count > 2).any():
        node = int(np.argmax(count > 2))
        raise InputError(
            f"a cut needs at most two possible labels at each node, got {count[node]} at node {node}. "
            "Use ExpansionEngine for more labels."
        )
    if not potentials.n_labels:
        return np.zeros((len(possible), 2), np.int64)
    return np.stack([possible.argmax(axis=1), potentials.n_labels - 1 - possible[:, ::-1].argmax(axis=1)], axis=1)


def two_state_problem(potentials: Potentials, labels: np.ndarray, links: Links) -> TwoStates:
    """The scores of two labels (N, 2) at each node; where both are the same one, state 1 is forbidden."""
    topology = potentials.topology
    node = np.take_along_axis(potentials.node, labels, axis=1)
    node[labels[:, 0] == labels[:, 1], 1] = -np.inf
    pair = potentials.edge[
        potentials.tables[:, None, None], labels[topology.tails][:, :, None], labels[topology.heads][:, None, :]
    ]
    return TwoStates(node, links.add_up(pair), links.tails, links.heads)


def labelled(
    potentials: Potentials,
    path: np.ndarray,
    *,
    impossible: np.ndarray,
    exact: bool,
    converged: bool = True,
    sweeps: int = 1,
) -> Beliefs:
    """Beliefs of a labelling (N,); ``impossible`` (N,) marks nodes whose graph is proven to have none."""
    topology = potentials.topology
    total = path_scores(potentials, path)
    hopeless = np.zeros(topology.n_sequences, bool)
    hopeless[topology.sequence_of_node[impossible]] = True
    total[hopeless] = -np.inf
    lost = np.isneginf(total)
    return Beliefs(
        total,
        *one_hot(potentials, path, possible=~lost),
        exact=exact and bool((lost == hopeless).all()),
        converged=converged and bool((lost == hopeless).all()),
        sweeps=sweeps,
        bound="exact" if exact else "lower",
    )
