"""The user's graphs, labels and weights as every model of graphs reads them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from crfield.core.target import Target, check_weights
from crfield.core.typing import Labels, Weights
from crfield.data.graphs.batch import GraphBatch
from crfield.data.graphs.graph import Graph
from crfield.data.graphs.labels import GraphLabels
from crfield.data.large import refuse_large
from crfield.errors import InputError
from crfield.features.graphs.encoder import GraphEncoder


@dataclass(frozen=True, eq=False)
class GraphData:
    """Graphs as training sees them: their columns, and the truth of their nodes."""

    encoder: GraphEncoder
    labels: GraphLabels
    batch: GraphBatch
    target: Target


def read_graphs(
    graphs: Sequence[Graph],
    y: Labels,
    sample_weight: Weights = None,
    *,
    standardize: bool = False,
    min_count: int = 1,
    known: tuple[GraphEncoder, GraphLabels] | None = None,
    compared: bool = False,
) -> GraphData:
    """Graphs with the labels y of their nodes; columns and labels are those ``known``, or else learnt from these.

    Numbers too large to be added up are refused, and NaN, unless they are only ``compared`` with others: then NaN is
    a missing value.

    >>> data = read_graphs([Graph([[0.5], [1.5]], [(0, 1)])], [["a", "b"]])
    >>> data.target.labels.tolist()
    [0, 1]
    """
    encoder = GraphEncoder(standardize=standardize, missing=compared) if known is None else known[0]
    batch = encoder.fit(graphs, min_count=min_count) if known is None else encoder.encode(graphs)
    if batch.topology.n_nodes == 0:
        raise InputError("X holds no steps or nodes at all; at least one is needed to train.")
    labels = GraphLabels([kind.name for kind in encoder.schema.kinds]).fit(y, batch) if known is None else known[1]
    if not compared:
        refuse_large(batch, encoder)
    return GraphData(encoder, labels, batch, target_of(batch, labels, y, sample_weight))


def target_of(batch: GraphBatch, coder: GraphLabels, labels: Labels, sample_weight: Weights) -> Target:
    """The truth of a batch, with one weight for each graph if given."""
    codes, allowed = coder.encode(labels, batch)
    weight = None if sample_weight is None else check_weights(sample_weight, batch.n_graphs)
    return Target(batch.topology, coder.n_labels, codes, allowed, weight)
