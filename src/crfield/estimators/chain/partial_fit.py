"""``partial_fit`` of a chain model: what is new joins, and one pass of stochastic steps is taken.

Parts may bring features and labels that no part before had (`estimators.chain.columns`). Numeric columns keep the
scale of the part in which they were first seen (``standardize=True``). The steps are those of
`training.chain.partial_fit`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from numbers import Real
from typing import Any

import numpy as np

from crfield.core.checks import random_generator
from crfield.core.target import Target
from crfield.core.topology import Chains
from crfield.data.label_growth import grown_labels
from crfield.errors import InputError
from crfield.estimators.base.sequences import without_weightless
from crfield.estimators.chain.columns import fresh_columns, grown_columns
from crfield.estimators.chain.constraints import with_rules
from crfield.estimators.chain.model import ColumnModel
from crfield.estimators.chain.training import chain_penalty
from crfield.optimize.history import Result, Step
from crfield.scoring.layout_growth import carried
from crfield.training.chain.partial_fit import Ongoing, learn_pass
from crfield.training.chain.plan import plan_chain

PARTIAL = "partial_fit"


def learn_part(
    crf: Any,
    X: Any,
    y: Any,
    classes: Iterable[Hashable] | None,
    sample_weight: Any,
    n_sequences: float | None,
) -> tuple[ColumnModel, Any, Result]:
    """The model after one pass over a part, its labels, and the report."""
    if crf.label_functions is not None:
        raise InputError("partial_fit is for models with columns; functions of two labels are trained by fit.")
    if crf._training_parameters()["order"] != 1:
        raise InputError("partial_fit is for chains of order 1; train others by fit, with warm_start to go on.")
    if n_sequences is not None and (
        not isinstance(n_sequences, Real) or isinstance(n_sequences, bool) or not 0 < float(n_sequences) < np.inf
    ):
        raise InputError(f"n_sequences must be a number above 0, all sequences there will be, got {n_sequences!r}.")
    X, y, sample_weight = without_weightless(X, y, sample_weight)
    before = crf._fitted if crf.__sklearn_is_fitted__() else None
    coder = grown_labels(None if before is None else crf._coder, y, classes)
    parameters = crf._training_parameters()

    def make_target(topology: Chains) -> Target:
        return crf._target(topology, coder, y, sample_weight)

    places: dict[str, np.ndarray] | None = None
    if before is None:
        model, batch, target = fresh_columns(parameters, X, make_target)
        state = Ongoing(model.weights.copy(), np.zeros(len(model.weights)))
        fresh = None
    else:
        model, batch, target, places = grown_columns(parameters, X, make_target, before)
        old = before.layout
        state = getattr(crf, "_ongoing", None) or Ongoing(before.weights, None, getattr(crf, "n_seen_", 0))
        state = Ongoing(
            carried(state.weights, old, model.layout, places),
            None if state.squares is None else carried(state.squares, old, model.layout, places),
            state.n_seen,
            state.n_passes,
        )
        known = carried(np.ones(old.n_weights), old, model.layout, places) > 0
        fresh = None if known.all() else ~known
    layout = with_rules(model.layout, getattr(crf, "constraints", None), coder, target)
    model = ColumnModel(model.encoder, layout, model.weights)
    plan = plan_chain(crf.objective, crf.solver, costs=target.cost is not None)
    seed = crf.random_state
    rng = random_generator([seed, state.n_passes] if isinstance(seed, int) and seed >= 0 else seed)
    passed = learn_pass(
        crf._parts_of(model, batch, target),
        plan.objective,
        state,
        chain_penalty(parameters, model),
        n_sequences=float(n_sequences or state.n_seen + target.topology.n_sequences),
        fresh=fresh,
        rng=rng,
    )
    model.weights = passed.weights
    crf._ongoing = state
    crf.n_seen_ = int(state.n_seen)
    steps = list(getattr(crf, "history_", ())) if before is not None else []
    active = int(np.count_nonzero(passed.weights))
    steps.append(Step(state.n_passes, passed.n_steps, passed.loss, float("nan"), 1.0, active, 0.0))
    result = Result(passed.weights, passed.loss, state.n_passes, passed.n_steps, False, PARTIAL, steps)
    return model, coder, result
