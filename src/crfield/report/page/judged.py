"""Answers beside the truth, in one form for sequences, graphs, images and rows: what a report counts.

Every kind of model answers in its own shape. A report asks the same of all of them: which label was meant, which one
was said, and how sure the model was. So answers are brought into one form, codes of labels for the steps of items: a
step is a token, a second of a recording, a pixel, a node of a graph or a row of a table; an item is what is labelled
together and what is independent of the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from crfield.errors import ShapeError
from crfield.metrics.intervals import ratio_intervals, score_intervals
from crfield.metrics.scores import Scores
from crfield.metrics.tokens import Confusion, LabelReport
from crfield.report.calibration import Reliability, reliability

UNKNOWN = -1


@dataclass(frozen=True, eq=False)
class Item:
    """One sequence, graph, image or row: what is true (−1 where nobody knows), what was predicted, and how surely.

    >>> item = Item("sequence 3", np.array([0, 1, -1]), np.array([0, 0, 1]))
    >>> len(item), item.wrong.tolist(), item.judged.tolist()
    (3, [False, True, False], [True, True, False])
    """

    name: str
    gold: np.ndarray  # (N,) codes of labels
    predicted: np.ndarray  # (N,)
    chance: np.ndarray | None = None  # (N, L) probabilities, where the model has them
    shape: tuple[int, int] | None = None  # of an image, whose steps are its pixels in rows

    def __post_init__(self) -> None:
        if self.gold.shape != self.predicted.shape:
            raise ShapeError(f"{self.name} has {len(self.predicted)} steps but {len(self.gold)} labels.")

    def __len__(self) -> int:
        return len(self.gold)

    @cached_property
    def judged(self) -> np.ndarray:
        """(N,) whether the truth is known."""
        return self.gold != UNKNOWN

    @cached_property
    def wrong(self) -> np.ndarray:
        """(N,) whether it is known to be wrong."""
        return self.judged & (self.gold != self.predicted)

    @cached_property
    def sure(self) -> np.ndarray:
        """(N,) probability of the predicted label; 1 where the model tells none."""
        if self.chance is None:
            return np.ones(len(self))
        return np.clip(self.chance[np.arange(len(self)), self.predicted], 0.0, 1.0)


@dataclass(frozen=True, eq=False)
class Judged:
    """All items with the names of their labels; ``item`` and ``step`` are what one calls them.

    >>> gold, said = np.array([0, 1, 1]), np.array([0, 1, 0])
    >>> judged = Judged(("a", "b"), (Item("1", gold, said), Item("2", said, said)))
    >>> judged.scores["b"].recall, judged.confusion.matrix.tolist(), judged.n_wrong
    (0.6666666666666666, [[3, 0], [1, 2]], 1)
    """

    labels: tuple[str, ...]
    items: tuple[Item, ...]
    item: str = "sequence"
    step: str = "step"

    @property
    def n_steps(self) -> int:
        """Steps of all items."""
        return sum(map(len, self.items))

    @cached_property
    def n_judged(self) -> int:
        """Steps whose truth is known."""
        return sum(int(item.judged.sum()) for item in self.items)

    @cached_property
    def n_wrong(self) -> int:
        """Steps that are known to be wrong."""
        return sum(int(item.wrong.sum()) for item in self.items)

    @cached_property
    def counts(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(S, L) each: right, predicted and true steps of every label in every item, of those that are judged."""
        size = len(self.labels)
        right, said, meant = (np.zeros((len(self.items), size)) for _ in range(3))
        for k, item in enumerate(self.items):
            gold, predicted = item.gold[item.judged], item.predicted[item.judged]
            right[k] = np.bincount(gold[gold == predicted], minlength=size)
            said[k] = np.bincount(predicted, minlength=size)
            meant[k] = np.bincount(gold, minlength=size)
        return right, said, meant

    @cached_property
    def scores(self) -> LabelReport:
        """Precision, recall and F1 of every label that was meant or said."""
        right, said, meant = (np.rint(part.sum(axis=0)).astype(int) for part in self.counts)
        rows = (
            Scores.from_counts(name, correct=c, predicted=p, support=s)
            for name, c, p, s in zip(self.labels, right.tolist(), said.tolist(), meant.tolist())
            if p or s
        )
        return LabelReport.of(rows, right=int(right.sum()), n_tokens=self.n_judged)

    @cached_property
    def intervals(self) -> dict[str, np.ndarray]:
        """(3, 2) ends of precision, recall and F1 of every label, over items."""
        return dict(zip(self.labels, score_intervals(*self.counts)))

    @cached_property
    def accuracy(self) -> tuple[float, float, float]:
        """Share of right steps, and the ends of its interval over items."""
        right, _, meant = (part.sum(axis=1, keepdims=True) for part in self.counts)
        low, high = ratio_intervals(right, meant)[0].tolist()
        return self.scores.accuracy, low, high

    @cached_property
    def whole(self) -> tuple[float, float, float]:
        """Share of items without an error, of those of which something is known, and the ends of its interval."""
        known = np.array([[item.judged.any()] for item in self.items], float).reshape(-1, 1)
        right = known * np.array([[not item.wrong.any()] for item in self.items], float).reshape(-1, 1)
        low, high = ratio_intervals(right, known)[0].tolist()
        return float(right.sum() / max(known.sum(), 1.0)), low, high

    @cached_property
    def confusion(self) -> Confusion:
        """How often each true label (row) was predicted as each label."""
        size = len(self.labels)
        cells = np.zeros(size * size, np.int64)
        for item in self.items:
            cells += np.bincount(item.gold[item.judged] * size + item.predicted[item.judged], minlength=size * size)
        return Confusion(cells.reshape(size, size), self.labels)

    @cached_property
    def calibration(self) -> Reliability | None:
        """How often the most probable label is right, by how probable it is; None without probabilities."""
        tables = [(item, item.chance) for item in self.items if item.chance is not None and len(item)]
        if not tables:
            return None
        best = [chance.argmax(axis=1) for _, chance in tables]
        sure = np.concatenate([chance.max(axis=1)[item.judged] for item, chance in tables])
        hit = np.concatenate([(item.gold == own)[item.judged] for (item, _), own in zip(tables, best)])
        return reliability(np.clip(sure, 0.0, 1.0).tolist(), hit.tolist())

    def errors(self) -> dict[tuple[int, int], np.ndarray]:
        """Of every confusion (true, predicted) its places (n, 2): item and step, the surest of them first."""
        places, keys, sure = [], [], []
        size = len(self.labels)
        for k, item in enumerate(self.items):
            steps = np.flatnonzero(item.wrong)
            places.append(np.stack([np.full(len(steps), k), steps], axis=1))
            keys.append(item.gold[steps] * size + item.predicted[steps])
            sure.append(item.sure[steps])
        if not places:
            return {}
        place, key, chance = np.concatenate(places), np.concatenate(keys), np.concatenate(sure)
        order = np.lexsort((place[:, 1], place[:, 0], -chance))
        place, key = place[order], key[order]
        kinds, first, count = np.unique(key, return_index=True, return_counts=True)
        del first
        ranked = sorted(zip(kinds.tolist(), count.tolist()), key=lambda pair: (-pair[1], pair[0]))
        return {(kind // size, kind % size): place[key == kind] for kind, _ in ranked}


def tagged(judged: Judged, item: Item, codes: Sequence[int] | np.ndarray) -> list[str | None]:
    """Names of labels for codes, None for unknown ones.

    >>> judged = Judged(("a", "b"), ())
    >>> tagged(judged, Item("1", np.zeros(0, int), np.zeros(0, int)), [1, -1])
    ['b', None]
    """
    return [None if code == UNKNOWN else judged.labels[code] for code in np.asarray(codes).tolist()]
