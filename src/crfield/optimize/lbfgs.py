"""L-BFGS, and OWL-QN where there is an l1 penalty: the optimisers of whole-batch training.

Each step asks the history of past steps (`kernels.vectors.History`) for a quasi-Newton direction and goes along
it, nearly always at full length, so a step costs one evaluation (Nocedal 1980; Liu & Nocedal 1989). With an l1
penalty the direction is made from the shortest subgradient and no step crosses zero in any weight (Andrew & Gao
2007, *Scalable training of L1-regularized log-linear models*); the rest is shared. Unlike theirs, the direction is
cut only at weights of zero: with a diagonal this took a half to a fifth of the steps, and on correlated columns,
where the original hardly moves, it converges. And pairs of the history know only weights that moved: the curvature
asked for is that of the face on which the run is, not of the thousand directions that it may not take.

Memory for W weights: five vectors of W doubles, the pairs of the history (8 W bytes each in single precision) and
the caller's diagonal. Nothing else of length W is made during a run. In single precision only the curvature model is
rounded, not weights or gradients, so the optimum reached is the same.

Far from the end a problem is evaluated in single precision if it offers that (`optimize.penalty`), then in double for
good: the point is evaluated again and estimates of the gap begin anew, so claims and the value told are of double.
Near the end, where evaluations are dear, planes may prove the gap before the estimate is sure (`optimize.planes`).

Everything is deterministic: the same problem, start and options give the same bits, whatever ``n_jobs``, as long as
the problem itself does.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import numpy as np

from crfield.errors import InputError, ShapeError
from crfield.kernels import vectors
from crfield.optimize.basis import Basis, InBasis, gain_on_face
from crfield.optimize.history import CALLBACK, INTERRUPTED, MAX_ITER, NO_IMPROVEMENT, TOLERANCE, Result, Step
from crfield.optimize.line_search import orthant_search, wolfe_search
from crfield.optimize.penalty import Penalised, Penalty, Point
from crfield.optimize.planes import FINEST, Proof
from crfield.optimize.problem import Problem
from crfield.optimize.resume import (
    Found,
    RunState,
    State,
    WithModel,
    refuse_other_value,
    refuse_state,
    steps_of_table,
    steps_table,
    taking_over,
)
from crfield.optimize.stopping import PROVED, Renewal, Stopping, renewal

Callback = Callable[[Step, np.ndarray], bool | None]

SINGLE_ABOVE = 100_000  # weights; below, the history is small in any precision
HISTORY_BYTES = 256_000_000  # what a history of default length may take
UNSEEN = 1e-4  # of the tolerance: a rise of F by so little is no reason for another trial
LONGEST, SHORTEST = 10, 3  # pairs of a history of default length
LONGEST_SINGLE = 4  # where weights are many: chosen for its memory; more pairs saved no steps reliably


def history_size(n_weights: int, memory: int | None = None, single: bool | None = None) -> tuple[int, bool]:
    """The pairs of a history and whether they are single precision, where the caller leaves it open.

    >>> history_size(1000), history_size(500_000), history_size(7_400_000)
    ((10, False), (4, True), (4, True))
    """
    if single is None:
        single = n_weights > SINGLE_ABOVE
    if memory is None:
        pair = max(n_weights, 1) * (8 if single else 16)
        memory = int(min(max(HISTORY_BYTES // pair, SHORTEST), LONGEST_SINGLE if single else LONGEST))
    return memory, single


class _Run:
    """The state of one call of `minimize`."""

    def __init__(
        self,
        objective: Penalised,
        start: np.ndarray,
        *,
        history: vectors.History,
        stopping: Stopping,
        first_step: float | None,
        callback: Callback | None,
        run_state: RunState | None = None,
        renew: bool = False,
    ) -> None:
        self.objective, self.history, self.stopping = objective, history, stopping
        self.renewal = Renewal(len(start), wanted=renew)
        self.proof: Proof | None = None  # from where planes are first asked for
        self.first_step, self.callback, self.run_state = first_step, callback, run_state
        self.here = Point(start, np.empty(len(start)))
        self.there = Point(np.empty(len(start)), np.empty(len(start)))
        self.direction = np.empty(len(start))
        self.sparse = objective.penalty.l1 > 0
        provable = objective.offers_planes and not self.sparse and self.renewal.after is None
        self.provable = provable and stopping.convexity > 0 and stopping.tol >= FINEST
        objective.rough = objective.offers_rough and not stopping.age  # what another solver began is near its end
        self.steps: list[Step] = []
        self.gap = math.inf
        self.course: tuple[float, float] | None = None  # slope and first size along the direction, between steps
        self.began = time.perf_counter()

    def state(self) -> State:
        """All that the next step depends on."""
        here, (slope, size) = self.here, self.course or (0.0, 1.0)
        header = {
            "point": [here.value, here.squared_norm, here.n_active],
            "course": [slope, size],
            "gap": self.gap if math.isfinite(self.gap) else None,
            "n_evaluations": self.objective.n_evaluations,
            "stopping": self.stopping.memory(),
            "rough": self.objective.rough,
        }
        proved, planes = ({}, {}) if self.proof is None else self.proof.state()
        header |= self.renewal.state() | proved
        arrays = {"weights": here.weights, "gradient": here.gradient, "direction": self.direction}
        arrays |= {"steps": steps_table(self.steps), **planes}
        if isinstance(self.objective, InBasis):
            arrays |= {f"basis/{name}": part for name, part in self.objective.basis.state().items()}
        return header, arrays | {f"history/{name}": part for name, part in self.history.state().items()}

    def restore(self, state: State) -> None:
        """Go on where the run whose `state` this is was."""
        found = Found(state)
        n = len(self.direction)
        for name, vector in (
            ("weights", self.here.weights),
            ("gradient", self.here.gradient),
            ("direction", self.direction),
        ):
            vector[:] = found.vector(name, n)
        value, squared_norm, n_active = found.listed("point", 3)
        self.here.value = found.number("value", within=value)
        self.here.squared_norm = found.number("squared_norm", within=squared_norm, least=0.0)
        self.here.n_active = self.there.n_active = found.integer("n_active", within=n_active, most=n)
        slope, size = found.listed("course", 2)
        self.course = (found.number("slope", within=slope), found.number("size", within=size))
        self.gap = math.inf if found.header["gap"] is None else found.number("gap")
        self.objective.n_evaluations = found.integer("n_evaluations")
        self.objective.rough = self.objective.rough and found.header.get("rough") is True
        self.stopping.remember(found.header["stopping"])
        self.renewal.restore(found)
        if self.renewal.count:
            self.trust()
        self.steps = steps_of_table(found.arrays["steps"])
        self.began = time.perf_counter() - (self.steps[-1].seconds if self.steps else 0.0)
        self.history.restore({name.removeprefix("history/"): part for name, part in found.arrays.items()})
        if self.provable and "heights" in found.header:
            self.proof = Proof(self.stopping.convexity, n)
            self.proof.restore(found, self.here)
        self.there.weights[:] = self.here.weights
        refuse_other_value(self.objective, self.there, self.here.value)
        self.here.error = self.there.error

    def result(self, reason: str) -> Result:
        """The end of the run at the present point."""
        if self.objective.rough:
            self.refine()
        if reason == NO_IMPROVEMENT and self.sparse and self.gap > self.stopping.tol:
            self.gap = min(self.gap, self.gap_on_face())
        floor = max(self.stopping.tol, 1e-12) if reason == NO_IMPROVEMENT else self.stopping.tol
        converged = reason in (TOLERANCE, NO_IMPROVEMENT) and self.gap <= floor
        return Result(
            self.shown(),
            self.here.value,
            len(self.steps),
            self.objective.n_evaluations,
            converged,
            reason,
            self.steps,
            self.renewal.count,
        )

    def gap_on_face(self) -> float:
        """What the second derivative says of a run under an l1 penalty that rounding stopped.

        Clocks look back over a part of the run, so after a fast end they still remember how far it was before.
        """
        steepest = self.steepest()
        free = int(np.count_nonzero((self.here.weights != 0) | (steepest != 0)))
        if free > max(PROVED, self.objective.n_evaluations):
            return math.inf
        return self.renewal.promise(gain_on_face(self.objective, self.here, steepest), self.stopping)

    def shown(self) -> np.ndarray:
        """The weights themselves, whatever the coordinates."""
        if isinstance(self.objective, InBasis):
            return self.objective.basis.outward(self.here.weights)
        return self.here.weights

    def steepest(self) -> np.ndarray:
        """The gradient of F here, or the shortest subgradient, written over the direction."""
        if not self.sparse:
            return self.here.gradient
        penalty = self.objective.penalty
        self.here.squared_norm = vectors.pseudo_gradient(
            self.here.weights,
            self.here.gradient,
            penalty.l1,
            self.direction,
            penalised=penalty.penalised,
            n_jobs=self.objective.n_jobs,
        )
        return self.direction

    def aim(self) -> tuple[float, float]:
        """Point the direction along the history's idea of downhill; its slope and the first step to try."""
        slope = self.history.direction(
            self.steepest(),
            self.direction,
            orthant=self.here.weights if self.sparse else None,
            penalised=self.objective.penalty.penalised,
        )
        if len(self.history):
            return slope, 1.0
        return slope, self.first_step or min(1.0, 1.0 / math.sqrt(self.here.squared_norm))

    def refine(self) -> tuple[float, float]:
        """Go on in double precision from here; slope and first size along the direction made anew."""
        self.objective.rough = False
        if self.here.error:  # else it was double all the time
            self.objective.evaluate(self.here)
            self.steepest()
            self.gap = self.stopping.correct(self.here.value, self.here.squared_norm)
            self.course = self.aim() if self.here.squared_norm > 0 else (0.0, 1.0)
        return self.course or (0.0, 1.0)

    def begin(self) -> None:
        """Look at the start; ``gap`` is 0 afterwards if it is the minimum."""
        objective = self.objective
        objective.evaluate(self.here)
        if not (math.isfinite(self.here.value) and math.isfinite(self.here.squared_norm)):
            raise InputError(
                f"the objective must be finite at the start, got {self.here.value} with a squared gradient "
                f"norm of {self.here.squared_norm}. Are there NaN or infinite features or start weights?"
            )
        if self.sparse:
            self.here.n_active = int(np.count_nonzero(self.here.weights))
        else:
            self.here.n_active = self.there.n_active = len(self.direction)
        self.steepest()
        if self.here.squared_norm == 0:
            self.gap = 0.0
            return
        self.course = self.aim()
        self.gap = self.stopping.update(self.here.value, self.here.squared_norm, self.course[0])
        if objective.rough and not objective.far(self.here, self.gap, self.stopping):
            self.refine()

    def go(self, max_iter: int) -> str:
        """Run to the end and say why it is the end."""
        stopping, penalised = self.stopping, self.objective.penalty.penalised
        if self.course is None:
            self.begin()
        elif stopping.stalled and self.gap > stopping.tol and not self.renewal.possible:
            # A run that goes on after its end is at its end.
            return NO_IMPROVEMENT
        if self.course is None or (self.steps and self.gap <= stopping.tol):
            return TOLERANCE
        slope, size = self.course
        while len(self.steps) < max_iter:
            if self.renewal.due(stopping, self.steps):
                slope, size = self.renew()
                if self.gap <= stopping.tol:
                    return TOLERANCE
            way = (self.objective, self.here, self.there, self.direction)
            if self.sparse:
                taken = orthant_search(*way, size=size)
            else:
                taken = wolfe_search(*way, slope=slope, size=size, blur=UNSEEN * stopping.tol)
            if taken is None and self.objective.rough:
                slope, size = self.refine()
                continue
            if taken is None:
                if not len(self.history) and not self.renewal.possible:
                    return NO_IMPROVEMENT
                self.history.clear()
                slope, size = self.course = self.renew() if self.renewal.possible else self.aim()
                if self.gap <= stopping.tol:
                    return TOLERANCE
                continue
            self.here, self.there = self.there, self.here
            steepest, before = self.steepest(), -slope
            if self.here.squared_norm == 0:
                self.gap, slope = 0.0, 0.0
            else:
                if self.sparse:
                    # What the gradient does at weights that stayed at zero is no curvature of the face that the run
                    # moves on; left in, it makes every step too short.
                    idle = (self.here.weights == 0) & (self.there.weights == 0)
                    if penalised is not None:
                        idle &= penalised != 0
                    np.copyto(self.there.gradient, self.here.gradient, where=idle)
                _, slope = self.history.advance(
                    self.here.weights,
                    self.there.weights,
                    self.here.gradient,
                    self.there.gradient,
                    steepest,
                    self.direction,
                    orthant=self.here.weights if self.sparse else None,
                    penalised=penalised,
                )
                self.gap = stopping.update(self.here.value, self.here.squared_norm, slope)
            size = 1.0
            self.course = slope, size
            if self.objective.rough and not self.objective.far(self.here, self.gap, stopping):
                slope, size = self.refine()
            self.renewal.stepped(-slope, before=before)
            if self.renewal.round:
                self.gap = min(self.gap, self.promise(-slope if self.renewal.believed else before))
            elif self.gap <= stopping.tol and self.wants_proof:
                if self.renewal.guarantee_near(stopping, self.steps, self.here.squared_norm):
                    self.gap = stopping.bound
                else:
                    slope, size = self.renew()
            elif self.provable and stopping.near(self.gap) and not self.objective.rough:
                self.proof = self.proof or Proof(stopping.convexity, len(self.direction))
                self.gap = min(self.gap, self.proof.gap(self.here, self.there.gradient))
            enough = self.report(taken)
            if self.gap <= stopping.tol:
                return TOLERANCE
            if enough:
                return CALLBACK
            if stopping.stalled and not self.renewal.possible:
                return NO_IMPROVEMENT
        return MAX_ITER

    @property
    def wants_proof(self) -> bool:
        """Whether an estimate that is within the tolerance is to be proved."""
        return self.here.squared_norm > 0 and self.renewal.wants_proof(self.stopping, self.objective.n_evaluations)

    def renew(self) -> tuple[float, float]:
        """Go on in a basis made of the second derivative here; slope and first size along the new direction.

        What was seen in other coordinates says nothing of the rates in these: history and clocks begin again.
        """
        if not isinstance(self.objective, InBasis):  # the weights themselves are coordinates too
            self.objective = InBasis.of(self.objective, Basis(np.ones(len(self.direction))))
        self.renewal.begin(believed=self.objective.renew(self.here))
        self.trust()
        self.stopping.restart()
        slope, size = self.course = self.aim()
        self.gap = max(self.promise(-slope), 0.0 if self.renewal.believed else self.gap)
        return slope, size

    def promise(self, decrement: float) -> float:
        """What Newton's method is about to gain, with a margin: the gap, where the basis is of the second derivative.

        Curvature too small to be believed may hide a long way down. Its share of the decrement stays where all others
        fall; so there what counts is the decrement before the last step.
        """
        return self.renewal.promise(0.5 * decrement, self.stopping)

    def trust(self) -> None:
        """Begin a history in a basis that has the second derivative in it."""
        n, memory, n_jobs = len(self.direction), self.history.memory, self.objective.n_jobs
        self.history, self.first_step = vectors.History(n, memory, n_jobs=n_jobs, trusted=True), 1.0

    def report(self, taken: float) -> bool:
        """Record the step and tell the callback; True if it wishes to stop."""
        step = Step(
            len(self.steps) + 1,
            self.objective.n_evaluations,
            self.here.value,
            math.sqrt(self.here.squared_norm),
            taken,
            self.here.n_active,
            time.perf_counter() - self.began,
            self.gap,
        )
        self.steps.append(step)
        enough = False
        if self.callback is not None:
            shown = self.shown().view()
            shown.flags.writeable = False
            enough = bool(self.callback(step, shown))
        if self.run_state is not None:
            self.run_state.offer("lbfgs", self.state)
        return enough


