"""One number that makes a chain's probabilities honest: its temperature.

    p_T(y | x) = exp( score(y, x) / T ) / Z_T(x)

T is fitted by the likelihood of held-out sequences (Guo et al. 2017). The loss is convex in 1/T and costs a look at
the data for each of some twenty trials. The order of labellings stays: Viterbi's labels are the same, marginals and
n-best probabilities become flatter (T > 1, after training with little penalty or by margins) or sharper. The weights
are divided by T, so the model stays a plain one; rules of neighbouring labels stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from crfield.errors import InputError
from crfield.estimators.chain.model import ColumnModel

COLDEST, HOTTEST = 0.02, 50.0


def fitted_temperature(log_prob: Callable[[float], np.ndarray], *, coldest: float = COLDEST) -> float:
    """The temperature in 0.02 … 50 of largest likelihood; ``log_prob`` gives that of every sequence at one."""
    from scipy.optimize import minimize_scalar

    if not np.isfinite(log_prob(1.0)).all():
        raise InputError("the sequences to calibrate by must be possible under the model: some have probability 0.")
    bounds = (np.log(coldest), np.log(HOTTEST))
    found = minimize_scalar(
        lambda at: -float(log_prob(float(np.exp(at))).sum()), bounds=bounds, method="bounded", options={"xatol": 1e-5}
    )
    return float(np.exp(found.x))


def cooled(model: ColumnModel, temperature: float) -> ColumnModel:
    """The model with its weights divided by the temperature."""
    layout = model.layout
    if layout.fixed is not None:
        layout = replace(layout, fixed=layout.fixed.scaled(1 / temperature))
    return replace(model, layout=layout, weights=model.weights / temperature)
