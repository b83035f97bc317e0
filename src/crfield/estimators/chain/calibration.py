"""One number that makes a chain's probabilities honest: its temperature.

    p_T(y | x) = exp( score(y, x) / T ) / Z_T(x)

T is fitted by the likelihood of held-out sequences (Guo et al. 2017). The loss is convex in 1/T and costs a look at
the data for each of some twenty trials. The order of labellings stays: Viterbi's labels are the same, marginals and
n-best probabilities become flatter (T > 1, after training with little penalty or by margins) or sharper. The weights
are divided by T, so the model stays a plain one; rules of neighbouring labels stay as they are.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import numpy as np

from crfield.errors import InputError
from crfield.estimators.chain.model import ColumnModel

COLDEST, HOTTEST = 0.02, 50.0


def fitted_temperature(crf: Any, model: ColumnModel, X: Any, y: Any) -> float:
    """The temperature in 0.02 … 50 of largest likelihood."""
    from scipy.optimize import minimize_scalar

    if not np.isfinite(crf.log_prob(X, y)).all():
        raise InputError("the sequences to calibrate by must be possible under the model: some have probability 0.")

    def loss(log_temperature: float) -> float:
        return -float(cooled(crf, model, float(np.exp(log_temperature))).log_prob(X, y).sum())

    bounds = (np.log(COLDEST), np.log(HOTTEST))
    return float(np.exp(minimize_scalar(loss, bounds=bounds, method="bounded", options={"xatol": 1e-5}).x))


def cooled(crf: Any, model: ColumnModel, temperature: float) -> Any:
    """A copy of the estimator with its weights divided by the temperature."""
    out, cool = copy.copy(crf), copy.copy(model)  # a copied model has no compiled state
    cool.weights = model.weights / temperature
    if model.layout.fixed is not None:
        cool.layout = replace(model.layout, fixed=model.layout.fixed.scaled(1 / temperature))
    out._model, out._parts = cool, None
    out.temperature_ = temperature
    return out
