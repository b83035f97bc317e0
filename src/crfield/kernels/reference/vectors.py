"""The vector work of L-BFGS and OWL-QN in plain NumPy: the body to read.

`History` is the textbook two-loop recursion (Nocedal 1980). The compiled body does the same sums in another
order with far less memory traffic (native/vectors/history.hpp); `kernels.vectors` states the contract of both.
"""

from __future__ import annotations

import numpy as np

EPSILON = float(np.finfo(np.float64).eps)


def dot(a: np.ndarray, b: np.ndarray, n_jobs: int) -> float:
    """Σ a b."""
    return float(np.add.reduce(a * b))


def step(weights: np.ndarray, direction: np.ndarray, size: float, out: np.ndarray, n_jobs: int) -> None:
    """Out = w + t d."""
    np.multiply(direction, size, out=out)
    out += weights


def l1_norm(weights: np.ndarray, penalised: np.ndarray | None, n_jobs: int) -> float:
    """Σ |w| over the penalised weights."""
    size = np.abs(weights)
    return float(size.sum() if penalised is None else size[penalised != 0].sum())


def add_ridge(
    weights: np.ndarray,
    gradient: np.ndarray,
    direction: np.ndarray | None,
    l2: float,
    penalised: np.ndarray | None,
    n_jobs: int,
) -> tuple[float, float, float]:
    """g += l2 w; gives ½ l2 Σ w², the slope g·d and Σ g²."""
    held = weights if penalised is None else np.where(penalised != 0, weights, 0.0)
    if l2:
        gradient += l2 * held
    slope = 0.0 if direction is None else dot(gradient, direction, n_jobs)
    return 0.5 * l2 * dot(held, held, n_jobs), slope, dot(gradient, gradient, n_jobs)


def _pseudo_gradient(
    weights: np.ndarray, gradient: np.ndarray, l1: float, penalised: np.ndarray | None
) -> np.ndarray:
    at_zero = np.sign(gradient) * np.maximum(np.abs(gradient) - l1, 0.0)
    pseudo = np.where(weights == 0, at_zero, gradient + l1 * np.sign(weights))
    return pseudo if penalised is None else np.where(penalised != 0, pseudo, gradient)


def pseudo_gradient(
    weights: np.ndarray,
    gradient: np.ndarray,
    l1: float,
    penalised: np.ndarray | None,
    out: np.ndarray,
    n_jobs: int,
) -> float:
    """Out = the shortest subgradient of f + l1 |w|; gives Σ out²."""
    out[...] = _pseudo_gradient(weights, gradient, l1, penalised)
    return dot(out, out, n_jobs)


def orthant_step(
    weights: np.ndarray,
    gradient: np.ndarray,
    direction: np.ndarray,
    size: float,
    l1: float,
    penalised: np.ndarray | None,
    out: np.ndarray,
    n_jobs: int,
) -> tuple[float, float, int]:
    """Out = w + t d without crossing zero; gives pseudo-gradient · (out − w), Σ |out| and the non-zeros."""
    pseudo = _pseudo_gradient(weights, gradient, l1, penalised)
    moved = weights + size * direction
    crossed = moved * np.sign(weights) < 0
    if penalised is not None:
        crossed &= penalised != 0
    np.copyto(out, np.where(crossed, 0.0, moved))
    return dot(pseudo, out - weights, n_jobs), l1_norm(out, penalised, n_jobs), int(np.count_nonzero(out))


