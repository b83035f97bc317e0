"""Incremental learning: one pass of adaptive stochastic steps over the sequences that have come.

    s = η / √(δ² + Σ g²)          for every weight, the sum over all steps so far
    w ← (w − s g) shrunk by s · l1 · b/n towards 0, then divided by 1 + s · l2 · b/n

for each mini-batch of b sequences with the gradient g of its loss (Duchi, Hazan & Singer 2011, *Adaptive subgradient
methods for online learning and stochastic optimization*, in its composite form). n is the number of sequences that
the penalties are meant for, so that many passes over the same n sequences approach the minimum that `fit` finds.
Weights of rare and of new features take long steps, those of common ones short steps, whatever came before; there is
no step size to choose. The model gets the mean of the weights of the second half of the pass, which is less noisy
than the last one; the next pass starts from the last one. Few weights of numeric columns, of which these steps know
least, have Newton's steps as soon as their sequences come again (`training.chain.newton_passes`), and text that comes
again has primal–dual steps, which remember what each sequence said (`training.chain.remembered_passes`).

A model that was fitted by other means has no sums. They are then taken at its weights from the new sequences, as if
all it has seen so far had been like these; features that are new start from nothing.

Cost: one evaluation of each mini-batch, and a few operations on all W weights for each. η and δ were chosen by the
training objective after one to ten passes on generated phrases and on a part of a chunking corpus.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from crfield.core.checks import random_generator
from crfield.core.target import Target
from crfield.core.topology import Chains
from crfield.core.typing import Seed
from crfield.data.batch import Batch
from crfield.data.flat import chosen_nodes
from crfield.features.columns.select import take_rows
from crfield.optimize.history import Result, Step
from crfield.optimize.penalty import Penalty
from crfield.scoring.layout import Layout
from crfield.scoring.layout_growth import carried
from crfield.training.chain.plan import ChainParts
from crfield.training.likelihood import FusedChain

if TYPE_CHECKING:
    from crfield.training.chain.newton_passes import NewtonPasses
    from crfield.training.chain.remembered_passes import RememberedPasses

PARTIAL = "partial_fit"  # why training ended
HOW = "stochastic steps with a step size for every weight, one pass over each part"
NEWTON = "Newton's steps, one for each pass over all parts"
REMEMBERED = "primal–dual steps that remember each sequence, one pass over each part"
STEP, OFFSET = 0.5, 1.0  # η, δ
FITTED = 25.0  # a fitted model counts as one that has made so many passes
GROUP = 8  # sequences of a mini-batch


@dataclass(eq=False)
class PartialFit:
    """The state of incremental learning from pass to pass."""

    weights: np.ndarray  # (W,) where the next step starts
    squares: np.ndarray | None  # (W,) Σ g²; None before the first pass over a model that was fitted otherwise
    n_seen: float = 0.0  # sequences so far
    n_passes: int = 0
    mean: np.ndarray | None = None  # (W,) of the last pass: what the model has
    newton: NewtonPasses | None = None  # of numeric data that come again
    memory: RememberedPasses | None = None  # of text that comes again


@dataclass(frozen=True, eq=False)
class Passed:
    """The result of a pass."""

    weights: np.ndarray  # (W,) the mean of the second half
    loss: float  # met on the way
    n_steps: int
    how: str = HOW


def learn_pass(
    parts: ChainParts,
    objective: str,
    state: PartialFit,
    penalty: Penalty,
    *,
    n_sequences: float,
    fresh: np.ndarray | None = None,
    rng: np.random.Generator,
) -> Passed:
    """One pass over the sequences of ``parts``; changes ``state``.

    ``fresh`` (W,) bool marks weights of features that are new; ``n_sequences`` is n of the module's formula.
    """
    total = parts.target.topology.n_sequences
    pieces = np.array_split(rng.permutation(total), max(-(-total // GROUP), 1))
    gradient, weights = np.empty(len(state.weights)), state.weights
    if state.squares is None:
        state.squares = np.zeros(len(weights))
        for problem, _ in _problems(parts, objective, pieces):
            problem.evaluate(weights, gradient)
            state.squares += gradient * gradient
        state.squares *= state.n_seen / max(total, 1)
        state.squares += OFFSET**2
        state.squares *= FITTED
    if fresh is not None:
        state.squares[fresh] = 0.0
    mask = 1.0 if penalty.penalised is None else penalty.penalised.astype(np.float64)
    mean, averaged, loss, half = np.zeros(len(weights)), 0, 0.0, len(pieces) // 2
    for number, (problem, count) in enumerate(_problems(parts, objective, pieces)):
        loss += problem.evaluate(weights, gradient)
        state.squares += gradient * gradient
        step = STEP / np.sqrt(OFFSET**2 + state.squares)
        gradient *= step
        weights -= gradient
        step *= mask * (count / n_sequences)
        if penalty.l1:
            np.copyto(weights, np.sign(weights) * np.maximum(np.abs(weights) - penalty.l1 * step, 0.0) + 0.0)
        if penalty.l2:
            step *= penalty.l2
            weights /= 1.0 + step
        if number >= half:
            mean += weights
            averaged += 1
    state.n_seen, state.n_passes = state.n_seen + total, state.n_passes + 1
    # A mean of many vectors is zero nowhere: with l1 the last one, which is sparse, is the answer.
    return Passed(weights.copy() if penalty.l1 else mean / max(averaged, 1), loss, len(pieces))


def begun(weights: np.ndarray) -> PartialFit:
    """Where the first pass of a new model starts."""
    return PartialFit(weights.copy(), np.zeros(len(weights)))


def grown(
    so_far: PartialFit, old: Layout, new: Layout, places: dict[str, np.ndarray]
) -> tuple[PartialFit, np.ndarray | None]:
    """The state so far in the places of a layout that has grown, and (W,) which of its weights are new."""
    squares = None if so_far.squares is None else carried(so_far.squares, old, new, places)
    state = PartialFit(carried(so_far.weights, old, new, places), squares, so_far.n_seen, so_far.n_passes)
    from_place = carried(np.arange(1.0, old.n_weights + 1), old, new, places)
    known = from_place > 0
    if known.all() and old.n_weights == new.n_weights:
        state.mean, state.newton = so_far.mean, so_far.newton  # what was heard of fewer weights is of no use
        if (np.diff(from_place) > 0).all() and old.n_columns == new.n_columns:  # none has another place
            state.memory = so_far.memory
    return state, None if known.all() else ~known


def take_pass(
    parts: ChainParts,
    objective: str,
    state: PartialFit,
    fresh: np.ndarray | None,
    penalty: Penalty,
    *,
    n_sequences: float | None,
    random_state: Seed,
    history: list[Step],
) -> Result:
    """One pass, which changes ``state``, as the result of a training."""
    known = isinstance(random_state, int) and random_state >= 0
    rng = random_generator([random_state, state.n_passes] if known else random_state)
    passed = None
    if n_sequences is not None and fresh is None and state.squares is not None:
        passed = _again(parts, objective, state, penalty, n=float(n_sequences), rng=rng)
    if passed is None:
        shared = float(n_sequences or state.n_seen + parts.target.topology.n_sequences)
        passed = learn_pass(parts, objective, state, penalty, n_sequences=shared, fresh=fresh, rng=rng)
        state.mean = passed.weights
    active = int(np.count_nonzero(passed.weights))
    step = Step(state.n_passes, passed.n_steps, passed.loss, float("nan"), 1.0, active, 0.0)
    steps = [*history, step]
    return Result(passed.weights, passed.loss, state.n_passes, passed.n_steps, False, PARTIAL, steps, how=passed.how)


def _again(
    parts: ChainParts, objective: str, state: PartialFit, penalty: Penalty, *, n: float, rng: np.random.Generator
) -> Passed | None:
    """A part of data that came before, in the way that suits them; None where that is stochastic steps alone."""
    from crfield.training.chain import newton_passes, remembered_passes  # rarely needed

    count = parts.target.topology.n_sequences
    problem = parts.problem(objective) if 0 < count <= n and state.n_seen >= n * (1 - 1e-9) else None
    fused = problem if isinstance(problem, FusedChain) else None
    few = fused is not None and newton_passes.suits(fused, penalty)
    known = fused is not None and not few and remembered_passes.suits(fused, penalty, n)
    if not few:
        state.newton = None
    if not known:
        state.memory = None
    if fused is not None and few:
        return _newton_pass(fused, parts, state, penalty, n=n, rng=rng)
    if fused is not None and known:
        return _remembered_pass(fused, parts, objective, state, penalty, n=n, rng=rng)
    return None


def _newton_pass(
    problem: FusedChain, parts: ChainParts, state: PartialFit, penalty: Penalty, *, n: float, rng: np.random.Generator
) -> Passed:
    """A part of numeric data for Newton's steps (`newton_passes`)."""
    from crfield.training.chain.newton_passes import NewtonPasses

    if state.newton is None:
        begun_at = state.weights if state.mean is None else state.mean
        state.newton = NewtonPasses.at(np.stack([begun_at, 0.3 * begun_at, 0.1 * begun_at]))
    loss = state.newton.hear(problem, parts.batch, parts.target.weight, rng)
    if state.newton.over(n):
        state.newton = state.newton.ended(penalty, n)
    known = state.newton.points[0] if state.newton.lowest is None else state.newton.lowest
    return _counted(state, problem.n_sequences, Passed(known.copy(), loss, 1, NEWTON))


