"""A report of a model on labelled data: scores, errors, what was learnt, and sequences taken apart, in one value.

It prints as text, becomes a model card in Markdown (`ModelReport.to_markdown`; the idea is that of Mitchell et al.
2019, *Model cards for model reporting*), and a page in one file (`ModelReport.html`, `ModelReport.save`). The value
is handed everything and knows no model: whoever has answers in the form of `Judged` can make one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from crfield.core.typing import File
from crfield.metrics.intervals import score_intervals
from crfield.metrics.schemes import tag_scheme
from crfield.metrics.segment_scores import SegmentReport, segment_report
from crfield.metrics.span_scores import SpanReport, span_counts, span_report
from crfield.report.errors import ErrorExample, ErrorGroup, ErrorReport
from crfield.report.page.judged import UNKNOWN, Judged, tagged
from crfield.report.page.sample import Sample, plural
from crfield.report.page.shown import PICTURE, TIME, ShownItem
from crfield.report.weights import FeatureList, TransitionTable
from crfield.storage.files import write_text

LARGEST = 2_000_000  # bytes of a page; beyond it fewer items are shown
_GROUPS, _EXAMPLES, _REASONS, _AROUND = 15, 3, 3, 3


@dataclass(frozen=True, eq=False)
class Curve:
    """How training went: the objective after each step (M,), and the score of held-out data where there was one."""

    step: np.ndarray  # (M,)
    value: np.ndarray  # (M,)
    score: np.ndarray  # (M,) NaN where none was taken


@dataclass(frozen=True, eq=False)
class ModelReport:
    """A model judged on labelled data.

    >>> from crfield.report.page.judged import Item
    >>> gold, said = np.array([0, 1, 1]), np.array([0, 1, 0])
    >>> judged = Judged(("a", "b"), (Item("sequence 0", gold, said), Item("sequence 1", said, said)))
    >>> report = ModelReport("A toy", "toy", "", {}, judged, Sample((), 0, 1, 0, 1, "sequence"), ())
    >>> print(report)
    A toy
    5 of 6 steps right, 0.833; 1 of 2 sequences without an error
    <BLANKLINE>
    label             precision  recall      f1  support
    a                    0.7500  1.0000  0.8571        3
    b                    1.0000  0.6667  0.8000        3
    <BLANKLINE>
    micro average        0.8333  0.8333  0.8333        6
    macro average        0.8750  0.8333  0.8286        6
    weighted average     0.8750  0.8333  0.8286        6
    <BLANKLINE>
    accuracy 0.8333 over 6 tokens
    <BLANKLINE>
    1 of 6 steps are wrong (16.7%)
    b → a      1  100.0% of the errors, 33.3% of b
    <BLANKLINE>
    .save("report.html") writes a page, .to_markdown() gives a model card.
    >>> report.html().startswith("<!DOCTYPE html>"), report.to_markdown().splitlines()[0]
    (True, '# A toy')
    """

    title: str
    kind: str  # the estimator
    about: str  # what it takes for granted, in a sentence
    card: Mapping[str, Mapping[str, str]]  # facts by heading
    judged: Judged
    sample: Sample
    items: tuple[ShownItem, ...]
    curve: Curve | None = None
    transitions: TransitionTable | None = None
    probabilities: bool = False  # whether the transitions are probabilities and not weights
    features: FeatureList | None = None
    missing: tuple[str, ...] = ()  # what this model has not, in sentences

    # ------------------------------------------------------------------------------------------------- counts

    @cached_property
    def _tags(self) -> tuple[list[list[str | None]], list[list[str | None]]]:
        items = self.judged.items
        return [tagged(self.judged, i, i.gold) for i in items], [tagged(self.judged, i, i.predicted) for i in items]

    @cached_property
    def scheme(self) -> str | None:
        """How spans are written, if the labels are tags such as B-NP and all are known."""
        if not self.in_order or any((item.gold == UNKNOWN).any() for item in self.judged.items):
            return None
        return tag_scheme(*self._tags)

    @property
    def in_order(self) -> bool:
        """Whether items are sequences, so that spans and segments mean something."""
        return self.judged.item in ("sequence", "recording")

    @cached_property
    def spans(self) -> SpanReport | None:
        """Scores of spans, where the labels are tags of spans."""
        return None if self.scheme is None else span_report(*self._tags, scheme=self.scheme)

    @cached_property
    def span_intervals(self) -> dict[str, np.ndarray]:
        """(3, 2) ends of precision, recall and F1 of each kind of span, and of all together under ""."""
        if self.scheme is None:
            return {}
        kinds, *counts = span_counts(*self._tags, scheme=self.scheme)
        alone = dict(zip(kinds, score_intervals(*counts)))
        return alone | {"": score_intervals(*(part.sum(axis=1, keepdims=True) for part in counts))[0]}

    @cached_property
    def segments(self) -> SegmentReport | None:
        """Scores of stretches of one label, where labels last: three steps and more on average."""
        if not self.in_order or self.scheme is not None or not self.judged.n_judged:
            return None
        turns = sum(int((item.gold[1:] != item.gold[:-1]).sum()) + 1 for item in self.judged.items if len(item))
        return segment_report(*self._tags) if turns and self.judged.n_steps >= 3 * turns else None

    @cached_property
    def groups(self) -> ErrorReport:
        """Errors by true and predicted label, the commonest first, with examples from the items shown."""
        judged, shown = self.judged, {item.number: item for item in self.items}
        found, total = judged.errors(), judged.n_wrong
        truths = judged.confusion.matrix.sum(axis=1)
        groups: list[ErrorGroup] = []
        for (gold, said), places in found.items():
            chosen = [(k, t) for k, t in places.tolist() if k in shown][:_EXAMPLES] if len(groups) < _GROUPS else []
            examples = tuple(_example(shown[k], t) for k, t in chosen)
            groups.append(
                ErrorGroup(
                    judged.labels[gold],
                    judged.labels[said],
                    len(places),
                    len(places) / total,
                    len(places) / int(truths[gold]),
                    examples,
                )
            )
        return ErrorReport(judged.n_judged, tuple(groups))

    # -------------------------------------------------------------------------------------------------- forms

    @property
    def headline(self) -> str:
        """How much is right, in a line."""
        judged = self.judged
        share, low, high = judged.accuracy
        item, step = judged.item, judged.step
        if not judged.n_judged:
            return f"{judged.n_steps:,} {plural(step, judged.n_steps)}, none of which has a known label"
        over = "" if math.isnan(low) else f" (95 % interval over {plural(item, 2)} {low:.3f} … {high:.3f})"
        right = judged.n_judged - judged.n_wrong
        words = f"{right:,} of {judged.n_judged:,} {plural(step, judged.n_judged)} right, {share:.3f}{over}"
        if item == step:
            return words
        known = sum(bool(i.judged.any()) for i in judged.items)
        whole = known - sum(bool(i.wrong.any()) for i in judged.items)
        return f"{words}; {whole:,} of {known:,} {plural(item, known)} without an error"

    def __str__(self) -> str:
        parts = [f"{self.title}\n{self.headline}", str(self.judged.scores)]
        if self.spans is not None:
            parts.append(f"spans read as {self.scheme}\n{self.spans}")
        if self.segments is not None:
            parts.append(str(self.segments))
        head = replace(self.groups, groups=tuple(replace(group, examples=()) for group in self.groups.groups))
        lines = str(head).splitlines()
        parts.append("\n".join(lines[: _GROUPS + 1] + ["…"] * (len(lines) > _GROUPS + 1)))
        if self.judged.calibration is not None:
            parts.append(str(self.judged.calibration))
        parts.append('.save("report.html") writes a page, .to_markdown() gives a model card.')
        return "\n\n".join(parts)

    __repr__ = __str__

    def to_markdown(self) -> str:
        """The report as a model card in Markdown, to be edited by people."""
        from crfield.report.page.markdown import model_card

        return model_card(self)

    def html(self) -> str:
        """The report as one HTML page that asks nothing of the network, of at most about two megabytes."""
        from crfield.report.page.assembled import report_page

        report, page = self, report_page(self)
        while len(page) > LARGEST and len(report.items) > 1:  # characters are bytes: all else is escaped
            report = report.with_fewer(max(len(report.items) // 2, 1))
            page = report_page(report)
        return page

    def save(self, path: File) -> None:
        """Write the page, or with a name that ends in ``.md`` the model card, to a file."""
        card = (isinstance(path, str) and path.endswith(".md")) or getattr(path, "suffix", "") == ".md"
        write_text(path, self.to_markdown() if card else self.html())

    def with_fewer(self, count: int) -> ModelReport:
        """The same with the first so many of the items that are shown."""
        items = self.items[:count]
        wrong = sum(bool(shown.item.wrong.any()) for shown in items)
        numbers = tuple(shown.number for shown in items)
        sample = replace(self.sample, numbers=numbers, wrong_shown=wrong, right_shown=len(items) - wrong)
        return replace(self, items=items, sample=sample)

    def _repr_html_(self) -> str:
        """The page in a frame, for notebooks."""
        from html import escape

        return f'<iframe srcdoc="{escape(self.html())}" style="width:100%;height:800px;border:0"></iframe>'


def _example(shown: ShownItem, step: int) -> ErrorExample:
    item, why = shown.item, shown.why.get(step)
    texts = shown.texts
    named = texts[step] if texts else _place(shown, step)
    before = texts[max(step - _AROUND, 0) : step] if texts else ()
    after = texts[step + 1 : step + 1 + _AROUND] if texts else ()
    strongest = () if why is None else tuple(c for c in why.contributions if c.amount > 0)[:_REASONS]
    chance = float(item.sure[step])
    return ErrorExample(shown.number, step, named, tuple(before), tuple(after), chance, None, strongest)


def _place(shown: ShownItem, step: int) -> str:
    """What a step without words is called."""
    if shown.look == PICTURE and shown.item.shape is not None:
        row, column = divmod(step, shown.item.shape[1])
        return f"row {row}, column {column}"
    if shown.look == TIME and shown.seconds is not None:
        return f"{step * shown.seconds:.1f} s"
    return f"#{step}"
