"""Training of dense fields: how sure the scores of points are, compatibilities, and widths of the kernels.

    F(θ) = Σ_images weight · (−Σ_i log q_i(y_i)) + ½ l2 ‖θ‖²

θ are what is learnt beside what was set by hand, so that the ridge pulls back to it and θ = 0 is the start: the
logarithm of the factor of the scores; compatibilities in units of the weight set by hand; logarithms of the factors
of the widths. L-BFGS follows the gradient of T unrolled steps (`crfield.objectives.dense`). Shares of the lattice
have kinks where a point leaves its simplex, and sums are in single precision, so its end is a matter of 1e-4, not of
1e-8.

How many steps: models of some numbers of steps are trained for a while on a part of the images, and the others say
which does best.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from crfield.inference.dense import DenseField, GaussianKernel, Places, gaussian_kernel, width_gradient
from crfield.objectives.dense import unrolled
from crfield.optimize.history import CALLBACK, INTERRUPTED, Result, Step
from crfield.optimize.lbfgs import minimize
from crfield.optimize.penalty import Penalty

Callback = Callable[[Step, np.ndarray], bool | None]
FORMS = ("potts", "diagonal", "full")
CHOICES = (1, 2, 5, 10)  # numbers of steps that are tried
A_WHILE = 15  # most steps of the optimiser for each
FARTHEST = 2.5  # widths move by at most this many powers of e


@dataclass(frozen=True, eq=False)
class Example:
    """One image, volume or set of points: its scores (N, L), and which labels are allowed where."""

    places: Places
    colours: np.ndarray  # (N, C)
    scores: np.ndarray  # (N, L) logarithms of probabilities
    allowed: np.ndarray  # (N, L) bool
    weight: float = 1.0


@dataclass(frozen=True, eq=False)
class DenseParameters:
    """The parameters of a dense field: factor of the scores, and of each kernel the compatibility and the widths.

    ``widths`` has one or two numbers for each kernel: of positions, and of colours.
    """

    certainty: float
    compatibilities: tuple[np.ndarray, ...]  # each (), (L,) or (L, L)
    widths: tuple[tuple[float, ...], ...]

    def kernels(self, places: Places, colours: np.ndarray, *, accuracy: str, n_jobs: int = 1) -> list[GaussianKernel]:
        """The kernels of an image, not normalised."""
        return [
            gaussian_kernel(
                places, colours, own[0], own[1] if len(own) > 1 else None, accuracy=accuracy, n_jobs=n_jobs
            )
            for own in self.widths
        ]


def by_hand(
    form: str, n_labels: int, weights: Sequence[float], widths: Sequence[tuple[float, ...]]
) -> DenseParameters:
    """Labels that agree gain the weight of each kernel.

    >>> by_hand("full", 2, [3.0], [(5.0,)]).compatibilities[0].tolist()
    [[3.0, 0.0], [0.0, 3.0]]
    """
    made: np.ndarray = {"potts": np.ones(()), "diagonal": np.ones(n_labels), "full": np.eye(n_labels)}[form]
    return DenseParameters(1.0, tuple(np.asarray(weight * made) for weight in weights), tuple(map(tuple, widths)))


class DenseProblem:
    """F without the ridge, as a function of θ; see the module."""

    def __init__(
        self,
        examples: Sequence[Example],
        start: DenseParameters,
        *,
        steps: int,
        normalization: str = "symmetric",
        accuracy: str = "standard",
        learn_widths: bool = True,
        n_jobs: int = 1,
    ) -> None:
        self.examples, self.start, self.steps = examples, start, steps
        self.normalization, self.accuracy, self.n_jobs = normalization, accuracy, n_jobs
        self.learn_widths = learn_widths
        self._fixed: list[list[GaussianKernel]] | None = None
        if not learn_widths:
            self._fixed = [self._kernels(start, example) for example in examples]

    @property
    def n_weights(self) -> int:
        """Length of θ."""
        free = sum(_free(c) for c in self.start.compatibilities)
        return 1 + free + (sum(map(len, self.start.widths)) if self.learn_widths else 0)

    def parameters(self, theta: np.ndarray) -> DenseParameters:
        """What θ stands for."""
        at, tables = 1, []
        for c in self.start.compatibilities:
            unit = _unit(c)
            tables.append(c + unit * _table(theta[at : at + _free(c)], c))
            at += _free(c)
        widths = self.start.widths
        if self.learn_widths:
            moved = []
            for own in widths:
                moved.append(tuple(float(w * np.exp(t)) for w, t in zip(own, theta[at : at + len(own)])))
                at += len(own)
            widths = tuple(moved)
        return DenseParameters(float(np.exp(theta[0])), tuple(tables), widths)

    def evaluate(self, theta: np.ndarray, gradient: np.ndarray) -> float:
        """F at θ without the ridge, and its gradient; +∞ where widths are out of all proportion."""
        n_widths = sum(map(len, self.start.widths)) if self.learn_widths else 0
        far = np.abs(theta[len(theta) - n_widths :]).max(initial=0.0)
        if far > FARTHEST or abs(theta[0]) > 2 * FARTHEST or not np.isfinite(theta).all():
            return float("inf")
        parameters = self.parameters(theta)
        gradient[:] = 0.0
        total = 0.0
        for number, example in enumerate(self.examples):
            value, own = self._one(parameters, example, number)
            total += example.weight * value
            gradient += example.weight * own
        return total

    def _kernels(self, parameters: DenseParameters, example: Example) -> list[GaussianKernel]:
        return parameters.kernels(example.places, example.colours, accuracy=self.accuracy, n_jobs=self.n_jobs)

    def _one(self, parameters: DenseParameters, example: Example, number: int) -> tuple[float, np.ndarray]:
        made = self._kernels(parameters, example) if self._fixed is None else self._fixed[number]
        filters = [kernel.normalised(self.normalization, fold=False, n_jobs=self.n_jobs) for kernel in made]
        scores = (parameters.certainty * example.scores).astype(filters[0].share.dtype if filters else np.float32)

        def pull(k: int, left: np.ndarray, right: np.ndarray) -> np.ndarray:
            return width_gradient(made[k], self.normalization, left, right, n_jobs=self.n_jobs)

        found = unrolled(
            DenseField(scores, filters, parameters.compatibilities),
            example.allowed,
            np.ones(len(scores)),
            steps=self.steps,
            pull=pull if self.learn_widths and self.steps else None,
            n_jobs=self.n_jobs,
        )
        parts = [np.array([np.einsum("nl,nl->", found.scores, scores, dtype=np.float64)])]
        for slope, c in zip(found.compatibilities, self.start.compatibilities):
            parts.append(_unit(c) * _pulled(slope))
        if self.learn_widths:
            parts += found.kernels or [np.zeros(len(own)) for own in self.start.widths]
        return found.value, np.concatenate(parts)


def _free(c: np.ndarray) -> int:
    """Numbers that a compatibility is free in: a table is symmetric."""
    return len(c) * (len(c) + 1) // 2 if c.ndim == 2 else c.size


def _unit(c: np.ndarray) -> float:
    """The weight set by hand, in whose units changes are counted."""
    return float(np.abs(c).max()) or 1.0


def _table(theta: np.ndarray, like: np.ndarray) -> np.ndarray:
    if like.ndim != 2:
        return theta.reshape(like.shape)
    table = np.zeros(like.shape)
    upper = np.triu_indices(len(like))
    table[upper] = theta
    return table + np.triu(table, 1).T


def _pulled(slope: np.ndarray) -> np.ndarray:
    """Slopes of a table's entries as those of its free numbers."""
    if slope.ndim != 2:
        return slope.reshape(-1)
    both = slope + slope.T
    both[np.diag_indices(len(both))] *= 0.5
    return both[np.triu_indices(len(both))]


