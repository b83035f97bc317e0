"""Steps along noisy gradients, and the average of where they led.

The average of the iterates is far better than the last of them (Polyak & Juditsky 1992). `Trail` starts it anew after
1, 2, 4, 8 … rounds, so that nothing of the beginning stays in it; two kinds of steps leave one behind.

`AdaptiveSteps` need the gradient alone. They are those of AdaGrad (Duchi, Hazan & Singer 2011) with the penalties
taken exactly, so that the l1 part sets weights to zero and not nearly to zero:

    w ← argmin_v  g·v + share · (l1 ‖v‖₁ + ½ l2 ‖v‖²) + ½ Σ_k d_k (v_k − w_k)²,      d_k = √(Σ g_k²) / rate

Each weight has a step of its own, yet directions in which several weights make up for each other stay slow.

`CurvedSteps` also want features of labellings drawn from the model. Their covariance is the second derivative of the
negative log-likelihood, so a running mean of it makes Newton steps, which know no slow directions:

    w ← w − step_t (H + l2)⁻¹ (g + l2 w),      step_t = (1 + t / 30)^−0.6

at the cost of W² numbers and a solution of W equations for each step. No weight moves by more than the rate at once.
"""

from __future__ import annotations

import numpy as np

from crfield.optimize.penalty import Penalty

DELAY, FALL = 30.0, 0.6  # of the steps along the curvature
MEMORY = 0.02  # least share of the latest covariance in the mean


class Trail:
    """The average of the weights since the last power of two.

    >>> import numpy as np
    >>> trail = Trail(np.zeros(1))
    >>> for weight in (1.0, 2.0, 3.0):
    ...     trail.add(np.array([weight]))
    ...     if trail.end_round():
    ...         trail.restart()
    >>> trail.average.tolist(), trail.last.tolist()
    ([3.0], [2.0])
    """

    def __init__(self, start: np.ndarray) -> None:
        self.last = np.array(start, dtype=np.float64)
        self.n_rounds = self._count = 0
        self._sum = np.zeros_like(self.last)

    @property
    def average(self) -> np.ndarray:
        """(W,) of all weights since `restart`; that before where there are none."""
        return self._sum / self._count if self._count else self.last.copy()

    @property
    def best(self) -> np.ndarray:
        """The present average if it holds a third of the run, else the last whole one, which is less noisy."""
        return self.average if 3 * self._count >= self.n_rounds else self.last

    def add(self, weights: np.ndarray) -> None:
        """Take weights into the average."""
        self._sum += weights
        self._count += 1

    def end_round(self) -> bool:
        """Count a round; True when it was the 1st, 2nd, 4th, 8th … and `restart` is due."""
        self.n_rounds += 1
        return self.n_rounds & (self.n_rounds - 1) == 0

    def restart(self) -> None:
        """Begin a new average here, and keep the one that ends."""
        self.last = self.average
        self._sum[:] = 0.0
        self._count = 0


class AdaptiveSteps:
    """Proximal AdaGrad, as in the essay.

    >>> import numpy as np
    >>> steps, rng = AdaptiveSteps(np.zeros(1), Penalty(l2=1.0)), np.random.default_rng(0)
    >>> for _ in range(1000):
    ...     steps.take(steps.weights - 3.0 + rng.standard_normal(1))
    ...     if steps.trail.end_round():
    ...         steps.trail.restart()
    >>> steps.trail.best.round(1).tolist()
    [1.5]
    """

    def __init__(self, start: np.ndarray, penalty: Penalty, *, share: float = 1.0, rate: float = 0.5) -> None:
        self.weights = np.array(start, dtype=np.float64)
        self.trail = Trail(self.weights)
        self._squares, self._rate = np.zeros_like(self.weights), rate
        applies = 1.0 if penalty.penalised is None else penalty.penalised.astype(np.float64)
        self._l1, self._l2 = share * penalty.l1 * applies, share * penalty.l2 * applies

    def take(self, gradient: np.ndarray) -> None:
        """One step against the gradient (W,) of everything but the penalties."""
        self._squares += gradient**2
        hold = np.sqrt(self._squares) / self._rate
        aim = hold * self.weights - gradient
        aim = np.sign(aim) * np.maximum(np.abs(aim) - self._l1, 0.0)
        np.divide(aim, hold + self._l2, out=self.weights, where=hold > 0)
        self.trail.add(self.weights)


class CurvedSteps:
    """Newton steps with a running mean of the curvature, as in the essay.

    >>> import numpy as np
    >>> steps, rng = CurvedSteps(np.zeros(2), Penalty(l2=1.0)), np.random.default_rng(0)
    >>> spread = np.array([[1.0, 0.95], [0.95, 1.0]])  # two weights that nearly make up for each other
    >>> for _ in range(500):
    ...     drawn = rng.multivariate_normal([0, 0], spread, 10)
    ...     steps.take(spread @ (steps.weights - [3.0, 1.0]) + drawn.mean(axis=0), drawn)
    ...     if steps.trail.end_round():
    ...         steps.trail.restart()
    >>> abs(steps.trail.best - np.linalg.solve(spread + np.eye(2), spread @ [3.0, 1.0])).max() < 0.1
    np.True_
    """

    def __init__(self, start: np.ndarray, penalty: Penalty, *, rate: float = 0.2) -> None:
        self.weights = np.array(start, dtype=np.float64)
        self.trail = Trail(self.weights)
        self._curvature, self._n_steps, self._rate = np.zeros((len(start), len(start))), 0, rate
        applies = np.ones(len(start)) if penalty.penalised is None else penalty.penalised.astype(np.float64)
        self._l2 = penalty.l2 * applies

    def take(self, gradient: np.ndarray, drawn: np.ndarray) -> None:
        """One step against the gradient (W,) of everything but the ridge; ``drawn`` (C, W), C ≥ 2, are features."""
        self._n_steps += 1
        share = max(1.0 / self._n_steps, MEMORY)
        spread = drawn - drawn.mean(axis=0)
        self._curvature *= 1.0 - share
        self._curvature += share / (len(drawn) - 1) * (spread.T @ spread)
        diagonal = np.diag(self._curvature)
        # Few draws know few directions; the diagonal stands in for the others until there are more.
        held = self._l2 + diagonal / self._n_steps + 1e-6 * diagonal.mean() + 1e-12
        step = np.linalg.solve(self._curvature + np.diag(held), gradient + self._l2 * self.weights)
        step *= (1.0 + self._n_steps / DELAY) ** -FALL
        longest = float(np.abs(step).max(initial=0.0))
        self.weights -= step * min(1.0, self._rate / longest) if longest > 0 else step
        self.trail.add(self.weights)
