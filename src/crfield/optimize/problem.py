"""What an optimiser is handed: a number and a slope at any weights, and nothing else.

The optimiser does not know whether a chain, a tree or a table of counts lies behind the weights, so each
optimiser is written once. The gradient is written into an array that the optimiser owns, since at millions of
weights a new array per evaluation would cost as much as the arithmetic.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np


class Problem(Protocol):
    """A smooth function f of ``n_weights`` real weights, to be made small.

    >>> class Bowl:
    ...     n_weights = 3
    ...
    ...     def evaluate(self, weights, gradient):
    ...         gradient[:] = weights - 1.0
    ...         return 0.5 * float(gradient @ gradient)
    >>> from crfield.optimize.lbfgs import minimize
    >>> minimize(Bowl(), np.zeros(3)).weights.tolist()
    [1.0, 1.0, 1.0]
    """

    @property
    def n_weights(self) -> int:
        """W, the length of weights and gradient."""
        ...

    def evaluate(self, weights: np.ndarray, gradient: np.ndarray) -> float:
        """f(weights), with ``gradient`` (W,) float64 overwritten by ∇f; ``weights`` must be left alone.

        A value of +∞ or NaN says that f is not defined there; the optimiser then takes a shorter step.
        """
        ...
