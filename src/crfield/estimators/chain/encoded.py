"""``ChainCRF.fit`` on an encoded data set: the layout from one pass over the shards, then training shard by shard.

What belongs to the encoding (template, features, ``min_count``, ``standardize``) was decided when the data set was
written; what belongs to the model (pairs, intercepts, penalties, rules, costs) is decided here.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from crfield.core.checks import random_generator, resolve_jobs
from crfield.core.target import Target
from crfield.data.batch import Batch
from crfield.errors import InputError, ModelFileError
from crfield.estimators.chain.columns import observe_layout
from crfield.estimators.chain.constraints import with_costs, with_rules
from crfield.estimators.chain.early_stopping import HeldOut, check_validation
from crfield.estimators.chain.model import ColumnModel
from crfield.estimators.chain.training import Watch, chain_penalty, open_checkpoint, parameters_digest, run_training
from crfield.features.detect import encoder_from_state
from crfield.features.encoder import Encoder
from crfield.optimize.history import Result
from crfield.scoring.layout import Layout
from crfield.scoring.layout_growth import joined
from crfield.storage.digests import digest
from crfield.storage.encoded import EncodedDataset
from crfield.training.chain.fused import FusedChain
from crfield.training.chain.plan import plan_chain
from crfield.training.chain.shards import ShardedChain, fit_sharded
from crfield.training.column_basis import Moments, numeric
from crfield.training.full_batch import FullBatch

SOLVERS = ("auto", "lbfgs", "warm")


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


def fit_encoded(
    crf: Any, dataset: EncodedDataset, y: Any, sample_weight: Any, validation: Any
) -> tuple[ColumnModel, Any, Result]:
    """The model, its labels and the result of training on a data set on disk."""
    parameters = crf._training_parameters()
    if y is not None or sample_weight is not None:
        raise InputError("an encoded data set has its labels and weights inside: leave y and sample_weight out.")
    if crf.label_functions is not None or parameters["validation_fraction"] is not None:
        raise InputError(
            "label_functions and validation_fraction are for data in memory. Give validation=(X, y) to stop by "
            "held-out sequences."
        )
    if parameters["order"] != 1:
        raise InputError(f"data on disk is for chains of order 1, got order={parameters['order']!r}.")
    if isinstance(parameters.get("class_weight"), str):
        raise InputError(
            f"class_weight={parameters['class_weight']!r} would be counted anew in each shard. Give a dict of labels "
            "and weights for data on disk."
        )
    if parameters["solver"] not in SOLVERS:
        raise InputError(
            f"data on disk is trained by solver={', '.join(map(repr, SOLVERS))}, got {parameters['solver']!r}."
        )
    header, arrays = dataset.encoder_state
    functions = parameters["functions"]
    encoder = encoder_from_state(
        header,  # type: ignore[arg-type]
        arrays,
        functions=functions,
        transition_functions=parameters["transition_functions"] if functions is not None else (),
    )
    check_columns(dataset, encoder)
    coder = dataset.coder
    layout: Layout | None = None
    moments: Moments | None = None
    constraints = getattr(crf, "constraints", None)
    for shard in dataset.shards():
        seen = observe_layout(
            parameters, encoder, shard.batch, shard.target, parameters["intercept"], parameters["boundaries"]
        )
        layout = seen if layout is None else joined(layout, seen)
        if numeric(shard.batch):
            met = Moments.of(shard.batch, shard.target.weight, whole=False)
            moments = met if moments is None else moments.merged(met)
        with_rules(seen, constraints, coder, shard.target)  # labels that break a rule are told of before training
    if layout is None or not dataset.n_steps:
        raise InputError(
            "the data set holds no steps at all; at least one sequence with one step is needed to train."
        )
    layout = with_rules(layout, constraints, coder, shard.target)
    model = ColumnModel(encoder, layout, np.zeros(layout.n_weights))
    settings = vars(crf)

    def costed(target: Target) -> Target:
        return with_costs(target, settings, coder)

    plan = plan_chain(parameters["objective"], parameters["solver"], costs=costed(shard.target).cost is not None)
    del shard

    def make(batch: Batch, target: Target) -> FusedChain | FullBatch:
        return crf._parts_of(model, batch, costed(target)).problem(plan.objective, whole=False)

    problem = ShardedChain(dataset, make, n_weights=layout.n_weights)
    problem.columns, problem.moments = layout, moments
    sparse = not (layout.n_edge_columns or layout.n_edge_dense or layout.n_dense) and plan.objective == "likelihood"
    fused = sparse and isinstance(problem.shard(0), FusedChain)
    if plan.solver == "warm" and not fused:
        raise InputError("solver='warm' needs stochastic steps, which this model has none of. Use solver='lbfgs'.")
    held_out = None
    if validation is not None:
        held = check_validation(validation)
        held_out = HeldOut(crf, model, coder, *held, score=parameters["validation_score"], patience=crf.patience)
    checkpoint = None
    if parameters["checkpoint"] is not None:
        digests = {
            "the data": digest(dataset.digests),
            "the features and labels": digest(layout),
            "the parameters": parameters_digest(parameters),
        }
        checkpoint = open_checkpoint(parameters, digests, start=None, held_out=held_out)
    common: dict[str, Any] = {
        "tol": crf.tol,
        "max_iter": crf.max_iter,
        "n_jobs": resolve_jobs(crf.n_jobs),
        "rng": random_generator(crf.random_state),
    }

    def run(**watched: Any) -> Result:
        stochastic = plan.solver != "lbfgs" and fused
        return fit_sharded(problem, chain_penalty(parameters, model), stochastic=stochastic, **{**common, **watched})

    watch = Watch(crf.callback, held_out, checkpoint, crf.verbose, crf.max_iter, type(crf).__name__)
    return model, coder, run_training(run, watch)
