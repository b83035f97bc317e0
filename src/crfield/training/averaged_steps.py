"""Small steps along noisy gradients, each as long as its weight can bear, and the average of where they led.

    w ← argmin_v  g·v + share · (l1 ‖v‖₁ + ½ l2 ‖v‖²) + ½ Σ_k d_k (v_k − w_k)²,      d_k = √(Σ g_k²) / rate

which is AdaGrad (Duchi, Hazan & Singer 2011) with the penalties taken exactly: the l1 part sets weights to zero, not
nearly to zero. Steps fall like 1/√t whatever the scale of a gradient, so the one option is the rate, about how far a
weight moves in its first step. The average of the iterates is far better than the last of them (Polyak & Juditsky
1992); it starts anew after 1, 2, 4, 8 … rounds, so that nothing of the beginning stays
in it.

With ``memory`` below 1 old gradients are forgotten, d_k = √(t · mean of recent g_k²) / rate: right where every step
sees all the data and gradients become small; wrong where a feature is rare.
"""

from __future__ import annotations

import numpy as np

from crfield.optimize.penalty import Penalty


class AveragedSteps:
    """The weights, where they were, and how to go on.

    >>> import numpy as np
    >>> steps, rng = AveragedSteps(np.zeros(1), Penalty(l2=1.0)), np.random.default_rng(0)
    >>> for _ in range(1000):
    ...     steps.take(steps.weights - 3.0 + rng.standard_normal(1))
    ...     if steps.end_round():
    ...         steps.restart()
    >>> steps.average.round(1).tolist()
    [1.5]
    """

    def __init__(
        self, start: np.ndarray, penalty: Penalty, *, share: float = 1.0, rate: float = 0.5, memory: float = 1.0
    ) -> None:
        self.weights = np.array(start, dtype=np.float64)
        self.n_steps, self.n_rounds, self.n_averaged = 0, 0, 0
        self._sum, self._squares = np.zeros_like(self.weights), np.zeros_like(self.weights)
        self._rate, self._memory = rate, memory
        applies = 1.0 if penalty.penalised is None else penalty.penalised.astype(np.float64)
        self._l1, self._l2 = share * penalty.l1 * applies, share * penalty.l2 * applies

    @property
    def average(self) -> np.ndarray:
        """(W,) the average since the last power of two."""
        return self._sum / self.n_averaged if self.n_averaged else self.weights.copy()

    def take(self, gradient: np.ndarray) -> None:
        """One step against the gradient (W,) of everything but the penalties."""
        self.n_steps += 1
        if self._memory < 1:
            self._squares *= self._memory
            self._squares += (1 - self._memory) * gradient**2
            # the mean of what is remembered, so that early steps are not too long
            known = self._squares * (self.n_steps / (1 - self._memory**self.n_steps))
        else:
            self._squares += gradient**2
            known = self._squares
        hold = np.sqrt(known) / self._rate
        aim = hold * self.weights - gradient
        aim = np.sign(aim) * np.maximum(np.abs(aim) - self._l1, 0.0)
        np.divide(aim, hold + self._l2, out=self.weights, where=hold > 0)
        self._sum += self.weights
        self.n_averaged += 1

    def end_round(self) -> bool:
        """Count a round; True when it was the 1st, 2nd, 4th, 8th … and `restart` is due."""
        self.n_rounds += 1
        return self.n_rounds & (self.n_rounds - 1) == 0

    def restart(self) -> None:
        """Begin a new average here."""
        self._sum[:] = 0.0
        self.n_averaged = 0
