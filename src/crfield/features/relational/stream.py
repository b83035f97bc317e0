"""Chosen columns one step at a time, by the same definitions as in training.

A robot has one observation and wants the features now. Only the operations behind the chosen columns are computed, on
Python's own floats; what looks back keeps just the steps it needs: ``lag k`` the last k values, a window of w steps
two blocks of w (`crfield.kernels.families.slide` does the same additions in the same order, so even means agree bit
for bit). The state is bounded by the longest lag and window, whatever the length of the stream; it can be saved and
restored as plain lists.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from crfield.errors import FeatureError, InputError, ShapeError
from crfield.features.lazy_columns import check_columns
from crfield.features.powers import powered_one
from crfield.features.relational.columns import checked_answer, series_kind
from crfield.features.relational.functions import AGGREGATES, SCALAR, VECTOR, Function
from crfield.features.relational.recordings import no_rate

if TYPE_CHECKING:
    from crfield.features.relational.catalogue import Block, Catalogue

_JOIN: dict[str, Callable[[float, float], float]] = {
    "max": lambda a, b: b if a < b else a,
    "min": lambda a, b: b if b < a else a,
    "mean": lambda a, b: a + b,
}
_TEST: dict[str, Callable[[float, float], bool]] = {
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}


class Operation(NamedTuple):
    """One operation of a step: its name in `crfield.features.relational.binding`, slots it reads, constants.

    A stream runs its operations one after the other, and code for another machine is written from the same list
    (`crfield.estimators.export.features`).
    """

    name: str
    inputs: tuple[int, ...]
    fixed: tuple[Any, ...]
    vector: bool


class Output(NamedTuple):
    """A column: the value of a slot, tested against ``number`` or raised to that power."""

    slot: int
    test: str | None
    number: float


class _Past:
    """The last values, in a ring: what was ``lag`` steps ago, or at first if that is later."""

    def __init__(self, lag: int) -> None:
        self.lag = lag
        self.clear()

    def clear(self) -> None:
        self.ring: list[Any] = []
        self.at = 0

    def push(self, value: Any) -> Any:
        if len(self.ring) <= self.lag:
            self.ring.append(value)
            return self.ring[0]
        self.ring[self.at] = value
        self.at = (self.at + 1) % len(self.ring)
        return self.ring[self.at]

    def state(self) -> list[Any]:
        return [list(self.ring), self.at]

    def restore(self, state: list[Any]) -> None:
        ring, at = state
        if not 0 <= len(ring) <= self.lag + 1 or not 0 <= at < max(len(ring), 1):
            raise InputError("this state belongs to another stream.")
        self.ring, self.at = [tuple(value) if isinstance(value, list) else value for value in ring], at


class _Window:
    """The max, min or mean of the last ``width`` values; see `crfield.kernels.families`."""

    def __init__(self, kind: str, width: int) -> None:
        self.join, self.width, self.mean = _JOIN[kind], width, kind == "mean"
        self.clear()

    def clear(self) -> None:
        self.block: list[float] = []
        self.behind: list[float] = []
        self.ahead = 0.0

    def push(self, value: float) -> float:
        if len(self.block) == self.width:
            behind = [self.block[-1]]
            for earlier in reversed(self.block[:-1]):
                behind.append(self.join(behind[-1], earlier))
            self.behind, self.block = behind[::-1], []
        self.ahead = self.join(self.ahead, value) if self.block else value
        self.block.append(value)
        count = len(self.block)
        whole = not self.behind or count == self.width
        found = self.ahead if whole else self.join(self.behind[count], self.ahead)
        if self.mean:
            found /= self.width if self.behind else count
        return found

    def state(self) -> list[Any]:
        return [list(self.block), list(self.behind), self.ahead]

    def restore(self, state: list[Any]) -> None:
        block, behind, ahead = state
        if len(block) > self.width or len(behind) not in (0, self.width):
            raise InputError("this state belongs to another stream.")
        self.block, self.behind, self.ahead = list(block), list(behind), ahead


class FeatureStream:
    """Columns of a catalogue, a step at a time; made by `Catalogue.stream`.

    >>> from crfield.features.relational import Specification
    >>> spec = Specification.parse("near state : dist(a,b) | for a in robots, b in robots | where a < b | win max 2")
    >>> stream = spec.expand(labels=2, agents=2).stream([0])
    >>> [stream.push([[0.0, 0.0], [x, 0.0]]).tolist() for x in (4.0, 2.0, 1.0)]
    [[4.0], [4.0], [2.0]]
    """

    def __init__(
        self, catalogue: Catalogue, columns: Sequence[int] | np.ndarray, *, rate: float | None = None
    ) -> None:
        self.catalogue = catalogue
        self.columns = (
            check_columns(np.asarray(columns), catalogue.n_columns) if len(columns) else np.zeros(0, np.int64)
        )
        if rate is not None and not (math.isfinite(rate) and rate > 0):
            raise InputError(f"rate must be a finite number > 0 (steps per second), got {rate!r}.")
        self.rate = None if rate is None else float(rate)
        self._moving = False  # whether a column asks for a velocity
        self._shape = (len(catalogue.words.agents), len(catalogue.words.axes))
        self.program: list[Operation] = []  # of slot 0, 1, …
        self.outputs: list[Output] = []
        self._steps: list[tuple[int, Callable[[list[Any]], Any]]] = []
        self._memories: list[Any] = []
        self._slot: dict[Any, int] = {}
        self._rules: list[_Rule] = []  # of each step, where somebody is absent
        self._outputs: list[tuple[int, Callable[[list[Any]], float]]] = []
        self._last: list[tuple[float, ...] | None] | None = None
        at = np.searchsorted(catalogue.column_starts, self.columns, side="right") - 1
        for k, column in zip(at.tolist(), self.columns.tolist(), strict=True):
            self._outputs.append(self._output(catalogue.blocks[k], column - int(catalogue.column_starts[k])))
        self._values: list[Any] = [None] * len(self._slot)

    def __repr__(self) -> str:
        return f"FeatureStream({len(self.columns)} columns, {len(self._steps)} operations a step)"

    def __reduce__(self) -> tuple[Any, ...]:
        return _resumed, (self.catalogue, self.columns, self.rate, self.state())

    def reset(self) -> None:
        """Begin a new recording."""
        self._last = None
        for memory in self._memories:
            memory.clear()

    def push(
        self,
        positions: Any,
        *,
        velocities: Any = None,
        channels: Mapping[str, float] | None = None,
        agent_channels: Mapping[str, Sequence[float]] | None = None,
        present: Sequence[bool] | np.ndarray | None = None,
    ) -> np.ndarray:
        """(columns,) the features of the next step, from positions (R, D); velocities are found if not given.

        ``present`` (R,) says who is there, everybody if it is not given; positions of others are not looked at.
        """
        there = [True] * self._shape[0] if present is None else [bool(one) for one in present]
        if len(there) != self._shape[0]:
            raise ShapeError(f"present must have a value for each of {self._shape[0]} agents, got {len(there)}.")
        here = _rows(positions, self._shape, "positions", there)
        if velocities is not None:
            moved = _rows(velocities, self._shape, "velocities", there)
        elif self.rate is None:
            if self._moving:
                raise no_rate(self._templates())
            moved = here
        else:
            known = [None] * len(here) if self._last is None else self._last
            before = [now if then is None else then for now, then in zip(here, known, strict=True)]
            rate = self.rate
            moved = [
                tuple([(x - y) * rate for x, y in zip(now, then, strict=True)])
                for now, then in zip(here, before, strict=True)
            ]
        self._now = (here, moved, channels or {}, agent_channels or {}, there)
        values = self._values
        if all(there):
            self._last = list(here)
            for slot, compute in self._steps:
                values[slot] = compute(values)
            listed = [output(values) for _, output in self._outputs]
        else:
            self._last = [row if seen else None for row, seen in zip(here, there, strict=True)]
            known_values = [True] * len(values)
            for (slot, compute), rule in zip(self._steps, self._rules, strict=True):
                values[slot], known_values[slot] = rule(compute, values, known_values)
            listed = [output(values) if known_values[slot] else 0.0 for slot, output in self._outputs]
        # one sum tells mostly; each is looked at only where it does not
        if not math.isfinite(sum(listed)):
            for column, value in zip(self.columns.tolist(), listed, strict=True):
                if not math.isfinite(value):
                    raise FeatureError(f"{self.catalogue.column_name(column)} is {value} at this step.")
        return np.array(listed)

    def state(self) -> dict[str, Any]:
        """What the past has left, as plain lists and numbers."""
        last = None if self._last is None else [None if row is None else list(row) for row in self._last]
        return {"last": last, "memories": [memory.state() for memory in self._memories]}

    def restore(self, state: Mapping[str, Any]) -> FeatureStream:
        """Go on where another stream of the same columns was."""
        memories = state.get("memories")
        if not isinstance(memories, list) or len(memories) != len(self._memories):
            raise InputError("this state belongs to another stream: it remembers other lags and windows.")
        try:
            for memory, kept in zip(self._memories, memories, strict=True):
                memory.restore(kept)
            last = state.get("last")
            self._last = None
            if last is not None:
                seen = [row is not None for row in last]
                filled = [[0.0] * self._shape[1] if row is None else row for row in last]
                rows = _rows(filled, self._shape, "last", seen)
                self._last = [row if there else None for row, there in zip(rows, seen, strict=True)]
        except (TypeError, ValueError, IndexError) as error:
            raise InputError(f"this state cannot be used: {error}") from None
        return self

    def _output(self, block: Block, column: int) -> tuple[int, Callable[[list[Any]], float]]:
        template = block.template
        test = template.tests[column // len(template.grid)] if template.tests else None
        slot = self._place(block.node)
        kind = series_kind(block.window, block.width, test)
        if kind:
            slot = self._remember(("slide", slot, kind, block.width), slot, lambda: _Window(kind, block.width))
        if block.lag:
            slot = self._remember(("lag", slot, block.lag), slot, lambda: _Past(block.lag))
        if test is not None:
            threshold, holds = template.grid[column % len(template.grid)], _TEST[test]
            self.outputs.append(Output(slot, test, threshold))
            return slot, lambda values: 1.0 if holds(values[slot], threshold) else 0.0
        power = template.powers[column]
        self.outputs.append(Output(slot, None, power))
        if power == 1:
            return slot, lambda values: values[slot]
        return slot, lambda values: powered_one(values[slot], power)

    def _remember(self, key: tuple[Any, ...], inner: int, make: Callable[[], Any]) -> int:
        if key not in self._slot:
            memory = make()
            self._memories.append(memory)
            operation = Operation(key[0], (inner,), key[2:], self.program[inner].vector)
            self._write(key, operation, lambda values: memory.push(values[inner]), _remembering(memory, inner))
        return self._slot[key]

    def _write(self, key: Any, operation: Operation, compute: Callable[[list[Any]], Any], rule: _Rule) -> None:
        slot = self._slot[key] = len(self._slot)
        self.program.append(operation)
        self._steps.append((slot, compute))
        self._rules.append(rule)

    def _about(self, agent: int) -> _Rule:
        """What is said of one agent has a value where it is present."""

        def rule(compute: Callable[[list[Any]], Any], values: list[Any], known: list[bool]) -> tuple[Any, bool]:
            seen = agent < 0 or self._now[4][agent]
            return (compute(values) if seen else 0.0), seen

        return rule

    def _gathering(self, name: str, who: Sequence[Sequence[int]], besides: Sequence[int], inputs: list[int]) -> _Rule:
        """An aggregate over those who are present."""
        single, nobody, each = AGGREGATES[name][1], AGGREGATES[name][2], len(inputs) // len(who)

        def rule(compute: Callable[[list[Any]], Any], values: list[Any], known: list[bool]) -> tuple[Any, bool]:
            kept = [k for k, agents in enumerate(who) if all(self._now[4][agent] for agent in agents)]
            parts = [slot for k in kept for slot in inputs[k * each : (k + 1) * each]]
            if not (all(known[slot] for slot in parts) and all(self._now[4][agent] for agent in besides)):
                return 0.0, False
            if not parts:
                return (0.0, False) if nobody is None else (nobody, True)
            return _called(single, parts)(values), True

        return rule

    def _place(self, number: int) -> int:
        """The slot of a node, its inputs placed before it."""
        key = ("node", number)
        if key in self._slot:
            return self._slot[key]
        node = self.catalogue.graph.nodes[number]
        inputs = [self._place(k) for k in node.inputs]
        fixed = node.fixed
        operation = Operation(node.operation, tuple(inputs), fixed, node.gives == VECTOR)
        if operation.name == "lag":
            return self._remember(("lag", inputs[0], fixed[0]), inputs[0], lambda: _Past(fixed[0]))
        if operation.name == "slide":
            return self._remember(("slide", inputs[0], *fixed), inputs[0], lambda: _Window(*fixed))
        if operation.name == "rate":
            before = self._remember(("lag", inputs[0], 1), inputs[0], lambda: _Past(1))
            if self.rate is None:
                raise no_rate(self._templates())
            now, rate = inputs[0], self.rate
            operation = operation._replace(inputs=(now, before))
            self._write(
                key,
                operation,
                lambda v: tuple([(x - y) * rate for x, y in zip(v[now], v[before], strict=True)]),
                _plain(inputs),
            )
        elif operation.name == "const":
            self._write(key, operation, lambda v: fixed[0], _plain(()))
        elif operation.name == "present":
            self._write(key, operation, lambda v: float(self._now[4][fixed[0]]), _plain(()))
        elif operation.name in ("pos", "vel"):
            part, agent = ("pos", "vel").index(operation.name), fixed[0]
            self._moving |= operation.name == "vel"
            # a vector of who is absent is that of nothing, and still a vector
            rule = _vector(self._about(agent), self._shape[1])
            self._write(key, operation, lambda v: self._now[part][agent], rule)
        elif operation.name == "channel":
            self._write(key, operation, lambda v: self._channel(*fixed), self._about(fixed[1]))
        elif operation.name == "comp":
            inner, axis = inputs[0], fixed[0]
            self._write(key, operation, lambda v: v[inner][axis], _plain(inputs))
        elif operation.name == "gather":
            gathering = self._gathering(fixed[0], fixed[1], fixed[2], inputs)
            self._write(key, operation, _called(AGGREGATES[fixed[0]][1], inputs), gathering)
        else:
            self._write(key, operation, _called(self._single(*fixed), inputs), _plain(inputs))
        return self._slot[key]

    def _templates(self) -> list[str]:
        """Names of the templates of the columns that speak of velocities."""
        at = np.searchsorted(self.catalogue.column_starts, self.columns, side="right") - 1
        own = {self.catalogue.blocks[k].template.name for k in at.tolist()}
        return [name for name in self.catalogue.moving() if name in own]

    def _channel(self, name: str, agent: int) -> float:
        try:
            value = float(self._now[2][name] if agent < 0 else self._now[3][name][agent])
        except (KeyError, IndexError, TypeError, ValueError):
            raise FeatureError(f"this step lacks a number for the channel {name!r}.") from None
        if not math.isfinite(value):
            raise FeatureError(f"the channel {name!r} is {value} at this step.")
        return value

    def _single(self, name: str, k: int) -> Callable[..., Any]:
        form = self.catalogue.words.functions[name][k]
        return form.single if form.single is not None else _from_series(name, form, self._shape[1])


# how a value is found where somebody is absent: (the usual way, values, which there are) → value, whether it is
_Rule = Callable[[Callable[[list[Any]], Any], list[Any], list[bool]], tuple[Any, bool]]


def _plain(inputs: Sequence[int]) -> _Rule:
    """A value where all inputs have one; it is computed all the same, of fillings, and not used."""

    def rule(compute: Callable[[list[Any]], Any], values: list[Any], known: list[bool]) -> tuple[Any, bool]:
        return compute(values), all(known[slot] for slot in inputs)

    return rule


def _vector(about: _Rule, n_axes: int) -> _Rule:
    def rule(compute: Callable[[list[Any]], Any], values: list[Any], known: list[bool]) -> tuple[Any, bool]:
        value, seen = about(compute, values, known)
        return (value if seen else (0.0,) * n_axes), seen

    return rule


def _remembering(memory: _Past | _Window, inner: int) -> _Rule:
    """A past ends where its value does, and begins anew with it."""

    def rule(compute: Callable[[list[Any]], Any], values: list[Any], known: list[bool]) -> tuple[Any, bool]:
        if known[inner]:
            return compute(values), True
        memory.clear()
        return values[inner], False

    return rule


def _resumed(catalogue: Catalogue, columns: np.ndarray, rate: float | None, state: dict[str, Any]) -> FeatureStream:
    return FeatureStream(catalogue, columns, rate=rate).restore(state)


def _called(single: Callable[..., Any], inputs: list[int]) -> Callable[[list[Any]], Any]:
    if len(inputs) == 1 and single not in (min, max):
        (a,) = inputs
        return lambda v: single(v[a])
    if len(inputs) == 2:
        a, b = inputs
        return lambda v: single(v[a], v[b])
    if single in (min, max):
        # one number alone is not a list for Python's own
        return lambda v: single([v[k] for k in inputs])
    return lambda v: single(*[v[k] for k in inputs])


def _from_series(name: str, form: Function, n_axes: int) -> Callable[..., Any]:
    """A user's function of series, called with a single step."""

    def single(*arguments: Any) -> Any:
        given = [np.array([argument], dtype=np.float64) for argument in arguments]
        with np.errstate(over="ignore", invalid="ignore"):
            made = checked_answer(name, form.series(*given), form.gives, np.empty((1, 1, n_axes)))
        return float(made[0]) if form.gives == SCALAR else tuple(made[0].tolist())

    return single


def _rows(given: Any, shape: tuple[int, int], what: str, there: list[bool]) -> list[tuple[float, ...]]:
    try:
        array = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError):
        raise FeatureError(f"{what} must be numbers {shape}.") from None
    if array.shape != shape:
        raise ShapeError(f"{what} must be {shape}, agents by axes, got {array.shape}.")
    if not all(there):
        array = np.where(np.array(there)[:, None], array, 0.0)
    rows = [tuple(row) for row in array.tolist()]
    if not math.isfinite(sum(map(sum, rows))) and not np.isfinite(array).all():
        raise FeatureError(f"{what} hold NaN or infinity. Fill gaps first, or say present=.")
    return rows
