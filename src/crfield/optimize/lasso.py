"""The lasso of few weights, exactly: the model that proximal Newton minimises in every step.

    min over z      ½ |R (z − w) + r|² + cᵀz + Σ l1_k |z_k|

R (M, W) is a root of the second derivative, not the derivative itself: columns far from zero are alike but for one
part in a million, and their squares would hold no digit of what tells them apart. So nothing is squared. Given which
weights are not zero, and their signs, the minimum is a least-squares problem (QR); on the way there the function is
convex and made of parabolas, whose lowest point is found by going from kink to kink; a weight whose kink that is
becomes zero. Where nothing is left to do, weights that wish to leave zero are let go (Lee, Battle, Raina & Ng 2007,
*Efficient sparse coding algorithms*). Every round lowers the function and there are finitely many sets of signs, so
it ends, at the minimum.
"""

from __future__ import annotations

import numpy as np

from crfield.optimize.dense_newton import subgradient

ENOUGH = 1e-8  # of the decrease so far: what is not worth going on for
ROUNDING = 1e-14  # of the sizes of both factors: a slope that is not told from none
LEAST = 1e-24  # of the square of a column: what is left of it beside others is rounding
EAGER = 0.03  # of the most that a weight at zero could gain: who gains as much leaves with it
ROUNDS = 20  # and as many for each weight; reached only where rounding makes signs go back and forth


def lasso_step(
    root: np.ndarray, residual: np.ndarray, linear: np.ndarray, start: np.ndarray, l1: np.ndarray
) -> tuple[np.ndarray, float]:
    """z − w, for w = ``start`` (W,), r = ``residual`` (M,) and c = ``linear``, and how much lower it is there.

    >>> step, lower = lasso_step(np.eye(2), np.array([-3.0, -0.5]), np.zeros(2), np.zeros(2), np.ones(2))
    >>> step.tolist(), lower
    ([2.0, 0.0], 2.0)
    """
    here, left = start.copy(), residual.copy()
    sizes = np.sqrt((root * root).sum(axis=0))
    free, stuck = (here != 0) | (l1 == 0), np.zeros(len(start), dtype=bool)
    fallen, solved, best = 0.0, not free.any(), -1
    for _ in range(ROUNDS * (len(start) + 1)):
        steepest = subgradient(here, linear + root.T @ left, l1)
        if solved:
            noise = ROUNDING * (sizes * float(np.linalg.norm(left)) + np.abs(linear))
            gain = _gains(root, steepest, free, ~free & ~stuck & (np.abs(steepest) > noise))
            if float(gain.sum()) <= ENOUGH * fallen:
                break
            best = int(gain.argmax())
            free |= gain >= EAGER * gain[best]
        side = np.where(here != 0, np.sign(here), -np.sign(steepest))
        move, at = _towards(root, left, linear + l1 * side, free)
        fresh = (here[at] == 0) & (l1[at] > 0)
        back = fresh & (move * side[at] <= 0)
        if back.any():
            # Who left in company may be driven back; alone, the one that gains most is not, but for rounding.
            free[at[back]] = False
            solved = int(fresh.sum()) == 1
            stuck[at[fresh]] |= solved
            free[best] |= not solved and bool((back == fresh).all())
            continue
        bent, before = root[:, at] @ move, here[at]
        slope, curve = float(bent @ left + linear[at] @ move), float(bent @ bent)
        share, kink = _lowest(before, move, l1[at], slope=slope, curve=curve)
        here[at] += share * move
        if kink >= 0:
            here[at[kink]], free[at[kink]] = 0.0, False
        left += share * bent
        fallen -= share * (slope + 0.5 * share * curve) + float(l1[at] @ (np.abs(here[at]) - np.abs(before)))
        solved = kink < 0 and not (before * here[at] < 0).any()
    return here - start, float(fallen)


def _gains(root: np.ndarray, steepest: np.ndarray, free: np.ndarray, wish: np.ndarray) -> np.ndarray:
    """(W,) how much lower it would be for each weight that wishes to leave zero, were it and the free ones let go."""
    gain = np.zeros(len(free))
    if wish.any():
        across = np.linalg.qr(root[:, free])[0]
        beside = root[:, wish] - across @ (across.T @ root[:, wish])
        least = LEAST * (root[:, wish] ** 2).sum(axis=0)
        gain[wish] = steepest[wish] ** 2 / (2 * np.maximum((beside**2).sum(axis=0), least))
    return gain


def _towards(root: np.ndarray, left: np.ndarray, pull: np.ndarray, free: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The step of the ``free`` weights to the minimum of ½ |R d + left|² + pull · d, and where they are."""
    from scipy.linalg import solve_triangular

    at = np.flatnonzero(free)
    triangle = np.asarray(np.linalg.qr(np.column_stack([root[:, at], left]), mode="r"))[: len(at)]
    whole, right = triangle[:, :-1], triangle[:, -1]
    right = right + solve_triangular(whole, pull[at], trans=1, check_finite=False)
    return -solve_triangular(whole, right, check_finite=False), at


def _lowest(here: np.ndarray, move: np.ndarray, l1: np.ndarray, *, slope: float, curve: float) -> tuple[float, int]:
    """The share of a move at which ½ curve t² + slope t + Σ l1 |w + t d| is lowest, and whose kink that is, or −1."""
    with np.errstate(divide="ignore", invalid="ignore"):
        kinks = np.where((move * here < 0) & (l1 > 0), -here / move, np.inf)
    rise = slope + float(l1 @ (move * np.where(here != 0, np.sign(here), np.sign(move))))
    for k in np.argsort(kinks, kind="stable"):
        if not kinks[k] < 1 or rise + curve * kinks[k] >= 0:
            break
        jump = 2 * l1[k] * abs(move[k])
        if rise + jump + curve * kinks[k] >= 0:
            return float(kinks[k]), int(k)
        rise += jump
    return min(max(-rise / curve, 0.0), 1.0) if curve > 0 else 0.0, -1
