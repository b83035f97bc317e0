"""Penalised likelihood: which solver, from where, and what came of it.

    F(w) = Σ_s weight_s · (−log p(y_s | x_s)) + l1 ‖w‖₁ + ½ l2 ‖w‖²

Solvers:

- ``"lbfgs"``: L-BFGS from the start given (OWL-QN when l1 > 0). Predictable; many evaluations.
- ``"warm"``: stochastic epochs, then L-BFGS or OWL-QN with a diagonal preconditioner. Fast on large data.
- ``"auto"``: ``"warm"`` when there are enough sequences for a stochastic step to mean something and no weights to
  go on from, ``"lbfgs"`` otherwise; also for models of numeric columns in the main, unless l1 > 0: few weights
  that overlap much are what L-BFGS with a long history does best.

The history is as long as the cache allows. Few weights can have so many pairs that these tell nearly the whole
curvature, and then need far fewer steps than with the usual few; OWL-QN, whose steps are bent at every zero, gains
nothing from it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from crfield.errors import InputError
from crfield.optimize.history import INTERRUPTED, Result, Step
from crfield.optimize.keeping import Keeper
from crfield.optimize.lbfgs import minimize
from crfield.optimize.penalty import Penalised, Penalty, Point
from crfield.training import warm_start
from crfield.training.full_batch import FullBatch
from crfield.training.fused import FusedChain

SOLVERS = ("auto", "lbfgs", "warm")
ENOUGH_GROUPS = 40
EPOCHS = 12
WEAK = 0.5  # a ridge below this leaves much of the curvature to the data
CACHED = 250_000  # steps and gradient changes, this many numbers of each: 4 MB
SHORT, LONGEST = 10, 100

Callback = Callable[[Step, np.ndarray], bool | None]


def choose(solver: str, problem: FusedChain | FullBatch, *, start: np.ndarray | None, l1: float = 0.0) -> str:
    """The solver that will run: 'lbfgs' or 'warm'."""
    if solver not in SOLVERS:
        raise InputError(f"solver must be one of {', '.join(map(repr, SOLVERS))}, got {solver!r}.")
    if not isinstance(problem, FusedChain) or problem.layout.n_edge_columns or problem.layout.n_edge_dense:
        if solver == "warm":
            raise InputError(
                "solver='warm' needs stochastic steps, which models with edge features or functions of two labels "
                "do not have. Use solver='lbfgs' or 'auto'."
            )
        return "lbfgs"
    if solver != "auto":
        return solver
    part = problem.layout.part
    numeric = part["dense"].stop - part["dense"].start > part["node"].stop - part["node"].start
    if start is not None or problem.n_groups < ENOUGH_GROUPS or (numeric and not l1):
        return "lbfgs"
    return "warm"


def history_pairs(n_weights: int, penalty: Penalty) -> int | None:
    """Pairs of the history: as many as stay in the cache, up to 100; None, the optimiser's few, where that is fewer.

    >>> [history_pairs(n, Penalty(l2=1.0)) for n in (166, 10_000, 500_000)]
    [100, 25, None]
    """
    pairs = min(CACHED // max(n_weights, 1), LONGEST)
    return None if penalty.l1 or pairs <= SHORT else pairs


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
    keeper: Keeper | None = None,
) -> Result:
    """Minimise F; the result tells value, steps, whether it converged, and the history.

    What ``keeper`` found of an earlier run is gone on with, whichever phase it had come to.
    """
    kind = choose(solver, problem, start=start, l1=penalty.l1)
    weights = np.zeros(problem.n_weights) if start is None else start.copy()
    diagonal = None
    begun = keeper is not None and keeper.found("lbfgs") is not None  # the epochs are over
    if isinstance(problem, FusedChain) and problem.n_groups and not begun:
        try:
            warmed = kind == "warm" and warm_start.descend(
                problem, weights, l2=penalty.l2 + penalty.l1, epochs=EPOCHS, rng=rng, keeper=keeper
            )
            if warmed:
                weak = not penalty.l1 and penalty.l2 < WEAK
                power = warm_start.CAUTIOUS_POWER if weak else warm_start.POWER
                diagonal = warm_start.preconditioner(problem, weights, l2=penalty.l2, power=power)
            elif problem.layout.n_dense:
                diagonal = warm_start.rescaling(problem, weights, layout=problem.layout, l2=penalty.l2)
        except KeyboardInterrupt:
            here = Point(weights, np.empty_like(weights))
            Penalised(problem, penalty, n_jobs=n_jobs).evaluate(here)
            return Result(weights, here.value, 0, 1, False, INTERRUPTED, [])
    # Handed over, not shared: the optimiser copies its start, and one vector of many weights less is worth having.
    handed = [weights]
    del weights
    return minimize(
        problem,
        handed.pop(),
        penalty,
        memory=history_pairs(problem.n_weights, penalty),
        diagonal=diagonal,
        tol=tol,
        max_iter=max_iter,
        n_jobs=n_jobs,
        callback=callback,
        keeper=keeper,
    )
