"""Long flat vectors: what L-BFGS and OWL-QN do between two evaluations of the objective.

At millions of weights these operations are bound by memory, and written as a chain of NumPy expressions they
cost more than the objective itself. Here each is one pass over memory. Sums are taken over fixed blocks that
are added in order, so the result has the same bits for any number of threads.

`History` holds m pairs (s, y), at choice rounded to single precision: the products of the pairs are then taken
of the *rounded* vectors, so the quadratic model that they imply is a consistent one and only its curvature, not
the gradient or the optimum, is approximate. The compiled body never runs the two loops over long vectors: with
the small tables s_i·y_j and y_i·D y_j kept up to date, the recursion runs on coefficients, and a step reads the
pairs twice (once for products with the new vectors, once for the result) instead of four times
(Byrd, Nocedal & Schnabel 1994, *Representations of quasi-Newton matrices*; Chen et al. 2014,
*Large-scale L-BFGS using MapReduce*).

All vectors are 1-D, contiguous, float64 of one length; ``penalised`` is uint8 of that length, non-zero where the
penalty applies, or None for everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from crfield.errors import InputError, ShapeError
from crfield.kernels.choice import body


class Ridge(NamedTuple):
    """What `add_ridge` found: ½ l2 Σ w², the slope g·d (0 without d) and Σ g²."""

    value: float
    slope: float
    squared_norm: float


class OrthantStep(NamedTuple):
    """What `orthant_step` found: pseudo-gradient · (out − w), Σ |out| where penalised, non-zeros of out."""

    slope: float
    l1_norm: float
    n_active: int


DOUBLE = np.dtype(np.float64)  # comparing with the class would look it up each time


def _check(penalised: np.ndarray | None = None, /, **vectors: np.ndarray) -> None:
    length = -1
    for name, vector in vectors.items():
        if not isinstance(vector, np.ndarray) or vector.dtype != DOUBLE or vector.ndim != 1:
            got = f"{vector.dtype} {vector.shape}" if isinstance(vector, np.ndarray) else type(vector).__name__
            raise ShapeError(f"{name} must be a 1-D float64 array, got {got}.")
        if not vector.flags.c_contiguous:
            raise ShapeError(f"{name} must be contiguous, got strides {vector.strides}: pass a copy.")
        length = len(vector) if length < 0 else length
        if len(vector) != length:
            raise ShapeError(f"{name} must have {length} entries like the other vectors, got {len(vector)}.")
    if penalised is not None and (
        not isinstance(penalised, np.ndarray)
        or penalised.dtype != np.uint8
        or penalised.shape != (length,)
        or not penalised.flags.c_contiguous
    ):
        got = f"{getattr(penalised, 'dtype', type(penalised).__name__)} {getattr(penalised, 'shape', '')}"
        raise ShapeError(f"penalised must be None or contiguous uint8 of shape ({length},), got {got}.")


def dot(a: np.ndarray, b: np.ndarray, *, n_jobs: int = 1) -> float:
    """Σ a b.

    >>> dot(np.array([1.0, 2.0]), np.array([3.0, 4.0]))
    11.0
    """
    _check(a=a, b=b)
    return float(body("vectors").dot(a, b, n_jobs))


def step(weights: np.ndarray, direction: np.ndarray, size: float, out: np.ndarray, *, n_jobs: int = 1) -> None:
    """Write w + t d into ``out``.

    >>> out = np.empty(2)
    >>> step(np.array([1.0, 2.0]), np.array([2.0, 0.0]), 0.5, out)
    >>> out.tolist()
    [2.0, 2.0]
    """
    _check(weights=weights, direction=direction, out=out)
    body("vectors").step(weights, direction, float(size), out, n_jobs)


def l1_norm(weights: np.ndarray, *, penalised: np.ndarray | None = None, n_jobs: int = 1) -> float:
    """Σ |w| over the penalised weights.

    >>> l1_norm(np.array([1.0, -2.0]), penalised=np.array([0, 1], np.uint8))
    2.0
    """
    _check(penalised, weights=weights)
    return float(body("vectors").l1_norm(weights, penalised, n_jobs))


def add_ridge(
    weights: np.ndarray,
    gradient: np.ndarray,
    l2: float,
    *,
    penalised: np.ndarray | None = None,
    direction: np.ndarray | None = None,
    n_jobs: int = 1,
) -> Ridge:
    """Add the gradient of ½ l2 Σ w² to ``gradient`` in place; the same pass gives g·d and Σ g² of the sum.

    >>> gradient = np.array([1.0, 1.0])
    >>> add_ridge(np.array([2.0, 5.0]), gradient, 0.5, penalised=np.array([1, 0], np.uint8))
    Ridge(value=1.0, slope=0.0, squared_norm=5.0)
    >>> gradient.tolist()
    [2.0, 1.0]
    """
    if direction is None:
        _check(penalised, weights=weights, gradient=gradient)
    else:
        _check(penalised, weights=weights, gradient=gradient, direction=direction)
    return Ridge(*body("vectors").add_ridge(weights, gradient, direction, float(l2), penalised, n_jobs))


def pseudo_gradient(
    weights: np.ndarray,
    gradient: np.ndarray,
    l1: float,
    out: np.ndarray,
    *,
    penalised: np.ndarray | None = None,
    n_jobs: int = 1,
) -> float:
    """Write the shortest subgradient of f + l1 Σ|w| into ``out`` and give Σ out².

        out_k = g_k + l1 sign(w_k)                 where w_k ≠ 0
        out_k = sign(g_k) max(|g_k| − l1, 0)       where w_k = 0
        out_k = g_k                                where not penalised

    >>> out = np.empty(3)
    >>> pseudo_gradient(np.array([1.0, 0.0, 0.0]), np.array([0.5, 0.5, -3.0]), 1.0, out)
    6.25
    >>> out.tolist()
    [1.5, 0.0, -2.0]
    """
    _check(penalised, weights=weights, gradient=gradient, out=out)
    return float(body("vectors").pseudo_gradient(weights, gradient, float(l1), penalised, out, n_jobs))


def orthant_step(
    weights: np.ndarray,
    gradient: np.ndarray,
    direction: np.ndarray,
    size: float,
    l1: float,
    out: np.ndarray,
    *,
    penalised: np.ndarray | None = None,
    n_jobs: int = 1,
) -> OrthantStep:
    """Write w + t d into ``out``, with zero for every penalised weight whose sign would change.

    The direction must respect that orthant (`History.direction`): a weight of zero moves only against the
    pseudo-gradient.

    >>> out = np.empty(3)
    >>> orthant_step(np.array([1.0, 1.0, 0.0]), np.zeros(3), np.array([-2.0, 1.0, 1.0]), 1.0, 0.5, out)
    OrthantStep(slope=0.0, l1_norm=3.0, n_active=2)
    >>> out.tolist()
    [0.0, 2.0, 1.0]
    """
    _check(penalised, weights=weights, gradient=gradient, direction=direction, out=out)
    result = body("vectors").orthant_step(
        weights, gradient, direction, float(size), float(l1), penalised, out, n_jobs
    )
    return OrthantStep(*result)


class History:
    """The curvature seen in the last ``memory`` steps: pairs s = w − w_old, y = g − g_old.

        H  = (I − ρ s yᵀ) H' (I − ρ y sᵀ) + ρ s sᵀ,   ρ = 1 / sᵀy        for each pair, the oldest first
        H₀ = γ diag(D),   γ = sᵀy / yᵀ D y of the newest pair            (γ = 1 without pairs)

    With ``single`` the pairs are kept in float32: 8 bytes per weight and pair instead of 16. ``diagonal`` (D,
    positive) must not change while the history lives. With ``trusted`` γ stays 1: H₀ is the inverse of the second
    derivative itself, and a pair from a direction in which it is not must not rescale all others. A history belongs
    to one run in one thread.

    >>> history = History(2, 5)
    >>> history.push(np.array([1.0, 0.0]), np.zeros(2), np.array([4.0, 0.0]), np.zeros(2))
    True
    >>> out = np.empty(2)
    >>> history.direction(np.array([4.0, 1.0]), out), out.tolist()
    (-4.25, [-1.0, -0.25])
    """

    def __init__(
        self,
        n: int,
        memory: int,
        *,
        single: bool = False,
        diagonal: np.ndarray | None = None,
        n_jobs: int = 1,
        trusted: bool = False,
    ) -> None:
        if n < 0 or not 1 <= memory <= 1000:
            raise InputError(f"a history needs n >= 0 and a memory of 1 … 1000 pairs, got n={n}, memory={memory}.")
        self.n, self._kind = n, np.dtype(np.float32 if single else np.float64)
        self.memory = memory
        if diagonal is not None:
            self._fits(diagonal=diagonal)
        self._body = body("vectors").History(n, memory, single, diagonal, n_jobs, trusted)

    def _fits(self, penalised: np.ndarray | None = None, /, **vectors: np.ndarray) -> None:
        _check(penalised, **vectors)
        length = len(next(iter(vectors.values())))
        if length != self.n:
            raise ShapeError(f"this history is of vectors of length {self.n}, got length {length}.")

    def __len__(self) -> int:
        """The number of pairs kept now."""
        return len(self._body)

    def clear(self) -> None:
        """Forget all pairs."""
        self._body.clear()

    def push(
        self, weights: np.ndarray, old_weights: np.ndarray, gradient: np.ndarray, old_gradient: np.ndarray
    ) -> bool:
        """Keep the pair of this step. False, and not kept, unless sᵀy > ε yᵀy (ε the unit of rounding).

        The new pair takes the room of the oldest one when the history is full, kept or not.
        """
        self._fits(weights=weights, old_weights=old_weights, gradient=gradient, old_gradient=old_gradient)
        return bool(self._body.push(weights, old_weights, gradient, old_gradient))

    def direction(
        self,
        steepest: np.ndarray,
        out: np.ndarray,
        *,
        orthant: np.ndarray | None = None,
        penalised: np.ndarray | None = None,
    ) -> float:
        """Write d = −H g into ``out`` and give the slope gᵀd, where g = ``steepest``; they may be one array.

        With the weights as ``orthant`` (OWL-QN, where g is the pseudo-gradient) an entry of d at a penalised
        weight of zero is set to zero unless it opposes g. Entries at other weights are left alone: there F is
        smooth, and cutting them too, as Andrew & Gao do, spoils the direction without need.
        """
        self._fits(penalised, steepest=steepest, out=out, orthant=steepest if orthant is None else orthant)
        return float(self._body.direction(steepest, out, orthant, penalised))

    def advance(
        self,
        weights: np.ndarray,
        old_weights: np.ndarray,
        gradient: np.ndarray,
        old_gradient: np.ndarray,
        steepest: np.ndarray,
        out: np.ndarray,
        *,
        orthant: np.ndarray | None = None,
        penalised: np.ndarray | None = None,
    ) -> tuple[bool, float]:
        """`push` and `direction` in one: whether the pair was kept, and the slope."""
        self._fits(weights=weights, old_weights=old_weights, gradient=gradient, old_gradient=old_gradient)
        self._fits(penalised, steepest=steepest, out=out, orthant=steepest if orthant is None else orthant)
        kept, slope = self._body.advance(
            weights, old_weights, gradient, old_gradient, steepest, out, orthant, penalised
        )
        return bool(kept), float(slope)

    def state(self) -> dict[str, np.ndarray]:
        """All m pairs, the oldest first: ``s`` and ``y`` (m, n), and s_i·y_j (i ≤ j) and y_i·D y_j, both (m, m).

        A history that `restore` has filled from it goes on with the same bits.

        >>> history = History(2, 5)
        >>> _ = history.push(np.array([1.0, 0.0]), np.zeros(2), np.array([4.0, 0.0]), np.zeros(2))
        >>> history.state()["y"].tolist(), history.state()["s_y"].tolist()
        ([[4.0, 0.0]], [[4.0]])
        """
        count = len(self)
        s, y = (np.empty(count * self.n, self._kind) for _ in range(2))
        s_y, y_dy = np.empty((count, count)), np.empty((count, count))
        self._body.write(s.view(np.uint8), y.view(np.uint8), s_y, y_dy)
        return {"s": s.reshape(count, self.n), "y": y.reshape(count, self.n), "s_y": s_y, "y_dy": y_dy}

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Take the pairs of a `state` in place of those that are kept.

        >>> history, other = History(2, 5), History(2, 5)
        >>> _ = history.push(np.array([1.0, 0.0]), np.zeros(2), np.array([4.0, 0.0]), np.zeros(2))
        >>> other.restore(history.state())
        >>> len(other)
        1
        """
        wide = np.dtype(np.float64)
        kinds = {"s": self._kind, "y": self._kind, "s_y": wide, "y_dy": wide}
        parts = {name: state.get(name) for name in kinds}
        count = len(parts["s"]) if isinstance(parts["s"], np.ndarray) and parts["s"].ndim == 2 else -1
        shapes = {"s": (count, self.n), "y": (count, self.n), "s_y": (count, count), "y_dy": (count, count)}
        for name, part in parts.items():
            fits = isinstance(part, np.ndarray) and part.dtype == kinds[name] and part.shape == shapes[name]
            if not fits or not 0 <= count <= self.memory:
                got = f"{part.dtype} {part.shape}" if isinstance(part, np.ndarray) else type(part).__name__
                raise ShapeError(
                    f"{name!r} must be {kinds[name]} of shape {shapes[name]} in a history of at most {self.memory} "
                    f"pairs of {self.n} numbers, got {got}."
                )
        s, y, s_y, y_dy = (np.ascontiguousarray(part) for part in parts.values())
        self._body.read(s.reshape(-1).view(np.uint8), y.reshape(-1).view(np.uint8), s_y, y_dy)
