"""The ℓ1 path: from the strongest penalty that lets nothing in, downwards.

    w(λ) = argmin loss(w) + λ Σ |w_k|          λ_0 = max_k |slope_k|,   λ_{r+1} = decay · λ_r

λ_0 is the slope of the steepest candidate at the base alone, so above it the model is empty. Every λ starts from the
weights and the curvature of the one before (Friedman, Hastie & Tibshirani 2010). Only a *working set* is fitted: what
is not zero, and what the strong rule |slope_k| ≥ 2 λ_{r+1} − λ_r lets one expect (Tibshirani et al. 2012). Then all
candidates are scored, whoever breaks the optimality conditions

    |slope_k| ≤ λ  where w_k = 0          slope_k = −λ sign(w_k)  elsewhere

joins, and it is fitted again until none does, to ``tol`` · λ_0. So the answer is that of all candidates, at the price
of the few that matter. The path ends when the held-out score has not improved for ``patience`` values of λ (nothing
held out: at ``n_lambdas`` or ``max_features``).

**Relaxed.** The penalty does two things at once: it chooses, and it makes what it has chosen small. Held-out data
that judge small weights ask for a weak penalty, to have those of the true columns right, and with it come dozens of
false ones. So with ``relax`` every round holds the set of its λ with weights fitted anew under a ridge alone
(Meinshausen 2007, *Relaxed lasso*): strong penalties are then judged by what they chose, false columns cost what they
do cost, and the held-out loss is least near the true set.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from crfield.errors import InputError
from crfield.selection.methods.grafting import Watch, check_rounds
from crfield.selection.path import SelectionPath
from crfield.selection.problem import SelectionModel, SelectionProblem
from crfield.selection.record import Recorder

TRIES = 30  # fits of one λ, each with more candidates
NEAR = 0.6  # of λ: a slope below is not let in by the strong rule for a while
AT_ONCE = 100  # candidates that may join a fit of one λ


def l1_path(
    problem: SelectionProblem,
    *,
    decay: float = 0.9,
    n_lambdas: int = 100,
    lambdas: Sequence[float] | None = None,
    l2: float = 0.0,
    relax: float | None = None,
    max_features: int = 400,
    patience: int | None = 10,
    criterion: str = "error",
    tol: float = 1e-6,
    max_iter: int = 300,
    watch: Watch | None = None,
) -> SelectionPath:
    """The path of ℓ1-penalised models; one round for each λ, its first the base alone.

    ``lambdas`` gives the values themselves, falling. ``l2`` is added to every candidate's weight (elastic net).
    ``relax`` is the ridge under which the set of each λ is fitted again without the ℓ1 penalty, and then no round has
    more than ``max_features``: of a set that is larger the strongest stay.

    >>> from crfield.core.target import Target
    >>> from crfield.core.topology import Chains
    >>> from crfield.features.lazy_columns import MatrixColumns
    >>> rng = np.random.default_rng(0)
    >>> labels = np.repeat(rng.integers(0, 2, 40), 5)
    >>> X = rng.normal(size=(200, 5))
    >>> X[:, 3] += labels
    >>> chains = Chains.from_lengths([200])
    >>> problem = SelectionProblem(MatrixColumns(X, chains=chains, n_labels=2), Target(chains, 2, labels))
    >>> path = l1_path(problem, n_lambdas=5)
    >>> [one.n_features for one in path][:2], path[1].added[0]
    ([0, 2], 's3 | 0')
    """
    check_rounds(m=n_lambdas, max_features=max_features, patience=patience)
    if not 0 < decay < 1:
        raise InputError(
            f"decay must be a number between 0 and 1 (the factor from one penalty to the next), got {decay!r}."
        )
    if relax is not None and not (np.isfinite(relax) and relax >= 0):
        raise InputError(f"relax must be a finite number ≥ 0 (a ridge penalty), or None, got {relax!r}.")
    name = "l1-path" if relax is None else "relaxed"
    record = Recorder(problem, name, criterion=criterion, patience=patience, watch=watch)
    model = problem.fit([], tol=1e-12)
    slopes = problem.slopes(model)
    largest = float(np.abs(slopes).max(initial=0.0))
    grid = largest * decay ** np.arange(n_lambdas + 1) if lambdas is None else np.asarray(lambdas, dtype=np.float64)
    if len(grid) == 0 or not (np.isfinite(grid).all() and (grid >= 0).all() and (np.diff(grid) <= 0).all()):
        raise InputError(f"lambdas must be finite, non-negative and in falling order, got {grid.tolist()[:5]}.")
    record.add(model, penalty=max(largest, float(grid[0])), largest=largest)
    before = max(largest, float(grid[0]))
    allowed = max(tol * largest, 1e-12)
    seen: set[int] = set()
    refitted = model
    try:
        for penalty in grid[grid < largest].tolist():
            if record.stopped or largest == 0:
                break
            model, slopes = at_penalty(
                problem, model, slopes, penalty, before=before, l2=l2, allowed=allowed, max_iter=max_iter
            )
            before = penalty
            shown = model.without_zeros()
            entering = np.array([k for k in shown.active.tolist() if k not in seen], np.int64)
            seen |= set(entering.tolist())
            steepest = np.abs(slopes)
            steepest[shown.active] = 0.0
            if relax is not None:
                refitted = problem.fit(_strongest(shown, max_features).active, refitted, l2=relax, max_iter=max_iter)
                entering = entering[np.isin(entering, refitted.active)]
            record.add(
                shown if relax is None else refitted,
                added=entering,
                penalty=penalty,
                largest=float(steepest.max(initial=0.0)),
            )
            if len(shown.active) >= max_features:
                record.stop("max_features")
    except KeyboardInterrupt:
        record.stop("interrupted")
    if not record.stopped:
        record.stop("last penalty")
    return record.path()


def _strongest(model: SelectionModel, most: int) -> SelectionModel:
    """The model without all but its ``most`` largest weights."""
    order = np.argsort(-np.abs(model.weights), kind="stable")
    return model.only(np.isin(np.arange(len(order)), order[:most]))


def at_penalty(
    problem: SelectionProblem,
    model: SelectionModel,
    slopes: np.ndarray,
    penalty: float,
    *,
    before: float,
    l2: float,
    allowed: float,
    max_iter: int = 300,
) -> tuple[SelectionModel, np.ndarray]:
    """The optimum at one penalty over all candidates, from a model and the slopes at it; and the slopes there.

    No optimality condition of any candidate is broken by more than ``allowed`` unless ``max_iter`` ends a fit.
    """
    expected = np.flatnonzero(np.abs(slopes) >= max(2 * penalty - before, 0.0) + 1e-12)
    expected = expected[np.argsort(-np.abs(slopes[expected]), kind="stable")][:AT_ONCE]
    old = model.active
    joining = np.setdiff1d(expected, old)
    working = np.concatenate([old, joining])
    for _ in range(TRIES):
        model = problem.fit(working, model, l1=penalty, l2=l2, violation=0.5 * allowed, max_iter=max_iter)
        slopes = problem.slopes(model)
        outside = np.abs(slopes)
        outside[working] = 0.0
        broken = np.flatnonzero(outside > penalty + 0.5 * allowed)
        if not len(broken):
            break
        broken = broken[np.argsort(-outside[broken], kind="stable")][:AT_ONCE]
        working = np.concatenate([working, broken])
    # Zeros far from the edge go, for they cost as much as others; those that the next penalty may ask for stay.
    return model.only((model.weights != 0) | (np.abs(slopes[model.active]) > NEAR * penalty)), slopes
