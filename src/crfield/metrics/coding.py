"""Two stacks of label sequences as two flat runs of integers.

Every score compares what was meant with what was said, step by step. The labels may be any hashable, the
sequences lists, tuples or arrays; here they are checked once and coded once, so that the scores themselves
are a few NumPy calls on flat runs. One pass of a dictionary over the labels is all that Python does per
step (about 0.1 µs each); labels are numbered in sorted order, by their text where they do not compare.

A gold step may be None: nobody knows it. It gets the code −1, and the token and sequence scores leave it
out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, count
from typing import Any

import numpy as np

from crfield.core.topology import Chains
from crfield.errors import LabelError, ShapeError

UNKNOWN = -1
_ROW = (list, tuple)
_ROW_OR_TEXT = (list, tuple, str, bytes)


@dataclass(frozen=True, eq=False)
class Coded:
    """N labels of B sequences as codes into a sorted tuple of the distinct ones; −1 stands for None.

    >>> coded = code_sequences([["b", "a", None], ["a"]])
    >>> coded.labels, coded.codes.tolist(), coded.topology.lengths.tolist()
    (('a', 'b'), [1, 0, -1, 0], [3, 1])
    """

    labels: tuple[Hashable, ...]  # L
    codes: np.ndarray  # (N,) int64
    topology: Chains


@dataclass(frozen=True, eq=False)
class CodedPair:
    """Gold and predicted labels under one numbering.

    >>> pair = code_pair([["b", None]], [["a", "b"]])
    >>> pair.labels, pair.gold.tolist(), pair.predicted.tolist()
    (('a', 'b'), [1, -1], [0, 1])
    """

    labels: tuple[Hashable, ...]  # L
    gold: np.ndarray  # (N,) int64, −1 where unknown
    predicted: np.ndarray  # (N,) int64
    topology: Chains


def code_sequences(y: Iterable[Iterable[Any]], *, name: str = "y") -> Coded:
    """Check and code one stack of label sequences; ``name`` is what error messages call it."""
    rows = _rows(y, name)
    numbers: defaultdict[Hashable, int] = defaultdict(count().__next__)
    codes = _numbered(rows, numbers, name)
    labels, rank = _sorted_labels(numbers)
    return Coded(labels, rank[codes], Chains.from_lengths([len(row) for row in rows]))


def code_pair(y_true: Iterable[Iterable[Any]], y_pred: Iterable[Iterable[Any]]) -> CodedPair:
    """Check that gold and predicted labels lie side by side, and code both under one numbering."""
    gold_rows, predicted_rows = _rows(y_true, "y_true"), _rows(y_pred, "y_pred")
    if len(gold_rows) != len(predicted_rows):
        raise ShapeError(
            f"y_true holds {len(gold_rows)} sequences but y_pred holds {len(predicted_rows)}: "
            "pass one predicted sequence for each gold one, in the same order."
        )
    for s, (gold, predicted) in enumerate(zip(gold_rows, predicted_rows)):
        if len(gold) != len(predicted):
            raise ShapeError(
                f"sequence {s}: y_true has {len(gold)} labels but y_pred has {len(predicted)}. "
                "Both must label the same steps; were they tokenised or filtered differently?"
            )
    numbers: defaultdict[Hashable, int] = defaultdict(count().__next__)
    gold_codes = _numbered(gold_rows, numbers, "y_true")
    predicted_codes = _numbered(predicted_rows, numbers, "y_pred")
    labels, rank = _sorted_labels(numbers)
    pair = CodedPair(
        labels,
        rank[gold_codes],
        rank[predicted_codes],
        Chains.from_lengths([len(row) for row in gold_rows]),
    )
    missing = np.flatnonzero((pair.predicted == UNKNOWN) & (pair.gold != UNKNOWN))
    if len(missing):
        s, t = place(pair.topology, int(missing[0]))
        raise LabelError(
            f"y_pred is None at sequence {s}, step {t}, where y_true is {labels[pair.gold[missing[0]]]!r}. "
            "A prediction must name a label; only gold steps may be unknown."
        )
    return pair


def place(topology: Chains, node: int) -> tuple[int, int]:
    """(sequence, step) of a node.

    >>> place(Chains.from_lengths([2, 0, 3]), 3)
    (2, 1)
    """
    sequence = int(np.searchsorted(topology.offsets, node, side="right")) - 1
    return sequence, node - int(topology.offsets[sequence])


def sort_labels(labels: Iterable[Hashable]) -> list[Hashable]:
    """Labels in their own order, or by their text where they do not compare.

    >>> sort_labels([10, 9]), sort_labels(["b", 10, 9, "a"])
    ([9, 10], [10, 9, 'a', 'b'])
    """
    labels = list(labels)
    try:
        return sorted(labels)  # type: ignore[type-var]
    except TypeError:
        return sorted(labels, key=lambda label: (str(label), type(label).__name__))


def choose_labels(pair: CodedPair, labels: Sequence[Hashable] | None) -> tuple[tuple[Hashable, ...], np.ndarray]:
    """The labels a report is about and, for each label of the pair, its row there or −1.

    >>> chosen, row = choose_labels(code_pair([["a", "b"]], [["b", "b"]]), ["b", "c"])
    >>> chosen, row.tolist()
    (('b', 'c'), [-1, 0])
    """
    if labels is None:
        return pair.labels, np.arange(len(pair.labels))
    if isinstance(labels, str):
        raise LabelError(f"labels must be a list of labels, got the string {labels!r}; write [{labels!r}].")
    chosen = tuple(labels)
    rows = {label: r for r, label in enumerate(chosen)}
    if len(rows) != len(chosen):
        raise LabelError(f"labels names a label twice: {list(chosen)!r}. Name each once.")
    return chosen, np.array([rows.get(label, -1) for label in pair.labels], dtype=np.int64)


def _rows(y: Iterable[Iterable[Any]], name: str) -> list[Sequence[Any]]:
    if isinstance(y, str | bytes) or not isinstance(y, Iterable):
        raise ShapeError(f"{name} must be a sequence of label sequences, got {type(y).__name__}.")
    rows: list[Sequence[Any]] = []
    for s, row in enumerate(y):
        if isinstance(row, np.ndarray):
            row = row.tolist()
        elif not isinstance(row, _ROW_OR_TEXT) and isinstance(row, Iterable):
            row = list(row)
        if not isinstance(row, _ROW):
            raise ShapeError(
                f"{name}[{s}] must be a sequence of labels, got {row!r}. "
                f"For a single sequence pass [{name}]: a list that holds it."
            )
        rows.append(row)
    return rows


def _numbered(rows: list[Sequence[Any]], numbers: defaultdict[Hashable, int], name: str) -> np.ndarray:
    """(N,) running numbers of the labels in the order in which they were first met."""
    number: Callable[[Any], int] = numbers.__getitem__
    try:
        return np.fromiter(map(number, chain.from_iterable(rows)), np.int64, sum(map(len, rows)))
    except TypeError as cause:
        for s, row in enumerate(rows):
            for t, label in enumerate(row):
                if not isinstance(label, Hashable) or not _hashes(label):
                    raise LabelError(
                        f"{name}[{s}][{t}] must be one hashable label, got {label!r} "
                        f"({type(label).__name__}). Write None for a gold step that is not known."
                    ) from cause
        raise


def _hashes(label: Hashable) -> bool:
    try:
        hash(label)
    except TypeError:
        return False
    return True


def _sorted_labels(numbers: dict[Hashable, int]) -> tuple[tuple[Hashable, ...], np.ndarray]:
    """The distinct labels in order and the rank of each running number, −1 for None."""
    rank = np.full(len(numbers), UNKNOWN, dtype=np.int64)
    plain = {label.item() if isinstance(label, np.generic) else label: n for label, n in numbers.items()}
    ordered = sort_labels(label for label in plain if label is not None)
    for r, label in enumerate(ordered):
        if label != label:  # noqa: PLR0124 - NaN, the one label that is not itself
            raise LabelError("a label is NaN, which equals nothing. Write None for an unknown gold step.")
        rank[plain[label]] = r
    return tuple(ordered), rank
