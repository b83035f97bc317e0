"""Penalties (regularisation): ridge and l1.

    F(w) = f(w) + l1 Σ |w_k| + ½ l2 Σ w_k²          both sums over the penalised weights

`Penalised` also knows in which precision to evaluate. A problem may *offer* single precision (``rough``): then
``evaluate_single`` gives a value, and about how far off it may be, in less time than ``evaluate``. It is for steps
far from the end, which need no more than a few digits (`Penalised.far`).

The ridge is smooth and is simply added to f and its gradient, in the same pass over memory that takes the slope and
the norm. The l1 term is not smooth at zero, where most weights end; it is left to OWL-QN.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from crfield.errors import InputError, ShapeError
from crfield.kernels import vectors
from crfield.optimize.problem import Problem

FAR = 1e-3  # relative gaps above this are far from any end
ROOM = 10.0  # and so many times the tolerance, and the error of a value


class Watch(Protocol):
    """What is asked of the stopping criterion: the tolerance, and whether steps change nothing any more."""

    tol: float

    @property
    def stalled(self) -> bool: ...


@dataclass(frozen=True, eq=False)
class Penalty:
    """Strengths of both penalties, and the weights they apply to (all when ``penalised`` is None).

    >>> Penalty(l1=0.5, penalised=np.array([True, True, False])).penalised.tolist()
    [1, 1, 0]
    """

    l1: float = 0.0
    l2: float = 0.0
    penalised: np.ndarray | None = None  # (W,) uint8, non-zero where the penalty applies

    def __post_init__(self) -> None:
        for name in ("l1", "l2"):
            value = float(getattr(self, name))
            if not (np.isfinite(value) and value >= 0):
                raise InputError(f"{name} must be a finite number ≥ 0, got {value}.")
            object.__setattr__(self, name, value)
        if self.penalised is not None:
            mask = np.ascontiguousarray(np.asarray(self.penalised) != 0).view(np.uint8)
            if mask.ndim != 1:
                raise ShapeError(f"penalised must be 1-D, one entry per weight, got shape {mask.shape}.")
            object.__setattr__(self, "penalised", None if mask.all() else mask)

    def ridge(self, n_weights: int) -> np.ndarray:
        """(W,) what the ridge adds to the second derivative of each weight.

        >>> Penalty(l2=2.0, penalised=np.array([True, False])).ridge(2).tolist()
        [2.0, 0.0]
        """
        return np.full(n_weights, self.l2) if self.penalised is None else self.l2 * self.penalised


@dataclass(slots=True)
class Point:
    """A place in weight space and what is known of it; its arrays are reused for later places."""

    weights: np.ndarray  # (W,)
    gradient: np.ndarray  # (W,) of f and the ridge
    value: float = float("nan")  # F, all penalties included
    slope: float = 0.0  # gradient · direction of the search that led here
    squared_norm: float = float("nan")  # Σ gradient²
    n_active: int = 0
    error: float = 0.0  # of the value, in single precision


class Penalised:
    """A problem with its penalty: fills Points and counts evaluations."""

    def __init__(self, problem: Problem, penalty: Penalty, *, n_jobs: int = 1) -> None:
        if penalty.penalised is not None and len(penalty.penalised) != problem.n_weights:
            raise ShapeError(
                f"penalised must have {problem.n_weights} entries, one per weight, got {len(penalty.penalised)}."
            )
        self.problem, self.penalty, self.n_jobs = problem, penalty, n_jobs
        self.n_evaluations = 0
        self.rough = False  # whether to evaluate in single precision

    @property
    def offers_rough(self) -> bool:
        """Whether the problem has evaluations in single precision that are worth it."""
        return bool(getattr(self.problem, "rough", False))

    @property
    def offers_planes(self) -> bool:
        """Whether f is convex and its evaluations are so dear that planes below it pay (`optimize.planes`)."""
        return bool(getattr(self.problem, "planes_pay", False))

    def far(self, point: Point, gap: float, stopping: Watch) -> bool:
        """Whether single precision will do for the next step: its error is small beside the gap that is left.

        >>> from crfield.optimize.stopping import Stopping
        >>> point = Point(np.zeros(1), np.zeros(1), value=100.0, error=1e-3)
        >>> objective = Penalised(None, Penalty())
        >>> [objective.far(point, gap, Stopping(1e-4)) for gap in (float("inf"), 0.01, 9e-4)]
        [True, True, False]
        >>> objective.far(point, 0.01, Stopping(2e-3))
        False
        """
        error = point.error / max(abs(point.value), 1e-300)
        return error <= FAR and gap > max(FAR, ROOM * stopping.tol, ROOM * error) and not stopping.stalled

    def evaluate(self, point: Point, *, direction: np.ndarray | None = None, l1_norm: float | None = None) -> None:
        """Fill value, gradient, slope along ``direction`` and squared norm at ``point.weights``.

        ``l1_norm`` is Σ |w| where the caller knows it already.
        """
        self.n_evaluations += 1
        data, point.error = self._data(point)
        l1, l2, penalised = self.penalty.l1, self.penalty.l2, self.penalty.penalised
        ridge = vectors.add_ridge(
            point.weights, point.gradient, l2, penalised=penalised, direction=direction, n_jobs=self.n_jobs
        )
        point.value = data + ridge.value
        point.slope, point.squared_norm = ridge.slope, ridge.squared_norm
        if l1:
            if l1_norm is None:
                l1_norm = vectors.l1_norm(point.weights, penalised=penalised, n_jobs=self.n_jobs)
            point.value += l1 * l1_norm

    def _data(self, point: Point) -> tuple[float, float]:
        """f and its gradient, in the precision that is asked for; and how far off f may be."""
        if self.rough:
            value, error = self.problem.evaluate_single(point.weights, point.gradient)  # type: ignore[attr-defined]
            return float(value), float(error)
        return float(self.problem.evaluate(point.weights, point.gradient)), 0.0
