"""What can be called in the feature language, and how to add to it.

A function works on whole series: a *scalar* is (N,), a *vector* (N, D), a truth a scalar of 0 and 1. It must look at
one step only; the past is reached by ``lag``, ``delta`` and windows, which know where sequences begin. That is what
makes the same definition serve a batch and a stream. Built-in functions also have a form on Python's own floats (a
vector is then a tuple), several times faster for a single step than NumPy is; for users' functions the stream calls
the series form with N = 1.

What has no value is decided here and nowhere else: x / 0 is 0, an angle or cosine with a vector of length 0 is 0, the
root of a negative number is 0. Before the first step of a sequence the world stood still: ``lag`` repeats the first
value, so velocities and differences begin with 0.

Agents may come and go (`Recordings.present`). At a step where an agent is absent, every expression that names it has
no value, and a feature without a value is 0: a test about somebody absent is false, and so is its opposite.
Aggregates range over who is present; over nobody, ``count`` and ``sum`` are 0, ``any`` is false, ``all`` is true, and
the others have no value. Where an expression has no value its past ends: lags, windows and velocities begin anew when
it has one again, as at the first step of a recording, so nothing is read across an absence. ``present(a)`` always has
a value.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np

from crfield.errors import InputError

SCALAR, VECTOR = "scalar", "vector"


@dataclass(frozen=True)
class Function:
    """One form of a function: what it takes, what it gives, and its body on series and on single steps."""

    takes: tuple[str, ...]
    gives: str
    series: Callable[..., np.ndarray]
    single: Callable[..., Any] | None = None
    checked: bool = field(default=False, kw_only=True)


@dataclass(frozen=True)
class Functions:
    """A table of functions by name, each with one or more forms; never changed, only added to.

    >>> table = STANDARD.adding("square", lambda a: a * a, takes=["scalar"])
    >>> table.names[-1], table["square"][0].series(np.array([3.0])).tolist()
    ('square', [9.0])
    """

    forms: Mapping[str, tuple[Function, ...]]

    def __getitem__(self, name: str) -> tuple[Function, ...]:
        return self.forms[name]

    def __contains__(self, name: object) -> bool:
        return name in self.forms

    def __reduce__(self) -> tuple[Any, ...]:
        # built-in bodies are found again by name; what the user added travels along
        return _with_added, ({name: forms for name, forms in self.forms.items() if name not in STANDARD},)

    @property
    def names(self) -> list[str]:
        """All names, in the order in which they were added."""
        return list(self.forms)

    def adding(
        self, name: str, body: Callable[..., np.ndarray], *, takes: Iterable[str], gives: str = SCALAR
    ) -> Functions:
        """A new table with the user's function: series in, a series of the same length out.

        ``takes`` lists 'scalar' (N,) or 'vector' (N, D) for every argument. Each step's answer must depend on that
        step's arguments alone.
        """
        takes = tuple(takes)
        if not isinstance(name, str) or not name.isidentifier() or name in self.forms or name in _TAKEN:
            raise InputError(f"a function needs a name that is a word and not taken, got {name!r}.")
        if not callable(body) or not takes or any(kind not in (SCALAR, VECTOR) for kind in (*takes, gives)):
            raise InputError(f"{name}: takes and gives are made of 'scalar' and 'vector', got {takes} and {gives!r}.")
        added = Function(takes, gives, body, checked=True)
        return Functions(MappingProxyType({**self.forms, name: (added,)}))


# words with a meaning of their own: see binding
_TAKEN = frozenset(
    {
        "pos",
        "vel",
        "acc",
        "speed",
        "dist",
        "rel",
        "relvel",
        "comp",
        "const",
        "lag",
        "delta",
        "closest",
        "count",
        "sum",
        "mean",
        "min",
        "max",
        "min_",
        "max_",
        "any",
        "all",
        "select_min",
        "select_max",
        "past_mean",
        "past_min",
        "past_max",
        "tuple",
        "for",
        "in",
        "if",
        "and",
        "or",
        "not",
        "Y",
        "Yp",
    }
)


def _ratio(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.divide(a, b, out=np.zeros(np.broadcast(a, b).shape), where=b != 0)


def _norm(v: np.ndarray) -> np.ndarray:
    return np.sqrt(_dot(v, v))


def _dot(u: np.ndarray, v: np.ndarray) -> np.ndarray:
    # added axis by axis, as the single form does: the same order gives the same bits
    total = u[:, 0] * v[:, 0]
    for axis in range(1, u.shape[1]):
        total = total + u[:, axis] * v[:, axis]
    return total


def _cosine(u: np.ndarray, v: np.ndarray) -> np.ndarray:
    return np.clip(_ratio(_dot(u, v), _norm(u) * _norm(v)), -1.0, 1.0)


def _truth(a: np.ndarray) -> np.ndarray:
    return a.astype(np.float64)


def _chosen(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    return np.where(a != 0, b, c)


def _dot1(u: tuple, v: tuple) -> float:
    total = u[0] * v[0]
    for axis in range(1, len(u)):
        total = total + u[axis] * v[axis]
    return total


def _norm1(v: tuple) -> float:
    return math.sqrt(_dot1(v, v))


def _cosine1(u: tuple, v: tuple) -> float:
    length = _norm1(u) * _norm1(v)
    return min(max(_dot1(u, v) / length, -1.0), 1.0) if length else 0.0


def _unit1(v: tuple) -> tuple:
    length = _norm1(v)
    return tuple(x / length if length else 0.0 for x in v)


S, V = SCALAR, VECTOR
_FORMS: dict[str, list[Function]] = {
    "+": [
        Function((S, S), S, np.add, lambda a, b: a + b),
        Function((V, V), V, np.add, lambda a, b: tuple(x + y for x, y in zip(a, b, strict=True))),
    ],
    "-": [
        Function((S, S), S, np.subtract, lambda a, b: a - b),
        Function((V, V), V, np.subtract, lambda a, b: tuple(x - y for x, y in zip(a, b, strict=True))),
    ],
    "*": [
        Function((S, S), S, np.multiply, lambda a, b: a * b),
        Function((S, V), V, lambda a, b: a[:, None] * b, lambda a, b: tuple(a * y for y in b)),
        Function((V, S), V, lambda a, b: a * b[:, None], lambda a, b: tuple(x * b for x in a)),
    ],
    "/": [
        Function((S, S), S, _ratio, lambda a, b: a / b if b else 0.0),
        Function((V, S), V, lambda a, b: _ratio(a, b[:, None]), lambda a, b: tuple(x / b if b else 0.0 for x in a)),
    ],
    "negative": [
        Function((S,), S, np.negative, lambda a: -a),
        Function((V,), V, np.negative, lambda a: tuple(-x for x in a)),
    ],
    "<": [Function((S, S), S, lambda a, b: _truth(a < b), lambda a, b: float(a < b))],
    "<=": [Function((S, S), S, lambda a, b: _truth(a <= b), lambda a, b: float(a <= b))],
    ">": [Function((S, S), S, lambda a, b: _truth(a > b), lambda a, b: float(a > b))],
    ">=": [Function((S, S), S, lambda a, b: _truth(a >= b), lambda a, b: float(a >= b))],
    "==": [Function((S, S), S, lambda a, b: _truth(a == b), lambda a, b: float(a == b))],
    "!=": [Function((S, S), S, lambda a, b: _truth(a != b), lambda a, b: float(a != b))],
    "and": [Function((S, S), S, lambda a, b: _truth((a != 0) & (b != 0)), lambda a, b: float(a != 0 and b != 0))],
    "or": [Function((S, S), S, lambda a, b: _truth((a != 0) | (b != 0)), lambda a, b: float(a != 0 or b != 0))],
    "not": [Function((S,), S, lambda a: _truth(a == 0), lambda a: float(a == 0))],
    "dot": [Function((V, V), S, _dot, _dot1)],
    "cosang": [Function((V, V), S, _cosine, _cosine1)],
    "cross": [
        Function(
            (V, V), S, lambda u, v: u[:, 0] * v[:, 1] - u[:, 1] * v[:, 0], lambda u, v: u[0] * v[1] - u[1] * v[0]
        )
    ],
    "angle": [
        Function((V,), S, lambda v: np.arctan2(v[:, 1], v[:, 0]), lambda v: math.atan2(v[1], v[0])),
        Function(
            (V, V),
            S,
            lambda u, v: np.arctan2(u[:, 0] * v[:, 1] - u[:, 1] * v[:, 0], _dot(u, v)),
            lambda u, v: math.atan2(u[0] * v[1] - u[1] * v[0], _dot1(u, v)),
        ),
    ],
    "norm": [Function((V,), S, _norm, _norm1)],
    "unit": [Function((V,), V, lambda v: _ratio(v, _norm(v)[:, None]), _unit1)],
    "abs": [Function((S,), S, np.abs, abs)],
    "sqrt": [Function((S,), S, lambda a: np.sqrt(np.maximum(a, 0.0)), lambda a: math.sqrt(max(a, 0.0)))],
    "exp": [
        Function((S,), S, lambda a: np.exp(np.clip(a, -700.0, 700.0)), lambda a: math.exp(min(max(a, -700.0), 700.0)))
    ],
    "log": [
        Function((S,), S, lambda a: np.log(np.maximum(a, 1e-300)), lambda a: math.log(max(a, 1e-300))),
    ],
    "sin": [Function((S,), S, np.sin, math.sin)],
    "cos": [Function((S,), S, np.cos, math.cos)],
    "sign": [Function((S,), S, np.sign, lambda a: float((a > 0) - (a < 0)))],
    "clip": [
        Function((S, S, S), S, lambda a, b, c: np.minimum(np.maximum(a, b), c), lambda a, b, c: min(max(a, b), c))
    ],
    "choose": [Function((S, S, S), S, _chosen, lambda a, b, c: b if a != 0 else c)],
}
_FORMS |= {word: _FORMS[sign] for word, sign in (("lt", "<"), ("le", "<="), ("gt", ">"), ("ge", ">="), ("eq", "=="))}


def _with_added(added: dict[str, tuple[Function, ...]]) -> Functions:
    return Functions(MappingProxyType({**STANDARD.forms, **added})) if added else STANDARD


STANDARD = Functions(MappingProxyType({name: tuple(forms) for name, forms in _FORMS.items()}))


def _select(sign: int) -> Callable[..., np.ndarray]:
    def series(*pairs: np.ndarray) -> np.ndarray:
        key, value = pairs[0], pairs[1]
        for k in range(2, len(pairs), 2):
            nearer = sign * pairs[k] < sign * key
            key = np.where(nearer, pairs[k], key)
            value = np.where(nearer, pairs[k + 1], value)
        return value

    return series


def _select1(sign: int) -> Callable[..., float]:
    def single(*pairs: float) -> float:
        best = 0
        for k in range(2, len(pairs), 2):
            if sign * pairs[k] < sign * pairs[best]:
                best = k
        return pairs[best + 1]

    return single


def _added(*a: np.ndarray) -> np.ndarray:
    total = a[0]
    for more in a[1:]:
        total = total + more
    return total


def _added1(*a: float) -> float:
    total = a[0]
    for more in a[1:]:
        total = total + more
    return total


# aggregates take any number of series; an empty one is a constant, or refused where it has none
AGGREGATES: dict[str, tuple[Callable[..., np.ndarray], Callable[..., float], float | None]] = {
    "min": (lambda *a: np.minimum.reduce(a), min, None),
    "max": (lambda *a: np.maximum.reduce(a), max, None),
    "sum": (_added, _added1, 0.0),
    "mean": (lambda *a: _added(*a) / len(a), lambda *a: _added1(*a) / len(a), None),
    "count": (lambda *a: _added(*[_truth(x != 0) for x in a]), lambda *a: float(sum(x != 0 for x in a)), 0.0),
    "any": (
        lambda *a: _truth(np.logical_or.reduce([x != 0 for x in a])),
        lambda *a: float(any(x != 0 for x in a)),
        0.0,
    ),
    "all": (
        lambda *a: _truth(np.logical_and.reduce([x != 0 for x in a])),
        lambda *a: float(all(x != 0 for x in a)),
        1.0,
    ),
    "select_min": (_select(1), _select1(1), None),
    "select_max": (_select(-1), _select1(-1), None),
}
# what somebody who is absent brings to an aggregate, so that it changes nothing; sums are divided by those present
_NOTHING = {"min": np.inf, "max": -np.inf, "select_min": np.inf, "select_max": -np.inf, "all": 1.0}


def gather_present(name: str, items: list[np.ndarray], here: list[np.ndarray]) -> np.ndarray:
    """(N,) an aggregate over items (N,), or pairs of them, of those whose ``here`` (N,) is true.

    >>> here = [np.array([True, True]), np.array([True, False])]
    >>> gather_present("mean", [np.array([1.0, 1.0]), np.array([3.0, 3.0])], here)
    array([2., 1.])
    """
    each = len(items) // len(here)
    kept = list(items)
    for k, present in enumerate(here):
        kept[k * each] = np.where(present, items[k * each], _NOTHING.get(name, 0.0))
    if name == "mean":
        return _added(*kept) / np.maximum(np.sum(here, axis=0), 1)
    return AGGREGATES[name][0](*kept)


AGGREGATE_NAMES = {**{name: name for name in AGGREGATES}, "min_": "min", "max_": "max"}
