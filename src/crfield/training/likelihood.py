"""Penalised likelihood: the problem in one compiled call, which solver, from where, and what came of it.

    F(w) = Σ_s weight_s · (−log p(y_s | x_s)) + l1 ‖w‖₁ + ½ l2 ‖w‖²

The problem (`FusedChain`) is linear scorer, exact chains and likelihood fused. It keeps the data packed for the
kernel (columns regrouped by sequence length, weights in hybrid rows); every call works in scratch of its own, so
two threads may evaluate one problem at once.

Solvers:

- ``"lbfgs"``: L-BFGS from the start given (OWL-QN when l1 > 0). Predictable; many evaluations. With an l1 penalty on
  few weights of numeric columns it is proximal Newton instead, which comes to the end in any units.
- ``"warm"``: stochastic epochs, then L-BFGS or OWL-QN with a diagonal preconditioner. Fast on large data.
- ``"primal_dual"``: epochs of single sequences that remember what they met, to a proved gap
  (`training.chain.primal_dual`); OWL-QN after them where there is an l1 penalty. Fewest passes on text; one thread.
- ``"auto"``: ``"lbfgs"`` where there are weights to go on from or few sequences; else ``"primal_dual"`` for columns
  that are there or not, one known label for each step, an l1 penalty or a ridge that is not weak, at most two threads
  and a table that is not large; else ``"lbfgs"`` for models of numeric columns in the main, unless l1 > 0, since few
  weights that overlap much are what L-BFGS with a long history does best; else ``"warm"``.

The history is as long as the cache allows. Few weights can have so many pairs that these tell nearly the whole
curvature, and then need far fewer steps than with the usual few. OWL-QN, whose pairs know only weights that
moved, gains from some dozens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Self

import numpy as np

from crfield.core.target import Target
from crfield.data.batch import Batch
from crfield.errors import InputError
from crfield.kernels import linear
from crfield.optimize.basis import Basis
from crfield.optimize.history import INTERRUPTED, Result, Step
from crfield.optimize.lbfgs import minimize
from crfield.optimize.penalty import Penalised, Penalty, Point
from crfield.optimize.resume import RunState
from crfield.scoring.constraints import refuse_illegal
from crfield.scoring.layout import Layout
from crfield.training.chain import primal_dual, warm_start
from crfield.training.column_basis import column_basis
from crfield.training.full_batch import FullBatch

PROXIMAL = "proximal_newton"  # the name of its runs
SOLVERS = ("auto", "lbfgs", "warm", "primal_dual")
FEW_LABELS = 47  # more have a table of transitions that is too dear to make anew for every sequence
FEW_THREADS = 2  # more make evaluations faster, and epochs of single sequences not
ENOUGH_GROUPS = 40
EPOCHS = 12
WEAK = 0.5  # a ridge below this leaves much of the curvature to the data
LEAST_RIDGE = 0.3  # a weaker one makes primal–dual epochs slower than L-BFGS after stochastic ones
CACHED = 250_000  # steps and gradient changes, this many numbers of each: 4 MB
SHORT, LONGEST = 10, 100
SPARSE, SPARSE_LEAST, SPARSE_MOST = 10_000_000, 20, 60  # the same with an l1 penalty: numbers, pairs
SPARSE_FEW = 400  # weights of numeric columns whose l1 penalty has proximal Newton
SPARSE_FROM, SPARSE_BYTES = 5_000, 256_000_000
PLANES_FROM = 60_000  # steps × labels, beside as many as there are weights: planes then cost a third of an evaluation
ROUGH_WEIGHTS, ROUGH_STEPS = 5_000, 20_000  # from which on L-BFGS begins in single precision

NUMBERS, LARGEST_NUMBER = 0.1, 16.0  # of what is there: the share that may be other than one, and how large

Callback = Callable[[Step, np.ndarray], bool | None]


def _unit(batch: Batch) -> bool:
    """Whether columns are there or not, but for some small numbers: such columns need no scale."""
    values, dense = batch.node.values, batch.node.dense
    if values is not None and len(values):
        numbers = values[values != 1.0]
        if len(numbers) > NUMBERS * len(values) or float(np.abs(numbers).max(initial=0.0)) > LARGEST_NUMBER:
            return False
    return dense is None or all(bool(((some == 0.0) | (some == 1.0)).all()) for some in (dense[:1], dense))


class FusedChain:
    """Negative log-likelihood of a linear chain model on a labelled batch.

    >>> import numpy as np
    >>> from crfield.core.topology import Chains
    >>> from crfield.data.batch import Columns
    >>> batch = Batch(Chains.from_lengths([2]), Columns.from_rows([[0], [1]], width=2))
    >>> target = Target(batch.topology, 2, np.array([0, 1]))
    >>> layout = Layout.observe(batch, target)
    >>> problem = FusedChain(layout, batch, target)
    >>> gradient = np.empty(layout.n_weights)
    >>> round(problem.evaluate(np.zeros(layout.n_weights), gradient), 6)
    1.386294
    """

    def __init__(self, layout: Layout, batch: Batch, target: Target, *, n_jobs: int = 1) -> None:
        self.layout, self.n_jobs = layout, n_jobs
        if layout.fixed is not None:
            refuse_illegal(layout.fixed, target)
        self.columns: Any = None  # the layout and `training.column_basis.Moments`, where columns are numeric
        self.moments: Any = None
        self.partial = bool((target.labels < 0).any())
        self.unit = _unit(batch)
        self._plain = batch.node.values is None and not layout.n_dense
        self._plain &= not (layout.n_edge_columns or layout.n_edge_dense)
        lengths = batch.topology.lengths
        self.n_steps, self.n_sequences, self.longest = int(lengths.sum()), len(lengths), int(lengths.max(initial=0))
        self._problem = linear.Problem(layout, batch, target.labels, target.allowed, target.weight)

    def packed(self) -> dict[str, np.ndarray]:
        """The data as they were packed, for a file; `restore` makes the same problem of them."""
        return self._problem.packed()

    @classmethod
    def restore(
        cls,
        layout: Layout,
        workspace: linear.Workspace,
        arrays: dict[str, np.ndarray],
        *,
        n_jobs: int = 1,
        check: bool = True,
    ) -> Self:
        """The problem that was `packed`; ValueError where the arrays do not fit (`linear.Problem.restore`)."""
        made = cls.__new__(cls)
        made.layout, made.n_jobs, made.columns, made.moments = layout, n_jobs, None, None
        made._plain = False
        made.unit, made.n_steps, made.n_sequences, made.longest = False, 0, 0, 0  # of a part of the data: not asked
        made._problem = linear.Problem.restore(workspace, arrays, check=check)
        return made

    @property
    def n_weights(self) -> int:
        """W."""
        return self.layout.n_weights

    @property
    def compiled(self) -> linear.Problem:
        """The kernel's problem, for solvers that share its data."""
        return self._problem

    @property
    def n_groups(self) -> int:
        """Number of groups of sequences that one stochastic step uses."""
        return self._problem.n_groups

    def evaluate(self, weights: np.ndarray, gradient: np.ndarray) -> float:
        """Value; the gradient is written to ``gradient``."""
        return self._problem.evaluate(weights, gradient, n_jobs=self.n_jobs)

    @property
    def rough(self) -> bool:
        """Whether single precision (`evaluate_single`) is possible, if transitions do not spread far, and pays."""
        many = self.n_weights >= ROUGH_WEIGHTS and self.n_steps >= ROUGH_STEPS
        return many and self._plain and primal_dual.compiled()

    @property
    def planes_pay(self) -> bool:
        """Whether planes below the likelihood are planes, and cheap beside an evaluation (`optimize.planes`)."""
        many = self.n_steps * self.layout.n_labels >= PLANES_FROM + self.n_weights
        return many and not self.partial

    def evaluate_single(self, weights: np.ndarray, gradient: np.ndarray) -> tuple[float, float]:
        """The value in single precision, and about how far off it may be; sums stay in double."""
        return self._problem.evaluate_single(weights, gradient, n_jobs=self.n_jobs)

    def curvature(self, weights: np.ndarray) -> np.ndarray:
        """About the diagonal of the second derivative."""
        return self._problem.curvature(weights, n_jobs=self.n_jobs)

    def descend(
        self, weights: np.ndarray, order: np.ndarray, *, step: float, done: float, horizon: float, l2: float
    ) -> float:
        """Stochastic steps over the groups in ``order``; changes the weights, gives the loss met on the way."""
        return self._problem.descend(weights, order, step=step, done=done, horizon=horizon, l2=l2)


