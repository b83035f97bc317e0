"""Streams of boosted random fields: the rounds replayed on the last steps.

A boosted random field has no joint model that a recursion could run over: every round listens to the beliefs of the
neighbours, those to come included, as they were a round before (`crfield.boosting.random_field`). What is believed
of a step after R rounds therefore depends on the steps up to R times the furthest distance away and on no others. A
stream remembers the leaves of so many steps and replays the rounds on them whenever a step comes: what it says of
the newest step is what ``predict_proba`` says of the sequence so far, exactly, and the label of a step is final
once nothing that comes can reach it.

A step costs R rounds on (reach back + delay + 1) remembered steps; the recursion of a chain model is far cheaper.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from crfield.boosting.random_field import FieldModel
from crfield.boosting.virtual_evidence.additive import columns_of
from crfield.boosting.weak_learners.trees import RegressionTree
from crfield.core.states import StateSpace
from crfield.errors import InputError
from crfield.estimators.boosted.belief_code import belief_recursion
from crfield.estimators.export.step_scores import hashed, observed_or_missing
from crfield.estimators.export.trees import TreeSteps, TreeTable
from crfield.estimators.export.written import Written
from crfield.estimators.graph.steps import distance_of
from crfield.features.graphs.encoder import GraphEncoder
from crfield.inference.streaming import Ending
from crfield.kernels.probabilities import softmax


@dataclass(frozen=True, eq=False)
class BeliefRounds:
    """The rounds of a field as tables: R rounds, G groups that listen, L labels."""

    prior: np.ndarray  # (L,)
    values: np.ndarray  # (leaves of all rounds, L)
    near: tuple[tuple[int, ...], ...]  # G: where the neighbours of a step lie, −1 the step before
    linear: np.ndarray  # (R, G, L + 1, L) regressions on the summed beliefs, those of all rounds up to each
    stump_round: np.ndarray  # (M,) int32
    stump_group: np.ndarray  # (M,) int32
    stump_column: np.ndarray  # (M,) int32
    stump_threshold: np.ndarray  # (M,)
    stump_values: np.ndarray  # (M, 2, L)

    @classmethod
    def of(cls, field: FieldModel, values: np.ndarray) -> BeliefRounds:
        """The rounds of a fitted field with the values of all leaves."""
        size, rounds = field.sizes[0], len(field.rounds)
        near = []
        for group in field.groups:
            far = distance_of(field.schema, group.relation)
            near.append((-far, far) if group.symmetric else (-far,) if group.to_head else (far,))
        linear = np.zeros((rounds, len(near), size + 1, size))
        stumps = []
        for r, (_, heard) in enumerate(field.rounds):
            if heard is not None and heard.column < 0:
                linear[r:, heard.group] += heard.values
            elif heard is not None:
                stumps.append((r, heard))
        return cls(
            field.prior[0],
            values,
            tuple(near),
            linear,
            np.array([r for r, _ in stumps], np.int32),
            np.array([stump.group for _, stump in stumps], np.int32),
            np.array([stump.column for _, stump in stumps], np.int32),
            np.array([stump.threshold for _, stump in stumps], np.float64),
            np.array([stump.values for _, stump in stumps]).reshape(len(stumps), 2, size),
        )

    @property
    def n_rounds(self) -> int:
        """R."""
        return len(self.linear)

    def reach(self, side: int) -> int:
        """How many steps before (−1) or after (1) a step can have a say in what is believed of it."""
        heard = [g for g in range(len(self.near)) if self.linear[-1:, g].any() or (self.stump_group == g).any()]
        return self.n_rounds * max(0, *(side * far for g in heard for far in self.near[g]), 0)

    def beliefs(self, leaves: np.ndarray) -> np.ndarray:
        """(n, L) of neighbouring steps, from the leaves (n, R) that they are in."""
        local = np.tile(self.prior, (len(leaves), 1))
        beliefs = softmax(local)
        for r in range(self.n_rounds):
            local += self.values[leaves[:, r]]
            scores = local.copy()
            sums = [sum((_moved(beliefs, far) for far in near), np.zeros_like(beliefs)) for near in self.near]
            for g, heard in enumerate(sums):
                scores += heard @ self.linear[r, g, :-1] + self.linear[r, g, -1]
            for m in np.flatnonzero(self.stump_round <= r).tolist():
                above = sums[self.stump_group[m]][:, self.stump_column[m]] > self.stump_threshold[m]
                scores += self.stump_values[m, above.astype(np.int64)]
            beliefs = softmax(scores)
        return beliefs

    def tables(self) -> dict[str, np.ndarray]:
        """Every number of the rounds, by name."""
        ends = np.cumsum([0, *map(len, self.near)]).astype(np.int32)
        made = {
            "prior": self.prior,
            "values": self.values,
            "near": np.array([far for near in self.near for far in near], np.int32),
            "near_ends": ends,
        }
        if self.linear.any():
            made["linear"] = self.linear
        if len(self.stump_round):
            names = ("round", "group", "column", "threshold", "values")
            made |= {f"stump_{name}": getattr(self, f"stump_{name}") for name in names}
        return made


def _moved(beliefs: np.ndarray, far: int) -> np.ndarray:
    """Row t holds the beliefs of step t + far, zeros where there is none."""
    out = np.zeros_like(beliefs)
    if 0 < far < len(out):
        out[:-far] = beliefs[far:]
    elif 0 < -far < len(out):
        out[-far:] = beliefs[:far]
    return out


class BeliefSteps:
    """What a stream needs of a boosted random field: the leaves of a step, and the rounds to replay."""

    varied, reach = False, 0  # of observations: the leaves of earlier steps are remembered by the recursion
    states: StateSpace | None = None

    def __init__(
        self, field: FieldModel, encoder: GraphEncoder, leaves: Callable[[Sequence[Any]], Any] | None
    ) -> None:
        size = field.sizes[0]
        parts = [
            (_NOTHING, np.zeros((1, size))) if local is None else (local.learner, local.values)
            for local, _ in field.rounds
        ]
        self.trees = TreeTable.of_learners(parts, n_values=size)
        self.rounds = BeliefRounds.of(field, self.trees.values)
        self.start = self.end = np.zeros(size)
        self.transitions = np.zeros((size, size))
        self._leaves = leaves
        self.names: tuple[str, ...] | None = None
        if leaves is None:
            self.names = tuple([encoder.dense_name(k) for k in range(*encoder.schema.kinds[0].dense)])
            self._asked = TreeSteps(self.trees, self.start, self.transitions, self.start, self.end, names=self.names)
        else:
            self.inner = _Unwritten()

    @property
    def n_columns(self) -> int:
        """D."""
        return len(self.names or ())

    @property
    def columns_read(self) -> np.ndarray:
        """(D,) which columns are asked by a cut."""
        return self._asked.columns_read

    def score(self, rows: Sequence[Any], pasts: Sequence[Sequence[Any]]) -> tuple[np.ndarray, np.ndarray | None]:
        """The leaf (k, R) of each row in each round."""
        if self._leaves is not None:
            return self._leaves(rows), None
        return self.trees.leaves(observed_or_missing(rows, self.n_columns)), None

    def recursion(self, n_streams: int, *, lag: int, max_lag: int | None) -> BeliefStreams:
        """What remembers the last steps of so many streams."""
        return BeliefStreams(self.rounds, n_streams, lag=lag, max_lag=max_lag)

    def digest(self) -> str:
        """A word that differs between models."""
        tables = {**self.trees.tables(), **self.rounds.tables()}
        return hashed(["beliefs"], list(tables.values()))

    def tables(self) -> dict[str, np.ndarray]:
        """Every number of the model, by name."""
        return {**self.trees.tables(), **self.rounds.tables(), "start": self.start}

    def written(self) -> Written:
        """How a step is scored."""
        below = self._asked.written()
        rounds = self.rounds
        own = belief_recursion(
            len(self.start),
            rounds.n_rounds,
            len(rounds.near),
            max(map(len, rounds.near), default=0),
            len(rounds.stump_round),
            linear=bool(rounds.linear.any()),
            back=rounds.reach(-1),
            ahead=rounds.reach(1),
            leaves=len(rounds.values),
            walk=len(self.trees.roots) * 2 * self.trees.depth,
        )
        return Written(
            "",
            "",
            0,
            own.sizes,
            c_functions=below.c_functions,
            python_functions=below.python_functions,
            missing=True,
            recursion=own,
        )


class _Unwritten:
    """Leaves that the model itself finds, whatever form X has: they cannot be exported."""


_NOTHING = RegressionTree((None,), ((),), (0,), np.zeros((1, 0)), 0.0)  # a round without a learner on columns


def leaves_by_model(field: FieldModel, encode: Callable[[Sequence[Any]], Any]) -> Callable[[Sequence[Any]], Any]:
    """Leaves (k, R) of steps in any form, by the learners themselves; leaves are numbered through all rounds."""
    first = np.concatenate([[0], np.cumsum([1 if one is None else len(one.values) for one, _ in field.rounds])])

    def leaves(rows: Sequence[Any]) -> np.ndarray:
        batch, read = encode(rows), {}
        out = np.tile(first[:-1], (len(rows), 1))
        for r, (local, _) in enumerate(field.rounds):
            if local is not None:
                if local.part not in read:
                    read[local.part] = columns_of(batch, field.schema, local.kind, local.part)
                out[:, r] += local.learner.leaves(read[local.part])
        return out

    return leaves


class BeliefStreams:
    """The last steps of B streams of a boosted random field; as `crfield.inference.streaming.ChainStreams`."""

    def __init__(self, rounds: BeliefRounds, n_streams: int, *, lag: int, max_lag: int | None) -> None:
        self.rounds, self.lag, self.max_lag, self.n_streams = rounds, lag, max_lag, n_streams
        ahead = rounds.reach(1)
        self.delay = 0 if max_lag is None else min(ahead, max_lag)  # after which a label is committed
        self.forced = max_lag is not None and ahead > max_lag
        self.window = max(lag, self.delay) + rounds.reach(-1) + 1
        self.steps, self.oldest = np.zeros(n_streams, np.int64), np.zeros(n_streams, np.int64)
        self.leaves = np.zeros((n_streams, self.window, rounds.n_rounds), np.int64)  # the newest last

    def push(
        self, leaves: np.ndarray, edge: np.ndarray | None = None, which: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """One step of all streams, or of those in ``which``: see `crfield.kernels.stream.Recursion.push`."""
        chosen = np.arange(self.n_streams) if which is None else which
        size = len(self.rounds.prior)
        filtered, smoothed = np.empty((len(chosen), size)), np.full((len(chosen), size), np.nan)
        committed, counts = np.zeros((len(chosen), 1), np.int32), np.zeros((len(chosen), 2), np.int64)
        for k, b in enumerate(chosen.tolist()):
            self.leaves[b] = np.roll(self.leaves[b], -1, axis=0)
            self.leaves[b, -1] = leaves[k]
            self.steps[b] += 1
            beliefs = self._beliefs(b)
            filtered[k] = beliefs[-1]
            if len(beliefs) > self.lag:
                smoothed[k] = beliefs[-1 - self.lag]
            if self.max_lag is not None and self.steps[b] - self.oldest[b] > self.delay:
                committed[k, 0] = int(beliefs[-1 - self.delay].argmax())
                counts[k] = 1, int(self.forced)
                self.oldest[b] += 1
        return filtered, smoothed, committed, counts

    def _beliefs(self, stream: int) -> np.ndarray:
        """(n, L) of the steps that are remembered; those further back than the lags are not exact."""
        known = min(int(self.steps[stream]), self.window)
        return self.rounds.beliefs(self.leaves[stream, self.window - known :])

    def finish(self, stream: int) -> Ending:
        """The answers of a sequence that is over; the stream then begins anew. Beliefs have no total."""
        beliefs = self._beliefs(stream)
        pending = 0 if self.max_lag is None else int(self.steps[stream] - self.oldest[stream])
        shown = beliefs[len(beliefs) - min(len(beliefs), self.lag + 1) :]
        ending = Ending(shown, beliefs[len(beliefs) - pending :].argmax(axis=1), 0.0)
        self.reset([stream])
        return ending

    def reset(self, which: Sequence[int] | np.ndarray | None = None) -> None:
        """Begin new sequences."""
        chosen = np.arange(self.n_streams) if which is None else np.asarray(which, np.int64)
        for array in (self.steps, self.oldest, self.leaves):
            array[chosen] = 0

    def state(self) -> dict[str, Any]:
        """Everything that is remembered, as numbers and lists that JSON can hold."""
        arrays = {name: getattr(self, name).ravel().tolist() for name in ("steps", "oldest", "leaves")}
        return {"format": 1, **self._shape(), **arrays}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on where `state` was taken; InputError, and nothing changed, where it does not fit."""
        if state.get("format") != 1 or any(state.get(name) != value for name, value in self._shape().items()):
            raise InputError(
                f"this state is of other streams than {self._shape()}. Open the stream with the options that the "
                "state was taken with."
            )
        made = {}
        for name, most in (("steps", 2**62), ("oldest", 2**62), ("leaves", len(self.rounds.values) - 1)):
            like, given = getattr(self, name), state.get(name)
            good = isinstance(given, list) and len(given) == like.size
            if not good or not all(type(value) is int and 0 <= value <= most for value in given):  # type: ignore[union-attr]
                raise InputError(f"this state is damaged: {name} must be {like.size} numbers from 0 to {most}.")
            made[name] = np.array(given, np.int64).reshape(like.shape)
        pending = made["steps"] - made["oldest"]
        if (pending < 0).any() or (self.max_lag is not None and (pending > self.delay + 1).any()):
            raise InputError("this state is damaged: numbers are out of range.")
        for name, array in made.items():
            getattr(self, name)[...] = array

    def _shape(self) -> dict[str, Any]:
        return {"streams": self.n_streams, "lag": self.lag, "max_lag": self.max_lag, "window": self.window}
