"""Feature induction: the gain in likelihood that each candidate would bring, found on its own.

The gradient says how fast the likelihood would rise; the gain says how far. McCallum (2003, *Efficiently inducing
features of conditional random fields*) holds the present weights, gives a candidate g the weight μ and lets steps
fall apart: the neighbours of a step are taken as known, so that every step has a normaliser of its own,

    gain(g) = max_μ Σ_t [ μ G_t(y_t) − log Σ_y p_t(y) exp(μ G_t(y)) ] − μ² / (2 variance)
    G_t(y)  = g(t, ŷ_{t-1}, y) + g(t + 1, y, ŷ_{t+1})

a concave problem in one number for each candidate, solved by Newton steps within a bracket. What is left open:

- ``neighbours``: the true labels (``"truth"``, pseudo-likelihood) or the likeliest of the model (``"model"``).
- ``base``, the p_t: the present marginals (``"marginal"``, as in Vail 2008, equation 3.28) or the distribution of a
  step given the neighbours (``"conditional"``). With true neighbours marginals flatter features of transitions: what
  the neighbours tell about a step is not in them even if the model knows it, so the same transition looks new again
  and again. Conditionals do not: then a feature that the model has at its best weight gains nothing.
- ``where``: all steps, or only those that the present model gets wrong (``"mistakes"``), which is cheaper, and worse,
  since what a feature would spoil is not looked at.

A candidate costs a few passes over the steps at which it is not zero. With many candidates only a ``shortlist`` of
those with the steepest slopes is looked at; slopes come from the histograms of lazy columns, gains do not.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from crfield.core.topology import Chains
from crfield.errors import InputError, ShapeError
from crfield.features.lazy_columns import LazyColumns
from crfield.selection.grafting import Watch, check_rounds, steepest
from crfield.selection.path import SelectionPath
from crfield.selection.problem import SelectionProblem
from crfield.selection.record import Recorder
from crfield.selection.standardised import StandardisedColumns

NEIGHBOURS = ("truth", "model")
BASES = ("marginal", "conditional")
WHERE = ("all", "mistakes")
MAX_STEPS, CLOSE = 30, 1e-6
CHUNK = 64  # columns at a time


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
        if value not in known:
            raise InputError(f"{name} must be one of {', '.join(map(repr, known))}, got {value!r}.")
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
    ridge = 0.0 if variance is None else 1.0 / variance
    if not (ridge >= 0 and np.isfinite(ridge)):
        raise InputError(f"variance must be positive, or None for no prior, got {variance}.")
    columns = np.unique(places.column)
    for start in range(0, len(columns), CHUNK):
        own = columns[start : start + CHUNK]
        values = candidates.chunk(own)
        for column, x in zip(own, values.T):
            x = np.ascontiguousarray(x)
            for k in np.flatnonzero(places.column == column):
                parts = _parts(x, int(places.previous[k]), int(places.label[k]), steps)
                weight[k], gain[k] = _climb(*parts, ridge)
    return gain, weight


def _parts(x: np.ndarray, previous: int, label: int, steps: Steps) -> tuple[np.ndarray, ...]:
    """Values of G for one or two labels, their probabilities, and Σ_t G_t(y_t), at steps where G is not zero.

    A feature of one label, and one of a label that stays, moves a single label of each step; one of a change moves
    two.
    """
    base, truth = steps.base, steps.truth
    if previous < 0:
        row = np.flatnonzero(steps.looked_at & (x != 0))
        own = x[row]
        return own, base[row, label], _NOTHING, _NOTHING, own[truth[row] == label].sum()
    ahead = np.zeros_like(x)
    ahead[:-1] = x[1:]
    into, out = np.where(steps.before == previous, x, 0.0), np.where(steps.after == label, ahead, 0.0)
    if previous == label:
        both = into + out
        row = np.flatnonzero(steps.looked_at & (both != 0))
        own = both[row]
        return own, base[row, label], _NOTHING, _NOTHING, own[truth[row] == label].sum()
    row = np.flatnonzero(steps.looked_at & ((into != 0) | (out != 0)))
    into, out, truth = into[row], out[row], truth[row]
    met = into[truth == label].sum() + out[truth == previous].sum()
    return into, base[row, label], out, base[row, previous], met


_NOTHING = np.zeros(0)
_TINY = 1e-300


def _climb(
    a: np.ndarray, p: np.ndarray, b: np.ndarray, q: np.ndarray, met: float, ridge: float
) -> tuple[float, float]:
    """Best μ and its gain: max_μ μ met − Σ log(1 − p − q + p e^{μa} + q e^{μb}) − ½ ridge μ².

    The slope falls with μ, so a sign seen at a point bounds the best one on that side; Newton steps that leave the
    bracket, or go too far while it is open, are cut.
    """
    if not len(a):
        return 0.0, 0.0
    rest = 1.0 - p - q if len(b) else 1.0 - p
    rest = np.maximum(rest, 0.0)
    reach = 4.0 / max(float(np.sqrt(np.mean(a * a))), float(np.sqrt(np.mean(b * b))) if len(b) else 0.0, _TINY)
    weight, low, high = 0.0, -np.inf, np.inf
    for _ in range(MAX_STEPS):
        value, slope, bend = _total(weight, a, p, b, q, rest)
        slope, bend = met - slope - ridge * weight, bend + ridge
        if slope > 0:
            low = weight
        else:
            high = weight
        if slope * slope <= 2 * CLOSE * max(bend, _TINY):
            break
        step = np.clip(slope / max(bend, _TINY), -reach, reach)
        proposed = weight + step
        if not low < proposed < high:
            proposed = 0.5 * (low + high)
        if proposed == weight or abs(proposed) > 100 * reach:
            break
        weight = float(proposed)
    else:
        value = _total(weight, a, p, b, q, rest)[0]
    return weight, max(weight * met - value - 0.5 * ridge * weight * weight, 0.0)


def _total(
    weight: float, a: np.ndarray, p: np.ndarray, b: np.ndarray, q: np.ndarray, rest: np.ndarray
) -> tuple[float, float, float]:
    """Σ log Z, and its first and second derivative in μ."""
    up = weight * a
    if not len(b):
        most = np.maximum(up, 0.0)
        one, none = p * np.exp(up - most), rest * np.exp(-most)
        total = np.maximum(one + none, _TINY)
        one /= total
        return float((np.log(total) + most).sum()), float(a @ one), float((a * a) @ (one * (1.0 - one)))
    over = weight * b
    most = np.maximum(np.maximum(up, over), 0.0)
    one, two, none = p * np.exp(up - most), q * np.exp(over - most), rest * np.exp(-most)
    total = np.maximum(one + two + none, _TINY)
    one /= total
    two /= total
    mean = a * one + b * two
    bend = (a * a) @ one + (b * b) @ two - mean @ mean
    return float((np.log(total) + most).sum()), float(mean.sum()), float(bend)
