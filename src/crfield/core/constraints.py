"""Which labels may follow which, and what it costs: rules said by the user instead of learnt.

`Constraints` is what a user writes down, in terms of labels; `Constraints.scores` turns it into the constants of a
chain (`crfield.core.fixed`). ``None`` stands for the ends of a sequence: ``(None, "I-PER")`` is a first step of
I-PER, ``("B-PER", None)`` a last step of B-PER. A hard rule is a score of −∞, and a labelling that breaks it has the
probability 0, in training as in prediction; a soft one is a finite cost, paid each time.

Schemes of tags say it in one word (spans as in `crfield.metrics.schemes`):

    bio, iob2        I-X only after B-X or I-X
    iob1             B-X only after I-X or B-X: it parts two spans of one kind, else I-X begins
    bioes, bilou     after B-X or I-X comes I-X or E-X, and these come nowhere else; S-X stands alone (bilou: L, U
                     for E, S)

A rule of pairs says nothing of steps further apart; a chain of higher order has the rules between neighbours too.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from numbers import Real
from typing import Any

import numpy as np

from crfield.core.fixed import FixedScores
from crfield.errors import InputError, LabelError

Rule = Callable[[Any, Any], Any]
Pair = tuple[Any, Any]
SCHEMES = ("bio", "iob2", "iob1", "bioes", "iobes", "bilou", "biluo")


@dataclass(frozen=True)
class Constraints:
    """Rules of neighbouring labels; what several of them say holds together.

    Parameters
    ----------
    forbidden : iterable of (before, after)
        Pairs that never occur; None for the start or the end.
    allowed : iterable of (before, after), optional
        If given, all other pairs of two labels are forbidden; starts and ends are free unless some are listed.
    costs : mapping of (before, after) to a number
        Taken off the score each time the pair occurs; a negative cost is a reward.
    rule : callable(before, after), optional
        Whether the pair may occur; it is asked once for every pair of labels, and with None for the ends.
    scheme : str, optional
        One of "bio", "iob1", "bioes", "bilou" and their other spellings.

    Examples
    --------
    >>> rules = Constraints(forbidden=[("O", "I"), (None, "I")], costs={("B", "B"): 2.0})
    >>> fixed = rules.scores(["B", "I", "O"])
    >>> fixed.edge.tolist(), fixed.start.tolist()
    ([[-2.0, 0.0, 0.0], [0.0, 0.0, 0.0], [0.0, -inf, 0.0]], [0.0, -inf, 0.0])
    """

    forbidden: Iterable[Pair] = ()
    allowed: Iterable[Pair] | None = None
    costs: Mapping[Pair, float] = field(default_factory=dict)
    rule: Rule | None = None
    scheme: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "forbidden", _pairs("forbidden", self.forbidden))
        if self.allowed is not None:
            object.__setattr__(self, "allowed", _pairs("allowed", self.allowed))
        if not isinstance(self.costs, Mapping):
            raise InputError(
                f"costs must be a dict such as {{('O', 'I-PER'): 3.0}}, got {type(self.costs).__name__}."
            )
        _pairs("costs", self.costs)
        for pair, cost in self.costs.items():
            if isinstance(cost, bool) or not isinstance(cost, Real) or not isfinite(cost):
                raise InputError(
                    f"the cost of {pair!r} must be a finite number, got {cost!r}. Use forbidden= for what never is."
                )
        object.__setattr__(self, "costs", dict(self.costs))
        if self.rule is not None and not callable(self.rule):
            raise InputError(f"rule must be a function of (before, after), got {self.rule!r}.")
        if self.scheme is not None:
            check_scheme(self.scheme)

    @classmethod
    def of(cls, given: Any) -> Constraints:
        """What a user may write for short: the name of a scheme, a predicate, or an iterable of forbidden pairs.

        >>> Constraints.of("bio").scheme, Constraints.of([("A", "B")]).forbidden
        ('bio', (('A', 'B'),))
        """
        if isinstance(given, Constraints):
            return given
        if isinstance(given, str):
            return cls(scheme=given)
        if callable(given):
            return cls(rule=given)
        if isinstance(given, Iterable) and not isinstance(given, Mapping):
            return cls(forbidden=given)
        raise InputError(
            f"constraints must be the name of a scheme ({', '.join(SCHEMES)}), an iterable of forbidden pairs "
            f"(before, after), a function of (before, after), Constraints or None, got {given!r:.60}."
        )

    @classmethod
    def from_scores(cls, fixed: FixedScores, labels: Sequence[Hashable]) -> Constraints:
        """The rules that say what these scores say, written out pair by pair.

        >>> rules = Constraints(forbidden=[("A", "B")], costs={("B", None): 1.0})
        >>> Constraints.from_scores(rules.scores(["A", "B"]), ["A", "B"]) == rules
        True
        """
        table = np.zeros((len(labels) + 1, len(labels) + 1))
        table[:-1, :-1], table[-1, :-1], table[:-1, -1] = fixed.edge, fixed.start, fixed.end
        names = [*labels, None]
        forbidden = [(names[i], names[j]) for i, j in np.argwhere(np.isneginf(table)).tolist()]
        paid = np.argwhere(np.isfinite(table) & (table != 0)).tolist()
        return cls(forbidden=forbidden, costs={(names[i], names[j]): -float(table[i, j]) for i, j in paid})

    def scores(self, labels: Sequence[Hashable]) -> FixedScores:
        """The constants for labels in this order.

        edge(i, j) = −cost(i, j), or −∞ where any rule forbids the pair; start and end likewise. Pairs with a label
        that is not among them are left out, since a part of the data need not hold every label; if none of the
        pairs is left, they were meant for other labels: LabelError.
        """
        names: list[Any] = [*labels, None]
        place = {label: k for k, label in enumerate(names)}
        listed = [*self.forbidden, *(self.allowed or ()), *self.costs]
        if listed and not any(before in place and after in place for before, after in listed):
            raise LabelError(
                f"no pair of the constraints has two of the labels {names[:10]!r:.200}; the first is {listed[0]!r}. "
                "Are the labels spelt as in y?"
            )
        table = np.zeros((len(names), len(names)))
        for (before, after), cost in self.costs.items():
            if before in place and after in place:
                table[place[before], place[after]] -= float(cost)
        banned = np.zeros(table.shape, dtype=bool)
        for before, after in self.forbidden:
            if before in place and after in place:
                banned[place[before], place[after]] = True
        if self.allowed is not None:
            banned |= self._not_allowed(place)
        for rule in self._rules(labels):
            for i, before in enumerate(names):
                for j, after in enumerate(names):
                    if before is not None or after is not None:
                        banned[i, j] |= not rule(before, after)
        table[banned] = -np.inf
        return FixedScores(table[:-1, :-1], table[-1, :-1], table[:-1, -1])

    def _not_allowed(self, place: Mapping[Any, int]) -> np.ndarray:
        listed = np.zeros((len(place), len(place)), dtype=bool)
        said = {"start": False, "end": False}
        for before, after in self.allowed or ():
            said["start"] |= before is None
            said["end"] |= after is None
            if before in place and after in place:
                listed[place[before], place[after]] = True
        if not said["start"]:
            listed[-1, :] = True
        if not said["end"]:
            listed[:, -1] = True
        return ~listed

    def _rules(self, labels: Sequence[Hashable]) -> list[Rule]:
        rules = [] if self.rule is None else [self.rule]
        if self.scheme is not None:
            rules.append(scheme_rule(self.scheme, labels))
        return rules


def check_scheme(name: Any) -> str:
    """The name in small letters; InputError where there is no such scheme.

    >>> check_scheme("BIO")
    'bio'
    """
    if not isinstance(name, str) or name.lower() not in SCHEMES:
        raise InputError(f"the scheme of constraints must be one of {', '.join(SCHEMES)}, got {name!r}.")
    return name.lower()


def scheme_rule(name: str, labels: Sequence[Hashable]) -> Rule:
    """The predicate (before, after) of a scheme; LabelError if a label is no tag of it.

    >>> rule = scheme_rule("bio", ["B-PER", "I-PER", "O"])
    >>> rule("O", "I-PER"), rule("B-PER", "I-PER"), rule(None, "I-PER"), rule("I-PER", None)
    (False, True, False, True)
    """
    name = check_scheme(name)
    letters = {"bio": "BIO", "iob2": "BIO", "iob1": "BIO", "bilou": "BILOU", "biluo": "BILOU"}.get(name, "BIOES")
    parts: dict[Any, tuple[str, str]] = {None: ("O", "")}
    for label in labels:
        prefix, _, kind = label.partition("-") if isinstance(label, str) else ("", "", "")
        if len(prefix) != 1 or prefix not in letters:
            raise LabelError(
                f"constraints={name!r} reads tags such as 'B-PER' or 'O' that begin with one of {' '.join(letters)}, "
                f"got the label {label!r}. Name the scheme that the labels follow, or give pairs or a function."
            )
        parts[label] = ({"L": "E", "U": "S"}.get(prefix, prefix), kind)

    def rule(before: Any, after: Any) -> bool:
        (a, kind_before), (b, kind_after) = parts[before], parts[after]
        inside = kind_before == kind_after
        if name == "iob1":
            return b != "B" or (a in "BI" and inside)
        goes_on = b in "IE" and a in "BI" and inside
        if b in "IE":
            return goes_on
        return letters == "BIO" or a not in "BI"

    return rule


def _pairs(name: str, given: Iterable[Any]) -> tuple[Pair, ...]:
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise InputError(f"{name} must hold pairs (before, after), such as ('O', 'I-PER'), got {given!r:.60}.")
    out = []
    for pair in given:
        if isinstance(pair, str) or not isinstance(pair, Sequence) or len(pair) != 2:
            raise InputError(f"{name} must hold pairs (before, after), such as ('O', 'I-PER'), got {pair!r:.60}.")
        before, after = pair
        if before is None and after is None:
            raise InputError(f"{name} holds (None, None), a sequence without steps, of which nothing can be said.")
        try:
            hash((before, after))
        except TypeError:
            raise InputError(f"{name} must hold pairs of labels, got {pair!r:.60}, which cannot be labels.") from None
        out.append((before, after))
    return tuple(out)
