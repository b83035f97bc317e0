"""Answers come out in the shape of the scores.

The total of a semiring is a function of the scores, and its gradient with respect to them is what one wants to
know: under LOG the marginal probabilities, under MAX the best path as zeros and ones. So `Beliefs` has the
shape of `Potentials`, and so has the gradient of any objective (`Evaluation`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, eq=False)
class Beliefs:
    """What an engine found, and whether it may be trusted.

    ``edge`` has the shape of the edge scores it came from: where edges share a table it holds the sum over all of
    them, which is the gradient of Σ total with respect to that table. Under MAX, ``node`` and ``edge`` are a
    labelling as zeros and ones and ``total`` is its score, whether or not an inexact engine found the best.

    ``bound`` says what ``total`` is: "exact", an "upper" or a "lower" bound of the true total, or an "estimate" that
    may lie on either side.
    """

    total: np.ndarray  # (B,)
    node: np.ndarray  # (N, L)
    edge: np.ndarray  # (T, L, L)
    exact: bool = True
    converged: bool = True
    sweeps: int = 1
    bound: str = "exact"


@dataclass(frozen=True, eq=False)
class Evaluation:
    """The value of an objective and its gradient in the shape of the scores."""

    value: float
    node: np.ndarray  # (N, L)
    edge: np.ndarray  # (T, L, L)
    converged: bool = True  # False when the engine behind it had not settled, so that value and gradient may disagree
