"""Proximal Newton: an l1 penalty on few weights of columns in whatever units they come.

    F(w) = f(w) + l1 Σ |w_k| + ½ l2 Σ w_k²

OWL-QN can be told the units of columns by a diagonal, but no diagonal undoes a large mean: weights of columns far
from zero, and their intercepts, move together or not at all, and a penalty of single weights forbids other
coordinates. So each step takes the penalty as it is and a model of f from other coordinates, w = A u
(`optimize.basis`), in which f is round:

    min over z      gᵀ(z − w) + ½ |J A⁻¹ (z − w)|² + ½ l2 ‖z‖² + l1 ‖z‖₁

That is a lasso (`optimize.lasso`: exact, with exact zeros). The step goes there, or part of the way (Lee, Sun &
Saunders 2014, *Proximal Newton-type methods*). J begins as the unit matrix, which A is made for, and learns from
every step (BFGS, of the root: Dennis & Schnabel 1983, section 9.2); where the end is far, or is to be proved, it is
a root of the second derivative (`optimize.stopping`), which costs an evaluation for each weight. Then the gain of the
model is about the gap, and `converged` is claimed of four times that, and of what rounding leaves of F: sums of x w
that cancel have few digits. A step costs an evaluation and O(W³) arithmetic: for hundreds of weights.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import numpy as np

from crfield.optimize.basis import DIFFERENCE, Basis, graded_root, second_derivative
from crfield.optimize.dense_newton import grown, slope_along, subgradient
from crfield.optimize.history import (
    CALLBACK,
    INTERRUPTED,
    MAX_ITER,
    NO_IMPROVEMENT,
    TOLERANCE,
    Result,
    Step,
    check_first,
    check_run,
)
from crfield.optimize.lasso import lasso_step
from crfield.optimize.penalty import Penalty
from crfield.optimize.problem import Problem
from crfield.optimize.resume import Found, RunState, State, steps_of_table, steps_table, taking_over
from crfield.optimize.stopping import STALLED, Renewal, Stopping

PHASE = "proximal_newton"
DECREASE = 1e-4  # of what the model promises
ROUNDING = 1e-13  # relative error of F itself
TRIALS = 20
AT_HAND = 1e-10  # a step that changes nothing but the rounding of a gradient
DIGITS = 4.0  # how much larger curvature must be than what rounding makes of none
LOUD = 100.0  # how much larger a change of the gradient, for J to learn from it
HOLD = 1e-4  # of a weight's own bend: what holds one without any penalty where nothing else does

Callback = Callable[[Step, np.ndarray], bool | None]


class _Run:
    """The state of one call of `minimize_proximal`."""

    def __init__(
        self,
        problem: Problem,
        weights: np.ndarray,
        penalty: Penalty,
        basis: Basis,
        *,
        tol: float,
        callback: Callback | None,
        run_state: RunState | None,
    ) -> None:
        n = len(weights)
        self.problem, self.basis, self.callback, self.run_state = problem, basis, callback, run_state
        share = np.ones(n) if penalty.penalised is None else penalty.penalised.astype(np.float64)
        self.l1, self.l2 = penalty.l1 * share, penalty.l2 * share
        self.weights, self.value, self.gradient = weights, math.nan, np.empty(n)  # gradient of f alone
        self.root, self.flat, self.noise = np.eye(n), np.zeros((n, 0)), 0.0  # J, where it is next to nothing, of Aᵀg
        self.step, self.gain = np.zeros(n), 0.0  # to the minimum of the model, and what that promises
        self.stopping = Stopping(tol, convexity=penalty.l2 if penalty.penalised is None else 0.0)
        self.renewal, self.renewed_at = Renewal(n), math.inf  # value where J was computed last
        self.parts = np.abs(basis.behind(np.eye(n)))
        self.steps: list[Step] = []
        self.gap, self.n_evaluations, self.began = math.inf, 0, time.perf_counter()

    def evaluate(self, weights: np.ndarray, gradient: np.ndarray) -> float:
        """F; ``gradient`` becomes that of f."""
        self.n_evaluations += 1
        loss = float(self.problem.evaluate(weights, gradient))
        return loss + float(self.l1 @ np.abs(weights)) + 0.5 * float(self.l2 @ (weights * weights))

    def square(self) -> float:
        """The squared norm of the shortest subgradient."""
        steepest = subgradient(self.weights, self.gradient + self.l2 * self.weights, self.l1)
        return float(steepest @ steepest)

    def aim(self) -> None:
        """Minimise the model here.

        Where J is next to nothing a residual that made the slope would be of any size; there the slope stays a slope.
        """
        n, slope = len(self.weights), self.basis.pull(self.gradient)
        flat = self.flat @ (self.flat.T @ slope)
        root, residual = self.basis.behind(self.root), np.linalg.solve(self.root.T, slope - flat)
        ridge = np.sqrt(self.l2)
        held = np.where((self.l1 == 0) & (ridge == 0), HOLD * np.sqrt((root * root).sum(axis=0)), ridge)
        if held.any():
            rows = np.concatenate([root, np.diag(held)])
            behind = np.concatenate([residual, ridge * self.weights])
            triangle = np.asarray(np.linalg.qr(np.column_stack([rows, behind]), mode="r"))
            root, residual = triangle[:n, :n], triangle[:n, n]
        self.step, self.gain = lasso_step(root, residual, self.basis.behind(flat[None])[0], self.weights, self.l1)

    def renew(self) -> None:
        """Compute J here."""
        gradient, here = np.empty(len(self.weights)), self.basis.pull(self.gradient)

        def slope(step: np.ndarray) -> np.ndarray:
            self.evaluate(self.weights + self.basis.outward(step), gradient)
            return self.basis.pull(gradient)

        matrix = second_derivative(slope, np.zeros(len(here)), here)
        self.noise = float(np.linalg.norm(slope(np.full(len(here), AT_HAND / math.sqrt(len(here)))) - here))
        self.root, self.flat = graded_root(matrix, DIGITS * self.noise / DIFFERENCE)
        self.stopping.restart()
        self.renewal.begin(believed=True)
        self.renewed_at = self.value
        self.aim()
        self.gap = self.promise()

    def promise(self) -> float:
        """The gap, where J is of the second derivative."""
        rounding = np.finfo(np.float64).eps * float((self.parts @ np.abs(self.weights)).max(initial=0.0))
        return self.renewal.promise(self.gain, self.stopping) + self.stopping.relative(rounding)

    def learn(self, step: np.ndarray, change: np.ndarray) -> None:
        """BFGS: JᵀJ becomes the nearest matrix that maps the step to the change of the gradient, both of u."""
        bent = self.root @ step
        curve, known = float(step @ change), float(bent @ bent)
        size = float(np.linalg.norm(change))
        if known > 0 and curve > 1e-12 * float(np.linalg.norm(step)) * size and size > LOUD * self.noise:
            share = math.sqrt(curve / known)
            self.root = self.root + np.outer(bent * (share / curve), change - share * (self.root.T @ bent))

    def search(self) -> float | None:
        """Take the share of the step that lowers F enough; None if there is none."""
        weights, step, ahead = self.weights, self.step, np.empty(len(self.weights))
        promised = -float((self.gradient + self.l2 * weights) @ step + self.l1 @ grown(weights, step))
        share = 1.0
        for _ in range(TRIALS if promised > 0 else 0):
            there = weights + share * step
            value = self.evaluate(there, ahead)
            usable = math.isfinite(value) and bool(np.isfinite(ahead).all())
            enough = usable and value <= self.value - DECREASE * share * promised
            if usable and not enough and value <= self.value + ROUNDING * abs(self.value):
                # Values no longer tell the points apart, but slopes do (Hager & Zhang 2005).
                enough = slope_along(there, ahead + self.l2 * there, step, self.l1) <= (1 - 2 * DECREASE) * promised
            if enough:
                self.learn(self.basis.inward(there - weights), self.basis.pull(ahead - self.gradient))
                self.weights, self.value, self.gradient = there, value, ahead
                return share
            excess = value - self.value + share * promised
            guess = 0.5 * promised * share / excess if math.isfinite(excess) and excess > 0 else 0.1
            share *= min(max(guess, 0.1), 0.5)
        return None

    @property
    def at_its_end(self) -> bool:
        """Whether a new J would change nothing either: it was computed, and nothing fell since."""
        return not (self.renewal.possible and self.value < self.renewed_at - STALLED * abs(self.value))

    def go(self, max_iter: int) -> str:
        """Run to the end and say why it is the end."""
        stopping, renewal = self.stopping, self.renewal
        if not self.steps:
            self.value = self.evaluate(self.weights, self.gradient)
            square = self.square()
            check_first(self.value, square)
            if square == 0:
                self.gap = 0.0
                return TOLERANCE
            self.aim()
            self.gap = stopping.update(self.value, square, -2 * self.gain)
        elif self.gap <= stopping.tol:
            return TOLERANCE
        while len(self.steps) < max_iter:
            if stopping.stalled and self.at_its_end:
                return NO_IMPROVEMENT
            if renewal.due(stopping, self.steps):
                self.renew()
                if self.gap <= stopping.tol:
                    return TOLERANCE
            before, taken = self.gain, self.search()
            if taken is None:
                if self.at_its_end:
                    return NO_IMPROVEMENT
                self.renew()
                if self.gap <= stopping.tol:
                    return TOLERANCE
                continue
            self.aim()
            square = self.square()
            self.gap = stopping.update(self.value, square, -2 * self.gain) if square else 0.0
            renewal.stepped(self.gain, before=before)
            if renewal.round:
                self.gap = min(self.gap, self.promise())
            elif self.gap <= stopping.tol and square and renewal.wants_proof(stopping, math.inf):
                self.renew()
            enough = self.report(taken, square)
            if self.gap <= stopping.tol:
                return TOLERANCE
            if enough:
                return CALLBACK
        return MAX_ITER

    def report(self, taken: float, square: float) -> bool:
        """Record the step and tell the callback; True if it wishes to stop."""
        active, seconds = int(np.count_nonzero(self.weights)), time.perf_counter() - self.began
        number, norm = len(self.steps) + 1, math.sqrt(square)
        self.steps.append(Step(number, self.n_evaluations, self.value, norm, taken, active, seconds, self.gap))
        enough = False
        if self.callback is not None:
            shown = self.weights.view()
            shown.flags.writeable = False
            enough = bool(self.callback(self.steps[-1], shown))
        if self.run_state is not None:
            self.run_state.offer(PHASE, self.state)
        return enough

    def state(self) -> State:
        """All that the next step depends on."""
        header = {
            "value": self.value,
            "gap": self.gap if math.isfinite(self.gap) else None,
            "n_evaluations": self.n_evaluations,
            "noise": self.noise,
            "renewed_at": self.renewed_at if math.isfinite(self.renewed_at) else None,
            "stopping": self.stopping.memory(),
        }
        arrays = {"weights": self.weights, "gradient": self.gradient, "root": self.root, "flat": self.flat}
        arrays |= {f"basis/{name}": part for name, part in self.basis.state().items()}
        return header | self.renewal.state(), arrays | {"steps": steps_table(self.steps)}

    def restore(self, state: State) -> None:
        """Go on where the run whose `state` this is was."""
        found, n = Found(state), len(self.weights)
        self.weights, self.gradient = found.vector("weights", n).copy(), found.vector("gradient", n).copy()
        self.root = found.array("root", (n, n)).copy()
        self.flat = found.array("flat", (n, found.arrays["flat"].size // max(n, 1))).copy()
        self.value, self.noise = found.number("value"), found.number("noise", least=0.0)
        self.gap = math.inf if found.header["gap"] is None else found.number("gap")
        self.renewed_at = math.inf if found.header["renewed_at"] is None else found.number("renewed_at")
        self.n_evaluations = found.integer("n_evaluations")
        self.stopping.remember(found.header["stopping"])
        self.renewal.restore(found)
        self.steps = steps_of_table(found.arrays["steps"])
        self.began = time.perf_counter() - (self.steps[-1].seconds if self.steps else 0.0)
        self.aim()


def minimize_proximal(
    problem: Problem,
    start: np.ndarray,
    penalty: Penalty,
    basis: Basis,
    *,
    tol: float = 1e-4,
    max_iter: int = 500,
    callback: Callback | None = None,
    run_state: RunState | None = None,
) -> Result:
    """Minimise f(w) + l1 ‖w‖₁ + ½ l2 ‖w‖² from ``start``; tolerance, callback, run_state and result as for L-BFGS.

    ``basis`` are coordinates in which f alone, without its penalties, is about round.

    >>> class Valley:
    ...     n_weights = 2
    ...
    ...     def evaluate(self, weights, gradient):
    ...         gradient[:] = (weights - [3.0, 0.1]) * [1.0, 50.0]
    ...         return 0.5 * float(gradient @ (weights - [3.0, 0.1])) + 1.0
    >>> unit = Basis(np.ones(2))
    >>> minimize_proximal(Valley(), np.zeros(2), Penalty(l1=2.0), unit, tol=1e-9).weights.round(4).tolist()
    [1.0, 0.06]
    >>> minimize_proximal(Valley(), np.zeros(2), Penalty(l1=6.0), unit).weights.tolist()
    [0.0, 0.0]
    """
    n = int(problem.n_weights)
    weights = check_run(n, start, penalty, tol=tol, max_iter=max_iter)
    found = None if run_state is None else run_state.found(PHASE)
    if found is not None:
        with taking_over():
            kept = {name.removeprefix("basis/"): part for name, part in found[1].items() if name.startswith("basis/")}
            basis = Basis.from_state(kept, n)
    run = _Run(problem, weights, penalty, basis, tol=tol, callback=callback, run_state=run_state)
    if found is not None:
        with taking_over():
            run.restore(found)
    try:
        reason = run.go(max_iter)
    except KeyboardInterrupt:
        reason = INTERRUPTED
        if math.isnan(run.value):
            run.value = run.evaluate(run.weights, run.gradient)
    floor = max(tol, 1e-12) if reason == NO_IMPROVEMENT else tol
    converged = reason in (TOLERANCE, NO_IMPROVEMENT) and run.gap <= floor
    counts = len(run.steps), run.n_evaluations
    return Result(run.weights, run.value, *counts, converged, reason, run.steps, run.renewal.count, "proximal Newton")
