"""Chains on a cluster: what is sent to workers, and the problem that they sum up together.

Imported when a ``fit`` finds itself in the block of `crfield.cluster`. Of the estimator only its parameters travel,
and of the data shards by their place on disk, or the columns themselves, once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, Self

import numpy as np

from crfield.core.target import Target
from crfield.data.batch import Batch
from crfield.data.labels import LabelCoder
from crfield.errors import InputError
from crfield.estimators.chain.model import ColumnModel
from crfield.estimators.chain.on_disk import NOTHING, check_columns, refuse_warm, stochastic_steps
from crfield.features.encoder import Encoder
from crfield.scoring.layout import Layout
from crfield.scoring.tables import TableScorer
from crfield.storage.encoded import EncodedDataset
from crfield.training.chain.higher_order import HigherOrderParts
from crfield.training.chain.plan import ChainParts, Plan
from crfield.training.chain.shards import SHARD_SOLVERS
from crfield.training.cluster.chain import ClusterChain, cluster_of_parts, cluster_of_shards, survey
from crfield.training.cluster.session import Cluster
from crfield.training.column_basis import Moments
from crfield.training.full_batch import FullBatch
from crfield.training.likelihood import FusedChain


class Travels(Protocol):
    """A chain estimator that can be sent to workers: made anew from its parameters."""

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters."""
        ...

    def set_params(self, **parameters: Any) -> Self:
        """The same with other parameters."""
        ...

    def _layout(self, encoder: Any, batch: Batch, target: Target, like: Layout | None = None) -> Layout: ...

    def _completed(self, model: ColumnModel, target: Target, before: Any = None) -> ColumnModel: ...

    def _costed(self, target: Target, labels: LabelCoder) -> Target: ...

    def _parts(self, model: ColumnModel, batch: Batch, target: Target) -> ChainParts | HigherOrderParts: ...


@dataclass(frozen=True, eq=False)
class TravellingChain:
    """What a worker needs to make problems of shards: parameters and labels, no encoder, no code of the user."""

    chain: Travels  # not fitted
    labels: LabelCoder
    objective: str

    def observe(self, batch: Batch, target: Target) -> tuple[Layout, Moments | None]:
        """The weights that a shard asks for, and its moments; refuses gold labels that constraints forbid."""
        layout = self.chain._layout(None, batch, target)
        self.chain._completed(self._model(layout), target)
        return layout, Moments.of(batch, target.weight, whole=False) if batch.numeric else None

    def problem(self, layout: Layout, batch: Batch, target: Target, n_jobs: int) -> FusedChain | FullBatch:
        """The objective of one shard."""
        chain = self.chain.set_params(n_jobs=n_jobs)
        parts = chain._parts(self._model(layout), batch, chain._costed(target, self.labels))
        assert isinstance(parts, ChainParts)
        return parts.problem(self.objective, whole=False)

    def _model(self, layout: Layout) -> ColumnModel:
        return ColumnModel(self.labels, None, layout, np.zeros(0))  # type: ignore[arg-type]


def sharded_on_cluster(
    cluster: Cluster, dataset: EncodedDataset, encoder: Encoder, plan: Plan, chain: Travels, pairs: str
) -> tuple[ColumnModel, ClusterChain]:
    """`sharded`, by the workers of a cluster: both passes are theirs, and the driver never reads a shard but one."""
    check_columns(dataset, encoder)
    refuse_on_cluster(plan)
    if isinstance(chain.get_params(deep=False).get("class_weight"), str):
        raise InputError(
            "on a cluster class_weight must be given as numbers, since no worker knows all the labels: count them "
            "first, or fit outside of the block."
        )
    travelling = TravellingChain(bare(chain, transition_pairs=pairs), dataset.coder, plan.objective)
    layout, moments = survey(cluster, dataset, travelling)
    if layout is None or not dataset.n_steps:
        raise InputError(NOTHING)
    first = ColumnModel(dataset.coder, encoder, layout, np.zeros(layout.n_weights))
    model = chain._completed(first, dataset.shard(0).target)
    problem = cluster_of_shards(cluster, dataset, travelling, model.layout)
    problem.columns, problem.moments = model.layout, moments
    problem.stochastic = stochastic_steps(layout, plan) and problem.fused
    refuse_warm(plan, problem.stochastic)
    return model, problem


def sent_to_cluster(cluster: Cluster, plan: Plan, parts: ChainParts | HigherOrderParts) -> ClusterChain:
    """The problem of data in memory, sent to the workers of a cluster; InputError for what does not run there."""
    refuse_on_cluster(plan)
    if not isinstance(parts, ChainParts) or isinstance(parts.scorer, TableScorer):
        raise InputError(
            "chains of order above 1 and label_functions do not run on a cluster. Fit them outside of the block."
        )
    problem = cluster_of_parts(cluster, parts, plan.objective)
    layout = parts.layout or parts.column_layout
    problem.stochastic = layout is not None and stochastic_steps(layout, plan) and problem.fused
    refuse_warm(plan, problem.stochastic)
    return problem


def refuse_on_cluster(plan: Plan) -> None:
    """InputError for objectives and solvers that do not run on a cluster."""
    if plan.solver not in SHARD_SOLVERS or plan.objective.startswith("label_"):
        raise InputError(
            f"objective={plan.objective!r} by solver={plan.solver!r} does not run on a cluster: solvers that do are "
            f"{', '.join(map(repr, SHARD_SOLVERS))}, for convex objectives. Fit it outside of the block."
        )


def bare(chain: Travels, **changed: Any) -> Travels:
    """The estimator with its parameters alone, without those that are code, places on disk, or for the driver."""
    left = ("callback", "checkpoint", "features", "template", "functions", "transition_functions", "label_functions")
    kept = {name: value for name, value in chain.get_params(deep=False).items() if name not in (*left, "verbose")}
    return type(chain)(**{**kept, **changed})
