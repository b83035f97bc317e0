"""Why this label: a margin in its parts, and the counterfactual explanation that would change it.

At one step the best labelling of all has some label; the runner-up is the best labelling with another label there.
The difference of their scores, the margin, is a sum of weights (`crfield.scoring.contributions`), and an
`Explanation` holds its terms by name, largest first. It is exact: the amounts add up to the margin. exp(margin) tells
how many times more probable the first labelling is than the other.

A `Flip` is the counterpart: a small set of present features without which the model gives another label, found
greedily, with nothing in it that could be left out, and verified by decoding again.

Here are values and words; `ChainCRF.explain` makes them.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from crfield.data.frames import frame_of
from crfield.metrics.notebook import ShownAsTables, Table
from crfield.report.alignment import pad, printable, shorten, width
from crfield.report.weights import LabelPair, signed

_SHOWN = 12  # contributions in the text
_AROUND = 3  # steps of the labellings shown either side of where they differ
_WIDEST_NAME, _WIDEST_LABEL = 48, 14

GROUPS = {
    "node": "features",
    "dense": "features",
    "edge": "features of pairs",
    "edge_dense": "features of pairs",
    "transitions": "transitions",
    "runs": "transitions",
    "bias": "intercepts",
    "start": "ends",
    "end": "ends",
    "fixed_edge": "rules",
    "fixed_start": "rules",
    "fixed_end": "rules",
}
PAIRS = ("transitions", "edge", "edge_dense", "fixed_edge")  # kinds that score two neighbouring labels


class LabelRun(tuple[Hashable, ...]):
    """Three labels in a row, or more.

    >>> LabelRun(["B", "I", "I"])
    ('B', 'I', 'I')
    """

    __slots__ = ()


class Contribution(NamedTuple):
    """What one feature, transition or constant adds to a margin: value · (weight − other_weight).

    ``label`` is what it scores on the first labelling and ``other`` on the runner-up: a label, a `LabelPair` for
    transitions and features of pairs, a `LabelRun` for longer runs. ``kind`` is the part of the weights it is from.

    >>> Contribution("word=Ana", 3, "PER", "O", 1.0, 1.5, -0.5, 2.0, "node").group
    'features'
    """

    name: str
    step: int
    label: Hashable
    other: Hashable
    value: float
    weight: float
    other_weight: float
    amount: float
    kind: str

    @property
    def group(self) -> str:
        """The sort of thing it is, in words."""
        return GROUPS[self.kind]

    @property
    def text(self) -> str:
        """Its name, or for transitions and runs the labels that it stands for.

        >>> pair = LabelPair("O", "PER"), LabelPair("O", "O")
        >>> Contribution("(transition)", 1, *pair, 1.0, 0.0, 0.5, -0.5, "transitions").text
        'O → PER'
        """
        return shown_label(self.label) if self.kind in ("transitions", "runs") else printable(self.name)


class RemovedFeature(NamedTuple):
    """A feature that was set aside: name, step, value there, and the part of the weights it belongs to."""

    name: str
    step: int
    value: float
    kind: str


@dataclass(frozen=True)
class Flip:
    """A counterfactual explanation: present features without which the label is another one, or that none was found.

    ``becomes`` is the label without them, None if the label stays. None of the features can be put back: with any of
    them the label stays. ``n_candidates`` features were looked at and ``n_tried`` of them set aside on the way;
    ``margin`` is what is left of the margin without the set, or without those tried where none was found.

    >>> print(Flip("PER", "O", (RemovedFeature("word=Ana", 3, 1.0, "node"),), -0.25, 4, 1))
    without word=Ana (step 3) it is O
    >>> print(Flip("PER", None, (), 1.5, 4, 2))
    nothing was found to change PER: without 2 of the 4 features near it, the most effective, the margin is 1.5
    """

    label: Hashable
    becomes: Hashable | None
    removed: tuple[RemovedFeature, ...]
    margin: float
    n_candidates: int
    n_tried: int

    def rows(self) -> list[dict[str, Any]]:
        """One plain dict for each feature set aside."""
        return [item._asdict() for item in self.removed]

    def to_frame(self) -> Any:
        """The rows as a pandas DataFrame; InputError where pandas is not installed."""
        return frame_of(self.rows(), RemovedFeature._fields)

    def __str__(self) -> str:
        if self.becomes is None:
            label = printable(self.label)
            if math.isinf(self.margin):
                return f"no feature can change {label}: nothing else is allowed"
            if not self.n_tried:
                return f"nothing was found to change {label}: no feature near it speaks for it"
            return (
                f"nothing was found to change {label}: without {self.n_tried} of the {self.n_candidates} features "
                f"near it, the most effective, the margin is {self.margin:.4g}"
            )
        named = [f"{shorten(printable(r.name), _WIDEST_NAME)} ({_place(r.kind, r.step)})" for r in self.removed]
        return f"without {', '.join(named)} it is {printable(self.becomes)}"

    __repr__ = __str__


@dataclass(frozen=True)
class Explanation(ShownAsTables):
    """The margin of a label at a step over the runner-up, in its parts.

    >>> parts = (
    ...     Contribution("word=Ana", 1, "PER", "O", 1.0, 1.5, -0.5, 2.0, "node"),
    ...     Contribution("(transition)", 1, LabelPair("O", "PER"), LabelPair("O", "O"), 1.0, 0.0, 0.5, -0.5,
    ...                  "transitions"),
    ... )
    >>> told = Explanation(1, "PER", "O", 1.5, 0.8, 0.2, ("O", "PER"), ("O", "O"), parts)
    >>> told
    step 1: PER rather than O by a margin of 1.5 (probabilities 0.800 and 0.200)
      labels     O PER   steps 0 … 1
      runner-up  O O
      +2.0000  step 1      word=Ana
      -0.5000  steps 0, 1  (transition)  O → PER, not O → O
      features +2.0000, transitions -0.5000
    >>> told.by_group(), told.top(1)[0].name
    ({'features': 2.0, 'transitions': -0.5}, 'word=Ana')
    """

    step: int
    label: Hashable
    other: Hashable | None  # None where no other label is possible
    margin: float  # ∞ then
    probability: float
    other_probability: float
    labels: tuple[Hashable, ...]
    other_labels: tuple[Hashable, ...] | None
    contributions: tuple[Contribution, ...]  # largest amounts first
    flip: Flip | None = None  # None if it was not asked for, or the label is not the one predicted

    def top(self, n: int = 10) -> tuple[Contribution, ...]:
        """The n contributions of largest size."""
        return self.contributions[: max(n, 0)]

    def at(self, step: int) -> tuple[Contribution, ...]:
        """The contributions of one step (of a pair of steps: the later)."""
        return tuple(item for item in self.contributions if item.step == step)

    def by_group(self) -> dict[str, float]:
        """What features, transitions, intercepts, ends and rules add up to; those that add nothing are left out."""
        found = {item.group: 0.0 for item in self.contributions}
        for group in found:
            found[group] = math.fsum(item.amount for item in self.contributions if item.group == group)
        order = list(dict.fromkeys(GROUPS.values()))
        return {group: found[group] for group in order if group in found}

    def rows(self) -> list[dict[str, Any]]:
        """One plain dict for each contribution, largest first."""
        return [item._asdict() for item in self.contributions]

    def to_frame(self) -> Any:
        """The rows as a pandas DataFrame; InputError where pandas is not installed."""
        return frame_of(self.rows(), Contribution._fields)

    def to_dict(self) -> dict[str, Any]:
        """All of it in plain values, for JSON; an infinite margin is None."""
        flip = self.flip
        return {
            "step": self.step,
            "label": self.label,
            "other": self.other,
            "margin": self.margin if math.isfinite(self.margin) else None,
            "probability": self.probability,
            "other_probability": self.other_probability,
            "labels": list(self.labels),
            "other_labels": None if self.other_labels is None else list(self.other_labels),
            "contributions": self.rows(),
            "flip": None
            if flip is None
            else {"becomes": flip.becomes, "removed": flip.rows(), "candidates": flip.n_candidates},
        }

    def _headline(self) -> str:
        label = printable(self.label)
        if self.other is None or self.other_labels is None:
            return f"step {self.step}: {label}; no other label is possible there"
        return (
            f"step {self.step}: {label} rather than {printable(self.other)} by a margin of {self.margin:.4g} "
            f"(probabilities {self.probability:.3f} and {self.other_probability:.3f})"
        )

    def _tables(self) -> list[Table]:
        columns = ("name", "step", "label", "other", "value", "amount")
        note = "" if self.flip is None else str(self.flip)
        return [Table.of_dicts(self.rows(), columns, title=self._headline(), note=note)]

    def __str__(self) -> str:
        if self.other is None or self.other_labels is None:
            lines = [self._headline()]
        else:
            lines = [
                self._headline(),
                *(f"  {line}" for line in _labellings(self.labels, self.other_labels, self.step)),
                *(f"  {line}" for line in contribution_lines(self.contributions[:_SHOWN])),
            ]
            if len(self.contributions) > _SHOWN:
                rest = self.contributions[_SHOWN:]
                amount, more = math.fsum(item.amount for item in rest), "s" * (len(rest) > 1)
                lines.append(f"  {signed(amount)}  {len(rest)} smaller one{more}")
            groups = ", ".join(f"{name} {signed(amount)}" for name, amount in self.by_group().items())
            lines += [f"  {groups}"] if groups else ["  both score the same"]
        return "\n".join([*lines, *([] if self.flip is None else [f"  {self.flip}"])])

    __repr__ = __str__


def contribution_lines(items: Sequence[Contribution]) -> list[str]:
    """The contributions one a line, aligned.

    >>> contribution_lines([Contribution("height", 2, "A", "B", 1.75, 1.0, 0.0, 1.75, "dense")])
    ['+1.7500  step 2  height = 1.75']
    """
    numbers = [signed(item.amount) for item in items]
    places = [_place(item.kind, item.step) for item in items]
    longest, widest = max(map(len, numbers), default=0), max(map(width, places), default=0)
    lines = []
    for item, number, place in zip(items, numbers, places):
        text = shorten(printable(item.name), _WIDEST_NAME)
        if item.value != 1.0:
            text += f" = {item.value:.4g}"
        if item.kind not in ("node", "dense"):
            text += f"  {shown_label(item.label)}, not {shown_label(item.other)}"
        lines.append(f"{number:>{longest}}  {pad(place, widest)}  {text}")
    return lines


def shown_label(label: Hashable) -> str:
    """A label, or several in a row, in few columns.

    >>> shown_label(LabelPair("B", "I")), shown_label("O")
    ('B → I', 'O')
    """
    if isinstance(label, LabelPair | LabelRun):
        return " → ".join(shorten(printable(part), _WIDEST_LABEL) for part in label)
    return shorten(printable(label), _WIDEST_LABEL)


def _place(kind: str, step: int) -> str:
    return f"steps {step - 1}, {step}" if kind in PAIRS else f"step {step}"


def _labellings(labels: Sequence[Hashable], other: Sequence[Hashable], step: int) -> list[str]:
    """Both labellings below each other, around the steps where they differ."""
    apart = [t for t, (a, b) in enumerate(zip(labels, other)) if a != b] or [step]
    first, last = max(apart[0] - _AROUND, 0), min(apart[-1] + _AROUND, len(labels) - 1)
    if last - first > 8 * _AROUND:
        first, last = max(step - 4 * _AROUND, 0), min(step + 4 * _AROUND, len(labels) - 1)
    rows = [[shown_label(label) for label in own[first : last + 1]] for own in (labels, other)]
    wide = [max(map(width, pair)) for pair in zip(*rows)]
    texts = [" ".join(pad(text, columns) for text, columns in zip(row, wide)) for row in rows]
    return [f"labels     {texts[0]}   steps {first} … {last}", f"runner-up  {texts[1]}".rstrip()]
