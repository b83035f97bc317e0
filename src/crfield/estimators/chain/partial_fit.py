"""Incremental learning of a chain: what is new joins the state of the passes so far, and one pass is taken.

Parts may bring features and labels that no part before had. Numeric columns keep the scale of the part in which they
were first seen (``standardize=True``). The steps are those of `training.chain.partial_fit`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from crfield.core.checks import random_generator
from crfield.estimators.chain.model import ColumnModel
from crfield.optimize.history import Result, Step
from crfield.optimize.penalty import Penalty
from crfield.scoring.layout_growth import carried
from crfield.training.chain.partial_fit import Ongoing, learn_pass
from crfield.training.chain.plan import ChainParts

PARTIAL = "partial_fit"


def begun(model: ColumnModel) -> tuple[Ongoing, None]:
    """Where the first pass of a new model starts."""
    return Ongoing(model.weights.copy(), np.zeros(len(model.weights))), None


def grown(
    so_far: Ongoing, before: ColumnModel, model: ColumnModel, places: dict[str, np.ndarray]
) -> tuple[Ongoing, np.ndarray | None]:
    """The state so far in the places of a model that has grown, and (W,) which of its weights are new."""
    old, new = before.layout, model.layout
    squares = None if so_far.squares is None else carried(so_far.squares, old, new, places)
    state = Ongoing(carried(so_far.weights, old, new, places), squares, so_far.n_seen, so_far.n_passes)
    known = carried(np.ones(old.n_weights), old, new, places) > 0
    return state, None if known.all() else ~known


def take_pass(
    parts: ChainParts,
    objective: str,
    state: Ongoing,
    fresh: np.ndarray | None,
    penalty: Penalty,
    *,
    n_sequences: float | None,
    random_state: Any,
    history: list[Step],
) -> Result:
    """One pass of stochastic steps, which changes ``state``, as the result of a training."""
    known = isinstance(random_state, int) and random_state >= 0
    passed = learn_pass(
        parts,
        objective,
        state,
        penalty,
        n_sequences=float(n_sequences or state.n_seen + parts.target.topology.n_sequences),
        fresh=fresh,
        rng=random_generator([random_state, state.n_passes] if known else random_state),
    )
    active = int(np.count_nonzero(passed.weights))
    step = Step(state.n_passes, passed.n_steps, passed.loss, float("nan"), 1.0, active, 0.0)
    return Result(
        passed.weights, passed.loss, state.n_passes, passed.n_steps, False, PARTIAL, [*history, step], how=_HOW
    )


_HOW = "stochastic steps with a step size for every weight, one pass over each part"
