"""A hidden Markov model trained for its labels: the same parameters, by gradient of log p(y | x).

    minimise   −Σ_s weight_s log p(y_s | x_s; θ)  +  ½ l2 ‖θ − θ₀‖²

over start and transition probabilities (as logarithms up to a constant) and the free parameters of the emissions,
from the counted ones θ₀, towards which the penalty pulls. Columns are brought to mean 0 and deviation 1 for the run,
so that the penalty means the same for all of them, and back at its end.

Emissions that are log-linear in statistics T(x) make p(y | x) a linear chain field with the columns T(x), whose
weights are functions of θ. So the compiled problem of such chains (`training.likelihood`) gives value and gradient,
and the chain rule does the rest: an evaluation costs what it costs for the field. Probabilities stay probabilities
and deviations positive; otherwise nothing ties the densities to the data any more, which is the point: what is best
for p(y | x) need not look like p(x | y) (Vail 2008, section 2.7.4, who climbed coordinate by coordinate for two
days).

Parameters are few and overlap, and under a weak penalty some directions hardly bend: where L-BFGS takes long, it has
its coordinates made anew of the second derivative (`optimize.basis`).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from crfield.core.target import Target
from crfield.core.topology import Chains
from crfield.data.batch import Batch, Columns
from crfield.errors import InputError
from crfield.optimize.history import Result, Step
from crfield.optimize.lbfgs import minimize
from crfield.optimize.penalty import Penalty
from crfield.scoring.densities.gaussian import Exponential
from crfield.scoring.layout import Layout
from crfield.training.likelihood import FusedChain

MEMORY = 50  # pairs of the history: few parameters that hang together
_LEAST = 1e-12  # a probability that was never counted starts here, since the gradient of zero is zero

Tables = tuple[np.ndarray, np.ndarray, Exponential]


class MarkovConditional:
    """−log p(y | x) of a hidden Markov model as a function of (start, transition, emission) parameters.

    ``weights`` are differences to the parameters that it was made with; see the module.
    """

    def __init__(
        self,
        rows: np.ndarray,
        target: Target,
        start: np.ndarray,
        transition: np.ndarray,
        emissions: Exponential,
        *,
        n_jobs: int = 1,
    ) -> None:
        labels, statistics, chains = target.n_labels, emissions.statistics(rows), target.topology
        if not isinstance(chains, Chains):
            raise InputError("a hidden Markov model reads chains, got graphs.")
        columns = Columns(np.zeros(len(rows) + 1, np.int64), np.zeros(0, np.int32), 0, dense=statistics)
        self.layout = Layout(
            n_labels=labels,
            n_dense=statistics.shape[1],
            bias=True,
            boundaries=True,
            pairs=np.arange(labels * labels, dtype=np.int32),
        )
        self._chain = FusedChain(self.layout, Batch(chains, columns), target, n_jobs=n_jobs)
        self._emissions, self._labels = emissions, labels
        self._first = np.concatenate(
            [
                np.log(np.maximum(start, _LEAST)),
                np.log(np.maximum(transition, _LEAST)).ravel(),
                emissions.free(),
            ]
        )

    @property
    def n_weights(self) -> int:
        """Number of parameters."""
        return len(self._first)

    def tables(self, weights: np.ndarray) -> Tables:
        """Start (L,), transition (L, L) and emissions of a point."""
        labels, there = self._labels, self._first + weights
        start, transition = there[:labels], there[labels : labels + labels**2].reshape(labels, labels)
        return _softmax(start), _softmax(transition), self._emissions.with_free(there[labels + labels**2 :])

    def evaluate(self, weights: np.ndarray, gradient: np.ndarray) -> float:
        """Value; the gradient is written to ``gradient``. Where parameters leave the range of numbers it is +∞."""
        labels, part = self._labels, self.layout.part
        try:
            start, transition, emissions = self.tables(weights)
            natural, offset = emissions.natural()
        except (InputError, FloatingPointError):
            return float("inf")
        linear, slope = np.zeros(self.layout.n_weights), np.empty(self.layout.n_weights)
        linear[part["dense"]], linear[part["bias"]] = natural.ravel(), offset
        with np.errstate(divide="ignore"):
            logs = np.log(start), np.log(transition)
        linear[part["start"]], linear[part["transitions"]] = logs[0], logs[1].ravel()
        if not np.isfinite(linear).all():
            return float("inf")
        value = self._chain.evaluate(linear, slope)
        of_start, of_pairs = slope[part["start"]], slope[part["transitions"]].reshape(labels, labels)
        gradient[:labels] = of_start - start * of_start.sum()
        back = of_pairs - transition * of_pairs.sum(axis=1, keepdims=True)
        gradient[labels : labels + labels**2] = back.ravel()
        gradient[labels + labels**2 :] = emissions.pull(
            slope[part["dense"]].reshape(natural.shape), slope[part["bias"]]
        )
        return value


def fit_discriminative(
    rows: np.ndarray,
    target: Target,
    start: np.ndarray,
    transition: np.ndarray,
    emissions: Exponential,
    *,
    l2: float = 1.0,
    tol: float = 1e-4,
    max_iter: int = 200,
    n_jobs: int = 1,
    callback: Callable[[Step, np.ndarray], bool | None] | None = None,
) -> tuple[Tables, Result]:
    """Better tables for p(y | x), from counted ones; rows (N, D) lie on the chains of the target.

    >>> from crfield.scoring.densities.gaussian import DiagonalGaussian
    >>> rows = np.array([[0.0], [1.0], [1.2], [3.0]])
    >>> target = Target(Chains.from_lengths([4]), 2, np.array([0, 0, 1, 1]))
    >>> family = DiagonalGaussian(np.array([[0.5], [2.1]]), np.ones((2, 1)))
    >>> half = np.full((2, 2), 0.5)
    >>> before = MarkovConditional(rows, target, half[0], half, family).evaluate(np.zeros(10), np.empty(10))
    >>> bool(fit_discriminative(rows, target, half[0], half, family)[1].value < before)
    True
    """
    shift, unit = emissions.units(rows)
    scaled = emissions.moved(shift, unit)
    problem = MarkovConditional((rows - shift) / unit, target, start, transition, scaled, n_jobs=n_jobs)
    result = minimize(
        problem,
        np.zeros(problem.n_weights),
        Penalty(l2=l2),
        memory=MEMORY,
        renew=True,
        tol=tol,
        max_iter=max_iter,
        n_jobs=n_jobs,
        callback=callback,
    )
    start, transition, found = problem.tables(result.weights)
    return (start, transition, found.moved(-shift / unit, 1.0 / unit)), result


def _softmax(scores: np.ndarray) -> np.ndarray:
    parts = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return np.asarray(parts / parts.sum(axis=-1, keepdims=True))