def fit_dense(
    problem: DenseProblem, *, l2: float, tol: float, max_iter: int, callback: Callback | None = None
) -> tuple[DenseParameters, Result]:
    """Minimise F from θ = 0; what was found, and how it went.

    Kinks may end the search in the widths early, or make it slow, so it has half of the steps. What it leaves undone
    is finished beside the widths that it found: whether the tolerance was met there is what the result says.
    """
    first = max(max_iter // 2, 1) if problem.learn_widths else max_iter
    found = minimize(problem, np.zeros(problem.n_weights), Penalty(l2=l2), tol=tol, max_iter=first, callback=callback)
    parameters = problem.parameters(found.weights)
    if found.converged or found.reason in (CALLBACK, INTERRUPTED) or not problem.learn_widths:
        return parameters, found
    rest = DenseProblem(
        problem.examples,
        replace(problem.start, widths=parameters.widths),
        steps=problem.steps,
        normalization=problem.normalization,
        accuracy=problem.accuracy,
        learn_widths=False,
        n_jobs=problem.n_jobs,
    )
    shorter = found.weights[: rest.n_weights].copy()
    again = minimize(rest, shorter, Penalty(l2=l2), tol=tol, max_iter=max_iter, callback=callback)
    value = again.value + 0.5 * l2 * float(np.square(found.weights[rest.n_weights :]).sum())
    made, evaluations = found.n_iter + again.n_iter, found.n_evaluations + again.n_evaluations
    return rest.parameters(again.weights), replace(again, value=value, n_iter=made, n_evaluations=evaluations)


def choose_steps(
    examples: Sequence[Example],
    held_out: Sequence[Example],
    make: Callable[[Sequence[Example], int], DenseProblem],
    *,
    l2: float,
    tol: float,
    choices: Sequence[int] = CHOICES,
) -> tuple[int, dict[int, float]]:
    """The number of steps whose model does best on held-out examples, and the loss of each."""
    losses: dict[int, float] = {}
    for steps in choices:
        problem = make(examples, steps)
        found = minimize(problem, np.zeros(problem.n_weights), Penalty(l2=l2), tol=tol, max_iter=A_WHILE)
        asked = make(held_out, steps)
        losses[steps] = float(asked.evaluate(found.weights, np.empty(asked.n_weights)))
    return min(losses, key=lambda steps: losses[steps]), losses
