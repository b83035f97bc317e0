"""Planes below a convex function: a proof of how far F is above its minimum, for the end of a run.

Each gradient of the data's part f of F = f + ½ l2 ‖w‖² is a plane below f, and so is every mixture of planes, whose
least sum with the ridge is known (`Planes`). One plane proves what the ridge alone does, |∇F|² / (2 l2), ten to a
hundred times the true gap near the end of L-BFGS; eight prove two to four times the gap.

A run of L-BFGS (`Proof`) asks for planes when the estimate of its gap is within ten tolerances (`optimize.stopping`),
and ends when the estimate or the proof is within one. Estimates are cautious where many rates are mixed, so the proof
is often there first; what it says is certain, with value and bound in double precision. It needs

- a convex f, an l2 > 0 on every weight and no l1;
- weights in their own coordinates and values in double: planes of another basis would be of another ridge;
- a tolerance of ``FINEST`` or more, since slopes are kept in single precision and the bound is lowered for that;
- evaluations that cost far more than the products of a plane with the others. The problem says so (``planes_pay``).

Memory: 4 W bytes a plane, three to eight of them (`capacity`), from the first that is asked for.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from crfield.kernels import vectors
from crfield.optimize.penalty import Point
from crfield.optimize.resume import Found, refuse_state

FINEST = 1e-7  # tolerance that planes in single precision can prove
PIECE = 1 << 14  # numbers of a plane that are doubles at a time
MOST = 64  # planes that a state may have


def capacity(n_weights: int) -> int:
    """Planes to keep: eight, fewer where that would be more than four million numbers, and three at least.

    >>> capacity(1000), capacity(700_000), capacity(7_400_000)
    (8, 5, 3)
    """
    return int(min(max(4_000_000 // max(n_weights, 1), 3), 8))


class Planes:
    """A lower bound on the minimum of F(w) = f(w) + ½ l2 ‖w‖² from planes below the convex f.

        f(w) ≥ a_kᵀw + b_k  for all w        F* ≥ max over c of  cᵀb − ‖Σ c_k a_k‖² / (2 l2),   c ≥ 0, Σ c_k = 1

    For each c the right side is the least value of a function below F, so any c is a proof, and the best c is found
    from the products of the a_k alone: a dual of the cutting planes of Teo et al. 2010 (*Bundle methods for
    regularized risk minimization*). With one plane, the gradient at w, it says F(w) − F* ≤ |∇F(w)|² / (2 l2); with
    several it says far more, since errors of different planes cancel. Cost: K products of W numbers for each new
    plane, and the K planes are kept; the one that takes least part gives way to a new one.

    They are kept in single precision. With e_k = ‖a_k − what is kept of it‖, Σ c_k a_k is at most e = Σ c_k e_k
    longer than it seems, and the bound is lowered by what that may make: e (2 ‖Σ c_k a_k‖ + e) / (2 l2).

    >>> planes = Planes(2.0)
    >>> planes.add(np.array([-2.0]), 1.0)   # f(w) = (w − 1)² at 0, and at 1
    >>> round(planes.bound(), 6)
    0.0
    >>> planes.add(np.array([0.0]), 0.0)
    >>> round(planes.bound(), 6)            # F* = ½, at w = ½, where f has the slope −1
    0.25
    >>> planes.add(np.array([-1.0]), 0.75)
    >>> round(planes.bound(), 6)
    0.5
    """

    def __init__(self, l2: float, capacity: int = 8) -> None:
        self.l2, self.capacity = l2, capacity
        self.slopes: list[np.ndarray] = []  # float32
        self.heights, self.errors = np.zeros(0), np.zeros(0)
        self.products = np.zeros((0, 0))
        self.shares = np.zeros(0)

    def add(self, slope: np.ndarray, height: float) -> None:
        """One more plane, with the slope (W,)."""
        if not math.isfinite(height):
            return
        kept = slope.astype(np.float32)
        if len(self.slopes) == self.capacity:
            least = int(self.shares.argmin())
            self.slopes.pop(least)
            self.heights, self.errors = np.delete(self.heights, least), np.delete(self.errors, least)
            self.shares = np.delete(self.shares, least)
            self.products = np.delete(np.delete(self.products, least, axis=0), least, axis=1)
        row = _products(kept, [*self.slopes, kept])
        self.slopes.append(kept)
        self.errors = np.append(self.errors, _distance(slope, kept))
        n = len(self.slopes)
        grown = np.empty((n, n))
        grown[:-1, :-1], grown[-1], grown[:, -1] = self.products, row, row
        self.products, self.heights = grown, np.append(self.heights, height)
        self.shares = np.append(self.shares, 1.0 if n == 1 else 0.0)

    def bound(self) -> float:
        """The largest lower bound on F* that the planes prove; −∞ without any.

        The planes that take part are found one by one, as Lawson & Hanson 1974 find those of a least-squares fit: the
        one that gains most joins, and what the optimum on those that have joined would make negative leaves.
        """
        if not self.slopes:
            return -math.inf
        curved, shares = self.products / self.l2, self.shares
        slack = 1e-12 * max(1.0, float(np.abs(self.heights).max()))
        settled = False  # whether the shares are best on the planes that take part
        for _ in range(8 * len(shares)):
            gains = self.heights - curved @ shares
            best = int(gains.argmax())
            gaining = gains[best] - float(gains @ shares) > slack
            if settled and not gaining:
                break
            joined = shares > 0
            joined[best] |= gaining
            moved = self._optimum(curved, joined)
            falls = np.where(moved < 0, shares - moved, 1.0)
            reach = float(np.where(moved < 0, shares / falls, 1.0).min())
            shares = shares + reach * (moved - shares)
            shares[shares <= 1e-15] = 0.0
            shares /= shares.sum()
            settled = reach >= 1.0
        if self._value(curved, shares) > self._value(curved, self.shares):
            self.shares = shares
        return self._value(curved, self.shares)

    def state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Entries of a header and arrays, for the state of a run."""
        header = {"heights": self.heights.tolist(), "errors": self.errors.tolist()}
        arrays = {f"plane/{k}": slope.astype(float) for k, slope in enumerate(self.slopes)}
        return header, arrays | {"shares": self.shares}

    def restore(self, found: Found, n_weights: int) -> None:
        """Go on with the planes of a `state`; runs that older versions kept may have none."""
        told = found.header.get("heights", [])
        heights = [found.number("height", within=x) for x in found.listed("heights", len(told))] if told else []
        if len(heights) > MOST:
            refuse_state(f"it has {len(heights)} planes")
        self.capacity = max(self.capacity, len(heights))
        known = "errors" in found.header  # older versions kept planes in double precision
        errors = found.listed("errors", len(heights)) if known else [0.0] * len(heights)
        for number, height in enumerate(heights):
            self.add(found.vector(f"plane/{number}", n_weights), height)
            self.errors[-1] += found.number("error", within=errors[number], least=0.0)
        if heights:
            shares = found.vector("shares", len(heights))
            if shares.min() < 0 or not math.isclose(float(shares.sum()), 1.0, rel_tol=1e-9):
                refuse_state("the shares of its planes are no shares")
            self.shares = shares.copy()

    def _value(self, curved: np.ndarray, shares: np.ndarray) -> float:
        squares, error = max(float(shares @ curved @ shares), 0.0), float(self.errors @ shares)
        slack = error * (2 * math.sqrt(squares * self.l2) + error) / (2 * self.l2)
        return float(self.heights @ shares) - 0.5 * squares - slack

    def _optimum(self, curved: np.ndarray, joined: np.ndarray) -> np.ndarray:
        """Shares that sum to one and are best on the joined planes, of either sign."""
        at = np.flatnonzero(joined)
        n = len(at)
        system = np.zeros((n + 1, n + 1))
        system[:n, :n], system[n, :n], system[:n, n] = curved[np.ix_(at, at)], 1.0, 1.0
        system[:n, :n] += 1e-13 * np.trace(system[:n, :n]) * np.eye(n)
        shares = np.zeros(len(joined))
        shares[at] = np.linalg.lstsq(system, np.append(self.heights[at], 1.0), rcond=None)[0][:n]
        return shares


