"""What the page's script reads: one JSON object, with long arrays as little-endian numbers in base64.

Labels are 16-bit codes (−1 unknown), probabilities multiples of 1/65535. Of many labels only the most probable of
each step are kept. Names of features are listed once and referred to by number. Items too long to be drawn are
thinned: of a recording each part of equal length keeps its commonest labels, its mean probabilities and whether
anything in it was wrong; of a text the part around an error is kept; of an image every n-th pixel.
"""

from __future__ import annotations

import json
import math
from base64 import b64encode
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from crfield.report.alignment import printable, shorten
from crfield.report.explain import Contribution, Explanation, LabelRun
from crfield.report.page.judged import Item
from crfield.report.page.shown import GRAPH, PICTURE, TEXT, TIME, ShownItem, Signal
from crfield.report.weights import LabelPair

if TYPE_CHECKING:
    from crfield.report.page.model_report import ModelReport

_LABELS = 8  # probabilities kept of each step where there are more than twelve labels
_FULL = 12
_LONGEST = {TIME: 1200, TEXT: 300, GRAPH: 300}
_SIDE = 96  # pixels of an image
_PARTS = 10  # contributions of an explanation
_WIDEST, _WIDEST_LABEL = 120, 40


def island(report: ModelReport) -> str:
    """The object as text that may stand inside a script element: a tag in the data cannot end it."""
    return json.dumps(island_data(report), ensure_ascii=True, separators=(",", ":")).replace("<", "\\u003c")


def island_data(report: ModelReport) -> dict[str, Any]:
    """The object itself."""
    names = _Names()
    labels = [clean(label) for label in report.judged.labels]
    items = [_item(shown, names, len(labels)) for shown in report.items]
    features = [] if report.features is None else report.features
    rows = [[names[item.name], label_text(item.label), _number(item.weight)] for item in features]
    asked = any(shown.why for shown in report.items)
    flips = any(why.flip is not None for shown in report.items for why in shown.why.values())
    return {
        "labels": labels,
        "item": report.judged.item,
        "step": report.judged.step,
        "tags": report.scheme is not None,
        "items": items,
        "features": rows,
        "names": names.listed,
        "background": _background(report),
        "whyless": "" if asked else f"A {report.kind} names no reasons for a single {report.judged.step}.",
        "flipless": "" if flips else f"What would flip it is not known for a {report.kind}.",
    }


def _background(report: ModelReport) -> int:
    """The label of more than half of all pixels, which is drawn in grey; −1 where there is none."""
    if not any(shown.look == PICTURE for shown in report.items):
        return -1
    counts = report.judged.counts[2].sum(axis=0)
    return int(counts.argmax()) if len(counts) > 2 and counts.max() > counts.sum() / 2 else -1


def clean(text: Any) -> str:
    """A text of the user's, of some length, in which everything can be seen."""
    return shorten(printable(text), _WIDEST)


def label_text(label: Any) -> str:
    """A label, or several in a row, in full as far as a page bears it.

    >>> label_text(LabelPair("stand up, walk, stairs", "O"))
    'stand up, walk, stairs → O'
    """
    parts = label if isinstance(label, LabelPair | LabelRun) else (label,)
    return " → ".join(shorten(printable(part), _WIDEST_LABEL) for part in parts)


class _Names:
    """Texts, each listed once."""

    def __init__(self) -> None:
        self.listed: list[str] = []
        self._place: dict[str, int] = {}

    def __getitem__(self, text: str) -> int:
        shown = clean(text)
        if shown not in self._place:
            self._place[shown] = len(self.listed)
            self.listed.append(shown)
        return self._place[shown]


def _item(shown: ShownItem, names: _Names, n_labels: int) -> dict[str, Any]:
    item, first, factor, stride, cut = _fitting(shown)
    kept, ids = _chances(item.chance, n_labels)
    whole = shown.item
    own = None if shown.alone is None else _fitting(replace(shown, item=replace(whole, chance=shown.alone)))[0].chance
    alone, alone_ids = _chances(own if kept is not None else None, n_labels)
    texts = list(map(clean, shown.texts[first : first + len(item)])) if shown.texts else None
    return {
        "n": shown.number,
        "name": clean(whole.name),
        "look": shown.look,
        "errors": int(whole.wrong.sum()),
        "judged": int(whole.judged.sum()),
        "from": first,
        "factor": factor,
        "stride": stride,
        "cut": cut,
        "gold": _packed(item.gold, "<i2"),
        "said": _packed(item.predicted, "<i2"),
        "bad": _packed(_bad(whole, first, factor, len(item)) if shown.look == TIME else item.wrong, "u1"),
        "k": 0 if kept is None else kept.shape[1],
        "p": None if kept is None else _packed(np.rint(np.clip(kept, 0, 1) * 65535), "<u2"),
        "ids": None if ids is None else _packed(ids, "<u2"),
        "alone": None if alone is None else _packed(np.rint(np.clip(alone, 0, 1) * 65535), "<u2"),
        "aloneIds": None if alone_ids is None else _packed(alone_ids, "<u2"),
        "texts": texts,
        "signals": [_signal(signal) for signal in shown.signals],
        "shape": item.shape,
        "picture": _picture(shown.picture, stride),
        "edges": [list(edge) for edge in shown.edges if max(edge) < len(item)] if first == 0 else [],
        "best": [[_number(p), _changes(labels, whole.predicted)] for p, labels in shown.best],
        "why": {str(step): _why(told, names) for step, told in shown.why.items()},
        "seconds": shown.seconds,
    }


