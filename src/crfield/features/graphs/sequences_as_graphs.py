"""Sequences or graphs: one reading of X for models that do not care which.

A model whose scores belong to nodes and to relations needs no more of a sequence than that its steps are nodes and
that each is joined to the next. So X may be a list of `Graph`, or a list of sequences in any form that `ChainCRF`
reads without a template or functions; sequences become graphs of one kind, "step", with one relation, "+1". Nothing
is copied: the columns of a batch of sequences are those of the graphs.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from crfield.core.graphs import Graphs
from crfield.data.batch import Batch
from crfield.data.graphs.batch import GraphBatch, GraphSchema, NodeKind, Relation
from crfield.data.graphs.graph import Graph
from crfield.errors import InputError, ModelFileError
from crfield.features.detect import encoder_for, encoder_from_state
from crfield.features.encoder import Encoder
from crfield.features.graphs.encoder import GraphEncoder

KIND, RELATION = "step", "+1"


class StepsOrGraphs:
    """Encoder of whatever X holds, learnt in ``fit``.

    >>> reader = StepsOrGraphs()
    >>> reader.fit([[["a"], ["b"]], [["b"]]])
    GraphBatch(2 graphs, 3 nodes, 1 edges, 2 + 0 columns)
    >>> reader.schema.relations[0].name, reader.of_graphs
    ('+1', False)
    >>> reader.encode([Graph(2)])
    Traceback (most recent call last):
    crfield.errors.InputError: the model was fitted on sequences, got graphs. Give sequences, or fit it on graphs.
    """

    def __init__(self, *, standardize: bool = False) -> None:
        self.standardize = bool(standardize)
        self.encoder: Encoder | GraphEncoder | None = None
        self.schema = GraphSchema(())

    @property
    def of_graphs(self) -> bool:
        """Whether X was a list of graphs."""
        return isinstance(self.encoder, GraphEncoder)

    def fit(self, X: Any, *, min_count: int = 1) -> GraphBatch:
        """Learn the columns and encode."""
        if _holds_graphs(X):
            encoder = GraphEncoder(standardize=self.standardize)
            batch = encoder.fit(X, min_count=min_count)
            self.encoder, self.schema = encoder, encoder.schema
            return batch
        steps = encoder_for(X, standardize=self.standardize)
        encoded = steps.fit(X, min_count=min_count)
        self.encoder, self.schema = steps, _schema(encoded)
        return _as_graphs(encoded)

    def encode(self, X: Any) -> GraphBatch:
        """Encode X with the columns learnt in ``fit``."""
        encoder = self.encoder
        if encoder is None:
            raise InputError("nothing was learnt yet: call fit(X) first.")
        if hasattr(X, "__len__") and len(X) and _holds_graphs(X) != self.of_graphs:
            mine, other = ("graphs", "sequences") if self.of_graphs else ("sequences", "graphs")
            raise InputError(f"the model was fitted on {mine}, got {other}. Give {mine}, or fit it on {other}.")
        if isinstance(encoder, GraphEncoder):
            return encoder.encode(X)
        return _as_graphs(encoder.encode(X))

    def state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """A JSON-able header and arrays, for model files."""
        encoder = self.encoder
        if encoder is None:
            raise InputError("nothing was learnt yet: call fit(X) first.")
        header, arrays = encoder.state()
        return {"of_graphs": self.of_graphs, "encoder": header}, arrays

    @classmethod
    def from_state(cls, header: dict[str, Any], arrays: dict[str, np.ndarray]) -> StepsOrGraphs:
        """The reader whose ``state`` this is; ModelFileError where it cannot be one."""
        inner, of_graphs = header.get("encoder"), header.get("of_graphs")
        if not isinstance(inner, dict) or not isinstance(of_graphs, bool):
            raise ModelFileError("the model file lacks its encoder: the file is damaged.")
        reader = cls(standardize=bool(inner.get("standardize", False)))
        if of_graphs:
            graphs = GraphEncoder.from_state(inner, arrays)
            reader.encoder, reader.schema = graphs, graphs.schema
        else:
            steps = encoder_from_state(inner, arrays)
            reader.encoder, reader.schema = steps, _schema(steps.encode([]))
        return reader


def _holds_graphs(X: Any) -> bool:
    if isinstance(X, Graph):
        raise InputError("X must be a list of graphs, got a single Graph. Write [X].")
    if isinstance(X, str | bytes) or not hasattr(X, "__len__") or not hasattr(X, "__getitem__") or not len(X):
        return False
    return isinstance(next(iter(X)), Graph)


def _schema(batch: Batch) -> GraphSchema:
    kind = NodeKind(KIND, columns=(0, batch.node.width), dense=(0, batch.node.n_dense))
    return GraphSchema((kind,), (Relation(RELATION),))


def _as_graphs(batch: Batch) -> GraphBatch:
    chains = batch.topology
    return GraphBatch(
        Graphs.from_chains(chains),
        batch.node,
        np.zeros(chains.n_nodes, np.int32),
        np.zeros(chains.n_edges, np.int32),
        (None,),
    )
