"""The best labelling by graph cuts (min-cut, α-expansion): exact for two labels, approximate for more.

Where neighbours only ever *attract* (agreeing scores at least as much as disagreeing, summed over both ways), the
best labelling of any graph, loops and all, is a smallest cut (Greig, Porteous & Seheult 1989, *Exact maximum a
posteriori estimation for binary images*). One kernel goes from the scores to the cut (`kernels.flow.best_states`);
what it does not take, forbidden pairs and edges that repel, `two_states` prepares. Both prove it to rounding: `exact`
is set only if the cut's gap is at most 1e-12 of the sum of all scores. Two labels means two *possible* labels for
each node; nodes may have different pairs of labels, and one or none. Edges that repel are fine as long as renaming
labels node by node turns all of them into attracting ones, which is always so on forests and on grids whose edges
all repel. On loops where that fails the problem is NP-hard (`CutEngine.repelling` says what then).

For more labels, α-expansion: a move offers one label α to all nodes at once, and each keeps its label or takes α,
whichever choice of all nodes together scores best (Boykov, Veksler & Zabih 2001, *Fast approximate energy
minimization via graph cuts*). That is a problem of two states; labels are offered in turn until a whole cycle
changes nothing. Where disagreement costs a metric (Potts, truncated distances) every move is exact and the result
lies within a known factor of the best. With other tables a move may meet loops that repel; it is then settled by
roof duality, which never lowers the score (Lempitsky, Rother, Roth & Blake 2010, *Fusion moves*; truncating tables
instead, as Rother et al. 2005 do, would settle a problem that is not the given one), and nodes that it leaves open
take α one by one where that helps. A labelling found so is best with respect to very large moves, not proven to be
the best of all.

There is no sum over labellings in a cut: LOG is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial

import numpy as np

from crfield.core.beliefs import Beliefs
from crfield.core.checks import integer
from crfield.core.potentials import Potentials
from crfield.core.semiring import Semiring
from crfield.errors import InputError, ShapeError
from crfield.inference.graphs.feasible import possible_labelling
from crfield.inference.graphs.two_states import ROUNDING, Links, TwoStates, solve
from crfield.inference.labellings import check_scores, one_hot, path_scores
from crfield.kernels.flow import best_states

REPELLING = ("refuse", "roof")


@dataclass(frozen=True)
class CutEngine:
    """The best labelling of two-label graphs by a minimum cut.

    On a loop that repels however labels are named, ``repelling="refuse"`` is an error that names an edge; "roof"
    takes the part of the labelling that roof duality settles and climbs to a local best from there, and is exact only
    where nothing was left to climb. ``n_jobs`` is there because every engine has it; a cut runs in one thread.

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
        _refuse_sums(semiring, "cuts")
        check_scores(potentials)
        labels = _two_labels(potentials)
        topology = potentials.topology
        found = _by_one_cut(potentials, labels)
        if found is not None:
            state, exact = found
            path = np.where(state, labels[:, 1], labels[:, 0])
            return _labelled(potentials, path, impossible=np.zeros(0, np.int64), exact=exact)
        links = Links.of(topology.n_nodes, topology.tails, topology.heads)
        problem = _two_state_problem(potentials, labels, links)
        solution = solve(problem, roof=self.repelling == "roof", start=problem.node.argmax(axis=1))
        if solution.repelling >= 0 and self.repelling == "refuse":
            edge = int(links.first[solution.repelling])
            raise InputError(
                f"a cut needs neighbours that attract, but edge {edge} (node {topology.tails[edge]} to node "
                f"{topology.heads[edge]}) lies on a loop that repels however the labels are named. "
                "Use CutEngine(repelling='roof') for a good labelling that is not proven best, or another engine."
            )
        path = labels[np.arange(topology.n_nodes), solution.state]
        return _labelled(potentials, path, impossible=solution.impossible, exact=solution.exact)


