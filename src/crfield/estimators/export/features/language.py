"""One step of features as assignments, spelt in C or in Python.

Arithmetic and comparisons look the same in both; what differs is here: choices, truths, memories, arguments. A `Step`
collects assignments in which every name is written once, and at the end keeps those that a column needs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

MATHS = ("sqrt", "exp", "log", "sin", "cos", "atan2", "pow")
_SIGN = re.compile(r" (?:[-+*/<>?]|[<>=!]=|&&|\|\||if|and|or) ")
_CALL = re.compile(rf"\b(?:{'|'.join(MATHS)})\(")
_WORD = re.compile(r"[A-Za-z_]\w*")


class Line(NamedTuple):
    """``target = expression``; a truth is an int in C. ``operations`` come on top of those that can be seen."""

    target: str
    expression: str
    truth: bool = False
    operations: int = 0


class Memory(NamedTuple):
    """What a line remembers: the last ``size`` values for a lag, or the block of a window."""

    kind: str  # "lag", "max", "min" or "mean"
    size: int


class C:
    """Expressions in C."""

    name, here = "c", "f->"
    absolute, both, either = "fabs", " && ", " || "

    @staticmethod
    def pick(test: str, yes: str, no: str) -> str:
        """One of two values."""
        return f"({test} ? {yes} : {no})"

    @staticmethod
    def number(test: str) -> str:
        """1.0 where the test holds, else 0.0."""
        return f"(double)({test})"

    @staticmethod
    def negated(test: str) -> str:
        """The opposite."""
        return f"!({test})"

    @staticmethod
    def row(table: str, agent: int, axis: int, n_axes: int) -> str:
        """A number of an array (agents, axes)."""
        return f"{table}[{agent * n_axes + axis}]"

    @staticmethod
    def channel(name: str, place: int) -> str:
        """A number of the step."""
        return f"channels[{place}]"

    @staticmethod
    def agent_channel(name: str, place: int, agent: int, n_agents: int) -> str:
        """A number of an agent."""
        return f"agent_channels[{place * n_agents + agent}]"

    @staticmethod
    def there(agent: int) -> str:
        """Whether an agent is present."""
        return f"!present || present[{agent}]"

    @staticmethod
    def remember(name: str, memory: Memory, value: str) -> str:
        """Take a value and give that of the past or of the window."""
        if memory.kind == "lag":
            return f"NAME_past(f->{name}, f->at_{name}, {memory.size - 1}, {value})"
        return f"NAME_{memory.kind}(f->{name}, f->at_{name}, {memory.size}, {value})"

    @staticmethod
    def forget(name: str) -> str:
        """Begin a memory anew; 0."""
        return f"NAME_forget(f->at_{name})"


class Python:
    """Expressions in Python."""

    name, here = "python", "self."
    absolute, both, either = "abs", " and ", " or "

    @staticmethod
    def pick(test: str, yes: str, no: str) -> str:
        """One of two values."""
        return f"({yes} if {test} else {no})"

    @staticmethod
    def number(test: str) -> str:
        """1.0 where the test holds, else 0.0."""
        return f"float({test})"

    @staticmethod
    def negated(test: str) -> str:
        """The opposite."""
        return f"(not ({test}))"

    @staticmethod
    def row(table: str, agent: int, axis: int, n_axes: int) -> str:
        """A number of an array (agents, axes)."""
        return f"{table}[{agent}][{axis}]"

    @staticmethod
    def channel(name: str, place: int) -> str:
        """A number of the step."""
        return f"channels[{name!r}]"

    @staticmethod
    def agent_channel(name: str, place: int, agent: int, n_agents: int) -> str:
        """A number of an agent."""
        return f"agent_channels[{name!r}][{agent}]"

    @staticmethod
    def there(agent: int) -> str:
        """Whether an agent is present."""
        return f"present is None or bool(present[{agent}])"

    @staticmethod
    def remember(name: str, memory: Memory, value: str) -> str:
        """Take a value and give that of the past or of the window."""
        return f"self.{name}.push({value})"

    @staticmethod
    def forget(name: str) -> str:
        """Begin a memory anew; 0."""
        return f"self.{name}.begin()"


Language = type[C] | type[Python]


@dataclass
class Step:
    """Assignments of one step in the order in which they are made.

    >>> step = Step(C)
    >>> step.let("p0 + 1.0"), step.let("v0 * v0"), step.let("p1")
    ('v0', 'v1', 'v2')
    >>> [line.target for line in step.kept(["v1"])]
    ['v0', 'v1']
    """

    language: Language
    lines: list[Line] = field(default_factory=list)
    memories: dict[str, Memory] = field(default_factory=dict)
    _names: set[str] = field(default_factory=set)

    def named(self, target: str, expression: str, *, truth: bool = False) -> str:
        """Assign to a name of one's own, once."""
        if target not in self._names:
            self._names.add(target)
            self.lines.append(Line(target, expression, truth))
        return target

    def let(self, expression: str, *, truth: bool = False) -> str:
        """Assign to a new name."""
        target = f"v{len(self.lines)}"
        self.lines.append(Line(target, expression, truth))
        return target

    def remembered(self, memory: Memory, value: str, known: str | None) -> str:
        """What a memory says once it has taken the value; it begins anew where there is none."""
        name, target = f"m{len(self.lines)}", f"v{len(self.lines)}"
        self.memories[name] = memory
        said = self.language.remember(name, memory, value)
        if known is not None:
            said = self.language.pick(known, said, self.language.forget(name))
        # at a turn of the block all its values are joined, else two; to choose takes a comparison too
        each = {"lag": 0, "mean": 1}.get(memory.kind, 2)
        operations = each * max(memory.size, 2) + (memory.kind == "mean")
        self.lines.append(Line(target, said, operations=operations))
        return target

    def all_of(self, tests: Iterable[str]) -> str | None:
        """All tests hold; None where there are none."""
        listed = sorted(set(tests))
        if len(listed) < 2:
            return listed[0] if listed else None
        return f"({self.language.both.join(listed)})"

    def kept(self, expressions: Sequence[str]) -> list[Line]:
        """The lines that some expressions need."""
        needed = {word for text in expressions for word in _WORD.findall(text)}
        found = []
        for line in reversed(self.lines):
            if line.target in needed:
                found.append(line)
                needed.update(_WORD.findall(line.expression))
        return found[::-1]


def operations(lines: Iterable[Line]) -> int:
    """Sums, products, comparisons, choices and roots of some lines, and what their memories do at worst.

    >>> operations([Line("a", "sqrt(b * b + c * c)"), Line("d", "NAME_mean(f->m, f->at_m, 8, a)", operations=11)])
    15
    """
    return sum(
        line.operations + len(_SIGN.findall(line.expression)) + len(_CALL.findall(line.expression)) for line in lines
    )


def literal(value: float) -> str:
    """A number that brings back the same double; negative ones in brackets.

    >>> literal(0.1), literal(-3.0)
    ('0.1', '(-3.0)')
    """
    told = repr(float(value))
    return f"({told})" if told.startswith("-") else told
