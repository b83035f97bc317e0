"""Which features matter over a whole data set: a list of names and numbers that prints well.

An importance says how much a feature has to do with what the model decides on given data, where a weight alone does
not: a large weight on a feature that hardly occurs matters little, and neither does one that pushes all labels alike.
The list holds what is handed to it; `ChainCRF.feature_importance` makes it and says how it is measured.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, overload

from crfield.data.frames import frame_of
from crfield.metrics.notebook import ShownAsTables, Table
from crfield.report.alignment import pad, printable, shorten, width
from crfield.report.weights import LabelPair

_WIDEST_NAME, _WIDEST_LABEL = 60, 14
MEASURES = ("margin", "deviation")


class FeatureImportance(NamedTuple):
    """How much a feature, or a group of features, matters.

    ``label`` is the one (or the `LabelPair`) that the feature speaks for most, None for groups and for what is no
    feature; ``share`` is the part of all importances; ``steps`` the number of steps (or pairs) where it is present.
    """

    name: str
    label: Hashable | None
    importance: float
    share: float
    steps: int
    kind: str


@dataclass(frozen=True, eq=False, repr=False)
class ImportanceList(ShownAsTables, Sequence[FeatureImportance]):
    """Importances, largest first.

    >>> one = FeatureImportance("w=dog", "N", 0.75, 0.6, 2, "node")
    >>> listed = ImportanceList((one, FeatureImportance("(transition)", None, 0.5, 0.4, 3, "transitions")))
    >>> listed
    importance  share  steps
        0.7500  60.0%      2  w=dog         for N
        0.5000  40.0%      3  (transition)
    >>> listed[0].name, len(listed[:1])
    ('w=dog', 1)
    """

    items: tuple[FeatureImportance, ...]
    measure: str = "margin"

    @overload
    def __getitem__(self, index: int) -> FeatureImportance: ...
    @overload
    def __getitem__(self, index: slice) -> ImportanceList: ...
    def __getitem__(self, index: int | slice) -> FeatureImportance | ImportanceList:
        return ImportanceList(self.items[index], self.measure) if isinstance(index, slice) else self.items[index]

    def __len__(self) -> int:
        return len(self.items)

    def __iter__(self) -> Iterator[FeatureImportance]:
        return iter(self.items)

    def rows(self) -> list[dict[str, Any]]:
        """One plain dict for each."""
        return [item._asdict() for item in self.items]

    def to_frame(self) -> Any:
        """The rows as a pandas DataFrame; InputError where pandas is not installed."""
        return frame_of(self.rows(), FeatureImportance._fields)

    def _tables(self) -> list[Table]:
        return [Table.of_dicts(self.rows(), ("name", "label", "importance", "share", "steps"), left=2)]

    def __str__(self) -> str:
        if not self.items:
            return "no feature matters"
        names = [shorten(printable(item.name), _WIDEST_NAME) for item in self.items]
        wide = max(map(width, names))
        lines = ["importance  share  steps"]
        for item, name in zip(self.items, names):
            number = f"{item.importance:.4f}" if item.importance >= 5e-4 else f"{item.importance:.1e}"
            told = "" if item.label is None else f"  for {_shown(item.label)}"
            if item.label is None and item.kind in ("edge", "edge_dense"):
                told = "  for pairs of labels"
            lines.append(f"{number:>10}  {item.share:5.1%}  {item.steps:>5}  {pad(name, wide)}{told}".rstrip())
        return "\n".join(lines)

    __repr__ = __str__


def field_of(name: str) -> str:
    """The part of a feature's name before the first ``=`` or ``:``, all of it where there is none.

    >>> field_of("word=Ana"), field_of("U05:He/PRP"), field_of("x[3]"), field_of("(bias)")
    ('word', 'U05', 'x[3]', '(bias)')
    """
    ends = [place for place in (name.find("="), name.find(":")) if place > 0]
    return name[: min(ends)] if ends else name


def _shown(label: Hashable) -> str:
    parts = label if isinstance(label, LabelPair) else (label,)
    return " → ".join(shorten(printable(part), _WIDEST_LABEL) for part in parts)