@dataclass(frozen=True)
class ExpansionEngine:
    """α-expansion: labellings that no expansion of a single label improves.

    ``max_cycles`` limits the turns through all labels. Where every node has at most two labels it is `CutEngine`,
    exact if that is; otherwise `exact` is False and the total a lower bound of the best. As long as a labelling
    breaks a rule, −∞ counts as a very low finite score, so that moves lead out of it; where they do not, a search
    looks for a start. Graphs for which there is none, or none was found, have the total −∞; the latter are not
    converged. ``n_jobs`` is there because every engine has it.

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
        integer(1)("max_cycles", self.max_cycles)

    def infer(self, potentials: Potentials, semiring: Semiring) -> Beliefs:
        """A good labelling as zeros and ones, and its score for each graph."""
        _refuse_sums(semiring, "cuts")
        check_scores(potentials)
        possible = ~np.isneginf(potentials.node)
        if not potentials.node.size or possible.sum(axis=1).max() <= 2:
            return CutEngine(repelling="roof").infer(potentials, semiring)
        labels, impossible, converged, cycles = self._settle(potentials, potentials.node.argmax(axis=1))
        hopeless = impossible[potentials.topology.sequence_of_node]
        return _labelled(potentials, labels, impossible=hopeless, exact=False, converged=converged, sweeps=cycles)

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
        labels, _, converged, cycles = self._settle(potentials, labels)
        return labels, converged, cycles

    def _settle(self, potentials: Potentials, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray, bool, int]:
        """Better labels, graphs (B,) that have none at all, whether it converged, and the cycles run."""
        topology = potentials.topology
        links = cache(partial(Links.of, topology.n_nodes, topology.tails, topology.heads))
        broken, impossible, spent = (
            np.isneginf(path_scores(potentials, labels)),
            np.zeros(topology.n_sequences, bool),
            0,
        )
        if broken.any():
            labels, _, spent = self._cycle(_softened(potentials), labels, links, only=broken)
            for graph in np.flatnonzero(np.isneginf(path_scores(potentials, labels))):
                try:
                    found = possible_labelling(potentials, int(graph))
                except InputError:  # neither found nor disproved: the total of -inf is then not exact
                    continue
                impossible[graph] = found is None
                if found is not None:
                    labels[topology.offsets[graph] : topology.offsets[graph + 1]] = found
            broken = np.isneginf(path_scores(potentials, labels))
        labels, settled, cycles = self._cycle(potentials, labels, links, only=~broken)
        return labels, impossible, settled and bool((broken == impossible).all()), spent + cycles

    def _cycle(
        self, potentials: Potentials, labels: np.ndarray, links: Callable[[], Links], *, only: np.ndarray
    ) -> tuple[np.ndarray, bool, int]:
        """Offer all labels in turn to the graphs ``only`` (B,) until none is taken."""
        owner = potentials.topology.sequence_of_node
        score = path_scores(potentials, labels)
        movable, possible = only[owner], ~np.isneginf(potentials.node)
        offered = np.flatnonzero(possible.any(axis=0))
        unchanged = 0
        if not len(offered):
            return labels, True, 0
        for cycle in range(self.max_cycles):
            for offer in offered:
                takes = movable & possible[:, offer] & (labels != offer)
                if takes.any():
                    # A node that may not move has one label twice, which leaves it one state.
                    both = np.stack([labels, np.where(takes, offer, labels)], axis=1)
                    found = _by_one_cut(potentials, both)
                    state = solve(_two_state_problem(potentials, both, links())).state if found is None else found[0]
                    moved = np.where(state, both[:, 1], both[:, 0])
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


def _refuse_sums(semiring: Semiring, what: str) -> None:
    """Cuts know the best labelling only."""
    if semiring is not Semiring.MAX:
        raise InputError(
            f"{what} find the best labelling (Semiring.MAX); they have no sum over labellings, so no marginals. "
            "Use JunctionTreeEngine or a belief propagation engine for Semiring.LOG."
        )


def _two_labels(potentials: Potentials) -> np.ndarray:
    """(N, 2) the two possible labels of each node, the same one twice where there are fewer."""
    possible = potentials.node > -np.inf
    if potentials.n_labels == 2 and possible.all():
        return np.tile(np.array([0, 1]), (len(possible), 1))
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


def _by_one_cut(potentials: Potentials, labels: np.ndarray) -> tuple[np.ndarray, bool] | None:
    """States (N,) of two labels each and whether they are proven best; None where a single cut cannot tell."""
    topology = potentials.topology
    found = best_states(potentials.node, potentials.edge, potentials.tables, topology.tails, topology.heads, labels)
    return None if found is None else (found[0], found[1] <= ROUNDING * found[2])


def _two_state_problem(potentials: Potentials, labels: np.ndarray, links: Links) -> TwoStates:
    """The scores of two labels (N, 2) at each node; where both are the same one, state 1 is forbidden."""
    topology = potentials.topology
    node = np.take_along_axis(potentials.node, labels, axis=1)
    node[labels[:, 0] == labels[:, 1], 1] = -np.inf
    pair = potentials.edge[
        potentials.tables[:, None, None], labels[topology.tails][:, :, None], labels[topology.heads][:, None, :]
    ]
    return TwoStates(node, links.add_up(pair), links.tails, links.heads)


def _labelled(
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
