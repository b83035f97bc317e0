"""Primal–dual epochs: likelihood training by steps of single sequences that remember what they met.

A stochastic gradient forgets: steps must become short, or the weights never settle. Here a table holds the marginals
that each sequence had when it was last visited, and d, their sum pulled back to the weights, stands for the gradient
of all data. A visit puts the sequence's present marginals in the place of the old ones, a share γ of the way, and
moves the weights of its columns by the change and by their part of what d and the ridge still ask for
(`crfield.kernels.dual` has the formulas). Two known methods are its corners:

- with γ = 1 it is SAGA on the columns that are there (Defazio, Bach & Lacoste-Julien 2014; Leblond, Pedregosa &
  Lacoste-Julien 2017, *ASAGA*), what Schmidt et al. 2015 do for CRFs with SAG;
- with steps of 1/l2 and w = −d/l2 it is coordinate ascent in the dual, with its step length (Shalev-Shwartz & Zhang
  2013; Le Priol, Piché & Lacoste-Julien 2018, *Adaptive stochastic dual coordinate ascent for conditional random
  fields*), as exponentiated gradients were before (Collins et al. 2008).

Rare weights want the dual's steps, since the ridge is most of their curvature; weights that thousands of sequences
have want SAGA's with a step size of their own. Here each weight has τ = 1 / (max(l2, 1) + √H), H about the diagonal
of the second derivative, and each sequence the dual's γ, halved, because it counts single steps only and not
transitions. An epoch takes away a third to a half of the distance to the optimum, with the same constants on every
corpus that was tried, and no step size is searched for. The first epoch is AdaGrad's (Duchi, Hazan & Singer 2011).

**The end.** A check evaluates F and its gradient, and the planes of gradients and of the table prove a lower bound
on the minimum (`optimize.planes`). What is proved is eight times the true gap on a run that leaves half of
the distance at every epoch, and near the true gap on a slow one. So a run ends when the tolerance is proved; or when
the gap is proved to be within a multiple of it, from ``PROVED`` (3.5) for fast runs down to one for slow ones, and
the trend of F, extrapolated over three checks and taken ``TREND`` (3) times, is within it. Where nothing is proved
(an l1 penalty, weights without a ridge), or the tolerance is finer than single precision allows, L-BFGS or OWL-QN
take over from here, with their own rule.

**Cost**: an epoch is about two evaluations on one thread, and it has one thread only. Sequences are swept eight at a
time, fewer where there are not many (`block_width`). Memory: 4 bytes for every step × label and sequence ×
transition, 16 for each weight, 6 to 10 for each occurrence of a column, and up to eight vectors of planes in single
precision. Above ``LARGEST`` bytes of table (1 GB) ``solver="auto"`` leaves it alone.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any

import numpy as np

from crfield.kernels import choice, vectors
from crfield.kernels.dual import WIDTH, PrimalDual, Table
from crfield.optimize.history import CALLBACK, INTERRUPTED, MAX_ITER, TOLERANCE, Callback, Result, Step
from crfield.optimize.penalty import Penalised, Penalty, Point
from crfield.optimize.planes import Planes, capacity
from crfield.optimize.resume import (
    Found,
    RunState,
    State,
    random_state,
    refuse_other_value,
    refuse_state,
    set_random_state,
    steps_of_table,
    steps_table,
    taking_over,
)
from crfield.optimize.stopping import STEADY

if TYPE_CHECKING:
    from crfield.training.likelihood import FusedChain

PHASE = "primal_dual"
HANDED_OVER = "primal–dual epochs have done their part"
DAMPING, RATE = 0.5, 0.3  # of γ; of AdaGrad's epoch
LEAST_RIDGE = 1.0  # in step sizes: a weaker ridge is no curvature to go by
RENEW_CURVATURE = 2  # the epoch after which step sizes are made again
LENGTHS_EVERY = 3  # epochs between those that find step lengths anew
FIRST_CHECK, LONGEST_WAIT = 8, 3  # epochs
PROVED = 3.5  # what is proved of a fast run may be so many times the tolerance
TREND = 3.0  # what the trend leaves counts so many times
FAST, SLOW = 0.6, 0.9  # shares of a fall that the next epoch has; a run slower than the latter has to prove it all
APART = 2  # epochs between checks that a trend is made of, at least
LITTLE, ASK_AGAIN = 0.01, 3  # a share of the bound; looks until the table, which had less, is asked again
BLOCKS = 1000  # of an epoch, at least, where there are so many sequences
PRECISE = 3e-6  # relative gap below which single precision may get in the way
SPARSE_EPOCHS = 32  # before OWL-QN, and wherever nothing can be proved
PATIENCE = 12  # checks without a smaller gap before L-BFGS takes over
LARGEST = 1_000_000_000  # bytes of a table that "auto" allows
MOST_ROWS = 65_535 // 8  # steps of a sequence


def reason_against(problem: Any, penalty: Penalty) -> str | None:
    """Why a problem has no primal–dual epochs; None if it has."""
    if not hasattr(problem, "compiled") or problem.layout.n_edge_columns or problem.layout.n_edge_dense:
        return "models with edge features or functions of two labels have none"
    if not problem.unit:
        return "columns must be there or not, with few numbers among them, and none large"
    if problem.partial:
        return "every step needs one known label"
    if problem.longest > MOST_ROWS:
        return f"sequences may have at most {MOST_ROWS:,} steps"
    if penalty.penalised is not None and not (penalty.penalised[: problem.layout.part["bias"].start]).all():
        return "only intercepts may go without a penalty"
    if penalty.l1 == 0 and penalty.l2 == 0:
        return "there must be a penalty"
    return None


def table_bytes(problem: FusedChain) -> int:
    """Bytes that the table takes."""
    return 4 * (problem.n_steps * problem.layout.n_labels + problem.n_sequences * len(problem.layout.pairs))


def block_width(n_sequences: int) -> int:
    """Sequences of a block, whose marginals are of the weights before the first of their steps.

    Eight of a thousand sequences that have much in common overshoot together: a run may take five times the epochs.

    >>> [block_width(n) for n in (500, 1_999, 2_000, 5_000, 50_000)]
    [1, 1, 2, 4, 8]
    """
    width = WIDTH
    while width > 1 and n_sequences < width * BLOCKS:
        width //= 2
    return width


def compiled() -> bool:
    """Whether the kernel is compiled: the NumPy body walks over all weights for every sequence."""
    return choice.chosen() == "native"


def minimize_primal_dual(
    problem: FusedChain,
    penalty: Penalty,
    *,
    start: np.ndarray | None,
    tol: float,
    max_iter: int,
    n_jobs: int,
    rng: np.random.Generator,
    callback: Callback | None,
    run_state: RunState | None,
) -> Result:
    """Epochs until the gap is proved to be within ``tol``, or ``reason`` says that another solver should go on.

    A step of the history is a check: F at the end of an epoch, and the proved relative gap of the best so far. Where
    somebody looks on, every epoch is checked.
    """
    run = _Run(problem, penalty, tol=tol, n_jobs=n_jobs, rng=rng, callback=callback, run_state=run_state)
    try:
        run.begin(start)
        reason = run.go(max_iter)
    except KeyboardInterrupt:
        run.look()
        reason = INTERRUPTED
    return run.result(reason)


class _Run:
    """The state of one call of `minimize_primal_dual`."""

    def __init__(
        self,
        problem: FusedChain,
        penalty: Penalty,
        *,
        tol: float,
        n_jobs: int,
        rng: np.random.Generator,
        callback: Callback | None,
        run_state: RunState | None,
    ) -> None:
        self.problem, self.penalty, self.tol, self.rng = problem, penalty, tol, rng
        self.callback, self.run_state = callback, run_state
        self.objective = Penalised(problem, penalty, n_jobs=n_jobs)
        self.width = block_width(problem.n_sequences)
        self.dual = PrimalDual(problem.compiled, penalty.penalised, width=self.width)
        self.provable = penalty.l2 > 0 and penalty.l1 == 0 and penalty.penalised is None
        n = problem.n_weights
        self.planes = Planes(penalty.l2 or 1.0, capacity(n))
        self.best, self.value = np.zeros(n), math.inf
        self.bound, self.proved, self.gap = -math.inf, math.inf, math.inf
        self.epoch, self.next_check, self.waited = 0, FIRST_CHECK, 0
        self.looks, self.ask_table = 0, 1  # how often F was looked at, and when the table is to be asked
        self.ended: str | None = None
        self.steps: list[Step] = []
        self.began = time.perf_counter()

    # ------------------------------------------------------------------ epochs

    def begin(self, start: np.ndarray | None) -> None:
        """The first epoch and the table, or where an earlier run was."""
        found = None if self.run_state is None else self.run_state.found(PHASE)
        if found is not None:
            with taking_over():
                self.restore(found)
            return
        if start is None:
            self.dual.set_steps(np.ones(self.problem.n_weights))
            self.dual.epoch(self.order(), adagrad=RATE, l1=self.penalty.l1, l2=self.penalty.l2)
        else:
            self.dual.set_weights(start)
        self.dual.fill()
        self.scale()
        self.epoch = 1

    def order(self) -> np.ndarray:
        """Blocks in random order, each once."""
        return self.rng.permutation(self.dual.n_blocks)

    def scale(self) -> None:
        """Step sizes from the curvature that was met."""
        curvature = np.maximum(self.dual.curvature(), 0.0)
        self.dual.set_steps(1.0 / (max(self.penalty.l2, LEAST_RIDGE) + np.sqrt(curvature)))

    def go(self, max_iter: int) -> str:
        """Run to the end and say why it is the end."""
        if self.ended is not None:
            return self.ended
        while self.epoch < max_iter:
            number = self.epoch - 1
            self.dual.epoch(
                self.order(),
                l1=self.penalty.l1,
                l2=self.penalty.l2,
                damping=DAMPING,
                curvature=number == RENEW_CURVATURE - 1,
                lengths=number % LENGTHS_EVERY == 0,
            )
            if number == RENEW_CURVATURE - 1:
                self.scale()
            self.epoch += 1
            last = self.epoch == max_iter
            due = self.next_check if self.provable else SPARSE_EPOCHS
            if last or self.epoch >= due or self.callback is not None:
                self.ended = self.check()
            if self.run_state is not None:
                self.run_state.offer(PHASE, self.state)
            if self.ended is not None:
                return self.ended
        return MAX_ITER

    def check(self) -> str | None:
        """Look at F, prove what can be proved, and say if that is the end."""
        before = self.proved
        self.look()
        rates = self.rates()
        margin = self.margin(rates)
        self.gap = min(self.gap, self.proved, max(self.proved / margin, TREND * self.trend(rates)))
        step = Step(
            self.epoch,
            self.objective.n_evaluations,
            self.value,
            self.norm,
            1.0,
            int(np.count_nonzero(self.best)) if self.penalty.l1 else len(self.best),
            time.perf_counter() - self.began,
            self.gap,
        )
        self.steps.append(step)
        enough = False
        if self.callback is not None:
            shown = self.best.view()
            shown.flags.writeable = False
            enough = bool(self.callback(step, shown))
        if self.gap <= self.tol:
            return TOLERANCE
        if enough:
            return CALLBACK
        if not self.provable:
            return HANDED_OVER if self.epoch >= SPARSE_EPOCHS or not math.isfinite(self.value) else None
        if self.gap <= PRECISE and self.tol < PRECISE:
            return HANDED_OVER
        self.waited = 0 if self.proved < before else self.waited + 1
        if self.waited >= PATIENCE:
            return HANDED_OVER
        self.next_check = self.epoch + self.wait(before, margin)
        return None

    def rates(self) -> list[tuple[float, float]]:
        """What an epoch leaves of the fall before it, and the last fall: at the check before, and at this one.

        From the best values at three checks each, which are ``APART`` epochs or more from one another.
        """
        known = [(step.n_iter, step.value) for step in self.steps] + [(self.epoch, self.value)]
        found = []
        for n in (len(known) - 1, len(known)):
            chosen = known[n - 1 : n]
            for epoch, value in reversed(known[: max(n - 1, 0)]):
                if len(chosen) < 3 and epoch <= chosen[0][0] - APART:
                    chosen.insert(0, (epoch, value))
            if len(chosen) < 3:
                continue
            (e0, f0), (e1, f1), (e2, f2) = chosen
            before, now = (f0 - f1) / (e1 - e0), (f1 - f2) / (e2 - e1)  # falls by the epoch
            if not before > 0 or not now > 0:  # a rise, or steps that are noise alone
                found.append((math.inf, math.inf))
                continue
            rate = min(max((now / before) ** (2 / (e2 - e0)), 0.5), STEADY)
            found.append((rate, now * rate ** ((e2 - e1) / 2)))
        return found

    def trend(self, rates: list[tuple[float, float]]) -> float:
        """What is left to fall, relative, if epochs go on as they did; ∞ if unknown."""
        if not self.proved < math.inf or not rates or not math.isfinite(rates[-1][0]):
            return math.inf
        rate, fall = rates[-1]
        return fall * rate / (1 - rate) / self.bound

    def margin(self, rates: list[tuple[float, float]]) -> float:
        """How many times the true gap what is proved will be: the slower a run, the nearer are the two."""
        slowest = max((rate for rate, _ in rates), default=FAST)  # before any is known only a proof counts anyway
        share = min(max((slowest - FAST) / (SLOW - FAST), 0.0), 1.0)
        return PROVED + (1.0 - PROVED) * share

    def wait(self, before: float, margin: float) -> int:
        """Epochs until what is proved may be small enough, if it goes on falling by halves or as it did."""
        if not math.isfinite(self.proved):
            return 2
        rate = 0.5
        if len(self.steps) > 1 and self.proved < before < math.inf:
            since = self.steps[-1].n_iter - self.steps[-2].n_iter
            rate = min(max((self.proved / before) ** (1 / max(since, 1)), 0.45), 0.85)
        goal = max(self.tol, PRECISE)
        left = math.log(max(self.proved / (margin * goal), min(self.gap, self.proved) / goal, 1.0))
        if self.gap == self.proved:  # nothing is known of the trend
            left = math.log(max(self.proved / (margin * goal), 1.0))
        return int(min(max(math.ceil(left / -math.log(rate)), 1), LONGEST_WAIT))

    def look(self) -> None:
        """F and its gradient here: the best so far, and a plane or two.

        The table's plane costs more than F does. It is what proves most where columns are on every step, and takes
        no part where they are rare: there it is left out. The first look proves nothing that a run could end by.
        """
        weights = self.dual.weights()
        here = Point(weights, np.empty_like(weights))
        if not np.isfinite(weights).all():
            return
        self.objective.evaluate(here)
        self.norm = math.sqrt(here.squared_norm) if here.squared_norm >= 0 else math.nan
        if here.value < self.value:
            self.best, self.value = weights, here.value
        if not (self.provable and math.isfinite(here.value)):
            return
        l2 = self.penalty.l2
        slope = here.gradient
        slope -= l2 * weights
        data = here.value - 0.5 * l2 * vectors.dot(weights, weights)
        self.planes.add(slope, data - vectors.dot(slope, weights))
        del slope, here
        asked = self.looks >= self.ask_table
        if asked:
            self.planes.add(*self.dual.plane())
        self.bound = max(self.bound, self.planes.bound())
        if asked:
            self.ask_table = self.looks + (1 if self.planes.shares[-1] >= LITTLE else ASK_AGAIN)
        self.looks += 1
        if self.bound > 0:
            self.proved = max(self.value - self.bound, 0.0) / self.bound

    norm = math.nan

    def result(self, reason: str) -> Result:
        """The end of the run at the best point."""
        if reason == HANDED_OVER or not math.isfinite(self.value):  # never worse than no weights at all
            here = Point(np.zeros_like(self.best), np.empty_like(self.best))
            self.objective.evaluate(here)
            if not self.value <= here.value:
                self.best, self.value = here.weights, here.value
        converged = reason == TOLERANCE and self.gap <= self.tol
        evaluations = self.objective.n_evaluations
        return Result(self.best, self.value, self.epoch, evaluations, converged, reason, self.steps)

    # ------------------------------------------------------------------ resuming

    def state(self) -> State:
        """All that the next epoch depends on."""
        table = self.dual.table()
        header = {
            "epoch": self.epoch,
            "next_check": self.next_check,
            "waited": self.waited,
            "looks": self.looks,
            "ask_table": self.ask_table,
            "width": self.width,
            "ended": self.ended if self.ended in (TOLERANCE, HANDED_OVER) else None,
            "value": self.value if math.isfinite(self.value) else None,
            "bound": self.bound if math.isfinite(self.bound) else None,
            "proved": self.proved if math.isfinite(self.proved) else None,
            "gap": self.gap if math.isfinite(self.gap) else None,
            "n_evaluations": self.objective.n_evaluations,
            "random": random_state(self.rng),
        }
        arrays = {
            "weights": self.dual.weights(),
            "dual": self.dual.dual(),
            "step_sizes": self.dual.steps(),
            "node": table.node,
            "pairs": table.pairs,
            "told": table.told,
            "best": self.best,
            "steps": steps_table(self.steps),
        }
        known, planes = self.planes.state()
        return header | known, arrays | planes

    def restore(self, state: State) -> None:
        """Go on where the run whose `state` this is was."""
        found, n = Found(state), self.problem.n_weights
        width = found.integer("width", within=found.header.get("width", WIDTH), least=1, most=WIDTH)
        if width != self.width:  # older versions had blocks of eight always
            self.width, self.dual = width, PrimalDual(self.problem.compiled, self.penalty.penalised, width=width)
        mine = self.dual.table()
        for name, like in (("node", mine.node), ("pairs", mine.pairs)):
            part = found.arrays.get(name)
            if part is None or part.dtype != np.float32 or part.shape != like.shape or not np.isfinite(part).all():
                refuse_state(f"its table {name!r} does not fit the data")
        table = Table(found.arrays["node"], found.arrays["pairs"], found.array("told", mine.told.shape))
        self.dual.restore(found.vector("weights", n), found.vector("dual", n), found.vector("step_sizes", n), table)
        self.epoch = found.integer("epoch", least=1)
        self.next_check, self.waited = found.integer("next_check"), found.integer("waited")
        self.looks, self.ask_table = (
            found.integer(name, within=found.header.get(name, 0)) for name in ("looks", "ask_table")
        )
        ended = found.header["ended"]
        self.ended = ended if ended in (TOLERANCE, HANDED_OVER) else None
        self.best = found.vector("best", n).copy()
        self.value = math.inf if found.header["value"] is None else found.number("value")
        self.bound = -math.inf if found.header["bound"] is None else found.number("bound")
        self.proved = math.inf if found.header["proved"] is None else found.number("proved", least=0.0)
        self.gap = math.inf if found.header["gap"] is None else found.number("gap", least=0.0)
        self.objective.n_evaluations = found.integer("n_evaluations")
        self.steps = steps_of_table(found.arrays["steps"])
        self.began = time.perf_counter() - (self.steps[-1].seconds if self.steps else 0.0)
        self.planes.restore(found, n)
        set_random_state(self.rng, found.header["random"])
        self.look_again()

    def look_again(self) -> None:
        """Refuse a state whose value is not that of its weights, or whose bound is above it: it was put together."""
        if not math.isfinite(self.value):
            return
        refuse_other_value(self.objective, Point(self.best, np.empty_like(self.best)), self.value)
        if self.bound > self.value:
            refuse_state(f"it says that F is {self.value:g}, and at least {self.bound:g}")