def minimize(
    problem: Problem,
    start: np.ndarray,
    penalty: Penalty | None = None,
    *,
    memory: int | None = None,
    single: bool | None = None,
    diagonal: np.ndarray | None = None,
    tol: float = 1e-4,
    max_iter: int = 500,
    n_jobs: int = 1,
    callback: Callback | None = None,
    first_step: float | None = None,
    run_state: RunState | None = None,
    basis: Basis | None = None,
    renew: bool = False,
    age: int = 0,
) -> Result:
    """Make F(w) = f(w) + l1 Σ|w_k| + ½ l2 Σ w_k² small, from ``start`` (W,), which is left alone.

    It ends when the relative gap to the optimum is estimated (`optimize.stopping`) or proved (`optimize.planes`, for
    problems whose ``planes_pay``) to be at most ``tol``, after
    ``max_iter`` steps, when ``callback(step, weights)`` gives True (the weights are a read-only view of what changes
    with the next step), or at Ctrl-C; the result has the best weights in each case and says which it was. When no
    step can improve F any more, the run counts as converged if the estimated gap is at most ``tol`` or rounding.

    ``diagonal`` (W,), positive, approximates the inverse of the diagonal of the Hessian and becomes H₀ up to a
    factor; with a good one, far fewer steps are needed. ``memory`` and ``single`` are the pairs of the history and
    their precision (`history_size` decides when None). ``first_step`` is the multiple of −diagonal · gradient tried
    first: 1 by default, or at most 1 / |gradient| without a diagonal.

    ``basis`` (`optimize.basis`) are other coordinates to work in; weights are the caller's everywhere outside. With
    ``renew``, a run on few weights that takes long has them made anew of the second derivative once in a while, at an
    evaluation for each. Both are for smooth problems. ``age`` are another solver's steps up to ``start``.

    ``run_state`` (`optimize.resume`) is offered the state after every step; an earlier run that it found is resumed,
    diagonal included, and the end has the same bits as without the break.

    >>> class Valley:
    ...     n_weights = 2
    ...
    ...     def evaluate(self, weights, gradient):
    ...         gradient[:] = (weights - [3.0, 0.1]) * [1.0, 50.0]
    ...         return 0.5 * float(gradient @ (weights - [3.0, 0.1])) + 1.0
    >>> minimize(Valley(), np.zeros(2), Penalty(l2=1.0), tol=1e-9).weights.round(4).tolist()
    [1.5, 0.098]
    >>> minimize(Valley(), np.zeros(2), Penalty(l1=6.0)).weights.tolist()
    [0.0, 0.0]
    """
    penalty = Penalty() if penalty is None else penalty
    n = int(problem.n_weights)
    weights = np.array(start, dtype=np.float64)
    del start  # the last reference, where the caller passed one on: W doubles less during the run
    if weights.shape != (n,):
        raise ShapeError(f"start must have shape ({n},), one entry per weight, got {weights.shape}.")
    if not tol >= 0 or max_iter < 0:
        raise InputError(f"tol and max_iter must be ≥ 0, got tol={tol}, max_iter={max_iter}.")
    if penalty.l1 and (basis is not None or renew):
        raise InputError(f"an l1 penalty acts on single weights, which other coordinates mix: got l1={penalty.l1:g}.")
    if first_step is not None and not (first_step > 0 and math.isfinite(first_step)):
        raise InputError(f"first_step must be a finite number > 0, got {first_step}.")
    found = None if run_state is None else run_state.found("lbfgs")
    if found is not None:
        told = Found(found)
        diagonal = told.vector("diagonal", n) if "diagonal" in told.arrays else None
        longest = max(LONGEST, LONGEST_SINGLE, memory or 0)
        memory, single = told.integer("memory", least=1, most=longest), told.flag("single")
        if diagonal is not None and n and diagonal.min() <= 0:
            refuse_state("its diagonal is not positive")
    if diagonal is not None:
        diagonal = np.ascontiguousarray(diagonal, dtype=np.float64)
        low, high = (diagonal.min(), diagonal.max()) if n else (1.0, 1.0)
        if not (low > 0 and math.isfinite(high)):
            raise InputError(f"diagonal must be positive and finite, got entries from {low} to {high}.")
    if diagonal is not None or basis is not None:
        first_step = first_step or 1.0
    memory, single = history_size(n, memory, single)
    renew = renew and renewal(n) is not None
    if found is not None:
        kept = {name.removeprefix("basis/"): part for name, part in found[1].items() if name.startswith("basis/")}
        with taking_over():
            basis = Basis.from_state(kept, n) if kept else None
        renew = renew and (bool(kept) or found[0].get("renews") is True)
    elif basis is None and renew and diagonal is not None:
        basis = Basis(np.sqrt(diagonal))
    objective = Penalised(problem, penalty, n_jobs=n_jobs)
    if basis is not None:
        objective, diagonal, weights = InBasis.of(objective, basis), None, basis.inward(weights)
    run = _Run(
        objective,
        weights,
        history=vectors.History(n, memory, single=single, diagonal=diagonal, n_jobs=n_jobs),
        stopping=Stopping(tol, convexity=penalty.l2 if penalty.penalised is None else 0.0, age=age),
        first_step=first_step,
        callback=callback,
        run_state=None if run_state is None else WithModel(run_state, memory, single, diagonal),
        renew=renew,
    )
    if found is not None:
        with taking_over():
            run.restore(found)
    try:
        reason = run.go(max_iter)
    except KeyboardInterrupt:
        reason = INTERRUPTED
        if math.isnan(run.here.value):
            run.objective.evaluate(run.here)
    return run.result(reason)
