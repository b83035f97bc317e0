"""Data of any size on disk: written there encoded, in two passes and bounded memory, and trained on shard by shard.

Of the two passes that write, the first learns what there is, features and labels, and counts features; the second
writes columns (`storage.encoded`). Both read the data part by part, and only one part, the alphabet and the shard
that is being filled are in memory. Columns are numbered in the order of the data and labels are sorted, so a model
trained on the data set is the one that ``fit`` on all of the data in memory would give.

Numeric columns with ``standardize=True`` get the scale of the first part in which they occur.

To train on such data (`crfield.EncodedDataset`) takes one more pass over the shards, for the layout; after that a
solver sees one problem, `training.chain.shards.ShardedChain`, of which one shard is in memory at a time. Within
`crfield.cluster` both passes are made by workers, and the problem is `training.cluster.chain.ClusterChain`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from crfield.core.checks import integer
from crfield.core.target import Target, check_weights
from crfield.core.typing import Feature, FilePath, Labels, Sequences, Transformer, Weights
from crfield.data.batch import Batch
from crfield.data.label_growth import grown_labels
from crfield.data.labels import LabelCoder
from crfield.data.large import refuse_large
from crfield.errors import InputError, ModelFileError
from crfield.estimators.chain.early_stopping import numbered
from crfield.estimators.chain.model import ColumnModel
from crfield.features.columns.select import check_min_count, row_counts
from crfield.features.detect import encoder_for
from crfield.features.encoder import Encoder
from crfield.features.growth import grow, without_rare
from crfield.features.templates.template import Template
from crfield.scoring.layout import Layout
from crfield.scoring.layout_growth import joined
from crfield.storage.encoded import SHARD_BYTES, DatasetWriter, EncodedDataset
from crfield.storage.exchange import template_text
from crfield.training.chain.higher_order import HigherOrderParts
from crfield.training.chain.plan import ChainParts, Plan
from crfield.training.chain.shards import SHARD_SOLVERS, ShardedChain
from crfield.training.column_basis import Moments
from crfield.training.full_batch import FullBatch
from crfield.training.likelihood import FusedChain

Part = Sequence[Any]  # (X, y) or (X, y, weights)
Parts = Iterable[Part] | Callable[[], Iterable[Part]]
ON_DISK = (*SHARD_SOLVERS, "cg", "projected_cg")  # solvers that read data on disk
_INSTEAD = {  # of those that look at single sequences or at second derivatives
    "primal_dual": "solver='warm', stochastic epochs shard by shard and then L-BFGS, to the same optimum",
    "newton_cg": "solver='lbfgs', which comes to the same optimum",
    "gis": "solver='lbfgs', which comes to the same optimum",
    "sgd": "solver='warm', stochastic epochs shard by shard and then L-BFGS",
    "sgd_l1": "solver='warm' with the same l1: stochastic epochs shard by shard and then OWL-QN",
    "adagrad": "solver='warm', stochastic epochs shard by shard and then L-BFGS, or partial_fit on parts of the data",
}
_MARGIN = (
    "objective='softmax_margin' with solver='lbfgs', whose margin is smooth, or partial_fit on parts of the data"
)
NOTHING = "the data set holds no steps at all; at least one sequence with one step is needed."


def encode_dataset(
    parts: Parts,
    path: FilePath,
    *,
    features: Transformer | None = None,
    template: str | os.PathLike[str] | Template | None = None,
    functions: Sequence[Feature] | None = None,
    transition_functions: Sequence[Feature] = (),
    transition_features: str | Sequence[Any] | None = None,
    standardize: bool = False,
    min_count: int = 1,
    shard_bytes: int = SHARD_BYTES,
) -> EncodedDataset:
    """Write the parts, pairs (X, y) or triples (X, y, weights), to a new folder and open it.

    ``parts`` is read twice: a list, or a function that begins anew when it is called. The other options are those of
    `ChainCRF`; ``shard_bytes`` is about the size of one shard, of which training holds one in memory at a time.

    >>> import os, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     encode_dataset([([[["a"], ["b"]]], [["N", "V"]])], os.path.join(folder, "data")).labels.tolist()
    ['N', 'V']
    """
    integer(1)("shard_bytes", shard_bytes)
    if getattr(features, "min_count", 1) != 1:
        raise InputError(
            "features with min_count above 1 would count the words of the first part only. Use features with "
            "min_count=1, and min_count=… of encode_dataset for rare columns."
        )
    given = template = template_text(template)
    least = max(check_min_count(min_count), 1)
    sources = {
        "features": features,
        "template": template,
        "functions": functions,
        "transition_functions": transition_functions,
        "transition_features": transition_features,
        "standardize": standardize,
    }
    learnt = learn_columns(parts, sources, count=least > 1)
    if learnt is None:
        raise InputError("there is nothing to encode: parts holds no pair (X, y).")
    encoder, coder = learnt.encoder, learnt.coder
    if least > 1:
        encoder = without_rare(encoder, *(count >= least for count in learnt.counts))
    coder = LabelCoder().fit([coder.labels])
    with DatasetWriter(path, coder, shard_bytes=int(shard_bytes)) as writer:
        for batch, goal in encoded_parts(parts, encoder, coder):
            writer.add(batch, goal)
        text: str | None = template.text if isinstance(template, Template) else given
        return writer.close(*encoder.state(), template=text)


@dataclass(frozen=True, eq=False)
class Learnt:
    """What a pass over data learnt: an encoder, labels, and how often each column of steps and of edges was met."""

    encoder: Encoder
    coder: LabelCoder
    counts: tuple[np.ndarray, np.ndarray]  # of no columns where nobody asked for them


def learn_columns(parts: Parts, sources: dict[str, Any], *, count: bool) -> Learnt | None:
    """The first pass: columns and labels of all parts, by the options ``sources`` of `encoder_for`."""
    encoder: Encoder | None = None
    coder: LabelCoder | None = None
    counts, seen = [np.zeros(0, np.int64), np.zeros(0, np.int64)], 0
    for X, y, _ in read_parts(parts):
        if encoder is None:
            encoder = encoder_for(X, **sources)
            batch, places = encoder.fit(X), [np.zeros(0, np.int64)] * 2
        else:
            grown = grow(encoder, X)
            encoder, batch, places = grown.encoder, grown.batch, [grown.node, grown.edge]
        with numbered(range(seen, seen + batch.topology.n_sequences)):
            refuse_large(batch, encoder)
        seen += batch.topology.n_sequences
        coder = grown_labels(coder, y)
        if count:
            for side, columns in enumerate((batch.node, batch.edge)):
                if columns is not None:
                    total = row_counts(columns)
                    total[places[side]] += counts[side]
                    counts[side] = total
    return None if encoder is None or coder is None else Learnt(encoder, coder, (counts[0], counts[1]))


def encoded_parts(parts: Parts, encoder: Encoder, coder: LabelCoder) -> Iterator[tuple[Batch, Target]]:
    """The second pass: columns and targets of all parts."""
    for X, y, weights in read_parts(parts):
        batch = encoder.encode(X)
        labels, allowed = coder.encode(y, batch.topology.lengths)
        weight = None if weights is None else check_weights(weights, batch.topology.n_sequences)
        yield batch, Target(batch.topology, coder.n_labels, labels, allowed, weight)


def read_parts(parts: Parts) -> Iterator[tuple[Sequences, Labels, Weights]]:
    """Triples (X, y, weights) of parts, which begin anew with every call."""
    given = parts() if callable(parts) else parts
    if iter(given) is given and not callable(parts):
        raise InputError(
            "parts is read twice, and an iterator can be read only once. Give a list of parts, or a function that "
            "makes a new iterator."
        )
    for part in given:
        if not isinstance(part, tuple | list) or len(part) not in (2, 3):
            raise InputError(f"parts must hold pairs (X, y) or triples (X, y, weights), got {type(part).__name__}.")
        yield (*part, None) if len(part) == 2 else tuple(part)


def refuse_solver(plan: Plan) -> None:
    """InputError unless the solver of the plan can read data shard by shard.

    >>> refuse_solver(Plan("likelihood", "gis"))
    Traceback (most recent call last):
    crfield.errors.InputError: solver='gis' needs all data in memory. From disk use solver='lbfgs', which ...
    """
    if plan.solver not in ON_DISK:
        raise InputError(
            f"solver={plan.solver!r} needs all data in memory. From disk use {_INSTEAD.get(plan.solver, _MARGIN)}. "
            f"Solvers of data on disk: {', '.join(map(repr, ON_DISK))}."
        )


def sharded(
    dataset: EncodedDataset,
    encoder: Encoder,
    plan: Plan,
    *,
    observe: Callable[[Encoder, Batch, Target], Layout],
    complete: Callable[[ColumnModel, Target], ColumnModel],
    make_parts: Callable[[ColumnModel, Batch, Target], ChainParts | HigherOrderParts],
) -> tuple[ColumnModel, ShardedChain]:
    """Model and problem of an encoded data set: the layout from one pass over its shards, the rest shard by shard."""
    check_columns(dataset, encoder)
    labels, layout, moments = dataset.coder, None, None
    for shard in dataset.shards():
        seen = observe(encoder, shard.batch, shard.target)
        complete(ColumnModel(labels, encoder, seen, np.zeros(seen.n_weights)), shard.target)  # refuses gold labels
        layout = seen if layout is None else joined(layout, seen)
        if shard.batch.numeric:
            met = Moments.of(shard.batch, shard.target.weight, whole=False)
            moments = met if moments is None else moments.merged(met)
    if layout is None or not dataset.n_steps:
        raise InputError(NOTHING)
    model = complete(ColumnModel(labels, encoder, layout, np.zeros(layout.n_weights)), shard.target)
    del shard

    def problem_of(objective: str) -> ShardedChain:
        def make(batch: Batch, target: Target) -> FusedChain | FullBatch:
            parts = make_parts(model, batch, target)
            assert isinstance(parts, ChainParts)
            return parts.problem(objective, whole=False)

        made = ShardedChain(dataset, make, n_weights=layout.n_weights)
        made.columns, made.moments = model.layout, moments
        return made

    problem = problem_of(plan.objective)
    if plan.objective.startswith("label_"):  # of many minima
        problem.likelihood = problem_of("likelihood")
    problem.stochastic = stochastic_steps(layout, plan) and isinstance(problem.shard(0), FusedChain)
    refuse_warm(plan, problem.stochastic)
    return model, problem


def stochastic_steps(layout: Layout, plan: Plan) -> bool:
    """Whether stochastic steps suit the weights of a layout."""
    dense = layout.n_edge_columns or layout.n_edge_dense or layout.n_dense
    return not dense and plan.objective == "likelihood"


def refuse_warm(plan: Plan, stochastic: bool) -> None:
    """InputError where stochastic epochs were asked for and there can be none."""
    if plan.solver == "warm" and not stochastic:
        raise InputError("solver='warm' needs stochastic steps, which this model has none of. Use solver='lbfgs'.")


def check_columns(dataset: EncodedDataset, encoder: Encoder) -> None:
    """ModelFileError unless the data set has the columns that its encoder makes."""
    widths = encoder.widths
    made = (widths.sparse, widths.dense, [widths.edge, widths.edge_dense])
    told = (dataset.n_columns, dataset.n_dense, dataset.edge_columns or [0, 0])
    if dataset.n_steps and made != told:
        raise ModelFileError(
            f"{dataset.path}: the data set has {told[0]:,} columns and {told[1]:,} numbers, its encoder makes "
            f"{made[0]:,} and {made[1]:,}. The header is damaged: encode the data again."
        )
