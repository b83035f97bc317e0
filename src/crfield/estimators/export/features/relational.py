"""Templates of the relational language as assignments: the program of a `FeatureStream` in C or Python.

The stream has a list of operations on slots; each becomes one or a few assignments of the same sums and products in
the same order, so that the numbers agree to the last bit. Vectors become one name an axis. Where agents are absent a
slot has no value: what that depends on is known here as a set of names, agents (``h0``) and gatherings (``g7``), and
is only asked where it matters: by memories, gatherings and columns.

All of the language looks back by fixed numbers of steps, so all of it can be written, but for functions of the user,
which are code of another language.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from crfield.errors import InputError
from crfield.estimators.export.features.language import Language, Line, Memory, Step, literal, operations
from crfield.features.powers import is_product
from crfield.features.relational.functions import AGGREGATES, STANDARD
from crfield.features.relational.stream import FeatureStream, Operation, Output

Vector = tuple[str, ...]  # a scalar has one name


@dataclass(frozen=True)
class RelationalStep:
    """A step of a feature stream, written down."""

    stream: FeatureStream
    lines: list[Line]
    columns: list[str]  # the expression of each column
    memories: dict[str, Memory]
    velocities: list[tuple[int, int]]  # agents and axes whose last position is kept
    channels: list[str]
    agent_channels: list[str]
    checks: list[tuple[str | None, str]]  # channels that must be finite, where somebody is there

    @property
    def given_velocities(self) -> bool:
        """Whether velocities are an argument, as no rate tells them."""
        return self.stream.rate is None and any(line.target.startswith("u") for line in self.lines)

    @property
    def operations(self) -> int:
        """At most, in a step."""
        return operations(self.lines) + operations([Line("", text) for text in self.columns])


def relational_step(stream: FeatureStream, language: Language) -> RelationalStep:
    """The operations of a stream in a language; InputError for what cannot be written in it."""
    return _Compiler(stream, language).written()


class _Compiler:
    def __init__(self, stream: FeatureStream, language: Language) -> None:
        self.stream, self.language, self.step = stream, language, Step(language)
        words = stream.catalogue.words
        self.n_agents, self.n_axes = len(words.agents), len(words.axes)
        named = [operation.fixed for operation in stream.program if operation.name == "channel"]
        self.channels = sorted({name for name, agent in named if agent < 0})
        self.agent_channels = sorted({name for name, agent in named if agent >= 0})
        self.checked: dict[str, tuple[str | None, str]] = {}
        self.values: list[Vector] = []
        self.known: list[frozenset[str]] = []  # what must hold for a slot to have a value

    def written(self) -> RelationalStep:
        for operation in self.stream.program:
            value, known = self._written(operation)
            self.values.append(value)
            self.known.append(known)
        columns = [self._column(output) for output in self.stream.outputs]
        first = self.step.kept(columns)
        moved = sorted(tuple(map(int, line.target[1:].split("_"))) for line in first if line.target.startswith("u"))
        if self.stream.rate is None:
            moved = []
        roots = [*columns, *(self._present(agent) for agent, _ in moved)]
        lines = self.step.kept(roots)
        used = {line.target for line in lines}
        return RelationalStep(
            self.stream,
            lines,
            columns,
            {name: memory for name, memory in self.step.memories.items() if f"v{name[1:]}" in used},
            [(agent, axis) for agent, axis in moved],
            self.channels,
            self.agent_channels,
            [check for target, check in self.checked.items() if target in used],
        )

    # --------------------------------------------------------------------------------------------- one operation

    def _written(self, operation: Operation) -> tuple[Vector, frozenset[str]]:
        name, fixed = operation.name, operation.fixed
        known = frozenset().union(*(self.known[slot] for slot in operation.inputs))
        if name in ("pos", "vel"):
            spelt = self._position if name == "pos" else self._velocity
            return tuple(spelt(fixed[0], axis) for axis in range(self.n_axes)), frozenset([self._present(fixed[0])])
        if name == "channel":
            return self._channel(*fixed)
        if name == "present":
            return (self.step.let(self.language.number(self._present(fixed[0]))),), frozenset()
        if name == "const":
            return (literal(fixed[0]),), frozenset()
        inputs = [self.values[slot] for slot in operation.inputs]
        if name == "gather":
            return self._gathered(operation, inputs)
        if name in ("lag", "slide"):
            memory = Memory("lag", fixed[0] + 1) if name == "lag" else Memory(*fixed)
            condition = self.step.all_of(known)
            return tuple(self.step.remembered(memory, part, condition) for part in inputs[0]), known
        if name == "comp":
            return (inputs[0][fixed[0]],), known
        if name == "rate":
            now, before = inputs
            rate = literal(self.stream.rate or 0.0)
            return tuple(self.step.let(f"({x} - {y}) * {rate}") for x, y in zip(now, before, strict=True)), known
        return self._applied(fixed[0], inputs), known

    def _present(self, agent: int) -> str:
        return self.step.named(f"h{agent}", self.language.there(agent), truth=True)

    def _position(self, agent: int, axis: int) -> str:
        there, value = self._present(agent), self.language.row("positions", agent, axis, self.n_axes)
        return self.step.named(f"p{agent}_{axis}", self.language.pick(there, value, "0.0"))

    def _velocity(self, agent: int, axis: int) -> str:
        pick = self.language.pick
        if self.stream.rate is None:
            value = self.language.row("velocities", agent, axis, self.n_axes)
            return self.step.named(f"u{agent}_{axis}", pick(self._present(agent), value, "0.0"))
        before = f"{self.language.here}l{agent}_{axis}"
        change = f"({self._position(agent, axis)} - {before}) * {literal(self.stream.rate)}"
        return self.step.named(f"u{agent}_{axis}", pick(f"{self.language.here}s{agent}", change, "0.0"))

    def _channel(self, name: str, agent: int) -> tuple[Vector, frozenset[str]]:
        if agent < 0:
            target = self.step.let(self.language.channel(name, self.channels.index(name)))
            self.checked[target] = None, target
            return (target,), frozenset()
        there = self._present(agent)
        value = self.language.agent_channel(name, self.agent_channels.index(name), agent, self.n_agents)
        target = self.step.let(self.language.pick(there, value, "0.0"))
        self.checked[target] = there, target
        return (target,), frozenset([there])

    def _column(self, output: Output) -> str:
        (value,) = self.values[output.slot]
        if output.test is not None:
            made = self.language.number(f"{value} {output.test} {literal(output.number)}")
        else:
            made = self._powered(value, output.number)
        known = self.step.all_of(self.known[output.slot])
        return made if known is None else self.language.pick(known, made, "0.0")

    def _powered(self, value: str, power: float) -> str:
        if is_product(power):
            return " * ".join([value] * int(power))
        if power == int(power) and power >= 0:
            return f"pow({value}, {literal(power)})"
        size = f"pow({self.language.absolute}({value}), {literal(power)})"
        sign = f"({self.language.number(f'{value} > 0.0')} - {self.language.number(f'{value} < 0.0')})"
        return self.language.pick(f"{value} != 0.0", f"{sign} * {size}", "0.0")

    # ------------------------------------------------------------------------------------------------- functions

    def _applied(self, name: str, inputs: list[Vector]) -> Vector:
        if name not in STANDARD:
            raise InputError(
                f"the features call {name}, a function of your own, which is Python and cannot be written in another "
                "language. Write it in the feature language, or export the columns alone with features=False."
            )
        return _FORMS[name](self, *inputs)

    def let(self, expression: str) -> str:
        """A new name for an expression."""
        return self.step.let(expression)

    def dot(self, u: Vector, v: Vector) -> str:
        """Σ_d u_d v_d, axis after axis."""
        return self.let(" + ".join(f"{x} * {y}" for x, y in zip(u, v, strict=True)))

    def norm(self, v: Vector) -> str:
        """√(v · v)."""
        return self.let(f"sqrt({self.dot(v, v)})")

    def ratio(self, a: str, b: str) -> str:
        """a / b, 0 where b is."""
        return self.let(self.language.pick(f"{b} != 0.0", f"{a} / {b}", "0.0"))

    def most(self, a: str, b: str) -> str:
        """The greater of two, as Python's max has it."""
        return self.let(self.language.pick(f"{b} > {a}", b, a))

    def least(self, a: str, b: str) -> str:
        """The smaller of two, as Python's min has it."""
        return self.let(self.language.pick(f"{b} < {a}", b, a))

    def truth(self, test: str) -> str:
        """1 or 0."""
        return self.let(self.language.number(test))

    def unit(self, v: Vector) -> Vector:
        """v / |v|."""
        length = self.norm(v)
        return tuple(self.ratio(x, length) for x in v)

    def cosine(self, u: Vector, v: Vector) -> str:
        """u · v / (|u| |v|), held within −1 … 1."""
        length = self.let(f"{self.norm(u)} * {self.norm(v)}")
        return self.least(self.most(self.ratio(self.dot(u, v), length), "(-1.0)"), "1.0")

    def cross(self, u: Vector, v: Vector) -> str:
        """u₀ v₁ − u₁ v₀."""
        return self.let(f"{u[0]} * {v[1]} - {u[1]} * {v[0]}")

    def angle(self, u: Vector, v: Vector | None = None) -> str:
        """Of a vector, or from one to another."""
        if v is None:
            return self.let(f"atan2({u[1]}, {u[0]})")
        return self.let(f"atan2({self.cross(u, v)}, {self.dot(u, v)})")

    def times(self, a: Vector, b: Vector) -> Vector:
        """Scalars, or one with every part of a vector."""
        wide = max(len(a), len(b))
        left, right = (part * wide if len(part) == 1 else part for part in (a, b))
        return tuple(self.let(f"{x} * {y}") for x, y in zip(left, right, strict=True))

    # ------------------------------------------------------------------------------------------------ gatherings

    def _gathered(self, operation: Operation, inputs: list[Vector]) -> tuple[Vector, frozenset[str]]:
        """An aggregate over who is present: values joined one after the other, each where its agents are there."""
        name, who, besides = operation.fixed
        step, language = self.step, self.language
        each = len(inputs) // len(who)
        parts = [part for (part,) in inputs]
        around = frozenset(self._present(agent) for agent in besides)
        here = [step.all_of(self._present(agent) for agent in agents) for agents in who]
        value = self._joined(name, [tuple(parts[k * each : (k + 1) * each]) for k in range(len(who))], here)
        asked = []  # beside those around it: somebody is there, and who is there has a value
        if AGGREGATES[name][2] is None and None not in here:
            asked.append("(" + language.either.join(sorted({test for test in here if test})) + ")")
        for k, agents in enumerate(who):
            own = frozenset(self._present(agent) for agent in agents)
            needs = frozenset().union(*(self.known[slot] for slot in operation.inputs[k * each : (k + 1) * each]))
            rest = step.all_of(needs - own - around)
            if rest is not None:
                absent = here[k]
                asked.append(rest if absent is None else f"({language.negated(absent)}{language.either}{rest})")
        if not asked:
            return (value,), around
        gathered = f"g{len(step.lines)}"
        step.named(gathered, language.both.join(dict.fromkeys(asked)), truth=True)
        return (value,), around | {gathered}

    def _joined(self, name: str, items: list[Vector], here: Sequence[str | None]) -> str:
        language, let = self.language, self.let
        if name in ("any", "all"):
            tests = []
            for (value,), there in zip(items, here, strict=True):
                if name == "any":
                    tests.append(f"{value} != 0.0" if there is None else f"({there}{language.both}{value} != 0.0)")
                else:
                    away = "" if there is None else f"{language.negated(there)}{language.either}"
                    tests.append(f"({away}{value} != 0.0)")
            return self.truth((language.either if name == "any" else language.both).join(tests))
        if name == "count":
            tests = [f"{value} != 0.0" for (value,) in items]
            counted = [
                t if there is None else f"{there}{language.both}{t}" for t, there in zip(tests, here, strict=True)
            ]
            return let(" + ".join(language.number(test) for test in counted))
        nobody = AGGREGATES[name][2]
        found, some = items[0], here[0]  # the values so far, and whether there are any
        for item, there in zip(items[1:], here[1:], strict=True):
            found = self._with(name, found, some, item, there)
            some = None if some is None or there is None else f"({some}{language.either}{there})"
        if name == "mean":
            if all(there is None for there in here):
                return let(f"{found[0]} / {literal(len(here))}")
            count = " + ".join("1.0" if there is None else language.number(there) for there in here)
            return self.ratio(found[0], let(count))
        if some is not None and nobody is not None:
            return let(language.pick(some, found[0], literal(nobody)))
        return found[-1]

    def _with(self, name: str, found: Vector, some: str | None, item: Vector, there: str | None) -> Vector:
        """What has been joined so far with one more, where that is there."""
        language, let = self.language, self.let
        if name in ("sum", "mean"):
            joined = f"{found[0]} + {item[0]}"
            joined = joined if some is None else language.pick(some, joined, item[0])
            return (let(joined if there is None else language.pick(there, joined, found[0])),)
        test = f"{item[0]} {'<' if name.endswith('min') else '>'} {found[0]}"
        if some is not None:
            test = f"({language.negated(some)}{language.either}{test})"
        if there is not None:
            test = f"{there}{language.both}{test}"
        if len(item) == 1:
            return (let(language.pick(test, item[0], found[0])),)
        chosen = self.step.let(test, truth=True)
        return tuple(let(language.pick(chosen, new, old)) for new, old in zip(item, found, strict=True))


