"""From the user's data to what is trained: columns, layout, first weights, and the problem a solver is handed.

A model is learnt from data in memory, or grown from a model that was trained: features that are new get columns,
labels that are new get codes behind the others, new pairs of both get weights of zero; old weights go along to their
new places (`features.growth`, `scoring.layout_growth`). Nothing is taken away, and where nothing is new nothing
changes. Data on disk (`crfield.EncodedDataset`) have their columns already: the layout comes from one pass over the
shards. Either way the end is a `ChainProblem`, and training does not ask where it came from.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from crfield.core.constraints import Constraints
from crfield.core.costs import cost_table, label_weights, node_costs
from crfield.core.target import Target
from crfield.core.topology import Chains
from crfield.data.batch import Batch
from crfield.data.labels import LabelCoder
from crfield.errors import InputError, ModelFileError
from crfield.estimators.chain.model import ColumnModel, FunctionModel, tabulate_sequences
from crfield.features.encoder import Encoder
from crfield.features.growth import Grown
from crfield.inference.chain import ChainEngine
from crfield.scoring.higher_order import LabelRuns, RunLayout
from crfield.scoring.layout import Layout
from crfield.scoring.layout_growth import carried, joined
from crfield.scoring.legal import refuse_illegal
from crfield.scoring.tables import TableScorer
from crfield.storage.digests import digest
from crfield.storage.encoded import EncodedDataset
from crfield.training.chain.fused import FusedChain
from crfield.training.chain.higher_order import RunParts
from crfield.training.chain.plan import ChainParts, Plan, prepare
from crfield.training.chain.shards import ShardedChain
from crfield.training.column_basis import Moments, numeric
from crfield.training.full_batch import FullBatch, Objective

MakeTarget = Callable[[Chains], Target]
ON_DISK = ("auto", "lbfgs", "warm")  # solvers that read data on disk


@dataclass(frozen=True, eq=False)
class ChainProblem:
    """What is trained: a model with its first weights, a plan, and the data in the form that the plan asks for."""

    model: ColumnModel | FunctionModel
    plan: Plan
    handed: Any  # a problem or `ChainParts`, by the plan; `ShardedChain` for data on disk
    n_sequences: int
    digests: Callable[[], dict[str, str]]  # of the data and the layout, for a checkpoint; not made before asked for

    @property
    def start(self) -> np.ndarray | None:
        """The weights to begin with, where they are not all zero."""
        return self.model.weights if self.model.weights.any() else None


def grown_columns(
    before: ColumnModel, labels: LabelCoder, grown: Grown, seen: Layout
) -> tuple[ColumnModel, dict[str, np.ndarray]]:
    """A trained model with columns and pairs for all that was ``seen`` anew, and the places of its old columns."""
    old = before.layout
    places = {name: getattr(grown, name) for name in ("node", "dense", "edge", "edge_dense")}
    layout = joined(old, seen, places)
    sizes = ("n_labels", "n_columns", "n_dense", "n_edge_columns", "n_edge_dense", "n_weights")
    if all(getattr(old, name) == getattr(layout, name) for name in sizes):  # nothing is new: the two are equal
        return replace(before, labels=labels, encoder=grown.encoder), places
    weights = carried(before.weights, old, layout, places)
    return ColumnModel(labels, grown.encoder, layout, weights), places


# ---------------------------------------------------------------------------- constraints, costs, longer runs


def with_constraints(layout: Layout, constraints: Any, labels: LabelCoder, target: Target | None = None) -> Layout:
    """The layout with the fixed scores that constraints mean; LabelError if gold labels break a hard one."""
    if constraints is None and layout.fixed is None:
        return layout
    fixed = None if constraints is None else Constraints.of(constraints).scores(labels.labels)
    if fixed is not None and target is not None:
        refuse_illegal(fixed, target, labels.labels)
    return replace(layout, fixed=fixed)


def with_costs(target: Target, class_weight: Any, costs: Any, labels: LabelCoder) -> Target:
    """The target with the costs that ``class_weight`` and ``costs`` mean; both together multiply."""
    if class_weight is None and costs is None:
        return target
    names = labels.labels
    table = 1.0 - np.eye(len(names)) if costs is None else cost_table(costs, names)
    if class_weight is not None:
        table = table * label_weights(class_weight, names, target)[:, None]
    return replace(target, cost=node_costs(table, target.mask))


def with_runs(model: ColumnModel, target: Target, order: int, before: Any = None) -> ColumnModel:
    """The model with weights for the runs of labels of the target, and for those of a model before it."""
    if order == 1:
        return model
    runs = LabelRuns.observe(target, order)
    weights = np.zeros(runs.n_weights)
    if isinstance(before, ColumnModel) and isinstance(before.layout, RunLayout):
        runs, weights = _joined_runs(before.layout.runs, before.weights[before.layout.part["runs"]], runs)
    layout = RunLayout.extend(model.layout, runs)
    return replace(model, layout=layout, weights=np.concatenate([model.weights, weights]))


def without_runs(model: ColumnModel) -> ColumnModel:
    """The model without the weights of longer runs, as what is grown by new features."""
    if not isinstance(model.layout, RunLayout):
        return model
    plain = model.layout.plain
    return replace(model, layout=plain, weights=model.weights[: plain.n_weights])


def _joined_runs(old: LabelRuns, weights: np.ndarray, new: LabelRuns) -> tuple[LabelRuns, np.ndarray]:
    """All runs of both, with the weights of the old ones."""
    kept = {tuple(run): w for run, w in zip((r for runs in old.runs for r in runs.tolist()), weights.tolist())}
    both = []
    for k in range(max(len(old.runs), len(new.runs))):
        found = {tuple(run) for part in (old, new) if k < len(part.runs) for run in part.runs[k].tolist()}
        both.append(np.array(sorted(found), np.int32).reshape(len(found), k + 3))
    runs = LabelRuns(new.n_labels, tuple(both))
    return runs, np.array([kept.get(tuple(run), 0.0) for part in runs.runs for run in part.tolist()])


# ------------------------------------------------------------------------------------------------ problems


def column_parts(model: ColumnModel, batch: Batch, target: Target, *, n_jobs: int) -> ChainParts | RunParts:
    """What a plan of a globally normalised chain is carried out on."""
    if isinstance(model.layout, RunLayout):
        return RunParts(model.layout, batch, target, n_jobs)
    return ChainParts.columns(model.layout, batch, target, n_jobs=n_jobs)


def in_memory(model: ColumnModel | FunctionModel, plan: Plan, parts: ChainParts | RunParts) -> ChainProblem:
    """The problem of encoded data in memory."""
    batch, target = parts.batch, parts.target

    def digests() -> dict[str, str]:
        layout = getattr(parts, "layout", None)
        return {"the data": digest([batch, target]), "the features and labels": digest(layout)}

    return ChainProblem(model, plan, prepare(plan, parts), target.topology.n_sequences, digests)


def of_functions(
    functions: list[Any],
    labels: LabelCoder,
    X: Any,
    make_target: MakeTarget,
    plan: Plan,
    before: Any,
    *,
    likelihood: Objective,
    n_jobs: int,
) -> ChainProblem:
    """The problem of functions of two labels, written out over X."""
    tables = tabulate_sequences(functions, labels.labels, X)
    scorer = TableScorer(len(functions), labels.n_labels)
    weights = np.zeros(len(functions))
    if isinstance(before, FunctionModel) and len(before.weights) == len(functions):
        weights = before.weights
    parts = ChainParts(scorer, tables, make_target(tables.topology), ChainEngine(n_jobs), likelihood=likelihood)
    return in_memory(FunctionModel(labels, functions, weights), plan, parts)


def on_disk(
    dataset: EncodedDataset,
    encoder: Encoder,
    plan: Plan,
    *,
    observe: Callable[[Encoder, Batch, Target], Layout],
    make_parts: Callable[[ColumnModel, Batch, Target], ChainParts | RunParts],
    costed: Callable[[Target], Target],
    constraints: Any = None,
) -> ChainProblem:
    """The problem of an encoded data set: the layout from one pass over its shards, the rest shard by shard."""
    check_columns(dataset, encoder)
    labels, layout, moments = dataset.coder, None, None
    for shard in dataset.shards():
        seen = observe(encoder, shard.batch, shard.target)
        layout = seen if layout is None else joined(layout, seen)
        if numeric(shard.batch):
            met = Moments.of(shard.batch, shard.target.weight, whole=False)
            moments = met if moments is None else moments.merged(met)
        with_constraints(seen, constraints, labels, shard.target)  # labels against a rule are told of before training
    if layout is None or not dataset.n_steps:
        raise InputError("the data set holds no steps at all; at least one sequence with one step is needed.")
    layout = with_constraints(layout, constraints, labels, shard.target)
    del shard
    model = ColumnModel(labels, encoder, layout, np.zeros(layout.n_weights))

    def make(batch: Batch, target: Target) -> FusedChain | FullBatch:
        parts = make_parts(model, batch, costed(target))
        assert isinstance(parts, ChainParts)
        return parts.problem(plan.objective, whole=False)

    problem = ShardedChain(dataset, make, n_weights=layout.n_weights)
    problem.columns, problem.moments = layout, moments
    sparse = not (layout.n_edge_columns or layout.n_edge_dense or layout.n_dense) and plan.objective == "likelihood"
    problem.stochastic = sparse and isinstance(problem.shard(0), FusedChain)
    if plan.solver == "warm" and not problem.stochastic:
        raise InputError("solver='warm' needs stochastic steps, which this model has none of. Use solver='lbfgs'.")

    def digests() -> dict[str, str]:
        return {"the data": digest(dataset.digests), "the features and labels": digest(layout)}

    return ChainProblem(model, plan, problem, len(dataset), digests)


def check_columns(dataset: EncodedDataset, encoder: Encoder) -> None:
    """ModelFileError unless the data set has the columns that its encoder makes."""
    empty = encoder.encode([])
    edge = [0, 0] if empty.edge is None else [empty.edge.width, empty.edge.n_dense]
    made = (empty.node.width, empty.node.n_dense, edge)
    told = (dataset.n_columns, dataset.n_dense, dataset.edge_columns or [0, 0])
    if dataset.n_steps and made != told:
        raise ModelFileError(
            f"{dataset.path}: the data set has {told[0]:,} columns and {told[1]:,} numbers, its encoder makes "
            f"{made[0]:,} and {made[1]:,}. The header is damaged: encode the data again."
        )
