"""Constraints: which labels may follow which, and what it costs, given by the user instead of learnt.

`Constraints` is what a user writes down, in terms of labels; `Constraints.scores` turns it into the constants of a
chain, `FixedScores`:

    score(y) += start(y_0) + Σ_t edge(y_{t-1}, y_t) + end(y_{T-1})

They are added to the scores of a chain wherever scores are made, in training and in decoding alike, so whatever
trains or decodes knows them without being told. ``None`` stands for the ends of a sequence: ``(None, "I-PER")`` is a
first step of I-PER, ``("B-PER", None)`` a last step of B-PER. A hard rule is a score of −∞, and a labelling that
breaks it has the probability 0, in training as in prediction; a soft one is a finite cost, paid each time.

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
from typing import Any

import numpy as np

from crfield.core.checks import is_number
from crfield.core.target import UNKNOWN, Target
from crfield.errors import InputError, LabelError, ShapeError

Rule = Callable[[Any, Any], Any]
Pair = tuple[Any, Any]
FIXED = ("fixed_edge", "fixed_start", "fixed_end")  # the tables of scores by the names they have in a model file
SCHEMES = ("bio", "iob2", "iob1", "bioes", "iobes", "bilou", "biluo")


@dataclass(frozen=True, eq=False)
class FixedScores:
    """Constraints as constant scores of label pairs and of the ends of a chain: finite, or −∞ where forbidden.

    >>> import numpy as np
    >>> fixed = FixedScores(np.array([[0.0, -np.inf], [0.0, 0.0]]), np.zeros(2), np.array([-1.5, 0.0]))
    >>> fixed.n_labels, fixed.forbids, fixed.of_path([1, 0])
    (2, True, -1.5)
    """

    edge: np.ndarray  # (L, L)
    start: np.ndarray  # (L,)
    end: np.ndarray  # (L,)

    def __post_init__(self) -> None:
        edge = np.ascontiguousarray(self.edge, dtype=np.float64)
        start, end = (np.ascontiguousarray(x, dtype=np.float64) for x in (self.start, self.end))
        labels = len(start)
        if start.shape != (labels,) or end.shape != (labels,) or edge.shape != (labels, labels):
            raise ShapeError(
                f"fixed scores must be edge (L, L), start (L,) and end (L,), got {edge.shape}, {start.shape} and "
                f"{end.shape}."
            )
        for name, scores in (("edge", edge), ("start", start), ("end", end)):
            if not (scores < np.inf).all():
                raise InputError(f"fixed {name} scores must be finite or -inf, got NaN or +inf.")
            object.__setattr__(self, name, scores)

    @classmethod
    def none(cls, n_labels: int) -> FixedScores:
        """All zero: nothing is said.

        >>> FixedScores.none(2).edge.tolist()
        [[0.0, 0.0], [0.0, 0.0]]
        """
        return cls(np.zeros((n_labels, n_labels)), np.zeros(n_labels), np.zeros(n_labels))

    @property
    def n_labels(self) -> int:
        """L."""
        return len(self.start)

    @property
    def forbids(self) -> bool:
        """Whether anything is −∞."""
        return any(bool(np.isneginf(x).any()) for x in (self.edge, self.start, self.end))

    def within(self) -> FixedScores:
        """The same without what is said of first and last steps.

        >>> import numpy as np
        >>> FixedScores(np.zeros((1, 1)), np.ones(1), np.ones(1)).within().start.tolist()
        [0.0]
        """
        zeros = np.zeros(self.n_labels)
        return FixedScores(self.edge, zeros, zeros)

    def scaled(self, factor: float) -> FixedScores:
        """All finite scores times a factor above 0; what is forbidden stays so.

        >>> import numpy as np
        >>> FixedScores(np.array([[-2.0]]), np.array([-np.inf]), np.zeros(1)).scaled(0.5).edge.tolist()
        [[-1.0]]
        """
        return FixedScores(self.edge * factor, self.start * factor, self.end * factor)

    def of_path(self, path: np.ndarray | list[int]) -> float:
        """What one labelling of a whole sequence gets."""
        codes = np.asarray(path, dtype=np.int64)
        if not len(codes):
            return 0.0
        return float(self.start[codes[0]] + self.edge[codes[:-1], codes[1:]].sum() + self.end[codes[-1]])

    def first_broken(self, target: Target) -> tuple[int, int] | None:
        """Sequence and step where gold labels first do what is forbidden; a step of T means the end of the sequence.

        Steps with several allowed labels break nothing here as long as the labels beside them do not.

        >>> import numpy as np
        >>> from crfield.core.topology import Chains
        >>> fixed = FixedScores(np.array([[0.0, -np.inf], [0.0, 0.0]]), np.zeros(2), np.zeros(2))
        >>> fixed.first_broken(Target(Chains.from_lengths([1, 3]), 2, np.array([1, 0, 0, 1])))
        (1, 2)
        """
        topology, labels = target.topology, target.labels
        kept = topology.lengths > 0 if target.weight is None else (topology.lengths > 0) & (target.weight > 0)
        broken = np.zeros((topology.n_nodes, 2), dtype=bool)  # before the step, after it
        firsts, lasts = topology.offsets[:-1][kept], topology.offsets[1:][kept] - 1
        broken[firsts, 0] = (labels[firsts] != UNKNOWN) & np.isneginf(self.start[labels[firsts]])
        broken[lasts, 1] = (labels[lasts] != UNKNOWN) & np.isneginf(self.end[labels[lasts]])
        heads = topology.heads[kept[topology.sequence_of_edge]]
        before, after = labels[heads - 1], labels[heads]
        broken[heads, 0] = (before != UNKNOWN) & (after != UNKNOWN) & np.isneginf(self.edge[before, after])
        if not broken.any():
            return None
        node, side = divmod(int(np.argmax(broken)), 2)
        sequence = int(topology.sequence_of_node[node])
        return sequence, node - int(topology.offsets[sequence]) + side

    def arrays(self) -> dict[str, np.ndarray]:
        """The three tables by the names they have in a model file."""
        return dict(zip(FIXED, (self.edge, self.start, self.end)))

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray], n_labels: int) -> FixedScores | None:
        """The scores whose `arrays` these are among; None if none of them is there, InputError if some do not fit."""
        found = [arrays.get(name) for name in FIXED]
        if all(x is None for x in found):
            return None
        shapes = ((n_labels, n_labels), (n_labels,), (n_labels,))
        if any(x is None or x.dtype != np.float64 or x.shape != shape for x, shape in zip(found, shapes)):
            raise ShapeError(f"fixed scores of {n_labels} labels lack a table, or one has another shape.")
        return cls(*found)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Constraints:
    """Hard and soft constraints on neighbouring labels; all of them hold together.

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
            if not is_number(cost):
                raise InputError(
                    f"the cost of {pair!r} must be a finite number, got {cost!r}. "
                    "Use forbidden= for pairs that never occur."
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
        raise InputError(f"the scheme of constraints must be one of {', '.join(map(repr, SCHEMES))}, got {name!r}.")
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
            raise InputError(f"{name} holds (None, None), which would be a sequence without steps. Leave it out.")
        try:
            hash((before, after))
        except TypeError:
            raise InputError(f"{name} must hold pairs of labels, got {pair!r:.60}, which cannot be labels.") from None
        out.append((before, after))
    return tuple(out)
