"""What the value of a parameter must be: small values that can test it and say it in words.

A parameter is declared with one of these (`crfield.core.parameters`), so that its rule stands beside its default, and
so that every estimator refuses a wrong value in the same sentence:

    l2 must be a finite number ≥ 0 (the strength of a penalty), got -1.

Checks are joined by ``|``: ``number(0) | "auto" | None`` takes any of the three. A check that needs more than one
parameter is no value of this kind: it stands in the estimator's ``_check_together``.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from math import isfinite
from numbers import Integral, Real
from typing import Any

import numpy as np

from crfield.errors import InputError, did_you_mean

MOST_THREADS = 1024  # a larger number is a slip, or a model file that was edited


class Check:
    """A test of one value, and the words for what passes it.

    >>> share = Check("a number between 0 and 1", lambda value: 0 < value < 1)
    >>> (share | None)("validation", 2)
    Traceback (most recent call last):
    crfield.errors.InputError: validation must be a number between 0 and 1, or None, got 2.
    """

    def __init__(self, words: str, passes: Callable[[Any], bool], hint: str = "") -> None:
        self.words, self.passes, self.hint = words, passes, hint

    def __call__(self, name: str, value: Any) -> None:
        if not self.passes(value):
            hint = f" {self.hint}" if self.hint else self._nearest(value)
            raise InputError(f"{name} must be {self.words}, got {value!r:.80}.{hint}")

    def _nearest(self, value: Any) -> str:
        """What may have been meant; only a choice of names knows."""
        return ""

    def __or__(self, other: Check | str | None) -> Check:
        if isinstance(other, Check):
            words, passes = other.words, other.passes
        else:
            words, passes = repr(other), lambda value: value is None if other is None else _is(value, other)
        separator = ", or " if "," in self.words or " " in self.words else " or "
        return Check(f"{self.words}{separator}{words}", lambda value: passes(value) or self.passes(value), self.hint)


class Choice(Check):
    """One of a few names.

    >>> Choice(("viterbi", "marginal"))("decode", "viterbo")
    Traceback (most recent call last):
    crfield.errors.InputError: decode must be one of 'viterbi', 'marginal', got 'viterbo'. Did you mean 'viterbi'?
    """

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names
        super().__init__(
            f"one of {', '.join(map(repr, names))}", lambda value: isinstance(value, str) and value in names
        )

    def _nearest(self, value: Any) -> str:
        return did_you_mean(value, self.names) if isinstance(value, str) else ""


def one_of(*names: str) -> Choice:
    """A check for one of a few names."""
    return Choice(names)


def number(
    least: float | None = None,
    *,
    above: float | None = None,
    most: float | None = None,
    meaning: str = "",
    hint: str = "",
) -> Check:
    """A check for a finite number ≥ ``least``, > ``above`` and ≤ ``most``; ``meaning`` is said in brackets.

    >>> number(above=0, meaning="the width")("gamma", 0.0)
    Traceback (most recent call last):
    crfield.errors.InputError: gamma must be a finite number > 0 (the width), got 0.0.
    """

    def passes(value: Any) -> bool:
        return is_number(value) and _within(float(value), least, above, most)

    return Check(f"a finite number{_bounds(least, above, most)}{_meaning(meaning)}", passes, hint)


def integer(least: int | None = None, *, most: int | None = None, meaning: str = "", hint: str = "") -> Check:
    """A check for an integer ≥ ``least`` and ≤ ``most``; True and False are none.

    >>> integer(1, meaning="how many previous labels each label depends on")("order", 0)
    Traceback (most recent call last):
    crfield.errors.InputError: order must be an integer ≥ 1 (how many previous labels each label depends on), got 0.
    """

    def passes(value: Any) -> bool:
        return is_integer(value) and _within(value, least, None, most)

    return Check(f"an integer{_bounds(least, None, most)}{_meaning(meaning)}", passes, hint)


def share(meaning: str = "") -> Check:
    """A check for a number between 0 and 1, both left out."""
    return Check(f"a number between 0 and 1{_meaning(meaning)}", lambda value: is_number(value) and 0 < value < 1)


def function(of: str) -> Check:
    """A check for something that can be called with ``of``, or None."""
    return Check(f"a function of {of} or None", lambda value: value is None or callable(value))


flag = Check("True or False", lambda value: isinstance(value, bool | np.bool_))
loudness = Check("0, 1 or 2", lambda value: isinstance(value, Integral) and int(value) >= 0)
file_path = Check("the path of a file", lambda value: isinstance(value, str | os.PathLike))
threads = Check(
    f"a positive integer up to {MOST_THREADS}, -1 for all processors, or None for 1",
    lambda value: value is None or (is_integer(value) and value != 0 and value <= MOST_THREADS),
)


def _is_seed(value: Any) -> bool:
    try:
        np.random.default_rng(value)
    except (TypeError, ValueError):
        return False
    return True


seed = Check("an integer ≥ 0, a numpy Generator or None", _is_seed)


def random_generator(random_state: Any) -> np.random.Generator:
    """The generator that a ``random_state`` means; a Generator is itself.

    >>> random_generator(0).integers(10, size=3).tolist()
    [8, 6, 5]
    """
    seed("random_state", random_state)
    return np.random.default_rng(random_state)


def resolve_jobs(n_jobs: int | None) -> int:
    """Threads for an ``n_jobs`` in scikit-learn's manner: None is 1, -1 all processors, -2 all but one.

    >>> resolve_jobs(None), resolve_jobs(3), resolve_jobs(-1) >= 1
    (1, 3, True)
    """
    if n_jobs is None:
        return 1
    if type(n_jobs) is int and n_jobs > 0:
        return n_jobs
    threads("n_jobs", n_jobs)
    if n_jobs > 0:
        return int(n_jobs)
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, available + 1 + n_jobs)


def is_number(value: Any) -> bool:
    """Whether a value is a finite number; True and False are none."""
    return isinstance(value, Real) and not isinstance(value, bool | np.bool_) and isfinite(value)


def is_integer(value: Any) -> bool:
    """Whether a value is an integer; True and False are none."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def _is(value: Any, name: str) -> bool:
    return isinstance(value, str) and value == name  # an array compares to an array


def _within(value: Any, least: Any, above: Any, most: Any) -> bool:
    return (least is None or value >= least) and (above is None or value > above) and (most is None or value <= most)


def _bounds(least: Any, above: Any, most: Any) -> str:
    if least is not None and most is not None:
        return f" from {least:,} to {most:,}"
    bounds = [f"{sign} {bound:,}" for sign, bound in (("≥", least), (">", above), ("≤", most)) if bound is not None]
    return f" {' and '.join(bounds)}" if bounds else ""


def _meaning(words: str) -> str:
    return f" ({words})" if words else ""