def _remembered_pass(
    problem: FusedChain,
    parts: ChainParts,
    objective: str,
    state: PartialFit,
    penalty: Penalty,
    *,
    n: float,
    rng: np.random.Generator,
) -> Passed | None:
    """A part of text for the table of a stream or from it (`remembered_passes`); None where nothing is remembered."""
    from crfield.training.chain.remembered_passes import RememberedPasses, digests

    if state.memory is None or state.memory.n != n:
        state.memory = RememberedPasses.empty(problem, n)
    memory = state.memory
    if memory.lost:
        return None
    keys, lengths = digests(parts.batch, parts.target), parts.batch.topology.lengths
    if not memory.filled:
        passed = learn_pass(parts, objective, state, penalty, n_sequences=n, rng=rng)
        state.mean = passed.weights
        memory.fill(problem, lengths, keys, passed.weights, penalty)
        return passed
    places = memory.find(keys)
    if places is None:
        state.memory = RememberedPasses.given_up(n)
        return None
    loss = memory.learn(problem, parts, places, penalty, rng)
    state.mean = memory.mean.copy()
    passed = Passed(memory.mean.copy(), loss, problem.n_sequences, REMEMBERED)
    return _counted(state, problem.n_sequences, passed)


def _counted(state: PartialFit, count: int, passed: Passed) -> Passed:
    state.n_seen, state.n_passes = state.n_seen + count, state.n_passes + 1
    state.weights[:] = passed.weights
    return passed