def _products(a: np.ndarray, others: list[np.ndarray]) -> np.ndarray:
    """(K,) aᵀb of single-precision vectors for each b of ``others``, in double precision, without copies of them."""
    sums = np.zeros(len(others))
    for k in range(0, len(a), PIECE):
        piece = a[k : k + PIECE].astype(float)
        sums += [vectors.dot(piece, other[k : k + PIECE].astype(float)) for other in others]
    return sums


def _distance(a: np.ndarray, kept: np.ndarray) -> float:
    """‖a − kept‖."""
    pieces = (a[k : k + PIECE] - kept[k : k + PIECE] for k in range(0, len(a), PIECE))
    return math.sqrt(sum(vectors.dot(piece, piece) for piece in pieces))


class Proof:
    """What planes prove of a run of L-BFGS, from where its estimate of the gap comes near the tolerance.

    >>> proof = Proof(2.0, 1)
    >>> near = Point(np.array([0.51]), np.array([0.04]), value=0.5002)   # (w − 1)² + w²
    >>> round(proof.gap(near, np.empty(1)), 6)
    0.0008
    """

    def __init__(self, l2: float, n_weights: int) -> None:
        self.n_weights = n_weights
        self.planes: Planes | None = Planes(l2, capacity(n_weights))
        self.bound = -math.inf

    def gap(self, here: Point, scratch: np.ndarray) -> float:
        """The proved (F − F*) / |F*| at a point, whose gradient of F is one more plane; ``scratch`` (W,) is lost.

        A bound above F itself would mean that f is not convex; then nothing is proved here or later.
        """
        if self.planes is None:
            return math.inf
        l2 = self.planes.l2
        np.multiply(here.weights, -l2, out=scratch)
        scratch += here.gradient
        data = here.value - 0.5 * l2 * vectors.dot(here.weights, here.weights)
        self.planes.add(scratch, data - vectors.dot(scratch, here.weights))
        self.bound = max(self.bound, self.planes.bound())
        if self.bound > here.value + 1e-9 * abs(here.value):
            self.planes, self.bound = None, -math.inf
        return relative_gap(here.value, self.bound)

    def state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Entries of a header and arrays."""
        if self.planes is None:
            return {"heights": None}, {}
        header, arrays = self.planes.state()
        return header | {"lower_bound": self.bound}, arrays

    def restore(self, found: Found, here: Point) -> None:
        """Go on where the one whose `state` this is was, at ``here``, which no plane may be above."""
        if self.planes is None or found.header.get("heights") is None:
            self.planes = None
            return
        self.planes.restore(found, self.n_weights)
        self.bound = found.number("lower_bound")
        slack, square = 1e-9 * max(abs(here.value), 1.0), vectors.dot(here.weights, here.weights)
        data = here.value - 0.5 * self.planes.l2 * square
        heights = self.planes.heights - self.planes.errors * math.sqrt(square)
        tops = [vectors.dot(slope.astype(float), here.weights) + h for slope, h in zip(self.planes.slopes, heights)]
        if self.bound > here.value + slack or max(tops, default=-math.inf) > data + slack:
            refuse_state(f"it says that F is {here.value:g}, and its planes that it is more")


def relative_gap(value: float, bound: float) -> float:
    """The most that (F − F*) / |F*| can be if F* is at least ``bound``; ∞ where F* may be zero.

    >>> relative_gap(12.0, 10.0), relative_gap(-10.0, -12.0), relative_gap(1.0, -1.0), relative_gap(5.0, 5.0)
    (0.2, 0.2, inf, 0.0)
    """
    least = bound if bound > 0 else -value
    return max(value - bound, 0.0) / least if least > 0 else math.inf
