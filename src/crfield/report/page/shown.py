"""What a report shows of one item: its steps as texts, signals or a picture, and why each got its label."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from crfield.report.explain import Explanation
from crfield.report.page.judged import Item

TEXT, TIME, PICTURE, GRAPH, ROW = "text", "time", "picture", "graph", "row"  # the ways to show an item


class Alternative(NamedTuple):
    """One of the n best labellings: its probability and the codes of its labels (N,)."""

    probability: float
    labels: np.ndarray


@dataclass(frozen=True, eq=False)
class Signal:
    """A curve to draw: least and greatest value in each of M equal parts of the item's time."""

    name: str
    low: np.ndarray  # (M,)
    high: np.ndarray  # (M,)

    @classmethod
    def of(cls, name: str, values: np.ndarray, most: int = 600) -> Signal:
        """The curve of values in order, in at most so many parts; what is not finite leaves a gap.

        >>> curve = Signal.of("x", np.arange(6.0), most=3)
        >>> curve.low.tolist(), curve.high.tolist()
        ([0.0, 2.0, 4.0], [1.0, 3.0, 5.0])
        """
        values = np.where(np.isfinite(values), values, np.nan).astype(np.float64)
        if len(values) <= most:
            return cls(name, values, values)
        starts = np.linspace(0, len(values), most + 1).astype(int)[:-1]
        return cls(name, np.fmin.reduceat(values, starts), np.fmax.reduceat(values, starts))


@dataclass(frozen=True, eq=False)
class ShownItem:
    """An item with all that the page can show of it.

    >>> shown = ShownItem(4, Item("sequence 4", np.array([0]), np.array([1])), TEXT, texts=("dog",))
    >>> shown.texts[0], shown.why
    ('dog', {})
    """

    number: int  # among all items
    item: Item
    look: str  # TEXT, TIME, PICTURE, GRAPH or ROW
    texts: tuple[str, ...] = ()  # (N,) where steps have words
    signals: tuple[Signal, ...] = ()
    picture: np.ndarray | None = None  # (H, W) or (H, W, 3) of bytes: what the model saw
    edges: tuple[tuple[int, int], ...] = ()
    best: tuple[Alternative, ...] = ()
    alone: np.ndarray | None = None  # (N, L) what each step says without its neighbours
    why: Mapping[int, Explanation] = field(default_factory=dict)
    seconds: float | None = None  # between two steps, where that is known