class FusedSums:
    """One value and gradient over many fused problems of one workspace, which come one after the other."""

    def __init__(self, workspace: linear.Workspace, *, n_jobs: int = 1) -> None:
        self._sums = linear.Sums(workspace, n_jobs=n_jobs)

    def evaluate(self, weights: np.ndarray, gradient: np.ndarray, problems: Iterable[Any]) -> float:
        """Value; the gradient is written to ``gradient``."""
        return self._sums.evaluate((problem._problem for problem in problems), weights, gradient)


def choose(
    solver: str, problem: FusedChain | FullBatch, *, start: np.ndarray | None, penalty: Penalty, n_jobs: int = 1
) -> str:
    """The solver that will run: 'lbfgs', 'warm' or 'primal_dual'."""
    if solver not in SOLVERS:
        raise InputError(f"solver must be one of {', '.join(map(repr, SOLVERS))}, got {solver!r}.")
    if solver == "primal_dual":
        against = primal_dual.reason_against(problem, penalty)
        if against is not None:
            raise InputError(f"solver='primal_dual' does not fit: {against}. Use solver='lbfgs' or 'auto'.")
        return solver
    if not isinstance(problem, FusedChain) or problem.layout.n_edge_columns or problem.layout.n_edge_dense:
        if solver == "warm":
            raise InputError(
                "solver='warm' needs stochastic steps, which models with edge features or functions of two labels "
                "do not have. Use solver='lbfgs' or 'auto'."
            )
        return "lbfgs"
    if solver != "auto":
        return solver
    if start is not None or problem.n_groups < ENOUGH_GROUPS:
        return "lbfgs"
    if _suits_primal_dual(problem, penalty, n_jobs):
        return "primal_dual"
    part = problem.layout.part
    numeric = part["dense"].stop - part["dense"].start > part["node"].stop - part["node"].start
    return "lbfgs" if numeric and not penalty.l1 else "warm"


