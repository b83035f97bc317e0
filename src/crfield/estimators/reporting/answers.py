"""Answers of any model beside the truth, as reports count them (`crfield.report.page.judged`).

Chains and graphs answer with a row of labels for each item, images with an array, layers with a table of a column
for each layer, classifiers with one label for a row or a whole sequence. Where nodes are of several kinds, or layers
have labels of their own, the labels of all stand in one list, with the kind before them; a layer of a sequence is an
item.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from crfield.core.estimator import RegressorMixin
from crfield.data.graphs.graph import Graph
from crfield.data.labels import plain
from crfield.errors import CrfieldError, InputError, ShapeError
from crfield.estimators.base.facts import last_step
from crfield.metrics.scores import names as texts_of
from crfield.report.alignment import printable
from crfield.report.page.judged import UNKNOWN, Item, Judged


class Labeller(Protocol):
    """A fitted model that gives labels; what else it can be asked is looked for by name."""

    classes_: Any

    def predict(self, X: Any) -> Any:
        """Labels of X."""
        ...


@dataclass(frozen=True, eq=False)
class Answers:
    """What was judged, and of each item the entry of X that it belongs to."""

    judged: Judged
    source: tuple[int, ...]
    labels: tuple[Hashable, ...]  # as the model has them, in the order of the codes


class _Codes:
    """Labels as codes; what the model does not know joins at the end."""

    def __init__(self, known: Sequence[Hashable]) -> None:
        self.labels: list[Hashable] = list(known)
        self._place = {label: k for k, label in enumerate(self.labels)}

    def one(self, label: Any, prefix: Any = None) -> int:
        """The code of a label, −1 of None and of a set that leaves a choice."""
        if isinstance(label, set | frozenset) and len(label) == 1:
            (label,) = label
        if label is None or isinstance(label, set | frozenset):
            return UNKNOWN
        key = plain(label) if prefix is None else (prefix, plain(label))
        if key not in self._place:
            self._place[key] = len(self.labels)
            self.labels.append(key)
        return self._place[key]

    def row(self, labels: Any, prefix: Any = None) -> np.ndarray:
        """(N,) the codes of labels."""
        listed = labels.reshape(-1).tolist() if isinstance(labels, np.ndarray) else list(labels)
        return np.array([self.one(label, prefix) for label in listed], dtype=np.int64)


def answers_of(model: Labeller, X: Any, y: Any, *, names: Sequence[str] | None = None) -> Answers:
    """The answers of a fitted model for X beside y; InputError for a model whose answers are no labels."""
    last = last_step(model)
    if not hasattr(model, "predict") or isinstance(last, RegressorMixin):
        what = "numbers" if hasattr(model, "predict") else "nothing"
        raise InputError(f"a report is about labels, and a {type(last).__name__} predicts {what}.")
    predicted = model.predict(X)
    if len(predicted) != len(y):
        raise ShapeError(f"y must have one entry for each of the {len(predicted)} entries of X, got {len(y)}.")
    if names is not None and len(names) != len(predicted):
        raise ShapeError(f"names must be one for each of the {len(predicted)} entries of X, got {len(names)}.")
    chances = _chances(model, X)
    classes = model.classes_
    first = predicted[0] if len(predicted) else np.zeros(0)
    if isinstance(classes, Mapping):
        return _of_kinds(model, X, y, predicted, chances, classes, names)
    codes = _Codes(np.asarray(classes).tolist())
    if not isinstance(first, np.ndarray | list):  # a label for a row, or for a sequence as a whole
        noun = "row" if isinstance(X, np.ndarray) or not hasattr(X[0], "__len__") else "sequence"
        meant, found = codes.row(list(y)), codes.row(predicted)
        tables = [None] * len(found) if chances is None else [row[None] for row in np.asarray(chances)]
        each = enumerate(zip(meant[:, None], found[:, None], tables))
        rows = [Item(_name(noun, k, names), gold, said, table) for k, (gold, said, table) in each]
        return _answers(codes, rows, noun, noun, range(len(rows)))
    items = []
    image = isinstance(first, np.ndarray) and first.ndim > 1
    item, step = _words(X, image=image)
    for k, (own, truth) in enumerate(zip(predicted, y)):
        shape = (own.shape[0], int(np.prod(own.shape[1:]))) if image else None
        gold = truth if isinstance(truth, np.ndarray) or not image else np.asarray(truth, dtype=object)
        table = None if chances is None else np.asarray(chances[k]).reshape(own.size, -1)
        items.append(Item(_name(item, k, names), codes.row(gold), codes.row(own), table, shape))
    return _answers(codes, items, item, step, range(len(items)))


def _of_kinds(
    model: Labeller,
    X: Any,
    y: Any,
    predicted: Any,
    chances: Any,
    classes: Mapping[str, Any],
    names: Sequence[str] | None,
) -> Answers:
    codes = _Codes([(kind, label) for kind, own in classes.items() for label in np.asarray(own).tolist()])
    first = dict(zip(classes, np.cumsum([0, *map(len, classes.values())]).tolist()))
    items, source, size = [], [], len(codes.labels)
    if len(predicted) and np.ndim(predicted[0]) == 2:  # layers: an item for each
        for k, (own, truth) in enumerate(zip(predicted, y)):
            for column, layer in enumerate(classes):
                gold = truth[layer] if isinstance(truth, Mapping) else np.asarray(truth, dtype=object)[:, column]
                table = None
                if chances is not None:
                    table = np.zeros((len(own), size))
                    table[:, first[layer] : first[layer] + len(classes[layer])] = chances[k][layer]
                name = f"{_name('sequence', k, names)}, {layer}"
                items.append(Item(name, codes.row(gold, layer), codes.row(own[:, column], layer), table))
                source.append(k)
        return _answers(codes, items, "sequence", "step", source)
    kinds, graphs = list(classes), getattr(model, "_graphs")  # noqa: B009  (only models of graphs have kinds)
    for k, (graph, own, truth) in enumerate(zip(graphs(X), predicted, y)):
        kind = [kinds[place] for place in graph.kind_of_node.tolist()]
        table = None
        if chances is not None:
            table = np.zeros((len(own), size))
            for t, (word, row) in enumerate(zip(kind, chances[k])):
                table[t, first[word] : first[word] + len(classes[word])] = row[: len(classes[word])]
        gold, said = (
            np.array([codes.one(label, word) for label, word in zip(some, kind)], np.int64)
            for some in (_in_order(truth, kind), own.tolist())
        )
        items.append(Item(_name("graph", k, names), gold, said, table))
        source.append(k)
    return _answers(codes, items, "graph", "node", source)


def _in_order(truth: Any, kind: list[str]) -> list[Any]:
    """Labels of nodes in their order, of which each kind may have a list of its own."""
    if not isinstance(truth, Mapping):
        return list(truth)
    waiting = {word: iter(list(own)) for word, own in truth.items()}
    return [next(waiting[word], None) if word in waiting else None for word in kind]


def _answers(codes: _Codes, items: list[Item], item: str, step: str, source: Sequence[int] | range) -> Answers:
    shown = [f"{label[0]}: {label[1]}" if isinstance(label, tuple) else label for label in codes.labels]
    size = len(shown)
    wide = tuple(
        Item(one.name, one.gold, one.predicted, _widened(one.chance, size), one.shape)
        if one.chance is not None and one.chance.shape[1] < size
        else one
        for one in items
    )
    labels = tuple(printable(text) for text in texts_of(shown))
    return Answers(Judged(labels, wide, item, step), tuple(source), tuple(codes.labels))


def _widened(chance: np.ndarray | None, size: int) -> np.ndarray | None:
    """With a column of zeros for each label that the model does not know."""
    return None if chance is None else np.pad(chance, ((0, 0), (0, size - chance.shape[1])))


def _chances(model: Labeller, X: Any) -> Any:
    asked = getattr(model, "predict_proba", None)
    try:
        return None if asked is None else asked(X)
    except (CrfieldError, AttributeError):  # by the settings it has none, such as a margin's
        return None


def _words(X: Any, *, image: bool) -> tuple[str, str]:
    """What items and steps are called."""
    if image:
        return "image", "pixel"
    if len(X) and isinstance(X[0], Graph):
        return "graph", "node"
    if len(X) and isinstance(X[0], np.ndarray) and X[0].ndim == 2 and np.issubdtype(X[0].dtype, np.number):
        return "recording", "step"
    return "sequence", "step"


def _name(item: str, number: int, names: Sequence[str] | None) -> str:
    return f"{item.capitalize()} {number}" if names is None else str(names[number])
