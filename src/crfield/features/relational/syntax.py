"""What a specification says, as frozen trees.

Expressions have five forms: a number, a word in quotes, a name, a call, and an aggregate over a generator. Operators
are calls of functions with their sign as the name, so that everything behind the parser knows one form only. Trees
compare by what they say, not by where they stand.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from crfield.features.relational.tokens import Place

TESTS = ("<", "<=", ">", ">=")
WINDOWS = ("all", "any", "mean", "min", "max")


@dataclass(frozen=True)
class Number:
    """A constant."""

    value: float
    place: Place = field(compare=False, repr=False)


@dataclass(frozen=True)
class Text:
    """A word in quotes: the name of a label or an agent."""

    value: str
    place: Place = field(compare=False, repr=False)


@dataclass(frozen=True)
class Name:
    """A variable, a channel, a domain, or Y and Yp."""

    value: str
    place: Place = field(compare=False, repr=False)


@dataclass(frozen=True)
class Call:
    """A function of expressions."""

    function: str
    arguments: tuple[Expression, ...]
    place: Place = field(compare=False, repr=False)


@dataclass(frozen=True)
class Loop:
    """``variable in domain``."""

    variable: str
    domain: str
    place: Place = field(compare=False, repr=False)


@dataclass(frozen=True)
class Aggregate:
    """A function of all values while variables run: ``min(dist(a,b) for b in them if b != a)``."""

    function: str
    arguments: tuple[Expression, ...]
    loops: tuple[Loop, ...]
    condition: Expression | None
    place: Place = field(compare=False, repr=False)


Expression = Number | Text | Name | Call | Aggregate


@dataclass(frozen=True)
class Template:
    """One line. ``tests`` and ``grid`` are empty without a test clause; ``windows`` are (kind, width)."""

    name: str
    transition: bool
    expression: Expression
    loops: tuple[Loop, ...] = ()
    condition: Expression | None = None
    tests: tuple[str, ...] = ()
    grid: tuple[float, ...] = ()
    windows: tuple[tuple[str, int], ...] = (("", 1),)
    lags: tuple[int, ...] = (0,)
    powers: tuple[float, ...] = (1.0,)
    place: Place = field(compare=False, repr=False, default=Place("", 0, 0, 0))
