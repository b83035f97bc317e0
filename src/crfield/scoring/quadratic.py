"""Scores of real-valued labels: what holds a label to its features, and what holds neighbours together.

    score(y) = −½ Σ_n Σ_k α_k (y_n − r_k(x_n))² − ½ Σ_e β_e (y_tail − y_head)²  +  terms without y

The *association* says what a node's features predict. With ``"linear"`` there is one prediction r(x) = ⟨w, x⟩ + w₀
with the precision α; with ``"columns"`` every column is a prediction of its own, made by somebody else, and is
trusted by its own α_k (Qin, Liu, Zhang, Wang & Li 2008, *Global ranking using continuous conditional random
fields*; Radosavljevic, Vucetic & Obradovic 2010, *Continuous conditional random fields for regression in remote
sensing*). The *interaction* of an edge of relation r is β_e = exp(u_r + ⟨v_r, z_e⟩), with the edge's columns z if
it has any.

All precisions are exponentials of weights, so that Q is positive definite whatever the weights are; those beyond
e^±25 are cut off there.

    weights = [ log α (A) | w (K) | w₀ | for each relation: u_r, v_r ]
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from crfield.core.quadratic import Quadratic, QuadraticEvaluation
from crfield.data.batch import matrix_of
from crfield.data.graphs.batch import GraphBatch
from crfield.errors import ShapeError

ASSOCIATIONS = ("linear", "columns")
FARTHEST = 25.0  # of a log-precision from 0


@dataclass(frozen=True)
class QuadraticScorer:
    """Weights and graphs in, `Quadratic` out, and the gradient back.

    >>> from crfield.core.graphs import Graphs
    >>> from crfield.data.batch import Columns
    >>> nodes = Columns(np.zeros(3), np.zeros(0), 0, dense=np.array([[1.0], [2.0]]))
    >>> batch = GraphBatch(Graphs([0, 2], [0], [1]), nodes, kind=[0, 0], relation=[0], edge=(None,))
    >>> scorer = QuadraticScorer("linear", n_columns=1, edge_columns=(0,))
    >>> field = scorer.score(np.array([0.0, 3.0, 1.0, np.log(2.0)]), batch)
    >>> field.node.tolist(), field.edge.tolist(), field.linear.tolist()
    ([3.0, 3.0], [-2.0], [4.0, 7.0])
    """

    association: str
    n_columns: int  # K
    edge_columns: tuple[int, ...]  # of each relation

    @property
    def n_associations(self) -> int:
        """A."""
        return 1 if self.association == "linear" else self.n_columns

    @cached_property
    def part(self) -> dict[str, slice]:
        """Slices of the weights: "association", "coef", "intercept", "interaction"."""
        linear = self.association == "linear"
        sizes = {
            "association": self.n_associations,
            "coef": self.n_columns * linear,
            "intercept": int(linear),
            "interaction": sum(1 + some for some in self.edge_columns),
        }
        ends = np.cumsum(list(sizes.values())).tolist()
        return {name: slice(end - size, end) for (name, size), end in zip(sizes.items(), ends)}

    @property
    def n_weights(self) -> int:
        """W."""
        return int(self.part["interaction"].stop)

    def relation(self, number: int) -> slice:
        """Where the weights of a relation are: u, then v."""
        first = self.part["interaction"].start + sum(1 + some for some in self.edge_columns[:number])
        return slice(first, first + 1 + self.edge_columns[number])

    def score(self, weights: np.ndarray, batch: GraphBatch) -> Quadratic:
        """Precision and linear term of a batch."""
        rows = self._rows(batch)
        alpha, predicted = self._associations(weights, rows)
        beta = self._interactions(weights, batch)
        node = np.full(batch.topology.n_nodes, alpha.sum())
        topology, n = batch.topology, batch.topology.n_nodes
        node += np.bincount(topology.tails, beta, minlength=n) + np.bincount(topology.heads, beta, minlength=n)
        linear = alpha[0] * predicted if self.association == "linear" else np.asarray(rows @ alpha)
        return Quadratic(node, -beta, linear, topology)

    def pull(self, gradient: QuadraticEvaluation, weights: np.ndarray, batch: GraphBatch) -> np.ndarray:
        """The gradient of the weights (W,)."""
        out = np.zeros(self.n_weights)
        rows = self._rows(batch)
        alpha, predicted = self._associations(weights, rows)
        inside = np.abs(weights[self.part["association"]]) < FARTHEST
        node = float(gradient.node.sum())
        if self.association == "linear":
            slope = node + float(gradient.linear @ predicted)
            out[self.part["coef"]] = alpha[0] * (rows.T @ gradient.linear)
            out[self.part["intercept"]] = alpha[0] * gradient.linear.sum()
        else:
            slope = node + rows.T @ gradient.linear
        out[self.part["association"]] = alpha * slope * inside
        beta = self._interactions(weights, batch)
        tails, heads = batch.topology.tails, batch.topology.heads
        per_edge = beta * (gradient.node[tails] + gradient.node[heads] - gradient.edge)
        for number in range(len(self.edge_columns)):
            at = batch.edges_of(number)
            moved = self._log_precision(weights, batch, number)
            slopes = np.where(np.abs(moved) < FARTHEST, per_edge[at], 0.0)
            place = self.relation(number)
            out[place.start] = slopes.sum()
            if self.edge_columns[number]:
                out[place.start + 1 : place.stop] = self._edge_rows(batch, number).T @ slopes
        return out

    def _rows(self, batch: GraphBatch) -> Any:
        rows = matrix_of(batch.node)
        if rows.shape[1] != self.n_columns:
            raise ShapeError(f"the nodes have {rows.shape[1]} columns, the weights are for {self.n_columns}.")
        return rows

    def _associations(self, weights: np.ndarray, rows: Any) -> tuple[np.ndarray, np.ndarray]:
        """Precisions (A,), and the prediction (N,) of the linear form."""
        alpha = np.exp(np.clip(weights[self.part["association"]], -FARTHEST, FARTHEST))
        if self.association != "linear":
            return alpha, np.zeros(0)
        return alpha, np.asarray(rows @ weights[self.part["coef"]]) + weights[self.part["intercept"]]

    def _interactions(self, weights: np.ndarray, batch: GraphBatch) -> np.ndarray:
        """(E,) β."""
        beta = np.zeros(batch.topology.n_edges)
        for number in range(len(self.edge_columns)):
            moved = self._log_precision(weights, batch, number)
            beta[batch.edges_of(number)] = np.exp(np.clip(moved, -FARTHEST, FARTHEST))
        return beta

    def _log_precision(self, weights: np.ndarray, batch: GraphBatch, number: int) -> np.ndarray:
        own = weights[self.relation(number)]
        moved = np.full(len(batch.edges_of(number)), own[0])
        return moved + self._edge_rows(batch, number) @ own[1:] if self.edge_columns[number] else moved

    def _edge_rows(self, batch: GraphBatch, number: int) -> Any:
        columns = batch.edge[number]
        if columns is None:
            return np.zeros((len(batch.edges_of(number)), self.edge_columns[number]))
        return matrix_of(columns)
