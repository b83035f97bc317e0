"""Incremental learning of labels: labels that join after a model was trained.

New labels get codes behind the old ones, so that no code changes its meaning: the columns of probabilities stay where
they were. That is why ``classes_`` of a model that has learnt a label later is not sorted as a whole.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from crfield.core.typing import Labels
from crfield.data.labels import LabelCoder
from crfield.errors import LabelError


def grown_labels(coder: LabelCoder | None, y: Labels, classes: Iterable[Hashable] | None = None) -> LabelCoder:
    """A coder that also knows the labels of y and of ``classes``; itself when none of them is new.

    >>> coder = LabelCoder().fit([["N", "V"]])
    >>> grown_labels(coder, [["V", "D", None, "A"]]).labels
    ['N', 'V', 'A', 'D']
    >>> grown_labels(coder, [["V", None]]) is coder
    True
    """
    if classes is not None:
        listed = LabelCoder().fit([list(classes)])
        coder = listed if coder is None else _with(coder, listed)
    if coder is None:
        return LabelCoder().fit(y)
    try:
        found = LabelCoder().fit(y)
    except LabelError:  # no label at all is no new label; what else is wrong is found again where y is encoded
        return coder
    return _with(coder, found)


def _with(coder: LabelCoder, other: LabelCoder) -> LabelCoder:
    known = set(coder.labels)
    fresh = [label for label in other.labels if label not in known]
    return LabelCoder.from_classes([*coder.labels, *fresh]) if fresh else coder
