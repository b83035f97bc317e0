"""The errors of a model, grouped by what was confused with what, with examples and the reasons for them.

A confusion matrix says how often; this says where and why. Each group of errors, true label → predicted label, comes
with the examples that the model was surest of, in their context, and with what spoke most for the wrong label against
the right one there (`ChainCRF.explain`): a feature that misleads, labels that contradict each other, a rule that
nobody told the model.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from crfield.core.checks import integer
from crfield.data.frames import frame_of
from crfield.data.labels import plain
from crfield.errors import InputError, ShapeError
from crfield.metrics.notebook import ShownAsTables, Table
from crfield.report.alignment import pad, printable, shorten, width
from crfield.report.explain import Contribution

_WORDS = ("word", "token", "form", "text", "w")
_WIDEST_TEXT, _WIDEST_NAME = 24, 40
_COLUMNS = ("gold", "predicted", "count", "share", "rate")


@dataclass(frozen=True)
class ErrorExample:
    """One wrong step: where it is, what stands around it, how sure the model was, and what spoke most for the error.

    ``margin`` and ``strongest`` compare the predicted with the true label; the margin is None where that cannot be.
    """

    sequence: int
    step: int
    text: str
    before: tuple[str, ...]
    after: tuple[str, ...]
    probability: float
    margin: float | None
    strongest: tuple[Contribution, ...]

    def __str__(self) -> str:
        around = [*self.before, f"[{self.text}]", *self.after]
        told = " ".join(shorten(printable(text), _WIDEST_TEXT) for text in around)
        reasons = ", ".join(self._reason(c) for c in self.strongest)
        line = f"sequence {self.sequence}, step {self.step}: {told}  p = {self.probability:.3f}"
        return f"{line}  {reasons}" if reasons else line

    def _reason(self, item: Contribution) -> str:
        place = "" if item.step == self.step else f" (step {item.step})"
        return f"{item.amount:+.2f} {shorten(item.text, _WIDEST_NAME)}{place}"


@dataclass(frozen=True)
class ErrorGroup:
    """All steps of one true label that got the same other label.

    ``share`` is their part of all errors, ``rate`` their part of the steps that have this true label.
    """

    gold: Hashable
    predicted: Hashable
    count: int
    share: float
    rate: float
    examples: tuple[ErrorExample, ...] = ()


@dataclass(frozen=True)
class ErrorReport(ShownAsTables):
    """Groups of errors, the most frequent first.

    >>> ErrorReport(10, (ErrorGroup("N", "V", 2, 1.0, 0.5),))
    2 of 10 steps are wrong (20.0%)
    N → V      2  100.0% of the errors, 50.0% of N
    """

    n_steps: int
    groups: tuple[ErrorGroup, ...]

    @property
    def n_errors(self) -> int:
        """Wrong steps."""
        return sum(group.count for group in self.groups)

    def __len__(self) -> int:
        return len(self.groups)

    def __iter__(self) -> Iterator[ErrorGroup]:
        return iter(self.groups)

    def __getitem__(self, number: int) -> ErrorGroup:
        return self.groups[number]

    def rows(self) -> list[dict[str, Any]]:
        """One plain dict for each group."""
        return [{name: getattr(group, name) for name in _COLUMNS} for group in self.groups]

    def example_rows(self) -> list[dict[str, Any]]:
        """One plain dict for each example."""
        return [
            {
                "gold": group.gold,
                "predicted": group.predicted,
                "sequence": one.sequence,
                "step": one.step,
                "before": " ".join(one.before),
                "text": one.text,
                "after": " ".join(one.after),
                "probability": one.probability,
                "margin": one.margin,
                "strongest": [{"text": c.text, "step": c.step, "amount": c.amount} for c in one.strongest],
            }
            for group in self.groups
            for one in group.examples
        ]

    def to_frame(self) -> Any:
        """The rows as a pandas DataFrame; InputError where pandas is not installed."""
        return frame_of(self.rows(), _COLUMNS)

    def _headline(self) -> str:
        if not self.n_errors:
            return f"no errors in {self.n_steps} steps"
        return f"{self.n_errors} of {self.n_steps} steps are wrong ({self.n_errors / self.n_steps:.1%})"

    def _tables(self) -> list[Table]:
        shown = ("gold", "predicted", "before", "text", "after", "probability", "sequence", "step")
        return [
            Table.of_dicts(self.rows(), _COLUMNS, left=2, title=self._headline()),
            Table.of_dicts(self.example_rows(), shown, left=5, title="examples"),
        ]

    def __str__(self) -> str:
        if not self.n_errors:
            return self._headline()
        lines = [self._headline()]
        heads = [f"{_shown(group.gold)} → {_shown(group.predicted)}" for group in self.groups]
        wide = max(map(width, heads))
        for group, head in zip(self.groups, heads):
            shares = f"{group.share:.1%} of the errors, {group.rate:.1%} of {_shown(group.gold)}"
            lines.append(f"{pad(head, wide)}  {group.count:>5}  {shares}")
            lines += [f"    {example}" for example in group.examples]
        return "\n".join(lines)

    __repr__ = __str__


def error_groups(
    model: Any,
    X: Any,
    y: Any,
    *,
    n_examples: int = 3,
    n_groups: int | None = 20,
    context: int = 2,
    n_strongest: int = 3,
    show: Callable[[Any, int], str] | None = None,
) -> ErrorReport:
    """The errors of a fitted chain model on labelled sequences, by confusion; steps of unknown label are left out.

    The first ``n_groups`` groups (None: all) get ``n_examples`` examples each, those of largest probability, with
    ``context`` steps either side and the ``n_strongest`` contributions to the error, where the model has ``explain``.
    ``show(x, t)`` gives the text of a step; without it its word, or its first feature, is looked for. Where the truth
    is a set of labels, anything else is an error.

    >>> import crfield
    >>> X = [[["w=the"], ["w=dog"], ["w=barks"]], [["w=a"], ["w=dog"]]]
    >>> model = crfield.ChainCRF(l2=0.1).fit(X, [["D", "N", "V"], ["D", "N"]])
    >>> report = error_groups(model, X, [["D", "N", "V"], ["D", "V"]], n_strongest=1)
    >>> report.rows()
    [{'gold': 'V', 'predicted': 'N', 'count': 1, 'share': 1.0, 'rate': 0.5}]
    >>> report[0].examples[0].text, report[0].examples[0].before, report[0].examples[0].strongest[0].name
    ('w=dog', ('w=a',), '(transition)')
    """
    for name, value in (("n_examples", n_examples), ("context", context), ("n_strongest", n_strongest)):
        integer(0)(name, value)
    predicted, tables = model.predict(X), model.predict_proba(X)
    if len(predicted) != len(y):
        raise ShapeError(f"y must have one list of labels for each of {len(predicted)} sequences, got {len(y)}.")
    code = {label: k for k, label in enumerate(model.classes_.tolist())}
    found: dict[tuple[Hashable, Hashable], list[tuple[float, int, int]]] = {}
    truths: Counter[Hashable] = Counter()
    for s, (labels, truth, table) in enumerate(zip(predicted, y, tables)):
        if len(labels) != len(truth):
            raise ShapeError(f"sequence {s} has {len(labels)} steps but {len(truth)} labels.")
        for t, (label, gold) in enumerate(zip(labels.tolist(), truth)):
            if gold is None:
                continue
            wanted = frozenset(gold) if isinstance(gold, set | frozenset) else plain(gold)
            truths[wanted] += 1
            if not (label in wanted if isinstance(wanted, frozenset) else label == wanted):
                found.setdefault((wanted, label), []).append((float(table[t][code[label]]), s, t))
    total = sum(map(len, found.values()))
    groups: list[ErrorGroup] = []
    for (gold, label), places in sorted(found.items(), key=lambda item: (-len(item[1]), _key(item[0]))):
        chosen = sorted(places, key=lambda place: (-place[0], place[1:]))[:n_examples]
        if n_groups is not None and len(groups) >= n_groups:
            chosen = []
        examples = tuple(
            _example(model, X[s], s, t, chance, label, gold, context, n_strongest, show or step_text)
            for chance, s, t in chosen
        )
        count = len(places)
        groups.append(ErrorGroup(gold, label, count, count / total, count / truths[gold], examples))
    return ErrorReport(sum(truths.values()), tuple(groups))


def step_text(x: Any, step: int) -> str:
    """What a step of a sequence is called: its word, its first column or feature, or its number.

    >>> step_text([{"pos": "NN", "word": "dog"}], 0), step_text([["w=dog", "s=x"]], 0), step_text(["dog"], 0)
    ('dog', 'w=dog', 'dog')
    >>> import numpy as np
    >>> step_text(np.zeros((3, 2)), 1)
    '#1'
    """
    try:
        item = x[step]
    except (TypeError, IndexError, KeyError):
        return f"#{step}"
    if isinstance(item, Mapping):
        named = next((name for name in _WORDS if isinstance(item.get(name), str)), None)
        if named is not None:
            return str(item[named])
        texts = [f"{name}={value}" for name, value in item.items() if isinstance(value, str)]
        return next(iter([*texts, *map(str, item)]), f"#{step}")
    if isinstance(item, str):
        return item
    if isinstance(item, list | tuple) and item:
        first = item[0]
        return (
            first if isinstance(first, str) else str(first[0]) if isinstance(first, tuple) and first else f"#{step}"
        )
    return f"#{step}"


def _example(
    model: Any,
    x: Any,
    sequence: int,
    step: int,
    chance: float,
    label: Hashable,
    gold: Hashable,
    context: int,
    n_strongest: int,
    show: Callable[[Any, int], str],
) -> ErrorExample:
    length = len(x) if hasattr(x, "__len__") and not hasattr(x, "tocsr") else int(x.shape[0])
    before = tuple(show(x, t) for t in range(max(step - context, 0), step))
    after = tuple(show(x, t) for t in range(step + 1, min(step + context + 1, length)))
    margin, strongest = None, ()
    if hasattr(model, "explain"):
        known = not isinstance(gold, frozenset) and gold in model.classes_.tolist()
        try:
            told = model.explain(x, step, label=label, against=gold if known else None, removals=0)
        except InputError:  # scores that are no sums, or a truth that the rules forbid: there is nothing to tell
            told = None
        if told is not None and told.other is not None:
            margin = told.margin if known else None
            strongest = tuple(c for c in told.contributions if c.amount > 0)[:n_strongest]
    return ErrorExample(sequence, step, show(x, step), before, after, chance, margin, strongest)


def _key(pair: tuple[Hashable, Hashable]) -> tuple[str, str]:
    return str(pair[0]), str(pair[1])


def _shown(label: Hashable) -> str:
    if isinstance(label, frozenset):
        return "{" + ", ".join(sorted(printable(part) for part in label)) + "}"
    return shorten(printable(label), _WIDEST_TEXT)
