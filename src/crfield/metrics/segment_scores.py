"""How well stretches of one label are found: overlap, order, and what kind of mistakes are made.

Steps tell how long a prediction is right; people ask whether an activity was noticed, and once. A *segment* is a
longest run of one label.

F1 at an overlap (Lea, Flynn, Vidal, Reiter & Hager 2017, *Temporal convolutional networks for action segmentation
and detection*): each predicted segment takes the gold segment of its label with which it overlaps most, measured as
intersection over union; it is right if that is at least the overlap asked for and no other took it before. Cutting a
segment in pieces or small shifts cost what they should.

The edit score of the same authors compares the segments' labels in order and not their times: 1 − (insertions,
deletions and changes to get from one to the other) / (the larger number of segments).

Mistakes by kind, after Ward, Lukowicz & Gellersen 2011 (*Performance metrics for activity recognition*), label by
label: a gold segment of which no step is found is a *deletion*, one found in several pieces is *fragmented*, several
found in one piece are *merged*; a predicted segment that meets no gold one of its label is an *insertion*. For the
rest the *underfill* are their steps that were missed, the *overfill* those that go beyond.

Gold steps that are None are taken out of both sides first, and what stood on either side then touches.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from crfield.errors import InputError
from crfield.metrics.coding import UNKNOWN, code_pair
from crfield.metrics.notebook import ShownAsTables, Table
from crfield.metrics.scores import ratio

Labelled = Iterable[Iterable[Any]]
OVERLAPS = (0.1, 0.25, 0.5)


def segments(labels: Iterable[Hashable]) -> list[tuple[int, int, Any]]:
    """Longest runs of one label as (first step, step after the last, label).

    >>> segments(["sit", "sit", "walk", "sit"])
    [(0, 2, 'sit'), (2, 3, 'walk'), (3, 4, 'sit')]
    """
    out: list[tuple[int, int, Any]] = []
    for step, label in enumerate(labels):
        if out and out[-1][2] == label:
            out[-1] = (out[-1][0], step + 1, label)
        else:
            out.append((step, step + 1, label))
    return out


def segment_f1(y_true: Labelled, y_pred: Labelled, *, overlap: float = 0.5, zero_division: float = 0.0) -> float:
    """F1 of segments that overlap a gold one of their label by at least ``overlap``, counted over all sequences.

    >>> segment_f1([["a", "a", "a", "b"]], [["a", "a", "b", "b"]], overlap=0.5)
    1.0
    >>> segment_f1([["a", "a", "a", "b"]], [["a", "b", "a", "b"]], overlap=0.5)
    0.3333333333333333
    """
    right = meant = said = 0
    for gold, predicted in _sequences(y_true, y_pred):
        hits, n_gold, n_predicted = _matched(gold, predicted, check_overlap(overlap))
        right, meant, said = right + hits, meant + n_gold, said + n_predicted
    return ratio(2 * right, meant + said, zero_division)


def edit_score(y_true: Labelled, y_pred: Labelled, *, zero_division: float = 0.0) -> float:
    """1 − edit distance of the segments' labels / the larger number of segments, averaged over sequences.

    >>> edit_score([["a", "a", "b", "b"]], [["a", "b", "b", "b"]])
    1.0
    >>> edit_score([["a", "a", "b", "b"]], [["a", "b", "a", "b"]])
    0.5
    """
    scores = []
    for gold, predicted in _sequences(y_true, y_pred):
        if len(gold):
            one, other = _runs(gold)[2], _runs(predicted)[2]
            scores.append(1.0 - _distance(one, other) / max(len(one), len(other)))
    return ratio(sum(scores), len(scores), zero_division)


@dataclass(frozen=True)
class SegmentReport(ShownAsTables):
    """Scores of segments and their mistakes by kind.

    >>> print(segment_report([["a", "a", "b", "b", "a", "a"]], [["a", "b", "b", "b", "b", "b"]]))
    segments: 3 gold, 2 predicted
    F1 at overlap 10 %   0.8000
    F1 at overlap 25 %   0.8000
    F1 at overlap 50 %   0.4000
    edit score           0.6667
    deletions            1 of 3 gold
    fragmented           0 of 3 gold
    merged               0 of 3 gold
    insertions           0 of 2 predicted
    underfill, overfill  1, 3 of 6 steps
    """

    f1: dict[float, float]
    edit: float
    gold: int
    predicted: int
    deletions: int
    fragmented: int
    merged: int
    insertions: int
    underfill: int
    overfill: int
    steps: int

    def to_dict(self) -> dict[str, Any]:
        """Everything, ready for JSON."""
        return {**asdict(self), "f1": {f"{overlap:g}": value for overlap, value in self.f1.items()}}

    def _rows(self) -> list[tuple[str, str]]:
        rows = [(f"F1 at overlap {100 * overlap:g} %", f"{value:.4f}") for overlap, value in self.f1.items()]
        rows += [("edit score", f"{self.edit:.4f}")]
        for name in ("deletions", "fragmented", "merged"):
            rows.append((name, f"{getattr(self, name):,} of {self.gold:,} gold"))
        rows.append(("insertions", f"{self.insertions:,} of {self.predicted:,} predicted"))
        rows.append(("underfill, overfill", f"{self.underfill:,}, {self.overfill:,} of {self.steps:,} steps"))
        return rows

    def _tables(self) -> list[Table]:
        return [Table(["segments", f"{self.gold:,} gold, {self.predicted:,} predicted"], self._rows())]

    def __str__(self) -> str:
        lines = [f"segments: {self.gold:,} gold, {self.predicted:,} predicted"]
        return "\n".join([*lines, *(f"{name:<19}  {value}" for name, value in self._rows())])


def segment_report(
    y_true: Labelled, y_pred: Labelled, *, overlaps: Iterable[float] = OVERLAPS, zero_division: float = 0.0
) -> SegmentReport:
    """F1 at some overlaps, edit score, and how many segments were missed, cut, joined or made up.

    >>> segment_report([["a", "b", "b", "b", "a"]], [["a", "b", "a", "b", "a"]]).fragmented
    1
    """
    y_true, y_pred = list(y_true), list(y_pred)
    totals = dict.fromkeys(("deletions", "fragmented", "merged", "insertions", "underfill", "overfill"), 0)
    n_gold = n_predicted = n_steps = 0
    for gold, predicted in _sequences(y_true, y_pred):
        n_steps += len(gold)
        n_gold += len(_runs(gold)[0])
        n_predicted += len(_runs(predicted)[0])
        for name, count in _mistakes(gold, predicted).items():
            totals[name] += count
    return SegmentReport(
        {
            float(overlap): segment_f1(y_true, y_pred, overlap=overlap, zero_division=zero_division)
            for overlap in overlaps
        },
        edit_score(y_true, y_pred, zero_division=zero_division),
        gold=n_gold,
        predicted=n_predicted,
        steps=n_steps,
        **totals,
    )


# --------------------------------------------------------------------------------------------- of one sequence


def _sequences(y_true: Labelled, y_pred: Labelled) -> list[tuple[np.ndarray, np.ndarray]]:
    """Codes of gold and predicted labels of every sequence, judged steps only."""
    pair = code_pair(y_true, y_pred)
    out = []
    for start, stop in zip(pair.topology.offsets[:-1], pair.topology.offsets[1:]):
        gold, predicted = pair.gold[start:stop], pair.predicted[start:stop]
        known = gold != UNKNOWN
        out.append((gold[known], predicted[known]))
    return out


def check_overlap(overlap: float) -> float:
    """The overlap, if it is a share above 0.

    >>> check_overlap(25)
    Traceback (most recent call last):
    crfield.errors.InputError: overlap must be a number > 0 and ≤ 1, got 25.
    """
    if not 0 < overlap <= 1:
        raise InputError(f"overlap must be a number > 0 and ≤ 1, got {overlap!r}.")
    return float(overlap)


def _runs(codes: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """First steps, steps after the last, and codes of the segments."""
    starts = np.flatnonzero(np.diff(codes, prepend=UNKNOWN - 1)) if len(codes) else np.zeros(0, np.int64)
    return starts, np.append(starts[1:], len(codes)) if len(codes) else starts, codes[starts]


def _matched(gold: np.ndarray, predicted: np.ndarray, overlap: float) -> tuple[int, int, int]:
    first, last, label = _runs(gold)
    taken = np.zeros(len(first), dtype=bool)
    hits, said = 0, 0
    for start, stop, code in zip(*_runs(predicted)):
        said += 1
        shared = np.minimum(last, stop) - np.maximum(first, start)
        union = np.maximum(last, stop) - np.minimum(first, start)
        share = np.where(label == code, shared / union, 0.0) if len(first) else np.zeros(1)
        best = int(np.argmax(share))
        if share[best] >= overlap and not taken[best]:
            taken[best] = True
            hits += 1
    return hits, len(first), said


def _distance(one: np.ndarray, other: np.ndarray) -> int:
    row = np.arange(len(other) + 1)
    for k, label in enumerate(one.tolist(), 1):
        # What the cell to the left adds is one a step, so the running least of (value − place) has it all at once.
        best = np.minimum(row[1:] + 1, row[:-1] + (other != label))
        row = np.minimum.accumulate(np.concatenate([[k], best]) - np.arange(len(row))) + np.arange(len(row))
    return int(row[-1])


def _mistakes(gold: np.ndarray, predicted: np.ndarray) -> dict[str, int]:
    first, last, label = _runs(gold)
    start, stop, code = _runs(predicted)
    meets = (label[:, None] == code) & (
        np.minimum(last[:, None], stop) > np.maximum(first[:, None], start)
    )  # (gold, predicted)
    pieces, covers = meets.sum(axis=1), meets.sum(axis=0)
    right = np.concatenate([[0], np.cumsum(gold == predicted)])
    found, kept = right[last] - right[first], right[stop] - right[start]
    return {
        "deletions": int((pieces == 0).sum()),
        "fragmented": int((pieces > 1).sum()),
        "merged": int((meets & (covers > 1)).any(axis=1).sum()) if len(code) else 0,
        "insertions": int((covers == 0).sum()),
        "underfill": int((last - first - found)[pieces > 0].sum()),
        "overfill": int((stop - start - kept)[covers > 0].sum()),
    }
