"""The exact engine of Gaussian fields: sparse Cholesky, and the part of the inverse that is asked for.

    μ = Q⁻¹ b      total = ½ bᵀμ − ½ log det Q + ½ n log 2π      variances and neighbours' covariances: cells of Q⁻¹

Never is the whole inverse made. Chains have a tridiagonal Q: LAPACK factors all of them in one banded call, and the
diagonal of the inverse follows from the factor L by a recursion from the last step to the first,

    Σ_tt = 1 / L_tt² + c_t² Σ_{t+1,t+1}        Σ_{t,t+1} = −c_t Σ_{t+1,t+1}        c_t = L_{t+1,t} / L_tt

of positive terms only, itself a banded system. Other graphs are factored front by front (Duff & Reid 1983): nodes
are taken in an order of small fill, those with the same neighbours together, and each group is eliminated in a
small dense matrix that is then added to its parent's. The cells of the inverse on the pattern of the factor come
back down the same tree (Takahashi, Fagan & Chen 1973; Erisman & Tinney 1975), and every edge of the graph lies in
that pattern. The order depends on the graph alone and is kept with it.

Cost: O(N) for chains and forests, O(N^1.5) for grids. A precision that is not positive definite is an error that
names the graph.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from crfield.core.graphs import Graphs
from crfield.core.quadratic import Gaussian, Quadratic
from crfield.core.topology import Chains
from crfield.errors import InputError

LOG_2PI = float(np.log(2.0 * np.pi))
_fronts: WeakKeyDictionary[Chains | Graphs, list[Front]] = WeakKeyDictionary()


@dataclass(frozen=True)
class GaussianEngine:
    """Exact totals, means, variances and neighbours' covariances.

    >>> field = Quadratic(np.array([2.0, 2.0]), np.array([-1.0]), np.array([3.0, 0.0]), Chains.from_lengths([2]))
    >>> found = GaussianEngine().infer(field)
    >>> found.mean.round(12).tolist(), found.variance.round(12).tolist(), found.covariance.round(12).tolist()
    ([2.0, 1.0], [0.666666666667, 0.666666666667], [0.333333333333])
    """

    def infer(self, field: Quadratic) -> Gaussian:
        """Everything that the gradient of the total needs."""
        if field.topology.n_nodes == 0:
            none = np.zeros(0)
            return Gaussian(np.zeros(field.topology.n_sequences), none, none, none)
        if tridiagonal(field.topology):
            mean, log_det, variance, covariance = _chain_answers(field)
        else:
            mean, log_det, variance, covariance = _front_answers(field)
        topology = field.topology
        half = field.linear * mean - log_det + LOG_2PI
        total = 0.5 * np.bincount(topology.sequence_of_node, half, minlength=topology.n_sequences)
        return Gaussian(total, mean, variance, covariance)

    def sample(self, field: Quadratic, rng: np.random.Generator) -> np.ndarray:
        """(N,) a draw of all labels.

        >>> wide = Quadratic(np.full(2, 1e-2), np.zeros(1), np.zeros(2), Chains.from_lengths([2]))
        >>> GaussianEngine().sample(wide, np.random.default_rng(0)).round(3).tolist()
        [1.257, -1.321]
        """
        noise = rng.standard_normal(field.topology.n_nodes)
        if tridiagonal(field.topology):
            from scipy.linalg import solve_banded

            diagonal, below = _chain_factor(field)
            band = np.zeros((2, len(diagonal)))
            band[0, 1:], band[1] = below, diagonal
            drawn = solve_banded((0, 1), band, noise, check_finite=False)
            return _chain_solve(diagonal, below, field.linear) + drawn
        factor = _Factor(field)
        return factor.solve(field.linear) + factor.backward(noise)


def tridiagonal(topology: Chains | Graphs) -> bool:
    """Whether every edge joins a node to the next one.

    >>> tridiagonal(Chains.from_lengths([3])), tridiagonal(Graphs([0, 3], [0], [2]))
    (True, False)
    """
    return isinstance(topology, Chains) or bool((np.abs(topology.heads - topology.tails) == 1).all())


# -------------------------------------------------------------------------------------------------------- chains


def _chain_factor(field: Quadratic) -> tuple[np.ndarray, np.ndarray]:
    """Diagonal (N,) and the entries below it (N − 1,) of the Cholesky factor of all chains."""
    from scipy.linalg.lapack import dpbtrf

    topology = field.topology
    band = np.zeros((2, topology.n_nodes))
    band[0] = field.node
    np.add.at(band[1], np.minimum(topology.tails, topology.heads), field.edge)
    factor, info = dpbtrf(band, lower=1)
    if info:
        raise InputError(_indefinite(field, int(info) - 1))
    return factor[0], factor[1, :-1]


def _chain_solve(diagonal: np.ndarray, below: np.ndarray, right: np.ndarray) -> np.ndarray:
    from scipy.linalg import cho_solve_banded

    band = np.zeros((2, len(diagonal)))
    band[0], band[1, :-1] = diagonal, below
    return cho_solve_banded((band, True), right, check_finite=False)


def _chain_answers(field: Quadratic) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    from scipy.linalg import solve_banded

    diagonal, below = _chain_factor(field)
    mean = _chain_solve(diagonal, below, field.linear)
    ratio = below / diagonal[:-1]
    band = np.ones((2, len(diagonal)))
    band[0, 0], band[0, 1:] = 0.0, -(ratio**2)
    variance = solve_banded((0, 1), band, 1.0 / diagonal**2, check_finite=False)
    first = np.minimum(field.topology.tails, field.topology.heads)
    return mean, 2.0 * np.log(diagonal), variance, -ratio[first] * variance[first + 1]


# -------------------------------------------------------------------------------------------------------- graphs


@dataclass(frozen=True, eq=False)
class Front:
    """A group of nodes that are eliminated together, and the later ones that they then join."""

    nodes: np.ndarray  # (P,) eliminated here
    rest: np.ndarray  # (S,) eliminated later
    parent: int  # the front that holds rest[0], or −1
    place: np.ndarray  # (S,) where the rest stands in the parent's [nodes, rest]
    edges: np.ndarray  # (A,) edges assembled here
    row: np.ndarray  # (A,) where their earlier end stands in [nodes, rest]
    column: np.ndarray  # (A,) and their later


class _Factor:
    """The Cholesky factor of a field, front by front."""

    def __init__(self, field: Quadratic) -> None:
        from scipy.linalg.lapack import dpotrf

        self.field, self.fronts = field, fronts_of(field.topology)
        self.pivot: list[np.ndarray] = []  # (P, P) lower factor
        self.lower: list[np.ndarray] = []  # (S, P) rows of the rest
        waiting: dict[int, list[tuple[np.ndarray, np.ndarray]]] = {}
        for number, front in enumerate(self.fronts):
            p, size = len(front.nodes), len(front.nodes) + len(front.rest)
            matrix = np.zeros((size, size))
            matrix[np.arange(p), np.arange(p)] = field.node[front.nodes]
            # Later rows, earlier columns: only the lower triangle is read.
            np.add.at(matrix, (front.column, front.row), field.edge[front.edges])
            for place, update in waiting.pop(number, ()):
                matrix[np.ix_(place, place)] += update
            corner = matrix[:p, :p]
            pivot, info = dpotrf(corner, lower=1, clean=1)
            if info:
                raise InputError(_indefinite(field, int(front.nodes[0])))
            lower = _solved(pivot, matrix[p:, :p].T).T
            self.pivot.append(pivot)
            self.lower.append(lower)
            if front.parent >= 0:
                # The place rises with the order of elimination, so a lower triangle lands in a lower triangle.
                update = np.tril(matrix[p:, p:] - lower @ lower.T)
                waiting.setdefault(front.parent, []).append((front.place, update))

    def log_det(self) -> np.ndarray:
        """(N,) what each node brings to log det Q."""
        out = np.zeros(self.field.topology.n_nodes)
        for front, pivot in zip(self.fronts, self.pivot):
            out[front.nodes] = 2.0 * np.log(np.diagonal(pivot))
        return out

    def forward(self, right: np.ndarray) -> np.ndarray:
        """L⁻¹ right."""
        out = right.copy()
        for front, pivot, lower in zip(self.fronts, self.pivot, self.lower):
            own = _solved(pivot, out[front.nodes])
            out[front.nodes] = own
            out[front.rest] -= lower @ own
        return out

    def backward(self, right: np.ndarray) -> np.ndarray:
        """L⁻ᵀ right."""
        out = right.copy()
        for front, pivot, lower in zip(self.fronts[::-1], self.pivot[::-1], self.lower[::-1]):
            own = out[front.nodes] - lower.T @ out[front.rest]
            out[front.nodes] = _solved(pivot, own, transposed=True)
        return out

    def solve(self, right: np.ndarray) -> np.ndarray:
        """Q⁻¹ right."""
        return self.backward(self.forward(right))

    def inverse(self) -> tuple[np.ndarray, np.ndarray]:
        """Diagonal (N,) of Q⁻¹, and its entries on the edges (E,)."""
        topology = self.field.topology
        variance, covariance = np.zeros(topology.n_nodes), np.zeros(topology.n_edges)
        blocks: dict[int, np.ndarray] = {}
        children = np.bincount([f.parent + 1 for f in self.fronts], minlength=len(self.fronts) + 1)[1:]
        for number in range(len(self.fronts) - 1, -1, -1):
            front, pivot, lower = self.fronts[number], self.pivot[number], self.lower[number]
            p, size = len(front.nodes), len(front.nodes) + len(front.rest)
            own = _solved(pivot, np.eye(p))
            block = np.empty((size, size))
            corner = own.T @ own
            if size > p:
                rest = blocks[front.parent][np.ix_(front.place, front.place)]
                gain = lower @ own  # L_rest pivot⁻¹
                across = -rest @ gain
                block[p:, p:], block[p:, :p], block[:p, p:] = rest, across, across.T
                corner -= gain.T @ across
            block[:p, :p] = corner
            variance[front.nodes] = np.diagonal(corner)
            covariance[front.edges] = block[front.row, front.column]
            if front.parent >= 0:
                children[front.parent] -= 1
                if not children[front.parent]:
                    del blocks[front.parent]
            if children[number]:
                blocks[number] = block
        return variance, covariance


def _solved(pivot: np.ndarray, right: np.ndarray, *, transposed: bool = False) -> np.ndarray:
    """pivot⁻¹ right, or pivot⁻ᵀ right, for a lower triangular pivot."""
    if len(pivot) == 1 or not right.size:
        return right / pivot[0, 0]
    from scipy.linalg.lapack import dtrtrs

    return dtrtrs(pivot, right, lower=1, trans=int(transposed))[0]


def _front_answers(field: Quadratic) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    factor = _Factor(field)
    return factor.solve(field.linear), factor.log_det(), *factor.inverse()


def fronts_of(topology: Chains | Graphs) -> list[Front]:
    """The plan of elimination, found once for a topology.

    >>> square = Graphs([0, 4], [0, 1, 2, 3], [1, 2, 3, 0])
    >>> [(len(front.nodes), len(front.rest)) for front in fronts_of(square)]
    [(1, 2), (1, 2), (2, 0)]
    """
    found = _fronts.get(topology)
    if found is None:
        found = _fronts[topology] = _plan(topology)
    return found


def _plan(topology: Chains | Graphs) -> list[Front]:
    order = _order(topology)
    n = topology.n_nodes
    rank = np.empty(n, np.int64)
    rank[order] = np.arange(n)
    ends = rank[np.stack([topology.tails, topology.heads])]
    early, late = ends.min(axis=0), ends.max(axis=0)
    links: list[set[int]] = [set() for _ in range(n)]
    for a, b in zip(early.tolist(), late.tolist()):
        links[a].add(b)
    parent = np.full(n, -1, np.int64)
    n_children = np.zeros(n, np.int64)
    for a in range(n):
        if links[a]:
            up = min(links[a])
            parent[a] = up
            n_children[up] += 1
            links[up] |= links[a] - {up}
    first = [True] * n  # whether a group begins here
    for a in range(n - 1):
        if parent[a] == a + 1 and n_children[a + 1] == 1 and len(links[a]) == len(links[a + 1]) + 1:
            first[a + 1] = False
    starts = np.flatnonzero(first)
    group = np.cumsum(first) - 1
    stops = np.append(starts[1:], n)
    at = np.argsort(group[early], kind="stable")
    cuts = np.searchsorted(group[early][at], np.arange(len(starts) + 1))
    members = [np.array([*range(a, b), *sorted(links[b - 1])], np.int64) for a, b in zip(starts, stops)]
    fronts = []
    for number, (a, b) in enumerate(zip(starts.tolist(), stops.tolist())):
        rest = members[number][b - a :]
        up = int(group[rest[0]]) if len(rest) else -1
        edges = at[cuts[number] : cuts[number + 1]]
        fronts.append(
            Front(
                order[a:b],
                order[rest],
                up,
                np.searchsorted(members[up], rest) if up >= 0 else rest,
                edges,
                np.searchsorted(members[number], early[edges]),
                np.searchsorted(members[number], late[edges]),
            )
        )
    return fronts


def _order(topology: Chains | Graphs) -> np.ndarray:
    """(N,) nodes in an order of little fill: minimum degree, as SuperLU finds it."""
    from scipy.sparse import coo_array, eye_array
    from scipy.sparse.linalg import splu

    n = topology.n_nodes
    ones = np.ones(2 * topology.n_edges)
    ends = np.concatenate([topology.tails, topology.heads])
    others = np.concatenate([topology.heads, topology.tails])
    links: Any = coo_array((ones, (ends, others)), shape=(n, n)).tocsc()
    links.data[:] = -1.0
    degree = np.asarray(abs(links).sum(axis=0)).ravel()
    matrix = (links + eye_array(n, format="csc") * (1.0 + degree.max(initial=0.0))).tocsc()
    options = {"SymmetricMode": True, "Equil": False}
    found = splu(matrix, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options=options).perm_c
    return np.argsort(found).astype(np.int64)


def _indefinite(field: Quadratic, node: int) -> str:
    graph = int(np.searchsorted(field.topology.offsets, node, side="right")) - 1
    return (
        f"the precision of graph {graph} is not positive definite, so that its labels have no distribution. Every "
        "node needs a score of its own that holds it, and edges must not push it away more strongly."
    )