class History:
    """The last pairs of steps s and gradient changes y, and the inverse curvature they imply."""

    def __init__(
        self, n: int, memory: int, single: bool, diagonal: np.ndarray | None, n_jobs: int, trusted: bool = False
    ) -> None:
        self.n, self.memory, self.n_jobs, self._trusted = n, memory, n_jobs, trusted
        self._kind = np.float32 if single else np.float64
        self._diagonal = diagonal
        self._pairs: list[tuple[np.ndarray, np.ndarray, float]] = []  # s, y, s·y; the oldest first

    def __len__(self) -> int:
        """The number of pairs kept."""
        return len(self._pairs)

    def clear(self) -> None:
        """Forget all pairs."""
        self._pairs.clear()

    def _scaled(self, vector: np.ndarray) -> np.ndarray:
        return vector if self._diagonal is None else self._diagonal * vector

    def push(
        self, weights: np.ndarray, old_weights: np.ndarray, gradient: np.ndarray, old_gradient: np.ndarray
    ) -> bool:
        """Keep s = w − w_old and y = g − g_old, dropping the oldest pair of a full history."""
        with np.errstate(over="ignore", invalid="ignore"):
            s, y = (weights - old_weights).astype(self._kind), (gradient - old_gradient).astype(self._kind)
            if len(self._pairs) == self.memory:
                self._pairs.pop(0)
            wide = y.astype(np.float64)
            curvature, square = dot(s.astype(np.float64), wide, 1), dot(wide, wide, 1)
        if not (curvature > EPSILON * square and np.isfinite(curvature) and square > 0):
            return False
        self._pairs.append((s, y, curvature))
        return True

    def direction(
        self, steepest: np.ndarray, out: np.ndarray, orthant: np.ndarray | None, penalised: np.ndarray | None
    ) -> float:
        """Out = −H steepest, optionally kept to an orthant; gives steepest · out."""
        q = steepest.copy()
        wide = [(s.astype(np.float64), y.astype(np.float64), curvature) for s, y, curvature in self._pairs]
        taken = []
        for s, y, curvature in reversed(wide):
            taken.append(dot(s, q, 1) / curvature)
            q -= taken[-1] * y
        q = self._scaled(q)
        if wide and not self._trusted:
            _, y, curvature = wide[-1]
            q = q * (curvature / dot(y, self._scaled(y), 1))
        for s, y, curvature in wide:
            q += (taken.pop() - dot(y, q, 1) / curvature) * s
        if orthant is not None:
            astray = (orthant == 0) & ~(q * steepest > 0)
            q[astray if penalised is None else astray & (penalised != 0)] = 0.0
        slope = -dot(steepest, q, 1)
        np.negative(q, out=out)
        return slope

    def advance(
        self,
        weights: np.ndarray,
        old_weights: np.ndarray,
        gradient: np.ndarray,
        old_gradient: np.ndarray,
        steepest: np.ndarray,
        out: np.ndarray,
        orthant: np.ndarray | None,
        penalised: np.ndarray | None,
    ) -> tuple[bool, float]:
        """Push, then direction; the compiled body reads the pairs once less."""
        kept = self.push(weights, old_weights, gradient, old_gradient)
        return kept, self.direction(steepest, out, orthant, penalised)

    def write(self, s: np.ndarray, y: np.ndarray, s_y: np.ndarray, y_dy: np.ndarray) -> None:
        """Write the pairs as bytes, the oldest first, and their products."""
        for k, vectors in ((0, s), (1, y)):
            joined = np.concatenate([pair[k] for pair in self._pairs]) if self._pairs else np.zeros(0, self._kind)
            vectors[:] = joined.view(np.uint8)
        s_y[:] = 0.0
        wide = [(p.astype(np.float64), q.astype(np.float64), curvature) for p, q, curvature in self._pairs]
        for i, (step, change, curvature) in enumerate(wide):
            s_y[i, i] = curvature
            for j, (_, other, _) in enumerate(wide):
                y_dy[i, j] = dot(change, self._scaled(other), 1)
                if i < j:
                    s_y[i, j] = dot(step, other, 1)

    def read(self, s: np.ndarray, y: np.ndarray, s_y: np.ndarray, y_dy: np.ndarray) -> None:
        """Take pairs that `write` wrote in place of all that are kept."""
        count = len(s_y)
        steps, changes = (part.view(self._kind).reshape(count, self.n).copy() for part in (s, y))
        self._pairs = [(steps[i], changes[i], float(s_y[i, i])) for i in range(count)]
