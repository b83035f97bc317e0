"""Feature induction: the gain in likelihood that each candidate would bring, found on its own.

The gradient says how fast the likelihood would rise; the gain says how far. McCallum (2003, *Efficiently inducing
features of conditional random fields*) holds the present weights, gives a candidate g the weight μ and lets steps
fall apart: the neighbours of a step are taken as known, so that every step has a normaliser of its own,

    gain(g) = max_μ Σ_t [ μ G_t(y_t) − log Σ_y p_t(y) exp(μ G_t(y)) ] − μ² / (2 variance)
    G_t(y)  = g(t, ŷ_{t-1}, y) + g(t + 1, y, ŷ_{t+1})

a concave problem in one number for each candidate, solved by Newton steps within a bracket. What is left open:

- ``neighbours``: the true labels (``"truth"``, pseudo-likelihood) or the likeliest of the model (``"model"``).
- ``base``, the p_t: the present marginals (``"marginal"``, as in Vail 2008, equation 3.28) or the distribution of a
  step given the neighbours (``"conditional"``), which with true neighbours is pseudo-likelihood to the letter. With
  true neighbours marginals flatter features of transitions: what the neighbours tell about a step is not in them even
  if the model knows it, so the same transition looks new again. Conditionals do not, but where labels seldom change
  the neighbours tell nearly everything, and hardly a feature of labels gains: on long recordings at a high rate they
  are much the worse (`crfield reproduce tag-selection`).
- ``where``: all steps, or only those that the present model gets wrong (``"mistakes"``), which is cheaper, and worse,
  since what a feature would spoil is not looked at.

A candidate costs a few passes over the steps at which it is not zero. With many candidates only a ``shortlist`` of
those with the steepest slopes is looked at; slopes come from the histograms of lazy columns, gains do not.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from crfield.core.checks import one_of
from crfield.core.topology import Chains
from crfield.errors import InputError, ShapeError
from crfield.features.lazy_columns import LazyColumns
from crfield.selection.methods.grafting import Watch, check_rounds, steepest
from crfield.selection.path import SelectionPath
from crfield.selection.problem import SelectionProblem
from crfield.selection.record import Recorder
from crfield.selection.standardised import StandardisedColumns

NEIGHBOURS = ("truth", "model")
BASES = ("marginal", "conditional")
WHERE = ("all", "mistakes")
MAX_STEPS, CLOSE = 30, 1e-6
CHUNK = 64  # columns at a time
CACHED = 60_000  # numbers of a table that is gone through again and again


def gain_path(
    problem: SelectionProblem,
    *,
    m: int = 1,
    neighbours: str = "truth",
    base: str = "marginal",
    where: str = "all",
    variance: float | None = 10.0,
    shortlist: int | None = 1_000,
    l2: float = 0.01,
    max_features: int = 200,
    patience: int | None = 20,
    criterion: str = "error",
    tol: float = 1e-5,
    max_iter: int = 50,
    watch: Watch | None = None,
) -> SelectionPath:
    """Add the ``m`` candidates of the greatest gains, fit, and look again; gains are in ``largest`` of the rounds.

    >>> from crfield.core.target import Target
    >>> from crfield.features.lazy_columns import MatrixColumns
    >>> rng = np.random.default_rng(0)
    >>> chains, y = Chains.from_lengths([150]), np.repeat(rng.integers(0, 2, 30), 5)
    >>> x = rng.normal(size=(150, 4)) + np.outer(y, [0, 2, 0, 1])
    >>> problem = SelectionProblem(MatrixColumns(x, chains=chains, n_labels=2), Target(chains, 2, y))
    >>> gain_path(problem, max_features=1).entered()
    [(1, 's1 | ...')]
    """
    check_rounds(m=m, max_features=max_features, patience=patience)
    check_complete(problem)
    record = Recorder(problem, "gain", criterion=criterion, patience=patience, watch=watch)
    columns, labels = StandardisedColumns(problem), problem.train.target.labels
    model = problem.fit([], l2=l2, tol=tol, max_iter=max_iter)
    record.add(model)
    while not record.stopped:
        room = min(m, max_features - len(model.active))
        if room <= 0:
            record.stop("max_features")
            break
        beliefs = problem.beliefs(model)
        steps = fall_apart(
            columns.chains, beliefs.node, labels, edge=beliefs.edge, neighbours=neighbours, base=base, where=where
        )
        if not steps.looked_at.any():
            record.stop("no mistakes to learn from")
            break
        slopes = np.abs(problem.scores(*slope_apart(columns.chains, steps)))
        slopes[model.active] = 0.0
        some = steepest(problem, slopes, problem.n_candidates if shortlist is None else shortlist)
        gain, _ = gains(columns, some, steps, variance=variance)
        best = np.argsort(-gain, kind="stable")[:room]
        entering = some[best[gain[best] > 0]]
        if not len(entering):
            record.stop("no candidate gains anything")
            break
        model = problem.fit(np.concatenate([model.active, entering]), model, l2=l2, tol=tol, max_iter=max_iter)
        record.add(model, added=entering, largest=float(gain.max()))
    return record.path()


def check_complete(problem: SelectionProblem) -> None:
    """InputError where a step has no single label: such methods look at the labels one by one."""
    if not problem.train.target.complete.all():
        raise InputError(
            "this method needs one known label for every step of the training part. Use grafting or the ℓ1 path, "
            "which take partial labels, or leave those sequences out."
        )


class Steps(NamedTuple):
    """What every step knows when steps have fallen apart."""

    base: np.ndarray  # (N, L) p_t
    truth: np.ndarray  # (N,) y_t
    before: np.ndarray  # (N,) ŷ_{t-1}, −1 at the first step of a chain
    after: np.ndarray  # (N,) ŷ_{t+1}, −1 at the last
    looked_at: np.ndarray  # (N,) bool


def fall_apart(
    chains: Chains,
    beliefs: np.ndarray,
    truth: np.ndarray,
    *,
    edge: np.ndarray | None = None,
    neighbours: str = "truth",
    base: str = "marginal",
    where: str = "all",
) -> Steps:
    """Steps without edges, from beliefs (N, L) and, for ``base="conditional"``, those of edges (E, L, L).

        p(y_t | ŷ_{t-1}, ŷ_{t+1}) ∝ p(ŷ_{t-1}, y_t) p(y_t, ŷ_{t+1}) / p(y_t)        in a chain

    >>> chains = Chains.from_lengths([3])
    >>> steps = fall_apart(chains, np.array([[0.9, 0.1], [0.6, 0.4], [0.2, 0.8]]), np.array([0, 1, 1]))
    >>> steps.before.tolist(), steps.after.tolist(), steps.looked_at.tolist()
    ([-1, 0, 1], [1, 1, -1], [True, True, True])
    >>> fall_apart(chains, steps.base, np.array([0, 1, 1]), where="mistakes").looked_at.tolist()
    [False, True, False]
    """
    for name, value, known in (
        ("neighbours", neighbours, NEIGHBOURS),
        ("base", base, BASES),
        ("where", where, WHERE),
    ):
        one_of(*known)(name, value)
    truth = np.asarray(truth, dtype=np.int64)
    if beliefs.shape != (chains.n_nodes, beliefs.shape[-1]) or truth.shape != (chains.n_nodes,):
        raise ShapeError(
            f"expected beliefs and labels of {chains.n_nodes} steps, got {beliefs.shape} and {truth.shape}."
        )
    likeliest = beliefs.argmax(axis=1)
    stand_in = truth if neighbours == "truth" else likeliest
    heads = chains.heads
    before, after = np.full(len(truth), -1), np.full(len(truth), -1)
    before[heads], after[heads - 1] = stand_in[heads - 1], stand_in[heads]
    if base == "conditional":
        if edge is None or edge.shape != (len(heads), *beliefs.shape[1:] * 2):
            raise InputError("base='conditional' needs the beliefs of every edge.")
        beliefs = _given_neighbours(beliefs, edge, heads, before[heads], after[heads - 1])
    looked_at = likeliest != truth if where == "mistakes" else np.ones(len(truth), dtype=bool)
    return Steps(beliefs, truth, before, after, looked_at)


def _given_neighbours(
    beliefs: np.ndarray, edge: np.ndarray, heads: np.ndarray, before: np.ndarray, after: np.ndarray
) -> np.ndarray:
    """(N, L) distribution of each step given the labels beside it."""
    row = np.arange(len(heads))
    with np.errstate(divide="ignore", invalid="ignore"):
        alone = np.log(beliefs)
        local = alone.copy()
        local[heads] += np.log(edge[row, before]) - alone[heads]
        local[heads - 1] += np.log(edge[row, :, after]) - alone[heads - 1]
        local[np.isnan(local)] = -np.inf
        most = local.max(axis=1, keepdims=True)
        found = np.exp(local - most)
    found /= found.sum(axis=1, keepdims=True)
    # Neighbours that the model holds for impossible say nothing about the step between them.
    return np.where(np.isfinite(most), found, beliefs)


def slope_apart(chains: Chains, steps: Steps) -> tuple[np.ndarray, np.ndarray]:
    """The slope of all gains at μ = 0 as a gradient of scores (N, L) and (E, L, L), for `LazyColumns.scores`.

    An edge is met twice, from its head and from its tail: with the label before known, and with the label after.

    >>> steps = fall_apart(Chains.from_lengths([2]), np.full((2, 2), 0.5), np.array([0, 1]))
    >>> [part.tolist() for part in slope_apart(Chains.from_lengths([2]), steps)]
    [[[0.5, -0.5], [-0.5, 0.5]], [[[-0.5, 1.0], [0.0, -0.5]]]]
    """
    gap = -steps.base.copy()
    gap[np.arange(len(gap)), steps.truth] += 1.0
    gap[~steps.looked_at] = 0.0
    heads = chains.heads
    edge, row = np.zeros((len(heads), gap.shape[1], gap.shape[1])), np.arange(len(heads))
    edge[row, steps.before[heads]] += gap[heads]
    edge[row, :, steps.after[heads - 1]] += gap[heads - 1]
    return gap, edge


def gains(
    candidates: LazyColumns, numbers: np.ndarray, steps: Steps, *, variance: float | None = 10.0
) -> tuple[np.ndarray, np.ndarray]:
    """Gain and best weight μ of some candidates, (n,) each; see the module.

    >>> from crfield.features.lazy_columns import MatrixColumns
    >>> chains = Chains.from_lengths([4])
    >>> columns = MatrixColumns(np.array([[1.0], [1.0], [1.0], [0.0]]), chains=chains, n_labels=2)
    >>> steps = fall_apart(chains, np.full((4, 2), 0.5), np.array([0, 0, 1, 1]))
    >>> gain, weight = gains(columns, np.array([0, 1]), steps, variance=None)
    >>> gain.round(6).tolist(), round(float(3 * np.log(2) - 2 * np.log(1.5) - np.log(3)), 6)
    ([0.169899, 0.169899], 0.169899)
    >>> np.exp(weight).round(2).tolist()
    [2.0, 0.5]
    """
    numbers = np.asarray(numbers)
    places = candidates.places(numbers)
    gain, weight = np.zeros(len(numbers)), np.zeros(len(numbers))
    ridge = 0.0 if variance is None else 1.0 / variance if variance else np.inf
    if not (ridge >= 0 and np.isfinite(ridge)):
        raise InputError(f"variance must be positive, or None for no prior, got {variance}.")
    columns, owner = np.unique(places.column, return_inverse=True)
    links = np.stack([places.previous, places.label], axis=1)
    for start in range(0, len(columns), CHUNK):
        values = candidates.chunk(columns[start : start + CHUNK])
        here = np.flatnonzero((owner >= start) & (owner < start + CHUNK))
        for previous, label in np.unique(links[here], axis=0).tolist():
            mine = here[(places.previous[here] == previous) & (places.label[here] == label)]
            # As many columns at a time as stay in the cache.
            size = max(CACHED // max(len(values), 1), 1)
            for k in range(0, len(mine), size):
                some = mine[k : k + size]
                moved = _moved(values[:, owner[some] - start], previous, label, steps)
                weight[some], gain[some] = _climb(moved, ridge)
    return gain, weight


class Moved(NamedTuple):
    """What candidates of one link move at the steps that they can move: one label of each, or two."""

    a: np.ndarray  # (n, C) G of the first label
    p: np.ndarray  # (n, 1) its probability
    b: np.ndarray | None  # (n, C) G of the second
    q: np.ndarray | None  # (n, 1)
    met: np.ndarray  # (C,) Σ_t G_t(y_t)


def _moved(x: np.ndarray, previous: int, label: int, steps: Steps) -> Moved:
    """A feature of one label, and one of a label that stays, moves a single label of a step; one of a change two."""
    base, truth = steps.base, steps.truth
    if previous < 0:
        row = np.flatnonzero(steps.looked_at)
        a = x[row]
        return Moved(a, base[row, label, None], None, None, (truth[row] == label) @ a)
    into, out = steps.before == previous, steps.after == label
    row = np.flatnonzero(steps.looked_at & (into | out))
    a = x[row] * into[row, None]
    b = x[np.minimum(row + 1, len(x) - 1)] * out[row, None]
    if previous == label:
        a = a + b
        return Moved(a, base[row, label, None], None, None, (truth[row] == label) @ a)
    met = (truth[row] == label) @ a + (truth[row] == previous) @ b
    return Moved(a, base[row, label, None], b, base[row, previous, None], met)


def _climb(moved: Moved, ridge: float) -> tuple[np.ndarray, np.ndarray]:
    """(C,) best μ and gains: max_μ μ met − Σ log(1 − p − q + p e^{μa} + q e^{μb}) − ½ ridge μ².

    The slope falls with μ, so a sign seen at a point bounds the best one on that side; Newton steps that leave the
    bracket, or go too far while it is open, are cut.
    """
    n = moved.a.shape[1]
    size = np.mean(moved.a**2, axis=0) if len(moved.a) else np.zeros(n)
    if moved.b is not None and len(moved.b):
        size = np.maximum(size, np.mean(moved.b**2, axis=0))
    reach = 4.0 / np.sqrt(np.maximum(size, _TINY))
    weight, value = np.zeros(n), np.zeros(n)
    low, high = np.full(n, -np.inf), np.full(n, np.inf)
    going = np.flatnonzero(size > 0)
    for turn in range(MAX_STEPS + 1):
        now = weight[going]
        value[going], slope, bend = _totals(now, moved, going)
        slope, bend = moved.met[going] - slope - ridge * now, np.maximum(bend + ridge, _TINY)
        low[going] = np.where(slope > 0, now, low[going])
        high[going] = np.where(slope > 0, high[going], now)
        proposed = now + np.clip(slope / bend, -reach[going], reach[going])
        outside = (proposed <= low[going]) | (proposed >= high[going])
        with np.errstate(invalid="ignore"):
            proposed = np.where(outside, 0.5 * (low[going] + high[going]), proposed)
        done = (slope * slope <= 2 * CLOSE * bend) | ~(np.abs(proposed) <= 100 * reach[going]) | (proposed == now)
        if turn == MAX_STEPS or done.all():
            break
        going, proposed = going[~done], proposed[~done]
        weight[going] = proposed
    return weight, np.maximum(weight * moved.met - value - 0.5 * ridge * weight * weight, 0.0)


def _totals(weight: np.ndarray, moved: Moved, some: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(C,) each: Σ log Z, and its first and second derivative in μ."""
    all_of_them = len(some) == moved.a.shape[1]
    a = moved.a if all_of_them else moved.a[:, some]
    up = weight * a
    if moved.b is None or moved.q is None:
        most = np.maximum(up, 0.0)
        up -= most
        one, total = moved.p * np.exp(up), np.maximum(1.0 - moved.p, 0.0) * np.exp(-most)
        total += one
        np.maximum(total, _TINY, out=total)
        one /= total
        value = np.log(total).sum(axis=0) + most.sum(axis=0)
        slope = np.einsum("nc,nc->c", a, one)
        one -= one * one
        return value, slope, np.einsum("nc,nc,nc->c", a, a, one)
    b = moved.b if all_of_them else moved.b[:, some]
    over = weight * b
    most = np.maximum(np.maximum(up, over), 0.0)
    one, two = moved.p * np.exp(up - most), moved.q * np.exp(over - most)
    total = np.maximum(one + two + np.maximum(1.0 - moved.p - moved.q, 0.0) * np.exp(-most), _TINY)
    one /= total
    two /= total
    one *= a
    two *= b
    mean = one + two
    bend = np.einsum("nc,nc->c", a, one) + np.einsum("nc,nc->c", b, two) - np.einsum("nc,nc->c", mean, mean)
    return (np.log(total) + most).sum(axis=0), mean.sum(axis=0), bend


_TINY = 1e-300
