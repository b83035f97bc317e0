"""Tree-reweighted belief propagation: a bound above log Z for any graph.

Take spanning trees of the graph, let ρ_e be the share of them that hold edge e, and write the scores as an average of
scores that each live on one of the trees. log Z is convex, so the average of the trees' totals lies above it.
Messages with the weights ρ find the division of the scores for which that bound is least (Wainwright, Jaakkola &
Willsky 2005). Unlike Bethe's, the problem is convex: there is one answer, and the total is a true upper bound once
messages have settled. Beliefs are its gradient; they are flatter than those of ordinary belief propagation. Where the
graph is a forest every ρ is 1 and all of it is exact.

Under MAX the same messages bound the best score from above. The labelling read off them is the best if its score
meets the bound, and then ``exact`` is true though the graph has loops (Wainwright, Jaakkola & Willsky, *MAP
estimation via agreement on trees*, 2005).

The trees are minimum spanning trees over the edges met least so far, ties at random but the same for the same
``seed``: so few of them cover every edge. On graphs too dense for that, what is missing comes from a division of the
edges into forests: following the nodes from those of least degree on (the degeneracy order), each has at most d
neighbours after it, its k-th such edge goes to forest k, and ρ = 1/d for all edges is a share of forests. Averages of
shares are shares, so the bound holds. Finding ρ costs one sorting of the edges for each tree, once for a topology.
"""

from __future__ import annotations

from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np

from crfield.core.beliefs import Beliefs
from crfield.core.checks import integer
from crfield.core.graphs import Graphs, link_matrix
from crfield.core.potentials import Potentials
from crfield.core.semiring import Semiring
from crfield.core.topology import Chains
from crfield.inference.graphs.loopy import Links, labelled, links_of, propagated
from crfield.inference.labellings import check_scores

MOST = 4  # times n_trees: how long to go on while some edge is in no tree

_shares: WeakKeyDictionary[Chains | Graphs, dict[tuple[int, int], np.ndarray]] = WeakKeyDictionary()


@dataclass(frozen=True)
class TreeReweightedEngine:
    """Upper bounds on log Z, and beliefs that are their gradient; exact on forests.

    >>> import numpy as np
    >>> ring = Graphs(np.array([0, 3]), np.array([0, 1, 2]), np.array([1, 2, 0]))
    >>> scores = Potentials(np.zeros((3, 2)), np.eye(2)[None], ring)
    >>> beliefs = TreeReweightedEngine().infer(scores, Semiring.LOG)
    >>> bool(beliefs.total[0] > np.log(2 * np.exp(3) + 6 * np.exp(1))), beliefs.bound, beliefs.converged
    (True, 'upper', True)
    """

    schedule: str = "sweeps"
    damping: float = 0.2
    max_sweeps: int = 500
    tol: float = 1e-8
    n_trees: int = 16
    seed: int = 0
    n_jobs: int = 1

    def infer(self, potentials: Potentials, semiring: Semiring) -> Beliefs:
        """Upper bound of each graph and its beliefs, or under MAX a labelling and its score."""
        return self.run(potentials, semiring)[0]

    def run(
        self, potentials: Potentials, semiring: Semiring, messages: np.ndarray | None = None
    ) -> tuple[Beliefs, np.ndarray]:
        """Beliefs and messages (links, 2, L), as `LoopyEngine.run`.

        >>> import numpy as np
        >>> ring = Graphs(np.array([0, 3]), np.array([0, 1, 2]), np.array([1, 2, 0]))
        >>> scores = Potentials(np.array([[1.0, 0.0], [0, 0], [0, 0]]), np.eye(2)[None], ring)
        >>> best, messages = TreeReweightedEngine().run(scores, Semiring.MAX)
        >>> best.exact, best.total.tolist(), messages.shape
        (True, [4.0], (3, 2, 2))
        """
        check_scores(potentials)
        links = links_of(potentials.topology)
        rho = tree_shares(potentials.topology, n_trees=self.n_trees, seed=self.seed)
        done = propagated(
            potentials,
            links,
            semiring,
            rho,
            schedule=self.schedule,
            damping=self.damping,
            max_sweeps=self.max_sweeps,
            tol=self.tol,
            messages=messages,
            n_jobs=self.n_jobs,
        )
        settled = bool((done.residual <= self.tol).all())
        exact = settled and bool(links.forest.all())
        sweeps = int(done.sweeps.max(initial=0))
        if semiring is Semiring.MAX:
            total, node, edge = labelled(potentials, links, done, rho, self.n_jobs)
            # Scores that meet the bound to rounding are the best.
            same = np.isclose(total, done.total, rtol=1e-9, atol=1e-9)
            exact = settled and bool((links.forest | same).all())
            return Beliefs(total, node, edge, exact, settled, sweeps, "exact" if exact else "lower"), done.messages
        bound = "exact" if exact else "upper" if settled else "estimate"
        edge = links.spread(potentials, done.edge)
        return Beliefs(done.total, done.node, edge, exact, settled, sweeps, bound), done.messages


