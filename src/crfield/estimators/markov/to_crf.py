"""A hidden Markov model as the chain CRF that it is, given x.

    log p(y, x) = Σ_t [ ⟨natural_{y_t}, T(x_t)⟩ + offset_{y_t} ] + log p(y_1) + Σ_t log p(y_t | y_{t-1}) + h(x)

Emissions that are log-linear in statistics T(x) give a field with the columns T(x), a bias, scores of first labels
and a table of transitions; h(x) cancels in p(y | x). The field has more freedom than the model it came from (its
weights need not come from densities or probabilities), which is what training it further makes use of.

Statistics are taken about the middle of the densities, in units of their deviations: x² of columns far from zero
would lose in the difference what the field is meant to keep. A probability of zero has no finite weight, so it is
refused.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from crfield.errors import DataWarning, InputError
from crfield.estimators.chain.crf import ChainCRF
from crfield.estimators.chain.model import ColumnModel
from crfield.estimators.markov.model import HiddenMarkov
from crfield.features.detect import encoder_for
from crfield.optimize.history import Result
from crfield.scoring.layout import Layout
from crfield.training.chain.plan import Plan


def framed(emissions: Any) -> tuple[Callable[[np.ndarray], np.ndarray], Any]:
    """A function from rows (N, D) to statistics (N, K), and the densities that are linear in them.

    >>> from crfield.scoring.densities.gaussian import DiagonalGaussian
    >>> statistics, moved = framed(DiagonalGaussian(np.array([[4.0], [6.0]]), np.full((2, 1), 2.0)))
    >>> statistics(np.array([[7.0]])).tolist(), moved.mean.tolist()
    ([[1.0, 1.0]], [[-0.5], [0.5]])
    """
    if not hasattr(emissions, "natural"):
        raise InputError(
            f"emissions of kind {emissions.kind!r} are not log-linear, so there is no chain CRF with the same "
            "probabilities. Use 'gaussian', 'full' or 'categorical'."
        )
    shift, unit = emissions.frame()
    moved = emissions.moved(shift, unit)
    return lambda rows: moved.statistics((rows - shift) / unit), moved


def as_crf(model: HiddenMarkov, **options: Any) -> ChainCRF:
    """The field of a fitted `HMM`; ``options`` are parameters of it."""
    if model.states is not None:
        raise InputError("to_crf needs min_duration=1: a chain CRF has one state for each label.")
    moved = framed(model.markov.emissions)[1]
    natural, offset = moved.natural()
    tables = model.markov.start, model.markov.transition
    if any((table <= 0).any() for table in tables) or not np.isfinite(natural).all():
        raise InputError(
            "a probability of zero has no finite weight in a CRF. Fit the HMM with smoothing and emission_smoothing "
            "above 0."
        )
    labels, columns = model.labels.n_labels, len(natural)
    layout = Layout(
        n_labels=labels,
        n_dense=columns,
        bias=True,
        boundaries=True,
        pairs=np.arange(labels * labels, dtype=np.int32),
    )
    weights = np.zeros(layout.n_weights)
    weights[layout.part["dense"]], weights[layout.part["bias"]] = natural.ravel(), offset
    weights[layout.part["start"]] = np.log(tables[0])
    weights[layout.part["transitions"]] = np.log(tables[1]).ravel()
    encoder = encoder_for([np.zeros((1, columns))])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        encoder.fit([np.ones((1, columns))])
    field = ChainCRF(
        feature_pairs="all",
        transition_pairs="all",
        warm_start=True,
        **options,
    )
    result = Result(weights, 0.0, 0, 0, True, "converted", [])
    field.plan_ = Plan("likelihood", "none", "converted from a hidden Markov model")
    return field.holding(ColumnModel(model.labels, encoder, layout, weights), result)
