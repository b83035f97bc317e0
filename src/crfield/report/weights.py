"""What a model has learnt, as values that print well.

A table of transitions and a list of feature weights: both hold numbers and names handed to them, answer
simple questions (`top`, `bottom`, `to_dict`) and show themselves as aligned text, in ``print`` and in an
interpreter. They know no model and open no file, so the command line, a notebook and a test show the same.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, overload

import numpy as np

from crfield.errors import ShapeError
from crfield.metrics.notebook import ShownAsTables, Table
from crfield.report.alignment import pad, printable, shorten, width

LARGEST_TABLE = 20
_WIDEST_NAME = 60
_WIDEST_COLUMN = 12
_NONE = "·"


class Transition(NamedTuple):
    """The weight of label ``target`` right after label ``source``."""

    source: Hashable
    target: Hashable
    weight: float


class LabelPair(NamedTuple):
    """The label of a feature that looks at two neighbouring steps.

    >>> LabelPair("B", "I").after
    'I'
    """

    before: Hashable
    after: Hashable


class FeatureWeight(NamedTuple):
    """The weight of a named feature for a label."""

    name: str
    label: Hashable
    weight: float


@dataclass(frozen=True, eq=False, repr=False)
class TransitionTable(ShownAsTables):
    r"""Weights of label pairs, NaN where a pair has none.

    Rows are the earlier label, columns the later one; the greatest weight of each row is marked. With more
    than 20 labels the strongest and the weakest pairs are listed instead.

    >>> table = TransitionTable(["B", "I", "O"], np.array([[-1.5, 2, 0], [0.25, 1, 0.5], [1, np.nan, 0.75]]))
    >>> print(table)
    from \ to     B     I     O
    B          -1.50 *2.00  0.00
    I           0.25 *1.00  0.50
    O          *1.00     ·  0.75
    * the greatest of its row, · no weight
    >>> table.top(1)
    [Transition(source='B', target='I', weight=2.0)]
    >>> table.to_dict()["O", "B"]
    1.0
    """

    labels: Sequence[Hashable]
    weights: np.ndarray  # (L, L), or (L, number of columns)
    columns: Sequence[Hashable] | None = None  # labels of the columns where they are others than those of the rows

    def __post_init__(self) -> None:
        names = self.labels.tolist() if isinstance(self.labels, np.ndarray) else list(self.labels)
        columns = names if self.columns is None else list(self.columns)
        weights = np.array(self.weights, dtype=np.float64)
        if weights.shape != (len(names), len(columns)):
            shape = f"({len(names)}, {len(columns)})"
            raise ShapeError(f"the weights of {len(names)} labels must be {shape}, got {weights.shape}.")
        weights.flags.writeable = False
        object.__setattr__(self, "labels", names)
        object.__setattr__(self, "columns", columns)
        object.__setattr__(self, "weights", weights)

    @property
    def _later(self) -> Sequence[Hashable]:
        return self.labels if self.columns is None else self.columns

    def _ranked(self) -> list[Transition]:
        """All pairs that have a weight, the greatest first, ties in the order of the labels."""
        order = np.argsort(-self.weights, axis=None, kind="stable")
        later = self._later
        size = len(later)
        flat = self.weights.reshape(-1)
        return [
            Transition(self.labels[k // size], later[k % size], float(flat[k]))
            for k in order.tolist()
            if not np.isnan(flat[k])
        ]

    def top(self, n: int = 10) -> list[Transition]:
        """The n greatest weights, the greatest first."""
        return self._ranked()[: max(n, 0)]

    def bottom(self, n: int = 10) -> list[Transition]:
        """The n least weights, the least first."""
        return self._ranked()[::-1][: max(n, 0)]

    def to_dict(self) -> dict[tuple[Hashable, Hashable], float]:
        """Weights by pair (earlier, later) of labels, pairs without a weight left out."""
        rows, columns = np.nonzero(~np.isnan(self.weights))
        values = self.weights[rows, columns].tolist()
        pairs = zip(rows.tolist(), columns.tolist(), values, strict=True)
        return {(self.labels[i], self._later[j]): value for i, j, value in pairs}

    def __str__(self) -> str:
        if not len(self.labels):
            return "no labels"
        small = max(len(self.labels), len(self._later)) <= LARGEST_TABLE
        return self._as_table() if small else self._as_lists()

    __repr__ = __str__

    def _greatest(self) -> set[tuple[int, int]]:
        """Row and column of the greatest weight of each row that has one."""
        marked = np.where(np.isnan(self.weights), -np.inf, self.weights).argmax(axis=1)
        return {(i, int(marked[i])) for i in np.flatnonzero(~np.isnan(self.weights).all(axis=1)).tolist()}

    def _tables(self) -> list[Table]:
        if not len(self.labels):
            return [Table(["no labels"], [])]
        if max(len(self.labels), len(self._later)) > LARGEST_TABLE:
            ranked = [[printable(a), printable(b), f"{value:.2f}"] for a, b, value in self._ranked()]
            return [Table(["from", "to", "weight"], ranked, left=2, title=f"{len(ranked)} transitions with a weight")]
        rows = [
            [printable(label), *(_NONE if np.isnan(value) else f"{value:.2f}" for value in row)]
            for label, row in zip(self.labels, self.weights)
        ]
        bold = frozenset((i, j + 1) for i, j in self._greatest())
        return [Table(["from \\ to", *map(printable, self._later)], rows, bold=bold)]

    def _as_table(self) -> str:
        names = [printable(label) for label in self.labels]
        marked = self._greatest()
        cells = [
            [
                _NONE if np.isnan(value) else f"{'*' if (i, j) in marked else ''}{value:.2f}"
                for j, value in enumerate(row)
            ]
            for i, row in enumerate(self.weights)
        ]
        heads = [shorten(printable(label), _WIDEST_COLUMN) for label in self._later]
        columns = [max(width(head), *(len(row[j]) for row in cells)) + 1 for j, head in enumerate(heads)]
        corner = "from \\ to"
        rows = [shorten(name, _WIDEST_NAME) for name in names]
        first = max(width(corner), *(width(name) for name in rows))
        lines = [pad(corner, first) + "".join(map(_right, heads, columns))]
        lines += [pad(name, first) + "".join(map(_right, row, columns)) for name, row in zip(rows, cells)]
        legend = "* the greatest of its row" + (f", {_NONE} no weight" if np.isnan(self.weights).any() else "")
        return "\n".join([*lines, legend])

    def _as_lists(self, n: int = 10) -> str:
        ranked = self._ranked()
        lines = [f"{len(self.labels)} labels, {len(ranked)} transitions with a weight"]
        high, low = ranked[:n], ranked[n:][: -n - 1 : -1]
        for title, some in (("strongest", high), ("weakest", low)):
            if some:
                pairs = [(f"{printable(a)} → {printable(b)}", value) for a, b, value in some]
                lines += [f"{title}:", *(f"  {line}" for line in _aligned_rows(pairs))]
        return "\n".join(lines)


@dataclass(frozen=True, eq=False, repr=False)
class FeatureList(ShownAsTables, Sequence[FeatureWeight]):
    """Feature weights in the order given.

    >>> features = FeatureList([FeatureWeight("w=the", "B", 2.0), FeatureWeight("w=cat", "I", -0.5)])
    >>> print(features)
    +2.0000  B  w=the
    -0.5000  I  w=cat
    >>> features[0].name, len(features.for_label("I"))
    ('w=the', 1)
    """

    items: Sequence[FeatureWeight]

    def __post_init__(self) -> None:
        object.__setattr__(self, "items", tuple(FeatureWeight(*item) for item in self.items))

    @classmethod
    def from_arrays(cls, names: Iterable[str], labels: Iterable[Hashable], weights: Iterable[float]) -> FeatureList:
        """A list from three columns of one length.

        >>> FeatureList.from_arrays(["a"], ["B"], np.array([1.0]))[0]
        FeatureWeight(name='a', label='B', weight=1.0)
        """
        rows = zip(names, labels, weights, strict=True)
        return cls([FeatureWeight(name, label, float(weight)) for name, label, weight in rows])

    @overload
    def __getitem__(self, index: int) -> FeatureWeight: ...
    @overload
    def __getitem__(self, index: slice) -> FeatureList: ...
    def __getitem__(self, index: int | slice) -> FeatureWeight | FeatureList:
        return FeatureList(self.items[index]) if isinstance(index, slice) else self.items[index]

    def __len__(self) -> int:
        return len(self.items)

    def __iter__(self) -> Iterator[FeatureWeight]:
        return iter(self.items)

    def top(self, n: int = 10) -> FeatureList:
        """The n greatest weights, the greatest first."""
        return FeatureList(sorted(self.items, key=lambda item: -item.weight)[: max(n, 0)])

    def bottom(self, n: int = 10) -> FeatureList:
        """The n least weights, the least first."""
        return FeatureList(sorted(self.items, key=lambda item: item.weight)[: max(n, 0)])

    def for_label(self, label: Hashable) -> FeatureList:
        """The features of one label."""
        return FeatureList([item for item in self.items if item.label == label])

    def to_dicts(self) -> list[dict[str, Any]]:
        """A dict of name, label and weight per feature."""
        return [item._asdict() for item in self.items]

    def _tables(self) -> list[Table]:
        rows = [[printable(item.name), _shown(item.label), signed(item.weight)] for item in self.items]
        return [Table(FeatureWeight._fields, rows, left=2)]

    def __str__(self) -> str:
        if not self.items:
            return "no features"
        labels = [_shown(item.label) for item in self.items]
        numbers = [signed(item.weight) for item in self.items]
        wide, long = max(map(width, labels)), max(map(len, numbers))
        return "\n".join(
            f"{number:>{long}}  {pad(label, wide)}  {shorten(printable(item.name), _WIDEST_NAME)}"
            for item, label, number in zip(self.items, labels, numbers)
        )

    __repr__ = __str__


def signed(weight: float) -> str:
    """Four places, or the power of ten of a weight that they would hide: columns in large units have such.

    >>> signed(1.5), signed(0.0), signed(-3e-6)
    ('+1.5000', '+0.0000', '-3.0e-06')
    """
    return f"{weight:+.4f}" if weight == 0 or abs(weight) >= 5e-4 else f"{weight:+.1e}"


def _shown(label: Hashable) -> str:
    """A label, or a pair of labels each cut on its own, so that pairs stay apart."""
    if isinstance(label, LabelPair):
        return " → ".join(shorten(printable(part), _WIDEST_COLUMN) for part in label)
    return shorten(printable(label), _WIDEST_COLUMN)


def _right(text: str, columns: int) -> str:
    return pad(text, columns, right=True)


def _aligned_rows(rows: list[tuple[str, float]]) -> list[str]:
    names = [shorten(name, _WIDEST_NAME) for name, _ in rows]
    first = max(map(width, names))
    numbers = [f"{value:.2f}" for _, value in rows]
    last = max(map(len, numbers))
    return [f"{pad(name, first)}  {number:>{last}}" for name, number in zip(names, numbers)]