def _problems(parts: ChainParts, objective: str, pieces: list[np.ndarray]) -> Iterator[tuple[Any, int]]:
    for piece in pieces:
        yield take_sequences(parts, np.sort(piece)).problem(objective), len(piece)


def take_sequences(parts: ChainParts, chosen: np.ndarray) -> ChainParts:
    """The parts of some of the sequences, in the given order."""
    topology, nodes = chosen_nodes(parts.batch.topology, chosen)
    batch: Batch = parts.batch
    edge = None
    if batch.edge is not None:
        edge = take_rows(batch.edge, _edges(batch.topology, chosen))
    return replace(
        parts,
        batch=Batch(topology, take_rows(batch.node, nodes), edge),
        target=take_target(parts.target, topology, chosen, nodes),
    )


def _edges(topology: Chains, chosen: np.ndarray) -> np.ndarray:
    starts = topology.edge_offsets[chosen]
    lengths = topology.edge_offsets[chosen + 1] - starts
    ends = np.cumsum(lengths)
    return np.arange(ends[-1] if len(ends) else 0) + np.repeat(starts - ends + lengths, lengths)


def take_target(target: Target, topology: Chains, chosen: np.ndarray, nodes: np.ndarray) -> Target:
    """The target of the chosen sequences, whose chains and nodes `chosen_nodes` gives."""
    taken = {name: getattr(target, name) for name in ("allowed", "cost")}
    return Target(
        topology,
        target.n_labels,
        target.labels[nodes],
        weight=None if target.weight is None else target.weight[chosen],
        **{name: None if part is None else part[nodes] for name, part in taken.items()},
    )
