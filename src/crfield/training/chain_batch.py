"""Batch solvers of a chain: the functions behind rows of `training.chain_plan`.

Each sees the whole data in every step. What differs is what they make of a value and a gradient.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from crfield.optimize.history import Result
from crfield.optimize.penalty import Penalty
from crfield.training.full_batch import FullBatch
from crfield.training.fused import FusedChain
from crfield.training.likelihood import fit_likelihood

Problem = FusedChain | FullBatch


def fit_lbfgs(
    problem: Problem, penalty: Penalty, *, start: np.ndarray | None = None, options: Any = None, **common: Any
) -> Result:
    """L-BFGS, or OWL-QN with an l1 penalty, as `training.likelihood` runs it."""
    return fit_likelihood(problem, penalty, start=start, solver="lbfgs", **common)


def fit_warm(
    problem: Problem, penalty: Penalty, *, start: np.ndarray | None = None, options: Any = None, **common: Any
) -> Result:
    """Stochastic epochs, then L-BFGS or OWL-QN with a diagonal: `training.warm_start`."""
    return fit_likelihood(problem, penalty, start=start, solver="warm", **common)