def _fitting(shown: ShownItem) -> tuple[Item, int, int, int, str]:
    """The item no longer than can be drawn: its first step, how many steps one stands for, every how manyth pixel."""
    item, length = shown.item, len(shown.item)
    if shown.look == PICTURE and item.shape is not None:
        stride = max(math.ceil(max(item.shape) / _SIDE), 1)
        if stride == 1:
            return item, 0, 1, 1, ""
        places = np.arange(length).reshape(item.shape)[::stride, ::stride]
        few = _taken(item, places.reshape(-1))
        words = f"every {stride}th row and column is drawn"
        return replace(few, shape=(places.shape[0], places.shape[1])), 0, 1, stride, words
    most = _LONGEST.get(shown.look, length)
    if length <= most:
        return item, 0, 1, 1, ""
    if shown.look == TIME:
        factor = math.ceil(length / most)
        return _thinned(item, factor), 0, factor, 1, f"one point stands for {factor} steps"
    centre = int(np.argmax(np.where(item.wrong, item.sure, -1.0))) if item.wrong.any() else 0
    first = int(np.clip(centre - most // 2, 0, length - most))
    part = _taken(item, np.arange(first, first + most))
    return part, first, 1, 1, f"steps {first:,} … {first + most - 1:,} of {length:,}"


def _taken(item: Item, places: np.ndarray) -> Item:
    chance = None if item.chance is None else item.chance[places]
    return Item(item.name, item.gold[places], item.predicted[places], chance)


def _thinned(item: Item, factor: int) -> Item:
    """The commonest labels and the mean probabilities of every ``factor`` steps."""
    starts = np.arange(0, len(item), factor)
    size = int(max(item.gold.max(initial=0), item.predicted.max(initial=0))) + 2

    def commonest(codes: np.ndarray) -> np.ndarray:
        counts = np.zeros((len(starts), size), np.int64)
        np.add.at(counts, (np.arange(len(codes)) // factor, codes + 1), 1)
        return counts.argmax(axis=1) - 1

    chance = None
    if item.chance is not None:
        sums = np.add.reduceat(item.chance, starts, axis=0)
        chance = sums / np.diff(np.append(starts, len(item)))[:, None]
    return Item(item.name, commonest(item.gold), commonest(item.predicted), chance)


def _bad(item: Item, first: int, factor: int, length: int) -> np.ndarray:
    places = np.flatnonzero(item.wrong) - first
    marks = np.zeros(length, np.uint8)
    marks[places[(places >= 0) & (places < length * factor)] // factor] = 1
    return marks


def _chances(chance: np.ndarray | None, n_labels: int) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Probabilities of all labels, or those of the most probable ones with their codes."""
    if chance is None:
        return None, None
    if n_labels <= _FULL:
        return chance, None
    ids = np.argsort(-chance, axis=1, kind="stable")[:, :_LABELS]
    return np.take_along_axis(chance, ids, axis=1), ids


def _signal(signal: Signal) -> dict[str, Any]:
    both = np.concatenate([signal.low, signal.high])
    known = both[np.isfinite(both)]
    low, high = np.quantile(known, [0.005, 0.995]).tolist() if len(known) else (0.0, 0.0)  # one spike hides all else
    scale = 254.0 / (high - low) if high > low else 0.0

    def scaled(values: np.ndarray) -> str:
        return _packed(
            np.where(np.isfinite(values), np.clip(np.nan_to_num((values - low) * scale), 0, 254), 255.0), "u1"
        )

    return {"name": clean(signal.name), "low": low, "high": high, "a": scaled(signal.low), "b": scaled(signal.high)}


def _picture(picture: np.ndarray | None, stride: int) -> str | None:
    if picture is None:
        return None
    seen = picture[::stride, ::stride]
    return _packed(np.repeat(seen[..., None], 3, axis=2) if seen.ndim == 2 else seen, "u1")


def _changes(labels: np.ndarray, predicted: np.ndarray) -> list[list[int]]:
    return [[int(t), int(labels[t])] for t in np.flatnonzero(labels != predicted)[:60]]


def _why(told: Explanation, names: _Names) -> dict[str, Any]:
    kept, rest = told.contributions[:_PARTS], told.contributions[_PARTS:]
    flip = told.flip
    return {
        "step": told.step,
        "label": label_text(told.label),
        "other": None if told.other is None else label_text(told.other),
        "margin": _number(told.margin),
        "parts": [[names[_part_name(c)], c.step, _number(c.amount), _part_labels(c)] for c in kept],
        "more": [len(rest), _number(math.fsum(c.amount for c in rest))] if rest else None,
        "flip": None
        if flip is None
        else {
            "becomes": None if flip.becomes is None else label_text(flip.becomes),
            "removed": [[names[r.name], r.step] for r in flip.removed],
            "words": str(flip),
        },
    }


def _part_name(item: Contribution) -> str:
    return item.name if item.value == 1.0 else f"{item.name} = {item.value:.4g}"


def _part_labels(item: Contribution) -> str:
    if item.kind in ("node", "dense"):
        return ""
    return f"{label_text(item.label)}, not {label_text(item.other)}"


def _number(value: float) -> float | None:
    return float(f"{value:.5g}") if math.isfinite(value) else None


def _packed(values: np.ndarray | Iterable[Any], kind: str) -> str:
    return b64encode(np.ascontiguousarray(values).astype(kind).tobytes()).decode("ascii")
