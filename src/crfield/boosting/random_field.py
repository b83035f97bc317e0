"""Boosted random fields: boosting in which every round also listens once to the neighbours' beliefs.

    b⁰ = softmax F⁰
    round t   w, z of bᵗ⁻¹;   f on the columns, then g on the neighbours' beliefs, for what f leaves of z
              Fᵗ = Σ_{n≤t} f_n(x)        Gᵗ = Σ_{n≤t} g_n(S(bᵗ⁻¹))        bᵗ = softmax(Fᵗ + Gᵗ)

(Torralba, Murphy & Freeman 2004, *Contextual models for object detection using boosted random fields*.) S_i(d) is
the sum of the beliefs b_k(d) of the neighbours of i by one relation, the best of those there are; g is a linear
regression on it, or a stump on one of its entries, which is the stronger of the two where the relation is. All g of
earlier rounds are asked again with the newest beliefs, so inference replays the rounds, as many as training had.

There are no messages (a node hears back what it said itself) and no joint model, only beliefs; that is the price of
its simplicity, and what virtual evidence boosting pays a sweep of messages to avoid.

Cost: a round of LogitBoost and a sparse product for each relation; with stumps on beliefs every round asks all the
stumps before it again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from crfield.boosting.round_table import Round
from crfield.boosting.virtual_evidence.additive import (
    LocalStep,
    ValueRun,
    columns_of,
    rows_of,
    scores_from_state,
    scores_state,
    start_scores,
)
from crfield.boosting.virtual_evidence.couplings import Group, groups_of
from crfield.boosting.virtual_evidence.rounds import FieldData, RoundOptions, best_local
from crfield.boosting.weak_learners.candidates import Candidates
from crfield.boosting.weak_learners.responses import centred
from crfield.boosting.weak_learners.stumps import Stump, best_stump
from crfield.core.checks import is_number
from crfield.data.graphs.batch import GraphBatch, GraphSchema
from crfield.kernels.probabilities import softmax, working_pairs
from crfield.storage.state import State, refuse

FIELD_LEARNERS = ("linear", "stump")


@dataclass(frozen=True, eq=False)
class BeliefStep:
    """One weak learner on the summed beliefs of the neighbours of a group.

    Linear: ``values`` (L_other + 1, L_own), the last row a constant. A stump: ``values`` (2, L_own), on both sides of
    ``threshold`` of the sum for label ``column``.
    """

    group: int
    values: np.ndarray
    column: int = -1  # −1: linear
    threshold: float = 0.0

    def apply(self, sums: np.ndarray) -> np.ndarray:
        """Scores (n, L_own) from sums (n, L)."""
        if self.column < 0:
            return np.asarray(sums[:, : len(self.values) - 1] @ self.values[:-1] + self.values[-1])
        return self.values[(sums[:, self.column] > self.threshold).astype(np.int64)]

    @classmethod
    def from_json(cls, told: Any, groups: list[Group], sizes: tuple[int, ...], flat: ValueRun) -> Self:
        """The step of [group, column, threshold], whose values come next in ``flat``."""
        if not isinstance(told, list) or len(told) != 3 or not type(told[0]) is type(told[1]) is int:
            refuse("a round of the model file is damaged")
        group, column, threshold = told
        if not 0 <= group < len(groups) or not -1 <= column < sizes[groups[group].other] or not is_number(threshold):
            refuse("a round of the model file names a relation or a label that does not exist")
        rows = sizes[groups[group].other] + 1 if column < 0 else 2
        return cls(group, flat.take(rows, sizes[groups[group].own]), column, float(threshold))


@dataclass(frozen=True, eq=False)
class FieldModel:
    """Rounds to be replayed: for each a learner on columns and one on beliefs, either of which may be missing."""

    schema: GraphSchema
    sizes: tuple[int, ...]
    prior: tuple[np.ndarray, ...]
    groups: tuple[Group, ...]
    rounds: tuple[tuple[LocalStep | None, BeliefStep | None], ...]

    def state(self) -> State:
        """Header and arrays."""
        state = scores_state(self.prior, (local for local, _ in self.rounds if local is not None))
        heard = [step for _, step in self.rounds if step is not None]
        header = {
            "relations": sorted({group.relation for group in self.groups}),
            "rounds_played": [
                [local is not None, None if step is None else [step.group, step.column, step.threshold]]
                for local, step in self.rounds
            ],
        }
        values = np.concatenate([np.zeros(0), *(step.values.reshape(-1) for step in heard)])
        return State(state.header | header, {**state.arrays, "heard": values})

    @classmethod
    def from_state(cls, state: State, schema: GraphSchema, sizes: tuple[int, ...]) -> Self:
        """The model whose `state` this is; ModelFileError for whatever does not fit."""
        prior, local = scores_from_state(state, schema, sizes)
        numbers = state.listed("relations")
        if not all(type(number) is int and 0 <= number < len(schema.relations) for number in numbers):
            refuse("the model file names relations that do not exist")
        groups = groups_of(schema, tuple(numbers))
        steps, flat, rounds = list(local), ValueRun(state, "heard"), []
        for item in state.listed("rounds_played"):
            if (
                not isinstance(item, list)
                or len(item) != 2
                or not isinstance(item[0], bool)
                or (item[0] > len(steps))
            ):
                refuse("the rounds of the model file do not fit its weak learners")
            heard = None if item[1] is None else BeliefStep.from_json(item[1], groups, sizes, flat)
            rounds.append((steps.pop(0) if item[0] else None, heard))
        flat.finish()
        if steps:
            refuse("the rounds of the model file do not fit its weak learners")
        return cls(schema, sizes, prior, tuple(groups), tuple(rounds))

    def beliefs(self, batch: GraphBatch) -> np.ndarray:
        """(N, L) beliefs after the last round."""
        state = _State(batch, self.schema, self.sizes, self.prior, list(self.groups))
        read: dict[tuple[int, str], Any] = {}
        for local, heard in self.rounds:
            if local is not None:
                key = (local.kind, local.part)
                if key not in read:
                    read[key] = columns_of(batch, self.schema, *key)
                state.add_local(
                    rows_of(batch, self.schema, local.kind), local.values[local.learner.leaves(read[key])]
                )
            if heard is not None:
                state.add_belief(heard)
            state.advance()
        return state.beliefs


@dataclass(frozen=True, eq=False)
class BoostedField:
    """A model, how it came about, and why it ended."""

    model: FieldModel
    rounds: list[Round]
    reason: str


class _State:
    """Scores and beliefs while rounds are played."""

    def __init__(
        self,
        batch: GraphBatch,
        schema: GraphSchema,
        sizes: tuple[int, ...],
        prior: tuple[np.ndarray, ...],
        groups: list[Group],
    ) -> None:
        from scipy.sparse import csr_array

        self.groups, self.sizes = groups, sizes
        self.local = start_scores(batch, sizes, prior)
        self.beliefs = softmax(self.local)
        self.rows = [rows_of(batch, schema, group.own) for group in groups]
        self._near = []
        nodes, topology = batch.topology.n_nodes, batch.topology
        for group in groups:
            edges = batch.edges_of(group.relation)
            tails, heads = topology.tails[edges], topology.heads[edges]
            to, of = (heads, tails) if group.to_head else (tails, heads)
            if group.symmetric:
                to, of = np.concatenate([to, of]), np.concatenate([of, to])
            self._near.append(csr_array((np.ones(len(to)), (to, of)), shape=(nodes, nodes)))
        self._linear: dict[int, np.ndarray] = {}
        self._stumps: list[BeliefStep] = []
        self.sums: list[np.ndarray] = []
        self._listen()

    def _listen(self) -> None:
        self.sums = [(near @ self.beliefs)[rows] for near, rows in zip(self._near, self.rows)]

    def add_local(self, rows: Any, values: np.ndarray) -> None:
        self.local[rows, : values.shape[1]] += values

    def add_belief(self, step: BeliefStep) -> None:
        if step.column < 0:
            self._linear[step.group] = self._linear.get(step.group, 0.0) + step.values
        else:
            self._stumps.append(step)

    def advance(self) -> None:
        """Beliefs from all learners, those on beliefs asked with the beliefs as they were."""
        scores = self.local.copy()
        steps = [BeliefStep(group, values) for group, values in self._linear.items()]
        for step in [*steps, *self._stumps]:
            scores[self.rows[step.group], : step.values.shape[1]] += step.apply(self.sums[step.group])
        self.beliefs = softmax(scores)
        self._listen()


def boost_field(
    data: FieldData,
    prior: tuple[np.ndarray, ...],
    options: RoundOptions,
    *,
    learner: str = "linear",
    watch: Callable[[Round], bool | None] | None = None,
) -> BoostedField:
    """Rounds on data, from the prior (L_k,) of every kind."""
    schema, sizes, labels, weight = data.schema, data.sizes, data.labels, data.weight
    groups = groups_of(schema, data.relations)
    state = _State(data.batch, schema, sizes, prior, groups)
    played: list[tuple[LocalStep | None, BeliefStep | None]] = []
    rounds: list[Round] = []
    reason = "all rounds done"
    known = np.flatnonzero(labels >= 0)
    possible = ~np.isneginf(state.local)
    for number in range(1, options.n_rounds + 1):
        w, moved = working_pairs(state.beliefs, labels, weight, possible, options.response_limit)
        pairs = np.stack([w, moved], axis=2).swapaxes(0, 1)
        local = best_local(data, pairs[1:] if len(pairs) == 2 else pairs, options)
        z = np.divide(moved, w, out=np.zeros_like(w), where=w > 0)
        if local is not None:
            block = data.block_of(local)
            leaves = local.learner.leaves(block.candidates)
            state.add_local(block.rows, local.values[leaves])
            raw = options.learning_rate * local.learner.values[leaves]
            z[block.rows, : raw.shape[1]] -= raw
        heard, gain = _best_belief(state, w, z, options, learner)
        if heard is not None:
            state.add_belief(heard)
        if local is None and heard is None:
            reason = "nothing more to gain"
            break
        played.append((local, heard))
        state.advance()
        logs = np.log(np.maximum(state.beliefs[known, labels[known]], 1e-300))
        loss = -float(weight[known] @ logs / max(weight[known].sum(), 1e-300))
        words = [] if local is None else [data.name(local)]
        if heard is not None:
            words.append(schema.relations[groups[heard.group].relation].name)
        total = gain + (local.learner.gain if local is not None else 0.0)
        kind = "both" if len(words) == 2 else "feature" if local is not None else "relation"
        rounds.append(Round(number, kind, ", ".join(words), float(total), loss))
        if watch is not None and watch(rounds[-1]):
            reason = "callback"
            break
    return BoostedField(FieldModel(schema, sizes, prior, tuple(groups), tuple(played)), rounds, reason)


def _best_belief(
    state: _State, weight: np.ndarray, response: np.ndarray, options: RoundOptions, learner: str
) -> tuple[BeliefStep | None, float]:
    """The best learner on the beliefs of any group for what is left of the responses, and its gain."""
    best: BeliefStep | None = None
    most = 0.0
    for number, group in enumerate(state.groups):
        rows, own, other = state.rows[number], state.sizes[group.own], state.sizes[group.other]
        w, z, sums = weight[rows, :own], response[rows, :own], state.sums[number][:, :other]
        found = _linear(number, w, z, sums, options) if learner == "linear" else _stump(number, w, z, sums, options)
        if found is not None and found[1] > most:
            best, most = found
    return best, most


def _linear(
    number: int, w: np.ndarray, z: np.ndarray, sums: np.ndarray, options: RoundOptions
) -> tuple[BeliefStep, float]:
    inputs = np.concatenate([sums, np.ones((len(sums), 1))], axis=1)
    values, gain = np.zeros((inputs.shape[1], w.shape[1])), 0.0
    for c in range(w.shape[1]):
        moment = inputs.T @ (w[:, c] * z[:, c])
        matrix = (inputs * w[:, c, None]).T @ inputs + options.ridge * np.eye(len(moment))
        # Sums of beliefs add up to the number of neighbours, so the system may be singular: the smallest solution.
        values[:, c] = np.linalg.lstsq(matrix, moment, rcond=1e-10)[0]
        gain += float(moment @ values[:, c])
    return BeliefStep(number, options.learning_rate * centred(values)), gain


def _stump(
    number: int, w: np.ndarray, z: np.ndarray, sums: np.ndarray, options: RoundOptions
) -> tuple[BeliefStep, float] | None:
    found = best_stump(Candidates.of(sums), w, z, ridge=options.ridge, n_jobs=options.n_jobs)
    if not isinstance(found, Stump):
        return None
    values = options.learning_rate * centred(found.values)
    return BeliefStep(number, values, found.column, found.threshold), found.gain