def _suits_primal_dual(problem: FusedChain, penalty: Penalty, n_jobs: int) -> bool:
    """Whether primal–dual epochs are possible, and likely to be the fastest way."""
    if n_jobs > FEW_THREADS or problem.layout.n_labels > FEW_LABELS or not primal_dual.compiled():
        return False
    if primal_dual.reason_against(problem, penalty) is not None or (not penalty.l1 and penalty.l2 < LEAST_RIDGE):
        return False
    newton = penalty.l1 > 0 and numeric_basis(problem, penalty) is not None
    return not newton and primal_dual.table_bytes(problem) <= primal_dual.LARGEST


def history_pairs(n_weights: int, penalty: Penalty) -> int | None:
    """Pairs of the history: as many as stay in the cache, up to 100; None, the optimiser's few, where that is fewer.

    With an l1 penalty on many weights evaluations are many and most weights are zero: twenty pairs or more pay for
    their memory. On few weights they only get in the way of the last digits.

    >>> [history_pairs(n, Penalty(l2=1.0)) for n in (166, 10_000, 500_000)]
    [100, 25, None]
    >>> [history_pairs(n, Penalty(l1=1.0)) for n in (166, 150_000, 10_000_000)]
    [None, 60, None]
    """
    if penalty.l1:
        pairs = min(max(SPARSE // max(n_weights, 1), SPARSE_LEAST), SPARSE_MOST)
        return pairs if n_weights >= SPARSE_FROM and pairs * n_weights <= SPARSE_BYTES // 8 else None
    pairs = min(CACHED // max(n_weights, 1), LONGEST)
    return None if pairs <= SHORT else pairs


def fit_likelihood(
    problem: FusedChain | FullBatch,
    penalty: Penalty,
    *,
    start: np.ndarray | None = None,
    solver: str = "auto",
    tol: float = 1e-4,
    max_iter: int = 500,
    n_jobs: int = 1,
    rng: np.random.Generator,
    callback: Callback | None = None,
    run_state: RunState | None = None,
) -> Result:
    """Minimise F; the result tells value, steps, whether it converged, and the history.

    What ``run_state`` found of an earlier run is gone on with, whichever phase it had come to.
    """
    kind = choose(solver, problem, start=start, penalty=penalty, n_jobs=n_jobs)
    told: list[str] = []
    first: Result | None = None
    begun = run_state is not None and any(run_state.found(name) for name in ("lbfgs", PROXIMAL, "epochs"))
    if kind == "primal_dual" and not begun and isinstance(problem, FusedChain):
        first = primal_dual.minimize_primal_dual(
            problem,
            penalty,
            start=start,
            tol=tol,
            max_iter=max_iter,
            n_jobs=n_jobs,
            rng=rng,
            callback=callback,
            run_state=run_state,
        )
        name = f"{first.n_iter} primal–dual epochs, since there are many sequences"
        if first.reason != primal_dual.HANDED_OVER:
            return replace(first, how=f"{name}; {first.n_evaluations} evaluations to bound the gap")
        told.append(f"{name}, first")

    def warm(weights: np.ndarray) -> np.ndarray | Basis | None:
        if first is not None:
            return warmed_diagonal(problem, weights, penalty)
        basis = numeric_basis(problem, penalty)
        newton = penalty.l1 > 0 and basis is not None  # which takes epochs only where they are asked for
        if isinstance(problem, FusedChain) and problem.n_groups:
            if (kind == "warm" and not (newton and solver == "auto")) and warm_start.descend(
                problem, weights, l2=penalty.l2 + penalty.l1, epochs=EPOCHS, rng=rng, run_state=run_state
            ):
                told.append(f"{EPOCHS} stochastic epochs first, since there are many sequences")
                if not newton:
                    return warmed_diagonal(problem, weights, penalty)
            elif penalty.l1 and not newton:
                return scales_of_columns(problem, weights, penalty)
        if basis is not None:
            told.append("numeric columns centred, scaled and without correlation inside the solver")
        return basis

    handed = [first.weights if first else np.zeros(problem.n_weights) if start is None else start.copy()]
    age = first.n_iter if first is not None and not penalty.l1 else 0
    result = settle(
        problem,
        handed,
        penalty,
        warm,
        tol=tol,
        max_iter=max_iter if first is None else max(max_iter - first.n_iter, 0),
        n_jobs=n_jobs,
        callback=callback if first is None else _counting_on(callback, first),
        run_state=run_state,
        age=age,
    )
    if first is not None:
        result = _joined(first, result)
    if isinstance(problem, FusedChain) and problem.rough and not age:
        told.append("in single precision where the end is far")
    if result.n_renewed:
        told.append(f"the second derivative of {problem.n_weights} weights computed, {result.n_renewed} ×")
    name = f"{result.how or 'OWL-QN'}, for the l1 penalty" if penalty.l1 else "L-BFGS"
    return replace(result, how="; ".join([name, *told]))


def _later(step: Step, first: Result) -> Step:
    return replace(step, n_iter=step.n_iter + first.n_iter, n_evaluations=step.n_evaluations + first.n_evaluations)


def _counting_on(callback: Callback | None, first: Result) -> Callback | None:
    """The callback of a run that another has begun."""
    if callback is None:
        return None
    return lambda step, weights: callback(_later(step, first), weights)


def _joined(first: Result, last: Result) -> Result:
    """Two runs as one."""
    return replace(
        last,
        n_iter=first.n_iter + last.n_iter,
        n_evaluations=first.n_evaluations + last.n_evaluations,
        history=[*first.history, *(_later(step, first) for step in last.history)],
    )


def numeric_basis(problem: Any, penalty: Penalty) -> Basis | None:
    """The coordinates that suit numeric columns, where there are some.

    With an l1 penalty they are for few weights, and models of f alone (`optimize.proximal_newton`).
    """
    moments, layout = getattr(problem, "moments", None), getattr(problem, "columns", None)
    if moments is None or layout is None or moments.even or (penalty.l1 and problem.n_weights > SPARSE_FEW):
        return None
    return column_basis(layout, moments, Penalty() if penalty.l1 else penalty)


def scales_of_columns(problem: FusedChain, weights: np.ndarray, penalty: Penalty) -> np.ndarray | None:
    """A diagonal that brings numeric columns to one scale, where some are in units far from one, for OWL-QN."""
    if problem.layout.n_dense:
        return warm_start.rescaling(problem, weights, layout=problem.layout, l2=penalty.l2)
    far = problem.moments is not None and problem.moments.far
    return warm_start.preconditioner(problem, weights, l2=penalty.l2) if far else None


def warmed_diagonal(problem: Any, weights: np.ndarray, penalty: Penalty) -> np.ndarray:
    """The preconditioner at weights that stochastic epochs have come to."""
    weak = not penalty.l1 and penalty.l2 < WEAK
    power = warm_start.CAUTIOUS_POWER if weak else warm_start.POWER
    return warm_start.preconditioner(problem, weights, l2=penalty.l2, power=power)


def settle(
    problem: Any,
    handed: list[np.ndarray],
    penalty: Penalty,
    warm: Callable[[np.ndarray], np.ndarray | Basis | None],
    *,
    tol: float,
    max_iter: int,
    n_jobs: int,
    callback: Callback | None,
    run_state: RunState | None,
    age: int = 0,
) -> Result:
    """L-BFGS, or OWL-QN, from the weights handed over, after ``warm`` changed them in place and gave a diagonal
    or a basis to work in. Few weights have that renewed on the way. ``age`` are epochs that came before.

    Where ``run_state`` found L-BFGS begun, the epochs are over. The weights come in a list that is emptied: handed
    over, not shared. The optimiser copies its start, and one vector of many weights less is worth having.
    """
    scales: np.ndarray | Basis | None = None
    begun = None if run_state is None else next((name for name in ("lbfgs", PROXIMAL) if run_state.found(name)), None)
    if begun is None:
        try:
            scales = warm(handed[0])
        except KeyboardInterrupt:
            here = Point(handed[0], np.empty_like(handed[0]))
            Penalised(problem, penalty, n_jobs=n_jobs).evaluate(here)
            return Result(handed.pop(), here.value, 0, 1, False, INTERRUPTED, [])
    if begun == PROXIMAL or (penalty.l1 and isinstance(scales, Basis)):
        basis = scales if isinstance(scales, Basis) else Basis(np.ones(problem.n_weights))
        from crfield.optimize.proximal_newton import minimize_proximal

        return minimize_proximal(
            problem, handed.pop(), penalty, basis, tol=tol, max_iter=max_iter, callback=callback, run_state=run_state
        )
    return minimize(
        problem,
        handed.pop(),
        penalty,
        memory=history_pairs(problem.n_weights, penalty),
        diagonal=scales if isinstance(scales, np.ndarray) else None,
        basis=scales if isinstance(scales, Basis) else None,
        renew=not penalty.l1,
        tol=tol,
        max_iter=max_iter,
        n_jobs=n_jobs,
        callback=callback,
        run_state=run_state,
        age=age,
    )