def tree_shares(topology: Chains | Graphs, *, n_trees: int = 16, seed: int = 0) -> np.ndarray:
    """(links,) ρ: in which share of some spanning trees each pair of neighbours is; never zero.

    >>> import numpy as np
    >>> kite = Graphs(np.array([0, 4]), np.array([0, 1, 2, 2]), np.array([1, 2, 0, 3]))
    >>> rho = tree_shares(kite)
    >>> float(rho[:3].sum().round(12)), float(rho[3])
    (2.0, 1.0)
    """
    integer(1)("n_trees", n_trees)
    links = links_of(topology)
    if links.forest.all():
        return np.ones(len(links.tails))
    known = _shares.setdefault(topology, {})
    if (n_trees, seed) not in known:
        known[n_trees, seed] = _find_shares(links, topology.n_nodes, n_trees, np.random.default_rng(seed))
    return known[n_trees, seed]


def _find_shares(links: Links, nodes: int, n_trees: int, rng: np.random.Generator) -> np.ndarray:
    from scipy.sparse.csgraph import minimum_spanning_tree

    ends = (np.minimum(links.tails, links.heads), np.maximum(links.tails, links.heads))
    order = np.lexsort(ends[::-1])  # as the rows of a sorted matrix
    met = np.zeros(len(order))
    trees = 0
    while trees < n_trees or (trees < MOST * n_trees and not met.all()):
        # One more than the count: a weight of zero would be no edge.
        weight = 1.0 + met + rng.random(len(met))
        tree = minimum_spanning_tree(link_matrix(*ends, nodes, weight)).tocoo()
        place = np.searchsorted(ends[0][order] * nodes + ends[1][order], tree.row.astype(np.int64) * nodes + tree.col)
        met[order[place]] += 1
        trees += 1
    rho: np.ndarray = met / trees
    if not met.all():
        rho = 0.5 * rho + 0.5 / _degeneracy(*ends, nodes)
    return rho


def _degeneracy(low: np.ndarray, high: np.ndarray, nodes: int) -> int:
    """The least d such that each node, in some order, has at most d neighbours after it (Matula & Beck 1983)."""
    source = np.concatenate([low, high])
    other = np.concatenate([high, low])[np.argsort(source, kind="stable")]
    first = np.concatenate([[0], np.cumsum(np.bincount(source, minlength=nodes))]).astype(np.int64)
    degree = np.diff(first)
    here = np.ones(nodes, bool)
    d = 0
    while here.any():
        d = max(d, int(degree[here].min()))
        # All nodes of at most d neighbours go at once; those they leave behind may follow in the next round.
        gone = np.flatnonzero(here & (degree <= d))
        here[gone] = False
        for n in gone:
            degree[other[first[n] : first[n + 1]]] -= 1
    return d