def _compared(sign: str) -> Callable[..., Vector]:
    return lambda c, a, b: (c.truth(f"{a[0]} {sign} {b[0]}"),)


def _called(function: str) -> Callable[..., Vector]:
    return lambda c, a: (c.let(f"{function}({a[0]})"),)


_FORMS: dict[str, Callable[..., Vector]] = {
    "+": lambda c, a, b: tuple(c.let(f"{x} + {y}") for x, y in zip(a, b, strict=True)),
    "-": lambda c, a, b: tuple(c.let(f"{x} - {y}") for x, y in zip(a, b, strict=True)),
    "*": lambda c, a, b: c.times(a, b),
    "/": lambda c, a, b: tuple(c.ratio(x, b[0]) for x in a),
    "negative": lambda c, a: tuple(c.let(f"-{x}") for x in a),
    **{sign: _compared(sign) for sign in ("<", "<=", ">", ">=", "==", "!=")},
    **{word: _compared(sign) for word, sign in (("lt", "<"), ("le", "<="), ("gt", ">"), ("ge", ">="), ("eq", "=="))},
    "and": lambda c, a, b: (c.truth(f"{a[0]} != 0.0{c.language.both}{b[0]} != 0.0"),),
    "or": lambda c, a, b: (c.truth(f"{a[0]} != 0.0{c.language.either}{b[0]} != 0.0"),),
    "not": lambda c, a: (c.truth(f"{a[0]} == 0.0"),),
    "dot": lambda c, u, v: (c.dot(u, v),),
    "cosang": lambda c, u, v: (c.cosine(u, v),),
    "cross": lambda c, u, v: (c.cross(u, v),),
    "angle": lambda c, *u: (c.angle(*u),),
    "norm": lambda c, v: (c.norm(v),),
    "unit": lambda c, v: c.unit(v),
    "abs": lambda c, a: (c.let(f"{c.language.absolute}({a[0]})"),),
    "sqrt": lambda c, a: (c.let(f"sqrt({c.most(a[0], '0.0')})"),),
    "exp": lambda c, a: (c.let(f"exp({c.least(c.most(a[0], '(-700.0)'), '700.0')})"),),
    "log": lambda c, a: (c.let(f"log({c.most(a[0], '1e-300')})"),),
    "sin": _called("sin"),
    "cos": _called("cos"),
    "sign": lambda c, a: (c.let(f"{c.language.number(f'{a[0]} > 0.0')} - {c.language.number(f'{a[0]} < 0.0')}"),),
    "clip": lambda c, a, b, d: (c.least(c.most(a[0], b[0]), d[0]),),
    "choose": lambda c, a, b, d: (c.let(c.language.pick(f"{a[0]} != 0.0", b[0], d[0])),),
}
